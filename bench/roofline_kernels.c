// bench/roofline_kernels.c: the loops behind the ceilings (see roofline.h), each built for its own instruction set and
// chosen by CPUID, so that one binary carries them all.
#include "bench/roofline.h"

#include "cpu/backend.h"
#include "cpu/cpu.h"

#include <string.h>

// Sixteen bytes a load, on any architecture: memory is the limit long before the load ports are.
typedef uint64_t Pair __attribute__((vector_size(16)));

uint64_t roofline_read_loop(const void *data, size_t n, int streams) {
    enum { AHEAD = 2048 }; // bytes; what the hardware's own prefetchers leave over
    size_t part = n / (size_t)streams;
    Pair a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t at = 0; at < part; at += 256)
        for (int s = 0; s < streams; s++) {
            const char *p = (const char *)data + (size_t)s * part + at;
            for (int line = 0; line < 4; line++, p += 64) {
                const Pair *v = (const Pair *)p;
                __builtin_prefetch(p + AHEAD);
                a += v[0], b += v[1], c += v[2], d += v[3];
            }
        }
    a += b + c + d;
    return a[0] + a[1];
}

#if defined(__x86_64__)
#include <immintrin.h>

// Twelve sums hide the latency of two multiply-adds a cycle; with the two factors they fill AVX2's registers. x = x f +
// g stays near g / (1 - f).
__attribute__((target("avx2,fma"))) static double loop_avx2(long rounds) {
    __m256 f = _mm256_set1_ps(0.9f), g = _mm256_set1_ps(0.1234f), x0 = g, x1 = f, x2 = g, x3 = f, x4 = g, x5 = f;
    __m256 x6 = g, x7 = f, x8 = g, x9 = f, xa = g, xb = f;
    for (long i = 0; i < rounds; i++) {
        x0 = _mm256_fmadd_ps(x0, f, g), x1 = _mm256_fmadd_ps(x1, f, g), x2 = _mm256_fmadd_ps(x2, f, g);
        x3 = _mm256_fmadd_ps(x3, f, g), x4 = _mm256_fmadd_ps(x4, f, g), x5 = _mm256_fmadd_ps(x5, f, g);
        x6 = _mm256_fmadd_ps(x6, f, g), x7 = _mm256_fmadd_ps(x7, f, g), x8 = _mm256_fmadd_ps(x8, f, g);
        x9 = _mm256_fmadd_ps(x9, f, g), xa = _mm256_fmadd_ps(xa, f, g), xb = _mm256_fmadd_ps(xb, f, g);
        __asm__ volatile("" : "+x"(x0), "+x"(x1), "+x"(x2), "+x"(x3), "+x"(x4), "+x"(x5)); // no sum is another's twin
        __asm__ volatile("" : "+x"(x6), "+x"(x7), "+x"(x8), "+x"(x9), "+x"(xa), "+x"(xb));
    }
    return 12.0 * 8 * 2 * (double)rounds;
}

__attribute__((target("avx512f"))) static double loop_avx512(long rounds) {
    __m512 f = _mm512_set1_ps(0.9f), g = _mm512_set1_ps(0.1234f), x0 = g, x1 = f, x2 = g, x3 = f, x4 = g, x5 = f;
    __m512 x6 = g, x7 = f, x8 = g, x9 = f, xa = g, xb = f;
    for (long i = 0; i < rounds; i++) {
        x0 = _mm512_fmadd_ps(x0, f, g), x1 = _mm512_fmadd_ps(x1, f, g), x2 = _mm512_fmadd_ps(x2, f, g);
        x3 = _mm512_fmadd_ps(x3, f, g), x4 = _mm512_fmadd_ps(x4, f, g), x5 = _mm512_fmadd_ps(x5, f, g);
        x6 = _mm512_fmadd_ps(x6, f, g), x7 = _mm512_fmadd_ps(x7, f, g), x8 = _mm512_fmadd_ps(x8, f, g);
        x9 = _mm512_fmadd_ps(x9, f, g), xa = _mm512_fmadd_ps(xa, f, g), xb = _mm512_fmadd_ps(xb, f, g);
        __asm__ volatile("" : "+v"(x0), "+v"(x1), "+v"(x2), "+v"(x3), "+v"(x4), "+v"(x5));
        __asm__ volatile("" : "+v"(x6), "+v"(x7), "+v"(x8), "+v"(x9), "+v"(xa), "+v"(xb));
    }
    return 12.0 * 16 * 2 * (double)rounds;
}

#if defined(QUILL_AMX)
typedef struct { // Intel's layout of LDTILECFG's 64 bytes
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;
_Static_assert(sizeof(TileConfig) == 64, "LDTILECFG reads 64 bytes");

// 2 x 2 tiles of sums, 16 x 16 floats each; two tiles of each factor, 16 rows of 32 bf16. The factors are noise, not
// zeros: multipliers that see zeros draw less power and may run faster than any model will.
__attribute__((target("amx-tile,amx-bf16"))) static double loop_amx(long rounds) {
    TileConfig config = {.palette = 1};
    uint16_t noise[16 * 32];
    for (int t = 0; t < 8; t++) config.row_bytes[t] = 64, config.rows[t] = 16;
    for (unsigned i = 0, r = 1; i < ARRAY_LEN(noise); i++) {
        r = r * 1664525u + 1013904223u;
        noise[i] = (uint16_t)(0x3f00 | (r >> 16 & 0x80ff)); // 0.5 to 2, either sign
    }
    __asm__ volatile("" : : "r"(&config), "r"(noise) : "memory"); // GCC 12's intrinsics name 8 of the bytes they read
    _tile_loadconfig(&config);
    _tile_loadd(4, noise, 64);
    _tile_loadd(5, noise, 64);
    _tile_loadd(6, noise, 64);
    _tile_loadd(7, noise, 64);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (long i = 0; i < rounds; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release(); // a thread that keeps its tiles clocks lower
    return 4.0 * 16 * 16 * 32 * 2 * (double)rounds;
}

#endif

FlopLoop *roofline_flop_loop(const char *isa) {
    if (!cpu_has_isa(isa)) return NULL;
    if (strcmp(isa, "avx2") == 0) return loop_avx2;
    if (strcmp(isa, "avx512") == 0) return loop_avx512;
#if defined(QUILL_AMX)
    if (strcmp(isa, "amx") == 0) return loop_amx;
#endif
    return NULL;
}
#else
FlopLoop *roofline_flop_loop(const char *isa) {
    (void)isa;
    return NULL;
}
#endif
