// gpu/launch.h: the C interface of the GPU kernels: functions that queue launches on a stream.
//
// kernels.cu and gpu/*.cuh implement them: compiled by nvcc for a GPU, and by a C++ compiler with `-include
// tests/rig/gpu_host.h` for the tests. The backend (gpu/cuda_*.c) calls them. A launch returns at once. It allocates
// nothing and reads no host memory except its arguments, so that a sequence of launches may be captured as a graph and
// replayed: everything that changes from step to step (tokens, positions, slots, block tables, rows of logits) lies in
// device memory. Arguments are checked only by assert. There are no float atomics and every sum has a fixed order: the
// same input always gives the same bits.
//
// Pointers are device pointers unless a comment says "host"; rows of floats begin at multiples of 16 bytes. Matrices
// are row-major; (rows, n) has n elements per row. Sums are in f32. [Brackets] are inclusive bounds.
#ifndef QUILL_LAUNCH_H
#define QUILL_LAUNCH_H

#include "kernels.h"
#include "latent_sizes.h"
#include "gpu/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

// The first launch that failed since the last call, or NULL (static storage): QUILL_MEMORY or QUILL_MODEL, with a
// message as "gemv: invalid argument".
const Status *gpu_launch_error(void);

// Choices of kernels. They apply to the process; set them after the GPU is open and before the first launch.
typedef struct {
    bool skinny; // products of 2 (dense weights: 3) to 16 rows on the tensor cores (gpu/skinny_gemm.cuh)
    // What no GPU has found faster yet is off unless QUILL_GPU_TRY names it.
    bool ring;  // products of a row: weights come through a ring in shared memory (gpu/gemv.cuh)
    bool wgmma; // attention of many rows: the kernel for compute capability 9.0 (gpu/flash_sm90.cuh)
    bool early; // programmatic dependent launch: a decoding kernel begins before the previous one has ended
} GpuTuning;
GpuTuning gpu_tune(GpuTuning t); // returns the optimisations that this GPU supports

// ---- tensors --------------------------------------------------------------------------------------------------------

// A tensor in the GPU's memory. Dense types (F32, F16, BF16) are rows of elements, stride_bytes apart, a multiple of
// 16. Quantised types are divided into units of 32 elements and stored as planes of (n_out, n_in / 32) units, with the
// values of the file: x = d*s*q + m. Four-bit elements i and i + 16 of a unit share a byte, so that 16 bytes are 32
// weights:
//   quants  the low bits; bytes per unit: 16 (four-bit types and types with a `high` plane), 32 (eight bits), 8 (two)
//   high    the bits above them; bytes per unit: 4 (one bit each) or 8 (two bits each)
//   scales  the small integers of a super-block; bytes per unit: 2; 1 for IQ4_XS and codebook types with one scale for
//           32 weights
//   d       f16 (d) or f16 pairs (d, m): one per unit, for types with super-blocks one per 8 units; TYPE_I8G: f32 per
//           unit
// TYPE_I8G whose groups are not whole units is stored as F32.
typedef struct {
    int type;            // TYPE_ of the planes: as in the file, except TYPE_F32 for TYPE_I8G without whole units
    int n_out, n_in;     // n_out of a stack: the rows of all its matrices
    size_t stride_bytes; // dense types: from row to row
    uint8_t *quants, *high, *scales, *d;
    const float *bias; // (n_out), or NULL
} DeviceTensor;

// Plans the storage of a tensor of the file, on the host: fills *out except its pointers, returns the bytes of all
// planes.
size_t gpu_tensor_bytes(const Tensor *t, DeviceTensor *out);
// Points the planes into `memory` (gpu_tensor_bytes bytes, 256-byte aligned). The caller sets `bias`.
void gpu_tensor_place(DeviceTensor *t, void *memory);
// Converts rows [first_row, first_row + n_rows) from the file's layout. The caller has copied their bytes to the
// device: row first_row begins at `raw`, 16-byte aligned. A large tensor is converted in pieces. scales: all scales of
// TYPE_I8G; NULL for other types.
void gpu_tensor_fill(const DeviceTensor *t, const Tensor *file, int first_row, int n_rows, const void *raw,
                     const float *scales, GpuStream stream);
// Unpacks rows to a dense type for a matrix product: out (n_rows, n_in) of type F32, F16 or BF16, rows `stride`
// elements apart.
void gpu_dequantize(const DeviceTensor *t, int first_row, int n_rows, int type, void *out, size_t stride,
                    GpuStream stream);

// ---- a batch in device memory ---------------------------------------------------------------------------------------

// Batch (kernels.h) with its arrays on the device. A row with slot < 0 is padding: it writes no K and V, attends to
// nothing (a = 0) and does not change other rows. A captured graph keeps the counts of its capture.
typedef struct {
    int n_rows;
    int max_slots;                       // at least every row's slot + 1; decides the grids of attention
    const int *token, *pos, *slot, *seq; // (n_rows); token -1: the row's token is in `sampled`
    // (n_rows) for sealed KV types only: the first slot of the row's sequence in this batch, whose rows are at
    // consecutive slots; and the tail page of the row's own group (kv_tail)
    const int *since, *page;
    // The physical blocks of each sequence; tables of sequences are table_step numbers apart. Entries of window_table
    // for blocks that no row sees are arbitrary; they are not used.
    const int *block_table, *window_table; // for layers of KV_FULL and of KV_WINDOW
    int table_step;
    const int *sampled; // output of gpu_sample: sampled[i] is row i's token, -1 means token 0; or NULL
} GpuBatch;

// Rope.freq and KvPool.k, .v, .tail_k, .tail_v are device pointers here; KvPool.tail_of is not used. K and V may have
// any KV type each. head_dim is any even number up to GPU_MAX_HEAD; n_heads any multiple of n_kv_heads.
enum { GPU_MAX_HEAD = 640 }; // at least SEAL_HEAD

typedef struct { // Ends.ropes
    int n;
    Rope of[ROPE_TABLES];
} GpuRopes;

// Scratch memory of the launches below. The caller zeroes it once after allocation; a launch leaves the counters at
// zero. Only one stream may use it.
typedef struct {
    float *rope_cos, *rope_sin; // (tables, rope_rows, rope_step): rope_step is n_rot/2 of the widest table
    int rope_rows, rope_step;
    float *partial; // (gpu_attention_bytes bytes) partial results of split-K attention
    // (rows, q_dim + 2*kv_dim) products of Q, K and V. For sealed KV types, K and V stay there, with norm and RoPE
    // applied, until gpu_keep; where later layers share them, until these layers have read them.
    float *qkv;
    float *behind; // (rows, dim) a sub-layer's output before its output norm; may share memory with qkv
    // (gpu_n_counters) finished blocks of a row and head (split-K attention), or finished features of a head (QKV). The
    // block that completes a count combines the parts.
    unsigned *counters;
} GpuScratch;
// Offset of a row's values in .rope_cos and .rope_sin for one RoPE table.
HOST_DEVICE static inline size_t gpu_rope_at(const GpuScratch *s, int table, int row) {
    return ((size_t)table * (size_t)s->rope_rows + (size_t)row) * (size_t)s->rope_step;
}

enum { GPU_DECODE_ROWS = 8, GPU_SKINNY_ROWS = 16 }; // most rows of a launch of gpu/gemv.cuh and gpu/skinny_gemm.cuh
// Bytes of .partial for launches of up to max_rows rows that see up to max_slots slots; number of .counters.
size_t gpu_attention_bytes(const Heads *h, int max_rows, int max_slots);
int gpu_n_counters(const Heads *h, int max_rows);

// Copies block copy[i][0] to copy[i][1] in every layer of the pool, in order of i. Sealed planes: also tail page
// tail_copy[i][0] to tail_copy[i][1], unless one of them is -1.
void gpu_copy_blocks(const KvPool *kv, const int (*copy)[2], const int (*tail_copy)[2], int n_copies, GpuStream stream);
// Moves K and V of slot keep[i] to slot i, for i in [0, n), in every layer and KV head of the sequence with these
// blocks. keep (n_layers, n_kv_heads, n) ascends, keep[i] >= i. Dense types only.
void gpu_close_up(const KvPool *kv, const int *blocks, const int *keep, int n, GpuStream stream);
// x (n_rows, dim) = scale times the tokens' rows of `tok`, normalised if eps is not 0 (Ends.embd_eps). Also fills cos
// and sin of each row's position for every RoPE table; x NULL: only these.
void gpu_embed(float *x, const DeviceTensor *tok, float scale, float eps, const GpuRopes *ropes, const GpuBatch *b,
               const GpuScratch *s, GpuStream stream);
// Moves row rows[i] of x (.., width), words of 4 bytes, to row i, for i in [0, n). rows ascends.
void gpu_move_rows(void *x, int width, const int *rows, int n, GpuStream stream);

// ---- decoding -------------------------------------------------------------------------------------------------------

// The five operations of a layer, for b->n_rows in [1, gpu_decode_rows()]. One launch each; one more for an output norm
// of a sub-layer, two more for norms of Q and K over a whole row.

typedef struct {                                       // Layer
    DeviceTensor wq, wk, wv, wo, w_gate, w_up, w_down; // stacks of experts: one tall matrix each
    DeviceTensor router, shared_gate, shared_up, shared_down, shared_route;
    // Recurrent layers; gated attention: w_mix is the gate's matrix, and wq has the rows of Q alone
    DeviceTensor w_mix, w_z, w_beta, w_alpha;
    const float *conv, *conv_bias, *decay, *dt_bias, *norm_state, *skip; // as in Layer, or NULL
    DeviceTensor q_a, k_b, v_b, per_gate, per_out;                       // k_b and v_b: one tall matrix each
    const float *norm_att, *norm_ffn;                                    // (dim), or NULL
    const float *norm_q, *norm_k;                                        // (layer_norm_q, layer_norm_k), or NULL
    const float *norm_att_out, *norm_ffn_out;                            // (dim), or NULL
    const float *sinks;                                                  // (n_heads), or NULL
    // As in Layer, each may be NULL
    const float *norm_v, *norm_q_a, *norm_per, *norm_router, *norm_experts, *norm_shared_out, *norm_experts_out;
    const float *expert_bias, *expert_scale;
    LayerKind kind;
    Heads heads;
    Rope rope;
    Recurrence rec;
    int index;  // the layer's index in its KV pool; of a recurrent layer, among those on the device
    int number; // the layer's number in the model
} GpuLayer;

// With F32, F16 or BF16 weights the activations stay f32. With quantised weights they are rounded to int8, one scale
// for 32 of them, unless `exact` (slow: for tests, and if only some of QKV's matrices are quantised). On the tensor
// cores (GpuTuning.skinny) activations and quantised weights are rounded to bf16, and activations for F16 weights to
// f16, as in prefill's products; F32 weights and mixtures of F16 with other types do not change.
typedef struct {
    bool exact;
} GpuProduct;
static const GpuProduct gpu_rounded = {false}; // what every product of a model is

// The most rows of a launch: GPU_DECODE_ROWS, or GPU_SKINNY_ROWS if GpuTuning.skinny is on and supports all of the
// layer's matrices.
int gpu_decode_rows(const GpuLayer *l);
int gpu_logits_rows(const DeviceTensor *head); // the same for gpu_logits

// q (n_rows, q_dim) = RoPE(norm_q(Wq norm(x) + bias)); writes K and V, computed likewise, into their slots. A layer
// without wk has no K and V of its own; with wk and without wv, V is K before its norm and RoPE.
void gpu_attn_in(float *q, const float *x, const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s,
                 GpuProduct how, GpuStream stream);
// Sealed planes: seals the groups whose last slot is in the batch, with the same bytes as sealed_pack_group. Call it
// after gpu_attn_in or gpu_qkv_finish of all rows of the batch. Dense planes: does nothing.
void gpu_seal(const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s, GpuStream stream);
// Sealed planes: copies the rows of groups that are still open to the tail pages. Call it after attention.
void gpu_keep(const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s, GpuStream stream);
// a (n_rows, q_dim) = softmax(q K) V, for up to as many rows as gpu_attention_bytes was called with. If `b` is a part
// of a batch, .since and s->qkv may refer to rows before the first row of `b` (sealed planes).
void gpu_attention(float *a, const float *q, const GpuLayer *l, const KvPool *kv, const GpuBatch *b,
                   const GpuScratch *s, GpuStream stream);
// mass (n_kv_heads, n_slots) += the attention of rows from first_row on to each slot (Probe, kernels.h). Call it after
// attention: it overwrites .partial. Rows as for gpu_attention.
void gpu_probe(float *mass, int n_slots, int first_row, const float *q, const GpuLayer *l, const KvPool *kv,
               const GpuBatch *b, const GpuScratch *s, GpuStream stream);
// y (n_rows, n_out) = W norm(x); norm may be NULL. n_rows in [1, GPU_DECODE_ROWS]
void gpu_product(float *y, const float *x, const DeviceTensor *w, const float *norm, float eps, int n_rows,
                 GpuProduct how, GpuStream stream);
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

// ---- prefill: the operations between the matrix products, for any number of rows ------------------------------------

// The backend computes the products with cuBLAS: y (n_rows, n_out) in f32, without bias. `type` is the type of a
// product's input: F32, F16 or BF16.

// out (n, dim) of `type` = norm(x[rows[i]]); rows NULL: rows 0 to n - 1. norm NULL: converts x; rows must be NULL, too.
void gpu_rmsnorm(void *out, int type, const float *x, const float *norm, float eps, int dim, const int *rows, int n,
                 GpuStream stream);
// Applies bias, norms and RoPE to the products in s->qkv: q (n_rows, q_dim), and K and V into their slots.
void gpu_qkv_finish(float *q, const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s,
                    GpuStream stream);
// Up to GPU_TILE_ROWS rows of one sequence, which one block of gpu_flash computes.
enum { GPU_TILE_ROWS = 64 };
typedef struct {
    int first, n;
} GpuTile;
// Divides a batch (host) into tiles (host, room for b->n_rows), longest contexts first; returns their number.
int gpu_tiles(const Batch *b, GpuTile *tiles);
// Whether gpu_flash supports the layer: head_dim 64, 80, 96, 128 or 256; K and V both F16, both BF16, or one of them
// sealed (its unsealed values are then rounded to f16). gpu_attention supports every layer.
bool gpu_flash_can(const Heads *h, const KvPool *kv);
// a (n_rows, q_dim) of `type` = softmax(q K) V on the tensor cores; rows of q are `stride` floats apart. tiles: device.
void gpu_flash(void *a, int type, const float *q, size_t stride, const GpuLayer *l, const KvPool *kv, const GpuBatch *b,
               const GpuScratch *s, const GpuTile *tiles, int n_tiles, GpuStream stream);
// Whether gpu_wide_flash supports the layer: 16-bit planes of one type, no sinks, and heads of 512 elements or
// compressed K and V with a V of 256 or 512 elements.
bool gpu_wide_can(const GpuLayer *l, const KvPool *kv);
// a (n_rows, n_heads, head_dim) of `type`, of each head the elements that V has, = softmax(q K) V on the tensor cores.
// tiles: device; NULL: for up to as many rows as gpu_attention_bytes was called with.
void gpu_wide_flash(void *a, int type, const float *q, const GpuLayer *l, const KvPool *kv, const GpuBatch *b,
                    const GpuScratch *s, const GpuTile *tiles, int n_tiles, GpuStream stream);
// h (n, ffn) of `type` = act(gate + gate_bias) * (up + up_bias); gate and up (n, ffn) are of type `of`, F32 or BF16,
// rows `stride` elements apart; a bias may be NULL.
void gpu_gate_mul(void *h, int type, Activation act, const void *gate, const void *up, int of, size_t stride,
                  const float *gate_bias, const float *up_bias, int ffn, int n, GpuStream stream);
// h (n, ffn) of `type` = ACT_XIELU of v + bias; v (n, ffn) is of type `of` and may be h if the types are equal; bias
// may be NULL.
void gpu_xielu(void *h, int type, const Xielu *x, const void *v, int of, const float *bias, int ffn, int n,
               GpuStream stream);
// x (n, dim) += y + bias; both may be NULL (y NULL: the product has already been added to x).
void gpu_add(float *x, const float *y, const float *bias, int dim, int n, GpuStream stream);
// x (n, dim) += norm(y + bias); bias may be NULL.
void gpu_add_normed(float *x, const float *y, const float *bias, const float *norm, float eps, int dim, int n,
                    GpuStream stream);
// Subtracts the mean from each of the n rows of x (n, dim).
void gpu_centre(float *x, int dim, int n, GpuStream stream);
// x (n) = softcap(x, cap)
void gpu_softcap(float *x, float cap, size_t n, GpuStream stream);
// out (n) of `type` = x (n) f32
void gpu_convert(void *out, int type, const float *x, size_t n, GpuStream stream);

// ---- per-layer embeddings, and the end of a layer (gpu/per_layer.cuh), for any number of rows -----------------------

// per (n, width) = (norm(per) + sqrt(width) * own) / sqrt(2), for n parts: those of all layers and rows. own (n,
// width): the tokens' rows of Ends.per_embd, as gpu_embed gives them. norm (width)
void gpu_per_layer_embed(float *per, const float *own, const float *norm, float eps, int width, size_t n,
                         GpuStream stream);
// h (n_rows, width) of `type` = act(gate (n_rows, width)) * per; rows of per are `stride` floats apart.
void gpu_per_layer_gate(void *h, int type, Activation act, const float *gate, const float *per, size_t stride,
                        int width, int n_rows, GpuStream stream);
// x (n_rows, dim) = (x + norm(y)) * scale; y or norm may be NULL.
void gpu_per_layer_end(float *x, const float *y, const float *norm, float eps, float scale, int dim, int n_rows,
                       GpuStream stream);

// ---- compressed K and V (gpu/latent.cuh), for any number of rows unless said otherwise ------------------------------

// The elements of all heads of all rows: elements from one row and from one head to the next.
typedef struct {
    void *at;
    size_t row, head;
} GpuHeadRows;

// Call in this order: in, q (if the layer has q_a), split, heads with k_b, attention, heads with v_b. The stored vector
// has `rank` elements, Heads.v_dim, and then those with RoPE. In the expanded form, for many rows of one sequence:
// split, read, products of the read vectors with k_b and v_b, flash. y (n_rows, n + head_dim) = (q_a or wq, and wk)
// norm(x), side by side; n_rows in [1, GPU_DECODE_ROWS]
void gpu_latent_in(float *y, const float *x, const GpuLayer *l, int n_rows, GpuProduct how, GpuStream stream);
// y (n_rows, wq.n_out) = Wq norm(x), x: rows of gpu_latent_in; n_rows in [1, GPU_DECODE_ROWS]
void gpu_latent_q(float *y, const float *x, const GpuLayer *l, int n_rows, GpuProduct how, GpuStream stream);
// From Wq's and Wk's products, whose rows are q_stride and k_stride apart: stores K in its slot; the part of Q with
// RoPE goes to q (n_rows, n_heads, head_dim) from element `rank` on, the other part to plain (n_heads, n_rows,
// k_b.n_in) of `type`. plain NULL, for the expanded form: all of Q goes to q, whose heads then begin a whole query
// (plain and RoPE) apart, in rows as long as before.
void gpu_latent_split(float *q, void *plain, int type, const float *from_q, size_t q_stride, const float *from_k,
                      size_t k_stride, const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s,
                      GpuStream stream);
// y = each head's matrix of the stack times its x; both f32. For few rows: they are computed four at a time.
void gpu_latent_heads(GpuHeadRows y, GpuHeadRows x, const DeviceTensor *stack, int n_heads, int n_rows,
                      GpuStream stream);
// Reads slots [0, n_slots) of sequence `seq`, from planes of 16 bits: the compressed vectors to vectors (n_slots,
// rank), unless that is NULL; the part with RoPE to the ends of the keys (n_heads, n_slots, query), all of `type`.
void gpu_latent_read(void *vectors, void *keys, int type, const LatentSizes *z, int n_heads, int seq, int n_slots,
                     const GpuLayer *l, const KvPool *kv, const GpuBatch *b, GpuStream stream);
// Whether gpu_latent_flash has a kernel for heads of these sizes.
bool gpu_latent_flash_can(const LatentSizes *z);
// out = softmax(q K) V of all rows of b, which are of one sequence, for n_heads heads: q (query) and out (v) of a row
// are side by side, rows `stride` and out_stride floats apart. `expanded` has one block, in 16 bits, with a KV head for
// each head; b->block_table begins with 0, and its table_step is 0.
void gpu_latent_flash(float *out, size_t out_stride, const float *q, size_t stride, const GpuLayer *l, int n_heads,
                      const KvPool *expanded, const GpuBatch *b, GpuStream stream);
// ---- experts --------------------------------------------------------------------------------------------------------

enum { GPU_EXPERT_TILE = 64 };
typedef struct { // pairs [first, first + n) of an expert; n 0: none
    int expert, first, n;
} GpuExpertTile;

// Which rows of a batch are routed to which experts, as ExpertRows (kernels.h). A pair is a row with one of its
// experts. Padding rows have no pairs.
typedef struct {
    float *logits;       // (rows, n_experts or n_experts + 1) router logits; the last may be the shared expert's
    int *chosen;         // (rows, n_used) a row's experts by falling logit, ties by number; -1: padding
    float *weight;       // (rows, n_used) of the experts' outputs
    float *factor;       // (pairs) of the experts' inputs; only with route_weighs_inputs, where the weights are 1
    float *score;        // (rows, n_experts) what experts are chosen by where sigmoids or groups decide: sigmoid +
                         // expert_bias, or the logit; -INFINITY in groups that are not among the best
    int *place;          // (rows, n_used) the pair's index; -1: padding
    int *row, *expert;   // (pairs) row and expert of a pair; sorted by expert, then by row; expert -1: after the last
    int *first;          // (n_experts + 1) the first pair of an expert
    GpuExpertTile *tile; // tiles for many rows
    int *broken;         // 1 + the number of the first layer whose router logits were not finite; 0: none
} GpuExperts;
// Points *out into `memory` (zeroed) and returns the bytes needed. memory NULL: only returns the bytes.
size_t gpu_experts_place(GpuExperts *out, int n_experts, int n_used, int max_rows, void *memory);

// Call in this order: logits, route, in, out, combine. Each row of b has n_used pairs.
// logits = router and shared_route times norm(x) (norm_router, if the layer has it), in f32; b->n_rows in
// [1, GPU_DECODE_ROWS].
void gpu_expert_logits(float *logits, const float *x, const GpuLayer *l, const GpuBatch *b, GpuStream stream);
// Chooses the experts, computes their weights and sorts the pairs. biased: the router's bias must still be added to the
// logits. tiles: also fills .tile.
void gpu_route(const GpuExperts *e, const GpuLayer *l, const GpuBatch *b, bool biased, bool tiles, GpuStream stream);
// For any number of rows: h (pairs, width) = act(Wgate norm(x)) * (Wup norm(x)) with each pair's expert; y (pairs, dim)
// = Wdown h. An expert's weights are read once for up to four of its pairs.
void gpu_experts_in(float *h, const float *x, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                    GpuStream stream);
void gpu_experts_out(float *y, const float *h, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                     GpuStream stream);
// The same on the tensor cores, for many rows. x (rows, dim) is already normalised. gpu_expert_tiles_type returns the
// type of x (down false) and of h (down true). gate: (pairs, width) scratch, used if gate and up differ in type.
int gpu_expert_tiles_type(const GpuLayer *l, bool down); // 0: this layer is not supported
void gpu_expert_tiles_in(void *h, const void *x, float *gate, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                         GpuStream stream);
void gpu_expert_tiles_out(float *y, const void *h, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                          GpuStream stream);
// The shared expert, for b->n_rows in [1, GPU_DECODE_ROWS]: norm(x) to h (n_rows, its width), h to y (n_rows, dim).
void gpu_shared_in(float *h, const float *x, const GpuLayer *l, const GpuBatch *b, GpuProduct how, GpuStream stream);
void gpu_shared_out(float *y, const float *h, const GpuLayer *l, const GpuBatch *b, GpuProduct how, GpuStream stream);
// x (n_rows, dim) += norm(the shared expert's output + the weighted sum of a row's experts); each of the two may have a
// norm of its own. Overwrites y and shared; shared may be NULL.
void gpu_experts_combine(float *x, float *y, float *shared, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                         GpuStream stream);

// ---- kernels that measure limits (gpu/ceilings.cuh) -----------------------------------------------------------------

// Reads `bytes` (a multiple of 16) and does nothing with them. `out` only keeps the compiler from removing the reads.
void gpu_read(const void *data, size_t bytes, uint32_t *out, GpuStream stream);
// An empty kernel of one warp. early, if gpu_begins_early(): it may begin before the previous launch has ended, and
// then waits for that.
void gpu_begin_and_end(bool early, GpuStream stream);
bool gpu_begins_early(void);

// ---- sampling -------------------------------------------------------------------------------------------------------

// The parameters of one draw (Draw of sampling.h), in device memory.
typedef struct {
    float temp; // <= 0: the largest logit, the lowest id on ties
    int top_k;
    float top_p, min_p;
    float log_min_p; // logf(min_p), computed on the host
    float xtc_probability, xtc_threshold;
    float repeat_penalty, presence_penalty, frequency_penalty;
    uint64_t seed, sequence, position;
    const int *window; // (n_window) tokens that are penalised
    int n_window;
    bool pending; // the token in `sampled` is penalised, too
    int n_bias;
    const LogitBias *bias; // (n_bias)
} GpuSample;

// Host: converts a draw that draw_anywhere (sampling.h) allows. window and bias of *out are host pointers; the caller
// copies the arrays to the device and replaces the pointers.
void gpu_sample_plan(GpuSample *out, const Draw *d);
int gpu_sample_wants(const GpuSample *s, int n_vocab); // host: how many of the largest candidates the draw needs
// Numbers of a batch that a draw advances to those of the next step, if its sequence just goes on: row i's token
// becomes -1 (in `sampled`), its position, slot and .since (sealed K and V; or NULL) grow by one, and so does the
// draw's position. token NULL: nothing is advanced. Draw i belongs to row i.
typedef struct {
    int *token, *pos, *slot, *since;
} GpuAdvance;
// The most rows of one launch; the number of candidates for which gpu_sample is faster, if no draw needs more.
enum { GPU_DRAW_ROWS = 32, GPU_SAMPLE_TOP = 64 };
size_t gpu_sample_bytes(int n_vocab, int n); // scratch for n rows; the caller zeroes it once
// sampled[i] = the token that sampler_sample (sampler.h) draws from logits[i] (n_vocab), bit for bit, for i in [0, n);
// -1: no candidate is left. n in [1, GPU_DRAW_ROWS]; most: the largest gpu_sample_wants of these draws, at most
// GPU_SAMPLE_TOP if something is advanced.
void gpu_sample(int *sampled, const float *logits, int n_vocab, GpuSample *draws, int n, int most, GpuAdvance advance,
                void *scratch, GpuStream stream);

#ifdef __cplusplus
}
#endif

#endif
