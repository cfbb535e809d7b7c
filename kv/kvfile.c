// kv/kvfile.c: see kv/kvfile.h.
#define _GNU_SOURCE
#include "kv/kvfile.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "kv/fingerprint.h"
#include "kv/kvchunk.h"
#include "kv/kvrows.h"

enum { CHUNK = 64 }; // slots per frame: some hundred KB for a large model
_Static_assert(CHUNK % SEAL == 0, "a chunk is whole groups");

static KvHead head_of(const Engine *e, const Sequence *s) {
    KvHead head = fingerprint(&e->model, e->kv.pool);
    head.n_tokens = (uint32_t)s->n_tokens;
    head.n_slots = (uint32_t)s->n_cached;
    return head;
}

// QUILL_USAGE if slots were evicted or blended, or if no layer has K and V: a file must hold every token's K and V as a
// prefill computes them.
static Status check_whole(const Engine *e, const Sequence *s) {
    if (kv_n_layers(e->kv.pool) == 0)
        return status_error(QUILL_USAGE,
                            "a KV file: a model with attention expected, found %s, whose %d layers have none",
                            e->model.c.arch, e->model.c.n_layers);
    if (s->n_gone > 0)
        return status_error(QUILL_USAGE,
                            "a KV file: the K and V of all %d tokens expected, those of %d were removed by --evict",
                            s->n_cached, s->n_gone);
    if (s->altered)
        return status_error(QUILL_USAGE,
                            "a KV file: K and V computed over the whole text expected, found those of chunks (--chunk, "
                            "/chunk), which were computed separately and cannot be saved");
    return OK;
}

// ---- saving ---------------------------------------------------------------------------------------------------------

Status kvfile_begin(KvWriter *w, const Engine *e, const Sequence *s, int n_slots) {
    TRY(check_whole(e, s));
    KvHead head = head_of(e, s);
    head.n_slots = (uint32_t)n_slots;
    TRY(kvwriter_head(w, &head));
    return kvwriter_tokens(w, s->tokens);
}

Status kvfile_send(KvWriter *w, const Engine *e, const Sequence *s) {
    int n_slots = (int)w->s.head.n_slots, ready = int_min(s->n_cached, n_slots);
    for (int first = (int)w->s.next.first, n; first < ready; first += n) {
        n = int_min(CHUNK, n_slots - first);
        if (first + n > ready) break; // waits for the next step
        TRY(kvchunk_write(w, &e->kv, s, first, n, first));
    }
    return OK;
}

Status kvfile_end(KvWriter *w, const Engine *e, const Sequence *s, const float *logits) {
    TRY(kvwriter_states(w, &e->kv.states, kvcache_state(s, s->n_cached)));
    if (logits) TRY(kvwriter_last(w, logits, e->model.c.n_vocab));
    TRY(kvrows_intact(e->kv.pool));
    TRY(engine_fault(e));
    return kvwriter_end(w);
}

static Status write_all(KvWriter *w, const Engine *e, const Sequence *s) {
    TRY(kvfile_begin(w, e, s, s->n_cached));
    TRY(kvfile_send(w, e, s));
    return kvfile_end(w, e, s, NULL);
}

Status kvfile_create(const char *path, TempFile *out) {
    if (strcmp(path, "-") != 0) TRY(tempfile_open(path, 0666, out));
    else *out = (TempFile){.path = "stdout", .fd = dup(STDOUT_FILENO)};
    if (out->fd < 0) return status_error(QUILL_IO, "stdout: cannot open: %s", strerror(errno));
    if (!isatty(out->fd)) return OK;
    return tempfile_publish(out, status_error(QUILL_USAGE, "--kv-out: a file or a pipe expected, found a terminal"));
}

Status kvfile_save(const char *path, const Engine *e, const Sequence *s) {
    assert(e->kv.n_copies == 0); // a block with a pending copy does not hold its rows yet
    TempFile temp;
    TRY(check_whole(e, s));
    TRY(tempfile_open(path, 0666, &temp));
    KvWriter w = {.fd = temp.fd};
    Status st = write_all(&w, e, s);
    kvwriter_free(&w);
    return tempfile_publish(&temp, st);
}

// ---- loading --------------------------------------------------------------------------------------------------------

static Status context_too_small(const KvReader *r, const Engine *e) {
    char advice[CONTEXT_ADVICE];
    engine_context_advice(e, r->s.head.n_tokens, 0, advice);
    return status_error(QUILL_CONTEXT,
                        "%.300s: byte %zu: at most the %d tokens of the context expected, %u found; load a shorter "
                        "file%s",
                        r->name, kvreader_offset(offsetof(KvHead, n_tokens)), e->kv.max_slots, r->s.head.n_tokens,
                        advice);
}

// Reserves blocks for the slots of the file.
static Status take_room(const KvReader *r, Engine *e, Sequence *s) {
    const KvHead *h = &r->s.head;
    uint32_t n_ctx = (uint32_t)e->kv.max_slots;
    if (h->n_slots > n_ctx || h->n_tokens > n_ctx + 1) // the last token of a full context has no slot
        return context_too_small(r, e);
    if (!kvcache_reserve_loaded(&e->kv, s, (int)h->n_slots))
        return status_error(
            QUILL_MEMORY,
            "%.300s: byte %zu: at most the %lld free slots of the KV cache expected, %u found; end other "
            "sequences, or start with a larger -c",
            r->name, kvreader_offset(offsetof(KvHead, n_slots)), (long long)e->kv.n_free * e->kv.pool->block,
            h->n_slots);
    return OK;
}

// Reads the recurrent states after the last slot.
static Status read_states(KvReader *r, Engine *e, Sequence *s) {
    const StatePool *states = &e->kv.states.pool;
    for (int layer = 0; layer < states->n_layers; layer++) {
        const float *values;
        size_t n = states->floats;
        TRY(kvreader_state(r, (uint32_t)layer, &values, &n));
        if (!values)
            return status_error(QUILL_MODEL, "%.300s: byte %zu: the states of %d recurrent layers expected, %d found",
                                r->name, r->at, states->n_layers, layer);
        kvstates_store(&e->kv.states, kvcache_state(s, (int)r->s.head.n_slots), layer, values);
    }
    return OK;
}

static Status read_all(KvReader *r, Engine *e, Sequence *s, const float **logits) {
    const int *tokens;
    int n;
    KvHead mine = head_of(e, s);
    TRY(kvreader_head(r));
    TRY(kvreader_match(r, &mine));
    TRY(take_room(r, e, s));
    TRY(kvreader_tokens(r, e->model.c.n_vocab, &tokens));
    sequence_push(s, tokens, (int)r->s.head.n_tokens);
    while (kvreader_more(r)) {
        KvChunk c;
        const uint8_t *rows;
        TRY(kvreader_rows(r, &c, &rows));
        kvcache_store_rows(&e->kv, s, (int)c.layer, (int)c.first, (int)c.n, rows);
    }
    if (r->s.head.n_slots > 0) TRY(read_states(r, e, s));
    return kvreader_last(r, e->model.c.n_vocab, logits, &n);
}

Status kvfile_receive(int fd, const char *name, Engine *e, Sequence *s, float *logits, bool *has_logits) {
    assert(s->n_tokens == 0 && s->n_blocks == 0 && s->n_cached == 0);
    assert(e->kv.n_copies == 0); // a pending copy could overwrite the loaded rows
    KvReader r = {.name = name, .read = kvreader_from_fd, .arg = &fd};
    const float *last = NULL;
    Status st = read_all(&r, e, s, &last);
    if (!st.code && last && logits) memcpy(logits, last, (size_t)e->model.c.n_vocab * sizeof *logits);
    *has_logits = last != NULL;
    if (!st.code) st = kvreader_end(&r);
    if (!st.code) st = kvreader_eof(&r);
    if (st.code) kvcache_truncate(&e->kv, s, 0);
    else kvcache_advance(&e->kv, s, (int)r.s.head.n_slots);
    kvreader_free(&r);
    return st;
}

Status kvfile_load(const char *path, Engine *e, Sequence *s) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return status_error(QUILL_IO, "%.300s: cannot open: %s", path, strerror(errno));
    bool has_logits;
    Status st = kvfile_receive(fd, path, e, s, NULL, &has_logits);
    close(fd);
    return st;
}
