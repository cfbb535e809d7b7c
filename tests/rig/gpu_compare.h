// tests/rig/gpu_compare.h: compares results of the GPU's kernels with the reference: distances with their limits,
// device tensors, planes of K and V. Runs on a GPU, or on the host that simulates one (tests/rig/gpu_memory.h).
#ifndef QUILL_GPU_COMPARE_H
#define QUILL_GPU_COMPARE_H

#include "gpu/launch.h"
#include "tests/rig/gpu_memory.h"
#include "tests/rig/testing.h"

// ---- distances ------------------------------------------------------------------------------------------------------

typedef enum { EMBED, NORM, QKV, FINISH, KV, ATTEND, FLASH, PROBE, ADD, GLU, LOGITS, DENSE, N_OPS } GpuOp;
// Kinds of rounding: inputs in f32, with sums in another order; inputs or outputs in f16 or bf16; int8 activations,
// compared with exact ones.
enum { F32_IN, HALF_IN, INT8_IN, N_WAYS };
extern const char *gpu_compare_case; // the case that failure messages name

// Fails the test if the distance is NaN or exceeds the limit.
void gpu_compare_note(GpuOp op, int way, double distance);
void gpu_compare_launched(void);                            // fails the test if a launch has failed
float gpu_compare_float(int type, const void *p, size_t i); // one element of type F32, F16 or BF16
// Compares n elements of `type` on the device with those of the reference.
void gpu_compare_as(GpuOp op, int way, int type, const float *ref, const void *device, size_t n);
void gpu_compare_f32(GpuOp op, int way, const float *ref, const void *device, size_t n); // the same for f32
int gpu_compare_print(void **state);                                                     // teardown of a group of tests

// ---- memory ---------------------------------------------------------------------------------------------------------

void *host_copy(const void *p, size_t n); // returns a copy, which the caller frees
bool device_same(const void *host, const void *device, size_t n);
void *device_random(float *host, size_t n, uint64_t *random); // stores the same numbers in `host`
DeviceTensor device_tensor(const Tensor *t);                  // uploads the tensor in pieces
const int *device_ints(const int *p, int n, int padding);     // n numbers, and one for the padding row

// ---- K and V of a pool on the host ----------------------------------------------------------------------------------

static inline int pool_type(const KvPool *kv, bool value) { return value ? kv->type_v : kv->type_k; }
static inline uint8_t *pool_plane(const KvPool *kv, bool value) { return value ? kv->v : kv->k; }
static inline float *pool_tail(const KvPool *kv, bool value) { return value ? kv->tail_v : kv->tail_k; }
static inline size_t pool_plane_bytes(const KvPool *kv, bool value) {
    return kv_slot(kv, kv->n_layers, 0, 0, 0) * kv_slot_bytes(pool_type(kv, value), kv->head_dim);
}
static inline size_t pool_tail_floats(const KvPool *kv) { return kv_tail_index(kv, kv->n_layers, 0, 0, 0); }

void pool_make_tails(KvPool *kv); // every block gets a page of NaN
// Seals SEAL rows of head_dim floats as the group that begins at a slot.
void pool_seal_at(const KvPool *kv, bool value, int layer, const int *table, int head, int first,
                  const float *const *rows);
void pool_free(KvPool *kv); // frees planes and pages, not the pool itself

#endif
