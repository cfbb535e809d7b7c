// kvfile.c: see kvfile.h.
#define _GNU_SOURCE
#include "kvfile.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "kvframes.h"

enum {
    CHUNK = 64, // slots a frame: some hundred KB for a large model
    PIECE = 4096,
    N_PIECES = 16, // what is looked at of a large tensor
};

// ---- fingerprints ---------------------------------------------------------------------------------------------------

static void add(XXH3_state_t *hash, const void *bytes, size_t n) { XXH3_64bits_update(hash, bytes, n); }
static void add_u64(XXH3_state_t *hash, uint64_t v) { add(hash, &v, sizeof v); }
static void add_f32(XXH3_state_t *hash, float v) { add(hash, &v, sizeof v); }
static void add_str(XXH3_state_t *hash, Str s) {
    add_u64(hash, s.n);
    add(hash, s.data, s.n);
}

// All bytes of a small tensor; pieces of a large one, evenly from its first byte to its last: training changes every
// part of a matrix, and reading all of a large model would take as long as the prompt that a file saves.
static void add_sample(XXH3_state_t *hash, const uint8_t *data, size_t n) {
    if (n <= (size_t)PIECE * N_PIECES) {
        add(hash, data, n);
        return;
    }
    for (size_t i = 0; i < N_PIECES; i++) add(hash, data + (n - PIECE) * i / (N_PIECES - 1), PIECE);
}

static void add_tensor(XXH3_state_t *hash, const GgufTensor *t) {
    add_str(hash, t->name);
    add_u64(hash, (uint64_t)t->type);
    for (size_t i = 0; i < ARRAY_LEN(t->dims); i++) add_u64(hash, t->dims[i]);
    add_sample(hash, t->data, t->n_bytes);
    if (t->group) add_sample(hash, (const uint8_t *)t->scales, t->n_bytes / (size_t)t->group * sizeof(float));
}

static void add_model(XXH3_state_t *hash, const Engine *e) {
    const Config *c = &e->model.c;
    const int shape[] = {c->n_layers, c->dim, c->n_heads, c->n_kv_heads, c->head_dim, c->ffn, c->n_vocab, c->window};
    add_str(hash, str_of(c->arch));
    for (size_t i = 0; i < ARRAY_LEN(shape); i++) add_u64(hash, (uint64_t)shape[i]);
    add_f32(hash, c->eps);
    for (int i = 0; i < gguf_n_tensors(e->gguf); i++)
        if (model_uses(&e->model, i)) add_tensor(hash, gguf_tensor_at(e->gguf, i));
}

static void add_tokenizer(XXH3_state_t *hash, const Engine *e) {
    for (int i = 0; i < gguf_n_values(e->gguf); i++) {
        const GgufValue *v = gguf_value_at(e->gguf, i);
        if (!str_has_prefix(v->key, "tokenizer.ggml.")) continue;
        add_str(hash, v->key);
        add_u64(hash, (uint64_t)v->elem_type);
        add_str(hash, (Str){(const char *)v->data, v->n_bytes});
    }
}

// Frequencies in f32, so that another machine's last bit of a pow() makes no other model of it.
static void add_rope(XXH3_state_t *hash, const Engine *e) {
    const Heads *h = &e->model.layers[0].heads;
    add_u64(hash, (uint64_t)h->n_rot);
    add_u64(hash, h->rope_adjacent);
    add_f32(hash, h->rope_mscale);
    for (int i = 0; i < h->n_rot / 2; i++) add_f32(hash, (float)h->rope_freq[i]);
}

static uint64_t fingerprint(const Engine *e, void (*add_all)(XXH3_state_t *, const Engine *)) {
    XXH3_state_t *hash = XXH3_createState();
    assert(hash);
    XXH3_64bits_reset(hash);
    add_all(hash, e);
    uint64_t found = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return found;
}

static KvHead head_of(const Engine *e, const Sequence *s) {
    const KvPool *kv = &e->kv.pool;
    return (KvHead){.model = fingerprint(e, add_model),
                    .tokenizer = fingerprint(e, add_tokenizer),
                    .rope = fingerprint(e, add_rope),
                    .type_k = (uint32_t)kv->type_k,
                    .type_v = (uint32_t)kv->type_v,
                    .exactness = KV_EXACT,
                    .n_layers = (uint32_t)kv->n_layers,
                    .n_kv_heads = (uint32_t)kv->n_kv_heads,
                    .head_dim = (uint32_t)kv->head_dim,
                    .n_tokens = (uint32_t)s->n_tokens,
                    .n_slots = (uint32_t)s->n_cached};
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

// Files hold every token's K and V, dense.
static Status check_dense(const char *path, const Engine *e, const Sequence *s) {
    if (e->kv.pool.tail_of)
        return status_error(QUILL_USAGE,
                            "%.300s: a dense KV cache expected, found %s and %s; start with -ctk f16 -ctv f16", path,
                            type_name(e->kv.pool.type_k), type_name(e->kv.pool.type_v));
    if (s->n_gone > 0)
        return status_error(QUILL_USAGE, "%.300s: a KV cache of all %d tokens expected, %d were given up (--evict)",
                            path, s->n_cached, s->n_gone);
    return OK;
}

Status kvfile_save(const char *path, const Engine *e, const Sequence *s) {
    TRY(check_dense(path, e, s));
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
    TRY(check_dense(path, e, s));
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
