// tests/test_cuda.c: the backend on a GPU against the scalar reference: tiny models of every family, tensor type, KV
// type and batch shape, layers split between both. No GPU is needed (tests/rig/cuda_rig.h).
#include "tests/rig/testing.h"

#include "gpu/launch.h"
#include "tests/rig/cuda_rig.h"

static const char *const archs[] = {"llama",    "qwen2",     "qwen3",         "gemma2",   "gemma3",    "phi3",
                                    "olmo2",    "granite",   "smollm3",       "mistral3", "glm4",      "seed_oss",
                                    "ernie4_5", "exaone4",   "hunyuan-dense", "arcee",    "gemma",     "command-r",
                                    "cohere2",  "internlm2", "exaone",        "minicpm",  "maincoder", "apertus"};
enum { N_WIDE = 4 }; // the first N_WIDE are tested with every type of KV, the others with one type each

enum { N_BATCHINGS = 4 };
// SHORT: a prompt at once; few rows per step, together with other sequences; single steps. LONG: prompts in tiles and
// in chunks; few rows per step, together with other sequences, and token by token after a part of the prompt. So groups
// are sealed in the middle of steps and at their ends, open groups last for several steps, and blocks that no row sees
// any more are given to other sequences. TYPES: for the kernels of a type of weights. Steps of few rows take most of
// the time, since the GPU on the CPU runs every thread of a kernel: they cover slots from 54 and 62 to beyond the seal
// at 64.
enum { SHORT, LONG, TYPES };
static const CudaBatching batchings[][N_BATCHINGS] = {
    {{CUDA_PROMPT, CUDA_PROMPT, CUDA_PROMPT, false}, {8, 5, 5, true}, {4, 1, 1, false}},
    {{100, 64, 64, false}, {100, 37, 37, false}, {75, 54, 7, true}, {67, 62, 1, false}},
    {{CUDA_PROMPT, CUDA_PROMPT, CUDA_PROMPT, false}, {8, 5, 5, true}, {2, 1, 1, false}},
};

static void expect_over(const Gguf *g, CudaSetup s, int lengths, double limit, const char *what) {
    const CudaBatching *b = batchings[lengths];
    cuda_rig_expect(g, s, b, b[N_BATCHINGS - 1].n > 0 ? N_BATCHINGS : N_BATCHINGS - 1, limit, what);
}

static void test_families_and_kv_types(void **state) {
    (void)state;
    static const int kv_types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};
    for (size_t a = 0; a < ARRAY_LEN(archs); a++)
        for (size_t k = 0; k < ARRAY_LEN(kv_types); k++) {
            if (a >= N_WIDE && a % ARRAY_LEN(kv_types) != k) continue;
            TinyModel shape = cuda_rig_shape(archs[a]);
            // a shape that the kernels with tiles support
            if (k > 0) shape.head_dim = 64, shape.n_heads = 4, shape.n_kv_heads = 1;
            Gguf *g = tiny_model(&shape);
            char what[64];
            snprintf(what, sizeof what, "%s, F32, KV %s", archs[a], type_name(kv_types[k]));
            expect_over(g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = kv_types[k], .block = 16}, SHORT,
                        k ? 5e-3 : 1e-5, what);
            gguf_close(g);
        }
}

static void test_sealed_kv(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int head_dim, n_heads, n_kv_heads;
        CudaSetup s;
        double limit;
    } all[] = {
        {"fp8", 24, 6, 2, {.n_gpu = ALL_LAYERS, .kv_type = TYPE_FP8, .block = 32}, 1e-5},
        {"q8_0, contiguous", 24, 6, 2, {.n_gpu = ALL_LAYERS, .kv_type = TYPE_Q8_0}, 1e-5},
        {"q4_0, rotated, blocks of 16", 24, 6, 2, {ALL_LAYERS, TYPE_Q4_0, 16, .shuffle = 4, .rotate = true}, 1e-5},
        {"kivi2, blocks of 7, a layer on the CPU", 24, 6, 2, {1, TYPE_KIVI2, 7, .shuffle = 2}, 1e-5},
        {"fp8, tiles, rotated", 64, 4, 1, {ALL_LAYERS, TYPE_FP8, 64, .rotate = true}, 5e-3},
        {"q8_0, tiles", 64, 4, 1, {ALL_LAYERS, TYPE_Q8_0, 32, .shuffle = 3}, 5e-3},
        {"q4_0, tiles, contiguous", 80, 2, 2, {.n_gpu = ALL_LAYERS, .kv_type = TYPE_Q4_0}, 5e-3},
        {"kivi2, tiles, a layer on the CPU", 64, 4, 1, {.n_gpu = 1, .kv_type = TYPE_KIVI2, .block = 32}, 5e-3},
        {"K q8_0 and V q4_0, tiles", 64, 4, 1, {ALL_LAYERS, TYPE_Q8_0, 16, .type_v = TYPE_Q4_0}, 5e-3},
        {"K f16 and V kivi2, tiles, rotated",
         64,
         4,
         1,
         {ALL_LAYERS, TYPE_F16, 32, .type_v = TYPE_KIVI2, .rotate = true},
         5e-3},
        {"f16, rotated", 24, 6, 2, {ALL_LAYERS, TYPE_F16, 16, .rotate = true}, 5e-3},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        TinyModel shape = cuda_rig_shape(archs[i % 3]); // windows: test_windows
        shape.n_layers = all[i].s.n_gpu == ALL_LAYERS && i > 0 ? 1 : 2;
        shape.head_dim = all[i].head_dim, shape.n_heads = all[i].n_heads, shape.n_kv_heads = all[i].n_kv_heads;
        Gguf *g = tiny_model(&shape);
        expect_over(g, all[i].s, LONG, all[i].limit, all[i].name);
        gguf_close(g);
    }
}

static void test_tensor_types(void **state) {
    (void)state;
    for (size_t t = 0; t < TINY_TYPES; t++) {
        bool dense = tiny_types[t] == TYPE_F16 || tiny_types[t] == TYPE_BF16;
        Gguf *g = tiny_model(&(TinyModel){.arch = archs[t % ARRAY_LEN(archs)],
                                          .type = tiny_types[t],
                                          .dim = 256,
                                          .n_layers = 1,
                                          .n_heads = 4,
                                          .n_kv_heads = 2,
                                          .ffn = 256,
                                          .seed = t});
        expect_over(g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F16}, TYPES, dense ? 2e-2 : 5e-2,
                    type_name(tiny_types[t]));
        gguf_close(g);
    }
}

// 12 rows per step, some of other sequences: the tensor cores compute them in one pass, except with weights in F32.
static void test_small_batches_on_tensor_cores(void **state) {
    (void)state;
    static const int some[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_Q8_0, TYPE_Q4_K};
    gpu_tune((GpuTuning){.skinny = true});
    for (size_t t = 0; t < ARRAY_LEN(some); t++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = archs[t % ARRAY_LEN(archs)],
                                          .type = some[t],
                                          .dim = 256,
                                          .n_layers = 1,
                                          .n_heads = 4,
                                          .n_kv_heads = 2,
                                          .ffn = 512,
                                          .seed = t});
        double limit = some[t] == TYPE_F32 ? 5e-3 : some[t] == TYPE_F16 || some[t] == TYPE_BF16 ? 2e-2 : 5e-2;
        expect_over(g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F16, .spare = 1 << 24}, TYPES, limit,
                    type_name(some[t]));
        gguf_close(g);
    }
    gpu_tune((GpuTuning){0});
}

static void test_rope_kinds(void **state) {
    (void)state;
    static const char *const ropes[] = {"linear", "yarn"};
    for (int i = 0; i < 2; i++) {
        TinyModel shape = cuda_rig_shape("llama");
        shape.rope = ropes[i];
        shape.rope_freqs = i == 0;
        shape.tied = true;
        Gguf *g = tiny_model(&shape);
        expect_over(g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F32}, SHORT, 1e-5, ropes[i]);
        gguf_close(g);
    }
}

// Layers on both sides; a layer without a feed-forward and one without a mixer.
static void test_layers_on_both(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        int n_gpu; // of 3 layers
        bool bare;
    } all[] = {{"qwen3", 1, false}, {"qwen3", 2, false}, {"qwen3", 3, false}, {"gemma2", 1, true}, {"gemma2", 3, true}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        char what[64];
        TinyModel shape = cuda_rig_shape(all[i].arch);
        shape.n_layers = 3;
        Gguf *g = tiny_model(&shape);
        snprintf(what, sizeof what, "%s%d of 3 layers on the GPU", all[i].bare ? "no feed-forward, no mixer, " : "",
                 all[i].n_gpu);
        expect_over(
            g, (CudaSetup){.n_gpu = all[i].n_gpu, .kv_type = TYPE_F32, .block = 16, .shuffle = 3, .bare = all[i].bare},
            SHORT, 1e-5, what);
        gguf_close(g);
    }
}

static void test_windows(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        int type, n_layers, head_dim, n_heads, n_kv_heads, window;
        CudaSetup s;
        double limit;
    } all[] = {
        {"gemma2", TYPE_F32, 2, 24, 6, 2, 12, {ALL_LAYERS, TYPE_F32, 4, 3, .scarce = true}, 1e-5},
        {"gemma2", TYPE_F32, 4, 24, 6, 2, 12, {2, TYPE_F32, 7, 5, .scarce = true}, 1e-5},
        {"gemma2", TYPE_F32, 2, 64, 4, 1, 30, {ALL_LAYERS, TYPE_F16, 16, 7, .scarce = true}, 5e-3},
        {"gemma2", TYPE_F32, 2, 64, 4, 2, 40, {ALL_LAYERS, TYPE_F16, .keep = true}, 5e-3},
        {"gemma2", TYPE_F32, 3, 64, 4, 1, 40, {2, TYPE_Q8_0, 16, 4, .scarce = true}, 5e-3},
        {"gemma2", TYPE_F32, 2, 24, 6, 2, 12, {ALL_LAYERS, TYPE_KIVI2, 7, 2, .scarce = true, .rotate = true}, 1e-5},
        {"gemma3", TYPE_F32, 7, 24, 6, 2, 12, {ALL_LAYERS, TYPE_F32, 4, 9, .scarce = true}, 1e-5},
        {"gemma3", TYPE_F32, 2, 24, 6, 2, 12, {ALL_LAYERS, TYPE_F32, 8, 2, .scarce = true}, 1e-5}, // no layer sees all
        {"gemma2", TYPE_Q4_K, 2, 64, 4, 2, 20, {ALL_LAYERS, TYPE_F16, 16, 3, .scarce = true}, 6e-2},
        {"gemma2", TYPE_BF16, 2, 64, 4, 2, 20, {ALL_LAYERS, TYPE_F16, 16, 3, .scarce = true, .spare = 1 << 24}, 3e-2},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        char what[80];
        TinyModel shape = cuda_rig_shape(all[i].arch);
        shape.n_layers = all[i].n_layers, shape.head_dim = all[i].head_dim, shape.window = all[i].window;
        shape.n_heads = all[i].n_heads, shape.n_kv_heads = all[i].n_kv_heads, shape.type = all[i].type;
        if (type_info(shape.type)->block > 1) shape.dim = 256, shape.ffn = 256;
        Gguf *g = tiny_model(&shape);
        snprintf(what, sizeof what, "%s, %s, KV %s in blocks of %d, %d of %d layers", all[i].arch,
                 type_name(all[i].type), type_name(all[i].s.kv_type), all[i].s.block,
                 int_min(all[i].s.n_gpu, shape.n_layers), shape.n_layers);
        expect_over(g, all[i].s, LONG, all[i].limit, what);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families_and_kv_types),
        cmocka_unit_test(test_sealed_kv),
        cmocka_unit_test(test_tensor_types),
        cmocka_unit_test(test_small_batches_on_tensor_cores),
        cmocka_unit_test(test_rope_kinds),
        cmocka_unit_test(test_layers_on_both),
        cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
