// scripts/train_amx.cpp: what training spends its time in, on the AMX unit of one core or in its AVX-512 BF16
// registers: causal attention within documents, forward and backward, weight gradients, the loss with its gradient, SwiGLU. train_amx.py compiles it and
// calls it; train_model.py's plain functions of the same names say what each must give. bf16 in and out, sums in f32.
#include <cstdint>
#include <cstring>
#include <algorithm>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>
#include <cmath>
typedef uint16_t bf;
enum { HD = 64 };

#ifdef __AMX_BF16__
// Tiles: 0..3 sums of 16x16 f32, 4 and 5 left operands, 6 and 7 right ones, each 16 rows of 64 bytes.
static void tiles_on() {
    static thread_local bool on = false;
    if (on) return;
    syscall(SYS_arch_prctl, 0x1023, 18); // ARCH_REQ_XCOMP_PERM, tile data
    alignas(64) uint8_t cfg[64] = {1};
    for (int t = 0; t < 8; t++) {
        cfg[16 + 2 * t] = 64;
        cfg[48 + t] = 16;
    }
    _tile_loadconfig(cfg);
}
// c (32, 32) f32 = or += a (32, depth) bf16 x b, whose rows are pairs of depth: (depth / 2, 32 pairs).
// Strides in bytes.
static void block(float *c, size_t sc, const void *a, size_t sa, const void *b, size_t sb, int depth, bool add) {
    char *C = (char *)c;
    const char *A = (const char *)a, *B = (const char *)b;
    if (add) {
        _tile_loadd(0, C, sc);
        _tile_loadd(1, C + 64, sc);
        _tile_loadd(2, C + 16 * sc, sc);
        _tile_loadd(3, C + 16 * sc + 64, sc);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int k = 0; k < depth; k += 32) {
        _tile_loadd(4, A + 2 * k, sa);
        _tile_loadd(5, A + 16 * sa + 2 * k, sa);
        _tile_loadd(6, B + k / 2 * sb, sb);
        _tile_loadd(7, B + k / 2 * sb + 64, sb);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, C, sc);
    _tile_stored(1, C + 64, sc);
    _tile_stored(2, C + 16 * sc, sc);
    _tile_stored(3, C + 16 * sc + 64, sc);
}
// c (32, 32) f32 += a x b over `pairs` pairs of depth, in slabs: a is two blocks of 16 rows, b two of 16 columns,
// `apart` pairs from each other; of each row of a 16 pairs lie together, of b each row of 16. A few lines are fetched
// ahead at each turn.
template <class Ahead>
static void slab(float *c, size_t stride, const uint32_t *a, const uint32_t *b, int apart, int pairs, Ahead ahead) {
    size_t sc = stride * 4;
    _tile_loadd(0, c, sc);
    _tile_loadd(1, c + 16, sc);
    _tile_loadd(2, c + 16 * stride, sc);
    _tile_loadd(3, c + 16 * stride + 16, sc);
    for (int i = 0; i < pairs * 16; i += 256) {
        ahead();
        _tile_loadd(4, a + i, 64);
        _tile_loadd(6, b + i, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + apart + i, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + apart + i, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, sc);
    _tile_stored(1, c + 16, sc);
    _tile_stored(2, c + 16 * stride, sc);
    _tile_stored(3, c + 16 * stride + 16, sc);
}
#else
// The same products in AVX-512 BF16 registers: eight rows of 32 sums at a time.
enum { ROWS = 8 };
static void tiles_on() {}
struct Sums {
    __m512 at[ROWS][2];
    void read(const float *c, size_t stride, bool add) {
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < 2; h++) at[r][h] = add ? _mm512_loadu_ps(c + r * stride + 16 * h) : _mm512_setzero_ps();
    }
    void write(float *c, size_t stride) const {
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < 2; h++) _mm512_storeu_ps(c + r * stride + 16 * h, at[r][h]);
    }
    // One pair of depth: a[r * stride] of each row, 32 columns of b.
    void add(const uint32_t *a, size_t stride, const void *b0, const void *b1) {
        __m512bh x = (__m512bh)_mm512_loadu_si512(b0), y = (__m512bh)_mm512_loadu_si512(b1);
        for (int r = 0; r < ROWS; r++) {
            __m512bh w = (__m512bh)_mm512_set1_epi32((int)a[r * stride]);
            at[r][0] = _mm512_dpbf16_ps(at[r][0], w, x);
            at[r][1] = _mm512_dpbf16_ps(at[r][1], w, y);
        }
    }
};
static void block(float *c, size_t sc, const void *a, size_t sa, const void *b, size_t sb, int depth, bool add) {
    for (int row = 0; row < 32; row += ROWS) {
        Sums sums;
        const char *A = (const char *)a + row * sa, *B = (const char *)b;
        sums.read(c + row * (sc / 4), sc / 4, add);
        for (int k = 0; k < depth / 2; k++, B += sb) sums.add((const uint32_t *)A + k, sa / 4, B, B + 64);
        sums.write(c + row * (sc / 4), sc / 4);
    }
}
template <class Ahead>
static void slab(float *c, size_t stride, const uint32_t *a, const uint32_t *b, int apart, int pairs, Ahead ahead) {
    for (int row = 0; row < 32; row += ROWS) {
        Sums sums;
        const uint32_t *A = a + row / 16 * apart + row % 16 * 16;
        sums.read(c + row * stride, stride, true);
        for (int i = 0; i < pairs * 16; i += 256) {
            if (!row) ahead();
            for (int k = 0; k < 16; k++) sums.add(A + i + k, 16, b + i + 16 * k, b + apart + i + 16 * k);
        }
        sums.write(c + row * stride, stride);
    }
}
#endif
// exp by 2^n times a polynomial; x <= 0 mostly. Error about 2e-7 relative... enough for bf16.
static inline __m512 exp16(__m512 x) {
    x = _mm512_max_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _mm512_set1_ps(-126.f));
    __m512 n = _mm512_roundscale_ps(x, 0), f = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(1.3333558e-3f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.6181291e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5504109e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022651e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f));
    return _mm512_scalef_ps(p, n);
}
static inline __m512 widen(const bf *x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x)), 16));
}
static inline void narrow(bf *to, __m512 x) { _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh(x)); }
// 16 columns of rows i and i + 1, as pairs.
static inline __m512i pair_up(const bf *x, size_t stride) {
    __m512i a = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x));
    __m512i b = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(x + stride)));
    return _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
}
// One head of one document: rows n, padded to r = a multiple of 32, copied out of a (n, stride) matrix.
static void rows_of(bf *to, const bf *from, size_t stride, int n, int r) {
    for (int i = 0; i < n; i++) memcpy(to + i * HD, from + i * stride, HD * 2);
    memset(to + n * HD, 0, (size_t)(r - n) * HD * 2);
}
// Pairs along the rows: (r / 2, HD pairs); rows 2i and 2i + 1 interleave.
static void pairs_of_rows(uint32_t *to, const bf *x, int r) {
    for (int i = 0; i < r; i += 2)
        for (int d = 0; d < HD; d += 16) {
            _mm512_storeu_si512(to + i / 2 * HD + d, pair_up(x + i * HD + d, HD));
        }
}
// Pairs along the columns, transposed: (HD / 2, r pairs).
static void pairs_of_columns(uint32_t *to, const bf *x, int r) {
    const uint32_t *w = (const uint32_t *)x;
    __m512i at = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                    _mm512_set1_epi32(HD / 2));
    for (int i = 0; i < r; i += 16)
        for (int d = 0; d < HD / 2; d++)
            _mm512_storeu_si512(to + (size_t)d * r + i, _mm512_i32gather_epi32(at, w + i * (HD / 2) + d, 4));
}
// (HD, r) from (r, HD), by way of the pairs of columns.
static void transposed(bf *to, const uint32_t *pairs, int r) {
    for (int d = 0; d < HD / 2; d++)
        for (int i = 0; i < r; i += 16) {
            __m512i p = _mm512_loadu_si512(pairs + (size_t)d * r + i);
            _mm256_storeu_si256((__m256i *)(to + (size_t)(2 * d) * r + i), _mm512_cvtepi32_epi16(p));
            _mm256_storeu_si256((__m256i *)(to + (size_t)(2 * d + 1) * r + i),
                                _mm512_cvtepi32_epi16(_mm512_srli_epi32(p, 16)));
        }
}
struct Space {
    std::vector<char> mem;
    size_t used = 0;
    template <class T> T *take(size_t n) {
        T *p = (T *)(((uintptr_t)mem.data() + used + 63) & ~(uintptr_t)63);
        used += n * sizeof(T) + 64;
        return p;
    }
};
static thread_local Space space;

static void transpose16(uint32_t *to, const __m512i *r) {
    __m512i a[16], b[16];
    for (int i = 0; i < 8; i++) {
        a[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) {
            b[4 * i + 2 * j] = _mm512_unpacklo_epi64(a[4 * i + j], a[4 * i + 2 + j]);
            b[4 * i + 2 * j + 1] = _mm512_unpackhi_epi64(a[4 * i + j], a[4 * i + 2 + j]);
        }
    for (int j = 0; j < 4; j++) { // b[4i + j]: column 4l + j of rows 4i.., in lane l
        __m512i x = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88), y = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd);
        __m512i z = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88),
                w = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd);
        _mm512_store_si512(to + (0 + j) * 16, _mm512_shuffle_i32x4(x, z, 0x88));
        _mm512_store_si512(to + (8 + j) * 16, _mm512_shuffle_i32x4(x, z, 0xdd));
        _mm512_store_si512(to + (4 + j) * 16, _mm512_shuffle_i32x4(y, w, 0x88));
        _mm512_store_si512(to + (12 + j) * 16, _mm512_shuffle_i32x4(y, w, 0xdd));
    }
}
// dw (outs, ins) f32 += g (n, outs)^T x (n, ins). n, outs and ins are multiples of 32.
extern "C" void add_outer(float *dw, const bf *g, const bf *x, int n, int outs, int ins) {
    enum {
        DEPTH = 256,
        BLOCK = DEPTH / 2 * 16 + 16
    }; // a slab of g lies in L1, x in L2; + 16: no two blocks in one set
    tiles_on();
    space.used = 0;
    space.mem.resize(std::max(space.mem.size(), (size_t)(BLOCK / 16) * (ins + 32) * 4 + 4096));
    uint32_t *xp = space.take<uint32_t>((size_t)ins / 16 * BLOCK), *gp = space.take<uint32_t>(2 * BLOCK);
    for (int from = 0; from < n; from += DEPTH) {
        int depth = std::min<int>(DEPTH, n - from);
        for (int i = 0; i < depth; i += 2)
            for (int c = 0; c < ins; c += 16)
                _mm512_store_si512(xp + (size_t)c / 16 * BLOCK + i * 8, pair_up(x + (size_t)(from + i) * ins + c, ins));
        for (int o = 0; o < outs; o += 32) {
            for (int half = 0; half < 2; half++)
                for (int i = 0; i < depth; i += 32) {
                    __m512i r[16];
                    for (int a = 0; a < 16; a++)
                        r[a] = pair_up(g + (size_t)(from + i + 2 * a) * outs + o + 16 * half, outs);
                    transpose16(gp + half * BLOCK + i * 8, r);
                }
            for (int c = 0; c < ins; c += 32) {
                // The next slab of g, a line a row: its stride is too long for the hardware to guess.
                const bf *next = g + (size_t)from * outs + std::min(o + 32, outs - 32);
                int row = c / 32 * 64;
                slab(dw + (size_t)o * ins + c, ins, gp, xp + (size_t)c / 16 * BLOCK, BLOCK, depth / 2, [&] {
                    for (int end = std::min(row + 4, depth); row < end; row++)
                        _mm_prefetch((const char *)(next + (size_t)row * outs), _MM_HINT_T1);
                });
            }
        }
    }
}

// logits (n, vocab) become the gradient of the weighted sum of the losses. vocab is a multiple of 16.
extern "C" void loss_and_gradient(bf *logits, const int64_t *target, const float *weight, float *loss, int n,
                                  int vocab) {
    std::vector<float> e(vocab);
    for (int i = 0; i < n; i++) {
        bf *x = logits + (size_t)i * vocab;
        __m512 top = _mm512_set1_ps(-1e30f), sum = _mm512_setzero_ps();
        for (int j = 0; j < vocab; j += 16) top = _mm512_max_ps(top, widen(x + j));
        float most = _mm512_reduce_max_ps(top);
        for (int j = 0; j < vocab; j += 16) {
            __m512 y = exp16(_mm512_sub_ps(widen(x + j), _mm512_set1_ps(most)));
            _mm512_storeu_ps(&e[j], y);
            sum = _mm512_add_ps(sum, y);
        }
        float total = _mm512_reduce_add_ps(sum), w = weight[i], at_target;
        uint32_t bits = (uint32_t)x[target[i]] << 16;
        memcpy(&at_target, &bits, 4);
        loss[i] = most + logf(total) - at_target;
        float p = e[target[i]];
        e[target[i]] = p - total;
        for (int j = 0; j < vocab; j += 16)
            narrow(x + j, _mm512_mul_ps(_mm512_loadu_ps(&e[j]), _mm512_set1_ps(w / total)));
    }
}
static inline __m512 sigmoid(__m512 x) {
    return _mm512_rcp14_ps(_mm512_add_ps(_mm512_set1_ps(1), exp16(_mm512_sub_ps(_mm512_setzero_ps(), x))));
}
// x (n, 2 * ffn), gates first: out (n, ffn). ffn is a multiple of 16.
extern "C" void swiglu(const bf *x, int n, int ffn, bf *out) {
    for (int i = 0; i < n; i++, x += 2 * ffn, out += ffn)
        for (int j = 0; j < ffn; j += 16) {
            __m512 g = widen(x + j);
            narrow(out + j, _mm512_mul_ps(_mm512_mul_ps(g, sigmoid(g)), widen(x + ffn + j)));
        }
}
extern "C" void swiglu_back(const bf *grad, const bf *x, int n, int ffn, bf *dx) {
    for (int i = 0; i < n; i++, x += 2 * ffn, dx += 2 * ffn, grad += ffn)
        for (int j = 0; j < ffn; j += 16) {
            __m512 g = widen(x + j), u = widen(x + ffn + j), d = widen(grad + j), s = sigmoid(g),
                   gs = _mm512_mul_ps(g, s);
            narrow(dx + ffn + j, _mm512_mul_ps(d, gs));
            narrow(dx + j,
                   _mm512_mul_ps(_mm512_mul_ps(d, u), _mm512_fmadd_ps(gs, _mm512_sub_ps(_mm512_set1_ps(1), s), s)));
        }
}

// q (n, heads, 64), k and v (n, kv, 64): returns the output, like q, and log-sum-exp (heads, n).
extern "C" void attend(const bf *q, const bf *k, const bf *v, const int *cut, int docs, int N, int H, int K, bf *out,
                       float *lse) {
    tiles_on();
    int G = H / K;
    const __m512 scale = _mm512_set1_ps(0.125f);
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (int doc = 0; doc < docs; doc++) {
        int base = cut[doc], n = cut[doc + 1] - base, r = (n + 31) & ~31;
        if (n <= 0) continue;
        space.used = 0;
        space.mem.resize(std::max(space.mem.size(), (size_t)r * (HD * 2 * 6 + 64 * 4 + 200) + 65536));
        bf *x = space.take<bf>(r * HD);
        uint32_t *kt = space.take<uint32_t>(r * HD / 2), *vp = space.take<uint32_t>(r * HD / 2);
        float *s = space.take<float>(32 * r), *o = space.take<float>(32 * HD);
        bf *p = space.take<bf>(32 * r);
        for (int kh = 0; kh < K; kh++) {
            rows_of(x, k + ((size_t)base * K + kh) * HD, K * HD, n, r);
            pairs_of_columns(kt, x, r);
            rows_of(x, v + ((size_t)base * K + kh) * HD, K * HD, n, r);
            pairs_of_rows(vp, x, r);
            for (int h = kh * G; h < kh * G + G; h++) {
                rows_of(x, q + ((size_t)base * H + h) * HD, H * HD, n, r);
                for (int i = 0; i < r; i += 32) {
                    int hi = i + 32;
                    for (int j = 0; j < hi; j += 32) block(s + j, 4 * r, x + i * HD, HD * 2, kt + j, 4 * r, HD, false);
                    float inv[32];
                    for (int a = 0; a < 32; a++) {
                        float *row = s + (size_t)a * r;
                        bf *pr = p + (size_t)a * r;
                        __m512 top = _mm512_set1_ps(-1e30f), sum = _mm512_setzero_ps();
                        for (int j = 0; j < hi; j += 16) {
                            __mmask16 m = _mm512_cmple_epi32_mask(_mm512_add_epi32(lane, _mm512_set1_epi32(j)),
                                                                  _mm512_set1_epi32(i + a));
                            __m512 y = _mm512_mask_mul_ps(_mm512_set1_ps(-1e30f), m, _mm512_loadu_ps(row + j), scale);
                            _mm512_storeu_ps(row + j, y);
                            top = _mm512_max_ps(top, y);
                        }
                        float mx = _mm512_reduce_max_ps(top);
                        for (int j = 0; j < hi; j += 16) {
                            __m512 e = exp16(_mm512_sub_ps(_mm512_loadu_ps(row + j), _mm512_set1_ps(mx)));
                            sum = _mm512_add_ps(sum, e);
                            narrow(pr + j, e);
                        }
                        float total = _mm512_reduce_add_ps(sum);
                        inv[a] = 1 / total;
                        if (i + a < n) lse[(size_t)h * N + base + i + a] = mx + logf(total);
                    }
                    for (int d = 0; d < HD; d += 32) block(o + d, HD * 4, p, 2 * r, vp + d, HD * 4, hi, false);
                    for (int a = 0; a < 32 && i + a < n; a++)
                        for (int d = 0; d < HD; d += 16)
                            narrow(out + ((size_t)(base + i + a) * H + h) * HD + d,
                                   _mm512_mul_ps(_mm512_loadu_ps(o + a * HD + d), _mm512_set1_ps(inv[a])));
                }
            }
        }
    }
}

// Transposed throughout: rows are keys, lanes are queries, so lse and delta are vectors along the lanes.
extern "C" void attend_back(const bf *g, const bf *q, const bf *k, const bf *v, const bf *out, const float *lse,
                            const int *cut, int docs, int N, int H, int K, bf *dq, bf *dk, bf *dv) {
    tiles_on();
    int G = H / K;
    const __m512 scale = _mm512_set1_ps(0.125f);
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (int doc = 0; doc < docs; doc++) {
        int base = cut[doc], n = cut[doc + 1] - base, r = (n + 31) & ~31;
        if (n <= 0) continue;
        space.used = 0;
        space.mem.resize(
            std::max(space.mem.size(), (size_t)r * (HD * 2 * 10 + HD * 4 * 3 + 2 * 128 + 3 * 64 + 64) + 65536));
        bf *x = space.take<bf>(r * HD), *kx = space.take<bf>(r * HD), *vx = space.take<bf>(r * HD),
           *kT = space.take<bf>(r * HD);
        uint32_t *qt = space.take<uint32_t>(r * HD / 2), *qp = space.take<uint32_t>(r * HD / 2);
        uint32_t *gt = space.take<uint32_t>(r * HD / 2), *gp = space.take<uint32_t>(r * HD / 2);
        float *fk = space.take<float>(r * HD), *fv = space.take<float>(r * HD), *fq = space.take<float>(HD * 32);
        float *s = space.take<float>(32 * 32), *t = space.take<float>(32 * 32);
        bf *p = space.take<bf>(32 * 32), *ds = space.take<bf>(32 * 32);
        uint32_t *dp = space.take<uint32_t>((size_t)r / 2 * 32);
        float *L = space.take<float>(r), *delta = space.take<float>(r);
        for (int kh = 0; kh < K; kh++) {
            rows_of(kx, k + ((size_t)base * K + kh) * HD, K * HD, n, r);
            rows_of(vx, v + ((size_t)base * K + kh) * HD, K * HD, n, r);
            pairs_of_columns(qt, kx, r);
            transposed(kT, qt, r);
            memset(fk, 0, (size_t)r * HD * 4);
            memset(fv, 0, (size_t)r * HD * 4);
            for (int h = kh * G; h < kh * G + G; h++) {
                rows_of(x, q + ((size_t)base * H + h) * HD, H * HD, n, r);
                pairs_of_columns(qt, x, r);
                pairs_of_rows(qp, x, r);
                rows_of(x, g + ((size_t)base * H + h) * HD, H * HD, n, r);
                pairs_of_columns(gt, x, r);
                pairs_of_rows(gp, x, r);
                for (int i = 0; i < r; i++) {
                    L[i] = i < n ? lse[(size_t)h * N + base + i] : 1e30f;
                    __m512 sum = _mm512_setzero_ps();
                    if (i < n)
                        for (int d = 0; d < HD; d += 16) {
                            sum = _mm512_fmadd_ps(widen(x + i * HD + d),
                                                  widen(out + ((size_t)(base + i) * H + h) * HD + d), sum);
                        }
                    delta[i] = _mm512_reduce_add_ps(sum);
                }
                for (int i = 0; i < r; i += 32) {      // queries
                    for (int j = 0; j <= i; j += 32) { // keys
                        block(s, 128, kx + j * HD, HD * 2, qt + i, 4 * r, HD, false);
                        block(t, 128, vx + j * HD, HD * 2, gt + i, 4 * r, HD, false);
                        for (int c = 0; c < 32; c += 16) {
                            __m512 l = _mm512_loadu_ps(L + i + c), de = _mm512_loadu_ps(delta + i + c);
                            __m512i at = _mm512_add_epi32(lane, _mm512_set1_epi32(i + c));
                            for (int a = 0; a < 32; a += 2) {
                                __m512i two[2];
                                for (int b = 0; b < 2; b++) {
                                    int w = (a + b) * 32 + c;
                                    __mmask16 m = _mm512_cmpge_epi32_mask(at, _mm512_set1_epi32(j + a + b));
                                    __m512 e = _mm512_maskz_mov_ps(
                                        m, exp16(_mm512_fmsub_ps(_mm512_loadu_ps(s + w), scale, l)));
                                    __m512 z = _mm512_mul_ps(_mm512_mul_ps(e, scale),
                                                             _mm512_sub_ps(_mm512_loadu_ps(t + w), de));
                                    __m256i zb = (__m256i)_mm512_cvtneps_pbh(z);
                                    narrow(p + w, e);
                                    _mm256_storeu_si256((__m256i *)(ds + w), zb);
                                    two[b] = _mm512_cvtepu16_epi32(zb);
                                }
                                _mm512_storeu_si512(dp + (size_t)(j + a) / 2 * 32 + c,
                                                    _mm512_or_si512(two[0], _mm512_slli_epi32(two[1], 16)));
                            }
                        }
                        for (int d = 0; d < HD; d += 32) {
                            block(fv + j * HD + d, HD * 4, p, 64, gp + i / 2 * HD + d, HD * 4, 32, true);
                            block(fk + j * HD + d, HD * 4, ds, 64, qp + i / 2 * HD + d, HD * 4, 32, true);
                        }
                    }
                    for (int d = 0; d < HD; d += 32)
                        block(fq + d * 32, 128, kT + (size_t)d * r, 2 * r, dp, 128, i + 32, false);
                    const __m512i across = _mm512_mullo_epi32(lane, _mm512_set1_epi32(32));
                    for (int a = 0; a < 32 && i + a < n; a++)
                        for (int d = 0; d < HD; d += 16)
                            _mm256_storeu_si256(
                                (__m256i *)(dq + ((size_t)(base + i + a) * H + h) * HD + d),
                                (__m256i)_mm512_cvtneps_pbh(_mm512_i32gather_ps(across, fq + d * 32 + a, 4)));
                }
            }
            for (int i = 0; i < n; i++)
                for (int d = 0; d < HD; d += 16) {
                    size_t to = ((size_t)(base + i) * K + kh) * HD + d;
                    narrow(dk + to, _mm512_loadu_ps(fk + i * HD + d));
                    narrow(dv + to, _mm512_loadu_ps(fv + i * HD + d));
                }
        }
    }
}
