// tests/test_cuda_recurrent.c: recurrent layers on the GPU against the scalar reference: families, shapes of states,
// types, layers on both devices, several sequences in a step; states that are returned to, forked, drafted and moved.
// No GPU is needed (tests/rig/cuda_rig.h).
#include "tests/rig/testing.h"

#include "tests/rig/cuda_rig.h"
#include "tests/rig/two_texts.h"

static const char *const families[] = {"qwen3next", "qwen35", "lfm2", "lfm2moe",
                                       "granitehybrid"}; // qwen35moe: test_experts_on_the_host

static TinyModel shape_of(const char *arch) {
    TinyModel m = cuda_rig_shape(arch);
    bool dense = strcmp(arch, "qwen35") == 0 || strcmp(arch, "lfm2") == 0 || strcmp(arch, "granitehybrid") == 0;
    m.n_experts = dense ? 0 : 4;
    if (m.n_experts) m.ffn = 32;
    return m;
}

// Many rows of which some are other sequences'; few rows beside strangers and padding; single steps. The twin runs
// every thread of the kernels for few rows, so that these steps take most of the time.
static const CudaBatching batchings[] = {{50, 37, 40, true}, {8, 5, 3, true}, {2, 1, 1, false}};

static void expect_near(const TinyModel *shape, CudaSetup s, double limit, const char *what) {
    Gguf *g = tiny_model(shape);
    cuda_rig_expect(g, s, batchings, ARRAY_LEN(batchings), limit, what);
    gguf_close(g);
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
    } all[] = {{"qwen35", 34, 1, 1, 3},
               {"qwen35", 144, 1, 2, 5},
               {"lfm2", 0, 0, 0, 4},
               {"granitehybrid", 34, 1, 16, 3},
               {"granitehybrid", 144, 2, 4, 4}};
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
        {"qwen35", TYPE_BF16, 3, 0, 2e-2},
        {"lfm2", TYPE_Q8_0, 1, 0, 8e-2},
        {"qwen35", TYPE_Q4_K, 1, 1 << 24, 8e-2},
        {"granitehybrid", TYPE_BF16, 1, 0, 2e-2},
    };
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

// A layer has only one part.
static void test_parts_apart(void **state) {
    (void)state;
    static const char *const archs[] = {"nemotron_h", "nemotron_h_moe"};
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        TinyModel shape = cuda_rig_shape(archs[i]);
        shape.n_layers = 6 - (int)i, shape.n_experts = i ? 4 : 0, shape.ffn = 32;
        expect_near(&shape,
                    (CudaSetup){.n_gpu = i ? ALL_LAYERS : 4, .kv_type = TYPE_F32, .block = 8, .n_checkpoints = 6}, 1e-5,
                    archs[i]);
        // A last layer of feed-forward alone: rows without logits end in front of it.
        shape.head_dim = 32, shape.ffn = 64;
        expect_near(&shape, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_Q8_0, .n_checkpoints = 6}, 1e-2, archs[i]);
    }
}

static void test_experts_on_the_host(void **state) {
    (void)state;
    TinyModel shape = shape_of("qwen35moe");
    expect_near(&shape, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F32, .n_kept = 2}, 1e-5,
                "qwen35moe, the experts of two layers on the host");
}

// ---- states ---------------------------------------------------------------------------------------------------------

enum { LENGTH = 50, ALIKE = 29 };

// Returns to a place of the first text and goes on with the second one.
static void check_return(TwoTexts *t, int to) {
    Sequence s = {0};
    sequence_push(&s, t->tokens[0], LENGTH);
    two_texts_finish(t, &s, 0, LENGTH, "the first text");
    two_texts_return(t, &s, to, 1, LENGTH);
    two_texts_drop(t, &s);
}

// Steps that begin before the results of the step before are known. The last of them is dropped, and the sequence goes
// on from the state before its row.
static void check_ahead(TwoTexts *t) {
    enum { STEPS = 3 };
    Sequence q = {0};
    const int other = 5;
    sequence_push(&q, t->tokens[0], TEXT_KNOWN);
    step(&t->r, &(RowsOfSequence){&q, TEXT_KNOWN, NULL}, 1);
    sequence_push(&q, t->tokens[0] + TEXT_KNOWN, LENGTH - TEXT_KNOWN);
    assert_true(kvcache_reserve(&t->r.kv, &q, TEXT_KNOWN + 1));
    two_texts_forward(t, &q, TEXT_KNOWN, &t->tokens[0][TEXT_KNOWN], 1);
    for (int at = TEXT_KNOWN + 1; at <= TEXT_KNOWN + STEPS; at++) {
        assert_true(kvcache_reserve_ahead(&t->r.kv, &q, at + 1));
        two_texts_forward(t, &q, at, at == TEXT_KNOWN + STEPS ? &other : &t->tokens[0][at], 1);
        kvcache_advance(&t->r.kv, &q, 1); // past the row of the step before
    }
    kvcache_truncate(&t->r.kv, &q, LENGTH);
    assert_int_equal(q.n_cached, TEXT_KNOWN + STEPS);
    two_texts_finish(t, &q, 0, LENGTH, "after a step that was dropped");
    two_texts_drop(t, &q);
}

// What is read of a state, written to another one, gives the same answers, on whichever device the layers are.
static void check_move(TwoTexts *t) {
    KvStates *states = &t->r.kv.states;
    Sequence a = {0}, b = {0};
    float *values = malloc(states->pool.floats * sizeof *values), logits[TEXT_VOCAB];
    sequence_push(&a, t->tokens[0], ALIKE + 1);
    sequence_push(&b, t->tokens[0], ALIKE + 1);
    step(&t->r, &(RowsOfSequence){&a, ALIKE, NULL}, 1);
    step(&t->r, &(RowsOfSequence){&b, ALIKE, NULL}, 1);
    for (int layer = 0; layer < states->pool.n_layers; layer++) {
        kvstates_load(states, kvcache_state(&a, ALIKE), layer, values);
        kvstates_store(states, kvcache_state(&a, ALIKE), layer, t->want[0]); // a cannot go on from here
        kvstates_store(states, kvcache_state(&b, ALIKE), layer, values);
    }
    step(&t->r, &(RowsOfSequence){&b, 1, logits}, 1);
    two_texts_expect_row(t, 0, ALIKE, logits, "a state that was moved");
    free(values);
    two_texts_drop(t, &a);
    two_texts_drop(t, &b);
}

static void test_states(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        int n_gpu; // of 3 layers
    } all[] = {{"qwen35", 3}, {"qwen35", 2}, {"lfm2", 3}, {"granitehybrid", 3}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        TwoTexts t;
        TinyModel shape = shape_of(all[i].arch);
        CudaSetup setup = {all[i].n_gpu, TYPE_F32, 8, .n_checkpoints = 8};
        Gguf *g = cuda_rig_open_texts(&t, &shape, setup, LENGTH, ALIKE);
        check_return(&t, 3);
        check_return(&t, ALIKE - 2);
        two_texts_check_fork(&t, 2);
        for (int kept = 0; kept <= TEXT_DRAFTS; kept += TEXT_DRAFTS) two_texts_check_drafts(&t, kept, LENGTH);
        check_ahead(&t);
        check_move(&t);
        two_texts_close(&t);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),    cmocka_unit_test(test_shapes_of_states),
        cmocka_unit_test(test_types),       cmocka_unit_test(test_experts_on_the_host),
        cmocka_unit_test(test_parts_apart), cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
