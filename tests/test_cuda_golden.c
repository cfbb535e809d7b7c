// tests/test_cuda_golden.c: the backend on a GPU against float64 logits of an outside reference. No GPU is needed
// (tests/rig/cuda_rig.h).
#include "tests/rig/testing.h"

#include <stdlib.h>

#include "tests/rig/cuda_rig.h"

static const struct {
    const char *file, *logits;
    int n_ctx;
    int n_split; // besides a prompt and few rows behind it: few rows from the start, and so many layers on the GPU; 0:
                 // not
} golden[] = {{"gemma2", "gemma2", 0, 1},
              {"gemma3", "gemma3", 0, 1},
              {"phi3", "phi3", 512, 0},
              {"phi3", "phi3.long", 513, 0},
              {"granite", "granite", 0, 0},
              {"smollm3", "smollm3", 0, 0},
              {"ministral3", "ministral3", 0, 0},
              {"olmo2", "olmo2", 0, 1},
              {"glm4", "glm4", 0, 0},
              {"mixtral", "mixtral", 0, 0},
              {"qwen2moe", "qwen2moe", 0, 1},
              {"qwen3moe", "qwen3moe", 0, 0},
              {"gptoss", "gptoss", 0, 1},
              {"gptoss_mxfp4", "gptoss_mxfp4", 0, 0},
              {"gemma4", "gemma4", 0, 5},
              {"gemma4moe", "gemma4moe", 0, 1},
              {"deepseek2lite", "deepseek2lite", 0, 1},
              {"deepseek3", "deepseek3", 0, 1},
              {"qwen3next", "qwen3next", 0, 1},
              {"qwen35", "qwen35", 0, 1},
              {"qwen35moe", "qwen35moe", 0, 0},
              {"lfm2", "lfm2", 0, 1}};

// Activations beside quantised weights are int8 or bf16.
static double limit_of(const char *file) { return strstr(file, "mxfp4") ? 8e-2 : 1e-5; }

static const char *path_of(const char *kind, const char *name) {
    char file[64];
    snprintf(file, sizeof file, "golden/families/%s.%s", name, kind);
    return test_data(file);
}

static int read_tokens(int tokens[CUDA_CTX]) {
    Buf text = {0};
    int n = 0;
    assert_ok(file_read(test_data("golden/families/tokens.txt"), &text));
    for (char *at = text.data, *end; n < CUDA_CTX; at = end) {
        tokens[n] = (int)strtol(at, &end, 10);
        if (end == at) break;
        n++;
        end += *end == ',';
    }
    buf_free(&text);
    return n;
}

static void check_golden(size_t i, const Gguf *g, const float *want, const int *tokens, int n) {
    static const struct {
        int n_gpu, first, chunk;
        bool always;
    } ways[] = {{ALL_LAYERS, 40, 7, true}, {ALL_LAYERS, 7, 7, false}, {1, 40, 1, false}};
    for (size_t k = 0; k < ARRAY_LEN(ways); k++) {
        if (golden[i].n_split == 0 && !ways[k].always) continue;
        Rig r;
        int n_gpu = ways[k].n_gpu == 1 ? golden[i].n_split : ways[k].n_gpu;
        cuda_rig_open(
            &r, g,
            (CudaSetup){.n_gpu = n_gpu, .kv_type = TYPE_F32, .block = 4, .scarce = true, .n_ctx = golden[i].n_ctx});
        float *got = cuda_rig_run_tokens(&r, tokens, n, ways[k].first, ways[k].chunk, false);
        double d = test_distance(got, want, (size_t)(n * r.m.c.n_vocab));
        print_message("  %s, %2d rows, then %d%-21s %.1e\n", golden[i].logits, ways[k].first, ways[k].chunk,
                      ways[k].n_gpu < ALL_LAYERS ? ", layers on both" : "", d);
        double limit = limit_of(golden[i].file);
        if (!(d <= limit)) fail_msg("%s: distance up to %g expected, %g found", golden[i].logits, limit, d);
        free(got);
        rig_close(&r);
    }
}

// Compares with logits computed in float64 by other programs.
static void test_golden_families(void **state) {
    (void)state;
    int tokens[CUDA_CTX], n = read_tokens(tokens);
    for (size_t i = 0; i < ARRAY_LEN(golden); i++) {
        FileMap want;
        Gguf *g;
        assert_ok(file_map(path_of("logits.f32", golden[i].logits), &want));
        assert_ok(gguf_open(path_of("gguf", golden[i].file), &g));
        check_golden(i, g, (const float *)(const void *)want.data, tokens, n);
        gguf_close(g);
        file_unmap(&want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden_families)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
