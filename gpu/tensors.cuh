// gpu/tensors.cuh: converts weights from the file's blocks to aligned planes, and unpacks units of 32 of them.
//
// The planes are described at DeviceTensor (gpu/launch.h). Quants lie so that one mask yields four elements:
//   four bits  byte i of 16: element i below, i + 16 above
//   two bits   elements 4g + b, g the group of four: byte b of word g / 4, at bit 2 (g % 4)
//   one bit    byte b of the word, at bit g
// Codebook entries are looked up when a tensor is loaded: the planes have one code per element, three bits for IQ1 and
// IQ2 and four for IQ3, which is an index into a table of signed levels.
#ifndef QUILL_TENSORS_CUH
#define QUILL_TENSORS_CUH

#include "formats/codebooks.h"
#include "gpu/gpu.h"
#include "gpu/launch.h"

enum { UNIT = 32, SUPER_UNITS = QK_K / UNIT };

// Bytes of a unit in each plane. d is stored once per unit or once per super-block. offset is added to each quant.
struct PlaneBytes {
    int quants, high, scales, d;
    bool super;
    int offset;
};

HOST_DEVICE constexpr PlaneBytes plane_bytes(int type) {
    switch (type) {
    case TYPE_Q4_0: return {16, 0, 0, 2, false, -8};
    case TYPE_Q4_1: return {16, 0, 0, 4, false, 0};
    case TYPE_Q5_0: return {16, 4, 0, 2, false, -16};
    case TYPE_Q5_1: return {16, 4, 0, 4, false, 0};
    case TYPE_Q8_0: return {32, 0, 0, 2, false, 0};
    case TYPE_Q2_K: return {8, 0, 2, 4, true, 0};
    case TYPE_Q3_K: return {8, 4, 2, 2, true, -4};
    case TYPE_Q4_K: return {16, 0, 2, 4, true, 0};
    case TYPE_Q5_K: return {16, 4, 2, 4, true, 0};
    case TYPE_Q6_K: return {16, 8, 2, 2, true, -32};
    case TYPE_IQ4_NL: return {16, 0, 0, 2, false, 0};
    case TYPE_IQ4_XS: return {16, 0, 1, 2, true, 0};
    case TYPE_MXFP4: return {16, 0, 0, 4, false, 0};
    case TYPE_IQ1_S: return {8, 4, 1, 2, true, 0};
    case TYPE_IQ1_M: return {8, 4, 2, 2, true, 0};
    case TYPE_IQ2_XXS: return {8, 4, 1, 2, true, 0};
    case TYPE_IQ2_XS: return {8, 4, 2, 2, true, 0};
    case TYPE_IQ2_S: return {8, 4, 2, 2, true, 0};
    case TYPE_IQ3_XXS: return {16, 0, 1, 2, true, 0};
    case TYPE_IQ3_S: return {16, 0, 1, 2, true, 0};
    case TYPE_TQ1_0: return {8, 0, 0, 2, true, -1};
    case TYPE_TQ2_0: return {8, 0, 0, 2, true, -1};
    case TYPE_I8G: return {32, 0, 0, 4, false, 0};
    default: return {0, 0, 0, 0, false, 0}; // a dense type
    }
}

HOST_DEVICE constexpr bool is_dense(int type) { return plane_bytes(type).quants == 0; }
// Both halves of a unit have the same scale and minimum.
HOST_DEVICE constexpr bool is_whole(int type) {
    return type != TYPE_Q2_K && type != TYPE_Q3_K && type != TYPE_Q6_K && type != TYPE_IQ1_M && type != TYPE_IQ2_XS &&
           type != TYPE_IQ2_S;
}
HOST_DEVICE constexpr bool is_iq1(int type) { return type == TYPE_IQ1_S || type == TYPE_IQ1_M; }
HOST_DEVICE constexpr bool is_iq2(int type) {
    return type == TYPE_IQ2_XXS || type == TYPE_IQ2_XS || type == TYPE_IQ2_S;
}
HOST_DEVICE constexpr bool is_book(int type) {
    return is_iq1(type) || is_iq2(type) || type == TYPE_IQ3_XXS || type == TYPE_IQ3_S;
}
// Whether codes are indices into a table of levels.
HOST_DEVICE constexpr bool has_levels(int type) {
    return type == TYPE_IQ4_NL || type == TYPE_IQ4_XS || type == TYPE_MXFP4 || is_book(type);
}
// Whether d is a float.
HOST_DEVICE constexpr bool is_float_d(int type) { return type == TYPE_I8G || type == TYPE_MXFP4; }

// X(TYPE) for every type of a kind.
#define EACH_DENSE(X) X(TYPE_F32) X(TYPE_F16) X(TYPE_BF16)
#define EACH_QUANT(X)                                                                                                  \
    X(TYPE_Q4_0)                                                                                                       \
    X(TYPE_Q4_1)                                                                                                       \
    X(TYPE_Q5_0)                                                                                                       \
    X(TYPE_Q5_1)                                                                                                       \
    X(TYPE_Q8_0)                                                                                                       \
    X(TYPE_Q2_K)                                                                                                       \
    X(TYPE_Q3_K)                                                                                                       \
    X(TYPE_Q4_K)                                                                                                       \
    X(TYPE_Q5_K)                                                                                                       \
    X(TYPE_Q6_K)                                                                                                       \
    X(TYPE_IQ4_NL)                                                                                                     \
    X(TYPE_IQ4_XS)                                                                                                     \
    X(TYPE_MXFP4)                                                                                                      \
    X(TYPE_IQ1_S)                                                                                                      \
    X(TYPE_IQ1_M)                                                                                                      \
    X(TYPE_IQ2_XXS)                                                                                                    \
    X(TYPE_IQ2_XS)                                                                                                     \
    X(TYPE_IQ2_S)                                                                                                      \
    X(TYPE_IQ3_XXS)                                                                                                    \
    X(TYPE_IQ3_S)                                                                                                      \
    X(TYPE_TQ1_0)                                                                                                      \
    X(TYPE_TQ2_0)                                                                                                      \
    X(TYPE_I8G)

// ---- reading --------------------------------------------------------------------------------------------------------

// 32 elements: x = s[h] (q + offset) + m[h], h = 0 for the first 16. Byte b of q[g] is element 4g + b, a signed byte.
struct Unit {
    int q[8];
    float s[2], m[2];
};

// The index of a type's table in levels_of. In IQ2, codes from 4 on are the negative levels. IQ1's levels are 8 times
// the grid's value plus one, and from code 4 on minus one.
HOST_DEVICE constexpr int levels_table(int type) {
    return type == TYPE_MXFP4     ? 1
           : is_iq1(type)         ? 2
           : is_iq2(type)         ? 3
           : type == TYPE_IQ3_XXS ? 4
           : type == TYPE_IQ3_S   ? 5
                                  : 0;
}
// A factor of d besides the scale, because the levels are larger than the format's values by its inverse.
HOST_DEVICE constexpr float levels_unit(int type) {
    return is_iq1(type) || is_iq2(type) ? 0.125f : type == TYPE_IQ3_XXS ? 0.25f : 1.0f;
}

// The levels of four codes, one per byte.
template <int TYPE> __device__ __forceinline__ int levels_of(uint32_t codes) {
    constexpr int8_t v[6][16] = {{IQ4_VALUES},
                                 {MXFP4_VALUES},
                                 {-7, 1, 9, 0, -9, -1, 7, 0},
                                 {8, 25, 43, 0, -8, -25, -43, 0},
                                 {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62},
                                 {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}};
    constexpr int of = levels_table(TYPE);
#define LEVELS(i)                                                                                                      \
    ((uint32_t)(uint8_t)v[of][i] | (uint32_t)(uint8_t)v[of][i + 1] << 8 | (uint32_t)(uint8_t)v[of][i + 2] << 16 |      \
     (uint32_t)(uint8_t)v[of][i + 3] << 24)
    uint32_t pairs = (codes | codes >> 4) & 0x00ff00ff, select = (pairs | pairs >> 8) & 0x7777;
    uint32_t low = __byte_perm(LEVELS(0), LEVELS(4), select), high = __byte_perm(LEVELS(8), LEVELS(12), select);
    uint32_t above = (codes >> 3 & 0x01010101) * 255;
#undef LEVELS
    return (int)((low & ~above) | (high & above));
}

template <typename T, bool SHARED> __device__ __forceinline__ T load_weight(const uint8_t *p) {
    if constexpr (SHARED) return *(const T *)(const void *)p;
    else return stream<T>(p);
}

template <int TYPE, bool SHARED>
__device__ __forceinline__ void load_codes(int q[8], const DeviceTensor &t, size_t unit) {
    constexpr PlaneBytes p = plane_bytes(TYPE);
    if constexpr (p.quants == 32) {
        uint4 a = load_weight<uint4, SHARED>(t.quants + unit * 32),
              b = load_weight<uint4, SHARED>(t.quants + unit * 32 + 16);
        q[0] = (int)a.x, q[1] = (int)a.y, q[2] = (int)a.z, q[3] = (int)a.w;
        q[4] = (int)b.x, q[5] = (int)b.y, q[6] = (int)b.z, q[7] = (int)b.w;
    } else if constexpr (p.quants == 16) {
        uint4 a = load_weight<uint4, SHARED>(t.quants + unit * 16);
        const uint32_t words[4] = {a.x, a.y, a.z, a.w};
        UNROLL
        for (int g = 0; g < 4; g++) {
            q[g] = (int)(words[g] & 0x0f0f0f0f);
            q[g + 4] = (int)(words[g] >> 4 & 0x0f0f0f0f);
        }
    } else {
        uint2 a = load_weight<uint2, SHARED>(t.quants + unit * 8);
        UNROLL
        for (int g = 0; g < 8; g++) q[g] = (int)((g < 4 ? a.x : a.y) >> (2 * (g % 4)) & 0x03030303);
    }
    constexpr int low = p.quants / 4; // number of low bits
    if constexpr (p.high == 4) {
        uint32_t h = load_weight<uint32_t, SHARED>(t.high + unit * 4);
        UNROLL
        for (int g = 0; g < 8; g++) q[g] |= (int)((h >> g & 0x01010101) << low);
    } else if constexpr (p.high == 8) {
        uint2 h = load_weight<uint2, SHARED>(t.high + unit * 8);
        UNROLL
        for (int g = 0; g < 8; g++) q[g] |= (int)(((g < 4 ? h.x : h.y) >> (2 * (g % 4)) & 0x03030303) << low);
    }
    if constexpr (has_levels(TYPE)) {
        UNROLL
        for (int g = 0; g < 8; g++) q[g] = levels_of<TYPE>((uint32_t)q[g]);
    }
}

template <int TYPE, bool SHARED>
__device__ __forceinline__ void load_scales(Unit *u, const DeviceTensor &t, size_t unit) {
    constexpr PlaneBytes p = plane_bytes(TYPE);
    float d, least = 0; // least: the factor of the minima, or the minimum itself
    size_t at = p.super ? unit / SUPER_UNITS : unit;
    if constexpr (is_float_d(TYPE)) d = load_weight<float, SHARED>(t.d + at * 4);
    else if constexpr (p.d == 4) {
        uint32_t both = load_weight<uint32_t, SHARED>(t.d + at * 4);
        d = gpu_half_float((uint16_t)both);
        least = gpu_half_float((uint16_t)(both >> 16));
    } else d = gpu_half_float(load_weight<uint16_t, SHARED>(t.d + at * 2));
    int a = 0, b = 0; // the two bytes with a scale
    if constexpr (p.scales == 2) {
        uint16_t both = load_weight<uint16_t, SHARED>(t.scales + unit * 2);
        a = both & 255, b = both >> 8;
    } else if constexpr (p.scales == 1) a = (int)load_weight<int8_t, SHARED>(t.scales + unit);
    if constexpr (is_book(TYPE)) d *= levels_unit(TYPE);
    u->m[0] = u->m[1] = least;
    u->s[0] = u->s[1] = d;
    if constexpr (TYPE == TYPE_Q4_K || TYPE == TYPE_Q5_K) {
        u->s[0] = u->s[1] = d * (float)a;
        u->m[0] = u->m[1] = -least * (float)b;
    } else if constexpr (TYPE == TYPE_Q2_K) {
        u->s[0] = d * (float)(a & 15), u->s[1] = d * (float)(b & 15);
        u->m[0] = -least * (float)(a >> 4), u->m[1] = -least * (float)(b >> 4);
    } else if constexpr (p.scales == 2) u->s[0] = d * (float)(int8_t)a, u->s[1] = d * (float)(int8_t)b;
    else if constexpr (p.scales == 1) u->s[0] = u->s[1] = d * (float)a;
}

// SHARED: the planes are in shared memory.
template <int TYPE, bool SHARED = false> __device__ __forceinline__ Unit load_unit(const DeviceTensor &t, size_t unit) {
    Unit u;
    load_codes<TYPE, SHARED>(u.q, t, unit);
    load_scales<TYPE, SHARED>(&u, t, unit);
    return u;
}

template <int TYPE> __device__ __forceinline__ float unit_value(const Unit &u, int i) {
    int q = (int8_t)((uint32_t)u.q[i / 4] >> (8 * (i % 4))) + plane_bytes(TYPE).offset;
    return u.s[i / 16] * (float)q + u.m[i / 16];
}

// ---- from the file --------------------------------------------------------------------------------------------------

#define BOOK_ENTRY(word) word,
static __device__ const uint16_t device_iq2_xxs_book[] = {IQ2_XXS_BOOK(BOOK_ENTRY)};
static __device__ const uint16_t device_iq2_xs_book[] = {IQ2_XS_BOOK(BOOK_ENTRY)};
static __device__ const uint16_t device_iq2_s_book[] = {IQ2_S_BOOK(BOOK_ENTRY)};
static __device__ const uint16_t device_iq3_xxs_book[] = {IQ3_XXS_BOOK(BOOK_ENTRY)};
static __device__ const uint16_t device_iq3_s_book[] = {IQ3_S_BOOK(BOOK_ENTRY)};
static __device__ const uint16_t device_iq1_book[] = {IQ1_S_BOOK(BOOK_ENTRY)};

// Super-block number `super` of a row of a codebook type.
template <int TYPE> __device__ const void *book_block(const void *row, int super) {
    constexpr size_t bytes = TYPE == TYPE_IQ1_S     ? sizeof(BlockIQ1_S)
                             : TYPE == TYPE_IQ1_M   ? sizeof(BlockIQ1_M)
                             : TYPE == TYPE_IQ2_XXS ? sizeof(BlockIQ2_XXS)
                             : TYPE == TYPE_IQ2_XS  ? sizeof(BlockIQ2_XS)
                             : TYPE == TYPE_IQ2_S   ? sizeof(BlockIQ2_S)
                             : TYPE == TYPE_IQ3_XXS ? sizeof(BlockIQ3_XXS)
                                                    : sizeof(BlockIQ3_S);
    return (const uint8_t *)row + (size_t)super * bytes;
}

// The index, among the type's levels, of element i of a super-block of a codebook type.
template <int TYPE> __device__ int book_code(const void *block, int i) {
    int entry = codebook_entry(TYPE, block, i), sign = codebook_sign(TYPE, block, i);
    if constexpr (TYPE == TYPE_IQ3_XXS) return (device_iq3_xxs_book[entry] >> (4 * (i % 4)) & 7) | sign << 3;
    else if constexpr (TYPE == TYPE_IQ3_S) return (device_iq3_s_book[entry] >> (4 * (i % 4)) & 7) | sign << 3;
    else {
        int word = TYPE == TYPE_IQ2_XXS  ? device_iq2_xxs_book[entry]
                   : TYPE == TYPE_IQ2_XS ? device_iq2_xs_book[entry]
                   : TYPE == TYPE_IQ2_S  ? device_iq2_s_book[entry]
                                         : device_iq1_book[entry];
        return (word >> (2 * (i % 8)) & 3) | sign << 2;
    }
}

// The code of element i of a unit (number `unit` of the row), as the file stores it; for codebook types the index of
// its level.
template <int TYPE> __device__ int file_code(const void *row, int unit, int i) {
    int at = unit % SUPER_UNITS * UNIT + i; // index in the super-block
    if constexpr (TYPE == TYPE_Q4_0 || TYPE == TYPE_IQ4_NL) {
        uint8_t q = ((const BlockQ4_0 *)row)[unit].qs[i % 16];
        return i < 16 ? q & 15 : q >> 4;
    } else if constexpr (TYPE == TYPE_MXFP4) {
        uint8_t q = ((const BlockMXFP4 *)row)[unit].qs[i % 16];
        return i < 16 ? q & 15 : q >> 4;
    } else if constexpr (TYPE == TYPE_Q4_1) {
        uint8_t q = ((const BlockQ4_1 *)row)[unit].qs[i % 16];
        return i < 16 ? q & 15 : q >> 4;
    } else if constexpr (TYPE == TYPE_Q5_0) {
        const BlockQ5_0 *b = (const BlockQ5_0 *)row + unit;
        return (i < 16 ? b->qs[i] & 15 : b->qs[i - 16] >> 4) | (b->qh[i / 8] >> (i % 8) & 1) << 4;
    } else if constexpr (TYPE == TYPE_Q5_1) {
        const BlockQ5_1 *b = (const BlockQ5_1 *)row + unit;
        return (i < 16 ? b->qs[i] & 15 : b->qs[i - 16] >> 4) | (b->qh[i / 8] >> (i % 8) & 1) << 4;
    } else if constexpr (TYPE == TYPE_Q8_0) {
        return ((const BlockQ8_0 *)row)[unit].qs[i];
    } else if constexpr (TYPE == TYPE_I8G) {
        return ((const int8_t *)row)[unit * UNIT + i];
    } else if constexpr (TYPE == TYPE_Q2_K) {
        return ((const BlockQ2_K *)row)[unit / SUPER_UNITS].qs[at / 128 * 32 + at % 32] >> (2 * (at % 128 / 32)) & 3;
    } else if constexpr (TYPE == TYPE_Q3_K) {
        const BlockQ3_K *b = (const BlockQ3_K *)row + unit / SUPER_UNITS;
        int low = b->qs[at / 128 * 32 + at % 32] >> (2 * (at % 128 / 32)) & 3;
        return low | (b->hmask[at % 32] >> (at / 32) & 1) << 2;
    } else if constexpr (TYPE == TYPE_Q4_K) {
        uint8_t q = ((const BlockQ4_K *)row)[unit / SUPER_UNITS].qs[at / 64 * 32 + at % 32];
        return at % 64 < 32 ? q & 15 : q >> 4;
    } else if constexpr (TYPE == TYPE_Q5_K) {
        const BlockQ5_K *b = (const BlockQ5_K *)row + unit / SUPER_UNITS;
        uint8_t q = b->qs[at / 64 * 32 + at % 32];
        return (at % 64 < 32 ? q & 15 : q >> 4) | (b->qh[at % 32] >> (at / 32) & 1) << 4;
    } else if constexpr (TYPE == TYPE_Q6_K) {
        const BlockQ6_K *b = (const BlockQ6_K *)row + unit / SUPER_UNITS;
        int half = at / 128, quarter = at % 128 / 32;
        uint8_t low = b->ql[half * 64 + (quarter & 1) * 32 + at % 32];
        return (quarter < 2 ? low & 15 : low >> 4) | (b->qh[half * 32 + at % 32] >> (2 * quarter) & 3) << 4;
    } else if constexpr (TYPE == TYPE_TQ1_0) {
        return tq1_code((const BlockTQ1_0 *)row + unit / SUPER_UNITS, at);
    } else if constexpr (TYPE == TYPE_TQ2_0) {
        return ((const BlockTQ2_0 *)row)[unit / SUPER_UNITS].qs[at / 128 * 32 + at % 32] >> (2 * (at % 128 / 32)) & 3;
    } else if constexpr (is_book(TYPE)) {
        return book_code<TYPE>(book_block<TYPE>(row, unit / SUPER_UNITS), at);
    } else {
        uint8_t q = ((const BlockIQ4_XS *)row)[unit / SUPER_UNITS].qs[at / 32 * 16 + at % 16];
        return i < 16 ? q & 15 : q >> 4;
    }
}

// Stores a unit's codes in the planes.
template <int TYPE> __device__ void store_codes(const DeviceTensor &t, size_t unit, const uint8_t code[UNIT]) {
    constexpr PlaneBytes p = plane_bytes(TYPE);
    uint32_t quants[8] = {0}, high[2] = {0};
    constexpr int low = p.quants / 4;
    for (int i = 0; i < UNIT; i++) {
        int g = i / 4, b = i % 4;
        uint32_t c = code[i];
        if (p.quants == 32) quants[g] |= c << (8 * b);
        else if (p.quants == 16) quants[g % 4] |= (c & 15) << (8 * b + g / 4 * 4);
        else quants[g / 4] |= (c & 3) << (8 * b + 2 * (g % 4));
        if (p.high == 4) high[0] |= (c >> low & 1) << (8 * b + g);
        else if (p.high == 8) high[g / 4] |= (c >> low & 3) << (8 * b + 2 * (g % 4));
    }
    for (int i = 0; i < p.quants / 4; i++) ((uint32_t *)(t.quants + unit * p.quants))[i] = quants[i];
    for (int i = 0; i < p.high / 4; i++) ((uint32_t *)(t.high + unit * p.high))[i] = high[i];
}

__device__ inline void store_d(const DeviceTensor &t, size_t at, half_bits d) { ((half_bits *)t.d)[at] = d; }
__device__ inline void store_d(const DeviceTensor &t, size_t at, half_bits d, half_bits m) {
    ((half_bits *)t.d)[2 * at] = d;
    ((half_bits *)t.d)[2 * at + 1] = m;
}

// Stores the scales of a unit of a row. `at` is the unit's number in the tensor.
template <int TYPE> __device__ void store_scales(const DeviceTensor &t, size_t at, const void *row, int unit) {
    int sub = unit % SUPER_UNITS;
    uint8_t *s = t.scales + at * (size_t)plane_bytes(TYPE).scales;
    size_t super = at / SUPER_UNITS;
    if constexpr (TYPE == TYPE_Q4_0 || TYPE == TYPE_IQ4_NL) store_d(t, at, ((const BlockQ4_0 *)row)[unit].d);
    else if constexpr (TYPE == TYPE_MXFP4) ((float *)t.d)[at] = mxfp4_scale(((const BlockMXFP4 *)row)[unit].e);
    else if constexpr (TYPE == TYPE_Q4_1)
        store_d(t, at, ((const BlockQ4_1 *)row)[unit].d, ((const BlockQ4_1 *)row)[unit].m);
    else if constexpr (TYPE == TYPE_Q5_0) store_d(t, at, ((const BlockQ5_0 *)row)[unit].d);
    else if constexpr (TYPE == TYPE_Q5_1)
        store_d(t, at, ((const BlockQ5_1 *)row)[unit].d, ((const BlockQ5_1 *)row)[unit].m);
    else if constexpr (TYPE == TYPE_Q8_0) store_d(t, at, ((const BlockQ8_0 *)row)[unit].d);
    else if constexpr (TYPE == TYPE_Q2_K) {
        const BlockQ2_K *b = (const BlockQ2_K *)row + unit / SUPER_UNITS;
        s[0] = b->scales[2 * sub], s[1] = b->scales[2 * sub + 1];
        if (sub == 0) store_d(t, super, b->d, b->dmin);
    } else if constexpr (TYPE == TYPE_Q3_K) {
        const BlockQ3_K *b = (const BlockQ3_K *)row + unit / SUPER_UNITS;
        for (int h = 0; h < 2; h++) s[h] = (uint8_t)(k3_scale(b->scales, 2 * sub + h) - 32);
        if (sub == 0) store_d(t, super, b->d);
    } else if constexpr (TYPE == TYPE_Q4_K) {
        const BlockQ4_K *b = (const BlockQ4_K *)row + unit / SUPER_UNITS;
        k4_scale_min(b->scales, sub, &s[0], &s[1]);
        if (sub == 0) store_d(t, super, b->d, b->dmin);
    } else if constexpr (TYPE == TYPE_Q5_K) {
        const BlockQ5_K *b = (const BlockQ5_K *)row + unit / SUPER_UNITS;
        k4_scale_min(b->scales, sub, &s[0], &s[1]);
        if (sub == 0) store_d(t, super, b->d, b->dmin);
    } else if constexpr (TYPE == TYPE_Q6_K) {
        const BlockQ6_K *b = (const BlockQ6_K *)row + unit / SUPER_UNITS;
        for (int h = 0; h < 2; h++) s[h] = (uint8_t)b->scales[2 * sub + h];
        if (sub == 0) store_d(t, super, b->d);
    } else if constexpr (TYPE == TYPE_IQ4_XS) {
        const BlockIQ4_XS *b = (const BlockIQ4_XS *)row + unit / SUPER_UNITS;
        s[0] = (uint8_t)(iq4xs_scale(b, sub) - 32);
        if (sub == 0) store_d(t, super, b->d);
    } else if constexpr (is_book(TYPE)) {
        const void *b = book_block<TYPE>(row, unit / SUPER_UNITS);
        for (int h = 0; h < plane_bytes(TYPE).scales; h++) s[h] = (uint8_t)codebook_scale(TYPE, b, sub * UNIT + 16 * h);
        if (sub == 0) store_d(t, super, codebook_d(TYPE, b));
    } else if constexpr (TYPE == TYPE_TQ1_0) {
        if (sub == 0) store_d(t, super, ((const BlockTQ1_0 *)row)[unit / SUPER_UNITS].d);
    } else if constexpr (TYPE == TYPE_TQ2_0) {
        if (sub == 0) store_d(t, super, ((const BlockTQ2_0 *)row)[unit / SUPER_UNITS].d);
    }
}

// One thread per unit. raw: the file's rows, row_bytes apart. group, scales: only for TYPE_I8G.
struct FillJob {
    DeviceTensor t;
    const uint8_t *raw;
    size_t row_bytes;
    const float *scales;
    int group, first_row, n_rows;
};

template <int TYPE> __global__ void fill_units(GRID_CONSTANT const FillJob j) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    int units = j.t.n_in / UNIT;
    if (i >= (size_t)j.n_rows * (size_t)units) return;
    int unit = (int)(i % (size_t)units);
    const uint8_t *row = j.raw + i / (size_t)units * j.row_bytes;
    size_t at = (size_t)j.first_row * (size_t)units + i;
    uint8_t code[UNIT];
    for (int k = 0; k < UNIT; k++) code[k] = (uint8_t)file_code<TYPE>(row, unit, k);
    store_codes<TYPE>(j.t, at, code);
    if constexpr (TYPE == TYPE_I8G) ((float *)j.t.d)[at] = j.scales[at * UNIT / (size_t)j.group];
    else store_scales<TYPE>(j.t, at, row, unit);
}

// One thread per element; the padding of a row becomes zero. from: F32, F16, BF16 or TYPE_I8G (to F32).
__global__ void fill_dense(FillJob j, int from, int padded) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (size_t)j.n_rows * (size_t)padded) return;
    int r = (int)(i / (size_t)padded), k = (int)(i % (size_t)padded);
    uint8_t *out = j.t.quants + (size_t)(j.first_row + r) * j.t.stride_bytes;
    const uint8_t *row = j.raw + (size_t)r * j.row_bytes;
    if (from == TYPE_I8G) {
        size_t flat = (size_t)(j.first_row + r) * (size_t)j.t.n_in + (size_t)k;
        ((float *)out)[k] = k < j.t.n_in ? j.scales[flat / (size_t)j.group] * (float)((const int8_t *)row)[k] : 0;
    } else if (from == TYPE_F32) ((float *)out)[k] = k < j.t.n_in ? ((const float *)row)[k] : 0;
    else ((uint16_t *)out)[k] = k < j.t.n_in ? ((const uint16_t *)row)[k] : (uint16_t)0;
}

// ---- to dense -------------------------------------------------------------------------------------------------------

// 32 elements (fewer at the end of a dense row) of row `row` from element 32 * unit, to `out` of type `type`.
template <int TYPE>
__device__ __noinline__ void unit_to(const DeviceTensor &t, size_t row, int unit, int type, void *out, size_t at) {
    if constexpr (is_dense(TYPE)) {
        const uint8_t *from = t.quants + row * t.stride_bytes;
        int first = unit * UNIT, n = t.n_in - first < UNIT ? t.n_in - first : UNIT;
        for (int i = 0; i < n; i++) store_as(type, out, at + (size_t)i, load_as(TYPE, from, (size_t)(first + i)));
    } else {
        Unit u = load_unit<TYPE>(t, row * (size_t)(t.n_in / UNIT) + (size_t)unit);
        UNROLL
        for (int i = 0; i < UNIT; i++) store_as(type, out, at + (size_t)i, unit_value<TYPE>(u, i));
    }
}

// One thread per unit of rows [first_row, first_row + n_rows).
template <int TYPE>
__global__ void to_dense(GRID_CONSTANT const DeviceTensor t, int first_row, int n_rows, int type, void *out,
                         size_t stride) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, units = (size_t)(t.n_in + UNIT - 1) / UNIT;
    if (i >= (size_t)n_rows * units) return;
    size_t row = i / units, unit = i % units;
    unit_to<TYPE>(t, (size_t)first_row + row, (int)unit, type, out, row * stride + unit * UNIT);
}

#endif
