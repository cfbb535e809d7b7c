// cpu/cpu.h: the contract between the operations of a layer (cpu/layer.c, cpu/matmul.c, cpu/attention.c) and the
// kernels that they call: one table of kernels for each instruction set.
//
// cpu/scalar.c is the specification: plain f32 loops with one fixed order of summation for each output. cpu/vector_*.c
// are compiled once per instruction set (see simd.h); cpu/int8_*.c multiply in int8, cpu/amx*.c use the matrix unit. A
// kernel computes rows of activations and a range of a matrix's output features, in one thread. Files in other
// directories include only cpu/backend.h.
#ifndef QUILL_CPU_H
#define QUILL_CPU_H

#include "kernels.h"

#include <string.h>

// The attention of some rows of one sequence to one KV head: heads [kv_head*g, (kv_head+1)*g), g = n_heads/n_kv_heads.
typedef struct {
    const Heads *heads;
    const KvPool *kv;
    const int *table; // the sequence's physical blocks
    const int *slot;  // (n_rows) ascending
    const float *q;   // (n_rows, n_heads, head_dim), the sequence's first row of them, rows `stride` apart
    float *out;       // (n_rows, n_heads, v_dim), rows `stride` apart
    size_t stride;
    int layer, kv_head;
    int first, last; // (row, head of the group) pairs to do, counted row by row: pair = row*g + head
    // The keys of one row may be divided among tasks, each with its own `out`: a task has slots [from, end) of those
    // that the row sees. lse is the logarithm of the sum of the exponentials of its scores, the weight of its part.
    int from, end;      // end 0: up to the row's own slot
    float *lse;         // (n_rows, n_heads), rows `stride` apart; NULL: not wanted
    const float *sinks; // (n_heads) Layer.sinks if the task has all keys; otherwise NULL
    void *scratch;      // panel_bytes of scratch memory for this thread
    // Sealed planes: all rows are in one group. Its slots are read from the batch's own rows (f32), or from the tail
    // page if earlier steps computed them.
    const float *k, *v; // (rows of the sequence in the batch, n_kv_heads, head_dim, or v_dim), rows kv_stride apart
    size_t kv_stride;
    int first_slot, page; // slot of the first of these rows; tail page of the group, -1: it begins in this batch
} AttendTask;

// Offsets of a task: a slot's K or V in its plane; the oldest and the newest slot that a row at `slot` sees; a pair's
// values in q and in out.
static inline size_t attend_at(const AttendTask *t, bool value, int slot) {
    const KvPool *kv = t->kv;
    return kv_slot(kv, t->layer, t->table[slot / kv->block], t->kv_head, slot % kv->block) *
           (size_t)kv_plane_dim(kv, value);
}
static inline int attend_dim(const AttendTask *t, bool value) {
    return value ? heads_v_dim(t->heads) : t->heads->head_dim;
}
static inline int attend_first(const AttendTask *t, int slot) { return int_max(t->from, heads_oldest(t->heads, slot)); }
static inline int attend_last(const AttendTask *t, int slot) { return t->end ? int_min(slot, t->end - 1) : slot; }
// A pair's head.
static inline int attend_head(const AttendTask *t, int pair) {
    int group = t->heads->n_heads / t->heads->n_kv_heads;
    return t->kv_head * group + pair % group;
}
static inline size_t attend_pair_at(const AttendTask *t, int pair, int dim) {
    int group = t->heads->n_heads / t->heads->n_kv_heads;
    return (size_t)(pair / group) * t->stride + (size_t)attend_head(t, pair) * (size_t)dim;
}
static inline size_t attend_query(const AttendTask *t, int pair) { return attend_pair_at(t, pair, t->heads->head_dim); }
static inline size_t attend_out(const AttendTask *t, int pair) {
    return attend_pair_at(t, pair, heads_v_dim(t->heads));
}

// Stores a pair's lse: max is the largest score, sum that of the exponentials of score - max.
static inline void attend_put_lse(const AttendTask *t, int pair, float max, float sum) {
    if (t->lse) t->lse[attend_pair_at(t, pair, 1)] = max + logf(sum);
}

// The sink of a pair's head, or NULL.
static inline const float *attend_sink(const AttendTask *t, int pair) {
    return t->sinks ? t->sinks + attend_head(t, pair) : NULL;
}
// The sink's term in the softmax denominator, the sum of e^(score - max).
static inline float attend_sink_weight(const AttendTask *t, int pair, float max) {
    const float *sink = attend_sink(t, pair);
    return sink ? expf(*sink - max) : 0;
}

// The group that contains the rows' own slots; the rows read it unsealed.
static inline int attend_group(const AttendTask *t) {
    return t->slot[t->first / (t->heads->n_heads / t->heads->n_kv_heads)] / SEAL;
}
// K or V of a slot of that group.
static inline const float *attend_open(const AttendTask *t, bool value, int slot) {
    const KvPool *kv = t->kv;
    int dim = kv_plane_dim(kv, value);
    if (slot < t->first_slot)
        return kv_plane_tail(kv, value) + kv_tail_at(kv, dim, t->layer, t->page, t->kv_head, slot % SEAL);
    const float *rows = value && !kv->v_in_k ? t->v : t->k;
    return rows + (size_t)(slot - t->first_slot) * t->kv_stride + (size_t)t->kv_head * (size_t)dim;
}
// A sealed group as contiguous bytes: in its plane, or, if blocks divide it, copied into `room` (SEAL_MOST bytes).
static inline const uint8_t *attend_sealed(const AttendTask *t, bool value, int group, uint8_t *room) {
    const KvPool *kv = t->kv;
    const uint8_t *plane = kv_plane(kv, value);
    size_t size = kv_slot_bytes(kv_plane_type(kv, value), kv_plane_dim(kv, value));
    int slot = group * SEAL;
    for (int i = 0; i < SEAL; i++, slot++) {
        int offset = slot % kv->block;
        const uint8_t *at = plane + kv_slot(kv, t->layer, t->table[slot / kv->block], t->kv_head, offset) * size;
        if (i == 0 && offset + SEAL <= kv->block) return at;
        memcpy(room + (size_t)i * size, at, size);
    }
    return room;
}

// The convolution of some channels over consecutive rows of one sequence, in place (Recurrence of layer.h).
typedef struct {
    int n_rows, n_channels, taps;
    const float *weights; // (n_channels, taps)
    const float *before;  // (taps - 1, n_channels) the inputs before the first row, oldest first
    float *rows;          // (n_rows, n_channels) inputs; replaced by the outputs
    size_t stride;        // floats from one row to the next
} ConvolveTask;

// Value heads of MIXER_DELTA or MIXER_SSD that have one key head, over consecutive rows of one sequence. q, k, v, beta
// and decay point to the values of the first row and head; rows are `stride` floats apart. decay is the logarithm of
// the factor of M.
typedef struct {
    int n_rows, key_dim, value_dim;
    int n_heads;
    size_t apart; // heads from one of them to the next: v, beta, decay, out and state have the others in between
    bool plain;   // MIXER_SSD: k beta v^T is added to M; otherwise k beta (v - M^T k)^T
    const float *q, *k, *v, *beta, *decay;
    size_t stride;
    float *out; // (n_rows, value_dim) M^T q
    size_t out_stride;
    float *state;  // (key_dim, value_dim) M before the rows; replaced by M after them
    void *scratch; // (CpuKernels.delta_scratch bytes)
} DeltaTask;

// The task of value head `head` of t alone.
static inline DeltaTask delta_head(const DeltaTask *t, int head) {
    DeltaTask one = *t;
    size_t at = (size_t)head * t->apart, width = (size_t)t->value_dim;
    one.n_heads = 1;
    one.v += at * width, one.beta += at, one.decay += at;
    one.out += at * width, one.state += at * width * (size_t)t->key_dim;
    return one;
}

typedef void GateRow(Activation act, float *gate, const float *up, int n); // gate = act(gate) * up

// A product with a few rows: y(row, f) (+)= w[f] . x[row] + bias[f] for f in [first, last) and row in [0, n_rows).
typedef struct {
    const Tensor *w;
    int first, last;
    const float *x; // rows x_stride apart
    size_t x_stride;
    int n_rows;
    float *y; // rows y_stride apart
    size_t y_stride;
    bool add;
    void *scratch; // as for a task of f32_panels
} MatvecTask;

// A product with many rows, whose activations are packed: the same for row in [first_row, first_row + n_rows).
typedef struct {
    const Tensor *w;
    const Tensor *gate; // of run_glu; otherwise NULL
    Activation act;     // of run_glu
    int first, last;
    const void *packed; // activations of all rows
    int first_row, n_rows;
    float *y; // of run: the results of all rows, y_stride apart
    size_t y_stride;
    bool add;
    void *h;       // of run_glu: the results of all rows, packed for the next product
    void *scratch; // (MatrixKernel.scratch bytes)
} MatrixTask;

// Kernels for many rows. The activations are packed once, tile by tile; then every task computes a range of output
// features for a block of rows. Kernels with the same `pack` share the packed activations.
typedef struct {
    int min_rows;   // the number of rows from which the kernel is faster than its alternative
    int most_rows;  // of int8_tiles: the number up to which it is, if sequences decode
    int tile;       // rows of a tile
    int features;   // the most output features of a task; 0: no limit, the caller decides by the work of a task
    int least;      // the least features of a task; all tasks but the last have a multiple of it
    int rows;       // rows of a task, a multiple of tile; their packed activations stay in the cache
    size_t scratch; // bytes of scratch memory of a task
    size_t (*packed_bytes)(int n_rows, int n_in);
    void (*pack)(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in); // x: the first row
    // Packs the rows' RMSNorm, with the same bits as rmsnorm followed by `pack`. NULL: not supported
    void (*pack_norm)(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in, const float *norm,
                      float eps);
    void (*run)(const MatrixTask *t);
    // h = act(gate x) * (w x). Both matrices have the same type and no bias. NULL: not supported
    void (*run_glu)(const MatrixTask *t);
    int glu_features, glu_least; // features and least of a task of run_glu
    GateRow *gate;               // computes the bits of run_glu's gate, for fewer rows; NULL: CpuKernels.gate does
    const char
        *unit; // the unit that multiplies, by its name in bench/roofline.h; NULL: the best of its instruction set
} MatrixKernel;

// Attention of the pairs of a task, up to `pairs` of them. With `in_parts` a task may have only a part of its keys
// (`from`, `end`).
typedef struct {
    void (*run)(const AttendTask *t);
    size_t scratch; // bytes of scratch memory of a task
    int pairs;      // the most (row, head) pairs of a task
    bool in_parts;  // whether a task may have only a part of its row's keys
    bool gives_lse; // whether a task of many rows sets AttendTask.lse
} AttendKernel;

typedef struct {
    const char *isa;
    void (*embed)(const Tensor *t, int row, float *out);
    void (*rmsnorm)(float *out, const float *x, const float *weight, int n, float eps);
    void (*rope)(float *head, const float *cos, const float *sin, int n_rot, bool adjacent);
    GateRow *gate;
    void (*softcap)(float *v, int n, float cap);               // each becomes cap * tanh(v / cap)
    void (*xielu)(const Xielu *x, float *v, int n);            // each becomes ACT_XIELU of itself
    void (*to_kv)(void *out, int type, const float *x, int n); // f32 -> the cache's type
    void (*matvec)(const MatvecTask *t);
    void (*convolve)(const ConvolveTask *t);
    void (*delta)(const DeltaTask *t);
    void (*delta_in_order)(const DeltaTask *t); // row by row, so that a result does not depend on the batches
    size_t delta_scratch;                       // bytes a task of `delta` needs
    AttendKernel attend;
    const AttendKernel *attend_16bit; // replaces `attend` in layers whose products round to bf16 or int8, or NULL
    void (*attend_in_order)(const AttendTask *t); // as attend.run; the order of sums depends only on a row's slot
    // Adds the softmax weights of the task's pairs to mass[slot]. Has the scratch of `attend`; t->out is not used.
    void (*attend_mass)(const AttendTask *t, float *mass);
    // Products with many rows. int8 kernels also quantise the activations. NULL: there is no such kernel, or not for
    // this type of weights; then matvec replaces int8_rows and int8_tiles.
    const MatrixKernel *f32_panels;               // any type of weights, unpacked to panels in f32
    const MatrixKernel *(*bf16_panels)(int type); // unpacked to panels in bf16, on a matrix unit; for many rows
    const MatrixKernel *(*int8_rows)(int type);   // weights directly from the file; for up to INT8_ROWS_MAX rows
    const MatrixKernel *(*int8_tiles)(int type);  // the same on a matrix unit; from its min_rows to its most_rows if
                                                  // sequences decode, otherwise to where bf16_panels begin
    const MatrixKernel *(*int8_panels)(int type); // unpacked to panels of bytes; from its min_rows on
    const MatrixKernel *(*bf16_lanes)(int type);  // 16-bit weights, panels in bf16 without a matrix unit; likewise
    bool in_order;                                // one kernel for any number of rows: --deterministic
} CpuKernels;

static inline const CpuKernels *cpu_kernels_of(const Backend *be) { return be->impl; }

extern const CpuKernels cpu_scalar, cpu_portable;
#if defined(__x86_64__)
extern const CpuKernels cpu_avx2, cpu_avx512;
const MatrixKernel *cpu_madd_matrix(int type);              // AVX2: cpu/int8_avx2.c; for some types the next
const MatrixKernel *cpu_madd_whole(int type);               // cpu/int8_whole_avx2.c: K types and IQ4_XS
const MatrixKernel *cpu_madd_panels(int type);              // cpu/int8_panels_avx2.c
const MatrixKernel *cpu_vnni_matrix(int type);              // AVX-512 with VNNI: chooses one of the next three by type
const MatrixKernel *cpu_vnni_bytes(int type);               // cpu/int8_vnni.c
const MatrixKernel *cpu_vnni_whole(int type);               // cpu/int8_whole.c: K types
const MatrixKernel *cpu_vnni_books(int type);               // cpu/int8_books.c: IQ2 and IQ3, only with VBMI
const MatrixKernel *cpu_vnni_panels(int type);              // cpu/int8_panels.c: AVX-512 with VNNI
extern const AttendKernel cpu_vnni_attend, cpu_madd_attend; // cpu/int16_attend.c: for AVX-512 with VNNI, for AVX2
#endif
#if defined(__x86_64__) && !defined(QUILL_NO_AVXVNNI) // the makefile sets it for compilers that cannot build it
#define QUILL_AVXVNNI
const MatrixKernel *cpu_avxvnni_matrix(int type); // cpu/int8_avx2.c again, for AVX-VNNI
const MatrixKernel *cpu_avxvnni_panels(int type);
extern const AttendKernel cpu_avxvnni_attend;
#endif
#if defined(__x86_64__) && !defined(QUILL_NO_BF16) // likewise
#define QUILL_BF16
const MatrixKernel *cpu_bf16_panels(int type); // cpu/bf16_panels.c: AVX-512 with BF16
#endif
#if defined(__x86_64__) && !defined(QUILL_NO_AMX) // likewise
#define QUILL_AMX
const MatrixKernel *cpu_amx_matrix(int type);
const MatrixKernel *cpu_amx_int8_matrix(int type);     // cpu/amx_int8.c
extern const AttendKernel cpu_amx_attend, cpu_amx_row; // for many queries; for one row, also called by the former
bool cpu_amx_enable(void);                             // asks the system for the tile registers; false: it refuses
#endif

#endif
