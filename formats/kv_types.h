// formats/kv_types.h: the types in which a KV cache stores keys and values, in one table.
//
// A dense type stores each slot as soon as it is computed. A sealed type packs SEAL slots together (formats/sealed.h).
#ifndef QUILL_KV_TYPES_H
#define QUILL_KV_TYPES_H

#include "formats/types.h"

#include <stdbool.h>

// X(ID, name, sealed, bytes): TYPE_ID of formats/types.h; its name on the command line; whether it is sealed; the bytes
// of one slot of one KV head, where n = head_dim and blocks = ceil(n / 32).
#define EACH_KV_TYPE(X)                                                                                                \
    X(F32, "f32", false, 4 * n)                                                                                        \
    X(F16, "f16", false, 2 * n)                                                                                        \
    X(BF16, "bf16", false, 2 * n)                                                                                      \
    X(FP8, "fp8", true, 2 + n)                                                                                         \
    X(Q8_0, "q8_0", true, blocks * sizeof(BlockQ8_0))                                                                  \
    X(Q4_0, "q4_0", true, blocks * sizeof(BlockQ4_0))                                                                  \
    X(KIVI2, "kivi2", true, blocks * 12) // sizeof(BlockKivi2)

#define KV_TYPE_ONE(id, name, sealed, bytes) +1
enum { N_KV_TYPES = 0 EACH_KV_TYPE(KV_TYPE_ONE) };

// "|f32|f16|...": a literal that follows the first choice of an option: "auto" KV_TYPE_CHOICES.
#define KV_TYPE_CHOICE(id, name, sealed, bytes) "|" name
#define KV_TYPE_CHOICES EACH_KV_TYPE(KV_TYPE_CHOICE)

HOST_DEVICE static inline bool kv_is_sealed(int type) {
#define KV_TYPE_SEALED(id, name, sealed, bytes)                                                                        \
    case TYPE_##id: return sealed;
    switch (type) {
        EACH_KV_TYPE(KV_TYPE_SEALED)
    default: return false;
    }
}

// Whether a cache with these types of K and V is sealed: it has tail pages, and a group of SEAL slots is written at
// once.
static inline bool kv_any_sealed(int type_k, int type_v) { return kv_is_sealed(type_k) || kv_is_sealed(type_v); }

// Bytes of one slot of one KV head; 0: not a KV type.
HOST_DEVICE static inline size_t kv_slot_bytes(int type, int head_dim) {
#define KV_TYPE_BYTES(id, name, sealed, bytes)                                                                         \
    case TYPE_##id: return bytes;
    size_t n = (size_t)head_dim, blocks = (n + 31) / 32;
    switch (type) {
        EACH_KV_TYPE(KV_TYPE_BYTES)
    default: return 0;
    }
}

int kv_type_find(const char *name); // the type with this name on the command line; -1: unknown
const char *kv_type_name(int type); // its name on the command line; NULL: not a KV type
const char *kv_type_list(void);     // "F32, F16, ...", the names of type_name, for messages

// ---- for the tests ----

int kv_type_at(int i); // in the table's order: TYPE_F32, TYPE_F16, ...; i < N_KV_TYPES

#endif
