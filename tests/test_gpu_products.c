// tests/test_gpu_products.c: the GPU's products with rounded activations, in int8 and for small batches on the tensor
// cores, against references that round in the same way; a row's weights through a ring; rounding to f16.
#include "formats/random_blocks.h"
#include "tests/rig/testing.h"

#include "tests/rig/gpu_compare.h"
#include "tests/rig/tiny_model.h"

#include <math.h>

// int8 activations against a reference that rounds them in the same way.
static void int8_products(void **state) {
    (void)state;
    static const int types[] = {TYPE_Q4_0,   TYPE_Q5_1,  TYPE_Q8_0,    TYPE_Q2_K,  TYPE_Q3_K,  TYPE_Q4_K, TYPE_Q6_K,
                                TYPE_IQ4_XS, TYPE_IQ1_M, TYPE_IQ2_XXS, TYPE_IQ2_S, TYPE_IQ3_S, TYPE_TQ1_0};
    enum { N_IN = 1280, N_OUT = 41, ROWS = 3 };
    uint64_t random = 77;
    for (size_t k = 0; k < ARRAY_LEN(types); k++) {
        const TypeInfo *info = type_info(types[k]);
        size_t row_bytes = N_IN / (size_t)info->block * (size_t)info->bytes;
        uint8_t *data = malloc(N_OUT * row_bytes);
        random_blocks_fill(types[k], data, N_OUT * N_IN, 0.1f, &random);
        Tensor t = {.data = data, .type = types[k], .n_out = N_OUT, .n_in = N_IN, .row_bytes = row_bytes};
        static float x[ROWS * N_IN], rounded[N_IN], w[N_IN], ref[ROWS * N_OUT];
        gpu_compare_case = info->name;
        GpuLayer l = {.w_down = device_tensor(&t)};
        GpuBatch b = {.n_rows = ROWS};
        const float *dx = device_random(x, ROWS * N_IN, &random);
        memset(ref, 0, sizeof ref);
        float *y = device_new(ref, sizeof ref);
        for (int r = 0; r < ROWS; r++) {
            for (int i = 0; i < N_IN; i += 32) {
                float most = 0;
                for (int e = i; e < i + 32; e++) most = fmaxf(most, fabsf(x[r * N_IN + e]));
                for (int e = i; e < i + 32; e++) rounded[e] = rintf(x[r * N_IN + e] * (127 / most)) * (most / 127);
            }
            for (int f = 0; f < N_OUT; f++) {
                double sum = 0;
                info->dequantize(data + (size_t)f * row_bytes, w, N_IN);
                for (int i = 0; i < N_IN; i++) sum += (double)w[i] * (double)rounded[i];
                ref[r * N_OUT + f] = (float)sum;
            }
        }
        gpu_ffn_out(y, dx, &l, &b, &(GpuScratch){0}, (GpuProduct){.exact = false}, NULL);
        gpu_compare_f32(ADD, F32_IN, ref, y, ROWS * N_OUT);
        device_free_all();
        free(data);
    }
}

// NaN in a row of activations makes all sums of the row NaN, and no others.
static void int8_of_nan(void **state) {
    (void)state;
    enum { N_IN = 256, N_OUT = 8, ROWS = 2, ROW_BYTES = N_IN / 32 * 34, AT = 77 };
    uint64_t random = 79;
    uint8_t data[N_OUT * ROW_BYTES];
    float x[ROWS * N_IN], y[ROWS * N_OUT] = {0};
    random_blocks_fill(TYPE_Q8_0, data, N_OUT * N_IN, 0.1f, &random);
    Tensor t = {.data = data, .type = TYPE_Q8_0, .n_out = N_OUT, .n_in = N_IN, .row_bytes = ROW_BYTES};
    for (int i = 0; i < ROWS * N_IN; i++) x[i] = i == N_IN + AT ? NAN : (float)(i % 7);
    GpuLayer l = {.w_down = device_tensor(&t)};
    GpuBatch b = {.n_rows = ROWS};
    float *sums = device_new(y, sizeof y);
    gpu_ffn_out(sums, device_new(x, sizeof x), &l, &b, &(GpuScratch){0}, (GpuProduct){.exact = false}, NULL);
    gpu_compare_launched();
    device_read(y, sums, sizeof y);
    for (int i = 0; i < ROWS * N_OUT; i++) assert_int_equal(!isnan(y[i]), i < N_OUT);
    device_free_all();
}

// Reference of the products on the matrix unit: x and the weights are rounded to bf16, the sums are f32.
static void products_of_few_rows(void **state) {
    (void)state;
    static const int rows[] = {2, 8, 11, GPU_SKINNY_ROWS};
    enum { N_IN = 5120, N_OUT = 150 }; // x is larger than the shared memory of a block; several tiles for each block
    uint64_t random = 78;
    for (size_t k = 0; k < TINY_TYPES; k++) {
        const TypeInfo *info = type_info(tiny_types[k]);
        bool dense = info->block == 1;
        // these types use the plain kernel or have their own test
        if (tiny_types[k] == TYPE_F32 || tiny_types[k] == TYPE_I8G) continue;
        int n = int_max(rows[k % 4], dense ? 3 : 2), n_in = info->block == 256  ? (k % 2 ? N_IN : 768)
                                                            : info->block == 32 ? 32 * 37
                                                                                : 1002;
        size_t row_bytes = (size_t)(n_in / info->block) * (size_t)info->bytes;
        uint8_t *data = malloc(N_OUT * row_bytes);
        random_blocks_fill(tiny_types[k], data, (size_t)N_OUT * (size_t)n_in, 0.1f, &random);
        Tensor t = {.data = data, .type = tiny_types[k], .n_out = N_OUT, .n_in = n_in, .row_bytes = row_bytes};
        static float x[GPU_SKINNY_ROWS * N_IN], w[N_IN], ref[GPU_SKINNY_ROWS * N_OUT];
        gpu_compare_case = info->name;
        GpuLayer l = {.w_down = device_tensor(&t)};
        GpuBatch b = {.n_rows = n};
        const float *dx = device_random(x, (size_t)(n * n_in), &random);
        memset(ref, 0, sizeof ref);
        float *y = device_new(ref, sizeof ref);
        for (int f = 0; f < N_OUT; f++) {
            info->dequantize(data + (size_t)f * row_bytes, w, n_in);
            for (int r = 0; r < n; r++) {
                double sum = 0;
                for (int i = 0; i < n_in; i++) {
                    float v = x[r * n_in + i];
                    if (dense) v = tiny_types[k] == TYPE_F16 ? half_float(float_half(v)) : bf16_float(float_bf16(v));
                    sum += (double)w[i] * (double)v;
                }
                ref[r * N_OUT + f] = (float)sum;
            }
        }
        gpu_tune((GpuTuning){.skinny = true});
        gpu_ffn_out(y, dx, &l, &b, &(GpuScratch){0}, (GpuProduct){.exact = false}, NULL);
        gpu_tune((GpuTuning){0});
        gpu_compare_f32(ADD, dense ? F32_IN : HALF_IN, ref, y, (size_t)(n * N_OUT));
        device_free_all();
        free(data);
    }
}

// Weights that come through a ring in shared memory give the bits of those that come directly from memory: with rows
// that end within a stage, whose scales are no whole words, or that are longer than the chunks of x; with fewer and
// more features than the warps of all blocks have. With gate and up, the norm's squares may be added in another order.
static void a_row_through_the_ring(void **state) {
    (void)state;
    static const int types[] = {TYPE_F16,  TYPE_BF16, TYPE_Q4_0,   TYPE_Q8_0, TYPE_Q4_K,
                                TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_XS, TYPE_MXFP4};
    static const struct { int n_in, n_out; } sizes[] = {{256, 3}, {11 * 256, 50}, {5120, 203}, {17 * 1024, 9}};
    uint64_t random = 81;
    for (size_t k = 0; k < ARRAY_LEN(types) * ARRAY_LEN(sizes); k++) {
        int type = types[k / ARRAY_LEN(sizes)], n_in = sizes[k % ARRAY_LEN(sizes)].n_in;
        int n_out = sizes[k % ARRAY_LEN(sizes)].n_out;
        const TypeInfo *info = type_info(type);
        size_t row_bytes = (size_t)(n_in / info->block) * (size_t)info->bytes, n = (size_t)n_out;
        uint8_t *data = malloc(2 * n * row_bytes);
        random_blocks_fill(type, data, 2 * n * (size_t)n_in, 0.1f, &random);
        Tensor gate = {.data = data, .type = type, .n_out = n_out, .n_in = n_in, .row_bytes = row_bytes}, up = gate;
        up.data = data + n * row_bytes;
        float *x = malloc((size_t)n_in * sizeof *x), *out[2][2];
        gpu_compare_case = info->name;
        GpuLayer l = {.w_gate = device_tensor(&gate), .w_up = device_tensor(&up), .w_down = device_tensor(&gate)};
        l.kind.eps = 1e-5f;
        l.norm_ffn = device_random(x, (size_t)n_in, &random);
        GpuBatch b = {.n_rows = 1};
        const float *dx = device_random(x, (size_t)n_in, &random);
        for (int ring = 0; ring < 2; ring++) {
            gpu_tune((GpuTuning){.ring = ring});
            float *y = device_new(NULL, n * sizeof *y), *h = device_new(NULL, n * sizeof *h);
            gpu_product(y, dx, &l.w_down, NULL, 0, 1, (GpuProduct){.exact = false}, NULL);
            gpu_ffn_in(h, dx, &l, &b, (GpuProduct){.exact = false}, NULL);
            gpu_compare_launched();
            for (int i = 0; i < 2; i++) device_read(out[ring][i] = malloc(n * sizeof *y), i ? h : y, n * sizeof *y);
        }
        gpu_tune((GpuTuning){0});
        for (int i = 0; i < 2; i++) {
            bool same = memcmp(out[0][i], out[1][i], n * sizeof **out[0]) == 0;
            if (!same && (i == 0 || test_distance(out[1][i], out[0][i], n) > 1e-6))
                fail_msg("%s, %d x %d: the ring gives other %s", info->name, n_in, n_out, i ? "gated sums" : "sums");
            free(out[0][i]), free(out[1][i]);
        }
        free(x);
        free(data);
        device_free_all();
    }
}

// Values beyond the range of f16 become its largest value; NaN stays NaN.
static void rounding_to_f16(void **state) {
    (void)state;
    gpu_compare_case = "rounding to f16";
    const float in[] = {1e6f, -INFINITY, NAN, 65504, -1}, want[] = {65504, -65504, NAN, 65504, -1};
    uint16_t bits[ARRAY_LEN(in)], *out = device_new(NULL, sizeof bits);
    gpu_convert(out, TYPE_F16, device_new(in, sizeof in), ARRAY_LEN(in), NULL);
    gpu_compare_launched();
    device_read(bits, out, sizeof bits);
    for (size_t i = 0; i < ARRAY_LEN(in); i++)
        assert_true(isnan(want[i]) ? isnan(half_float(bits[i])) : half_float(bits[i]) == want[i]);
    device_free_all();
}

// A kernel for measurements only reads weights, and writes only where the combination of one thread's pieces equals a
// secret number. If all pieces are zeros except one with this number, the kernel must write, wherever that piece is.
// This shows that it reads every piece.
static void reads_every_piece(void **state) {
    (void)state;
    gpu_compare_case = "reads alone";
    enum { PIECES = 300007, WORDS = 4 };
    const uint32_t secret = 0x9e3779b9;
    const size_t places[] = {0, 1, 255, 4096, 99999, 270000, PIECES - 2, PIECES - 1};
    uint32_t *data = calloc(PIECES * WORDS, sizeof *data), found;
    for (size_t i = 0; i <= ARRAY_LEN(places); i++) {
        bool any = i < ARRAY_LEN(places);
        size_t at = any ? places[i] * WORDS + i % WORDS : 0;
        uint32_t *out = device_new(&(uint32_t){7}, sizeof *out);
        if (any) data[at] = secret;
        gpu_read(device_new(data, PIECES * WORDS * sizeof *data), PIECES * WORDS * sizeof *data, out, NULL);
        gpu_compare_launched();
        device_read(&found, out, sizeof found);
        assert_int_equal(found, any ? secret : 7);
        data[at] = 0;
        device_free_all();
    }
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int8_products),        cmocka_unit_test(int8_of_nan),
        cmocka_unit_test(products_of_few_rows), cmocka_unit_test(a_row_through_the_ring),
        cmocka_unit_test(rounding_to_f16),      cmocka_unit_test(reads_every_piece),
    };
    return cmocka_run_group_tests(tests, NULL, gpu_compare_print);
}
