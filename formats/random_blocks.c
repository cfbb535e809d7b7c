// formats/random_blocks.c: see formats/random_blocks.h.
#include "formats/random_blocks.h"

#include <math.h>

#include "base/rng.h"

static const BlockScales scales[] = {
    {TYPE_Q4_0, offsetof(BlockQ4_0, d), -1, 0, 4.64f, true},
    {TYPE_Q4_1, offsetof(BlockQ4_1, d), offsetof(BlockQ4_1, m), -7.5f, 4.61f, false},
    {TYPE_Q5_0, offsetof(BlockQ5_0, d), -1, 0, 9.25f, true},
    {TYPE_Q5_1, offsetof(BlockQ5_1, d), offsetof(BlockQ5_1, m), -15.5f, 9.23f, false},
    {TYPE_Q8_0, offsetof(BlockQ8_0, d), -1, 0, 73.9f, true},
    {TYPE_Q2_K, offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin), 1.5f, 13.4f, false},
    {TYPE_Q3_K, offsetof(BlockQ3_K, d), -1, 0, 43.3f, false},
    {TYPE_Q4_K, offsetof(BlockQ4_K, d), offsetof(BlockQ4_K, dmin), 7.5f, 258, false},
    {TYPE_Q5_K, offsetof(BlockQ5_K, d), offsetof(BlockQ5_K, dmin), 15.5f, 528, false},
    {TYPE_Q6_K, offsetof(BlockQ6_K, d), -1, 0, 1366, false},
    {TYPE_IQ4_NL, offsetof(BlockIQ4_NL, d), -1, 0, 67.7f, true},
    {TYPE_IQ4_XS, offsetof(BlockIQ4_XS, d), -1, 0, 1251, true},
    {TYPE_MXFP4, offsetof(BlockMXFP4, e), -1, 0, 5.85f, false},
    {TYPE_IQ1_S, offsetof(BlockIQ1_S, d), -1, 0, 7.2f, false},
    {TYPE_IQ1_M, offsetof(BlockIQ1_M, scales), -1, 0, 7.21f, false},
    {TYPE_IQ2_XXS, offsetof(BlockIQ2_XXS, d), -1, 0, 53.5f, false},
    {TYPE_IQ2_XS, offsetof(BlockIQ2_XS, d), -1, 0, 55.9f, false},
    {TYPE_IQ2_S, offsetof(BlockIQ2_S, d), -1, 0, 56.4f, false},
    {TYPE_IQ3_XXS, offsetof(BlockIQ3_XXS, d), -1, 0, 142.6f, false},
    {TYPE_IQ3_S, offsetof(BlockIQ3_S, d), -1, 0, 140.2f, false},
    {TYPE_TQ1_0, offsetof(BlockTQ1_0, d), -1, 0, 0.817f, false},
    {TYPE_TQ2_0, offsetof(BlockTQ2_0, d), -1, 0, 1.224f, true},
};

const BlockScales *random_blocks_scales(int type) {
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++)
        if (scales[i].type == type) return &scales[i];
    return NULL;
}

uint64_t random_blocks_bits(uint64_t *state) {
    uint64_t bits = rng_mix(*state);
    *state += RNG_STEP;
    return bits;
}

float random_blocks_uniform(uint64_t *state) { return (float)(random_blocks_bits(state) >> 40) * 0x1p-23f - 1.0f; }

uint16_t random_blocks_d(const BlockScales *s, float d) {
    if (s->type != TYPE_MXFP4) return float_half(d);
    int e = 128 + (int)lrintf(log2f(d));
    return (uint16_t)(e < 0 ? 0 : e > 254 ? 254 : e);
}

void random_blocks_put_d(const BlockScales *s, uint8_t *block, uint16_t d) { // writes d, little-endian
    if (s->type == TYPE_IQ1_M) {
        uint8_t *high = block + s->d_at + 1; // of four words
        for (int i = 0; i < 4; i++) high[2 * i] = (uint8_t)((high[2 * i] & 15) | (d >> (4 * i) & 15) << 4);
    } else memcpy(block + s->d_at, &d, s->type == TYPE_MXFP4 ? 1 : sizeof d);
}

static void put_scales(uint8_t *block, const BlockScales *s, float d) {
    half_bits m = float_half(d * s->min_per_d);
    random_blocks_put_d(s, block, random_blocks_d(s, d));
    if (s->min_at >= 0) memcpy(block + s->min_at, &m, sizeof m);
}

// Fills a block with random bits, dequantises it with d = 1, and sets d so that the values have the given deviation.
static void random_block(const TypeInfo *info, const BlockScales *s, uint8_t *block, float deviation,
                         uint64_t *random) {
    float values[QK_K];
    for (int i = 0; i < info->bytes; i++) block[i] = (uint8_t)random_blocks_bits(random);
    put_scales(block, s, 1.0f);
    info->dequantize(block, values, (size_t)info->block);
    double square = 0;
    for (int i = 0; i < info->block; i++) square += (double)values[i] * (double)values[i];
    put_scales(block, s, deviation / sqrtf((float)(square / info->block)));
}

void random_blocks_fill(int type, void *out, size_t n, float deviation, uint64_t *random) {
    const TypeInfo *info = type_info(type);
    const BlockScales *s = random_blocks_scales(type);
    uint8_t *at = out;
    for (size_t b = 0; s && b < n / (size_t)info->block; b++, at += info->bytes)
        random_block(info, s, at, deviation, random);
    if (s) return;
    for (size_t i = 0; i < n; i++, at += info->bytes) { // uniform in +-sqrt(3): standard deviation 1
        float x = random_blocks_uniform(random) * 1.7320508f * deviation;
        uint16_t half = type == TYPE_F16 ? float_half(x) : (uint16_t)(float_bits(x) >> 16);
        if (type == TYPE_F32) memcpy(at, &x, sizeof x);
        else memcpy(at, &half, sizeof half);
    }
}
