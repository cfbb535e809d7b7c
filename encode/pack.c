// encode/pack.c: see encode/pack.h. The layouts are those of formats/types.h.
#include "encode/pack.h"

#include <assert.h>

#include "formats/types.h"

// Element i (0..255) of a super-block whose sub-blocks have n weights.
static int element(const FitResult *f, int first, int n, int i) { return f->q[first + i / n][i % n]; }

static void pack_nibbles(uint8_t qs[16], const int8_t *q, int offset) {
    for (int i = 0; i < 16; i++) qs[i] = (uint8_t)(((q[i] + offset) & 15) | ((q[i + 16] + offset) & 15) << 4);
}

static void pack_fifths(uint8_t qh[4], const int8_t *q, int offset) {
    memset(qh, 0, 4);
    for (int i = 0; i < 32; i++) qh[i / 8] |= (uint8_t)((q[i] + offset) >> 4 << (i % 8));
}

static int iq4_index(int value) {
    static const int8_t values[16] = {IQ4_VALUES};
    int i = 0;
    while (values[i] != value) i++;
    return i;
}

static void pack_iq4(uint8_t qs[16], const int8_t *q) {
    for (int i = 0; i < 16; i++) qs[i] = (uint8_t)(iq4_index(q[i]) | iq4_index(q[i + 16]) << 4);
}

// ---- super-blocks ---------------------------------------------------------------------------------------------------

// Packs the two low bits of every element as Q2_K and Q3_K store them.
static void pack_two_bits(uint8_t qs[64], const FitResult *f, int first, int offset) {
    memset(qs, 0, 64);
    for (int i = 0; i < QK_K; i++)
        qs[i / 128 * 32 + i % 32] |= (uint8_t)(((element(f, first, 16, i) + offset) & 3) << (2 * (i % 128 / 32)));
}

static void pack_q2_k(const FitResult *f, int first, BlockQ2_K *b) {
    for (int j = 0; j < 16; j++) b->scales[j] = (uint8_t)(f->s[first + j] | f->m[first + j] << 4);
    pack_two_bits(b->qs, f, first, 0);
    b->d = float_half(f->d[first]);
    b->dmin = float_half(f->dmin[first]);
}

static void pack_q3_k(const FitResult *f, int first, BlockQ3_K *b) {
    memset(b->hmask, 0, sizeof b->hmask);
    memset(b->scales, 0, sizeof b->scales);
    for (int i = 0; i < QK_K; i++)
        if (element(f, first, 16, i) >= 0) b->hmask[i % 32] |= (uint8_t)(1 << (i / 32));
    pack_two_bits(b->qs, f, first, 4);
    for (int j = 0; j < 16; j++) {
        int s = f->s[first + j] + 32;
        b->scales[j % 8] |= (uint8_t)((s & 15) << (j < 8 ? 0 : 4));
        b->scales[8 + j % 4] |= (uint8_t)(s >> 4 << (2 * (j / 4)));
    }
    b->d = float_half(f->d[first]);
}

static void pack_k4_scales(uint8_t packed[12], const FitResult *f, int first) {
    for (int j = 0; j < 4; j++) {
        int s = f->s[first + j], m = f->m[first + j], s4 = f->s[first + j + 4], m4 = f->m[first + j + 4];
        packed[j] = (uint8_t)(s | s4 >> 4 << 6);
        packed[j + 4] = (uint8_t)(m | m4 >> 4 << 6);
        packed[j + 8] = (uint8_t)((s4 & 15) | (m4 & 15) << 4);
    }
}

static void pack_k4_nibbles(uint8_t qs[128], const FitResult *f, int first) {
    for (int i = 0; i < 128; i++) {
        int low = i / 32 * 64 + i % 32;
        qs[i] = (uint8_t)((element(f, first, 32, low) & 15) | (element(f, first, 32, low + 32) & 15) << 4);
    }
}

static void pack_q4_k(const FitResult *f, int first, BlockQ4_K *b) {
    pack_k4_scales(b->scales, f, first);
    pack_k4_nibbles(b->qs, f, first);
    b->d = float_half(f->d[first]);
    b->dmin = float_half(f->dmin[first]);
}

static void pack_q5_k(const FitResult *f, int first, BlockQ5_K *b) {
    pack_k4_scales(b->scales, f, first);
    pack_k4_nibbles(b->qs, f, first);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < QK_K; i++) b->qh[i % 32] |= (uint8_t)(element(f, first, 32, i) >> 4 << (i / 32));
    b->d = float_half(f->d[first]);
    b->dmin = float_half(f->dmin[first]);
}

static void pack_q6_k(const FitResult *f, int first, BlockQ6_K *b) {
    memset(b->ql, 0, sizeof b->ql);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < QK_K; i++) {
        int half = i / 128, quarter = i % 128 / 32, l = i % 32, q = element(f, first, 16, i) + 32;
        b->ql[half * 64 + (quarter & 1) * 32 + l] |= (uint8_t)((q & 15) << (quarter < 2 ? 0 : 4));
        b->qh[half * 32 + l] |= (uint8_t)(q >> 4 << (2 * quarter));
    }
    memcpy(b->scales, f->s + first, sizeof b->scales);
    b->d = float_half(f->d[first]);
}

static void pack_iq4_xs(const FitResult *f, int first, BlockIQ4_XS *b) {
    memset(b->scales_l, 0, sizeof b->scales_l);
    b->scales_h = 0;
    for (int j = 0; j < 8; j++) {
        int s = f->s[first + j] + 32;
        b->scales_l[j / 2] |= (uint8_t)((s & 15) << (4 * (j % 2)));
        b->scales_h |= (uint16_t)(s >> 4 << (2 * j));
        pack_iq4(b->qs + 16 * j, f->q[first + j]);
    }
    b->d = float_half(f->d[first]);
}

// ---- blocks of 32 ---------------------------------------------------------------------------------------------------

static void pack_small(int type, const FitResult *f, int at, void *block) {
    half_bits d = float_half(f->d[at]), m = float_half(-f->dmin[at]);
    const int8_t *q = f->q[at];
    if (type == TYPE_Q4_0) {
        BlockQ4_0 *b = block;
        b->d = d;
        pack_nibbles(b->qs, q, 8);
    } else if (type == TYPE_Q4_1) {
        BlockQ4_1 *b = block;
        b->d = d, b->m = m;
        pack_nibbles(b->qs, q, 0);
    } else if (type == TYPE_Q5_0) {
        BlockQ5_0 *b = block;
        b->d = d;
        pack_nibbles(b->qs, q, 16);
        pack_fifths(b->qh, q, 16);
    } else if (type == TYPE_Q5_1) {
        BlockQ5_1 *b = block;
        b->d = d, b->m = m;
        pack_nibbles(b->qs, q, 0);
        pack_fifths(b->qh, q, 0);
    } else {
        BlockIQ4_NL *b = block;
        b->d = d;
        pack_iq4(b->qs, q);
    }
}

void pack_block(int type, const FitResult *fit, int first, void *block) {
    switch (type) {
    case TYPE_Q2_K: pack_q2_k(fit, first, block); return;
    case TYPE_Q3_K: pack_q3_k(fit, first, block); return;
    case TYPE_Q4_K: pack_q4_k(fit, first, block); return;
    case TYPE_Q5_K: pack_q5_k(fit, first, block); return;
    case TYPE_Q6_K: pack_q6_k(fit, first, block); return;
    case TYPE_IQ4_XS: pack_iq4_xs(fit, first, block); return;
    default: assert(fit_weights(type) == QK); pack_small(type, fit, first, block);
    }
}
