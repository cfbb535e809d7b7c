// cpu/int8_books.c: products of IQ2 and IQ3 types with few rows of activations, in integers. AVX-512 with VNNI, VBMI
// and GFNI. cpu/int8_vnni.c computes them on other CPUs, and the other types.
//
// Entries stay apart by the places of their elements. A register has one element of each of 64 entries: the first
// elements, then the second ones, and so on. The activations are packed in the same order. So 64 entries are looked up
// by permutations of bytes, without being spread out, and all products of a block go into the same lane of sums: one
// conversion and one factor serve the whole superblock.
//
// An entry is two bytes of codes. Each byte has a table of its own. Affine maps of the bits of a byte (GFNI) select
// places and signs. The eighth sign of seven stored ones is a parity, which such a map computes. Another one maps an
// IQ2 code to its level.
//
// IQ3 has 64 entries of four elements in a superblock. The lower half of a register has those at even places, the upper
// half those at odd places. IQ2 has 32 entries of eight elements, and two rows of weights share a register.
#define QUILL_SIMD 512
#include "cpu/int8_block.h"

#include "formats/codebooks.h"

// ---- activations ----------------------------------------------------------------------------------------------------

enum {
    OFFSET = 64, // added to signed weights, which makes them unsigned
    PLACES = 8,
};

// A superblock of activations. Sums are those of q times -OFFSET, of the elements that a lane adds up.
typedef struct {
    int8_t q[PLACES][32];      // q[place_of(p)][k] is element 8 k + p
    int8_t second[PLACES][32]; // the same, with zeros in the first half of each block of 32
    int32_t halves[16];        // sums of IQ3: a block's entries at even places, in the upper lanes those at odd ones
    int32_t blocks[16];        // of whole blocks, twice
    int32_t seconds[16];       // of the second halves of blocks, twice
    float scale[16];           // of blocks, twice
} BookActivations;
_Static_assert(sizeof(BookActivations) % 64 == 0, "aligned loads");

#define EACH_TYPE_HERE(X) X(TYPE_IQ2_XXS) X(TYPE_IQ2_XS) X(TYPE_IQ2_S) X(TYPE_IQ3_XXS) X(TYPE_IQ3_S)
typedef BookActivations RowActivations;
#include "cpu/int8.h"

enum {
    STREAMS = 4, // rows of weights that are multiplied together
    FAR = 1536,  // prefetch distance in bytes into L2
    NEAR = 768,  // and into L1
};

// Element p of IQ3's even entries and element p of its odd ones, which is element p + 4 of eight, are neighbours.
INLINE int place_of(int place) { return place % 4 * 2 + place / 4; }

// sums -= OFFSET times the sums of each lane's bytes.
INLINE __m512i less_offsets(__m512i sums, __m512i q) {
    return _mm512_sub_epi32(sums, _mm512_dpbusd_epi32(_mm512_setzero_si512(), bytes(OFFSET), q));
}

static void pack_superblock(const Int8Activations *from, BookActivations *to) {
    const __m512i by_place =
        _mm512_set_epi8(63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 60,
                        52, 44, 36, 28, 20, 12, 4, 59, 51, 43, 35, 27, 19, 11, 3, 58, 50, 42, 34, 26, 18, 10, 2, 57, 49,
                        41, 33, 25, 17, 9, 1, 56, 48, 40, 32, 24, 16, 8, 0);
    const __mmask64 of_second = 0xcccccccccccccccc; // of the four entries of a block
    for (int i = 0; i < 4; i++) {
        int8_t eights[PLACES][8];
        _mm512_storeu_si512(eights, _mm512_permutexvar_epi8(by_place, _mm512_loadu_si512(from->q + 64 * i)));
        for (int p = 0; p < PLACES; p++) memcpy(to->q[place_of(p)] + 8 * i, eights[p], 8);
    }
    __m512i halves = _mm512_setzero_si512(), blocks = halves, seconds = halves;
    for (int p = 0; p < PLACES; p += 2) {
        __m512i both = _mm512_load_si512(to->q[p]), swapped = _mm512_shuffle_i64x2(both, both, 0x4e);
        __m512i second = _mm512_maskz_mov_epi8(of_second, both);
        _mm512_store_si512(to->second[p], second);
        halves = less_offsets(halves, both);
        blocks = less_offsets(less_offsets(blocks, both), swapped);
        seconds = less_offsets(less_offsets(seconds, second), _mm512_shuffle_i64x2(second, second, 0x4e));
    }
    _mm512_store_si512(to->halves, halves);
    _mm512_store_si512(to->blocks, blocks);
    _mm512_store_si512(to->seconds, seconds);
    for (int b = 0; b < 16; b++) to->scale[b] = from->scale[b % 8];
}

// MatrixKernel.pack. Rows of these types are whole superblocks.
static void pack(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    (void)x_stride;
    (void)n_rows; // a tile is one row
    BookActivations *to = (BookActivations *)packed + (size_t)tile * superblocks_of(n_in);
    for (int i = 0; i < n_in; i += SUPERBLOCK) {
        Int8Activations a;
        quantize_row(x + i, SUPERBLOCK, &a);
        pack_superblock(&a, to++);
    }
}

// ---- codebooks ------------------------------------------------------------------------------------------------------

// The low and the high bytes of a codebook's entries.
typedef struct {
    const uint8_t *low, *high;
    int n;
} ByteBooks;

#define LOW(e) (uint8_t)((e)&255),
#define HIGH(e) (uint8_t)((e) >> 8),
#define BOOK(TYPE, N)                                                                                                  \
    static const uint8_t TYPE##_low[N] LINE_ALIGNED = {TYPE##_BOOK(LOW)};                                              \
    static const uint8_t TYPE##_high[N] LINE_ALIGNED = {TYPE##_BOOK(HIGH)};
BOOK(IQ2_XXS, 256)
BOOK(IQ2_XS, 512)
BOOK(IQ2_S, 1024)
BOOK(IQ3_XXS, 256)
BOOK(IQ3_S, 512)

INLINE ByteBooks books_of(int type) {
    switch (type) {
    case TYPE_IQ2_XXS: return (ByteBooks){IQ2_XXS_low, IQ2_XXS_high, 256};
    case TYPE_IQ2_XS: return (ByteBooks){IQ2_XS_low, IQ2_XS_high, 512};
    case TYPE_IQ2_S: return (ByteBooks){IQ2_S_low, IQ2_S_high, 1024};
    case TYPE_IQ3_XXS: return (ByteBooks){IQ3_XXS_low, IQ3_XXS_high, 256};
    default: return (ByteBooks){IQ3_S_low, IQ3_S_high, 512};
    }
}

// The indices of 64 entries: their low bytes, and their bits 7, 8 and 9.
typedef struct {
    __m512i low;
    __mmask64 bit[3];
} Index;

// Looks up 64 entries in a table of n = 128 2^k bytes.
INLINE __m512i look_up(const uint8_t *book, int n, const Index *index) {
    __m512i found[8];
    UNROLL(8)
    for (int i = 0; i < n / 128; i++)
        found[i] = _mm512_permutex2var_epi8(_mm512_load_si512(book + 128 * i), index->low,
                                            _mm512_load_si512(book + 128 * i + 64));
    UNROLL(3)
    for (int bit = 0; 128 << bit < n; bit++) UNROLL(4)
    for (int i = 0; i < n / (256 << bit); i++)
        found[i] = _mm512_mask_blend_epi8(index->bit[bit], found[2 * i], found[2 * i + 1]);
    return found[0];
}

// ---- weights --------------------------------------------------------------------------------------------------------

// A map of the bits of a byte: result bit i is the parity of the bits that row i selects. BITS has the rows from 0 on.
#define BITS(a, b, c, d, e, f, g, h)                                                                                   \
    ((uint64_t)(a) << 56 | (uint64_t)(b) << 48 | (uint64_t)(c) << 40 | (uint64_t)(d) << 32 | (uint64_t)(e) << 24 |     \
     (uint64_t)(f) << 16 | (uint64_t)(g) << 8 | (uint64_t)(h))
#define MAPPED(v, map, plus) _mm512_gf2p8affine_epi64_epi8(v, map, plus)
INLINE __m512i one_map(uint64_t map) { return _mm512_set1_epi64((long long)map); }
INLINE __m512i two_maps(uint64_t lower, uint64_t upper) { // for the lower and the upper half of a register
    return _mm512_mask_set1_epi64(one_map(lower), 0xf0, (long long)upper);
}

// The four groups of seven sign bits in each word of 32 bits, as bytes; their highest bits are those of the next group.
INLINE __m512i sevens(__m512i tails) {
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e2720150e0700), tails);
}

// The unpacked weights of one superblock: of one row for IQ3, of two rows for IQ2.
typedef struct {
    __m512i u[PLACES];    // unsigned bytes, OFFSET above the weights; four of them for IQ3
    __m512 scale, second; // of the lanes of sums; `second` of the second halves of blocks, if these have their own
} BookWeights;

// The numbers 2 s + 1 of scales s, times d times `unit`.
INLINE __m512 scales_times(__m512i s, __m512 d, float unit) {
    __m512 odd = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s), _mm512_set1_ps(2), _mm512_set1_ps(1));
    return _mm512_mul_ps(odd, _mm512_mul_ps(d, _mm512_set1_ps(unit)));
}
INLINE __m512 d_of(const void *block) { return _mm512_cvtph_ps(_mm256_set1_epi16(*(const int16_t *)block)); }
INLINE __m512 d_load_two(const void *a, const void *b) {
    __m256i halves = _mm256_mask_set1_epi16(_mm256_set1_epi16(*(const int16_t *)a), 0xff00, *(const int16_t *)b);
    return _mm512_cvtph_ps(halves);
}

// A nibble of each of eight bytes of two rows, for the lower and the upper lanes: the low one, or with a shift of 4 the
// high one.
INLINE __m512i nibbles_of(const uint8_t *a, const uint8_t *b, int shift) {
    uint64_t lower, upper;
    memcpy(&lower, a, sizeof lower);
    memcpy(&upper, b, sizeof upper);
    __m512i v = _mm512_cvtepu8_epi32(_mm_set_epi64x((long long)upper, (long long)lower));
    return _mm512_and_si512(_mm512_srli_epi32(v, (unsigned)shift), _mm512_set1_epi32(15));
}

INLINE __m512i eights_of_nibbles(const uint8_t four[4]) { // eight nibbles, twice
    int32_t v;
    memcpy(&v, four, sizeof v);
    const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    return _mm512_and_si512(_mm512_srlv_epi32(_mm512_set1_epi32(v), shift), _mm512_set1_epi32(15));
}

// One bit for each of 64 entries: those at even places become the lower half, the others the upper half.
INLINE __mmask64 even_and_odd(uint64_t bits) {
    return _pext_u64(bits, 0x5555555555555555) | _pext_u64(bits, 0xaaaaaaaaaaaaaaaa) << 32;
}

INLINE void load_iq3(int type, const uint8_t *p, BookWeights *w) {
    const BlockIQ3_XXS *xxs = (const void *)p;
    const BlockIQ3_S *s = (const void *)p;
    const bool seven = type == TYPE_IQ3_XXS; // signs are stored in sevens
    const ByteBooks book = books_of(type);
    const __m512i even_first =
        _mm512_set_epi8(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19, 17,
                        15, 13, 11, 9, 7, 5, 3, 1, 62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30,
                        28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    Index index;
    index.low = _mm512_permutexvar_epi8(even_first, _mm512_loadu_si512(seven ? xxs->qs : s->qs));
    index.bit[0] = _mm512_movepi8_mask(index.low);
    if (!seven) {
        uint64_t ninth;
        memcpy(&ninth, s->qh, sizeof ninth);
        index.bit[1] = even_and_odd(ninth);
    }
    __m512i tails = load_both(seven ? xxs->tails : s->signs), signs = seven ? sevens(tails) : tails;
    if (seven) w->scale = scales_times(_mm512_srli_epi32(tails, 28), d_of(p), 0.25f);
    else w->scale = scales_times(eights_of_nibbles(s->scales), d_of(p), 1);
    // Codes have three bits in a nibble; the fourth becomes the sign.
    const int last = seven ? 0x7f : 0x80;
    __m512i two[2] = {look_up(book.low, book.n, &index), look_up(book.high, book.n, &index)};
    two[0] = _mm512_or_si512(two[0],
                             MAPPED(signs, two_maps(BITS(0, 0, 0, 1, 0, 0, 0, 2), BITS(0, 0, 0, 16, 0, 0, 0, 32)), 0));
    two[1] = _mm512_or_si512(
        two[1], MAPPED(signs, two_maps(BITS(0, 0, 0, 4, 0, 0, 0, 8), BITS(0, 0, 0, 64, 0, 0, 0, last)), 0));
    const __m512i levels = iq3_levels(type, OFFSET);
    UNROLL(2)
    for (int i = 0; i < 2; i++) {
        w->u[2 * i] = _mm512_shuffle_epi8(levels, _mm512_and_si512(two[i], bytes(15)));
        __m512i high = MAPPED(two[i], one_map(BITS(16, 32, 64, 128, 0, 0, 0, 0)), 0);
        w->u[2 * i + 1] = _mm512_shuffle_epi8(levels, high);
    }
}

// The map of a code's two bits, at `place` of a byte of four codes, to OFFSET plus its level. The result is then XORed
// with that of code 0.
INLINE uint64_t map_of_code(int place) {
    const int level[] = {IQ2_XXS_LEVELS}, first = OFFSET + level[0];
    const int one = first ^ (OFFSET + level[1]), two = first ^ (OFFSET + level[2]);
    uint64_t map = 0;
    UNROLL(8)
    for (int bit = 0; bit < 8; bit++) {
        uint64_t row = (uint64_t)((one >> bit & 1) | (two >> bit & 1) << 1) << 2 * place;
        map |= row << 8 * (7 - bit);
    }
    return map;
}

// The indices of IQ2's entries of two rows, and their sign bytes.
INLINE Index index_iq2(int type, const uint8_t *a, const uint8_t *b, __m512i *signs) {
    Index index;
    if (type == TYPE_IQ2_XXS) {
        const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        __m512i first = _mm512_loadu_si512(((const BlockIQ2_XXS *)(const void *)a)->qs);
        __m512i other = _mm512_loadu_si512(((const BlockIQ2_XXS *)(const void *)b)->qs);
        index.low = _mm512_permutex2var_epi32(first, even, other);
        *signs = _mm512_permutex2var_epi32(first, _mm512_add_epi32(even, _mm512_set1_epi32(1)), other); // tails
    } else if (type == TYPE_IQ2_XS) {
        __m512i first = _mm512_loadu_si512(((const BlockIQ2_XS *)(const void *)a)->qs);
        __m512i other = _mm512_loadu_si512(((const BlockIQ2_XS *)(const void *)b)->qs);
        index.low =
            _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(first)), _mm512_cvtepi16_epi8(other), 1);
        first = _mm512_srli_epi16(first, 8), other = _mm512_srli_epi16(other, 8);
        *signs = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(first)), _mm512_cvtepi16_epi8(other),
                                    1); // seven signs above the ninth bit
        index.bit[1] = _mm512_test_epi8_mask(*signs, bytes(1));
    } else {
        const BlockIQ2_S *first = (const void *)a, *other = (const void *)b;
        uint64_t lower, upper;
        memcpy(&lower, first->qh, sizeof lower);
        memcpy(&upper, other->qh, sizeof upper);
        index.low = load_two(first->qs, other->qs);
        *signs = load_two(first->signs, other->signs);
        index.bit[1] = _pext_u64(lower, 0x5555555555555555) | _pext_u64(upper, 0x5555555555555555) << 32;
        index.bit[2] = _pext_u64(lower, 0xaaaaaaaaaaaaaaaa) | _pext_u64(upper, 0xaaaaaaaaaaaaaaaa) << 32;
    }
    index.bit[0] = _mm512_movepi8_mask(index.low);
    return index;
}

INLINE void load_iq2(int type, const uint8_t *a, const uint8_t *b, BookWeights *w) {
    const ByteBooks book = books_of(type);
    __m512i signs;
    const Index index = index_iq2(type, a, b, &signs);
    __m512 d = d_load_two(a, b);
    if (type == TYPE_IQ2_XXS) {
        w->scale = scales_times(_mm512_srli_epi32(signs, 28), d, 0.125f);
        signs = MAPPED(sevens(signs), one_map(BITS(1, 2, 4, 8, 16, 32, 64, 127)), 0);
    } else {
        const size_t at = type == TYPE_IQ2_XS ? offsetof(BlockIQ2_XS, scales) : offsetof(BlockIQ2_S, scales);
        w->scale = scales_times(nibbles_of(a + at, b + at, 0), d, 0.125f);
        w->second = scales_times(nibbles_of(a + at, b + at, 4), d, 0.125f);
    }
    if (type == TYPE_IQ2_XS) signs = MAPPED(signs, one_map(BITS(2, 4, 8, 16, 32, 64, 128, 254)), 0);
    const __m512i fours[2] = {look_up(book.low, book.n, &index), look_up(book.high, book.n, &index)};
    UNROLL(8)
    for (int p = 0; p < PLACES; p++) {
        __m512i u = MAPPED(fours[p / 4], one_map(map_of_code(p % 4)), OFFSET + 8);
        __mmask64 negative = _mm512_test_epi8_mask(signs, bytes(1 << p));
        w->u[p] = _mm512_mask_sub_epi8(u, negative, bytes(2 * OFFSET), u);
    }
}

// ---- products -------------------------------------------------------------------------------------------------------

// Rows of weights that share a register.
INLINE int rows_together(int type) { return type == TYPE_IQ3_XXS || type == TYPE_IQ3_S ? 1 : 2; }

INLINE __m512 times(__m512i sums, __m512 scale, const float *of_row, __m512 to) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(scale, _mm512_load_ps(of_row)), to);
}

// Adds the products of a superblock.
INLINE __m512 add_books(int type, const BookWeights *w, const BookActivations *a, __m512 sum) {
    if (rows_together(type) == 1) {
        __m512i dot = _mm512_load_si512(a->halves);
        UNROLL(4)
        for (int i = 0; i < 4; i++) dot = _mm512_dpbusd_epi32(dot, w->u[i], _mm512_load_si512(a->q[2 * i]));
        return times(dot, w->scale, a->scale, sum);
    }
    __m512i dot = _mm512_load_si512(a->blocks), second = _mm512_load_si512(a->seconds);
    UNROLL(8)
    for (int p = 0; p < PLACES; p++) dot = _mm512_dpbusd_epi32(dot, w->u[p], load_both(a->q[place_of(p)]));
    if (!scales_16(type)) return times(dot, w->scale, a->scale, sum);
    UNROLL(8)
    for (int p = 0; p < PLACES; p++) second = _mm512_dpbusd_epi32(second, w->u[p], load_both(a->second[place_of(p)]));
    sum = times(_mm512_sub_epi32(dot, second), w->scale, a->scale, sum);
    return times(second, w->second, a->scale, sum);
}

// Multiplies F rows of weights, `apart` rows apart, by C rows of activations; F and C are constants in every copy.
INLINE void multiply_rows(int type, const Tensor *t, int f, int F, int apart, const BookActivations *a, size_t a_stride,
                          int C, float *y, size_t y_stride, bool add) {
    const uint8_t *row = (const uint8_t *)t->data + (size_t)f * t->row_bytes;
    const size_t block_bytes = superblock_bytes(type), row_step = (size_t)apart * t->row_bytes;
    const int together = rows_together(type), n = t->n_in / SUPERBLOCK;
    __m512 sum[STREAMS][MOST_ROWS];
    UNROLL(4)
    for (int i = 0; i < F; i += together) UNROLL(4)
    for (int c = 0; c < C; c++) sum[i][c] = _mm512_setzero_ps();
    for (int s = 0; s < n; s++, a++, row += block_bytes) UNROLL(4)
    for (int i = 0; i < F; i += together) {
        const uint8_t *p = row + (size_t)i * row_step, *other = F > 1 ? p + row_step : p;
        for (int k = 0; k < together && i + k < F; k++)
            for (size_t at = 0; at < block_bytes; at += 64) {
                __builtin_prefetch(p + (size_t)k * row_step + FAR + at, 0, 2);
                __builtin_prefetch(p + (size_t)k * row_step + NEAR + at, 0, 3);
            }
        BookWeights w;
        if (together == 1) load_iq3(type, p, &w);
        else load_iq2(type, p, other, &w);
        UNROLL(4)
        for (int c = 0; c < C; c++) sum[i][c] = add_books(type, &w, a + (size_t)c * a_stride, sum[i][c]);
    }
    UNROLL(4)
    for (int i = 0; i < F; i++) UNROLL(4)
    for (int c = 0; c < C; c++) {
        __m512 all = sum[i / together * together][c];
        __mmask16 own = together == 1 ? 0xffff : i % 2 ? 0xff00 : 0x00ff;
        put_product(t, f + i * apart, _mm512_mask_reduce_add_ps(own, all), y + (size_t)c * y_stride, add);
    }
}

INLINE void multiply_features(int type, const Tensor *t, int first, int last, const BookActivations *a, size_t a_stride,
                              int C, float *y, size_t y_stride, bool add) {
    const int F = C == 1 ? STREAMS : 2;
    int apart = (last - first) / F, f = first;
    for (; f < first + apart; f++) multiply_rows(type, t, f, F, apart, a, a_stride, C, y, y_stride, add);
    for (f = first + F * apart; f < last; f++) multiply_rows(type, t, f, 1, 1, a, a_stride, C, y, y_stride, add);
}

const MatrixKernel *cpu_vnni_books(int type) {
    static const MatrixKernel kernel = INT8_ROWS_KERNEL(pack);
    return rows_function(type, 1) ? &kernel : NULL;
}
