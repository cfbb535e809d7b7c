// formats/types.h: the tensor types of GGUF files: the bytes of their blocks, and the value of each element.
//
// A row of a quantised tensor is a sequence of blocks. The structs below have the file's layout (sizes are asserted).
// The functions give a block's values in f32 and are the specification for every faster kernel. A CUDA compiler accepts
// this file too. Source of the formats: the block definitions of the ggml project (ggml-common.h, ggml-types.c).
#ifndef QUILL_TYPES_H
#define QUILL_TYPES_H

#include "base/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Ids of GGUF files. Ids from 1000 on are quill's own and never in a GGUF file: llama2.c's int8 groups, and two types
// that only the KV cache has (formats/sealed.h).
enum {
    TYPE_F32 = 0,
    TYPE_F16 = 1,
    TYPE_Q4_0 = 2,
    TYPE_Q4_1 = 3,
    TYPE_Q5_0 = 6,
    TYPE_Q5_1 = 7,
    TYPE_Q8_0 = 8,
    TYPE_Q2_K = 10,
    TYPE_Q3_K = 11,
    TYPE_Q4_K = 12,
    TYPE_Q5_K = 13,
    TYPE_Q6_K = 14,
    TYPE_IQ2_XXS = 16,
    TYPE_IQ2_XS = 17,
    TYPE_IQ3_XXS = 18,
    TYPE_IQ1_S = 19,
    TYPE_IQ4_NL = 20,
    TYPE_IQ3_S = 21,
    TYPE_IQ2_S = 22,
    TYPE_IQ4_XS = 23,
    TYPE_IQ1_M = 29,
    TYPE_BF16 = 30,
    TYPE_TQ1_0 = 34,
    TYPE_TQ2_0 = 35,
    TYPE_MXFP4 = 39,
    TYPE_I8G = 1000,
    TYPE_FP8 = 1001,
    TYPE_KIVI2 = 1002
};

// ---- the blocks -----------------------------------------------------------------------------------------------------

enum { QK = 32, QK_K = 256 }; // elements in a small block and in a super-block

typedef uint16_t half_bits; // the bits of an IEEE half

typedef struct {
    half_bits d;
    uint8_t qs[16];
} BlockQ4_0; // x = d (q - 8); low nibbles 0..15, high 16..31
typedef struct {
    half_bits d, m;
    uint8_t qs[16];
} BlockQ4_1; // x = d q + m
typedef struct {
    half_bits d;
    uint8_t qh[4], qs[16];
} BlockQ5_0; // x = d (q - 16); bit i of qh is the fifth bit of element i
typedef struct {
    half_bits d, m;
    uint8_t qh[4], qs[16];
} BlockQ5_1; // x = d q + m
typedef struct {
    half_bits d;
    int8_t qs[32];
} BlockQ8_0; // x = d q
typedef struct {
    uint8_t scales[16], qs[64];
    half_bits d, dmin;
} BlockQ2_K; // x = d s q - dmin m; a byte of scales for each 16 elements: s in the low, m in the high nibble
typedef struct {
    uint8_t hmask[32], qs[64], scales[12];
    half_bits d;
} BlockQ3_K; // x = d (s - 32) (q - 4 (1 - h)), one s for each 16 elements
typedef struct {
    half_bits d, dmin;
    uint8_t scales[12], qs[128];
} BlockQ4_K; // x = d s q - dmin m, one s and m for each 32 elements
typedef struct {
    half_bits d, dmin;
    uint8_t scales[12], qh[32], qs[128];
} BlockQ5_K; // as Q4_K, with a fifth bit of q in qh
typedef struct {
    uint8_t ql[128], qh[64];
    int8_t scales[16];
    half_bits d;
} BlockQ6_K; // x = d s (q - 32), one s for each 16 elements
typedef struct {
    half_bits d;
    uint8_t qs[16];
} BlockIQ4_NL; // x = d iq4_values[q]
typedef struct {
    half_bits d;
    uint16_t scales_h;
    uint8_t scales_l[4], qs[128];
} BlockIQ4_XS; // x = d (s - 32) iq4_values[q], one s for each 32 elements
typedef struct {
    uint8_t e, qs[16];
} BlockMXFP4; // x = 2^(e - 128) mxfp4_values[q]: OCP's microscaling format of 4 bits, an exponent for each 32

// The codebook types. `grid` is the level of an element in an entry of the type's codebook (formats/codebooks.h); an
// entry has eight elements, or four for IQ3. A sign bit is set if the element is negative. Where eight elements have
// seven sign bits, the eighth sign makes the number of set bits even.
typedef struct {
    half_bits d;
    uint16_t qs[32]; // four words for each 32 elements: two have four entries of 8 bits, two four times 7 signs, and s
} BlockIQ2_XXS;      // x = d / 8 (2 s + 1) grid, one s of 4 bits (the highest) for each 32 elements
typedef struct {
    half_bits d;
    uint16_t qs[32];   // for each 8 elements 9 bits of an entry, and 7 signs above them
    uint8_t scales[8]; // a nibble s for each 16 elements, the low nibble first
} BlockIQ2_XS;         // x = d / 8 (2 s + 1) grid
typedef struct {
    half_bits d;
    uint8_t qs[32], signs[32], qh[8]; // for each 8 elements the low 8 bits of an entry; its high 2 bits are in qh
    uint8_t scales[8];                // as in IQ2_XS
} BlockIQ2_S;                         // x = d / 8 (2 s + 1) grid
typedef struct {
    half_bits d;
    uint8_t qs[64],
        tails[32]; // an entry for each 4 elements; for each 32 elements four times 7 signs, and s above them
} BlockIQ3_XXS;    // x = d / 4 (2 s + 1) grid, one s of 4 bits for each 32 elements
typedef struct {
    half_bits d;
    uint8_t qs[64], qh[8], signs[32]; // for each 4 elements the low 8 bits of an entry; its ninth bit is in qh
    uint8_t scales[4];                // a nibble s for each 32 elements, the low nibble first
} BlockIQ3_S;                         // x = d (2 s + 1) grid
typedef struct {
    half_bits d;
    uint8_t qs[32];
    uint16_t qh[8]; // for each 32 elements four times the high 3 bits of an entry, 3 bits of s, and the sign of the 1/8
} BlockIQ1_S;       // x = d (2 s + 1) (grid +- 1/8)
typedef struct {
    uint8_t qs[32], qh[16]; // a nibble of qh for each 8 elements: the high 3 bits of an entry, and the sign of the 1/8
    uint16_t scales[4]; // 3 bits s for each 16 elements, from the lowest on; the top nibbles are d, the lowest first
} BlockIQ1_M;           // x = d (2 s + 1) (grid +- 1/8)

// The ternary types, of -1, 0 and 1.
typedef struct {
    uint8_t qs[48], qh[4]; // a byte of qs has five digits to the base of three, a byte of qh four: see trit
    half_bits d;
} BlockTQ1_0; // x = d (q - 1)
typedef struct {
    uint8_t qs[64]; // two bits: byte i of 32 has the elements i, i + 32, i + 64 and i + 96
    half_bits d;
} BlockTQ2_0; // x = d (q - 1)

#ifndef __cplusplus
_Static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20, "Q4 blocks");
_Static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24, "Q5 blocks");
_Static_assert(sizeof(BlockQ8_0) == 34, "Q8 block");
_Static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144, "K blocks");
_Static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210, "K blocks");
_Static_assert(sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136, "IQ4 blocks");
_Static_assert(sizeof(BlockMXFP4) == 17, "MXFP4 block");
_Static_assert(sizeof(BlockIQ2_XXS) == 66 && sizeof(BlockIQ2_XS) == 74 && sizeof(BlockIQ2_S) == 82, "IQ2 blocks");
_Static_assert(sizeof(BlockIQ3_XXS) == 98 && sizeof(BlockIQ3_S) == 110, "IQ3 blocks");
_Static_assert(sizeof(BlockIQ1_S) == 50 && sizeof(BlockIQ1_M) == 56, "IQ1 blocks");
_Static_assert(sizeof(BlockTQ1_0) == 54 && sizeof(BlockTQ2_0) == 66, "TQ blocks");
#endif

// The sixteen levels of the IQ4 types.
#define IQ4_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

// Twice the sixteen levels of MXFP4: numbers of one sign bit, two of exponent and one of mantissa.
#define MXFP4_VALUES 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

// ---- half and bfloat16, exactly -------------------------------------------------------------------------------------

HOST_DEVICE static inline float bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
HOST_DEVICE static inline uint32_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

HOST_DEVICE static inline float half_float(half_bits h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00) return bits_float(sign | 0x7f800000 | (rest & 0x3ff) << 13); // infinity, NaN
    if (rest >= 0x0400) return bits_float(sign | ((rest << 13) + (112u << 23)));
    float tiny = (float)rest * 0x1p-24f; // subnormal
    return bits_float(sign | float_bits(tiny));
}

HOST_DEVICE static inline half_bits float_half(float f) { // to nearest, ties to even
    uint32_t u = float_bits(f), sign = u >> 16 & 0x8000, rest = u & 0x7fffffff;
    if (rest > 0x7f800000) return (half_bits)(sign | 0x7e00);
    if (rest >= 0x477ff000) return (half_bits)(sign | 0x7c00); // rounds past 65504
    if (rest < 0x38800000) { // subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits
        float shifted = bits_float(rest) + 0.5f;
        return (half_bits)(sign | (float_bits(shifted) - 0x3f000000));
    }
    return (half_bits)(sign | ((rest + 0xfff + (rest >> 13 & 1) - (112u << 23)) >> 13));
}

HOST_DEVICE static inline float bf16_float(uint16_t b) { return bits_float((uint32_t)b << 16); }

HOST_DEVICE static inline uint16_t float_bf16(float f) { // to nearest, ties to even
    uint32_t u = float_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

// 2^(e - 128) exactly; the two smallest are subnormal.
HOST_DEVICE static inline float mxfp4_scale(uint8_t e) {
    return bits_float(e < 2 ? (uint32_t)0x200000 << e : (uint32_t)(e - 1) << 23);
}

// Scale and minimum number j (0..7) of the six-bit pairs that Q4_K and Q5_K pack into twelve bytes.
HOST_DEVICE static inline void k4_scale_min(const uint8_t *packed, int j, uint8_t *scale, uint8_t *min) {
    if (j < 4) {
        *scale = packed[j] & 63;
        *min = packed[j + 4] & 63;
    } else {
        *scale = (uint8_t)((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4);
        *min = (uint8_t)(packed[j + 4] >> 4 | (packed[j] >> 6) << 4);
    }
}

// Scale number j (0..15) of Q3_K, without its offset of 32.
HOST_DEVICE static inline int k3_scale(const uint8_t *packed, int j) {
    int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4;
    return low | (packed[8 + j % 4] >> (2 * (j / 4)) & 3) << 4;
}

// Scale number j (0..7) of IQ4_XS, without its offset of 32.
HOST_DEVICE static inline int iq4xs_scale(const BlockIQ4_XS *b, int j) {
    return (b->scales_l[j / 2] >> (4 * (j % 2)) & 15) | (b->scales_h >> (2 * j) & 3) << 4;
}

// Digit number `digit` (0..4) of a byte that holds five digits to the base of three. The byte is the fraction 0.ddddd
// in units of 1/256, rounded up; multiplying by three moves the next digit in front of the point.
HOST_DEVICE static inline int trit(uint8_t byte, int digit) {
    const uint8_t power[5] = {1, 3, 9, 27, 81};
    return (uint8_t)(byte * power[digit]) * 3 >> 8;
}
// The code (0..2) of element i (0..255) of TQ1_0.
HOST_DEVICE static inline int tq1_code(const BlockTQ1_0 *b, int i) {
    if (i < 160) return trit(b->qs[i % 32], i / 32);
    if (i < 240) return trit(b->qs[32 + i % 16], (i - 160) / 16);
    return trit(b->qh[i % 4], (i - 240) / 4);
}

// ---- the codebook types: entry, sign and scale of element i (0..255) of a super-block -------------------------------

// Expands four groups of seven sign bits, the lowest first, to four bytes: the eighth bit is the parity of the seven.
HOST_DEVICE static inline uint32_t signs_of_sevens(uint32_t sevens) {
    uint32_t s = (sevens & 0x3fff) | (sevens << 2 & 0x3fff0000);
    s = (s & 0x007f007f) | (s << 1 & 0x7f007f00);
    uint32_t odd = s ^ s >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return s | (odd & 0x01010101) << 7;
}

// For 32 elements: four groups of seven sign bits, and a scale of four bits above them.
HOST_DEVICE static inline uint32_t iq2xxs_tail(const BlockIQ2_XXS *b, int j) {
    return b->qs[4 * j + 2] | (uint32_t)b->qs[4 * j + 3] << 16;
}
HOST_DEVICE static inline uint32_t iq3xxs_tail(const BlockIQ3_XXS *b, int j) {
    const uint8_t *t = b->tails + 4 * j;
    return t[0] | (uint32_t)t[1] << 8 | (uint32_t)t[2] << 16 | (uint32_t)t[3] << 24;
}

HOST_DEVICE static inline int codebook_entry(int type, const void *block, int i) {
    const BlockIQ2_XXS *xxs = (const BlockIQ2_XXS *)block;
    const BlockIQ2_S *s2 = (const BlockIQ2_S *)block;
    const BlockIQ3_S *s3 = (const BlockIQ3_S *)block;
    const BlockIQ1_S *s1 = (const BlockIQ1_S *)block;
    const BlockIQ1_M *m1 = (const BlockIQ1_M *)block;
    switch (type) {
    case TYPE_IQ2_XXS: return xxs->qs[i / 32 * 4 + i % 32 / 16] >> (i / 8 % 2 * 8) & 255;
    case TYPE_IQ2_XS: return ((const BlockIQ2_XS *)block)->qs[i / 8] & 511;
    case TYPE_IQ2_S: return s2->qs[i / 8] | (s2->qh[i / 32] >> (i / 8 % 4 * 2) & 3) << 8;
    case TYPE_IQ3_XXS: return ((const BlockIQ3_XXS *)block)->qs[i / 4];
    case TYPE_IQ3_S: return s3->qs[i / 4] | (s3->qh[i / 32] >> (i / 4 % 8) & 1) << 8;
    case TYPE_IQ1_S: return s1->qs[i / 8] | (s1->qh[i / 32] >> (i / 8 % 4 * 3) & 7) << 8;
    default: return m1->qs[i / 8] | (m1->qh[i / 16] >> (i / 8 % 2 * 4) & 7) << 8; // IQ1_M
    }
}

// 1: the element is negative; for IQ1, its 1/8 is subtracted.
HOST_DEVICE static inline int codebook_sign(int type, const void *block, int i) {
    const BlockIQ1_M *m1 = (const BlockIQ1_M *)block;
    switch (type) {
    case TYPE_IQ2_XXS: return signs_of_sevens(iq2xxs_tail((const BlockIQ2_XXS *)block, i / 32)) >> (i % 32) & 1;
    case TYPE_IQ2_XS: return signs_of_sevens(((const BlockIQ2_XS *)block)->qs[i / 8] >> 9) >> (i % 8) & 1;
    case TYPE_IQ2_S: return ((const BlockIQ2_S *)block)->signs[i / 8] >> (i % 8) & 1;
    case TYPE_IQ3_XXS: return signs_of_sevens(iq3xxs_tail((const BlockIQ3_XXS *)block, i / 32)) >> (i % 32) & 1;
    case TYPE_IQ3_S: return ((const BlockIQ3_S *)block)->signs[i / 8] >> (i % 8) & 1;
    case TYPE_IQ1_S: return ((const BlockIQ1_S *)block)->qh[i / 32] >> 15;
    default: return m1->qh[i / 16] >> (i / 8 % 2 * 4 + 3) & 1; // IQ1_M
    }
}

// 2 s + 1, from 1 to 31.
HOST_DEVICE static inline int codebook_scale(int type, const void *block, int i) {
    const BlockIQ1_M *m1 = (const BlockIQ1_M *)block;
    int s;
    switch (type) {
    case TYPE_IQ2_XXS: s = (int)(iq2xxs_tail((const BlockIQ2_XXS *)block, i / 32) >> 28); break;
    case TYPE_IQ2_XS: s = ((const BlockIQ2_XS *)block)->scales[i / 32] >> (i / 16 % 2 * 4) & 15; break;
    case TYPE_IQ2_S: s = ((const BlockIQ2_S *)block)->scales[i / 32] >> (i / 16 % 2 * 4) & 15; break;
    case TYPE_IQ3_XXS: s = (int)(iq3xxs_tail((const BlockIQ3_XXS *)block, i / 32) >> 28); break;
    case TYPE_IQ3_S: s = ((const BlockIQ3_S *)block)->scales[i / 64] >> (i / 32 % 2 * 4) & 15; break;
    case TYPE_IQ1_S: s = ((const BlockIQ1_S *)block)->qh[i / 32] >> 12 & 7; break;
    default: s = m1->scales[i / 64] >> (i / 16 % 4 * 3) & 7; // IQ1_M
    }
    return 2 * s + 1;
}

// The block's scale. In IQ1_M its four nibbles are the top bits of the four words of `scales`.
HOST_DEVICE static inline half_bits codebook_d(int type, const void *block) {
    if (type != TYPE_IQ1_M) return *(const half_bits *)block;
    const uint16_t *s = ((const BlockIQ1_M *)block)->scales;
    return (half_bits)(s[0] >> 12 | s[1] >> 12 << 4 | s[2] >> 12 << 8 | s[3] >> 12 << 12);
}

// ---- the table ------------------------------------------------------------------------------------------------------

typedef struct {
    const char *name; // "Q4_K"
    int id;           // TYPE_
    int block;        // elements in a block
    int bytes;        // bytes of a block
    // Writes n elements (a multiple of `block`) from consecutive blocks. NULL: the scales are not in the blocks
    // (Tensor.scales); no GGUF file has such a type
    void (*dequantize)(const void *blocks, float *out, size_t n);
} TypeInfo;

// X(type) for every type of the table, in its order. Kernels expand their loop once for each type, with the type as a
// constant.
// clang-format off
#define EACH_TYPE(X) \
    X(TYPE_F32)  X(TYPE_F16)  X(TYPE_BF16) X(TYPE_Q4_0) X(TYPE_Q4_1) X(TYPE_Q5_0)   X(TYPE_Q5_1)   X(TYPE_Q8_0) \
    X(TYPE_Q2_K) X(TYPE_Q3_K) X(TYPE_Q4_K) X(TYPE_Q5_K) X(TYPE_Q6_K) X(TYPE_IQ4_NL) X(TYPE_IQ4_XS) X(TYPE_MXFP4) \
    X(TYPE_IQ1_S) X(TYPE_IQ1_M) X(TYPE_IQ2_XXS) X(TYPE_IQ2_XS) X(TYPE_IQ2_S) X(TYPE_IQ3_XXS) X(TYPE_IQ3_S) \
    X(TYPE_TQ1_0) X(TYPE_TQ2_0) X(TYPE_I8G)
// clang-format on
#define TYPE_ONE(type) +1
enum { N_TYPES = 0 EACH_TYPE(TYPE_ONE) };

// Whether a block has minima besides its scales.
HOST_DEVICE_CONSTANT bool type_has_minimum(int type) {
    return type == TYPE_Q4_1 || type == TYPE_Q5_1 || type == TYPE_Q2_K || type == TYPE_Q4_K || type == TYPE_Q5_K;
}

#ifdef __cplusplus
extern "C" {
#endif
const TypeInfo *type_info(int type);            // NULL: quill cannot compute with it
const TypeInfo *type_by_name(const char *name); // case ignored; NULL: unknown
const char *type_name(int type);                // also names GGUF types that quill does not support; "type N" otherwise
const char *type_name_list(void);               // "F32, F16, ...": the types of GGUF files, for messages
#ifdef __cplusplus
}
#endif

#endif
