// cpu/vector_unseal.c: unpacks groups of K and V (formats/sealed.h) to f32 tiles. formats/sealed.c is the
// specification.
#include "cpu/vector_attend.h"

#include "cpu/unpack.h"

// Unpacks 32 codes of two bits: code i has bits 2 (i / 8) and the next of byte i % 8.
INLINE q32 q_2_bits(const uint8_t *p) {
    uint64_t bytes;
    memcpy(&bytes, p, sizeof bytes);
#if QUILL_SIMD
    return q_and(_mm256_srlv_epi64(_mm256_set1_epi64x((long long)bytes), _mm256_setr_epi64x(0, 2, 4, 6)), 3);
#else
    uint64_t codes[4];
    for (int i = 0; i < 4; i++) codes[i] = bytes >> 2 * i & 0x0303030303030303;
    return q_load(codes);
#endif
}

// Unpacks 32 elements of a slot.
INLINE void unseal_block(int type, const uint8_t *block, float *out) {
    half_bits d, m = 0;
    vf w[NV];
    memcpy(&d, block, sizeof d);
    if (type == TYPE_Q8_0) q_floats(q_load(block + offsetof(BlockQ8_0, qs)), w);
    else if (type == TYPE_Q4_0) q_floats(q_sub(q_nibbles(block + offsetof(BlockQ4_0, qs)), 8), w);
    else {
        memcpy(&m, block + offsetof(BlockKivi2, m), sizeof m);
        q_floats(q_2_bits(block + offsetof(BlockKivi2, qs)), w);
    }
    vf scale = half_vector(d), least = half_vector(m);
    for (int i = 0; i < NV; i++) vstore(out + i * VL, least + scale * w[i]);
}

INLINE void unseal_blocks(int type, const uint8_t *slot, int n, float *out) {
    size_t bytes = kv_slot_bytes(type, 32);
    for (int b = 0; b < n; b++) unseal_block(type, slot + (size_t)b * bytes, out + 32 * b);
}

static void unseal_panel(const PanelKivi2 *p, int first, int n, float *out) {
    vf scale[NV], least[NV], w[NV];
    for (int i = 0; i < NV; i++) scale[i] = vload_half(p->d + i * VL), least[i] = vload_half(p->m + i * VL);
    for (int k = 0; k < n; k++, out += HEAD_PAD) {
        q_floats(q_2_bits(p->qs[first + k]), w);
        for (int i = 0; i < NV; i++) vstore(out + i * VL, least[i] + scale[i] * w[i]);
    }
}

// Converts 16 E4M3 bytes to halves of 1/256 of their values.
INLINE void fp8_halves(const uint8_t *p, half_bits h[16]) {
#if QUILL_SIMD
    __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    __m256i sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
    __m256i rest = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7f)), 7);
    _mm256_storeu_si256((__m256i *)(void *)h, _mm256_or_si256(sign, rest));
#else
    for (int i = 0; i < 16; i++) h[i] = fp8_half(p[i]);
#endif
}

static void unseal_fp8(const uint8_t *slot, int head_dim, float *out) {
    half_bits d, h[16];
    memcpy(&d, slot, sizeof d);
    vf scale = half_vector(d) * 256.0f;
    for (int i = 0; i < head_dim; i += 16) {
        uint8_t end[16] = {0};
        bool whole = i + 16 <= head_dim;
        if (!whole) memcpy(end, slot + 2 + i, (size_t)(head_dim - i));
        fp8_halves(whole ? slot + 2 + i : end, h);
        for (int k = 0; k < 16; k += VL) vstore(out + i + k, vload_half(h + k) * scale);
    }
}

// Unpacks n slots of a group from `first` on, HEAD_PAD floats apart.
static void unseal_slots(int type, bool keys, const uint8_t *group, int first, int n, int head_dim, float *out) {
    size_t slot_bytes = kv_slot_bytes(type, head_dim), blocks = ((size_t)head_dim + 31) / 32;
    if (type == TYPE_KIVI2 && keys) {
        for (size_t b = 0; b < blocks; b++) unseal_panel((const PanelKivi2 *)group + b, first, n, out + 32 * b);
        return;
    }
    group += (size_t)first * slot_bytes;
    for (int k = 0; k < n; k++, group += slot_bytes, out += HEAD_PAD) {
        if (type == TYPE_FP8) unseal_fp8(group, head_dim, out);
        else if (type == TYPE_Q8_0) unseal_blocks(TYPE_Q8_0, group, (int)blocks, out);
        else if (type == TYPE_Q4_0) unseal_blocks(TYPE_Q4_0, group, (int)blocks, out);
        else unseal_blocks(TYPE_KIVI2, group, (int)blocks, out);
    }
}

// Prefetches the bytes of a later tile: a long cache is read as a stream that often crosses memory pages, where the
// hardware's prefetchers stop.
INLINE void prefetch(const uint8_t *at, size_t n) {
    for (size_t i = 0; i < n; i += 64) __builtin_prefetch(at + i);
}

void vector_unseal_tile(const AttendTask *t, bool value, int first, int n, float *tile, uint8_t *room) {
    int type = kv_plane_type(t->kv, value), hd = kv_plane_dim(t->kv, value), count;
    bool keys = !value || t->kv->v_in_k;
    size_t group_bytes = SEAL * kv_slot_bytes(type, hd);
    for (int slot = first; slot < first + n; slot += count, tile += (size_t)count * HEAD_PAD) {
        count = int_min(first + n - slot, SEAL - slot % SEAL);
        if (slot / SEAL == attend_group(t))
            for (int k = 0; k < count; k++) {
                float *row = tile + (size_t)k * HEAD_PAD;
                memcpy(row, attend_open(t, value, slot + k), (size_t)hd * sizeof *row);
                for (int i = hd; i % VL; i++) row[i] = 0;
            }
        else {
            const uint8_t *group = attend_sealed(t, value, slot / SEAL, room);
            if (group != room) prefetch(group + KEYS / SEAL * group_bytes, group_bytes);
            unseal_slots(type, keys, group, slot % SEAL, count, hd, tile);
        }
    }
}
