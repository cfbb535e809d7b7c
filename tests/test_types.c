// tests/test_types.c: the value of each element of a block, compared with blocks that this file makes bit by bit, and
// for codebook and ternary types with values of the `gguf` package (tests/rig/type_vectors.h).
//
// The layouts are written down here a second time, from the format's own description (ggml-common.h, ggml-types.c): the
// bits of each element and of each scale. Expected values are computed in double.
#include "tests/rig/testing.h"

#include "base/rng.h"
#include "formats/random_blocks.h"
#include "formats/types.h"
#include "tests/rig/type_vectors.h"

#include <math.h>

enum { MAX_BYTES = 210, N_BLOCKS = 3 };

// ---- halves in double, for reference --------------------------------------------------------------------------------

static double half_value(uint16_t h) {
    int sign = h >> 15 ? -1 : 1, exponent = h >> 10 & 31, mantissa = h & 1023;
    if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

// Rounds x to `bits` significant bits, ties to even, with exponents from low to high.
static double rounded(double x, int bits, int low, int high) {
    if (isnan(x) || isinf(x) || x == 0) return x;
    int exponent = ilogb(x) < low ? low : ilogb(x);
    double quantum = ldexp(1, exponent - (bits - 1)), value = nearbyint(x / quantum) * quantum;
    return fabs(value) >= ldexp(1, high + 1) ? copysign(INFINITY, x) : value;
}
static double half_rounded(double x) { return rounded(x, 11, -14, 15); }
static double bf16_rounded(double x) { return rounded(x, 8, -126, 127); }

static void assert_value(double got, double want, uint32_t from) {
    if (isnan(want) ? isnan(got) : got == want && signbit(got) == signbit(want)) return;
    fail_msg("from bits %08x: %.9g expected, %.9g found", from, want, got);
}

static void test_every_half(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = half_float((half_bits)h);
        assert_value(f, half_value((uint16_t)h), h);
        half_bits back = float_half(f);
        if (isnan(f)) assert_true((back & 0x7fff) > 0x7c00 && (back & 0x8000) == (h & 0x8000));
        else assert_int_equal(back, h);
    }
}

static void test_every_bf16(void **state) {
    (void)state;
    for (uint32_t b = 0; b < 65536; b++) {
        float f = bf16_float((uint16_t)b);
        uint32_t bits;
        memcpy(&bits, &f, 4);
        assert_int_equal(bits, b << 16);
        uint16_t back = float_bf16(f);
        if (isnan(f)) assert_true((back & 0x7fff) > 0x7f80 && (back & 0x8000) == (b & 0x8000));
        else assert_int_equal(back, b);
    }
}

static void check_roundings(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    assert_value(half_float(float_half(f)), half_rounded(f), bits);
    assert_value(bf16_float(float_bf16(f)), bf16_rounded(f), bits);
}

static void test_roundings_of_random_floats(void **state) {
    (void)state;
    uint64_t random = 1;
    for (int i = 0; i < 2000000; i++) check_roundings((uint32_t)test_random(&random));
    for (int i = 0; i < 1000000; i++) { // the range of f16: exponents from 2^-28 to 2^17
        uint32_t exponent = 99 + (uint32_t)(test_random(&random) % 46);
        check_roundings(((uint32_t)test_random(&random) & 0x807fffff) | exponent << 23);
    }
}

// Values halfway between two neighbours, and the next floats below and above.
static void test_ties(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float middle = (float)((half_value((uint16_t)h) + (h < 0x7bff ? half_value((uint16_t)(h + 1)) : 65536)) / 2);
        uint32_t bits;
        memcpy(&bits, &middle, 4);
        for (uint32_t sign = 0; sign < 2; sign++)
            for (int d = -1; d <= 1; d++) check_roundings((bits + (uint32_t)d) | sign << 31);
    }
    for (uint32_t b = 0; b < 0x7f80; b++)
        for (int d = -1; d <= 1; d++) check_roundings((b << 16 | 0x8000) + (uint32_t)d);
}

static void test_special_floats(void **state) {
    (void)state;
    assert_int_equal(float_half(65504.0f), 0x7bff);
    assert_int_equal(float_half(65519.99f), 0x7bff);
    assert_int_equal(float_half(65520.0f), 0x7c00);
    assert_int_equal(float_half(-1e30f), 0xfc00);
    assert_int_equal(float_half(INFINITY), 0x7c00);
    assert_int_equal(float_half(-0.0f), 0x8000);
    assert_int_equal(float_half(0x1p-24f), 1);
    assert_int_equal(float_half(0x1p-25f), 0); // a tie, to even
    assert_int_equal(float_half(-0x1.000002p-25f), 0x8001);
    assert_int_equal(float_half(0x1.ffcp-15f), 0x0400); // the last tie below the normal numbers of f16
    assert_int_equal(float_bf16(3.4028235e38f), 0x7f80);
    assert_int_equal(float_bf16(INFINITY), 0x7f80);
    // a NaN whose payload is only in the low bits must not become infinity
    uint32_t quiet[] = {0x7f800001, 0x7fffffff, 0xff800001};
    for (size_t i = 0; i < ARRAY_LEN(quiet); i++) {
        float nan;
        memcpy(&nan, &quiet[i], 4);
        assert_true(isnan(half_float(float_half(nan))));
        assert_true(isnan(bf16_float(float_bf16(nan))));
    }
}

// ---- blocks, bit by bit ---------------------------------------------------------------------------------------------

// The parts of a block. Every element is d * s * level(q) + m_sign * m_unit * m.
typedef struct {
    uint16_t d, m; // f16
    int scale[16], min[16];
    int q[256];
} BlockParts;

static void put(uint8_t *block, int byte, int shift, int n_bits, int value) {
    for (int i = 0; i < n_bits; i++)
        if (value >> i & 1) block[byte + (shift + i) / 8] |= (uint8_t)(1 << (shift + i) % 8);
}

typedef struct {
    int type, bytes, n;
    int d_at, m_at;             // offsets of the f16 values; m_at -1: there is none
    int q_bits, s_bits, m_bits; // bits of an element's code, of a scale, of a minimum
    int per_scale;              // elements with one scale; 0: the block has no sub-block scales
    int s_offset, q_offset;     // subtracted from the stored codes
    int m_sign;                 // sign of the minimum's term; 0: there is none
    void (*put_q)(uint8_t *block, int i, int q);
    void (*put_scale)(uint8_t *block, int j, int s, int m);
} Layout;

// 32 elements: low nibbles are elements 0..15, high nibbles 16..31.
static void nibble_32(uint8_t *qs, int i, int q) { put(qs, i % 16, 4 * (i / 16), 4, q & 15); }
static void q4_0(uint8_t *b, int i, int q) { nibble_32(b + 2, i, q); }
static void q4_1(uint8_t *b, int i, int q) { nibble_32(b + 4, i, q); }
static void q5_0(uint8_t *b, int i, int q) {
    nibble_32(b + 6, i, q);
    put(b + 2, 0, i, 1, q >> 4);
}
static void q5_1(uint8_t *b, int i, int q) {
    nibble_32(b + 8, i, q);
    put(b + 4, 0, i, 1, q >> 4);
}
static void q8_0(uint8_t *b, int i, int q) { put(b, 2 + i, 0, 8, q); }

// Two halves of 128 elements. The 32 bytes of a half hold four runs of 32 elements, two bits each.
static void two_bit_runs(uint8_t *qs, int i, int q) { put(qs, i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2, q & 3); }
static void q2_k(uint8_t *b, int i, int q) { two_bit_runs(b + 16, i, q); }
static void q3_k(uint8_t *b, int i, int q) {
    two_bit_runs(b + 32, i, q);
    put(b, i % 32, i / 32, 1, q >> 2);
}
// Four chunks of 64 elements. The 32 bytes of a chunk hold elements 0..31 in low nibbles and 32..63 in high ones.
static void nibble_64(uint8_t *qs, int i, int q) { put(qs, i / 64 * 32 + i % 32, i % 64 / 32 * 4, 4, q & 15); }
static void q4_k(uint8_t *b, int i, int q) { nibble_64(b + 16, i, q); }
static void q5_k(uint8_t *b, int i, int q) {
    nibble_64(b + 48, i, q);
    put(b + 16, i % 32, i / 32, 1, q >> 4);
}
static void q6_k(uint8_t *b, int i, int q) {
    // runs 0 and 1 are low nibbles; runs 2 and 3 are high nibbles of the same bytes
    int half = i / 128, run = i % 128 / 32, l = i % 32;
    put(b, half * 64 + run % 2 * 32 + l, run / 2 * 4, 4, q & 15);
    put(b + 128, half * 32 + l, 2 * run, 2, q >> 4);
}
static void iq4_xs(uint8_t *b, int i, int q) { nibble_32(b + 8 + i / 32 * 16, i % 32, q); }

static void scale_q2_k(uint8_t *b, int j, int s, int m) { put(b, j, 0, 8, s | m << 4); }
static void scale_q3_k(uint8_t *b, int j, int s, int m) {
    (void)m;
    put(b + 96, j % 8, j / 8 * 4, 4, s & 15);
    put(b + 96, 8 + j % 4, j / 4 * 2, 2, s >> 4);
}
// Six bits each. The first four pairs of scale and minimum are in the low bits of bytes 0..3 and 4..7. The last four
// pairs have four bits in bytes 8..11 and two bits in the top bits of bytes 0..7.
static void scale_k4(uint8_t *b, int j, int s, int m) {
    uint8_t *p = b + 4;
    if (j < 4) {
        put(p, j, 0, 6, s);
        put(p, j + 4, 0, 6, m);
    } else {
        put(p, j + 4, 0, 4, s & 15);
        put(p, j + 4, 4, 4, m & 15);
        put(p, j - 4, 6, 2, s >> 4);
        put(p, j, 6, 2, m >> 4);
    }
}
static void scale_q6_k(uint8_t *b, int j, int s, int m) {
    (void)m;
    put(b, 192 + j, 0, 8, s);
}
static void scale_iq4_xs(uint8_t *b, int j, int s, int m) {
    (void)m;
    put(b, 4 + j / 2, j % 2 * 4, 4, s & 15);
    put(b, 2, 2 * j, 2, s >> 4);
}

// With q_bits 8 or s_bits 8 the values are signed bytes; the others are unsigned.
static const Layout layouts[] = {
    {TYPE_Q4_0, 18, 32, 0, -1, 4, 0, 0, 0, 0, 8, 0, q4_0, NULL},
    {TYPE_Q4_1, 20, 32, 0, 2, 4, 0, 0, 0, 0, 0, 1, q4_1, NULL},
    {TYPE_Q5_0, 22, 32, 0, -1, 5, 0, 0, 0, 0, 16, 0, q5_0, NULL},
    {TYPE_Q5_1, 24, 32, 0, 2, 5, 0, 0, 0, 0, 0, 1, q5_1, NULL},
    {TYPE_Q8_0, 34, 32, 0, -1, 8, 0, 0, 0, 0, 0, 0, q8_0, NULL},
    {TYPE_Q2_K, 84, 256, 80, 82, 2, 4, 4, 16, 0, 0, -1, q2_k, scale_q2_k},
    {TYPE_Q3_K, 110, 256, 108, -1, 3, 6, 0, 16, 32, 4, 0, q3_k, scale_q3_k},
    {TYPE_Q4_K, 144, 256, 0, 2, 4, 6, 6, 32, 0, 0, -1, q4_k, scale_k4},
    {TYPE_Q5_K, 176, 256, 0, 2, 5, 6, 6, 32, 0, 0, -1, q5_k, scale_k4},
    {TYPE_Q6_K, 210, 256, 208, -1, 6, 8, 0, 16, 0, 32, 0, q6_k, scale_q6_k},
    {TYPE_IQ4_NL, 18, 32, 0, -1, 4, 0, 0, 0, 0, 0, 0, q4_0, NULL},
    {TYPE_IQ4_XS, 136, 256, 0, -1, 4, 6, 0, 32, 32, 0, 0, iq4_xs, scale_iq4_xs},
};

static const int iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static int stored(uint64_t *random, int bits) {
    int v = (int)(test_random(random) & ((1u << bits) - 1));
    return bits == 8 && v > 127 ? v - 256 : v;
}

static BlockParts random_parts(const Layout *l, uint64_t *random) {
    BlockParts p = {.d = (uint16_t)(0x1000 + test_random(random) % 0x3000), // positive and negative, never infinite
                    .m = (uint16_t)(0x1000 + test_random(random) % 0x3000)};
    if (test_random(random) & 1) p.d |= 0x8000;
    if (test_random(random) & 1) p.m |= 0x8000;
    for (int j = 0; l->per_scale && j < l->n / l->per_scale; j++) {
        p.scale[j] = stored(random, l->s_bits);
        p.min[j] = stored(random, l->m_bits);
    }
    for (int i = 0; i < l->n; i++) p.q[i] = stored(random, l->q_bits);
    return p;
}

static void build(const Layout *l, const BlockParts *p, uint8_t *block) {
    memset(block, 0, (size_t)l->bytes);
    put(block, l->d_at, 0, 16, p->d);
    if (l->m_at >= 0) put(block, l->m_at, 0, 16, p->m);
    for (int j = 0; l->per_scale && j < l->n / l->per_scale; j++) l->put_scale(block, j, p->scale[j], p->min[j]);
    for (int i = 0; i < l->n; i++) l->put_q(block, i, p->q[i]);
}

static void check_block(const Layout *l, const BlockParts *p, const float *got) {
    bool iq4 = l->type == TYPE_IQ4_NL || l->type == TYPE_IQ4_XS;
    for (int i = 0; i < l->n; i++) {
        int j = l->per_scale ? i / l->per_scale : 0;
        double s = l->per_scale ? p->scale[j] - l->s_offset : 1, m = l->per_scale ? p->min[j] : 1;
        double q = iq4 ? iq4_levels[p->q[i]] : p->q[i] - l->q_offset;
        double a = half_value(p->d) * s * q, b = l->m_sign * half_value(p->m) * m;
        double slack = 2e-7 * (fabs(a) + fabs(b)); // allows two roundings of f32
        if (!(fabs(got[i] - (a + b)) <= slack))
            fail_msg("%s element %d: %.9g expected, %.9g found", type_name(l->type), i, a + b, (double)got[i]);
    }
}

static void test_blocks(void **state) {
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(layouts); t++) {
        const Layout *l = &layouts[t];
        const TypeInfo *info = type_info(l->type);
        assert_int_equal(info->block, l->n);
        assert_int_equal(info->bytes, l->bytes);
        uint64_t random = 100 + t;
        for (int round = 0; round < 200; round++) {
            BlockParts parts[N_BLOCKS];
            // Exactly as many bytes and floats as the blocks have: a sanitizer sees an access past them.
            uint8_t *blocks = malloc((size_t)(N_BLOCKS * l->bytes));
            float *out = malloc((size_t)(N_BLOCKS * l->n) * sizeof *out);
            for (int b = 0; b < N_BLOCKS; b++) {
                parts[b] = random_parts(l, &random);
                build(l, &parts[b], blocks + b * l->bytes);
            }
            info->dequantize(blocks, out, (size_t)(N_BLOCKS * l->n));
            for (int b = 0; b < N_BLOCKS; b++) check_block(l, &parts[b], out + b * l->n);
            free(blocks);
            free(out);
        }
    }
}

// One block whose bytes and values are easy to follow.
static void test_block_by_eye(void **state) {
    (void)state;
    struct __attribute__((packed)) {
        uint16_t d;
        uint8_t qs[16];
    } q4 = {0x3c00, {0x10, 0xf8}}; // d = 1
    float out[32];
    type_info(TYPE_Q4_0)->dequantize(&q4, out, 32);
    assert_float_equal(out[0], -8, 0);
    assert_float_equal(out[1], 0, 0);
    assert_float_equal(out[16], -7, 0);
    assert_float_equal(out[17], 7, 0);
    type_info(TYPE_IQ4_NL)->dequantize(&q4, out, 32);
    assert_float_equal(out[0], -127, 0);
    assert_float_equal(out[1], 1, 0);
    assert_float_equal(out[16], -104, 0);
    assert_float_equal(out[17], 113, 0);
}

// Every exponent and every level, in double.
static void test_mxfp4(void **state) {
    (void)state;
    static const double levels[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
    assert_int_equal(type_info(TYPE_MXFP4)->bytes, 17);
    for (int e = 0; e < 255; e++) {
        uint8_t block[17] = {(uint8_t)e};
        float out[32];
        for (int i = 0; i < 16; i++) block[1 + i] = (uint8_t)(i | (15 - i) << 4);
        type_info(TYPE_MXFP4)->dequantize(block, out, 32);
        for (int i = 0; i < 32; i++) {
            double want = ldexp(levels[i < 16 ? i : 31 - i], e - 127);
            if (out[i] != (float)want)
                fail_msg("exponent %d, element %d: %g expected, %g found", e, i, want, (double)out[i]);
        }
    }
}

// ---- the codebook and ternary types ---------------------------------------------------------------------------------

// Every element must have the exact bits: of one block each element is compared, of many blocks the hash.
static void test_vectors(void **state) {
    (void)state;
    for (size_t v = 0; v < ARRAY_LEN(type_vectors); v++) {
        const TypeVector *t = &type_vectors[v];
        const TypeInfo *info = type_info(t->type);
        float out[TYPE_VECTOR_BLOCKS * QK_K];
        assert_int_equal(info->bytes, t->bytes);
        info->dequantize(t->block, out, QK_K);
        for (int i = 0; i < QK_K; i++)
            if (float_bits(out[i]) != t->values[i])
                fail_msg("%s element %d: %.9g expected, %.9g found", info->name, i, (double)bits_float(t->values[i]),
                         (double)out[i]);
        size_t n = TYPE_VECTOR_BLOCKS * (size_t)t->bytes;
        uint8_t *many = malloc(n); // exactly as many bytes as the blocks have
        for (size_t i = 0; i < n; i++) many[i] = (uint8_t)rng_mix(t->seed + i);
        int high = t->type == TYPE_IQ1_M || t->type == TYPE_TQ1_0 || t->type == TYPE_TQ2_0 ? t->bytes - 1 : 1;
        for (int b = 0; b < TYPE_VECTOR_BLOCKS; b++) many[b * t->bytes + high] &= 0xbf;
        info->dequantize(many, out, TYPE_VECTOR_BLOCKS * QK_K);
        uint64_t hash = 0xcbf29ce484222325u;
        for (size_t i = 0; i < sizeof out; i++) hash = (hash ^ ((const uint8_t *)out)[i]) * 0x100000001b3u;
        if (hash != t->hash) fail_msg("%s: hash %#lx expected, %#lx found", info->name, t->hash, hash);
        free(many);
    }
}

// The eighth sign is chosen so that the number of negative signs is even.
static void test_signs_of_sevens(void **state) {
    (void)state;
    for (uint32_t seven = 0; seven < 128; seven++) {
        uint32_t eight = seven | (uint32_t)(__builtin_popcount(seven) % 2) << 7;
        assert_int_equal(signs_of_sevens(seven * 0x204081u), eight * 0x01010101u);
        for (int at = 0; at < 4; at++) assert_int_equal(signs_of_sevens(seven << (7 * at)), eight << (8 * at));
    }
}

// Random blocks of every type must be finite and have the requested deviation.
static void test_random_blocks(void **state) {
    (void)state;
    enum { N = 64 * QK_K };
    static const int ids[] = {
#define ID(type) type,
        EACH_TYPE(ID)
#undef ID
    };
    for (size_t t = 0; t < N_TYPES; t++) {
        const TypeInfo *info = type_info(ids[t]);
        if (!info->dequantize) continue;
        uint64_t random = 5 + t;
        uint8_t *blocks = malloc((size_t)N / (size_t)info->block * (size_t)info->bytes);
        static float out[N];
        random_blocks_fill(ids[t], blocks, N, 0.05f, &random);
        info->dequantize(blocks, out, N);
        double square = 0;
        for (int i = 0; i < N; i++) square += (double)out[i] * (double)out[i];
        double deviation = sqrt(square / N);
        if (!(deviation > 0.03 && deviation < 0.08)) fail_msg("%s: deviation %g found", info->name, deviation);
        free(blocks);
    }
}

static void test_plain_types(void **state) {
    (void)state;
    enum { N = 257 };
    uint64_t random = 7;
    uint32_t words[N];
    uint16_t halves[N];
    float out[N];
    for (int i = 0; i < N; i++) halves[i] = (uint16_t)(words[i] = (uint32_t)test_random(&random) & 0x7f7fffff);
    type_info(TYPE_F32)->dequantize(words, out, N);
    assert_memory_equal(out, words, sizeof out);
    type_info(TYPE_F16)->dequantize(halves, out, N);
    for (int i = 0; i < N; i++) assert_value(out[i], half_value(halves[i]), halves[i]);
    type_info(TYPE_BF16)->dequantize(halves, out, N);
    for (int i = 0; i < N; i++) assert_int_equal(float_bits(out[i]) >> 16, halves[i]);
}

// ---- the table ------------------------------------------------------------------------------------------------------

static void test_table(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int id, block, bytes;
    } all[] = {
        {"F32", 0, 1, 4},       {"F16", 1, 1, 2},         {"Q4_0", 2, 32, 18},      {"Q4_1", 3, 32, 20},
        {"Q5_0", 6, 32, 22},    {"Q5_1", 7, 32, 24},      {"Q8_0", 8, 32, 34},      {"Q2_K", 10, 256, 84},
        {"Q3_K", 11, 256, 110}, {"Q4_K", 12, 256, 144},   {"Q5_K", 13, 256, 176},   {"Q6_K", 14, 256, 210},
        {"IQ4_NL", 20, 32, 18}, {"IQ4_XS", 23, 256, 136}, {"MXFP4", 39, 32, 17},    {"BF16", 30, 1, 2},
        {"IQ1_S", 19, 256, 50}, {"IQ1_M", 29, 256, 56},   {"IQ2_XXS", 16, 256, 66}, {"IQ2_XS", 17, 256, 74},
        {"IQ2_S", 22, 256, 82}, {"IQ3_XXS", 18, 256, 98}, {"IQ3_S", 21, 256, 110},  {"TQ1_0", 34, 256, 54},
        {"TQ2_0", 35, 256, 66}, {"I8G", 1000, 1, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const TypeInfo *t = type_info(all[i].id);
        assert_non_null(t);
        assert_string_equal(t->name, all[i].name);
        assert_int_equal(t->block, all[i].block);
        assert_int_equal(t->bytes, all[i].bytes);
        assert_ptr_equal(type_by_name(all[i].name), t);
        assert_string_equal(type_name(all[i].id), all[i].name);
        assert_int_equal(t->dequantize == NULL, all[i].id == TYPE_I8G);
        if (all[i].id != TYPE_I8G) assert_non_null(strstr(type_name_list(), all[i].name));
    }
    assert_null(strstr(type_name_list(), "I8G"));
}

static void test_names(void **state) {
    (void)state;
    assert_ptr_equal(type_by_name("q4_k"), type_info(TYPE_Q4_K));
    assert_ptr_equal(type_by_name("Bf16"), type_info(TYPE_BF16));
    assert_null(type_by_name("Q4_K_M"));
    assert_null(type_by_name(""));
    int unknown[] = {-1, 4, 5, 9, 15, 24, 28, 31, 38, 40, 999, 1001, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < ARRAY_LEN(unknown); i++) assert_null(type_info(unknown[i]));
    assert_string_equal(type_name(9), "Q8_1");
    assert_string_equal(type_name(40), "NVFP4");
    assert_string_equal(type_name(26), "I32");
    assert_string_equal(type_name(39), "MXFP4");
    assert_string_equal(type_name(4), "type 4");
    assert_string_equal(type_name(-1), "type -1");
    assert_string_equal(type_name(12345), "type 12345");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half),
        cmocka_unit_test(test_every_bf16),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_roundings_of_random_floats),
        cmocka_unit_test(test_special_floats),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_block_by_eye),
        cmocka_unit_test(test_mxfp4),
        cmocka_unit_test(test_plain_types),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_signs_of_sevens),
        cmocka_unit_test(test_random_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
