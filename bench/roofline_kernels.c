// bench/roofline_kernels.c: the loops that measure the ceilings (see roofline.h). Each is compiled for its instruction
// set and chosen by CPUID at run time, so that one binary has all of them.
#include "bench/roofline.h"

#include "cpu/backend.h"

#include <string.h>

// 16 bytes per load, on any architecture: that is enough to be limited by memory and not by the load ports.
typedef uint64_t Pair __attribute__((vector_size(16)));

// Prefetches into the L2 cache `ahead` bytes ahead, and into the L1 cache half as far ahead.
uint64_t roofline_read_loop(const void *data, size_t stride, size_t part, int streams, size_t ahead) {
    Pair a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t at = 0; at < part; at += 256)
        for (int s = 0; s < streams; s++) {
            const char *p = (const char *)data + (size_t)s * stride + at;
            for (int line = 0; line < 4; line++, p += 64) {
                const Pair *v = (const Pair *)p;
                if (ahead) __builtin_prefetch(p + ahead, 0, 2), __builtin_prefetch(p + ahead / 2, 0, 3);
                a += v[0], b += v[1], c += v[2], d += v[3];
            }
        }
    a += b + c + d;
    return a[0] + a[1];
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

// Reads a bit of CPUID leaf 7, for features that the backends do not query separately.
static bool cpuid_7(unsigned subleaf, bool ecx, int bit) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= subleaf && __get_cpuid_count(7, subleaf, &a, &b, &c, &d) &&
           ((ecx ? c : a) >> bit & 1);
}

// Twelve independent sums hide the latency of two instructions per cycle; with the factors f and g they fit into AVX2's
// 16 registers. DO(x) updates one sum. The empty asm statement of HIDE keeps the compiler from merging equal sums.
#define TWELVE(DO) DO(x0) DO(x1) DO(x2) DO(x3) DO(x4) DO(x5) DO(x6) DO(x7) DO(x8) DO(x9) DO(xa) DO(xb)
#define FLOP_LOOP(name, features, Vector, F, G, OPERATIONS)                                                            \
    __attribute__((target(features))) static double name(long rounds) {                                                \
        Vector f = F, g = G, x0 = g, x1 = f, x2 = g, x3 = f, x4 = g, x5 = f, x6 = g, x7 = f, x8 = g, x9 = f, xa = g,   \
               xb = f;                                                                                                 \
        for (long i = 0; i < rounds; i++) {                                                                            \
            TWELVE(ADD_PRODUCT)                                                                                        \
            TWELVE(HIDE)                                                                                               \
        }                                                                                                              \
        return 12.0 * (OPERATIONS) * (double)rounds;                                                                   \
    }
#define HIDE(x) __asm__ volatile("" : "+v"(x));

// f32: x = x f + g converges to g / (1 - f), so it stays finite.
#define ADD_PRODUCT(x) x = _mm256_fmadd_ps(x, f, g);
FLOP_LOOP(loop_avx2, "avx2,fma", __m256, _mm256_set1_ps(0.9f), _mm256_set1_ps(0.1234f), 8 * 2)
#undef ADD_PRODUCT
#define ADD_PRODUCT(x) x = _mm512_fmadd_ps(x, f, g);
FLOP_LOOP(loop_avx512, "avx512f", __m512, _mm512_set1_ps(0.9f), _mm512_set1_ps(0.1234f), 16 * 2)
#undef ADD_PRODUCT

// int8 with vpmaddubsw and 16-bit sums, which wrap; int16 with vpmaddwd and 32-bit sums. x is also a factor: the
// compiler would move a product of constants out of the loop.
#define ADD_PRODUCT(x) x = _mm256_add_epi16(_mm256_maddubs_epi16(x, f), g);
FLOP_LOOP(loop_maddubs, "avx2", __m256i, _mm256_set1_epi32(0x35c90b71), _mm256_set1_epi32(0x5eb3926d), 32 * 2)
#undef ADD_PRODUCT
#define ADD_PRODUCT(x) x = _mm256_add_epi32(_mm256_madd_epi16(x, f), g);
FLOP_LOOP(loop_maddwd, "avx2", __m256i, _mm256_set1_epi32(0x35c90b71), _mm256_set1_epi32(0x5eb3926d), 16 * 2)
#undef ADD_PRODUCT

#if __GNUC__ >= 11 || __clang_major__ >= 12 // older compilers lack some of these instructions
#define NEW_UNITS

// int8 with vpdpbusd, whose sums wrap.
#define ADD_PRODUCT(x) x = _mm512_dpbusd_epi32(x, f, g);
FLOP_LOOP(loop_vnni, "avx512f,avx512vnni", __m512i, _mm512_set1_epi32(0x35c90b71), _mm512_set1_epi32(0x5eb3926d),
          64 * 2)
#undef ADD_PRODUCT
#define ADD_PRODUCT(x) x = _mm256_dpbusd_avx_epi32(x, f, g);
FLOP_LOOP(loop_avxvnni, "avx2,avxvnni", __m256i, _mm256_set1_epi32(0x35c90b71), _mm256_set1_epi32(0x5eb3926d), 32 * 2)
#undef ADD_PRODUCT

// bf16: the product of the pairs (1.7, -0.8) and (0.4, 0.9) is near 0, so that the sums stay finite.
#define BF16_PAIRS(bits) (__m512bh) _mm512_set1_epi32(bits)
#define ADD_PRODUCT(x) x = _mm512_dpbf16_ps(x, pairs_f, pairs_g);
__attribute__((target("avx512f,avx512bf16"))) static double loop_bf16(long rounds) {
    __m512bh pairs_f = BF16_PAIRS((int)0xbf4d3fda), pairs_g = BF16_PAIRS(0x3f663ecd);
    __m512 f = _mm512_set1_ps(0.9f), g = _mm512_set1_ps(0.1234f), x0 = g, x1 = f, x2 = g, x3 = f, x4 = g, x5 = f;
    __m512 x6 = g, x7 = f, x8 = g, x9 = f, xa = g, xb = f;
    for (long i = 0; i < rounds; i++) {
        TWELVE(ADD_PRODUCT)
        TWELVE(HIDE)
    }
    return 12.0 * 32 * 2 * (double)rounds;
}
#undef ADD_PRODUCT
#endif

#if !defined(QUILL_NO_AMX) // set by the makefile for compilers without AMX
typedef struct {           // Intel's layout of LDTILECFG's 64 bytes
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;
_Static_assert(sizeof(TileConfig) == 64, "LDTILECFG reads 64 bytes");

// Prepares 2 x 2 tiles of sums (16 x 16 of 32 bits each) and two tiles of each factor (16 rows of 64 bytes). The
// factors are noise: with zeros the multipliers use less power and may run faster than with a model. Each 16 bits of a
// factor, one bf16 or two int8, are base | (random & mask).
__attribute__((target("amx-tile"))) static void begin_tiles(unsigned mask, unsigned base) {
    TileConfig config = {.palette = 1};
    uint16_t noise[16 * 32];
    for (int t = 0; t < 8; t++) config.row_bytes[t] = 64, config.rows[t] = 16;
    for (unsigned i = 0, r = 1; i < ARRAY_LEN(noise); i++) {
        r = r * 1664525u + 1013904223u;
        noise[i] = (uint16_t)(base | (r >> 16 & mask));
    }
    // GCC 12's intrinsics declare only 8 of the bytes that they read; this keeps the stores of the others.
    __asm__ volatile("" : : "r"(&config), "r"(noise) : "memory");
    _tile_loadconfig(&config);
    _tile_loadd(4, noise, 64);
    _tile_loadd(5, noise, 64);
    _tile_loadd(6, noise, 64);
    _tile_loadd(7, noise, 64);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

__attribute__((target("amx-tile,amx-bf16"))) static double loop_amx(long rounds) {
    begin_tiles(0x80ff, 0x3f00); // bf16 from 0.5 to 2, both signs
    for (long i = 0; i < rounds; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release(); // a core with tiles in use runs at a lower clock
    return 4.0 * 16 * 16 * 32 * 2 * (double)rounds;
}

__attribute__((target("amx-tile,amx-int8"))) static double loop_amx_int8(long rounds) {
    begin_tiles(0xffff, 0);
    for (long i = 0; i < rounds; i++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
    return 4.0 * 16 * 16 * 64 * 2 * (double)rounds;
}
#endif

FlopLoop *roofline_flop_loop(const char *unit) {
    if (strcmp(unit, "avx2") == 0) return cpu_has_isa("avx2") ? loop_avx2 : NULL;
    if (strcmp(unit, "maddubs") == 0) return cpu_has_isa("avx2") ? loop_maddubs : NULL;
    if (strcmp(unit, "maddwd") == 0) return cpu_has_isa("avx2") ? loop_maddwd : NULL;
    if (strcmp(unit, "avx512") == 0) return cpu_has_isa("avx512") ? loop_avx512 : NULL;
#if defined(NEW_UNITS)
    if (strcmp(unit, "vnni") == 0) return cpu_has_isa("avx512") && cpuid_7(0, true, 11) ? loop_vnni : NULL;
    if (strcmp(unit, "avxvnni") == 0) return cpu_has_isa("avx2") && cpuid_7(1, false, 4) ? loop_avxvnni : NULL;
    if (strcmp(unit, "avx512bf16") == 0) return cpu_has_isa("avx512") && cpuid_7(1, false, 5) ? loop_bf16 : NULL;
#endif
#if !defined(QUILL_NO_AMX)
    if (strcmp(unit, "amx") == 0) return cpu_has_isa("amx") ? loop_amx : NULL;
    if (strcmp(unit, "amxint8") == 0) return cpu_has_isa("amx") ? loop_amx_int8 : NULL;
#endif
    return NULL;
}
#else
FlopLoop *roofline_flop_loop(const char *unit) {
    (void)unit;
    return NULL;
}
#endif
