// cpu/codebooks.c: see cpu/codebooks.h.
#include "cpu/codebooks.h"

#include "formats/codebooks.h"

// An entry's eight codes of two bits as eight bytes of a number; `level` maps a code to its byte.
#define EIGHT(level, e)                                                                                                \
    (level((e)&3) | level((e) >> 2 & 3) << 8 | level((e) >> 4 & 3) << 16 | level((e) >> 6 & 3) << 24 |                 \
     level((e) >> 8 & 3) << 32 | level((e) >> 10 & 3) << 40 | level((e) >> 12 & 3) << 48 | level((e) >> 14 & 3) << 56)
#define FOUR(level, e)                                                                                                 \
    (level((e)&15) | level((e) >> 4 & 15) << 8 | level((e) >> 8 & 15) << 16 | level((e) >> 12 & 15) << 24)

#define IQ2_LEVEL(c) (uint64_t)((c) == 0 ? 8 : (c) == 1 ? 25 : 43)
#define IQ1_LEVEL(c) (uint64_t)((c) == 0 ? 0xf8 : (c) == 1 ? 0 : 8) // 8 times -1, 0 or 1
#define IQ3_XXS_LEVEL(c) (uint32_t)((c) == 7 ? 62 : 8 * (c) + 4)
#define IQ3_S_LEVEL(c) (uint32_t)(2 * (c) + 1)

#define IQ2_ENTRY(e) EIGHT(IQ2_LEVEL, e),
#define IQ1_ENTRY(e) EIGHT(IQ1_LEVEL, e),
#define IQ3_XXS_ENTRY(e) FOUR(IQ3_XXS_LEVEL, e),
#define IQ3_S_ENTRY(e) FOUR(IQ3_S_LEVEL, e),

const uint64_t codebooks_iq2_xxs[256] = {IQ2_XXS_BOOK(IQ2_ENTRY)};
const uint64_t codebooks_iq2_xs[512] = {IQ2_XS_BOOK(IQ2_ENTRY)};
const uint64_t codebooks_iq2_s[1024] = {IQ2_S_BOOK(IQ2_ENTRY)};
const uint64_t codebooks_iq1[2048] = {IQ1_S_BOOK(IQ1_ENTRY)};
const uint32_t codebooks_iq3_xxs[256] = {IQ3_XXS_BOOK(IQ3_XXS_ENTRY)};
const uint32_t codebooks_iq3_s[512] = {IQ3_S_BOOK(IQ3_S_ENTRY)};

#define CODES(e) e,
const uint16_t codebooks_iq3_xxs_codes[256] = {IQ3_XXS_BOOK(CODES)};
const uint16_t codebooks_iq3_s_codes[512] = {IQ3_S_BOOK(CODES)};
