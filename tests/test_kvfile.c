// tests/test_kvfile.c: a sequence's KV cache as a file: what goes on from it is what would have come without it, and
// nothing that is not exactly such a file of such a model is taken.
#define _GNU_SOURCE // directory.h
#include "tests/rig/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kv/kvfile.h"
#include "kv/kvframes.h"
#include "tests/rig/directory.h"
#include "tests/rig/engine_rig.h"
#include "tests/rig/kv_bytes.h"

// ---- runs -----------------------------------------------------------------------------------------------------------

// Greedy tokens and their logits, and how many rows the forward computed for them.
typedef struct {
    float logits[32 * VOCAB];
    int n, n_rows;
} Run;

static Finish keep(Request *r, int token, const float *logits) {
    (void)token;
    Run *run = r->arg;
    memcpy(run->logits + run->n++ * VOCAB, logits, VOCAB * sizeof *logits);
    return RUNNING;
}

// `logits`: those after the last token, where all of s is computed; NULL otherwise.
static void generate_from(Engine *e, Sequence *s, const float *logits, int n_new, Run *run) {
    Request r = {
        .seq = *s, .sampling = sampler_defaults(), .max_new = n_new, .logits = logits, .emit = keep, .arg = run};
    r.sampling.temp = 0;
    *run = (Run){0};
    scheduler_add(e->sched, &r);
    for (Batch *b; scheduler_next(e->sched, &b);) {
        run->n_rows += b->n_rows;
        scheduler_take(e->sched, model_forward(&e->model, &e->work, e->kv.pool, b));
    }
    assert_int_equal(r.n_new, n_new);
    timeline_free(&r.time);
    *s = r.seq;
}

static void generate(Engine *e, Sequence *s, int n_new, Run *run) { generate_from(e, s, NULL, n_new, run); }

static void release(Engine *e, Sequence *s) {
    kvcache_release(&e->kv, s);
    sequence_free(s);
}

static void assert_same(const Run *a, const Sequence *s, const Run *b, const Sequence *t) {
    assert_int_equal(s->n_tokens, t->n_tokens);
    assert_memory_equal(s->tokens, t->tokens, (size_t)s->n_tokens * sizeof *s->tokens);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->logits, b->logits, (size_t)a->n * VOCAB * sizeof *a->logits);
}

// ---- files ----------------------------------------------------------------------------------------------------------

typedef struct {
    uint8_t *bytes;
    size_t n;
} Bytes;

static Bytes read_bytes(const char *path) {
    Buf b = {0};
    assert_ok(file_read(path, &b));
    return (Bytes){(uint8_t *)b.data, b.n};
}

static void write_bytes(const char *path, const void *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_ok(fd_write_all(fd, bytes, n));
    close(fd);
}

// ---- what a refusal may not change ----------------------------------------------------------------------------------

// A cache with a sequence of somebody else's in it, and its bookkeeping and rows before a refused load.
typedef struct {
    Engine e;
    Sequence other;
    int *refs, n_free;
    KvBlock *blocks;
    uint8_t *rows;
} Guard;

static void read_all_rows(const Guard *g, uint8_t *out) {
    const KvPool *kv = g->e.kv.pool;
    for (int layer = 0; layer < kv->n_layers; layer++, out += kvrows_bytes(kv, g->other.n_cached))
        kvrows_read(kv, layer, g->other.blocks, 0, g->other.n_cached, out);
}

static size_t guard_bytes(const Guard *g) {
    return (size_t)g->e.kv.pool->n_layers * kvrows_bytes(g->e.kv.pool, g->other.n_cached);
}

static void guard_open(Guard *g, const Setup *u) {
    *g = (Guard){0};
    open_engine(&g->e, u);
    Run *run = mem_alloc(sizeof *run);
    push_random(&g->other, 7, 99);
    generate(&g->e, &g->other, 2, run);
    free(run);
    const KvCache *kv = &g->e.kv;
    size_t n = (size_t)kv->pool->n_blocks;
    g->n_free = kv->n_free;
    g->blocks = mem_alloc((n + 1) * sizeof *g->blocks);
    g->refs = mem_alloc(n * sizeof *g->refs);
    memcpy(g->blocks, kv->blocks, (n + 1) * sizeof *g->blocks);
    memcpy(g->refs, kv->refs, n * sizeof *g->refs);
    g->rows = mem_alloc(guard_bytes(g));
    read_all_rows(g, g->rows);
}

static void guard_close(Guard *g) {
    release(&g->e, &g->other);
    engine_close(&g->e);
    free(g->blocks);
    free(g->refs);
    free(g->rows);
}

// The load fails with that code and those words, says which file, and changes nothing.
static void assert_refused(Guard *g, const char *path, int code, const char *words) {
    Sequence s = {0};
    Status st = kvfile_load(path, &g->e, &s);
    if (st.code != code || !strstr(st.message, words) || !strstr(st.message, path) || strchr(st.message, '\n'))
        fail_msg("%s: code %d with \"%s\" expected, %d found: %s", path, code, words, st.code, st.message);
    if (code == QUILL_MODEL && !strstr(st.message, ": byte ")) fail_msg("no offset: %s", st.message);
    assert_true(s.n_tokens == 0 && s.n_cached == 0 && s.n_blocks == 0);
    const KvCache *kv = &g->e.kv;
    assert_int_equal(kv->n_free, g->n_free);
    for (int i = 0, b = kv->pool->n_blocks; i < g->n_free; i++, b = kv->blocks[b].next)
        assert_int_equal(kv->blocks[b].next, g->blocks[b].next);
    assert_memory_equal(kv->refs, g->refs, (size_t)kv->pool->n_blocks * sizeof(int));
    uint8_t *rows = mem_alloc(guard_bytes(g));
    read_all_rows(g, rows);
    assert_memory_equal(rows, g->rows, guard_bytes(g));
    free(rows);
    sequence_free(&s);
}

static void assert_bytes_refused(Guard *g, const void *bytes, size_t n, int code, const char *words) {
    const char *path = test_tmp("refused.kv");
    write_bytes(path, bytes, n);
    assert_refused(g, path, code, words);
}

// ---- going on -------------------------------------------------------------------------------------------------------

// Saves in the middle of an answer and goes on in an engine with another cache, and where it was saved.
static void round_trip(const Setup *from, const Setup *to, int n_prompt) {
    Engine a, b;
    Sequence s = {0}, t = {0};
    Run *want = mem_alloc(sizeof *want), *got = mem_alloc(sizeof *got);
    const char *path = test_tmp("round.kv"), *again = test_tmp("again.kv");
    open_engine(&a, from);
    open_engine(&b, to);
    push_random(&s, n_prompt, 5);
    generate(&a, &s, 6, want);
    assert_ok(kvfile_save(path, &a, &s));
    assert_ok(kvfile_load(path, &b, &t));
    assert_int_equal(t.n_cached, s.n_cached);
    assert_int_equal(t.n_tokens, s.n_cached + 1);

    assert_ok(kvfile_save(again, &b, &t)); // the file knows nothing of blocks
    Bytes x = read_bytes(path), y = read_bytes(again);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.bytes, y.bytes, x.n);
    free(x.bytes);
    free(y.bytes);
    assert_int_equal(count_entries(test_tmp(""), "round.kv."), 0);

    generate(&a, &s, 20, want);
    generate(&b, &t, 20, got);
    assert_int_equal(got->n_rows, 20); // the token that was sampled last, and the new ones: none of the prompt
    assert_same(want, &s, got, &t);
    release(&a, &s);
    release(&b, &t);
    engine_close(&a);
    engine_close(&b);
    free(want);
    free(got);
}

static void test_goes_on(void **state) {
    (void)state;
    static const TinyModel models[] = {{.n_layers = 3},
                                       {.arch = "qwen2", .type = TYPE_Q8_0, .head_dim = 32, .rope = "yarn"},
                                       {.arch = "qwen3", .n_kv_heads = 1, .tied = true}};
    static const int types[][2] = {{TYPE_F32, TYPE_F32},    {TYPE_F16, TYPE_F16}, {TYPE_BF16, TYPE_F32},
                                   {TYPE_FP8, TYPE_F16},    {TYPE_F32, TYPE_FP8}, {TYPE_Q8_0, TYPE_Q4_0},
                                   {TYPE_KIVI2, TYPE_KIVI2}};
    static const int blocks[][2] = {{0, 0}, {0, 16}, {5, 0}, {32, 7}, {1, 64}};
    for (size_t m = 0; m < ARRAY_LEN(models); m++)
        for (size_t t = 0; t < ARRAY_LEN(types); t++)
            for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
                Setup from = {.model = models[m], .block = blocks[i][0], .type_k = types[t][0], .type_v = types[t][1]};
                Setup to = from;
                from.rotate = to.rotate = i == 2;
                to.block = blocks[i][1];
                to.n_ctx = 150;
                // one frame a layer: less, exact (64), more; an open group, and none
                round_trip(&from, &to, i == 0 ? 1 : i == 1 ? 59 : i == 2 ? 91 : 100);
                if (i == 1) from.isa = to.isa = "auto", round_trip(&from, &to, 100);
            }
}

// A prompt that was not computed to its end, a context that is full, and nothing at all.
static void test_ends(void **state) {
    (void)state;
    Setup u = {.block = 8, .n_ctx = 40};
    Engine e;
    Run *want = mem_alloc(sizeof *want), *got = mem_alloc(sizeof *got);
    const char *path = test_tmp("ends.kv");
    open_engine(&e, &u);
    Sequence s = {0}, t = {0};
    assert_ok(kvfile_save(path, &e, &s));
    assert_ok(kvfile_load(path, &e, &t));
    assert_true(t.n_tokens == 0 && t.n_cached == 0 && t.n_blocks == 0);
    push_random(&s, 20, 1);
    generate(&e, &s, 2, want);
    push_random(&s, 5, 2);
    assert_ok(kvfile_save(path, &e, &s));
    assert_ok(kvfile_load(path, &e, &t));
    assert_int_equal(t.n_cached, 21);
    assert_int_equal(t.n_tokens, 27);
    generate(&e, &s, 14, want); // fills it: the last token has no slot
    generate(&e, &t, 14, got);
    assert_int_equal(got->n_rows, 6 + 13);
    assert_same(want, &s, got, &t);
    assert_int_equal(s.n_tokens, 41);
    release(&e, &t);
    assert_ok(kvfile_save(path, &e, &s));
    assert_ok(kvfile_load(path, &e, &t));
    assert_int_equal(t.n_tokens, 41);
    assert_int_equal(t.n_cached, 40);
    release(&e, &s);
    release(&e, &t);
    engine_close(&e);
    free(want);
    free(got);
}

// A fork shares blocks with the sequence that it comes from; its file holds them all the same.
static void test_fork(void **state) {
    (void)state;
    Setup u = {.block = 8};
    Engine e;
    Run *want = mem_alloc(sizeof *want), *got = mem_alloc(sizeof *got);
    const char *path = test_tmp("fork.kv");
    open_engine(&e, &u);
    Sequence s = {0}, fork = {0}, t = {0};
    push_random(&s, 20, 1);
    generate(&e, &s, 1, want);
    kvcache_fork(&e.kv, &s, &fork);
    generate(&e, &fork, 4, want);
    assert_ok(kvfile_save(path, &e, &fork));
    assert_ok(kvfile_load(path, &e, &t));
    generate(&e, &fork, 4, want);
    generate(&e, &t, 4, got);
    assert_same(want, &fork, got, &t);
    release(&e, &s);
    release(&e, &fork);
    release(&e, &t);
    engine_close(&e);
    free(want);
    free(got);
}

// The rows of the file, one by one, are those of the planes: slot by slot, head by head, K before V, chunk by chunk.
static void test_rows(void **state) {
    (void)state;
    const Setup u = {.model = {.n_layers = 2}, .block = 16, .type_k = TYPE_F16, .type_v = TYPE_F32};
    Engine e;
    Sequence s = {0};
    Run *run = mem_alloc(sizeof *run);
    const char *path = test_tmp("rows.kv");
    open_engine(&e, &u);
    push_random(&s, 70, 5);
    generate(&e, &s, 1, run);
    assert_ok(kvfile_save(path, &e, &s));
    Bytes f = read_bytes(path);
    const KvPool *kv = e.kv.pool;
    size_t of_k = 2 * (size_t)kv->head_dim, of_v = 4 * (size_t)kv->head_dim;
    const uint8_t *at = f.bytes + KV_BYTES_HEAD + sizeof(KvHead) + 8 + 16 + 71 * 4;
    assert_int_equal(kvrows_bytes(kv, 70), 70 * 2 * (of_k + of_v));
    for (int first = 0; first < 70; first += 64)
        for (int layer = 0; layer < 2; layer++, at += 8) {
            int n = int_min(64, 70 - first);
            const KvChunk chunk = {(uint32_t)layer, (uint32_t)first, (uint32_t)n};
            assert_memory_equal(at, "ROWS", 4);
            assert_memory_equal(at + 8, &chunk, sizeof chunk);
            const uint8_t *k = at + 8 + sizeof chunk, *v = k + (size_t)n * 2 * of_k;
            for (int slot = first; slot < first + n; slot++)
                for (int head = 0; head < 2; head++, k += of_k, v += of_v) {
                    size_t index = kv_index(kv, layer, s.blocks[slot / 16], head, slot % 16);
                    assert_memory_equal(k, kv->k + index * 2, of_k);
                    assert_memory_equal(v, kv->v + index * 4, of_v);
                }
            at = v; // and the checksum
        }
    free(f.bytes);
    release(&e, &s);
    engine_close(&e);
    free(run);
}

// ---- damage ---------------------------------------------------------------------------------------------------------

#define SMALLEST                                                                                                       \
    { .dim = 8, .n_heads = 2, .n_kv_heads = 1, .head_dim = 4, .ffn = 8, .vocab = VOCAB }
static const Setup smallest = {.model = SMALLEST, .block = 4};
static const Setup smallest_sealed = {.model = SMALLEST, .block = 4, .type_k = TYPE_Q8_0, .type_v = TYPE_KIVI2};
enum { SEALED_TOKENS = 36 }; // a group, and three slots of the next

// The file of n tokens and n - 1 slots of that setup.
static Bytes saved(const Setup *u, int n) {
    Engine e;
    Sequence s = {0};
    Run *run = mem_alloc(sizeof *run);
    const char *path = test_tmp("saved.kv");
    open_engine(&e, u);
    push_random(&s, n - 1, 5);
    generate(&e, &s, 1, run);
    assert_ok(kvfile_save(path, &e, &s));
    release(&e, &s);
    engine_close(&e);
    free(run);
    return read_bytes(path);
}

static void flip_bytes(const Setup *u, int n, const uint8_t *flips, size_t n_flips) {
    Bytes f = saved(u, n);
    Guard g;
    guard_open(&g, u);
    for (size_t i = 0; i < f.n; i++)
        for (size_t k = 0; k < n_flips; k++) {
            f.bytes[i] ^= flips[k];
            assert_bytes_refused(&g, f.bytes, f.n, QUILL_MODEL, "expected");
            f.bytes[i] ^= flips[k];
        }
    guard_close(&g);
    free(f.bytes);
}

static void test_flipped_bytes(void **state) {
    (void)state;
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    flip_bytes(&smallest, 6, flips, 3);
    flip_bytes(&smallest_sealed, SEALED_TOKENS, flips, 1);
}

static void cut_and_lengthen(const Setup *u, int n_tokens) {
    Bytes f = saved(u, n_tokens);
    Guard g;
    guard_open(&g, u);
    for (size_t n = 0; n < f.n; n++) assert_bytes_refused(&g, f.bytes, n, QUILL_MODEL, "the file was cut");
    f.bytes = mem_resize(f.bytes, f.n + 1);
    f.bytes[f.n] = 0;
    assert_bytes_refused(&g, f.bytes, f.n + 1, QUILL_MODEL, "the end of the file expected");
    guard_close(&g);
    free(f.bytes);
}

static void test_cut_and_longer(void **state) {
    (void)state;
    cut_and_lengthen(&smallest, 6);
    cut_and_lengthen(&smallest_sealed, SEALED_TOKENS);
}

// Frames that are whole, but not these ones in this order; the checksums of a mended file hide nothing.
static void test_wrong_frames(void **state) {
    (void)state;
    Bytes f = saved(&smallest, 6), other = saved(&smallest, 5);
    Guard g;
    guard_open(&g, &smallest);
    size_t at[8], n = 0, end = KV_BYTES_START;
    for (size_t size; (size = kv_frame_bytes(f.bytes, f.n, end)) > 0; end += size) at[n++] = end;
    assert_int_equal(n, 5); // head, tokens, two layers, end
    assert_int_equal(end, f.n);
    size_t layer = at[3] - at[2];
    uint8_t *copy = mem_alloc(f.n + layer);
    for (int mended = 0; mended < 2; mended++) {
        const char *words = mended ? "layer 0, slots 0 + 5 expected, layer 1" : "checksum";
        memcpy(copy, f.bytes, f.n); // two layers change places
        memcpy(copy + at[2], f.bytes + at[3], layer);
        memcpy(copy + at[3], f.bytes + at[2], layer);
        if (mended) kv_mend(copy, f.n);
        assert_bytes_refused(&g, copy, f.n, QUILL_MODEL, words);

        memcpy(copy, f.bytes, f.n); // one is left out
        memmove(copy + at[3], copy + at[4], f.n - at[4]);
        if (mended) kv_mend(copy, f.n - layer);
        assert_bytes_refused(&g, copy, f.n - layer, QUILL_MODEL, "a frame ROWS expected, DONE found");

        memcpy(copy, f.bytes, at[4]); // one comes twice
        memcpy(copy + at[4], f.bytes + at[3], f.n - at[3]);
        if (mended) kv_mend(copy, f.n + layer);
        assert_bytes_refused(&g, copy, f.n + layer, QUILL_MODEL, "a frame DONE expected, ROWS found");
    }
    // A frame of another file with a checksum that is right there.
    memcpy(copy, f.bytes, f.n);
    memcpy(copy + KV_BYTES_START, other.bytes + KV_BYTES_START, at[1] - at[0]);
    assert_bytes_refused(&g, copy, f.n, QUILL_MODEL, "a frame TOKS of 20 bytes expected, 24 found");
    free(copy);
    guard_close(&g);
    free(f.bytes);
    free(other.bytes);
}

// ---- hostile numbers ------------------------------------------------------------------------------------------------

// The 32 bits at a byte become v, and every checksum is right again.
static void assert_number_refused(Guard *g, const Bytes *f, size_t at, uint32_t v, int code, const char *words) {
    uint8_t *copy = (uint8_t *)mem_copy((const char *)f->bytes, f->n);
    char where[40];
    memcpy(copy + at, &v, sizeof v);
    kv_mend(copy, f->n);
    const char *path = test_tmp("hostile.kv");
    write_bytes(path, copy, f->n);
    assert_refused(g, path, code, words);
    snprintf(where, sizeof where, "byte %zu:", at);
    assert_refused(g, path, code, where);
    free(copy);
}

typedef struct {
    size_t field;
    uint32_t value;
    int code;
    const char *words;
} HostileNumber;

static void assert_header_refused(Guard *g, const Bytes *f, const HostileNumber *cases, size_t n) {
    for (size_t i = 0; i < n; i++)
        assert_number_refused(g, f, KV_BYTES_HEAD + cases[i].field, cases[i].value, cases[i].code, cases[i].words);
}

static void test_hostile_header(void **state) {
    (void)state;
    Bytes f = saved(&smallest, 6);
    Guard g;
    guard_open(&g, &smallest);
    static const HostileNumber cases[] = {
        {offsetof(KvHead, model), 7, QUILL_MODEL, "the model's fingerprint"},
        {offsetof(KvHead, tokenizer), 7, QUILL_MODEL, "the tokenizer's fingerprint"},
        {offsetof(KvHead, rope), 7, QUILL_MODEL, "the RoPE's fingerprint"},
        {offsetof(KvHead, type_k), TYPE_F16, QUILL_MODEL, "K in F32 expected, F16 found; start with the -ctk"},
        {offsetof(KvHead, type_v), TYPE_BF16, QUILL_MODEL, "V in F32 expected, BF16 found; start with the -ctv"},
        {offsetof(KvHead, type_k), TYPE_Q6_K, QUILL_MODEL, "a type of KV expected"},
        {offsetof(KvHead, type_v), UINT32_MAX, QUILL_MODEL, "Q4_0, KIVI2), 4294967295 found"},
        {offsetof(KvHead, exactness), 2, QUILL_MODEL, "0 to 0 as the class of exactness expected, 2 found"},
        {offsetof(KvHead, n_layers), 3, QUILL_MODEL, "2 layers expected, 3 found"},
        {offsetof(KvHead, n_layers), 0, QUILL_MODEL, "layers expected, 0 found"},
        {offsetof(KvHead, n_layers), UINT32_MAX, QUILL_MODEL, "layers expected, 4294967295 found"},
        {offsetof(KvHead, n_kv_heads), 2, QUILL_MODEL, "1 KV heads expected, 2 found"},
        {offsetof(KvHead, n_kv_heads), 0, QUILL_MODEL, "KV heads expected, 0 found"},
        {offsetof(KvHead, n_kv_heads), 1u << 31, QUILL_MODEL, "KV heads expected"},
        {offsetof(KvHead, head_dim), 8, QUILL_MODEL, "4 elements a head expected, 8 found"},
        {offsetof(KvHead, head_dim), 0x80000001, QUILL_MODEL, "elements a head expected"},
        {offsetof(KvHead, n_tokens), UINT32_MAX, QUILL_MODEL, "tokens expected"},
        {offsetof(KvHead, n_tokens), 1u << 28, QUILL_MEMORY, "start with -c 268435456"},
        {offsetof(KvHead, n_tokens), N_CTX + 2, QUILL_MEMORY, "start with -c 1024"},
        {offsetof(KvHead, n_slots), 7, QUILL_MODEL, "0 to 6 slots expected, 7 found"},
        {offsetof(KvHead, n_slots), UINT32_MAX, QUILL_MODEL, "0 to 6 slots expected"},
        {offsetof(KvHead, group), 32, QUILL_MODEL, "1 to 1 slots a group expected, 32 found"},
        {offsetof(KvHead, rotated), 2, QUILL_MODEL, "0 to 1 as whether K is turned expected, 2 found"},
        {offsetof(KvHead, rotated), 1, QUILL_MODEL, "plain K expected, turned K found; start with --kv-rotate"},
    };
    assert_header_refused(&g, &f, cases, ARRAY_LEN(cases));
    assert_number_refused(&g, &f, 0, 0x46554747, QUILL_MODEL, "not a KV file of quill"); // "GGUF"
    assert_number_refused(&g, &f, 8, 1, QUILL_MODEL, "version 2 expected, 1 found");
    guard_close(&g);
    free(f.bytes);
}

static void test_hostile_sealed(void **state) {
    (void)state;
    Bytes f = saved(&smallest_sealed, SEALED_TOKENS);
    Guard g;
    guard_open(&g, &smallest_sealed);
    static const HostileNumber cases[] = {
        {offsetof(KvHead, type_k), TYPE_FP8, QUILL_MODEL, "K in Q8_0 expected, FP8 found; start with the -ctk"},
        {offsetof(KvHead, type_v), TYPE_F32, QUILL_MODEL, "V in KIVI2 expected, F32 found; start with the -ctv"},
        {offsetof(KvHead, group), 1, QUILL_MODEL, "32 to 32 slots a group expected, 1 found"},
        {offsetof(KvHead, group), 0, QUILL_MODEL, "32 to 32 slots a group expected, 0 found"},
        {offsetof(KvHead, head_dim), 513, QUILL_MODEL, "1 to 512 elements a head expected, 513 found"},
        {offsetof(KvHead, rotated), 1, QUILL_MODEL, "plain K expected, turned K found"},
    };
    assert_header_refused(&g, &f, cases, ARRAY_LEN(cases));
    // A group takes 32 x (34 + 12) bytes, and the three slots behind it 3 x (16 + 16).
    size_t rows = KV_BYTES_START + 16 + sizeof(KvHead) + 16 + SEALED_TOKENS * 4, group = 32 * (34 + 12);
    assert_int_equal(rows + 2 * (16 + 12 + group + 3 * 32) + 16 + 4, f.n);
    static const uint32_t lengths[] = {0, 12, 13, 12 + 5 * 32};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        assert_number_refused(&g, &f, rows + 4, lengths[i], QUILL_MODEL, "ROWS of 1484 bytes expected");
    assert_number_refused(&g, &f, rows + 4, UINT32_MAX, QUILL_MODEL, "ROWS of 1580 bytes expected");
    guard_close(&g);
    free(f.bytes);
}

static void test_hostile_frames(void **state) {
    (void)state;
    Bytes f = saved(&smallest, 6);
    Guard g;
    guard_open(&g, &smallest);
    size_t head = KV_BYTES_START, tokens = head + 16 + sizeof(KvHead), rows = tokens + 16 + 6 * 4,
           layer = 16 + 12 + 5 * 4 * 8, end = rows + 2 * layer;
    assert_int_equal(end + 16 + 4, f.n);
    assert_number_refused(&g, &f, head + 4, 0, QUILL_MODEL, "a frame HEAD of 64 bytes expected, 0 found");
    assert_number_refused(&g, &f, head + 4, UINT32_MAX, QUILL_MODEL, "64 bytes expected, 4294967295 found");
    assert_number_refused(&g, &f, tokens + 4, 28, QUILL_MODEL, "a frame TOKS of 24 bytes expected, 28 found");
    assert_number_refused(&g, &f, tokens + 8 + 4, VOCAB, QUILL_MODEL, "a token from 0 to 319 expected, 320 found");
    assert_number_refused(&g, &f, tokens + 8 + 20, UINT32_MAX, QUILL_MODEL, "a token from 0 to 319 expected, -1 found");
    assert_number_refused(&g, &f, tokens, 0x0a1b2c0d, QUILL_MODEL, "a frame TOKS expected, \\r");
    assert_number_refused(&g, &f, rows + 4, 0, QUILL_MODEL, "ROWS of 44 bytes expected, 0 found");
    assert_number_refused(&g, &f, rows + 4, 12, QUILL_MODEL, "ROWS of 44 bytes expected, 12 found");
    assert_number_refused(&g, &f, rows + 4, 12 + 5 * 32 + 1, QUILL_MODEL, "172 bytes expected, 173 found");
    assert_number_refused(&g, &f, rows + 4, 12 + 6 * 32, QUILL_MODEL, "172 bytes expected, 204 found");
    assert_number_refused(&g, &f, rows + 4, UINT32_MAX, QUILL_MODEL, "172 bytes expected, 4294967295 found");
    assert_number_refused(&g, &f, rows + layer + 4, 12 + 4 * 32, QUILL_MODEL, "172 bytes expected, 140 found");
    assert_number_refused(&g, &f, rows + 8, 1, QUILL_MODEL, "layer 0, slots 0 + 5 expected, layer 1");
    guard_close(&g);
    // Fields within a frame are named by the frame's payload.
    guard_open(&g, &smallest);
    for (size_t field = 1; field < 3; field++) {
        uint8_t *copy = (uint8_t *)mem_copy((const char *)f.bytes, f.n);
        copy[rows + 8 + 4 * field + 3] = 0x7f;
        kv_mend(copy, f.n);
        assert_bytes_refused(&g, copy, f.n, QUILL_MODEL, "layer 0, slots 0 + 5 expected, layer 0, slots");
        free(copy);
    }
    assert_number_refused(&g, &f, end + 8, 5, QUILL_MODEL, "a count of 4 frames expected, 5 found");
    guard_close(&g);
    free(f.bytes);
}

// What a checksum cannot know: another K is another cache. It shows in the logits, so the file's rows are what counts.
static void test_changed_value(void **state) {
    (void)state;
    Bytes f = saved(&smallest, 6);
    Engine e;
    Run *want = mem_alloc(sizeof *want), *got = mem_alloc(sizeof *got);
    const char *path = test_tmp("changed.kv");
    open_engine(&e, &smallest);
    size_t rows = KV_BYTES_START + 16 + sizeof(KvHead) + 16 + 6 * 4;
    for (int change = 0; change < 3; change++) { // nothing, the first K, the last V of the first layer
        size_t at = rows + 8 + 12 + (change == 2 ? 5 * 32 - 4 : 0);
        float x;
        memcpy(&x, f.bytes + at, sizeof x);
        x += change ? 1 : 0;
        memcpy(f.bytes + at, &x, sizeof x);
        kv_mend(f.bytes, f.n);
        write_bytes(path, f.bytes, f.n);
        Sequence s = {0};
        assert_ok(kvfile_load(path, &e, &s));
        generate(&e, &s, 1, change ? got : want);
        if (change) assert_memory_not_equal(want->logits, got->logits, VOCAB * sizeof(float));
        release(&e, &s);
    }
    engine_close(&e);
    free(want);
    free(got);
    free(f.bytes);
}

// ---- other models, other caches -------------------------------------------------------------------------------------

static void assert_setup_refused(const Setup *u, const Bytes *f, int code, const char *words) {
    Guard g;
    guard_open(&g, u);
    assert_bytes_refused(&g, f->bytes, f->n, code, words);
    guard_close(&g);
}

static void test_other_models(void **state) {
    (void)state;
    const Setup mine = {.model = {.vocab = VOCAB}};
    Bytes f = saved(&mine, 30);
    static const struct {
        TinyModel m;
        const char *words;
    } others[] = {
        {{.seed = 1}, "the model's fingerprint"},
        {{.type = TYPE_Q8_0}, "the model's fingerprint"},
        {{.n_layers = 3}, "the model's fingerprint"},
        {{.arch = "qwen2"}, "the model's fingerprint"},
        {{.chat_template = "chatml"}, "the tokenizer's fingerprint"},
        {{.freq_base = 50000}, "the RoPE's fingerprint"},
        {{.rope = "linear"}, "the RoPE's fingerprint"},
    };
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_setup_refused(&(Setup){.model = others[i].m}, &f, QUILL_MODEL, others[i].words);
    assert_setup_refused(&(Setup){.type_k = TYPE_F16}, &f, QUILL_MODEL, "K in F16 expected, F32 found");
    assert_setup_refused(&(Setup){.type_v = TYPE_BF16}, &f, QUILL_MODEL, "V in BF16 expected, F32 found");
    assert_setup_refused(&(Setup){.n_ctx = 28}, &f, QUILL_MEMORY, "at most the 28 tokens of the context expected, 30");
    free(f.bytes);
}

// Any weight of a large matrix's sampled pieces counts, the first and the last among them; its name and the context it
// was trained for do not.
static void test_fingerprint(void **state) {
    (void)state;
    const Setup large = {.model = {.dim = 256, .head_dim = 32, .vocab = VOCAB, .ffn = 512}};
    Bytes f = saved(&large, 5);
    Guard g;
    guard_open(&g, &large);
    const GgufTensor *t = gguf_tensor(g.e.gguf, "blk.1.ffn_down.weight");
    assert_true(t && t->n_bytes > 1 << 17);
    const size_t at[] = {0, t->n_bytes - 1, (t->n_bytes - 4096) / 15 + 4095};
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        ((uint8_t *)t->data)[at[i]] ^= 1;
        assert_bytes_refused(&g, f.bytes, f.n, QUILL_MODEL, "the model's fingerprint");
        ((uint8_t *)t->data)[at[i]] ^= 1;
    }
    gguf_set_str(g.e.gguf, "general.name", "renamed");
    gguf_set_str(g.e.gguf, "tokenizer.chat_template", "another");
    gguf_set_u32(g.e.gguf, "llama.context_length", 77);
    Sequence s = {0};
    const char *path = test_tmp("renamed.kv");
    write_bytes(path, f.bytes, f.n);
    assert_ok(kvfile_load(path, &g.e, &s));
    release(&g.e, &s);
    guard_close(&g);
    free(f.bytes);
}

static void test_full_cache(void **state) {
    (void)state;
    const Setup u = {.block = 8, .n_ctx = 40};
    Bytes f = saved(&u, 36);
    Guard g;
    guard_open(&g, &u);
    Sequence rest[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        push_random(&rest[i], 40, 3);
        assert_true(kvcache_reserve(&g.e.kv, &rest[i], 40)); // 15 blocks, 2 and 5 and 5 of them taken
    }
    size_t n = (size_t)g.e.kv.pool->n_blocks;
    g.n_free = g.e.kv.n_free;
    memcpy(g.refs, g.e.kv.refs, n * sizeof *g.refs);
    memcpy(g.blocks, g.e.kv.blocks, (n + 1) * sizeof *g.blocks);
    assert_bytes_refused(&g, f.bytes, f.n, QUILL_MEMORY,
                         "at most the 32 free slots of the KV cache expected, 35 found");
    for (int i = 0; i < 2; i++) release(&g.e, &rest[i]);
    guard_close(&g);
    free(f.bytes);
}

// ---- paths ----------------------------------------------------------------------------------------------------------

static void test_unreadable_paths(void **state) {
    (void)state;
    Guard g;
    guard_open(&g, &smallest);
    assert_refused(&g, test_tmp("no-such.kv"), QUILL_IO, "cannot open");
    assert_refused(&g, test_tmp("no-such/x.kv"), QUILL_IO, "cannot open");
    assert_refused(&g, test_tmp(""), QUILL_IO, "cannot read");
    assert_refused(&g, "/dev/null", QUILL_MODEL, "the file was cut");
    guard_close(&g);
}

static void test_unwritable_paths(void **state) {
    (void)state;
    Engine e;
    Sequence s = {0};
    Run *run = mem_alloc(sizeof *run);
    open_engine(&e, &smallest);
    push_random(&s, 40, 1);
    generate(&e, &s, 1, run);
    Status st = kvfile_save(test_tmp("no-such/x.kv"), &e, &s);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, "no-such/x.kv.quill-"));
    mkdir(test_tmp("directory.kv"), 0777);
    st = kvfile_save(test_tmp("directory.kv"), &e, &s);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, "cannot rename"));
    assert_int_equal(count_entries(test_tmp(""), "directory.kv."), 0);

    // A disk that fills up in the middle leaves the old file.
    const char *path = test_tmp("full.kv");
    write_bytes(path, "old", 3);
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 1000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    st = kvfile_save(path, &e, &s);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, "full.kv.quill-"));
    assert_non_null(strstr(st.message, ": cannot write"));
    assert_int_equal(count_entries(test_tmp(""), "full.kv."), 0);
    Bytes old = read_bytes(path);
    assert_int_equal(old.n, 3);
    free(old.bytes);
    release(&e, &s);
    engine_close(&e);
    free(run);
}

// ---- a pipe ---------------------------------------------------------------------------------------------------------

// Neither side seeks: what one end writes the other reads, while it is still being written.
static void test_pipe(void **state) {
    (void)state;
    Bytes f = saved(&smallest, 100);
    const char *path = test_tmp("fifo.kv");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path, O_WRONLY);
        for (size_t i = 0; i < f.n; i += 11) // pieces that are no frames
            if (fd_write_all(fd, f.bytes + i, f.n - i < 11 ? f.n - i : 11).code) _exit(1);
        _exit(0);
    }
    Engine e;
    Sequence s = {0};
    open_engine(&e, &smallest);
    assert_ok(kvfile_load(path, &e, &s));
    assert_int_equal(s.n_cached, 99);
    unlink(path);
    release(&e, &s);
    engine_close(&e);
    free(f.bytes);
}

// ---- a prefill that is sent while it is computed
// ----------------------------------------------------------------------

// A prompt of n tokens as `quill prefill` sends it: after each step what it has completed.
static void send_prompt(Engine *e, Sequence *s, int n, const char *path) {
    Run *run = mem_alloc(sizeof *run);
    push_random(s, n, 5);
    KvWriter w = {.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666)};
    assert_true(w.fd >= 0);
    assert_ok(kvfile_begin(&w, e, s, n));
    Request r = {.seq = *s, .sampling = sampler_defaults(), .max_new = 1, .emit = keep, .arg = run};
    scheduler_add(e->sched, &r);
    for (Batch *b; scheduler_next(e->sched, &b);) {
        off_t before = lseek(w.fd, 0, SEEK_CUR);
        uint32_t sent = w.s.next.first;
        scheduler_take(e->sched, model_forward(&e->model, &e->work, e->kv.pool, b));
        assert_ok(kvfile_send(&w, e, &r.seq));
        int whole = r.seq.n_cached == n ? n : r.seq.n_cached / 64 * 64;
        assert_int_equal(w.s.next.first, whole); // nothing that is ready waits
        assert_int_equal(lseek(w.fd, 0, SEEK_CUR) > before, w.s.next.first > sent);
    }
    assert_ok(kvfile_end(&w, e, run->logits));
    kvwriter_free(&w);
    close(w.fd);
    timeline_free(&r.time);
    *s = r.seq;
    free(run);
}

static Status receive(const char *path, Engine *e, Sequence *s, float *logits, bool *has_logits) {
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    Status st = kvfile_receive(fd, path, e, s, logits, has_logits);
    close(fd);
    return st;
}

// What goes on from the stream is what one process says, in another layout too, and no row of the prompt is computed.
static void stream(int type, bool rotate) {
    const int n = N_CTX * 3 / 4, n_new = 12;
    const Setup from[] = {{.type_k = type, .type_v = type, .rotate = rotate},
                          {.type_k = type, .type_v = type, .rotate = rotate, .ubatch = 7, .block = 8},
                          {.type_k = type, .type_v = type, .rotate = rotate, .ubatch = 100}};
    char first[1024], path[1024];
    snprintf(first, sizeof first, "%s", test_tmp("streamed0.kv"));
    snprintf(path, sizeof path, "%s", test_tmp("streamed.kv"));
    Run *want = mem_alloc(sizeof *want), *got = mem_alloc(sizeof *got);
    float logits[VOCAB];
    for (size_t i = 0; i < ARRAY_LEN(from); i++) {
        Engine a, b;
        Sequence s = {0}, t = {0}, u = {0};
        bool has_logits;
        open_engine(&a, &from[i]);
        open_engine(&b, &from[(i + 1) % ARRAY_LEN(from)]);
        send_prompt(&a, &s, n, i ? path : first);
        if (i) { // the bytes do not depend on the steps
            Bytes x = read_bytes(first), y = read_bytes(path);
            assert_int_equal(x.n, y.n);
            assert_memory_equal(x.bytes, y.bytes, x.n);
            free(x.bytes);
            free(y.bytes);
        }
        push_random(&t, n, 5);
        generate(&a, &t, n_new, want);
        assert_ok(receive(i ? path : first, &b, &u, logits, &has_logits));
        assert_true(has_logits);
        generate_from(&b, &u, logits, n_new, got);
        assert_same(want, &t, got, &u);
        assert_int_equal(got->n_rows, n_new - 1);
        release(&a, &s);
        release(&a, &t);
        release(&b, &u);
        engine_close(&a);
        engine_close(&b);
    }
    free(want);
    free(got);
}

static void test_streamed(void **state) {
    (void)state;
    static const int types[] = {TYPE_F16, TYPE_FP8, TYPE_Q8_0, TYPE_Q4_0, TYPE_KIVI2};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) stream(types[i], i % 2);
}

// Another K, with its checksum made right: the first token is in the logits that came along, the others are other ones.
static void test_changed_stream(void **state) {
    (void)state;
    Engine e;
    Run *run = mem_alloc(sizeof *run);
    const char *path = test_tmp("changed_stream.kv");
    float logits[VOCAB];
    bool has_logits;
    Sequence s = {0}, said[2] = {{0}};
    open_engine(&e, &smallest);
    send_prompt(&e, &s, 6, path);
    Bytes f = read_bytes(path);
    size_t rows = KV_BYTES_START + 16 + sizeof(KvHead) + 16 + 6 * 4;
    for (int change = 0; change < 2; change++) {
        for (int slot = 0; slot < 6 && change; slot++) { // K of one head, four elements
            float k[4] = {9.0f - (float)slot, -7, 5, (float)slot};
            memcpy(f.bytes + rows + 8 + 12 + (size_t)slot * sizeof k, k, sizeof k);
        }
        kv_mend(f.bytes, f.n);
        write_bytes(path, f.bytes, f.n);
        assert_ok(receive(path, &e, &said[change], logits, &has_logits));
        generate_from(&e, &said[change], logits, 16, run);
    }
    assert_int_equal(said[0].n_tokens, said[1].n_tokens);
    assert_int_equal(said[0].tokens[6], said[1].tokens[6]);
    assert_memory_not_equal(said[0].tokens, said[1].tokens, (size_t)said[0].n_tokens * sizeof(int));
    release(&e, &s);
    release(&e, &said[0]);
    release(&e, &said[1]);
    engine_close(&e);
    free(f.bytes);
    free(run);
}

static void test_hostile_logits(void **state) {
    (void)state;
    Engine e;
    Sequence s = {0};
    const char *path = test_tmp("logits.kv");
    open_engine(&e, &smallest);
    send_prompt(&e, &s, 6, path);
    Bytes f = read_bytes(path);
    size_t last = f.n - 16 - 4 - 16 - VOCAB * 4, rows = KV_BYTES_START + 16 + sizeof(KvHead) + 16 + 6 * 4;
    assert_memory_equal(f.bytes + last, "LAST", 4);
    Guard g;
    guard_open(&g, &smallest);
    assert_number_refused(&g, &f, last + 4, 0, QUILL_MODEL, "LAST of 1280 bytes expected, 0 found");
    assert_number_refused(&g, &f, last + 4, VOCAB * 4 + 4, QUILL_MODEL, "LAST of 1280 bytes expected, 1284 found");
    assert_number_refused(&g, &f, last + 4, VOCAB * 4 - 3, QUILL_MODEL, "LAST of 1280 bytes expected, 1277 found");
    assert_number_refused(&g, &f, last + 4, UINT32_MAX, QUILL_MODEL, "LAST of 1280 bytes expected, 4294967295 found");
    assert_number_refused(&g, &f, last, 0x53574f52, QUILL_MODEL, "a frame DONE expected, ROWS found");
    // Without the last slot's rows they stand for nothing.
    uint8_t *copy = (uint8_t *)mem_copy((const char *)f.bytes, f.n);
    uint32_t five = 5, length = 12 + 5 * 32;
    memcpy(copy + KV_BYTES_HEAD + offsetof(KvHead, n_slots), &five, 4);
    size_t at = rows, from = rows;
    for (int layer = 0; layer < 2; layer++) { // K of five slots, then V of five
        memmove(copy + at, f.bytes + from, 8 + 12 + 5 * 16);
        memmove(copy + at + 20 + 5 * 16, f.bytes + from + 20 + 6 * 16, 5 * 16);
        memcpy(copy + at + 4, &length, 4);
        memcpy(copy + at + 16, &five, 4);
        at += 8 + length + 8;
        from += 8 + 12 + 6 * 32 + 8;
    }
    memmove(copy + at, f.bytes + last, f.n - last);
    kv_mend(copy, f.n - (last - at));
    assert_bytes_refused(&g, copy, f.n - (last - at), QUILL_MODEL, "after the K and V of all 6 tokens expected");
    guard_close(&g);
    release(&e, &s);
    engine_close(&e);
    free(copy);
    free(f.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_flipped_bytes),
        cmocka_unit_test(test_cut_and_longer),
        cmocka_unit_test(test_wrong_frames),
        cmocka_unit_test(test_hostile_header),
        cmocka_unit_test(test_hostile_sealed),
        cmocka_unit_test(test_hostile_frames),
        cmocka_unit_test(test_changed_value),
        cmocka_unit_test(test_streamed),
        cmocka_unit_test(test_changed_stream),
        cmocka_unit_test(test_hostile_logits),
        cmocka_unit_test(test_other_models),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_full_cache),
        cmocka_unit_test(test_unreadable_paths),
        cmocka_unit_test(test_unwritable_paths),
        cmocka_unit_test(test_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
