// tests/test_kvfile.c: a sequence's KV cache as a file. A sequence that continues from a file gives the same result as
// without the file. Files of other models and of other caches are refused, and so are paths that cannot be read or
// written.
#define _GNU_SOURCE // tests/rig/directory.h
#include "tests/rig/kvfile_rig.h"

#include "kv/kvrows.h"

#include <signal.h>
#include <sys/resource.h>

// ---- continuing -----------------------------------------------------------------------------------------------------

// Saves in the middle of an answer, and continues in an engine with another cache and in the same one.
static void round_trip(const EngineSetup *from, const EngineSetup *to, int n_prompt) {
    Engine a, b;
    Sequence s = {0}, t = {0};
    GreedyRun *want = mem_alloc(sizeof *want), *got = mem_alloc(sizeof *got);
    const char *path = test_tmp("round.kv"), *again = test_tmp("again.kv");
    open_engine(&a, from);
    open_engine(&b, to);
    push_random(&s, n_prompt, 5);
    generate(&a, &s, 6, want);
    assert_ok(kvfile_save(path, &a, &s));
    assert_ok(kvfile_load(path, &b, &t));
    assert_int_equal(t.n_cached, s.n_cached);
    assert_int_equal(t.n_tokens, s.n_cached + 1);

    assert_ok(kvfile_save(again, &b, &t)); // the file does not depend on blocks
    Bytes x = read_bytes(path), y = read_bytes(again);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.bytes, y.bytes, x.n);
    free(x.bytes);
    free(y.bytes);
    assert_int_equal(count_entries(test_tmp(""), "round.kv."), 0);

    generate(&a, &s, 20, want);
    generate(&b, &t, 20, got);
    // rows of the token that was sampled last and of the new ones, none of the prompt
    assert_int_equal(got->n_rows, 20);
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
                EngineSetup from = {
                    .model = models[m], .block = blocks[i][0], .type_k = types[t][0], .type_v = types[t][1]};
                EngineSetup to = from;
                from.rotate = to.rotate = i == 2;
                to.block = blocks[i][1];
                to.n_ctx = 150;
                // Less than one frame of 64 slots, exactly one, and more; with and without an open group.
                round_trip(&from, &to, i == 0 ? 1 : i == 1 ? 59 : i == 2 ? 91 : 100);
                if (i == 1) from.isa = to.isa = "auto", round_trip(&from, &to, 100);
            }
}

// A prompt that was not computed to its end, a full context, and an empty sequence.
static void test_ends(void **state) {
    (void)state;
    EngineSetup u = {.block = 8, .n_ctx = 40};
    Engine e;
    GreedyRun *want = mem_alloc(sizeof *want), *got = mem_alloc(sizeof *got);
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
    generate(&e, &s, 14, want); // fills the context: the last token has no slot
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

// A fork shares blocks with its parent; its file must contain them all.
static void test_fork(void **state) {
    (void)state;
    EngineSetup u = {.block = 8};
    Engine e;
    GreedyRun *want = mem_alloc(sizeof *want), *got = mem_alloc(sizeof *got);
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

// The rows of the file must be those of the planes: slot by slot, head by head, K before V, chunk by chunk.
static void test_rows(void **state) {
    (void)state;
    const EngineSetup u = {.model = {.n_layers = 2}, .block = 16, .type_k = TYPE_F16, .type_v = TYPE_F32};
    Engine e;
    Sequence s = {0};
    GreedyRun *run = mem_alloc(sizeof *run);
    const char *path = test_tmp("rows.kv");
    open_engine(&e, &u);
    push_random(&s, 70, 5);
    generate(&e, &s, 1, run);
    assert_ok(kvfile_save(path, &e, &s));
    Bytes f = read_bytes(path);
    const KvPool *kv = e.kv.pool;
    size_t of_k = 2 * (size_t)kv->head_dim, of_v = 4 * (size_t)kv->head_dim;
    const uint8_t *at = f.bytes + KV_BYTES_HEAD + KV_HEAD + 8 + 16 + 71 * 4;
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
            at = v; // skips the checksum
        }
    free(f.bytes);
    release(&e, &s);
    engine_close(&e);
    free(run);
}

// ---- other models, other caches -------------------------------------------------------------------------------------

static void assert_setup_refused(const EngineSetup *u, const Bytes *f, int code, const char *words) {
    Guard g;
    guard_open(&g, u);
    assert_bytes_refused(&g, f->bytes, f->n, code, words);
    guard_close(&g);
}

static void test_other_models(void **state) {
    (void)state;
    const EngineSetup mine = {.model = {.vocab = ENGINE_VOCAB}};
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
        assert_setup_refused(&(EngineSetup){.model = others[i].m}, &f, QUILL_MODEL, others[i].words);
    assert_setup_refused(&(EngineSetup){.type_k = TYPE_F16}, &f, QUILL_MODEL, "K in F16 expected, F32 found");
    assert_setup_refused(&(EngineSetup){.type_v = TYPE_BF16}, &f, QUILL_MODEL, "V in BF16 expected, F32 found");
    assert_setup_refused(&(EngineSetup){.n_ctx = 28}, &f, QUILL_CONTEXT,
                         "at most the 28 tokens of the context expected, 30");
    free(f.bytes);
}

// Every weight of the sampled pieces of a large matrix counts, also the first and the last. Its name and the context of
// training do not.
static void test_fingerprint(void **state) {
    (void)state;
    const EngineSetup large = {.model = {.dim = 256, .head_dim = 32, .vocab = ENGINE_VOCAB, .ffn = 512}};
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
    const EngineSetup u = {.block = 8, .n_ctx = 40};
    Bytes f = saved(&u, 36);
    Guard g;
    guard_open(&g, &u);
    Sequence rest[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        push_random(&rest[i], 40, 3);
        assert_true(kvcache_reserve(&g.e.kv, &rest[i], 40)); // 3 blocks of 15 are left
    }
    size_t n = (size_t)g.e.kv.pool->n_blocks;
    g.n_free = g.e.kv.n_free;
    memcpy(g.refs, g.e.kv.refs, n * sizeof *g.refs);
    memcpy(g.ring, g.e.kv.ring, (n + 1) * sizeof *g.ring);
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
    GreedyRun *run = mem_alloc(sizeof *run);
    open_engine(&e, &smallest);
    push_random(&s, 40, 1);
    generate(&e, &s, 1, run);
    Status st = kvfile_save(test_tmp("no-such/x.kv"), &e, &s);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, "no-such/x.kv: cannot create"));
    mkdir(test_tmp("directory.kv"), 0777);
    st = kvfile_save(test_tmp("directory.kv"), &e, &s);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, "directory.kv: a file to write expected, found a directory"));
    assert_int_equal(count_entries(test_tmp(""), "directory.kv."), 0);

    // A disk that fills up in the middle must leave the old file.
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
    assert_non_null(strstr(st.message, "full.kv: cannot write"));
    assert_int_equal(count_entries(test_tmp(""), "full.kv."), 0);
    Bytes old = read_bytes(path);
    assert_int_equal(old.n, 3);
    free(old.bytes);
    release(&e, &s);
    engine_close(&e);
    free(run);
}

// ---- a pipe ---------------------------------------------------------------------------------------------------------

// Neither side seeks: a reader at one end of a pipe reads while the other end is still writing.
static void test_pipe(void **state) {
    (void)state;
    Bytes f = saved(&smallest, 100);
    const char *path = test_tmp("fifo.kv");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path, O_WRONLY);
        for (size_t i = 0; i < f.n; i += 11) // pieces that do not end at frames
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_other_models),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_full_cache),
        cmocka_unit_test(test_unreadable_paths),
        cmocka_unit_test(test_unwritable_paths),
        cmocka_unit_test(test_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
