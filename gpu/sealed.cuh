// gpu/sealed.cuh: loads K and V for attention, dense or sealed; seals groups; copies rows of open groups to tail pages.
//
// A row reads the groups before its own sealed, directly from the pool. It reads its own group in f32: rows of this
// batch from GpuScratch.qkv, rows of earlier steps from the tail page. See KvPool in kv/kvpool.h.
#ifndef QUILL_SEALED_CUH
#define QUILL_SEALED_CUH

#include "gpu/heads.cuh"
#include "formats/sealed.h"

#include <limits.h>

enum { ANY_TYPE = -1 }; // K and V of any types, which the kernel checks at run time

// ---- reading --------------------------------------------------------------------------------------------------------

// One plane of a KV head of a sequence.
struct KvPlane {
    const uint8_t *base; // the head's first slot in block 0
    const int *table;    // the sequence's blocks
    size_t step;         // bytes from block to block
    int bytes;           // bytes of a slot
    int type, block, head_dim;
    bool keys;
    // Sealed planes: slots from `open` on are read in f32; those from `since` on are rows of the batch. `row` has the
    // values of slot `own`.
    int open, since, own;
    const float *row, *page;
    size_t stride;
};

// The address of a slot: `dense` if it is read in f32; otherwise `dense` is NULL, and the slot is at `at` in the plane.
struct KvSlot {
    int slot;
    const uint8_t *at;
    const float *dense;
};

// The plane as row `row` of the batch reads it. TYPE: the plane's type, or ANY_TYPE.
template <int TYPE>
__device__ __forceinline__ KvPlane plane_of(const KvPool &kv, const GpuBatch &b, const Heads &h, const float *qkv,
                                            int layer, int row, int kv_head, bool keys) {
    KvPlane p = {};
    keys = keys || kv.v_in_k;
    p.table = b.block_table + (size_t)b.seq[row] * (size_t)b.table_step;
    p.type = TYPE != ANY_TYPE ? TYPE : keys ? kv.type_k : kv.type_v;
    p.block = kv.block;
    p.head_dim = kv.head_dim;
    p.keys = keys;
    p.bytes = (int)kv_slot_bytes(p.type, kv.head_dim);
    p.base = (keys ? kv.k : kv.v) + kv_slot(&kv, layer, 0, kv_head, 0) * (size_t)p.bytes;
    p.step = (size_t)kv.n_kv_heads * (size_t)kv.block * (size_t)p.bytes;
    p.open = INT_MAX;
    if (!kv_is_sealed(p.type)) return p;
    p.own = b.slot[row];
    p.open = p.own / SEAL * SEAL;
    p.since = b.since[row];
    p.stride = qkv_stride(h);
    p.row = qkv + (ptrdiff_t)row * (ptrdiff_t)p.stride + qkv_at(h, keys ? HEAD_K : HEAD_V, kv_head);
    const float *tail = keys ? kv.tail_k : kv.tail_v;
    p.page = b.page[row] < 0 ? NULL : tail + kv_tail_index(&kv, layer, b.page[row], kv_head, 0);
    return p;
}

__device__ __forceinline__ const uint8_t *bytes_of(const KvPlane &p, int slot) {
    return p.base + (size_t)p.table[slot / p.block] * p.step + (size_t)(slot % p.block) * (size_t)p.bytes;
}

__device__ __forceinline__ const float *open_row(const KvPlane &p, int slot) {
    if (slot < p.since) return p.page + (size_t)(slot % SEAL) * (size_t)p.head_dim;
    return p.row + (ptrdiff_t)(slot - p.own) * (ptrdiff_t)p.stride;
}

template <int TYPE> __device__ __forceinline__ KvSlot find_slot(const KvPlane &p, int slot) { // TYPE: as for load_kv
    bool may_be_open = TYPE == ANY_TYPE || kv_is_sealed(TYPE);
    if (may_be_open && slot >= p.open) return {slot, NULL, open_row(p, slot)};
    return {slot, bytes_of(p, slot), NULL};
}

__device__ __forceinline__ void load_floats(float v[8], const void *at) { // 16-byte aligned
    const float4 *p = (const float4 *)in_global(at);
    float4 a = p[0], b = p[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

// Loads elements [8c, 8c + 8) of a head of any length; zeros beyond its end.
__device__ __forceinline__ void load_each(float v[8], int type, const void *head, int c, int head_dim) {
    for (int i = 0; i < 8; i++) v[i] = 8 * c + i < head_dim ? load_as(type, head, (size_t)(8 * c + i)) : 0;
}

__device__ __forceinline__ unsigned load_pair(const uint8_t *at) { return *(const uint16_t *)in_global(at); }
__device__ __forceinline__ unsigned load_word(const uint8_t *at) { return *(const uint32_t *)in_global(at); }

// Eight bytes at an even address.
__device__ __forceinline__ void load_bytes(uint8_t b[8], const uint8_t *at) {
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        unsigned pair = load_pair(at + i);
        b[i] = (uint8_t)pair;
        b[i + 1] = (uint8_t)(pair >> 8);
    }
}

// Four bytes, from byte `at` on, of a sealed group of K in kivi2. The bytes are in one piece, or a part of them is at
// each slot of the group.
__device__ __forceinline__ unsigned panel_word(const KvPlane &p, int first, const uint8_t *whole, int at) {
    if (whole) return load_word(whole + at);
    return load_word(bytes_of(p, first + at / p.bytes) + at % p.bytes);
}

__device__ inline void load_panel(float v[8], const KvPlane &p, int slot, int c) {
    int first = slot / SEAL * SEAL, panel = c / 4 * (int)sizeof(PanelKivi2), e = c % 4;
    const uint8_t *whole = first % p.block + SEAL <= p.block ? bytes_of(p, first) : NULL;
    int codes = panel + (int)offsetof(PanelKivi2, qs) + 8 * (slot - first);
    UNROLL
    for (int k = 0; k < 8; k += 4) {
        unsigned q = panel_word(p, first, whole, codes + k) >> (2 * e);
        UNROLL
        for (int i = 0; i < 4; i += 2) {
            int channel = panel + 2 * (8 * e + k + i);
            unsigned d = panel_word(p, first, whole, channel);
            unsigned m = panel_word(p, first, whole, channel + (int)offsetof(PanelKivi2, m));
            v[k + i] = gpu_half_float((uint16_t)m) + gpu_half_float((uint16_t)d) * (float)(q >> (8 * i) & 3);
            v[k + i + 1] = gpu_half_float((uint16_t)(m >> 16)) +
                           gpu_half_float((uint16_t)(d >> 16)) * (float)(q >> (8 * i + 8) & 3);
        }
    }
}

// The c-th eight elements of a slot of a sealed group. Elements beyond head_dim are undefined.
template <int TYPE> __device__ __forceinline__ void load_sealed(float v[8], const KvPlane &p, const KvSlot &s, int c) {
    uint8_t b[8];
    if constexpr (TYPE == TYPE_FP8) {
        float d = gpu_half_float((uint16_t)load_pair(s.at));
        UNROLL
        for (int i = 0; i < 8; i += 2) { // head_dim is even: pairs are whole
            unsigned pair = 8 * c + i < p.head_dim ? load_pair(s.at + 2 + 8 * c + i) : 0;
            v[i] = d * (gpu_half_float(fp8_half((uint8_t)pair)) * 256);
            v[i + 1] = d * (gpu_half_float(fp8_half((uint8_t)(pair >> 8))) * 256);
        }
    } else if constexpr (TYPE == TYPE_Q8_0) {
        const uint8_t *block = s.at + c / 4 * (int)sizeof(BlockQ8_0);
        float d = gpu_half_float((uint16_t)load_pair(block));
        load_bytes(b, block + 2 + 8 * (c % 4));
        UNROLL
        for (int i = 0; i < 8; i++) v[i] = d * (float)(int8_t)b[i];
    } else if constexpr (TYPE == TYPE_Q4_0) {
        const uint8_t *block = s.at + c / 4 * (int)sizeof(BlockQ4_0);
        float d = gpu_half_float((uint16_t)load_pair(block));
        load_bytes(b, block + 2 + 8 * (c % 2));
        UNROLL
        for (int i = 0; i < 8; i++) v[i] = d * (float)((b[i] >> (c % 4 / 2 * 4) & 15) - 8);
    } else if (p.keys) {
        load_panel(v, p, s.slot, c);
    } else {
        const uint8_t *block = s.at + c / 4 * (int)sizeof(BlockKivi2);
        unsigned scales = load_word(block), q[2] = {load_word(block + 4), load_word(block + 8)};
        float d = gpu_half_float((uint16_t)scales), m = gpu_half_float((uint16_t)(scales >> 16));
        UNROLL
        for (int i = 0; i < 8; i++) v[i] = m + d * (float)(q[i / 4] >> (8 * (i % 4) + 2 * (c % 4)) & 3);
    }
}

// Loads elements [8c, 8c + 8) of a slot. TYPE: the plane's type, if head_dim is a multiple of 8; or ANY_TYPE.
template <int TYPE> __device__ __forceinline__ void load_kv(float v[8], const KvPlane &p, const KvSlot &s, int c) {
    if constexpr (TYPE == ANY_TYPE) {
        bool sealed = !s.dense && kv_is_sealed(p.type);
        if (p.head_dim % 8 != 0 && !sealed)
            load_each(v, s.dense ? (int)TYPE_F32 : p.type, s.dense ? (const void *)s.dense : s.at, c, p.head_dim);
        else if (s.dense) load_floats(v, s.dense + 8 * c);
        else switch (p.type) {
            case TYPE_F32: load_kv<TYPE_F32>(v, p, s, c); break;
            case TYPE_F16: load_kv<TYPE_F16>(v, p, s, c); break;
            case TYPE_BF16: load_kv<TYPE_BF16>(v, p, s, c); break;
            case TYPE_FP8: load_sealed<TYPE_FP8>(v, p, s, c); break;
            case TYPE_Q8_0: load_sealed<TYPE_Q8_0>(v, p, s, c); break;
            case TYPE_Q4_0: load_sealed<TYPE_Q4_0>(v, p, s, c); break;
            default: load_sealed<TYPE_KIVI2>(v, p, s, c);
            }
    } else if constexpr (TYPE == TYPE_F32) {
        load_floats(v, s.at + 32 * c);
    } else if constexpr (TYPE == TYPE_F16 || TYPE == TYPE_BF16) {
        uint4 a = *(const uint4 *)in_global(s.at + 16 * c);
        const uint32_t words[4] = {a.x, a.y, a.z, a.w};
        UNROLL
        for (int k = 0; k < 8; k++) {
            uint16_t bits = (uint16_t)(words[k / 2] >> (16 * (k % 2)));
            v[k] = TYPE == TYPE_F16 ? gpu_half_float(bits) : gpu_bf16_float(bits);
        }
    } else if (s.dense) {
        load_floats(v, s.dense + 8 * c);
    } else {
        load_sealed<TYPE>(v, p, s, c);
    }
}

// ---- sealing --------------------------------------------------------------------------------------------------------

enum { SEAL_THREADS = 128 };

struct SealJob {
    Heads heads;
    KvPool kv;
    GpuBatch b; // from in_pool
    const float *qkv;
    int layer;
};

// A head in shared memory is padded with zeros to whole blocks; rows are an odd number of floats apart.
HOST_DEVICE constexpr int seal_padded(int head_dim) { return (head_dim + 31) / 32 * 32; }
HOST_DEVICE constexpr size_t seal_smem(int head_dim) {
    size_t padded = (size_t)seal_padded(head_dim);
    return SEAL * (padded + 1) * 4 + padded * sizeof(TwoBits) + SEAL * padded / 32 * sizeof(BlockQ8_0) + 48;
}

// x (SEAL, stride) to `group`, of a type other than fp8.
__device__ inline void seal_blocks(const float *x, int stride, int type, bool keys, int n_blocks, int slot_bytes,
                                   TwoBits *channels, uint8_t *group) {
    PanelKivi2 *panels = (PanelKivi2 *)group;
    bool by_channel = type == TYPE_KIVI2 && keys;
    if (by_channel) {
        for (int c = (int)threadIdx.x; c < 32 * n_blocks; c += SEAL_THREADS) {
            TwoBits t = two_bits_of(x + c, (size_t)stride);
            channels[c] = t;
            panels[c / 32].d[c % 32] = t.d;
            panels[c / 32].m[c % 32] = t.m;
        }
        __syncthreads();
    }
    for (int i = (int)threadIdx.x; i < SEAL * n_blocks; i += SEAL_THREADS) {
        int s = i % SEAL, block = i / SEAL;
        const float *from = x + s * stride + 32 * block;
        int at = s * slot_bytes + block * (slot_bytes / n_blocks);
        if (by_channel) seal_of_channels(from, channels + 32 * block, panels[block].qs[s]);
        else seal_slot(type, from, group + at);
    }
}

// grid: (rows, KV heads, 2: K and V). A block whose row is a group's last slot seals it.
__global__ __launch_bounds__(SEAL_THREADS) void seal_groups(GRID_CONSTANT const SealJob j) {
    Smem smem;
    int row = (int)blockIdx.x, head = (int)blockIdx.y, slot = j.b.slot[row], hd = j.heads.head_dim;
    bool keys = blockIdx.z == 0;
    int type = keys ? j.kv.type_k : j.kv.type_v, padded = seal_padded(hd), stride = padded + 1;
    if (slot < 0 || slot % SEAL != SEAL - 1 || !kv_is_sealed(type)) return;
    KvPlane p = plane_of<ANY_TYPE>(j.kv, j.b, j.heads, j.qkv, j.layer, row, head, keys);
    float *x = smem.take<float>((unsigned)(SEAL * stride));
    TwoBits *channels = smem.take<TwoBits>((unsigned)padded);
    uint8_t *group = smem.take<uint8_t>((unsigned)(SEAL * p.bytes));
    for (int i = (int)threadIdx.x; i < SEAL * padded; i += SEAL_THREADS) {
        int s = i / padded, e = i % padded;
        x[s * stride + e] = e < hd ? open_row(p, p.open + s)[e] : 0;
    }
    __syncthreads();
    if (type != TYPE_FP8) seal_blocks(x, stride, type, keys, padded / 32, p.bytes, channels, group);
    else if (threadIdx.x < SEAL) seal_fp8(x + (int)threadIdx.x * stride, hd, group + (int)threadIdx.x * p.bytes);
    __syncthreads();
    for (int i = 2 * (int)threadIdx.x; i < SEAL * p.bytes; i += 2 * SEAL_THREADS) { // a slot's bytes are an even number
        uint8_t *to = (uint8_t *)bytes_of(p, p.open + i / p.bytes) + i % p.bytes;
        *(uint16_t *)to = *(const uint16_t *)(group + i);
    }
}

// grid: (rows, KV heads). Copies a row to its group's tail page unless the group's last slot is in the batch.
__global__ void keep_open(GRID_CONSTANT const SealJob j) {
    int row = (int)blockIdx.x, head = (int)blockIdx.y, slot = j.b.slot[row], hd = j.heads.head_dim;
    int last = row + SEAL - 1 - slot % SEAL;
    if (slot < 0) return;
    if (last < j.b.n_rows && j.b.seq[last] == j.b.seq[row] && j.b.slot[last] - slot == last - row) return;
    size_t to = kv_tail_index(&j.kv, j.layer, j.b.page[row], head, slot % SEAL);
    const float *from = j.qkv + (size_t)row * qkv_stride(j.heads);
    for (int i = (int)threadIdx.x; i < hd; i += (int)blockDim.x) {
        if (j.kv.tail_k) j.kv.tail_k[to + (size_t)i] = from[qkv_at(j.heads, HEAD_K, head) + (size_t)i];
        if (j.kv.tail_v) j.kv.tail_v[to + (size_t)i] = from[qkv_at(j.heads, HEAD_V, head) + (size_t)i];
    }
}

#endif
