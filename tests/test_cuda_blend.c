// tests/test_cuda_blend.c: chunks with stored K and V on the GPU's backend: rows with gaps, layers on both devices.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include "tests/rig/blend_rig.h"
#include "tests/rig/cuda_rig.h"
#include "tests/rig/gaps.h"

// The attention kernels for few and for many rows, also with a window.
static void test_rows_with_gaps(void **state) {
    (void)state;
    static const int types[] = {TYPE_F32, TYPE_F16};
    for (int i = 0; i < 4; i += 3) { // one type for each kernel, because the twin is slow
        TinyModel shape = cuda_rig_shape(i / 2 ? "gemma2" : "qwen3");
        shape.n_layers = 2, shape.head_dim = 64;
        Gguf *g = tiny_model(&shape);
        Rig r;
        cuda_rig_open(&r, g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = types[i % 2], .block = 16, .keep = true});
        gaps_check(&r, 60, 7, 2e-2, "few rows on the GPU");
        gaps_check(&r, 50, 50, 2e-2, "many rows on the GPU");
        rig_close(&r);
        gguf_close(g);
    }
}

// If all tokens are computed again, the result must be that of a prefill. Otherwise layers on the host must give the
// results of layers on the GPU.
static void test_blended_prompts(void **state) {
    (void)state;
    static const int sizes[] = {31, 9, 20};
    static const char *const plans[] = {"reuse", "epic,k=4", "cacheblend,ratio=0.3", "cacheblend,ratio=1"};
    BlendResult host[4], full;
    BlendText t;
    blend_text(&t, 4, sizes, 3, 1, 9, 7);
    for (int gpu = 0; gpu <= 4; gpu += 2) {
        BlendRig r;
        assert_true(blend_rig_open(
            &r,
            &(BlendSetup){.model = {.n_layers = 4, .seed = 3}, .gpu = gpu, .block = 16, .ubatch = gpu == 2 ? 33 : 80}));
        assert_int_equal(r.e.model.n_device, gpu);
        blend_rig_add(&r, &t);
        blend_run(&r.e, t.tokens, t.n, NULL, &full);
        for (int p = 0; p < 4; p++) {
            BlendResult got;
            blend_rig_run(&r, &t, plans[p], &got);
            if (gpu == 0) host[p] = got;
            double d = test_distance(got.logits, host[p].logits, ENGINE_VOCAB);
            double from_full = test_distance(got.logits, full.logits, ENGINE_VOCAB);
            if (!(d <= 1e-3)) fail_msg("%s, %d layers on the GPU: up to 1e-3 expected, %g found", plans[p], gpu, d);
            if (p == 3 && !(from_full <= 1e-3))
                fail_msg("ratio 1, %d layers on the GPU: %g from a prefill", gpu, from_full);
            if (gpu > 0) free(got.rows);
        }
        free(full.rows);
        blend_rig_close(&r);
    }
    for (int p = 0; p < 4; p++) free(host[p].rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_with_gaps),
        cmocka_unit_test(test_blended_prompts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
