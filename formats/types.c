// formats/types.c: dequantises blocks in plain scalar code. This is the specification for faster kernels.
#include "formats/types.h"

#include <stdio.h>
#include <strings.h>

#include "base/str.h"
#include "formats/codebooks.h"

static const int8_t iq4_values[16] = {IQ4_VALUES}, mxfp4_values[16] = {MXFP4_VALUES};

static void dequantize_f32(const void *blocks, float *out, size_t n) { memcpy(out, blocks, n * sizeof(float)); }

static void dequantize_f16(const void *blocks, float *out, size_t n) {
    const half_bits *h = blocks;
    for (size_t i = 0; i < n; i++) out[i] = half_float(h[i]);
}

static void dequantize_bf16(const void *blocks, float *out, size_t n) {
    const uint16_t *h = blocks;
    for (size_t i = 0; i < n; i++) out[i] = bf16_float(h[i]);
}

static void dequantize_q4_0(const void *blocks, float *out, size_t n) {
    for (const BlockQ4_0 *b = blocks; n; b++, out += QK, n -= QK) {
        float d = half_float(b->d);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)((b->qs[i] & 15) - 8);
            out[i + 16] = d * (float)((b->qs[i] >> 4) - 8);
        }
    }
}

static void dequantize_q4_1(const void *blocks, float *out, size_t n) {
    for (const BlockQ4_1 *b = blocks; n; b++, out += QK, n -= QK) {
        float d = half_float(b->d), m = half_float(b->m);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)(b->qs[i] & 15) + m;
            out[i + 16] = d * (float)(b->qs[i] >> 4) + m;
        }
    }
}

static int fifth_bit(const uint8_t *qh, int i) { return (qh[i / 8] >> (i % 8) & 1) << 4; }

static void dequantize_q5_0(const void *blocks, float *out, size_t n) {
    for (const BlockQ5_0 *b = blocks; n; b++, out += QK, n -= QK) {
        float d = half_float(b->d);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)(((b->qs[i] & 15) | fifth_bit(b->qh, i)) - 16);
            out[i + 16] = d * (float)((b->qs[i] >> 4 | fifth_bit(b->qh, i + 16)) - 16);
        }
    }
}

static void dequantize_q5_1(const void *blocks, float *out, size_t n) {
    for (const BlockQ5_1 *b = blocks; n; b++, out += QK, n -= QK) {
        float d = half_float(b->d), m = half_float(b->m);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)((b->qs[i] & 15) | fifth_bit(b->qh, i)) + m;
            out[i + 16] = d * (float)(b->qs[i] >> 4 | fifth_bit(b->qh, i + 16)) + m;
        }
    }
}

static void dequantize_q8_0(const void *blocks, float *out, size_t n) {
    for (const BlockQ8_0 *b = blocks; n; b++, out += QK, n -= QK) {
        float d = half_float(b->d);
        for (int i = 0; i < QK; i++) out[i] = d * (float)b->qs[i];
    }
}

// Element i (0..255) of the 2-bit planes of Q2_K and Q3_K: 32 bytes hold elements 0 to 127, the next 32 bytes the rest.
static int two_bits(const uint8_t *qs, int i) { return qs[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3; }

static void dequantize_q2_k(const void *blocks, float *out, size_t n) {
    for (const BlockQ2_K *b = blocks; n; b++, out += QK_K, n -= QK_K) {
        float d = half_float(b->d), dmin = half_float(b->dmin);
        for (int i = 0; i < QK_K; i++) {
            uint8_t s = b->scales[i / 16];
            out[i] = d * (float)(s & 15) * (float)two_bits(b->qs, i) - dmin * (float)(s >> 4);
        }
    }
}

static void dequantize_q3_k(const void *blocks, float *out, size_t n) {
    for (const BlockQ3_K *b = blocks; n; b++, out += QK_K, n -= QK_K) {
        float d = half_float(b->d);
        for (int i = 0; i < QK_K; i++) {
            int high = b->hmask[i % 32] >> (i / 32) & 1;
            out[i] = d * (float)(k3_scale(b->scales, i / 16) - 32) * (float)(two_bits(b->qs, i) - (high ? 0 : 4));
        }
    }
}

static void dequantize_q4_k(const void *blocks, float *out, size_t n) {
    for (const BlockQ4_K *b = blocks; n; b++, out += QK_K, n -= QK_K) {
        float d = half_float(b->d), dmin = half_float(b->dmin);
        for (int i = 0; i < QK_K; i++) {
            uint8_t s, m, q = b->qs[i / 64 * 32 + i % 32];
            k4_scale_min(b->scales, i / 32, &s, &m);
            out[i] = d * (float)s * (float)(i % 64 < 32 ? q & 15 : q >> 4) - dmin * (float)m;
        }
    }
}

static void dequantize_q5_k(const void *blocks, float *out, size_t n) {
    for (const BlockQ5_K *b = blocks; n; b++, out += QK_K, n -= QK_K) {
        float d = half_float(b->d), dmin = half_float(b->dmin);
        for (int i = 0; i < QK_K; i++) {
            uint8_t s, m, q = b->qs[i / 64 * 32 + i % 32];
            k4_scale_min(b->scales, i / 32, &s, &m);
            int high = (b->qh[i % 32] >> (i / 32) & 1) << 4;
            out[i] = d * (float)s * (float)((i % 64 < 32 ? q & 15 : q >> 4) | high) - dmin * (float)m;
        }
    }
}

static void dequantize_q6_k(const void *blocks, float *out, size_t n) {
    for (const BlockQ6_K *b = blocks; n; b++, out += QK_K, n -= QK_K) {
        float d = half_float(b->d);
        for (int i = 0; i < QK_K; i++) {
            int half = i / 128, quarter = i % 128 / 32, l = i % 32;
            uint8_t low = b->ql[half * 64 + (quarter & 1) * 32 + l];
            int q = (quarter < 2 ? low & 15 : low >> 4) | (b->qh[half * 32 + l] >> (2 * quarter) & 3) << 4;
            out[i] = d * (float)b->scales[i / 16] * (float)(q - 32);
        }
    }
}

static void dequantize_iq4_nl(const void *blocks, float *out, size_t n) {
    for (const BlockIQ4_NL *b = blocks; n; b++, out += QK, n -= QK) {
        float d = half_float(b->d);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)iq4_values[b->qs[i] & 15];
            out[i + 16] = d * (float)iq4_values[b->qs[i] >> 4];
        }
    }
}

static void dequantize_iq4_xs(const void *blocks, float *out, size_t n) {
    for (const BlockIQ4_XS *b = blocks; n; b++, out += QK_K, n -= QK_K) {
        float d = half_float(b->d);
        for (int i = 0; i < QK_K; i++) {
            uint8_t q = b->qs[i / 32 * 16 + i % 16];
            out[i] = d * (float)(iq4xs_scale(b, i / 32) - 32) * (float)iq4_values[i % 32 < 16 ? q & 15 : q >> 4];
        }
    }
}

static void dequantize_mxfp4(const void *blocks, float *out, size_t n) {
    for (const BlockMXFP4 *b = blocks; n; b++, out += QK, n -= QK) {
        float d = mxfp4_scale(b->e);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)mxfp4_values[b->qs[i] & 15];
            out[i + 16] = d * (float)mxfp4_values[b->qs[i] >> 4];
        }
    }
}

// ---- the codebook types ---------------------------------------------------------------------------------------------

#define ENTRY(word) word,
static const uint16_t iq2_xxs_book[] = {IQ2_XXS_BOOK(ENTRY)}, iq2_xs_book[] = {IQ2_XS_BOOK(ENTRY)};
static const uint16_t iq2_s_book[] = {IQ2_S_BOOK(ENTRY)}, iq1_book[] = {IQ1_S_BOOK(ENTRY)};
static const uint16_t iq3_xxs_book[] = {IQ3_XXS_BOOK(ENTRY)}, iq3_s_book[] = {IQ3_S_BOOK(ENTRY)};
static const int8_t iq2_levels[] = {IQ2_XXS_LEVELS}, iq1_levels[] = {IQ1_S_LEVELS};
static const int8_t iq3_xxs_levels[] = {IQ3_XXS_LEVELS}, iq3_s_levels[] = {IQ3_S_LEVELS};

// The level of element i, without its sign.
static float book_level(int type, const void *block, int i) {
    int entry = codebook_entry(type, block, i), two = 2 * (i % 8), four = 4 * (i % 4);
    switch (type) {
    case TYPE_IQ2_XXS: return iq2_levels[iq2_xxs_book[entry] >> two & 3];
    case TYPE_IQ2_XS: return iq2_levels[iq2_xs_book[entry] >> two & 3];
    case TYPE_IQ2_S: return iq2_levels[iq2_s_book[entry] >> two & 3];
    case TYPE_IQ3_XXS: return iq3_xxs_levels[iq3_xxs_book[entry] >> four & 15];
    case TYPE_IQ3_S: return iq3_s_levels[iq3_s_book[entry] >> four & 15];
    default: return iq1_levels[iq1_book[entry] >> two & 3];
    }
}

// IQ2 and IQ3: x = d by (2 s + 1) level, with the sign of the element.
static void dequantize_signed(int type, const void *blocks, float by, float *out, size_t n) {
    size_t size = (size_t)type_info(type)->bytes;
    for (const uint8_t *b = blocks; n; b += size, out += QK_K, n -= QK_K) {
        float d = half_float(codebook_d(type, b)) * by;
        for (int i = 0; i < QK_K; i++) {
            float x = d * (float)codebook_scale(type, b, i) * book_level(type, b, i);
            out[i] = codebook_sign(type, b, i) ? -x : x;
        }
    }
}

// IQ1: x = d (2 s + 1) (level +- 1/8).
static void dequantize_shifted(int type, const void *blocks, float *out, size_t n) {
    size_t size = (size_t)type_info(type)->bytes;
    for (const uint8_t *b = blocks; n; b += size, out += QK_K, n -= QK_K) {
        float d = half_float(codebook_d(type, b));
        for (int i = 0; i < QK_K; i++) {
            float eighth = codebook_sign(type, b, i) ? -0.125f : 0.125f;
            out[i] = d * (float)codebook_scale(type, b, i) * (book_level(type, b, i) + eighth);
        }
    }
}

static void dequantize_iq2_xxs(const void *b, float *out, size_t n) {
    dequantize_signed(TYPE_IQ2_XXS, b, 0.125f, out, n);
}
static void dequantize_iq2_xs(const void *b, float *out, size_t n) {
    dequantize_signed(TYPE_IQ2_XS, b, 0.125f, out, n);
}
static void dequantize_iq2_s(const void *b, float *out, size_t n) { dequantize_signed(TYPE_IQ2_S, b, 0.125f, out, n); }
static void dequantize_iq3_xxs(const void *b, float *out, size_t n) {
    dequantize_signed(TYPE_IQ3_XXS, b, 0.25f, out, n);
}
static void dequantize_iq3_s(const void *b, float *out, size_t n) { dequantize_signed(TYPE_IQ3_S, b, 1, out, n); }
static void dequantize_iq1_s(const void *b, float *out, size_t n) { dequantize_shifted(TYPE_IQ1_S, b, out, n); }
static void dequantize_iq1_m(const void *b, float *out, size_t n) { dequantize_shifted(TYPE_IQ1_M, b, out, n); }

// ---- the ternary types ----------------------------------------------------------------------------------------------

static void dequantize_tq1_0(const void *blocks, float *out, size_t n) {
    for (const BlockTQ1_0 *b = blocks; n; b++, out += QK_K, n -= QK_K) {
        float d = half_float(b->d);
        for (int i = 0; i < QK_K; i++) out[i] = d * (float)(tq1_code(b, i) - 1);
    }
}

static void dequantize_tq2_0(const void *blocks, float *out, size_t n) {
    for (const BlockTQ2_0 *b = blocks; n; b++, out += QK_K, n -= QK_K) {
        float d = half_float(b->d);
        for (int i = 0; i < QK_K; i++) out[i] = d * (float)(two_bits(b->qs, i) - 1);
    }
}

// ---- the table ------------------------------------------------------------------------------------------------------

static const TypeInfo types[] = {
    {"F32", TYPE_F32, 1, 4, dequantize_f32},
    {"F16", TYPE_F16, 1, 2, dequantize_f16},
    {"BF16", TYPE_BF16, 1, 2, dequantize_bf16},
    {"Q4_0", TYPE_Q4_0, QK, sizeof(BlockQ4_0), dequantize_q4_0},
    {"Q4_1", TYPE_Q4_1, QK, sizeof(BlockQ4_1), dequantize_q4_1},
    {"Q5_0", TYPE_Q5_0, QK, sizeof(BlockQ5_0), dequantize_q5_0},
    {"Q5_1", TYPE_Q5_1, QK, sizeof(BlockQ5_1), dequantize_q5_1},
    {"Q8_0", TYPE_Q8_0, QK, sizeof(BlockQ8_0), dequantize_q8_0},
    {"Q2_K", TYPE_Q2_K, QK_K, sizeof(BlockQ2_K), dequantize_q2_k},
    {"Q3_K", TYPE_Q3_K, QK_K, sizeof(BlockQ3_K), dequantize_q3_k},
    {"Q4_K", TYPE_Q4_K, QK_K, sizeof(BlockQ4_K), dequantize_q4_k},
    {"Q5_K", TYPE_Q5_K, QK_K, sizeof(BlockQ5_K), dequantize_q5_k},
    {"Q6_K", TYPE_Q6_K, QK_K, sizeof(BlockQ6_K), dequantize_q6_k},
    {"IQ4_NL", TYPE_IQ4_NL, QK, sizeof(BlockIQ4_NL), dequantize_iq4_nl},
    {"IQ4_XS", TYPE_IQ4_XS, QK_K, sizeof(BlockIQ4_XS), dequantize_iq4_xs},
    {"MXFP4", TYPE_MXFP4, QK, sizeof(BlockMXFP4), dequantize_mxfp4},
    {"IQ1_S", TYPE_IQ1_S, QK_K, sizeof(BlockIQ1_S), dequantize_iq1_s},
    {"IQ1_M", TYPE_IQ1_M, QK_K, sizeof(BlockIQ1_M), dequantize_iq1_m},
    {"IQ2_XXS", TYPE_IQ2_XXS, QK_K, sizeof(BlockIQ2_XXS), dequantize_iq2_xxs},
    {"IQ2_XS", TYPE_IQ2_XS, QK_K, sizeof(BlockIQ2_XS), dequantize_iq2_xs},
    {"IQ2_S", TYPE_IQ2_S, QK_K, sizeof(BlockIQ2_S), dequantize_iq2_s},
    {"IQ3_XXS", TYPE_IQ3_XXS, QK_K, sizeof(BlockIQ3_XXS), dequantize_iq3_xxs},
    {"IQ3_S", TYPE_IQ3_S, QK_K, sizeof(BlockIQ3_S), dequantize_iq3_s},
    {"TQ1_0", TYPE_TQ1_0, QK_K, sizeof(BlockTQ1_0), dequantize_tq1_0},
    {"TQ2_0", TYPE_TQ2_0, QK_K, sizeof(BlockTQ2_0), dequantize_tq2_0},
    {"I8G", TYPE_I8G, 1, 1, NULL},
};

_Static_assert(sizeof types / sizeof types[0] == N_TYPES, "a row for each of EACH_TYPE");

const char *type_name_list(void) {
    static _Thread_local char list[240];
    *list = 0;
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].dequantize) str_list(list, sizeof list, types[i].name);
    return list;
}

const TypeInfo *type_info(int type) {
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].id == type) return &types[i];
    return NULL;
}

const TypeInfo *type_by_name(const char *name) {
    for (size_t i = 0; i < N_TYPES; i++)
        if (strcasecmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

// Names of GGUF types that quill does not support, for messages.
static const char *const other_names[] = {
    [9] = "Q8_1", [15] = "Q8_K", [24] = "I8", [25] = "I16", [26] = "I32", [27] = "I64", [28] = "F64", [40] = "NVFP4",
};

const char *type_name(int type) {
    static _Thread_local char number[32];
    const TypeInfo *t = type_info(type);
    if (t) return t->name;
    if (type == TYPE_FP8) return "FP8";
    if (type == TYPE_KIVI2) return "KIVI2";
    if (type >= 0 && type < (int)(sizeof other_names / sizeof other_names[0]) && other_names[type])
        return other_names[type];
    snprintf(number, sizeof number, "type %d", type);
    return number;
}
