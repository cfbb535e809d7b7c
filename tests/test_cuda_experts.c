// tests/test_cuda_experts.c: layers of experts on the GPU against the scalar reference: families, types, batches in
// which rows share experts, experts that stay on the host, ties and NaN of a router. No GPU is needed
// (tests/rig/cuda_rig.h).
#include "tests/rig/testing.h"

#include "gpu/cuda.h"
#include "tests/rig/cuda_rig.h"
#include "tests/rig/gpu_rt_host.h"

#include <math.h>

enum { VOCAB = 320 };

// A prompt in one step, and one whose last layer has fewer rows; few rows with other sequences and padding; single
// steps.
static const CudaBatching batchings[] = {
    {CUDA_PROMPT, CUDA_PROMPT, CUDA_PROMPT, false}, {8, 5, 5, true}, {20, 13, 7, false}, {4, 1, 1, false}};

static TinyModel shape_of(const char *arch, int type) {
    TinyModel m = cuda_rig_shape(arch);
    m.type = type, m.n_experts = 10, m.n_used = 3, m.n_layers = 2;
    if (type != TYPE_F32) m.dim = 256, m.ffn = 256, m.head_dim = 64, m.n_heads = 4, m.n_kv_heads = 2;
    if (type != TYPE_F32) m.n_layers = 1; // with more layers, a row whose experts change would differ too much
    return m;
}

// Rows, and those of them that are nearer to the reference than `limit`: rounding may change the choice of an expert.
typedef struct {
    double limit;
    int rows, near;
} NearRows;

static void count_near(void *arg, const float *got, const float *want, int n) {
    NearRows *r = arg;
    r->rows += n;
    for (int i = 0; i < n; i++) r->near += test_distance(got + i * VOCAB, want + i * VOCAB, VOCAB) < r->limit;
}

static void expect_near(const Gguf *g, CudaSetup s, double limit, int of_eight, const char *what) {
    NearRows r = {.limit = limit};
    cuda_rig_compare(g, s, batchings, ARRAY_LEN(batchings), count_near, &r);
    print_message("  %-60s %d of %d rows within %g\n", what, r.near, r.rows, limit);
    if (r.near * 8 < r.rows * of_eight) fail_msg("%s: %d of %d rows", what, r.near, r.rows);
}

static const char *const archs[] = {"llama", "qwen2moe", "qwen3moe", "gpt-oss"};

static void test_families(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        TinyModel shape = shape_of(archs[i], TYPE_F32);
        Gguf *g = tiny_model(&shape);
        expect_near(g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F32, .block = 4}, 1e-5, 8, archs[i]);
        gguf_close(g);
    }
}

static void test_kept_on_the_host(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        int n_gpu, n_kept; // of 3 layers: on the GPU; with experts on the host
    } all[] = {{"qwen2moe", 3, 3}, {"qwen3moe", 3, 1}, {"gpt-oss", 2, 2}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        char what[64];
        TinyModel shape = shape_of(all[i].arch, TYPE_F32);
        shape.n_layers = 3;
        Gguf *g = tiny_model(&shape);
        snprintf(what, sizeof what, "%s, experts of %d layers on the host, %d layers on the GPU", all[i].arch,
                 all[i].n_kept, all[i].n_gpu);
        CudaSetup s = {.n_gpu = all[i].n_gpu, .n_kept = all[i].n_kept, .kv_type = TYPE_F32, .block = 4};
        expect_near(g, s, 1e-5, 8, what);
        gguf_close(g);
    }
}

// Types with kernels of their own and types without; gate and up of different types.
static void test_types(void **state) {
    (void)state;
    static const int types[] = {TYPE_BF16, TYPE_Q8_0, TYPE_MXFP4, TYPE_F16, TYPE_Q5_0, TYPE_IQ2_XXS};
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        TinyModel shape = shape_of(archs[1 + t % 3], types[t]);
        Gguf *g = tiny_model(&shape);
        bool dense = types[t] == TYPE_F16 || types[t] == TYPE_BF16;
        expect_near(g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F16, .block = 16, .spare = 1 << 24},
                    dense ? 2e-2 : 8e-2, 6, type_name(types[t]));
        gguf_close(g);
    }
    TinyModel shape = shape_of("qwen3moe", TYPE_Q4_K), other = shape_of("qwen3moe", TYPE_Q8_0);
    Gguf *g = tiny_model(&shape), *h = tiny_model(&other);
    const char *name = "blk.0.ffn_up_exps.weight";
    GgufTensor *to = tiny_tensor(g, name), *from = tiny_tensor(h, name);
    to->type = from->type, to->data = from->data, to->n_bytes = from->n_bytes;
    expect_near(g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F16}, 8e-2, 6, "gate in Q4_K, up in Q8_0");
    gguf_close(g);
    gguf_close(h);
}

// llama4 weighs the inputs of experts: in kernels of few rows, in tiles, and if gate and up differ in their type.
static void test_weighed_inputs(void **state) {
    (void)state;
    static const int types[] = {TYPE_F32, TYPE_BF16, TYPE_Q8_0, TYPE_Q4_K};
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        TinyModel shape = shape_of("llama4", types[t]), other = shape_of("llama4", TYPE_Q8_0);
        shape.n_layers = other.n_layers = 2;
        Gguf *g = tiny_model(&shape), *h = tiny_model(&other);
        if (types[t] == TYPE_Q4_K) {
            GgufTensor *to = tiny_tensor(g, "blk.1.ffn_up_exps.weight"),
                       *from = tiny_tensor(h, "blk.1.ffn_up_exps.weight");
            to->type = from->type, to->data = from->data, to->n_bytes = from->n_bytes;
        }
        double limit = types[t] == TYPE_F32 ? 1e-5 : types[t] == TYPE_BF16 ? 2e-2 : 8e-2;
        expect_near(g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = types[t] == TYPE_F32 ? TYPE_F32 : TYPE_F16}, limit,
                    6, type_name(types[t]));
        gguf_close(g);
        gguf_close(h);
    }
}

static void fill(Gguf *g, const char *name, float value) {
    GgufTensor *t = tiny_tensor(g, name);
    float *data = (float *)(void *)(uintptr_t)t->data;
    for (size_t i = 0; i < t->n_bytes / sizeof *data; i++) data[i] = value;
}

// If a router gives all experts the same score, the first ones must be chosen, as in the reference.
static void test_ties(void **state) {
    (void)state;
    TinyModel shape = shape_of("qwen3moe", TYPE_F32);
    Gguf *g = tiny_model(&shape);
    fill(g, "blk.0.ffn_gate_inp.weight", 0);
    fill(g, "blk.1.ffn_gate_inp.weight", 0);
    expect_near(g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F32}, 1e-5, 8, "ties");
    gguf_close(g);
}

// With few rows and with many: the first layer with a NaN must be named, and the logits must be NaN.
static void test_nan_in_a_router(void **state) {
    (void)state;
    static const int rows[] = {1, 12, CUDA_PROMPT, 1};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        TinyModel shape = shape_of("qwen2moe", i == 1 ? TYPE_BF16 : TYPE_F32);
        shape.n_layers = 2;
        Gguf *g = tiny_model(&shape);
        fill(g, i == 3 ? "blk.1.ffn_gate_inp_shexp.weight" : "blk.1.ffn_gate_inp.weight", NAN);
        Rig r;
        cuda_rig_open(&r, g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F32});
        assert_int_equal(r.w.experts.broken, 0);
        float *logits = cuda_rig_run(&r, rows[i], rows[i], false);
        assert_int_equal(r.w.experts.broken, 2); // the index of the layer plus 1
        assert_true(isnan(logits[0]));
        free(logits);
        rig_close(&r);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families), cmocka_unit_test(test_kept_on_the_host), cmocka_unit_test(test_types),
        cmocka_unit_test(test_ties),     cmocka_unit_test(test_nan_in_a_router),  cmocka_unit_test(test_weighed_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
