// kvfile.c: see kvfile.h.
#define _GNU_SOURCE
#include "kvfile.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "fingerprint.h"

enum { CHUNK = 64 }; // slots a frame: some hundred KB for a large model

static KvHead head_of(const Engine *e, const Sequence *s) {
    KvHead head = fingerprint(&e->model, &e->kv.pool);
    head.n_tokens = (uint32_t)s->n_tokens;
    head.n_slots = (uint32_t)s->n_cached;
    return head;
}

// ---- saving ---------------------------------------------------------------------------------------------------------

static Status write_chunk(KvWriter *w, const KvPool *kv, const Sequence *s, int first, int n) {
    for (int layer = 0; layer < kv->n_layers; layer++) {
        uint8_t *room = kvwriter_room(w, (KvChunk){(uint32_t)layer, (uint32_t)first, (uint32_t)n});
        kv_read_rows(kv, layer, s->blocks, first, n, room);
        TRY(kvwriter_rows(w));
    }
    return OK;
}

static Status write_all(KvWriter *w, const Engine *e, const Sequence *s) {
    KvHead head = head_of(e, s);
    TRY(kvwriter_head(w, &head));
    TRY(kvwriter_tokens(w, s->tokens));
    for (int first = 0; first < s->n_cached; first += CHUNK)
        TRY(write_chunk(w, &e->kv.pool, s, first, int_min(CHUNK, s->n_cached - first)));
    return kvwriter_end(w);
}

Status kvfile_save(const char *path, const Engine *e, const Sequence *s) {
    assert(e->kv.n_copies == 0); // a block that still waits for its copy does not hold its rows yet
    FileDraft draft;
    TRY(file_draft(path, &draft));
    KvWriter w = {.fd = draft.fd};
    Status st = write_all(&w, e, s);
    kvwriter_free(&w);
    return file_publish(&draft, st);
}

// ---- loading --------------------------------------------------------------------------------------------------------

// Takes blocks for the slots of the file.
static Status take_room(const KvReader *r, Engine *e, Sequence *s) {
    const KvHead *h = &r->s.head;
    uint32_t n_ctx = (uint32_t)e->kv.max_slots;
    if (h->n_slots > n_ctx || h->n_tokens > n_ctx + 1) // the last token of a full context has no slot
        return status_error(
            QUILL_MEMORY, "%.300s: byte %zu: at most the %u tokens of the context expected, %u found; start with -c %u",
            r->name, kvreader_offset(offsetof(KvHead, n_tokens)), n_ctx, h->n_tokens,
            (h->n_tokens + 1023) / 1024 * 1024);
    if (!kv_reserve(&e->kv, s, (int)h->n_slots))
        return status_error(
            QUILL_MEMORY,
            "%.300s: byte %zu: at most the %lld free slots of the KV cache expected, %u found; end other "
            "sequences, or start with a larger -c",
            r->name, kvreader_offset(offsetof(KvHead, n_slots)), (long long)e->kv.n_free * e->kv.pool.block,
            h->n_slots);
    return OK;
}

static Status read_all(KvReader *r, Engine *e, Sequence *s) {
    const int *tokens;
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
        kv_write_rows(&e->kv.pool, (int)c.layer, s->blocks, (int)c.first, (int)c.n, rows);
    }
    return kvreader_end(r);
}

static ssize_t read_fd(void *arg, void *out, size_t n) { return read(*(int *)arg, out, n); }

// A file ends where its frames do.
static Status check_end(const KvReader *r, int fd) {
    char more;
    ssize_t n;
    do n = read(fd, &more, 1);
    while (n < 0 && errno == EINTR);
    if (n < 0) return status_error(QUILL_IO, "%.300s: byte %zu: cannot read: %s", r->name, r->at, strerror(errno));
    if (n > 0)
        return status_error(QUILL_MODEL, "%.300s: byte %zu: the end of the file expected, more bytes found: damaged",
                            r->name, r->at);
    return OK;
}

Status kvfile_load(const char *path, Engine *e, Sequence *s) {
    assert(s->n_tokens == 0 && s->n_blocks == 0 && s->n_cached == 0);
    assert(e->kv.n_copies == 0); // one that is still to be made could overwrite what is placed here
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return status_error(QUILL_IO, "%.300s: cannot open: %s", path, strerror(errno));
    KvReader r = {.name = path, .read = read_fd, .arg = &fd};
    Status st = read_all(&r, e, s);
    if (!st.code) st = check_end(&r, fd);
    if (st.code) kv_truncate(&e->kv, s, 0);
    else s->n_cached = (int)r.s.head.n_slots;
    kvreader_free(&r);
    close(fd);
    return st;
}
