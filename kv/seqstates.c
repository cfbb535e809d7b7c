// kv/seqstates.c: see kv/seqstates.h.
#include "kv/seqstates.h"

#include <assert.h>

static void push(KvStates *p, SeqStates *s, int n_tokens, int state) {
    p->n_active += s->n == 0;
    if (s->n == s->cap) {
        s->cap = int_max(4, 2 * s->cap);
        s->list = mem_resize(s->list, (size_t)s->cap * sizeof *s->list);
    }
    s->list[s->n++] = (SeqState){n_tokens, state};
}

void seqstates_drop(KvStates *p, SeqStates *s, int n_tokens) {
    bool had = s->n > 0;
    while (s->n > 0 && s->list[s->n - 1].n_tokens > n_tokens) kvstates_drop(p, s->list[--s->n].state);
    p->n_active -= had && s->n == 0;
}

// Whether the state after the first `at` tokens should become a checkpoint. prefill: the step has several rows.
static bool is_checkpoint(const KvStates *p, const SeqStates *s, int n_tokens, int at, bool prefill) {
    int last = (n_tokens - 1) / p->block * p->block; // leaves a token to compute, for its logits
    bool wanted = at == s->wanted[0] || at == s->wanted[1];
    return at > 0 && at % p->block == 0 && (at % p->every == 0 || wanted || (prefill && at == last));
}

int seqstates_next_checkpoint(const KvStates *p, const SeqStates *s, int now, int n_tokens) {
    int at = (now / p->block + 1) * p->block;
    while (at <= n_tokens && !is_checkpoint(p, s, n_tokens, at, true)) at += p->block;
    return at;
}

bool seqstates_plan(KvStates *p, SeqStates *s, int now, int n_tokens, int n_slots, int n_drafts) {
    int first = int_max(now + 1, n_slots - int_max(0, n_drafts));
    if (p->pool.n_layers == 0 || n_slots <= now) return true;
    seqstates_drop(p, s, now);
    bool in_place = n_drafts == 0 && p->back == 0 && s->n > 0 && kvstates_is_own(p, s->list->state);
    int need = n_slots - first + 1 - in_place, left = kvstates_left(p) - need;
    if (left < 0) return false;
    // Checkpoints leave a state to every sequence that has none: it would have to wait for it.
    int spare = left - int_max(0, kvstates_reserved(p) - (s->n == 0) * p->of_one);
    for (int at = (now / p->block + 1) * p->block; at < first && spare > 0; at += p->block)
        if (n_drafts >= 0 && is_checkpoint(p, s, n_tokens, at, n_drafts == 0)) {
            push(p, s, at, kvstates_take(p));
            spare--;
        }
    for (int at = first; at <= n_slots && !in_place; at++) push(p, s, at, kvstates_take(p));
    if (!in_place) return true;
    kvstates_share(p, s->list->state);
    push(p, s, n_slots, s->list->state);
    return true;
}

bool seqstates_plan_ahead(KvStates *p, SeqStates *s, int n_slots) {
    if (p->pool.n_layers == 0) return true;
    seqstates_drop(p, s, n_slots - 1);
    if (kvstates_left(p) == 0) return false;
    push(p, s, n_slots, kvstates_take(p));
    return true;
}

void seqstates_set(KvStates *p, SeqStates *s, int n_tokens, int state) {
    if (n_tokens > 0) kvstates_share(p, state); // before seqstates_drop: it may be in the list already
    seqstates_drop(p, s, -1);
    if (n_tokens > 0) push(p, s, n_tokens, state);
}

void seqstates_advance(KvStates *p, SeqStates *s, const int *blocks, int n_tokens, int from, int to) {
    int kept = 0, passed = 0, present = 0;
    while (passed < s->n && s->list[passed].n_tokens <= to) passed++;
    for (int i = 0; i < s->n; i++) {
        SeqState e = s->list[i];
        if (i < passed && e.n_tokens > from && is_checkpoint(p, s, n_tokens, e.n_tokens, to - from > 1))
            kvstates_keep(p, blocks[e.n_tokens / p->block - 1], e.state);
        if (i == passed - 1) present = kept;
        if (i < passed - 1 && e.n_tokens < to - p->back) kvstates_drop(p, e.state);
        else s->list[kept++] = e;
    }
    s->n = kept;
    assert(p->pool.n_layers == 0 || to == from || s->list[present].n_tokens == to);
}

int seqstates_return(KvStates *p, SeqStates *s, const int *blocks, int n_tokens, int group) {
    int at = n_tokens / p->block * p->block, state = -1;
    seqstates_drop(p, s, n_tokens);
    if (s->n > 0 && s->list[s->n - 1].n_tokens >= at && group == 1) return s->list[s->n - 1].n_tokens;
    for (; at > 0; at -= p->block)
        if (at % group == 0 && (state = kvstates_find(p, blocks[at / p->block - 1])) >= 0) break;
    at = int_max(0, at);
    seqstates_set(p, s, at, state);
    return at;
}
