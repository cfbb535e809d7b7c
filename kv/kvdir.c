// kv/kvdir.c: see kv/kvdir.h. Errors of the directory are only notes on stderr, since the answer does not depend on it.
#include "kv/kvdir.h"

#include <stdio.h>
#include <string.h>

#include "base/guard.h"
#include "base/note.h"
#include "scheduler.h"

static const char no_more_kept[] = "the answer is complete, but no more K and V are saved there";

// Does not repeat the last note: many requests may begin with one file that cannot be read.
static void note(KvDir *k, Status st, const char *what) {
    if (!st.code || strcmp(st.message, k->noted.message) == 0) return;
    note_print(k->quiet, "--kv-dir: %s; %s", st.message, what);
    k->noted = st;
}

// Policy.fetch: loads blocks for the request, about `most` slots. True: there is nothing more to load.
static bool fetch(const Policy *p, Request *r, int most) {
    KvDir *k = p->arg;
    int had = r->seq->n_cached;
    note(k, kvstore_load(k->store, k->kv, r->seq, most), "the K and V from there on are computed again");
    r->n_loaded += r->seq->n_cached - had;
    return r->seq->n_cached - had < most;
}

void kvdir_init(KvDir *k, KvStore *store, KvCache *kv, const Policy *next, bool quiet) {
    *k = (KvDir){.store = store, .kv = kv, .quiet = quiet};
    k->policy = (Policy){.fetch = fetch, .arg = k, .next = next};
}

void kvdir_free(KvDir *k) {
    kvstore_close(k->store);
    *k = (KvDir){0};
}

// Saves about `most` slots of the blocks that r's rows have filled; returns how many slots were written.
static int keep_some(KvDir *k, Request *r, int most) {
    int block = k->kv->pool->block;
    int64_t had = kvstore_stats(k->store).n_saved;
    int first = int_max(r->n_kept, r->n_reused) / block * block;
    if (r->seq->n_cached < first + block) return 0;
    note(k, kvstore_save_some(k->store, k->kv, r->seq, r->time.begun, &first, most), no_more_kept);
    r->n_kept = first;
    return (int)(kvstore_stats(k->store).n_saved - had);
}

void kvdir_step(KvDir *k, const Scheduler *s, const Batch *b) {
    if (!k->store || !kvcache_shares(k->kv) || guard_lost().code) return;
    int room = b->n_rows + k->kv->pool->block;
    for (int i = 0; i < b->n_seqs && room > 0; i++) {
        Request *r = scheduler_rows(s, i)->request;
        if (r && r->n_more == 0) room -= keep_some(k, r, room); // n_more: which sequence stays is still open
    }
}

void kvdir_sequence(KvDir *k, const Sequence *q) {
    if (k->store && !guard_lost().code) note(k, kvstore_save(k->store, k->kv, q), no_more_kept);
}
