// tests/test_cuda_failures.c: the backend on a GPU: steps that are replayed as graphs, lack of memory, failures.
#include "tests/rig/testing.h"

#include "gpu/cuda.h"
#include "gpu/cuda_graphs.h"
#include "kv/kvrows.h"
#include "tests/rig/cuda_rig.h"
#include "tests/rig/gpu_rt_host.h"

#include <math.h>

static void test_a_graph_a_step(void **state) {
    (void)state;
    enum { BEFORE = 252, STEPS = 8, N = BEFORE + STEPS }; // crosses the first limit of slots for a graph, 256
    TinyModel shape = cuda_rig_shape("llama");
    Gguf *g = tiny_model(&shape);
    Rig r, reference;
    int tokens[N];
    cuda_rig_open(&r, g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F32, .block = 16});
    cuda_rig_open(&reference, g, (CudaSetup){.kv_type = TYPE_F32});
    size_t n_vocab = (size_t)r.m.c.n_vocab;
    float *want = cuda_rig_run(&reference, N, CUDA_MOST_ROWS, false), *got = malloc(STEPS * n_vocab * sizeof *got);
    random_tokens(tokens, N, (int)n_vocab, 5);
    Sequence s = {0};
    sequence_push(&s, tokens, N);
    while (s.n_cached < BEFORE) step(&r, &(RowsOfSequence){&s, BEFORE / 4, NULL}, 1);
    CudaCounts before = cuda_counts();
    for (int i = 0; i < STEPS; i++) {
        if (s.n_cached == 256) twin_refuse_graph(); // the second graph takes the memory of the first one
        step(&r, &(RowsOfSequence){&s, 1, got + (size_t)i * n_vocab}, 1);
    }
    CudaCounts after = cuda_counts();
    assert_int_equal(after.steps - before.steps, STEPS);
    assert_int_equal(after.replays - before.replays, STEPS - 1); // the first step of a size is not captured
    assert_int_equal(after.captures - before.captures, 2);       // one graph for up to 256 slots, one for up to 512
    double d = test_distance(got, want + BEFORE * n_vocab, STEPS * n_vocab);
    if (!(d <= 1e-5)) fail_msg("distance up to 1e-5 expected, %g found", d);
    free(got);
    free(want);
    sequence_end(&r.kv, &s);
    rig_close(&reference);
    rig_close(&r);
    gguf_close(g);
}

// The first step with a probe runs without a graph too: no step before it has loaded the code of the probe's kernels.
static void test_first_steps_are_not_captured(void **state) {
    (void)state;
    TinyModel shape = cuda_rig_shape("llama");
    Gguf *g = tiny_model(&shape);
    Rig r; // opens the device
    cuda_rig_open(&r, g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F32});
    CudaGraphs *graphs = calloc(1, sizeof *graphs);
    int mass = 0;
    for (int probe = 0; probe < 2; probe++) {
        CudaGraph step = {.n_layers = 1, .n_rows = 4, .max_slots = 256, .mass = probe ? &mass : NULL};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(cuda_graphs_begin(graphs, &step), i < 2 ? LAYERS_RUN : LAYERS_DONE);
            assert_int_equal(graphs->recording, i == 1);
            cuda_graphs_end(graphs);
        }
    }
    assert_int_equal(graphs->n, 2);
    cuda_graphs_drop(graphs);
    free(graphs);
    rig_close(&r);
    gguf_close(g);
}

static void test_every_shortage_of_memory(void **state) {
    (void)state;
    TinyModel shape = cuda_rig_shape("llama");
    Gguf *g = tiny_model(&shape);
    CudaSetup s = {.n_gpu = ALL_LAYERS, .kv_type = TYPE_Q8_0}; // a sealed type, whose pages are allocated separately
    Rig r;
    cuda_rig_open(&r, g, s);
    size_t before = twin_used();
    rig_close(&r);
    size_t after = twin_used(), all = before - after;
    int refused = 0;
    for (size_t n = 0; n < all; n += all / 16 + 1) {
        twin_memory(after + n);
        Status st = cuda_rig_try(&r, g, s);
        if (st.code) {
            assert_int_equal(st.code, QUILL_MEMORY);
            assert_non_null(strstr(st.message, "try"));
            refused++;
        }
        rig_close(&r);
        assert_int_equal(twin_used(), after);
        assert_null(rt_failure());
    }
    twin_memory((size_t)1 << 30);
    assert_true(refused > 10);
    gguf_close(g);
}

static void test_what_the_kernels_cannot(void **state) {
    (void)state;
    Heads h = {.n_heads = 2, .n_kv_heads = 1, .head_dim = 640};
    assert_ok(cuda_supports(&h));
    h.head_dim = 642;
    assert_int_equal(cuda_supports(&h).code, QUILL_MODEL);
    h.head_dim = 63;
    assert_int_equal(cuda_supports(&h).code, QUILL_MODEL);
}

static void test_a_failure_voids_what_follows(void **state) {
    (void)state;
    TinyModel shape = cuda_rig_shape("llama");
    Gguf *g = tiny_model(&shape);
    Rig r;
    cuda_rig_open(&r, g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F16});
    float logits[400];
    Sequence s = {0};
    sequence_push(&s, (int[]){1, 2, 3}, 3);
    step(&r, &(RowsOfSequence){&s, 1, logits}, 1);
    assert_true(isfinite(logits[0]));
    rt_fail(QUILL_MODEL, "the GPU: it has fallen off the bus");
    rt_fail(QUILL_MEMORY, "a later failure");
    step(&r, &(RowsOfSequence){&s, 1, logits}, 1);
    assert_true(isnan(logits[0]) && isnan(logits[319]));
    assert_int_equal(model_failure(&r.m)->code, QUILL_MODEL);
    assert_string_equal(model_failure(&r.m)->message, "the GPU: it has fallen off the bus");
    assert_int_equal(kvrows_intact(r.kv.pool).code, QUILL_MODEL);
    // the code of a failure is the error's, whatever the driver says
    twin_clear();
    rt_fail(QUILL_MEMORY, "the GPU: no room");
    assert_int_equal(kvrows_intact(r.kv.pool).code, QUILL_MEMORY);
    twin_clear();
    sequence_end(&r.kv, &s);
    rig_close(&r);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_graph_a_step),
        cmocka_unit_test(test_first_steps_are_not_captured),
        cmocka_unit_test(test_every_shortage_of_memory),
        cmocka_unit_test(test_what_the_kernels_cannot),
        cmocka_unit_test(test_a_failure_voids_what_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
