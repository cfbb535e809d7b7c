// encode/encode.c: see encode/encode.h. Types whose scale follows from the largest weight of a block; the other types
// use the search of encode/fit.h.
#include "encode/encode.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "base/sizes.h"
#include "base/str.h"
#include "encode/pack.h"
#include "formats/types.h"

// ---- types scaled by the largest weight -----------------------------------------------------------------------------

static void encode_f32(const float *x, size_t n, void *out) { memcpy(out, x, n * sizeof *x); }

static void encode_f16(const float *x, size_t n, void *out) {
    half_bits *h = out;
    for (size_t i = 0; i < n; i++) h[i] = float_half(x[i]);
}

static void encode_bf16(const float *x, size_t n, void *out) {
    uint16_t *h = out;
    for (size_t i = 0; i < n; i++) h[i] = float_bf16(x[i]);
}

// The first weight of the largest magnitude, with its sign.
static float farthest(const float *x) {
    float far = x[0];
    for (int i = 1; i < QK; i++)
        if (__builtin_fabsf(x[i]) > __builtin_fabsf(far)) far = x[i];
    return far;
}

// 1 / d; 0 if that is not finite: the weights are so small that the scale rounds to a half of 0.
static float inverse(float d) {
    float by = d != 0 ? 1 / d : 0;
    return __builtin_fabsf(by) <= __FLT_MAX__ ? by : 0;
}

static void encode_q8_0(const float *x, size_t n, void *out) {
    for (BlockQ8_0 *b = out; n; b++, x += QK, n -= QK) {
        float d = __builtin_fabsf(farthest(x)) / 127, by = inverse(d);
        b->d = float_half(d);
        for (int i = 0; i < QK; i++) { // to the nearest, ties away from zero
            float v = x[i] * by, whole = (float)(int)v, rest = v - whole;
            b->qs[i] = (int8_t)(whole + (float)(rest >= 0.5f) - (float)(rest <= -0.5f));
        }
    }
}

// q = x / d + most / 2, rounded half up, from 0 to most - 1. The weight of the largest magnitude gets the level 0.
static void round_centred(const float *x, int most, half_bits *d_out, uint8_t q[QK]) {
    float d = farthest(x) / (float)(-most / 2), by = inverse(d), offset = (float)(most / 2) + 0.5f;
    *d_out = float_half(d);
    for (int i = 0; i < QK; i++) q[i] = (uint8_t)int_min((int)(x[i] * by + offset), most - 1);
}

// q = (x - m) / d, rounded half up, from 0 to most - 1.
static void round_affine(const float *x, int most, half_bits *d_out, half_bits *m_out, uint8_t q[QK]) {
    float lo = x[0], hi = x[0];
    for (int i = 1; i < QK; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    float d = (hi - lo) / (float)(most - 1), by = inverse(d);
    *d_out = float_half(d);
    *m_out = float_half(lo);
    for (int i = 0; i < QK; i++) q[i] = (uint8_t)int_min((int)((x[i] - lo) * by + 0.5f), most - 1);
}

static void put_nibbles(const uint8_t q[QK], uint8_t qs[QK / 2]) {
    for (int i = 0; i < QK / 2; i++) qs[i] = (uint8_t)((q[i] & 15) | q[i + QK / 2] << 4);
}

static void put_fifths(const uint8_t q[QK], uint8_t qh[QK / 8]) {
    memset(qh, 0, QK / 8);
    for (int i = 0; i < QK; i++) qh[i / 8] |= (uint8_t)(q[i] >> 4 << (i % 8));
}

static void encode_q4_0(const float *x, size_t n, void *out) {
    uint8_t q[QK];
    for (BlockQ4_0 *b = out; n; b++, x += QK, n -= QK) {
        round_centred(x, 16, &b->d, q);
        put_nibbles(q, b->qs);
    }
}

static void encode_q4_1(const float *x, size_t n, void *out) {
    uint8_t q[QK];
    for (BlockQ4_1 *b = out; n; b++, x += QK, n -= QK) {
        round_affine(x, 16, &b->d, &b->m, q);
        put_nibbles(q, b->qs);
    }
}

static void encode_q5_0(const float *x, size_t n, void *out) {
    uint8_t q[QK];
    for (BlockQ5_0 *b = out; n; b++, x += QK, n -= QK) {
        round_centred(x, 32, &b->d, q);
        put_nibbles(q, b->qs);
        put_fifths(q, b->qh);
    }
}

static void encode_q5_1(const float *x, size_t n, void *out) {
    uint8_t q[QK];
    for (BlockQ5_1 *b = out; n; b++, x += QK, n -= QK) {
        round_affine(x, 32, &b->d, &b->m, q);
        put_nibbles(q, b->qs);
        put_fifths(q, b->qh);
    }
}

// The exponent follows from the largest weight, which lies between 4 and 8 in the format's own units. Each weight gets
// the nearest level, the first of two at the same distance. mxfp4_values are twice the format's levels, so that the
// exponent's bias is 128 and not 127.
static void encode_mxfp4(const float *x, size_t n, void *out) {
    static const int8_t values[16] = {MXFP4_VALUES};
    for (BlockMXFP4 *b = out; n; b++, x += QK, n -= QK) {
        int exponent = 0;
        float most = __builtin_fabsf(farthest(x));
        frexpf(most, &exponent); // most = f 2^exponent, f from 1/2 to 1
        b->e = most > 0 ? (uint8_t)int_max(exponent - 1 - 2 + 127, 0) : 0;
        float d = mxfp4_scale(b->e);
        uint8_t q[QK];
        for (int i = 0; i < QK; i++) {
            int best = 0;
            for (int k = 1; k < 16; k++)
                if (__builtin_fabsf(d * (float)values[k] - x[i]) < __builtin_fabsf(d * (float)values[best] - x[i]))
                    best = k;
            q[i] = (uint8_t)best;
        }
        put_nibbles(q, b->qs);
    }
}

// Ternary: codes 0, 1 and 2 of x / d rounded to the nearest, ties away from zero, d the largest magnitude.
static half_bits round_ternary(const float *x, uint8_t q[QK_K]) {
    float d = 0;
    for (int i = 0; i < QK_K; i++) d = __builtin_fabsf(x[i]) > d ? __builtin_fabsf(x[i]) : d;
    float by = inverse(d);
    for (int i = 0; i < QK_K; i++) q[i] = (uint8_t)(1 + (x[i] * by >= 0.5f) - (x[i] * by <= -0.5f));
    return float_half(d);
}

// Packs n <= 5 digits q[0], q[apart], ... into a byte: the fraction 0.ddddd to the base of three, the first digit the
// most significant, in units of 1/256, rounded up.
static uint8_t digits_byte(const uint8_t *q, int n, int apart) {
    int value = 0;
    for (int i = 0; i < 5; i++) value = 3 * value + (i < n ? q[i * apart] : 0);
    return (uint8_t)((value * 256 + 242) / 243);
}

static void encode_tq1_0(const float *x, size_t n, void *out) {
    uint8_t q[QK_K];
    for (BlockTQ1_0 *b = out; n; b++, x += QK_K, n -= QK_K) {
        b->d = round_ternary(x, q);
        for (int i = 0; i < 32; i++) b->qs[i] = digits_byte(q + i, 5, 32);
        for (int i = 0; i < 16; i++) b->qs[32 + i] = digits_byte(q + 160 + i, 5, 16);
        for (int i = 0; i < 4; i++) b->qh[i] = digits_byte(q + 240 + i, 4, 4);
    }
}

static void encode_tq2_0(const float *x, size_t n, void *out) {
    uint8_t q[QK_K];
    for (BlockTQ2_0 *b = out; n; b++, x += QK_K, n -= QK_K) {
        b->d = round_ternary(x, q);
        for (int i = 0; i < 64; i++) {
            const uint8_t *four = q + i / 32 * 128 + i % 32;
            b->qs[i] = (uint8_t)(four[0] | four[32] << 2 | four[64] << 4 | four[96] << 6);
        }
    }
}

static const struct {
    int type;
    void (*encode)(const float *x, size_t n, void *out);
} plain[] = {
    {TYPE_F32, encode_f32},     {TYPE_F16, encode_f16},     {TYPE_BF16, encode_bf16},   {TYPE_Q8_0, encode_q8_0},
    {TYPE_Q4_0, encode_q4_0},   {TYPE_Q4_1, encode_q4_1},   {TYPE_Q5_0, encode_q5_0},   {TYPE_Q5_1, encode_q5_1},
    {TYPE_MXFP4, encode_mxfp4}, {TYPE_TQ1_0, encode_tq1_0}, {TYPE_TQ2_0, encode_tq2_0},
};

// ---- types that need a search ---------------------------------------------------------------------------------------

static void encode_fitted(int type, const float *x, const float *importance, size_t n, void *out) {
    const TypeInfo *info = type_info(type);
    int of = fit_weights(type), per = info->block / of;
    size_t left = n / (size_t)of;
    FitKernel *fit = fit_kernel();
    FitResult result;
    for (uint8_t *block = out; left;) {
        int count = left < FIT_LANES ? (int)left : FIT_LANES;
        fit(type, x, importance, count, &result);
        for (int i = 0; i < count; i += per, block += info->bytes) pack_block(type, &result, i, block);
        x += count * of;
        if (importance) importance += count * of;
        left -= (size_t)count;
    }
}

// ---- the largest weights --------------------------------------------------------------------------------------------

float encode_largest(int type) {
    const float half = 65504; // the largest one
    switch (type) {
    case TYPE_F32:
    case TYPE_MXFP4: return __FLT_MAX__; // the scale is a power of two, up to 2^127
    case TYPE_BF16: return 0x1.fep127f;
    // d, times the farthest integer of the side with fewer levels
    case TYPE_Q4_0: return half * 7;
    case TYPE_Q5_0: return half * 15;
    case TYPE_IQ4_NL: return half * 113;
    case TYPE_Q8_0: return half * 127;
    // d, times the farthest scale and the farthest integer
    case TYPE_Q3_K: return half * 31 * 3;
    case TYPE_Q6_K: return half * 127 * 31;
    case TYPE_IQ4_XS: return half * 31 * 113;
    // dmin, times the largest m. Weights of both signs then span less than d s q does.
    case TYPE_Q2_K: return half * 15;
    case TYPE_Q4_K:
    case TYPE_Q5_K: return half * 63;
    default: return half; // F16; the minimum of Q4_1 and Q5_1; d of the ternary types
    }
}

// ---- the choice -----------------------------------------------------------------------------------------------------

bool encode_takes_importance(int type) { return fit_weights(type) > 0; }

void encode_row(int type, const float *x, const float *importance, size_t n, void *out) {
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        if (plain[i].type != type || (importance && encode_takes_importance(type))) continue;
        plain[i].encode(x, n, out);
        return;
    }
    assert(encode_takes_importance(type));
    encode_fitted(type, x, importance, n, out);
}

bool encode_has(int type) {
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        if (plain[i].type == type) return true;
    return encode_takes_importance(type);
}

#define ID_OF(type) type,
static void list_types(char *list, size_t size, bool written) {
    static const int types[] = {EACH_TYPE(ID_OF)};
    *list = 0;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (type_info(types[i])->dequantize && encode_has(types[i]) == written)
            str_list(list, size, type_name(types[i]));
}

const char *encode_list(void) {
    static _Thread_local char list[160];
    list_types(list, sizeof list, true);
    return list;
}

const char *encode_read_only_list(void) {
    static _Thread_local char list[160];
    list_types(list, sizeof list, false);
    return list;
}
