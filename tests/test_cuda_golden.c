// tests/test_cuda_golden.c: the backend on a GPU against float64 logits of an outside reference, for the families that
// have layers with a window. No GPU is needed (tests/rig/cuda_rig.h).
#include "tests/rig/testing.h"

#include <stdlib.h>

#include "tests/rig/cuda_rig.h"

// Logits that others have computed in float64.
static void test_golden_families(void **state) {
    (void)state;
    static const char *const files[] = {"gemma2", "gemma3"};
    Buf text = {0};
    int tokens[CUDA_CTX], n = 0;
    assert_ok(file_read(test_data("golden/families/tokens.txt"), &text));
    for (char *at = text.data, *end; n < CUDA_CTX; at = end) {
        tokens[n] = (int)strtol(at, &end, 10);
        if (end == at) break;
        n++;
        end += *end == ',';
    }
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char name[64];
        FileMap want;
        Gguf *g;
        Rig r;
        snprintf(name, sizeof name, "golden/families/%s.logits.f32", files[i]);
        assert_ok(file_map(test_data(name), &want));
        snprintf(name, sizeof name, "golden/families/%s.gguf", files[i]);
        assert_ok(gguf_open(test_data(name), &g));
        for (int n_gpu = 2; n_gpu <= ALL_LAYERS; n_gpu += ALL_LAYERS - 2)
            for (int chunk = n; chunk > 0; chunk = chunk > 7 ? 7 : chunk > 1 ? 1 : 0) {
                cuda_rig_open(&r, g, (CudaSetup){.n_gpu = n_gpu, .kv_type = TYPE_F32, .block = 4, .scarce = true});
                assert_int_equal(want.n, (size_t)(n * r.m.c.n_vocab) * sizeof(float));
                float *got = cuda_rig_run_tokens(&r, tokens, n, chunk, chunk, false);
                double d = test_distance(got, (const float *)(const void *)want.data, (size_t)(n * r.m.c.n_vocab));
                print_message("  %s, %2d rows a step%-21s %.1e\n", files[i], chunk,
                              n_gpu < ALL_LAYERS ? ", layers on both" : "", d);
                if (!(d <= 1e-3)) fail_msg("%s: distance up to 1e-3 expected, %g found", files[i], d);
                free(got);
                rig_close(&r);
            }
        gguf_close(g);
        file_unmap(&want);
    }
    buf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden_families)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
