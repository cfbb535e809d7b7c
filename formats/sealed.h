// formats/sealed.h: the sealed types of K and V: groups of 32 slots of one KV head, packed once, when the group's last
// slot is computed; and the arithmetic of packing, which the host (formats/sealed.c) and the GPU (gpu/sealed.cuh)
// share.
//
// A group has 32 x kv_slot_bytes bytes. It is stored in 32 equal parts, one at each of its slots, so that the layout
// does not depend on the size of blocks; in a block of whole groups, each group is contiguous. head_dim is padded with
// zeros to whole blocks of 32.
//   fp8         each slot: half d, then head_dim E4M3 bytes; x = d e4m3
//   q8_0, q4_0  each slot: the blocks of formats/types.h
//   kivi2 V     each slot: a BlockKivi2 for every 32 channels                                 (x = m + d q, 2 bits)
//   kivi2 K     each group: a PanelKivi2 for every 32 channels, with a scale a channel, since outliers of K keep to
//               a few channels
// KIVI: Liu et al. 2024. A value that is not finite makes its whole block NaN, so that it is noticed as in dense KV.
#ifndef QUILL_SEALED_H
#define QUILL_SEALED_H

#include "formats/kv_types.h"
#include "formats/types.h"

#include <math.h>
#include <stdbool.h>

enum { SEAL = 32 };       // slots of a group
enum { SEAL_HEAD = 576 }; // the largest head_dim; load/attention.c refuses more

typedef struct {
    half_bits d, m;
    uint8_t qs[8]; // the code of element i is in byte i % 8, from bit 2 (i / 8) on
} BlockKivi2;
typedef struct {
    half_bits d[32], m[32]; // for each channel
    uint8_t qs[SEAL][8];    // for each slot, as in BlockKivi2
} PanelKivi2;
#ifndef __cplusplus // formats/kv_types.h relies on it
_Static_assert(sizeof(BlockKivi2) == 12 && sizeof(PanelKivi2) == 32 * sizeof(BlockKivi2), "both take 3 bits");
#endif

enum { SEAL_MOST = SEAL * SEAL_HEAD / 32 * (int)sizeof(BlockQ8_0) }; // bytes of the largest group

// The number of slots in complete groups, of n slots from a group's first slot on. For a dense type: n.
static inline size_t kv_whole_slots(int type, size_t n) { return kv_is_sealed(type) ? n / SEAL * SEAL : n; }
// Bytes of these n slots of one KV head in the form in which caches are saved and sent: whole groups sealed, the
// remaining slots in f32.
static inline size_t kv_moved_bytes(int type, int head_dim, size_t n) {
    size_t whole = kv_whole_slots(type, n);
    return whole * kv_slot_bytes(type, head_dim) + (n - whole) * kv_slot_bytes(TYPE_F32, head_dim);
}

// A half of 1/256 of the E4M3 byte's value: it has the same bits, since the exponent's bias differs by 8.
HOST_DEVICE static inline half_bits fp8_half(uint8_t x) { return (half_bits)((x & 0x80) << 8 | (x & 0x7f) << 7); }

// rows: SEAL pointers to head_dim floats.
void sealed_pack_group(int type, bool keys, const float *const *rows, int head_dim, uint8_t *group);
// Unpacks into SEAL rows that are `stride` floats apart. This defines the values of a group.
void sealed_unpack_group(int type, bool keys, const uint8_t *group, int head_dim, float *rows, size_t stride);
// Multiplies a head by an orthonormal Hadamard matrix, which spreads the outliers of one channel over many channels.
// Applied to Q and to K it does not change their products. The matrix is block-diagonal; the size of its blocks is the
// largest power of two that divides head_dim.
void sealed_hadamard(float *head, int head_dim);

// ---- the arithmetic of packing --------------------------------------------------------------------------------------
//
// The host and the GPU compute the same bytes: only operations whose result IEEE 754 fixes, in one order; comparisons
// instead of fminf, whose choice between +0 and -0 is not fixed; and no product feeds a sum, so that no compiler can
// fuse them.

HOST_DEVICE static inline float seal_clamp(float x, float least, float most) {
    return x < least ? least : x > most ? most : x;
}

// A scale as it is stored: finite if d is finite, otherwise NaN.
HOST_DEVICE static inline half_bits seal_scale(float d) {
    return d - d == 0 ? float_half(seal_clamp(d, -65504, 65504)) : (half_bits)0x7e00;
}

HOST_DEVICE static inline float seal_inverse(half_bits d) {
    float f = half_float(d);
    return f == 0 || f != f ? 0 : 1 / f;
}

// The element of the largest magnitude; NaN if any element is not finite.
HOST_DEVICE static inline float seal_farthest(const float *x, int n) {
    float most = 0, broken = 0;
    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > fabsf(most)) most = x[i];
        broken += x[i] - x[i];
    }
    return most + broken;
}

// ---- a slot of 32 elements ------------------------------------------------------------------------------------------

HOST_DEVICE static inline void seal_q8_0(const float *x, BlockQ8_0 *b) {
    b->d = seal_scale(fabsf(seal_farthest(x, 32)) / 127);
    float by = seal_inverse(b->d);
    for (int i = 0; i < 32; i++) b->qs[i] = by == 0 ? 0 : (int8_t)rintf(seal_clamp(x[i] * by, -127, 127));
}

HOST_DEVICE static inline uint8_t q4_0_code(float x, float by) {
    return by == 0 ? 8 : (uint8_t)((int)rintf(seal_clamp(x * by, -8, 7)) + 8);
}

HOST_DEVICE static inline void seal_q4_0(const float *x, BlockQ4_0 *b) {
    b->d = seal_scale(seal_farthest(x, 32) / -8);
    float by = seal_inverse(b->d);
    for (int i = 0; i < 16; i++) b->qs[i] = (uint8_t)(q4_0_code(x[i], by) | q4_0_code(x[i + 16], by) << 4);
}

// ---- two bits -------------------------------------------------------------------------------------------------------

// The scale and minimum of 32 elements: x = m + d q. The code of x is (x - from) * by, rounded.
typedef struct {
    half_bits d, m;
    float by, from;
} TwoBits;

// x: 32 elements that are `stride` floats apart.
HOST_DEVICE static inline TwoBits two_bits_of(const float *x, size_t stride) {
    float least = x[0], most = x[0], broken = 0;
    for (int i = 0; i < 32; i++) {
        float v = x[(size_t)i * stride];
        if (v < least) least = v;
        if (v > most) most = v;
        broken += v - v;
    }
    TwoBits t;
    t.m = seal_scale(least + broken);
    t.from = half_float(t.m);
    t.d = seal_scale((most - t.from) / 3 + broken);
    t.by = seal_inverse(t.d);
    return t;
}

HOST_DEVICE static inline unsigned two_bits_code(const TwoBits *t, float x) {
    return t->by == 0 ? 0 : (unsigned)rintf(seal_clamp((x - t->from) * t->by, 0, 3));
}

HOST_DEVICE static inline void seal_kivi2(const float *x, BlockKivi2 *b) {
    TwoBits t = two_bits_of(x, 1);
    b->d = t.d;
    b->m = t.m;
    for (int i = 0; i < 8; i++)
        b->qs[i] = (uint8_t)(two_bits_code(&t, x[i]) | two_bits_code(&t, x[i + 8]) << 2 |
                             two_bits_code(&t, x[i + 16]) << 4 | two_bits_code(&t, x[i + 24]) << 6);
}

// Packs 32 elements of a slot with the scales of their channels.
HOST_DEVICE static inline void seal_of_channels(const float *x, const TwoBits *channels, uint8_t qs[8]) {
    for (int i = 0; i < 8; i++) {
        unsigned byte = 0;
        for (int k = 0; k < 4; k++) byte |= two_bits_code(&channels[i + 8 * k], x[i + 8 * k]) << 2 * k;
        qs[i] = (uint8_t)byte;
    }
}

// ---- E4M3 -----------------------------------------------------------------------------------------------------------

HOST_DEVICE static inline uint8_t float_fp8(float f) { // to nearest, ties to even; no infinity: 448 is the most
    uint32_t u = float_bits(seal_clamp(f, -448, 448)), rest = u & 0x7fffffff, sign = u >> 24 & 0x80;
    if (rest < 0x3c800000) // subnormal: adding 2^14 leaves the rounded multiple of 2^-9 in the low bits
        return (uint8_t)(sign | (float_bits(bits_float(rest) + 16384) - 0x46800000));
    return (uint8_t)(sign | (rest + 0x7ffff + (rest >> 20 & 1) - (120u << 23)) >> 20);
}

HOST_DEVICE static inline void seal_fp8(const float *x, int n, uint8_t *to) {
    half_bits d = seal_scale(fabsf(seal_farthest(x, n)) / 448);
    float by = seal_inverse(d);
    memcpy(to, &d, sizeof d);
    for (int i = 0; i < n; i++) to[2 + i] = by == 0 ? 0 : float_fp8(x[i] * by);
}

// Packs 32 elements of a slot, for the types that pack each slot separately: all but fp8 and kivi2's K.
HOST_DEVICE static inline void seal_slot(int type, const float *x, uint8_t *to) {
    if (type == TYPE_Q8_0) seal_q8_0(x, (BlockQ8_0 *)to);
    else if (type == TYPE_Q4_0) seal_q4_0(x, (BlockQ4_0 *)to);
    else seal_kivi2(x, (BlockKivi2 *)to);
}

#endif
