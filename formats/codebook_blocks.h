// formats/codebook_blocks.h: where a block of the codebook types (IQ1, IQ2, IQ3) has an element's entry, sign and
// scale.
//
// i is an element of the super-block, 0 to 255. The blocks are described in formats/types.h, the entries in
// formats/codebooks.h. The CPU's scalar code and the GPU's loading share these functions.
#ifndef QUILL_CODEBOOK_BLOCKS_H
#define QUILL_CODEBOOK_BLOCKS_H

#include "formats/types.h"

// Four signs of seven bits, the lowest first, as four bytes of eight: the eighth bit is the parity of the seven.
HOST_DEVICE static inline uint32_t signs_of_sevens(uint32_t sevens) {
    uint32_t s = (sevens & 0x3fff) | (sevens << 2 & 0x3fff0000);
    s = (s & 0x007f007f) | (s << 1 & 0x7f007f00);
    uint32_t odd = s ^ s >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return s | (odd & 0x01010101) << 7;
}

// Four signs of seven bits and a scale of four, for 32 elements.
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

// 1 where the element's sign is set, or that of its 1/8.
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

// The block's scale. IQ1_M keeps its four nibbles above the scales of its parts.
HOST_DEVICE static inline half_bits codebook_d(int type, const void *block) {
    if (type != TYPE_IQ1_M) return *(const half_bits *)block;
    const uint16_t *s = ((const BlockIQ1_M *)block)->scales;
    return (half_bits)(s[0] >> 12 | s[1] >> 12 << 4 | s[2] >> 12 << 8 | s[3] >> 12 << 12);
}

#endif
