// formats/sealed.h: how quantised K and V are packed: in groups of 32 slots of one KV head, once, when the last slot is
// known.
//
// A group is 32 x kv_slot_bytes long and is stored in 32 equal parts, one at each of its slots, so that it does not
// depend on the size of blocks; where a block holds whole groups, a group lies in one piece. head_dim is padded with
// zeros to whole blocks of 32.
//   fp8         a slot: half d, then head_dim E4M3 bytes; x = d e4m3
//   q8_0, q4_0  a slot: the blocks of types.h
//   kivi2 V     a slot: a BlockKivi2 for 32 channels of it                                    (x = m + d q, 2 bits)
//   kivi2 K     a group: a PanelKivi2 for 32 channels of all its slots; a scale a channel, since K has outliers there
// KIVI: Liu et al. 2024. What is not finite makes its block NaN, so that it shows as it does in dense KV.
#ifndef QUILL_SEALED_H
#define QUILL_SEALED_H

#include "formats/kv_types.h"

enum { SEAL = 32 };       // slots of a group
enum { SEAL_HEAD = 512 }; // the largest head_dim

typedef struct {
    half_bits d, m;
    uint8_t qs[8]; // code of element i: byte i % 8, bits 2 (i / 8)
} BlockKivi2;
typedef struct {
    half_bits d[32], m[32]; // of a channel
    uint8_t qs[SEAL][8];    // of a slot, as above
} PanelKivi2;
#ifndef __cplusplus // kv_types.h counts on it
_Static_assert(sizeof(BlockKivi2) == 12 && sizeof(PanelKivi2) == 32 * sizeof(BlockKivi2), "both take 3 bits");
#endif

enum { SEAL_MOST = SEAL * SEAL_HEAD / 32 * (int)sizeof(BlockQ8_0) }; // bytes of the largest group

// Of n slots from the first of a group on, those that lie in whole groups; of a dense type all.
static inline size_t kv_whole_slots(int type, size_t n) { return kv_is_sealed(type) ? n / SEAL * SEAL : n; }
// What they take for one KV head where a cache's rows are moved: whole groups sealed, the others' slots in f32.
static inline size_t kv_moved_bytes(int type, int head_dim, size_t n) {
    size_t whole = kv_whole_slots(type, n);
    return whole * kv_slot_bytes(type, head_dim) + (n - whole) * kv_slot_bytes(TYPE_F32, head_dim);
}

// An E4M3 byte is the upper half of a half, but for the exponent's bias.
HOST_DEVICE static inline half_bits fp8_half(uint8_t x) {
    return (half_bits)((x & 0x80) << 8 | (x & 0x7f) << 7);
} // x / 256

// rows: SEAL pointers to head_dim floats.
void seal_group(int type, bool keys, const float *const *rows, int head_dim, uint8_t *group);
// Into SEAL rows that are `stride` floats apart: the specification of what a group is worth.
void unseal_group(int type, bool keys, const uint8_t *group, int head_dim, float *rows, size_t stride);
// Turns a head by an orthonormal Hadamard matrix, which spreads what sticks out in one channel over many. Done to Q and
// to K it leaves their products as they were. In blocks of the largest power of two that divides head_dim.
void hadamard(float *head, int head_dim);

#endif
