// tests/test_prefix.c: prompts whose beginning has K and V already, in memory or in a directory: the logits must be
// those of a run that computes everything, bit for bit with the scalar kernels.
//
// The whole pool holds NaN at the start, so that reading a slot that was never written shows.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include <limits.h>

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "kv/fingerprint.h"
#include "tests/rig/directory.h"
#include "tests/rig/engine_rig.h"

enum { N_NEW = 12 };

// Opens an engine whose cache shares blocks, with NaN in every slot.
static void open_sharing(Engine *e, const EngineSetup *u) {
    open_engine(e, u);
    kvcache_free(&e->kv);
    e->shape.share = true;
    assert_ok(kvcache_new(&e->kv, &e->shape));
    memset(e->kv.pool->k, 0xff, e->kv.pool->bytes_k);
    memset(e->kv.pool->v, 0xff, e->kv.pool->bytes_v);
    kvcache_shuffle(&e->kv, 3);
}

// ---- runs -----------------------------------------------------------------------------------------------------------

typedef struct {
    Request r;
    Sequence seq; // of the request
    float logits[N_NEW * ENGINE_VOCAB];
    int n, tokens[N_NEW];
} PrefixRun;

static Finish keep(Request *r, int token, const float *logits) {
    PrefixRun *run = r->arg;
    memcpy(run->logits + run->n * ENGINE_VOCAB, logits, ENGINE_VOCAB * sizeof *logits);
    run->tokens[run->n++] = token;
    return RUNNING;
}

// n tokens of a random stream given by the seed, then `own` tokens of another stream.
static void run_start(PrefixRun *run, int n, uint64_t seed, int own) {
    *run = (PrefixRun){
        .r = {.seq = &run->seq, .sampling = sampler_defaults(), .max_new = N_NEW, .emit = keep, .arg = run}};
    run->r.sampling.temp = 0;
    push_random(run->r.seq, n, seed);
    push_random(run->r.seq, own, seed + 1000);
}

static void commit_all(Engine *e, const Batch *b) {
    for (int seq = 0; seq < b->n_seqs; seq++) {
        Sequence *s = scheduler_rows(e->sched, seq)->request->seq;
        kvcache_commit(&e->kv, s, s->n_cached);
    }
}

// Runs all added requests; returns the number of computed rows.
static int run_all(Engine *e) {
    int n = 0;
    for (Batch *b; scheduler_next(e->sched, &b);) {
        n += b->n_rows;
        scheduler_take(e->sched, model_forward(&e->model, &e->work, e->kv.pool, b));
        commit_all(e, b);
    }
    return n;
}

static int run_one(Engine *e, PrefixRun *run) {
    scheduler_add(e->sched, &run->r);
    return run_all(e);
}

static void run_end(Engine *e, PrefixRun *run) {
    sequence_end(&e->kv, run->r.seq);
    timeline_free(&run->r.time);
}

static void assert_same(const PrefixRun *a, const PrefixRun *b) {
    assert_int_equal(a->n, N_NEW);
    assert_int_equal(b->n, N_NEW);
    for (int i = 0; i < N_NEW * ENGINE_VOCAB; i++)
        if (!isfinite(a->logits[i])) fail_msg("logit %d of token %d is not finite", i % ENGINE_VOCAB, i / ENGINE_VOCAB);
    assert_memory_equal(a->logits, b->logits, sizeof a->logits);
    assert_memory_equal(a->tokens, b->tokens, sizeof a->tokens);
}

// The same prompt in a contiguous cache that shares nothing.
static void run_alone(const EngineSetup *u, int n, uint64_t seed, int own, PrefixRun *run) {
    Engine e;
    EngineSetup plain = *u;
    plain.block = 0;
    open_sharing(&e, &plain);
    run_start(run, n, seed, own);
    run_one(&e, run);
    run_end(&e, run);
    engine_close(&e);
}

static const EngineSetup setups[] = {
    {.block = 16},
    {.block = 1, .type_k = TYPE_F16, .type_v = TYPE_F16},
    {.model = {.arch = "qwen2", .rope = "yarn"}, .block = 7, .type_k = TYPE_BF16, .type_v = TYPE_BF16, .ubatch = 5},
    {.model = {.arch = "qwen3", .type = TYPE_Q8_0, .head_dim = 32, .n_kv_heads = 1}, .block = 32},
    {.block = 32, .type_k = TYPE_Q8_0, .type_v = TYPE_Q4_0, .rotate = true},
    {.block = 32, .type_k = TYPE_KIVI2, .type_v = TYPE_F16}};

// ---- memory ---------------------------------------------------------------------------------------------------------

// After a prompt of `first` tokens has run, a prompt of n tokens with the same beginning must find `cached` slots.
static void hit_in_memory(const EngineSetup *u, int first, int n, int own, int cached) {
    Engine e;
    PrefixRun *a = mem_alloc(sizeof *a), *b = mem_alloc(sizeof *b), *want = mem_alloc(sizeof *want);
    run_alone(u, n, 5, own, want);
    open_sharing(&e, u);
    run_start(a, first, 5, 0);
    run_one(&e, a);
    run_end(&e, a); // its blocks are free, but keep their names
    run_start(b, n, 5, own);
    assert_int_equal(kvcache_match_prefix(&e.kv, b->r.seq), cached);
    assert_int_equal(run_one(&e, b), n + own - cached + N_NEW - 1);
    assert_int_equal(b->r.n_reused, cached);
    assert_same(want, b);
    run_end(&e, b);
    assert_int_equal(e.kv.n_free, e.kv.pool->n_blocks);
    engine_close(&e);
    free(a);
    free(b);
    free(want);
}

static void test_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(setups); i++) {
        const EngineSetup *u = &setups[i];
        int size = u->block, k = 96 / size;
        for (int d = -1; d <= 1; d++) hit_in_memory(u, 100, k * size + d, 0, (k * size + d - 1) / size * size);
        hit_in_memory(u, k * size, k * size, 0, (k - 1) * size);  // the same prompt again
        hit_in_memory(u, k * size, k * size, 9, k * size);        // the same beginning
        hit_in_memory(u, k * size, k * size + 1, 0, k * size);    // one token more
        hit_in_memory(u, size, 3 * size, 2, size);                // a short beginning
        if (size > 1) hit_in_memory(u, size - 1, 3 * size, 2, 0); // the first prompt has no full block
    }
}

// Three sequences compute the same beginning in one step; a fourth uses their blocks.
static void test_same_step(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(setups); i++) {
        const EngineSetup *u = &setups[i];
        Engine e;
        PrefixRun *runs = mem_alloc(4 * sizeof *runs), *want = mem_alloc(sizeof *want);
        open_sharing(&e, u);
        for (int j = 0; j < 3; j++) {
            run_start(&runs[j], 32, 9, j);
            assert_int_equal(kvcache_match_prefix(&e.kv, runs[j].r.seq), 0);
            scheduler_add(e.sched, &runs[j].r);
        }
        run_all(&e);
        run_start(&runs[3], 32, 9, 3);
        assert_true(kvcache_match_prefix(&e.kv, runs[3].r.seq) > 32 - u->block);
        run_one(&e, &runs[3]);
        for (int j = 0; j < 4; j++) {
            run_alone(u, 32, 9, j, want);
            assert_same(want, &runs[j]);
        }
        for (int j = 0; j < 4; j++) run_end(&e, &runs[j]);
        assert_int_equal(e.kv.n_free, e.kv.pool->n_blocks);
        engine_close(&e);
        free(runs);
        free(want);
    }
}

// The answer becomes part of a prefix too: a second turn continues after it.
static void test_answer_as_prefix(void **state) {
    (void)state;
    Engine e;
    PrefixRun *a = mem_alloc(sizeof *a), *b = mem_alloc(sizeof *b), *want = mem_alloc(sizeof *want);
    open_sharing(&e, &setups[0]);
    run_start(a, 40, 5, 0);
    run_one(&e, a);
    run_start(b, 40, 5, 0);
    sequence_push(b->r.seq, a->tokens, N_NEW);
    push_random(b->r.seq, 5, 77);
    run_start(want, 0, 0, 0);
    sequence_push(want->r.seq, b->r.seq->tokens, b->r.seq->n_tokens);
    assert_int_equal(kvcache_match_prefix(&e.kv, b->r.seq), 48); // 40 + 11 slots, in blocks of 16
    run_one(&e, b);
    Engine fresh;
    open_sharing(&fresh, &setups[0]);
    run_one(&fresh, want);
    assert_same(want, b);
    run_end(&fresh, want);
    engine_close(&fresh);
    run_end(&e, a);
    run_end(&e, b);
    engine_close(&e);
    free(a);
    free(b);
    free(want);
}

// ---- disk -----------------------------------------------------------------------------------------------------------

static KvStore *store_of(const Engine *e, const char *dir, int block) {
    KvStore *s;
    KvHead like = fingerprint(&e->model, e->kv.pool);
    assert_ok(kvstore_open(dir, 1 << 30, block, &like, "cpu scalar", &s));
    return s;
}

// Computes and saves in a cache of one layout, loads and continues in a cache of another layout.
static void hit_on_disk(const EngineSetup *u, int to_block, int n, int own) {
    int block = kv_is_sealed(u->type_k) ? SEAL : 16;
    Engine a, b;
    PrefixRun *x = mem_alloc(sizeof *x), *y = mem_alloc(sizeof *y), *want = mem_alloc(sizeof *want);
    const char *dir = test_tmp("prefix-store");
    remove_directory(dir);
    open_sharing(&a, u);
    run_start(x, 96, 5, 0);
    run_one(&a, x);
    KvStore *s = store_of(&a, dir, block);
    assert_ok(kvstore_save(s, &a.kv, x->r.seq));
    kvstore_close(s);
    run_end(&a, x);
    engine_close(&a);

    EngineSetup to = *u;
    to.block = to_block;
    run_alone(u, n, 5, own, want);
    open_sharing(&b, &to);
    s = store_of(&b, dir, block);
    run_start(y, n, 5, own);
    assert_ok(kvstore_load(s, &b.kv, y->r.seq, INT_MAX));
    int cached = int_min(n, n + own - 1) / block * block;
    assert_int_equal(y->r.seq->n_cached, cached);
    assert_int_equal(run_one(&b, y), n + own - cached + N_NEW - 1);
    assert_same(want, y);
    kvstore_close(s);
    run_end(&b, y);
    engine_close(&b);
    remove_directory(dir);
    free(x);
    free(y);
    free(want);
}

static void test_disk(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(setups); i++)
        for (int n = 79; n <= 81; n++)
            for (int to = 0; to < 3; to++) hit_on_disk(&setups[i], to == 0 ? 0 : to == 1 ? 16 : 5, n, n == 80 ? 7 : 0);
}

// A model with a different weight, tokenizer or RoPE, or a cache of another type, must find nothing.
static void test_foreign_models(void **state) {
    (void)state;
    const EngineSetup others[] = {{.block = 16},
                                  {.model = {.seed = 1}, .block = 16},
                                  {.model = {.rope = "linear"}, .block = 16},
                                  {.model = {.freq_base = 10001}, .block = 16},
                                  {.model = {.tokens = "gpt2"}, .block = 16},
                                  {.model = {.n_layers = 3}, .block = 16},
                                  {.block = 16, .type_k = TYPE_F16},
                                  {.block = 16, .rotate = true}};
    const char *dir = test_tmp("prefix-store");
    remove_directory(dir);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        Engine e;
        PrefixRun *run = mem_alloc(sizeof *run);
        open_sharing(&e, &others[i]);
        KvStore *s = store_of(&e, dir, 16);
        run_start(run, 40, 5, 0);
        assert_ok(kvstore_load(s, &e.kv, run->r.seq, INT_MAX));
        assert_int_equal(run->r.seq->n_cached, 0);
        run_one(&e, run);
        assert_ok(kvstore_save(s, &e.kv, run->r.seq));
        assert_int_equal(kvstore_stats(s).n_saved, 48);
        kvstore_close(s);
        run_end(&e, run);
        engine_close(&e);
        free(run);
    }
    remove_directory(dir);
}

// Fast kernels may round differently for other numbers of rows, but the distance must stay within their usual one.
static void test_fast_kernels(void **state) {
    (void)state;
    EngineSetup u = {.model = {.type = TYPE_Q8_0, .dim = 256, .head_dim = 32},
                     .block = 16,
                     .type_k = TYPE_F16,
                     .type_v = TYPE_F16,
                     .isa = "auto"};
    Engine e;
    PrefixRun *a = mem_alloc(sizeof *a), *b = mem_alloc(sizeof *b);
    open_sharing(&e, &u);
    run_start(a, 96, 5, 3);
    run_one(&e, a);
    run_start(b, 96, 5, 3);
    assert_int_equal(kvcache_match_prefix(&e.kv, b->r.seq), 96);
    run_one(&e, b);
    double distance = 0, norm = 0;
    for (int i = 0; i < ENGINE_VOCAB; i++) {
        double d = (double)a->logits[i] - (double)b->logits[i];
        distance += d * d;
        norm += (double)a->logits[i] * (double)a->logits[i];
    }
    print_message("relative distance of the first logits: %.2g\n", sqrt(distance / norm));
    // bf16 in prefill and int8 in steps are 2e-2 and 5e-2 away from the exact logits
    assert_true(sqrt(distance / norm) < 0.05);
    run_end(&e, a);
    run_end(&e, b);
    engine_close(&e);
    free(a);
    free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory), cmocka_unit_test(test_same_step),      cmocka_unit_test(test_answer_as_prefix),
        cmocka_unit_test(test_disk),   cmocka_unit_test(test_foreign_models), cmocka_unit_test(test_fast_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
