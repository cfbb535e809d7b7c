// tests/test_cuda_recurrent.c: recurrent layers on the GPU against the scalar reference: families, shapes of states,
// types, layers on both devices, several sequences in a step; states that are returned to, forked, drafted and moved.
// No GPU is needed (tests/rig/cuda_rig.h).
#include "tests/rig/testing.h"

#include "tests/rig/cuda_rig.h"
#include "tests/rig/gpu_rt_host.h"

enum { VOCAB = 320 };

static const char *const families[] = {"qwen3next", "qwen35", "lfm2"}; // qwen35moe: test_experts_on_the_host

static TinyModel shape_of(const char *arch) {
    TinyModel m = cuda_rig_shape(arch);
    m.n_experts = strcmp(arch, "qwen35") && strcmp(arch, "lfm2") ? 4 : 0;
    if (m.n_experts) m.ffn = 32;
    return m;
}

typedef struct {
    int n, first, chunk; // tokens, and how many of them in the first step and in those that follow
    bool strangers;
} StateBatching;

// Many rows of which some are other sequences'; few rows beside strangers and padding; single steps. The twin runs
// every thread of the kernels for few rows, so that these steps take most of the time.
static const StateBatching batchings[] = {{50, 37, 40, true}, {8, 5, 3, true}, {2, 1, 1, false}};

// The largest distance from the scalar reference may be up to `limit`, and nothing may be left on the GPU.
static void expect_near(const TinyModel *shape, CudaSetup s, double limit, const char *what) {
    Gguf *g = tiny_model(shape);
    CudaSetup host = s;
    host.n_gpu = host.n_kept = 0;
    Rig reference, r;
    cuda_rig_open(&reference, g, host);
    float *want = cuda_rig_run(&reference, 50, 50, false);
    rig_close(&reference);
    size_t used = twin_used();
    double worst = 0;
    cuda_rig_open(&r, g, s);
    for (size_t i = 0; i < ARRAY_LEN(batchings); i++) {
        const StateBatching *b = &batchings[i];
        float *got = cuda_rig_run_from(&r, b->n, b->first, b->chunk, b->strangers);
        worst = test_worse(worst, test_distance(got, want, (size_t)b->n * VOCAB));
        free(got);
    }
    rig_close(&r);
    free(want);
    gguf_close(g);
    assert_int_equal(twin_used(), used);
    print_message("  %-64s %.1e\n", what, worst);
    if (!(worst <= limit)) fail_msg("%s: distance up to %g expected, %g found", what, limit, worst);
}

static void test_families(void **state) {
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(families); f++)
        for (int n_gpu = f == 0 ? 3 : 2; n_gpu <= 3; n_gpu++) { // of 3 layers; the last has attention
            char what[64];
            TinyModel shape = shape_of(families[f]);
            snprintf(what, sizeof what, "%s, %d of 3 layers", families[f], n_gpu);
            expect_near(&shape,
                        (CudaSetup){.n_gpu = n_gpu, .kv_type = TYPE_F32, .block = 8, .shuffle = 2, .n_checkpoints = 6},
                        1e-5, what);
        }
}

// Heads that are no whole runs, and more columns than a block has; tests/test_gpu_recurrent.c has more shapes.
static void test_shapes_of_states(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        int state, key_heads, value_heads, taps;
    } all[] = {{"qwen35", 34, 1, 1, 3}, {"qwen35", 144, 1, 2, 5}, {"lfm2", 0, 0, 0, 4}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        char what[80];
        TinyModel shape = shape_of(all[i].arch);
        shape.state = all[i].state, shape.key_heads = all[i].key_heads, shape.value_heads = all[i].value_heads;
        shape.taps = all[i].taps, shape.n_layers = 2, shape.dim = all[i].state ? 64 : 200, shape.n_experts = 0;
        if (strcmp(all[i].arch, "qwen3next") == 0) shape.n_experts = 4;
        snprintf(what, sizeof what, "%s, heads of %d, %d to %d, %d taps", all[i].arch, all[i].state, all[i].value_heads,
                 all[i].key_heads, all[i].taps);
        expect_near(&shape, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F32}, 1e-5, what);
    }
}

static void test_types(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        int type, n_layers;
        size_t spare;
        double limit;
    } all[] = {
        {"qwen35", TYPE_BF16, 3, 0, 2e-2}, {"lfm2", TYPE_Q8_0, 1, 0, 8e-2}, {"qwen35", TYPE_Q4_K, 1, 1 << 24, 8e-2}};
    for (size_t t = 0; t < ARRAY_LEN(all); t++) {
        char what[64];
        TinyModel shape = shape_of(all[t].arch);
        shape.type = all[t].type, shape.dim = 256, shape.ffn = 256, shape.state = 64, shape.n_layers = all[t].n_layers;
        shape.head_dim = 64, shape.n_heads = 4, shape.n_kv_heads = 1; // tiles attend, and their gates round
        snprintf(what, sizeof what, "%s in %s", shape.arch, type_name(shape.type));
        expect_near(&shape, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F16, .spare = all[t].spare}, all[t].limit,
                    what);
    }
}

static void test_experts_on_the_host(void **state) {
    (void)state;
    TinyModel shape = shape_of("qwen35moe");
    expect_near(&shape, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F32, .n_kept = 2}, 1e-5,
                "qwen35moe, the experts of two layers on the host");
}

// ---- states ---------------------------------------------------------------------------------------------------------

enum { LENGTH = 50, ALIKE = 29, KNOWN = 20, DRAFTS = 5 };

typedef struct {
    Gguf *g;
    Rig r;
    int tokens[2][LENGTH]; // two texts that begin alike
    float *want[2];        // their logits, of the scalar reference
} StateRig;

static void open_states(StateRig *s, const char *arch, int n_gpu) {
    TinyModel shape = shape_of(arch);
    s->g = tiny_model(&shape);
    CudaSetup setup = {.kv_type = TYPE_F32, .block = 8, .n_checkpoints = 8};
    random_tokens(s->tokens[0], LENGTH, VOCAB, 3);
    random_tokens(s->tokens[1], LENGTH, VOCAB, 4);
    memcpy(s->tokens[1], s->tokens[0], ALIKE * sizeof(int));
    cuda_rig_open(&s->r, s->g, setup);
    for (int i = 0; i < 2; i++) s->want[i] = cuda_rig_run_tokens(&s->r, s->tokens[i], LENGTH, LENGTH, LENGTH, false);
    rig_close(&s->r);
    setup.n_gpu = n_gpu;
    cuda_rig_open(&s->r, s->g, setup);
}

static void close_states(StateRig *s) {
    for (int i = 0; i < s->r.kv.states.pool.n_states; i++) // checkpoints of named blocks alone
        assert_true(s->r.kv.states.refs[i] == (s->r.kv.states.block_of[i] >= 0));
    for (int i = 0; i < 2; i++) free(s->want[i]);
    rig_close(&s->r);
    gguf_close(s->g);
}

static void assert_row(const float *all, int at, const float *row, const char *what) {
    double d = test_distance(row, all + (size_t)at * VOCAB, VOCAB);
    if (!(d <= 1e-5)) fail_msg("%s: token %d: distance %.3g", what, at, d);
}

// Computes what is left of the sequence in chunks; every row's logits must be near those of `want`.
static void finish_as(Rig *r, Sequence *s, int chunk, const float *want, const char *what) {
    float *got = malloc((size_t)chunk * VOCAB * sizeof *got);
    while (s->n_cached < s->n_tokens) {
        int first = s->n_cached, n = int_min(chunk, s->n_tokens - first);
        step(r, &(RowsOfSequence){s, n, got}, 1);
        kvcache_commit(&r->kv, s, s->n_cached);
        for (int i = 0; i < n; i++) assert_row(want, first + i, got + (size_t)i * VOCAB, what);
    }
    free(got);
}

static void drop(Rig *r, Sequence *s) {
    kvcache_release(&r->kv, s);
    sequence_free(s);
}

// Returns to a place of the first text and goes on with the second one.
static void check_return(StateRig *s, int to) {
    Sequence q = {0};
    sequence_push(&q, s->tokens[0], LENGTH);
    finish_as(&s->r, &q, LENGTH, s->want[0], "the first text");
    kvcache_truncate(&s->r.kv, &q, to);
    sequence_push(&q, s->tokens[1] + to, LENGTH - to);
    finish_as(&s->r, &q, LENGTH, s->want[1], "another text after a return");
    drop(&s->r, &q);
}

// Two sequences that share a state continue with different tokens, in the same steps.
static void check_fork(StateRig *s) {
    Sequence a = {0}, b = {0};
    float logits[2][VOCAB];
    sequence_push(&a, s->tokens[0], ALIKE);
    finish_as(&s->r, &a, ALIKE, s->want[0], "before the fork");
    kvcache_fork(&s->r.kv, &a, &b);
    sequence_push(&a, s->tokens[0] + ALIKE, LENGTH - ALIKE);
    sequence_push(&b, s->tokens[1] + ALIKE, LENGTH - ALIKE);
    for (int i = ALIKE; i < ALIKE + 2; i++) {
        step(&s->r, (RowsOfSequence[]){{&b, 1, logits[1]}, {&a, 1, logits[0]}}, 2);
        assert_row(s->want[1], i, logits[1], "the fork");
        assert_row(s->want[0], i, logits[0], "what was forked");
    }
    drop(&s->r, &a);
    drop(&s->r, &b);
}

// Computes n rows of a sequence whose slots, from `first` on, are reserved.
static void forward_rows(StateRig *s, const Sequence *q, int first, const int *token, int n) {
    int rows[DRAFTS + 2], seq[DRAFTS + 1] = {0}, at[DRAFTS + 1], table[CUDA_CTX];
    kvcache_table(&s->r.kv, q, KV_FULL, table);
    for (int i = 0; i < n; i++) at[i] = first + i;
    Batch b = {.n_rows = n,
               .n_seqs = 1,
               .max_blocks = q->n_blocks,
               .token = (int *)(uintptr_t)token, // which is only read
               .pos = at,
               .slot = at,
               .seq = seq,
               .block_table = table,
               .state_in = rows,
               .state_out = rows + 1};
    kvcache_put_states(&s->r.kv, q, first, 0, 0, &b);
    model_forward(&s->r.m, &s->r.w, s->r.kv.pool, &b);
}

// Drafts of which some are kept: the state is that of the last one kept.
static void check_drafts(StateRig *s, int kept) {
    Sequence q = {0};
    int token[DRAFTS + 1];
    sequence_push(&q, s->tokens[0], KNOWN + 1);
    step(&s->r, &(RowsOfSequence){&q, KNOWN, NULL}, 1);
    assert_true(kvcache_reserve_drafts(&s->r.kv, &q, KNOWN + 1 + DRAFTS, DRAFTS));
    for (int i = 0; i <= DRAFTS; i++) token[i] = i <= kept ? s->tokens[0][KNOWN + i] : 5;
    forward_rows(s, &q, KNOWN, token, DRAFTS + 1);
    for (int i = 0; i <= kept; i++) kvcache_advance(&s->r.kv, &q, 1);
    sequence_push(&q, s->tokens[0] + KNOWN + 1, LENGTH - KNOWN - 1);
    kvcache_truncate(&s->r.kv, &q, LENGTH);
    assert_int_equal(q.n_cached, KNOWN + 1 + kept);
    finish_as(&s->r, &q, LENGTH, s->want[0], "after the drafts");
    drop(&s->r, &q);
}

// Steps that begin before the results of the step before are known. The last of them is dropped, and the sequence goes
// on from the state before its row.
static void check_ahead(StateRig *s) {
    enum { STEPS = 3 };
    Sequence q = {0};
    const int other = 5;
    sequence_push(&q, s->tokens[0], KNOWN);
    step(&s->r, &(RowsOfSequence){&q, KNOWN, NULL}, 1);
    sequence_push(&q, s->tokens[0] + KNOWN, LENGTH - KNOWN);
    assert_true(kvcache_reserve(&s->r.kv, &q, KNOWN + 1));
    forward_rows(s, &q, KNOWN, &s->tokens[0][KNOWN], 1);
    for (int at = KNOWN + 1; at <= KNOWN + STEPS; at++) {
        assert_true(kvcache_reserve_ahead(&s->r.kv, &q, at + 1));
        forward_rows(s, &q, at, at == KNOWN + STEPS ? &other : &s->tokens[0][at], 1);
        kvcache_advance(&s->r.kv, &q, 1); // past the row of the step before
    }
    kvcache_truncate(&s->r.kv, &q, LENGTH);
    assert_int_equal(q.n_cached, KNOWN + STEPS);
    finish_as(&s->r, &q, LENGTH, s->want[0], "after a step that was dropped");
    drop(&s->r, &q);
}

// What is read of a state, written to another one, gives the same answers, on whichever device the layers are.
static void check_move(StateRig *s) {
    KvStates *states = &s->r.kv.states;
    Sequence a = {0}, b = {0};
    float *values = malloc(states->pool.floats * sizeof *values), logits[VOCAB];
    sequence_push(&a, s->tokens[0], ALIKE + 1);
    sequence_push(&b, s->tokens[0], ALIKE + 1);
    step(&s->r, &(RowsOfSequence){&a, ALIKE, NULL}, 1);
    step(&s->r, &(RowsOfSequence){&b, ALIKE, NULL}, 1);
    for (int layer = 0; layer < states->pool.n_layers; layer++) {
        kvstates_load(states, kvcache_state(&a, ALIKE), layer, values);
        kvstates_store(states, kvcache_state(&a, ALIKE), layer, s->want[0]); // a cannot go on from here
        kvstates_store(states, kvcache_state(&b, ALIKE), layer, values);
    }
    step(&s->r, &(RowsOfSequence){&b, 1, logits}, 1);
    assert_row(s->want[0], ALIKE, logits, "a state that was moved");
    free(values);
    drop(&s->r, &a);
    drop(&s->r, &b);
}

static void test_states(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        int n_gpu; // of 3 layers
    } all[] = {{"qwen35", 3}, {"qwen35", 2}, {"lfm2", 3}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        StateRig s;
        open_states(&s, all[i].arch, all[i].n_gpu);
        check_return(&s, 3);
        check_return(&s, ALIKE - 2);
        check_fork(&s);
        for (int kept = 0; kept <= DRAFTS; kept += DRAFTS) check_drafts(&s, kept);
        check_ahead(&s);
        check_move(&s);
        close_states(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families), cmocka_unit_test(test_shapes_of_states),
        cmocka_unit_test(test_types),    cmocka_unit_test(test_experts_on_the_host),
        cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
