// cpu/simd.h: vectors of VL floats with the operations that the CPU kernels need, for the instruction set of the
// translation unit.
//
// QUILL_SIMD is 512 (AVX-512 F, BW, DQ, VL), 256 (AVX2, FMA, F16C) or 0: the compiler's vector types, which it maps to
// the target's instructions (SSE2, NEON, ...). Files that include this are compiled with -ffp-contract=fast: products
// and sums are fused if the target can.
#ifndef QUILL_SIMD_H
#define QUILL_SIMD_H

#include "formats/types.h"
#include <math.h>

#if QUILL_SIMD
#include <immintrin.h>
#endif

#if QUILL_SIMD == 512
enum { VL = 16 };
#elif QUILL_SIMD == 256
enum { VL = 8 };
#else
enum { VL = 4 };
#endif

#define INLINE static inline __attribute__((always_inline))

// Put before a loop of up to n rounds whose number is a constant after inlining: unrolls it completely, so that arrays
// indexed in it stay in registers. gcc treats n as a limit; clang would treat it as the number of rounds and not unroll
// a shorter loop, so it gets unroll(full).
#if defined(__clang__)
#define UNROLL(n) _Pragma("clang loop unroll(full)")
#else
#define UNROLL_TEXT(text) _Pragma(#text)
#define UNROLL(n) UNROLL_TEXT(GCC unroll n)
#endif

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef float v4f __attribute__((vector_size(16)));

INLINE vf vload(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void vstore(float *p, vf v) { memcpy(p, &v, sizeof v); }
INLINE vf vset(float x) { return x - (vf){0}; }
INLINE vf vselect(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }

#if QUILL_SIMD == 512
INLINE vf vmax(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf vmin(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vi vmax_bits(vi a, vi b) { return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b); }
INLINE float vsum(vf a) { return _mm512_reduce_add_ps((__m512)a); }
INLINE vf vload_half(const uint16_t *p) {
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
INLINE vf vload_bf16(const uint16_t *p) {
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16);
}
INLINE void vstore_half(uint16_t *p, vf v) {
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif QUILL_SIMD == 256
INLINE vf vmax(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf vmin(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vi vmax_bits(vi a, vi b) { return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b); }
INLINE float vsum(vf a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128((__m256)a), _mm256_extractf128_ps((__m256)a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
INLINE vf vload_half(const uint16_t *p) {
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
INLINE vf vload_bf16(const uint16_t *p) {
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16);
}
INLINE void vstore_half(uint16_t *p, vf v) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
INLINE vf vmax(vf a, vf b) { return vselect(a > b, a, b); }
INLINE vf vmin(vf a, vf b) { return vselect(a < b, a, b); }
INLINE vi vmax_bits(vi a, vi b) { return (vi)vselect(a > b, (vf)a, (vf)b); }
INLINE float vsum(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }
#if defined(__aarch64__)
typedef __fp16 v4h __attribute__((vector_size(8)));
INLINE vf vload_half(const uint16_t *p) {
    v4h h;
    memcpy(&h, p, sizeof h);
    return __builtin_convertvector(h, vf);
}
INLINE void vstore_half(uint16_t *p, vf v) {
    v4h h = __builtin_convertvector(v, v4h);
    memcpy(p, &h, sizeof h);
}
#else
INLINE vf vload_half(const uint16_t *p) {
    return (vf){half_float(p[0]), half_float(p[1]), half_float(p[2]), half_float(p[3])};
}
INLINE void vstore_half(uint16_t *p, vf v) {
    for (int i = 0; i < VL; i++) p[i] = float_half(v[i]);
}
#endif
INLINE vf vload_bf16(const uint16_t *p) {
    vi v = {p[0], p[1], p[2], p[3]};
    return (vf)(v << 16);
}
#endif

// Lane l has p[l % n]; n is a power of two from 2 on.
INLINE vf vrepeat(const float *p, int n) {
    if (n == VL) return vload(p);
#if QUILL_SIMD == 512
    if (n == 8) return (vf)_mm512_broadcast_f32x8(_mm256_loadu_ps(p));
    if (n == 4) return (vf)_mm512_broadcast_f32x4(_mm_loadu_ps(p));
    return (vf)_mm512_castpd_ps(_mm512_broadcastsd_pd(_mm_load_sd((const double *)(const void *)p)));
#elif QUILL_SIMD == 256
    if (n == 4) return (vf)_mm256_broadcast_ps((const __m128 *)(const void *)p);
    return (vf)_mm256_castpd_ps(_mm256_broadcast_sd((const double *)(const void *)p));
#else
    return (vf){p[0], p[1], p[0], p[1]};
#endif
}

// Lane l has v's lane l ^ d; d is a power of two below VL.
INLINE vf vswap(vf v, int d) {
#if QUILL_SIMD == 512
    if (d == 8) return (vf)_mm512_shuffle_f32x4((__m512)v, (__m512)v, 0x4e);
    if (d == 4) return (vf)_mm512_shuffle_f32x4((__m512)v, (__m512)v, 0xb1);
    return (vf)(d == 2 ? _mm512_permute_ps((__m512)v, 0x4e) : _mm512_permute_ps((__m512)v, 0xb1));
#elif QUILL_SIMD == 256
    if (d == 4) return (vf)_mm256_permute2f128_ps((__m256)v, (__m256)v, 1);
    return (vf)(d == 2 ? _mm256_permute_ps((__m256)v, 0x4e) : _mm256_permute_ps((__m256)v, 0xb1));
#else
    return d == 2 ? (vf){v[2], v[3], v[0], v[1]} : (vf){v[1], v[0], v[3], v[2]};
#endif
}

// Lane l gets the sum of lanes l and l ^ d: of a if (l & d) == 0, otherwise of b.
INLINE vf vfold(vf a, vf b, int d) {
#if QUILL_SIMD == 512
    __mmask16 set = d == 8 ? 0xff00 : d == 4 ? 0xf0f0 : d == 2 ? 0xcccc : 0xaaaa;
    vf own = (vf)_mm512_mask_blend_ps(set, (__m512)a, (__m512)b);
    vf other = (vf)_mm512_mask_blend_ps(set, (__m512)b, (__m512)a);
#else
    vi set;
    for (int i = 0; i < VL; i++) set[i] = i & d ? -1 : 0;
    vf own = vselect(set, b, a), other = vselect(set, a, b);
#endif
    return own + vswap(other, d);
}

INLINE void vstore_bf16(uint16_t *p, vf v) { // to nearest, ties to even; NaN stays NaN
    for (int i = 0; i < VL; i++) p[i] = float_bf16(v[i]);
}

// The larger of `top` >= 0 and |x|, lane by lane. Bits of absolute values compare like the values, and NaN is above
// all.
INLINE vf vlargest(vf top, vf x) { return (vf)vmax_bits((vi)top, (vi)x & 0x7fffffff); }
// The largest lane of some that vlargest gave.
INLINE float vlargest_of(vf top) {
    for (int d = VL / 2; d > 0; d /= 2) top = vlargest(top, vswap(top, d));
    return top[0];
}

// e^x to about 2 units in the last place; below -87 it is about 1e-38, above 88 about 1e38. NaN stays NaN: where one
// operand is NaN, vmax and vmin give the second.
INLINE vf vexp(vf x) {
    x = vmin(vset(88.0f), vmax(vset(-87.0f), x));
    vf t = x * 1.44269504f + 0x1.8p23f; // the nearest integer lands in the low bits
    vf n = t - 0x1.8p23f;
    vf r = x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f; // ln 2 in two parts, the first with bits to spare
    vf p = vset(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return (vf)((vi)p + ((vi)t << 23));
}

// cap * tanh(x / cap)
INLINE vf vcap(vf x, float cap) { return cap - 2 * cap / (vexp(x * (2 / cap)) + 1.0f); }

// The factors by which RMSNorm scales each of C rows of n elements; C <= 4 is a constant. The order of a row's sum does
// not depend on C.
INLINE void norm_scales(const float *x, size_t x_stride, int C, int n, float eps, float *scales) {
    vf sums[4] = {0};
    int whole = n / VL * VL;
    for (int i = 0; i < whole; i += VL) UNROLL(4)
    for (int c = 0; c < C; c++) sums[c] += vload(x + (size_t)c * x_stride + i) * vload(x + (size_t)c * x_stride + i);
    UNROLL(4)
    for (int c = 0; c < C; c++, x += x_stride) {
        float sum = vsum(sums[c]);
        for (int i = whole; i < n; i++) sum += x[i] * x[i];
        scales[c] = 1 / sqrtf(sum / (float)n + eps);
    }
}

// Selects four elements of a (indices 0 to 3) and b (4 to 7) by constant indices.
#if defined(__clang__)
#define SHUFFLE4(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t v4i __attribute__((vector_size(16)));
#define SHUFFLE4(a, b, ...) __builtin_shuffle(a, b, (v4i){__VA_ARGS__})
#endif

// Transposes 4 x 4 floats (or any 32-bit values): rows in, columns out.
INLINE void transpose4(v4f r[4]) {
    v4f a = SHUFFLE4(r[0], r[1], 0, 4, 1, 5), b = SHUFFLE4(r[2], r[3], 0, 4, 1, 5);
    v4f c = SHUFFLE4(r[0], r[1], 2, 6, 3, 7), d = SHUFFLE4(r[2], r[3], 2, 6, 3, 7);
    r[0] = SHUFFLE4(a, b, 0, 1, 4, 5);
    r[1] = SHUFFLE4(a, b, 2, 3, 6, 7);
    r[2] = SHUFFLE4(c, d, 0, 1, 4, 5);
    r[3] = SHUFFLE4(c, d, 2, 3, 6, 7);
}

#endif
