// sealed.c: see sealed.h.
#include "sealed.h"

#include <math.h>

static const half_bits no_number = 0x7e00; // NaN

static float clamp(float x, float least, float most) { return x < least ? least : x > most ? most : x; }

// A scale as it is stored: finite for what is finite.
static half_bits scale_half(float d) { return d - d == 0 ? float_half(clamp(d, -65504, 65504)) : no_number; }

static float inverse(half_bits d) {
    float f = half_float(d);
    return f == 0 || f != f ? 0 : 1 / f;
}

// The element of the largest magnitude, NaN where one is not finite.
static float farthest(const float *x, int n) {
    float most = 0, broken = 0;
    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > fabsf(most)) most = x[i];
        broken += x[i] - x[i];
    }
    return most + broken;
}

// ---- a slot of 32 elements ------------------------------------------------------------------------------------------

static void seal_q8_0(const float *x, BlockQ8_0 *b) {
    b->d = scale_half(fabsf(farthest(x, 32)) / 127);
    float by = inverse(b->d);
    for (int i = 0; i < 32; i++) b->qs[i] = by == 0 ? 0 : (int8_t)rintf(clamp(x[i] * by, -127, 127));
}

static void seal_q4_0(const float *x, BlockQ4_0 *b) {
    b->d = scale_half(farthest(x, 32) / -8);
    float by = inverse(b->d);
    uint8_t q[32];
    for (int i = 0; i < 32; i++) q[i] = by == 0 ? 8 : (uint8_t)(rintf(clamp(x[i] * by, -8, 7)) + 8);
    for (int i = 0; i < 16; i++) b->qs[i] = (uint8_t)(q[i] | q[i + 16] << 4);
}

// The codes of n elements, `stride` floats apart, and their scale and minimum.
static void seal_2_bits(const float *x, size_t stride, int n, uint8_t *q, half_bits *d, half_bits *m) {
    float least = x[0], most = x[0], broken = 0;
    for (int i = 0; i < n; i++) {
        float v = x[(size_t)i * stride];
        least = fminf(least, v);
        most = fmaxf(most, v);
        broken += v - v;
    }
    *m = scale_half(least + broken);
    *d = scale_half((most - half_float(*m)) / 3 + broken);
    float by = inverse(*d), from = half_float(*m);
    for (int i = 0; i < n; i++) q[i] = by == 0 ? 0 : (uint8_t)rintf(clamp((x[(size_t)i * stride] - from) * by, 0, 3));
}

static void pack_2_bits(const uint8_t *q, uint8_t qs[8]) {
    for (int i = 0; i < 8; i++) qs[i] = (uint8_t)(q[i] | q[i + 8] << 2 | q[i + 16] << 4 | q[i + 24] << 6);
}

static float unpack_2_bits(const uint8_t qs[8], int i) { return (float)(qs[i % 8] >> 2 * (i / 8) & 3); }

static void seal_kivi2(const float *x, BlockKivi2 *b) {
    uint8_t q[32];
    seal_2_bits(x, 1, 32, q, &b->d, &b->m);
    pack_2_bits(q, b->qs);
}

static void unseal_kivi2(const BlockKivi2 *b, float *out) {
    for (int i = 0; i < 32; i++) out[i] = half_float(b->m) + half_float(b->d) * unpack_2_bits(b->qs, i);
}

// ---- E4M3 -----------------------------------------------------------------------------------------------------------

uint8_t float_fp8(float f) {
    uint32_t u = float_bits(clamp(f, -448, 448)), rest = u & 0x7fffffff, sign = u >> 24 & 0x80;
    if (rest < 0x3c800000) // subnormal: adding 2^14 leaves the rounded multiple of 2^-9 in the low bits
        return (uint8_t)(sign | (float_bits(bits_float(rest) + 16384) - 0x46800000));
    return (uint8_t)(sign | (rest + 0x7ffff + (rest >> 20 & 1) - (120u << 23)) >> 20);
}

static void seal_fp8(const float *x, int n, uint8_t *to) {
    half_bits d = scale_half(fabsf(farthest(x, n)) / 448);
    float by = inverse(d);
    memcpy(to, &d, sizeof d);
    for (int i = 0; i < n; i++) to[2 + i] = by == 0 ? 0 : float_fp8(x[i] * by);
}

static void unseal_fp8(const uint8_t *from, int n, float *out) {
    half_bits d;
    memcpy(&d, from, sizeof d);
    for (int i = 0; i < n; i++) out[i] = half_float(d) * (half_float(fp8_half(from[2 + i])) * 256);
}

// ---- groups ---------------------------------------------------------------------------------------------------------

static void seal_slot(int type, const float *x, uint8_t *to) { // 32 elements
    if (type == TYPE_Q8_0) seal_q8_0(x, (BlockQ8_0 *)to);
    else if (type == TYPE_Q4_0) seal_q4_0(x, (BlockQ4_0 *)to);
    else seal_kivi2(x, (BlockKivi2 *)to);
}

static void unseal_slot(int type, const uint8_t *from, float out[32]) {
    if (type == TYPE_KIVI2) unseal_kivi2((const BlockKivi2 *)from, out);
    else type_info(type)->dequantize(from, out, 32);
}

static void seal_panel(const float x[SEAL][32], PanelKivi2 *p) {
    uint8_t q[32][SEAL], of_slot[32]; // (channel, slot)
    for (int c = 0; c < 32; c++) seal_2_bits(&x[0][c], 32, SEAL, q[c], &p->d[c], &p->m[c]);
    for (int s = 0; s < SEAL; s++) {
        for (int c = 0; c < 32; c++) of_slot[c] = q[c][s];
        pack_2_bits(of_slot, p->qs[s]);
    }
}

void seal_group(int type, bool keys, const float *const *rows, int head_dim, uint8_t *group) {
    size_t slot_bytes = kv_slot_bytes(type, head_dim), block_bytes = slot_bytes / (size_t)((head_dim + 31) / 32);
    if (type == TYPE_FP8) {
        for (int s = 0; s < SEAL; s++) seal_fp8(rows[s], head_dim, group + (size_t)s * slot_bytes);
        return;
    }
    for (int i = 0; i < head_dim; i += 32) {
        float x[SEAL][32] = {{0}};
        for (int s = 0; s < SEAL; s++) memcpy(x[s], rows[s] + i, (size_t)(head_dim - i < 32 ? head_dim - i : 32) * 4);
        if (type == TYPE_KIVI2 && keys) seal_panel((const float(*)[32])x, (PanelKivi2 *)group + i / 32);
        else
            for (int s = 0; s < SEAL; s++)
                seal_slot(type, x[s], group + (size_t)s * slot_bytes + (size_t)(i / 32) * block_bytes);
    }
}

static void unseal_panel(const PanelKivi2 *p, int slot, float *out) {
    for (int c = 0; c < 32; c++) out[c] = half_float(p->m[c]) + half_float(p->d[c]) * unpack_2_bits(p->qs[slot], c);
}

void unseal_group(int type, bool keys, const uint8_t *group, int head_dim, float *rows, size_t stride) {
    size_t slot_bytes = kv_slot_bytes(type, head_dim), block_bytes = slot_bytes / (size_t)((head_dim + 31) / 32);
    for (int s = 0; s < SEAL; s++) {
        const uint8_t *slot = group + (size_t)s * slot_bytes;
        float *row = rows + (size_t)s * stride;
        if (type == TYPE_FP8) unseal_fp8(slot, head_dim, row);
        else
            for (int i = 0; i < head_dim; i += 32) {
                float x[32];
                if (type == TYPE_KIVI2 && keys) unseal_panel((const PanelKivi2 *)group + i / 32, s, x);
                else unseal_slot(type, slot + (size_t)(i / 32) * block_bytes, x);
                memcpy(row + i, x, (size_t)(head_dim - i < 32 ? head_dim - i : 32) * 4);
            }
    }
}

// ---- Hadamard -------------------------------------------------------------------------------------------------------

void hadamard(float *head, int head_dim) {
    int n = head_dim & -head_dim;
    float scale = 1 / sqrtf((float)n);
    for (int half = 1; half < n; half *= 2)
        for (int i = 0; i < head_dim; i++)
            if (!(i & half)) {
                float a = head[i], b = head[i + half];
                head[i] = a + b;
                head[i + half] = a - b;
            }
    for (int i = 0; i < head_dim; i++) head[i] *= scale;
}
