// gpu/launch.h: the GPU's operations as C sees them: launch functions over device memory and a stream.
//
// kernels.cu and gpu/*.cuh implement them: compiled by nvcc for a GPU, and by a C++ compiler with `-include
// tests/rig/gpu_host.h` for the tests. The backend (gpu/cuda_*.c) calls them. A launch returns at once; it allocates
// nothing and reads no host memory but its arguments, so that a sequence of launches may be captured as a graph and
// replayed: whatever changes from step to step (tokens, positions, slots, block tables, rows wanted) lies in device
// memory. Arguments are checked by assert alone. No float atomics, every sum in a fixed order: the same input gives the
// same bits, run after run.
//
// Pointers are device pointers unless a comment says "host", aligned to 16 bytes where rows of floats begin. Matrices
// are row-major; (rows, n) has n elements a row. Sums are in f32. Shapes in [brackets] are bounds.
#ifndef QUILL_LAUNCH_H
#define QUILL_LAUNCH_H

#include "kernels.h"
#include "gpu/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

// The first launch that failed since the last call, in words ("gemv: invalid argument"; static storage), or NULL.
const char *gpu_launch_error(void);

// Optimisations that no GPU has timed: off unless QUILL_GPU_TRY names them. They hold for the process, and are chosen
// once there is a GPU, before the first launch.
typedef struct {
    bool skinny; // QUILL_GPU_TRY=few: products of 5 to 16 rows on the tensor cores (gpu/skinny_gemm.cuh)
    // Programmatic dependent launch: a decoding kernel begins, and prefetches weights, before the kernel before it has
    // ended. sm_90 and later.
    bool early;
} GpuTuning;
GpuTuning gpu_tune(GpuTuning t); // returns those that this GPU can do

// ---- tensors --------------------------------------------------------------------------------------------------------

// A tensor as the GPU has it. Dense types (F32, F16, BF16) are rows of elements, stride_bytes apart, a multiple of 16.
// Quantised types are cut into units of 32 elements and parted into planes, each (n_out, n_in / 32 units) in order,
// with the values of the file: x = d*s*q + m. Element i of a unit lies with element i + 16 in one byte (four bits), so
// that 16 bytes are 32 weights:
//   quants  the low bits: 16 bytes a unit (four-bit types and those with more bits beside), 32 (eight-bit), 8 (two-bit)
//   high    the bits above them: 4 bytes a unit (one bit each) or 8 (two bits each)
//   scales  a super-block's small integers, 2 bytes a unit (IQ4_XS, and codebook types with a scale for 32 weights: 1)
//   d       f16 (d) or f16 pairs (d, m): one a unit; of types with super-blocks one a 8 units; TYPE_I8G: f32 a unit
// TYPE_I8G whose groups do not divide into units is stored as F32.
typedef struct {
    int type;            // TYPE_ of the planes: as in the file, but TYPE_F32 for an I8G without units
    int n_out, n_in;     // of a stack: the rows of all its matrices
    size_t stride_bytes; // dense types: from row to row
    uint8_t *quants, *high, *scales, *d;
    const float *bias; // (n_out), or NULL
} DeviceTensor;

// What a tensor of the file needs (host arithmetic alone): fills *out but its pointers, returns the bytes of all
// planes.
size_t gpu_tensor_bytes(const Tensor *t, DeviceTensor *out);
// Points the planes into `memory` (gpu_tensor_bytes of it, 256-byte aligned). bias stays the caller's to set.
void gpu_tensor_place(DeviceTensor *t, void *memory);
// Rows [first_row, first_row + n_rows) from the file's bytes, which the caller has copied to the device: `raw` is where
// row first_row begins, 16-byte aligned. So a large tensor goes up in pieces. scales: TYPE_I8G alone, all its scales.
void gpu_tensor_fill(const DeviceTensor *t, const Tensor *file, int first_row, int n_rows, const void *raw,
                     const float *scales, GpuStream stream);
// The same rows in a dense type, for a matrix product: out (n_rows, n_in) of type F32, F16 or BF16, `stride` elements
// from row to row.
void gpu_dequantize(const DeviceTensor *t, int first_row, int n_rows, int type, void *out, size_t stride,
                    GpuStream stream);

// ---- a batch in device memory ---------------------------------------------------------------------------------------

// Batch (kernels.h) with its arrays on the device. A row with slot < 0 is padding: it writes no K and V, attends to
// nothing (a = 0) and harms no other row. The counts are fixed where a graph is captured.
typedef struct {
    int n_rows;
    int max_slots;                       // at least every row's slot + 1: what the grids of attention are made for
    const int *token, *pos, *slot, *seq; // (n_rows); token -1: take this row's from `sampled`
    // (n_rows) of sealed KV alone: the slot from which on the row's sequence is in this batch, one row a slot, and the
    // tail page of the row's own group (kv_tail)
    const int *since, *page;
    // The physical blocks of each sequence, which begin table_step numbers apart. Entries of window_table for blocks
    // that no row sees name blocks that may hold anything: nothing is read there.
    const int *block_table, *window_table; // of KV_FULL and KV_WINDOW; a layer's kernels read its pool's
    int table_step;
    const int *sampled; // what gpu_sample wrote: row i takes the i-th, token 0 for -1; or NULL
} GpuBatch;

// Rope.freq and KvPool.k, .v, .tail_k, .tail_v are device pointers here; KvPool.tail_of is not looked at. KV types: all
// of KvPool, of K and V each. head_dim is any even number up to GPU_MAX_HEAD; n_heads any multiple of n_kv_heads.
enum { GPU_MAX_HEAD = 256 };

typedef struct { // Ends.ropes
    int n;
    Rope of[ROPE_TABLES];
} GpuRopes;

// Scratch of the launches below. Zeroed once, when it is allocated; a launch leaves the counters at zero. Only one
// stream may use it.
typedef struct {
    float *rope_cos, *rope_sin; // (tables, rope_rows, rope_step): rope_step is n_rot/2 of the widest table
    int rope_rows, rope_step;
    float *partial; // gpu_attention_bytes of them
    // (rows, q_dim + 2*kv_dim) products of Q, K and V. K and V of sealed planes stay there, finished, up to gpu_keep.
    float *qkv;
    float *behind; // (rows, dim) a sub-layer's output before the norm behind it; may share memory with qkv
    // gpu_n_counters: how many blocks of a row and head (split-K attention), or how many features of a head (QKV), are
    // done. The block that completes the count goes on with the whole.
    unsigned *counters;
} GpuScratch;
// Where row `row` begins in .rope_cos and .rope_sin of a RoPE table.
HOST_DEVICE static inline size_t gpu_rope_at(const GpuScratch *s, int table, int row) {
    return ((size_t)table * (size_t)s->rope_rows + (size_t)row) * (size_t)s->rope_step;
}

enum { GPU_DECODE_ROWS = 8, GPU_SKINNY_ROWS = 16 }; // most rows of a launch of gpu/gemv.cuh, of gpu/skinny_gemm.cuh
// Bytes of .partial for decoding up to max_rows rows of up to max_slots slots, and the number of .counters.
size_t gpu_attention_bytes(const Heads *h, int max_rows, int max_slots);
int gpu_n_counters(const Heads *h, int max_rows);

// Blocks copy[i][0] to copy[i][1] in every layer of the pool, in this order; of sealed planes the pages tail_copy[i]
// too, where neither is -1.
void gpu_copy_blocks(const KvPool *kv, const int (*copy)[2], const int (*tail_copy)[2], int n_copies, GpuStream stream);
// Slot i of the sequence that has these blocks takes K and V of slot keep[i] in every layer and KV head of the pool,
// for i in [0, n): keep (n_layers, n_kv_heads, n) ascends, none before its own place. Dense types.
void gpu_close_up(const KvPool *kv, const int *blocks, const int *keep, int n, GpuStream stream);
// x (n_rows, dim) = scale times the tokens' rows of `tok`, and cos and sin of each row's position in every table; x
// NULL: these alone.
void gpu_embed(float *x, const DeviceTensor *tok, float scale, const GpuRopes *ropes, const GpuBatch *b,
               const GpuScratch *s, GpuStream stream);
// Row rows[i] of x (.., width), words of 4 bytes, goes to row i, for i in [0, n): rows ascends.
void gpu_move_rows(void *x, int width, const int *rows, int n, GpuStream stream);

// ---- decoding -------------------------------------------------------------------------------------------------------

// The five operations of a layer, for b->n_rows in [1, gpu_decode_rows()]. One launch each; one more for a norm behind
// a sub-layer, two more for norms of Q and K that go over a row.

typedef struct {                                       // Layer
    DeviceTensor wq, wk, wv, wo, w_gate, w_up, w_down; // stacks of experts: one tall matrix each
    DeviceTensor router, shared_gate, shared_up, shared_down, shared_route;
    const float *norm_att, *norm_ffn;         // (dim), or NULL
    const float *norm_q, *norm_k;             // (layer_norm_q, layer_norm_k), or NULL
    const float *norm_att_out, *norm_ffn_out; // (dim), or NULL
    const float *sinks;                       // (n_heads), or NULL
    LayerKind kind;
    Heads heads;
    Rope rope;
    int index;  // of the layer in its pool
    int number; // of the layer in the model
} GpuLayer;

// With weights in F32, F16, BF16 the activations stay f32; against quantised ones they are rounded to int8, 32 under
// one scale, unless `exact` (slow: for tests, and where QKV's matrices are in part quantised). GpuTuning.skinny: from 5
// rows on activations and quantised weights are rounded to bf16, beside weights in F16 activations to f16, as in
// prefill's products; F32 and what is mixed of F16 and others stays as it is.
typedef struct {
    bool exact;
} GpuProduct;

// How many rows a launch takes: GPU_DECODE_ROWS, or GPU_SKINNY_ROWS where GpuTuning.skinny is on and can take all of
// the layer's matrices.
int gpu_decode_rows(const GpuLayer *l);
int gpu_logits_rows(const DeviceTensor *head); // the same of gpu_logits

// q (n_rows, q_dim) = RoPE(norm_q(Wq norm(x) + bias)); K and V likewise into their slots.
void gpu_attn_in(float *q, const float *x, const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s,
                 GpuProduct how, GpuStream stream);
// Of sealed planes, behind gpu_attn_in or gpu_qkv_finish of all rows of a batch: the groups whose last slot is among
// them are sealed, as sealed_pack_group does it, byte for byte. Dense planes: nothing to do.
void gpu_seal(const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s, GpuStream stream);
// Of sealed planes, behind attention: the tail pages take the rows of the groups that are still open.
void gpu_keep(const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s, GpuStream stream);
// a (n_rows, q_dim) = softmax(q K) V. Any number of rows, as gpu_attention_bytes was asked for. Of sealed planes .since
// and s->qkv may lead to rows before the first one of `b`, if it is a part of a batch.
void gpu_attention(float *a, const float *q, const GpuLayer *l, const KvPool *kv, const GpuBatch *b,
                   const GpuScratch *s, GpuStream stream);
// mass (n_kv_heads, n_slots) += how much rows from first_row on look at each slot (Probe, kernels.h). Behind attention,
// whose .partial it writes over; rows as for gpu_attention.
void gpu_probe(float *mass, int n_slots, int first_row, const float *q, const GpuLayer *l, const KvPool *kv,
               const GpuBatch *b, const GpuScratch *s, GpuStream stream);
// x (n_rows, dim) += norm(Wo a)
void gpu_attn_out(float *x, const float *a, const GpuLayer *l, const GpuBatch *b, const GpuScratch *s, GpuProduct how,
                  GpuStream stream);
// h (n_rows, ffn) = act(Wgate norm(x)) * (Wup norm(x))
void gpu_ffn_in(float *h, const float *x, const GpuLayer *l, const GpuBatch *b, GpuProduct how, GpuStream stream);
// x (n_rows, dim) += norm(Wdown h)
void gpu_ffn_out(float *x, const float *h, const GpuLayer *l, const GpuBatch *b, const GpuScratch *s, GpuProduct how,
                 GpuStream stream);
// logits (n, n_vocab)[i] = Whead norm(x[rows[i]]), i in [0, n); n in [1, gpu_logits_rows()]
void gpu_logits(float *logits, const float *x, const DeviceTensor *head, const float *norm, float eps, const int *rows,
                int n, GpuProduct how, GpuStream stream);

// ---- prefill: what stands between the matrix products, for any number of rows ---------------------------------------

// Products are the backend's (cuBLAS): y (n_rows, n_out) f32 without bias. `type` of what feeds one: F32, F16, BF16.

// out (n, dim) of `type` = norm(x[rows[i]]); rows NULL: x's own. norm NULL, then rows too: x.
void gpu_rmsnorm(void *out, int type, const float *x, const float *norm, float eps, int dim, const int *rows, int n,
                 GpuStream stream);
// q (n_rows, q_dim), and K and V into their slots, from the products in s->qkv: bias, norms, RoPE.
void gpu_qkv_finish(float *q, const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s,
                    GpuStream stream);
// The rows of one sequence, up to GPU_TILE_ROWS of them, that a block of gpu_flash takes together.
enum { GPU_TILE_ROWS = 64 };
typedef struct {
    int first, n;
} GpuTile;
// Cuts a batch (host) into tiles, longest contexts first; returns how many. tiles: room for b->n_rows.
int gpu_tiles(const Batch *b, GpuTile *tiles);
// Whether gpu_flash can: K and V of one type, F16 or BF16, or one of them sealed (what a group is worth is rounded to
// f16 then); head_dim 64, 80, 96, 128 or 256. gpu_attention can always.
bool gpu_flash_can(const Heads *h, const KvPool *kv);
// a (n_rows, q_dim) of `type` = softmax(q K) V with the matrix unit; q rows `stride` floats apart. tiles: device.
void gpu_flash(void *a, int type, const float *q, size_t stride, const GpuLayer *l, const KvPool *kv, const GpuBatch *b,
               const GpuScratch *s, const GpuTile *tiles, int n_tiles, GpuStream stream);
// h (n, ffn) of `type` = act(gate + bias) * (up + bias); gate, up (n, ffn) rows `stride` floats apart; biases or NULL.
void gpu_gate_mul(void *h, int type, Activation act, const float *gate, const float *up, size_t stride,
                  const float *gate_bias, const float *up_bias, int ffn, int n, GpuStream stream);
// x (n, dim) += y (+ bias); y may be NULL (a product that added itself), bias too.
void gpu_add(float *x, const float *y, const float *bias, int dim, int n, GpuStream stream);
// x (n, dim) += norm(y + bias); bias may be NULL.
void gpu_add_normed(float *x, const float *y, const float *bias, const float *norm, float eps, int dim, int n,
                    GpuStream stream);
// x (n) = softcap(x, cap)
void gpu_softcap(float *x, float cap, size_t n, GpuStream stream);
// out (n) of `type` = x (n) f32
void gpu_convert(void *out, int type, const float *x, size_t n, GpuStream stream);

// ---- experts --------------------------------------------------------------------------------------------------------

enum { GPU_EXPERT_TILE = 64 };
typedef struct { // pairs [first, first + n) of an expert; n 0: none
    int expert, first, n;
} GpuExpertTile;

// Which rows of a batch go through which experts: ExpertRows (kernels.h). A row of padding has none.
typedef struct {
    float *logits;       // (rows, n_experts), or one more: what the router says, and of the shared expert
    int *chosen;         // (rows, n_used) a row's experts, by falling logit, of equals the first one; -1: padding
    float *weight;       // (rows, n_used)
    int *place;          // (rows, n_used) the pair; -1: padding
    int *row, *expert;   // (pairs) of a pair, which lie by expert, then by row; expert -1 behind the last one
    int *first;          // (n_experts + 1) the first pair of an expert
    GpuExpertTile *tile; // (gpu_expert_tiles) of many rows
    int *broken;         // 1 + number of the layer whose router was the first to say what is not finite
} GpuExperts;
// Points *out into `memory` (zeroed); returns the bytes. memory NULL: these alone.
size_t gpu_experts_place(GpuExperts *out, int n_experts, int n_used, int max_rows, void *memory);

// In this order: logits, route, in, out, combine. Shapes: of b's rows, n_used pairs each.
// logits = the router and shared_route of norm(x) in f32; b->n_rows in [1, GPU_DECODE_ROWS].
void gpu_expert_logits(float *logits, const float *x, const GpuLayer *l, const GpuBatch *b, GpuStream stream);
// Chooses, weighs, and sorts the pairs. biased: the logits lack the router's bias. tiles: .tile too.
void gpu_route(const GpuExperts *e, const GpuLayer *l, const GpuBatch *b, bool biased, bool tiles, GpuStream stream);
// h (pairs, width) = act(Wgate norm(x)) * (Wup norm(x)) of each pair's expert, for any number of rows; weights are read
// once for up to four pairs of an expert. y (pairs, dim) = Wdown h.
void gpu_experts_in(float *h, const float *x, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                    GpuStream stream);
void gpu_experts_out(float *y, const float *h, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                     GpuStream stream);
// The same on the tensor cores, for many rows. x (rows, dim) is normalised, of the type that gpu_expert_tiles_type says
// of gate and up; h of the one that it says of down. gate: (pairs, width) scratch, where gate and up differ in type.
int gpu_expert_tiles_type(const GpuLayer *l, bool down); // 0: they cannot
void gpu_expert_tiles_in(void *h, const void *x, float *gate, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                         GpuStream stream);
void gpu_expert_tiles_out(float *y, const void *h, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                          GpuStream stream);
// The shared expert, for b->n_rows in [1, GPU_DECODE_ROWS]: h (n_rows, its width) of norm(x), y (n_rows, dim) of h.
void gpu_shared_in(float *h, const float *x, const GpuLayer *l, const GpuBatch *b, GpuProduct how, GpuStream stream);
void gpu_shared_out(float *y, const float *h, const GpuLayer *l, const GpuBatch *b, GpuProduct how, GpuStream stream);
// x (n_rows, dim) += norm(the shared expert's part + the sum of a row's experts). y and shared (or NULL) are written
// over.
void gpu_experts_combine(float *x, float *y, float *shared, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                         GpuStream stream);

// ---- ceilings (gpu/ceilings.cuh) ------------------------------------------------------------------------------------

// Reads `bytes` (a multiple of 16) and does nothing with them; `out` is a place that it could write to.
void gpu_read(const void *data, size_t bytes, uint32_t *out, GpuStream stream);
// A kernel of one warp that does nothing. `early`: it may begin before the launch before it has ended, and waits for
// that, where gpu_begins_early.
void gpu_begin_and_end(bool early, GpuStream stream);
bool gpu_begins_early(void);

// ---- sampling -------------------------------------------------------------------------------------------------------

// A draw, in device memory.
typedef struct {
    float temp; // <= 0: the largest logit, the lowest id on ties
    int top_k;
    float top_p, min_p;
    float log_min_p; // logf(min_p), the host's
    float repeat_penalty, presence_penalty, frequency_penalty;
    uint64_t seed, sequence, position;
    const int *window; // (n_window) tokens that are penalised
    int n_window;
    bool pending; // so is the one in `sampled`
    int n_bias;
    const LogitBias *bias; // (n_bias)
} GpuSample;

// Host: *out for a draw that draw_anywhere (sampling.h) allows. Its window and bias are the host's: the caller copies
// them and points to the copies.
void gpu_sample_plan(GpuSample *out, const Draw *d);
int gpu_sample_wants(const GpuSample *s, int n_vocab); // host: how many of the best candidates it looks at
// Rows that one launch draws for; candidates that it keeps where no draw wants more, which is quicker.
enum { GPU_DRAW_ROWS = 32, GPU_SAMPLE_TOP = 64 };
size_t gpu_sample_bytes(int n_vocab, int n); // scratch of n rows, zeroed once
// sampled[i] = what sampler_sample (sampler.h) draws from logits[i] (n_vocab), to the bit, for i in [0, n); -1 where
// nothing is left. n in [1, GPU_DRAW_ROWS]; most: the most that one of them wants (gpu_sample_wants).
void gpu_sample(int *sampled, const float *logits, int n_vocab, const GpuSample *draws, int n, int most, void *scratch,
                GpuStream stream);

#ifdef __cplusplus
}
#endif

#endif
