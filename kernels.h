// kernels.h: the one contract between the model and what computes it: tensors, layers, batches, KV storage, backends.
//
// A batch is rows. A row is a token of a sequence with two numbers that are never conflated: its `slot`, the row in its
// sequence's cache, and its `pos`, the RoPE position. A row sees the keys of its own sequence at slots <= its own and
// writes its K and V at its slot; all K and V of a layer are written before any row of that layer reads. There is no
// prefill flag, no length and no mask: prefill, chunked prefill, decoding, batches, speculation are choices of rows.
// A layer is five operations, the same on every backend; n_rows == 1 is a batch of one.
//
// Memory is the host's unless a backend has its own (Backend.memory): then Model, KvPool and Workspace carry a handle
// to what it keeps there, and model.c hands the residual stream over where the layers change from the host to the
// device.
#ifndef QUILL_KERNELS_H
#define QUILL_KERNELS_H

#include "sampling.h"
#include "sealed.h"
#include "threads.h"
#include "util.h"

typedef struct Backend Backend;

// A matrix as the file has it: n_out rows of n_in elements. The data belongs to the model file.
typedef struct {
    const void *data;
    const float *scales; // TYPE_I8G alone: (n_out * n_in / group), unaligned
    const float *bias;   // (n_out), or NULL
    int type;            // TYPE_ of quants.h
    int group;           // TYPE_I8G alone: elements under one scale, counted over the flat tensor
    int n_out, n_in;
    size_t row_bytes;
    const void *device; // the copy of the backend that uses it, in that one's memory and layout; NULL: `data` is used
} Tensor;

typedef struct {
    int n_heads, n_kv_heads, head_dim;
    int n_rot;               // leading elements of a head that RoPE turns, even
    int window;              // a row sees its last `window` slots; 0: all
    bool rope_adjacent;      // pairs are (2i, 2i+1); otherwise (i, i + n_rot/2)
    float scale;             // of the scores, 1/sqrt(head_dim)
    float rope_mscale;       // YaRN's magnitude, on cos and sin; otherwise 1
    const double *rope_freq; // (n_rot/2) radians a position
} Heads;

// Turns a head that stands at some position on by `positions`, without the magnitude, which it has already.
void rope_turn(const Heads *h, float *head, double positions);

typedef struct {
    Tensor wq, wk, wv, wo;       // (n_heads*head_dim, dim), 2 x (n_kv_heads*head_dim, dim), (dim, n_heads*head_dim)
    Tensor w_gate, w_up, w_down; // 2 x (ffn, dim), (dim, ffn)
    const float *norm_att, *norm_ffn; // (dim)
    const float *norm_q, *norm_k;     // (head_dim), or NULL: no QK-norm
    Heads heads;
    float eps;
    int index; // of the layer
    const Backend *be;
    const void *device; // the backend's copy of all of it; NULL: it uses what is above
} Layer;

// What attention is to report of a batch of one sequence: how much its queries looked at each slot. Dense KV alone.
typedef struct {
    int first_row, n_slots; // rows from first_row on are counted; the sequence has at most n_slots
    float *mass;   // (n_layers, n_kv_heads, n_slots) added to: softmax weights over the rows and a group's heads
    float *scores; // (n_kv_heads, n_slots) scratch
    float *device; // the mass of a device's layers, in its memory, where DeviceMemory.probe_new has put it
} Probe;

typedef struct {
    int n_rows, n_out, n_seqs, max_blocks, n_copies;
    int *token, *pos, *slot, *seq; // (n_rows) rows of a sequence are adjacent, their slots ascending, gaps allowed
    int *out_row;                  // (n_out) rows whose logits are wanted
    // (n_out) NULL, or: the device draws a token from each row's logits, which stay there (model_draws). In the batch
    // after such a one, which has as many rows, a token -1 is the one that was drawn there.
    const Draw *draw;
    int *block_table; // (n_seqs, max_blocks) physical block of each logical block
    int (*copy)[2];   // (n_copies) blocks (src, dst) copied in every layer, in this order, before any write
    Probe *probe;     // NULL: nothing is reported
} Batch;

// The K and V of all layers in blocks of `block` slots; (n_layers, n_blocks, n_kv_heads, block) times kv_slot_bytes
// each. Dense types hold head_dim values a slot. Of a sealed type (kv_is_sealed) a row sees the groups of SEAL slots
// before its own group as they were sealed, and its own group dense: what it reads is a function of its slot alone,
// whatever the batches were. A group is sealed in the step that computes its last slot; until then its rows are kept
// from step to step in a tail page, which belongs to the block of the group's first slot. The rows of a sequence in a
// batch are then consecutive slots.
// The last n_device layers' part, tail pages too, is in a device's memory; k, v, tail_k and tail_v hold the others'.
typedef struct {
    int n_layers, n_blocks, n_kv_heads, block, head_dim;
    int type_k, type_v; // TYPE_F32, _F16, _BF16; sealed: _FP8, _Q8_0, _Q4_0, _KIVI2
    uint8_t *k, *v;
    size_t bytes_k, bytes_v; // of k and v
    int n_device;
    const Backend *be; // whose memory the device's part is in; NULL: there is none
    void *device;
    // sealed types
    bool rotate;            // K is stored turned by a Hadamard matrix, as its queries are
    int n_tails;            // pages
    int *tail_of;           // (n_blocks) the page of the block's open group, -1: none; NULL: no plane is sealed
    float *tail_k, *tail_v; // (layers here, n_tails, n_kv_heads, SEAL, head_dim) each; NULL: that plane is dense
} KvPool;

static inline size_t kv_type_bytes(int type) { return type == TYPE_F32 ? 4 : 2; } // of an element of a dense type
// One slot of one block and KV head, counted over the plane.
HOST_DEVICE static inline size_t kv_slot(const KvPool *kv, int layer, int block, int head, int offset) {
    return (((size_t)layer * (size_t)kv->n_blocks + (size_t)block) * (size_t)kv->n_kv_heads + (size_t)head) *
               (size_t)kv->block +
           (size_t)offset;
}
// Index, in elements, of the head_dim values of one slot of one block and KV head in a dense plane.
static inline size_t kv_index(const KvPool *kv, int layer, int block, int head, int offset) {
    return kv_slot(kv, layer, block, head, offset) * (size_t)kv->head_dim;
}
// The same in tail_k and tail_v, of a slot of a page's group.
HOST_DEVICE static inline size_t kv_tail_index(const KvPool *kv, int layer, int page, int head, int offset) {
    return ((((size_t)layer * (size_t)kv->n_tails + (size_t)page) * (size_t)kv->n_kv_heads + (size_t)head) * SEAL +
            (size_t)offset) *
           (size_t)kv->head_dim;
}
// The page of the group that a slot of a sequence lies in; -1: it has none, or no plane is sealed.
static inline int kv_tail(const KvPool *kv, const int *blocks, int slot) {
    return kv->tail_of ? kv->tail_of[blocks[slot / SEAL * SEAL / kv->block]] : -1;
}

// K and V of n slots of a sequence in one layer, from slot `first` on, in an order that no block and no layout shows:
// K as (n, n_kv_heads) slots of type_k, then V likewise of type_v. Of a sealed type `first` begins a group, whole
// groups come sealed, each as (SEAL, n_kv_heads) of its parts, and the rows of the last one dense, in f32. `blocks` is
// the sequence's block table; copies that a batch was to make (Batch.copy) must have been made. Wherever the layer's
// planes are.
size_t kv_rows_bytes(const KvPool *kv, int n);
void kv_read_rows(const KvPool *kv, int layer, const int *blocks, int first, int n, void *out);
void kv_write_rows(KvPool *kv, int layer, const int *blocks, int first, int n, const void *rows);
// Whether what was read is what was computed: QUILL_MODEL after a device has failed.
Status kv_intact(const KvPool *kv);

// Scratch of a forward, sized once for max_rows; nothing is allocated while decoding. The arrays are the host's
// layers'; without such layers there are none but `logits`.
typedef struct {
    int max_rows, max_out;
    int max_slots;                               // of one sequence
    int dim, q_dim, kv_dim, ffn, n_vocab, n_rot; // q_dim = n_heads*head_dim
    ThreadPool *pool;
    bool decodes;               // the step's rows are of as many sequences: prompts may be computed more exactly
    float *x;                   // (max_rows, dim) the residual stream
    float *q;                   // (max_rows, q_dim) queries, turned
    float *a;                   // (max_rows, q_dim) what attention found
    float *h, *up;              // (max_rows, ffn) gated activations, and what gates them; h: parts of attention too
    float *k, *v;               // (max_rows, kv_dim) before they are stored
    float *xn;                  // (max_rows, dim) a normalised copy of x
    float *rope_cos, *rope_sin; // (max_rows, n_rot/2)
    int *few;                   // (3, max_out) the batch of the rows that go through all of the last layer
    float *logits;              // (max_out, n_vocab)
    uint8_t *packed;            // the matrix kernels' copy of the activations
    uint8_t *panels;            // (threads, panel_bytes) a worker's own scratch
    size_t packed_bytes, panel_bytes;
    void *pages; // the one allocation all of them lie in
    size_t n_bytes;
    const Backend *be; // that has scratch of its own besides, in `device`; NULL: none
    void *device;
} Workspace;

// What is loaded into a device's memory: the last n layers, the head, and the embedding where all layers are there.
typedef struct {
    Layer *layers; // (n)
    int n;
    Tensor *tok_embd, *head; // tok_embd NULL: the host embeds. The same data: kept once
    const float *norm_out;
    ThreadPool *pool;
    size_t spare;                                         // bytes that it may spend on copies that make products faster
    void (*progress)(void *arg, double done, double all); // in bytes; NULL: nobody looks
    void *arg;
} DeviceLoad;

// What a backend adds that has memory of its own.
typedef struct {
    // Fills .device of the layers and tensors; *out owns it all until unload. QUILL_MEMORY; nothing is left then.
    Status (*load)(const Backend *be, const DeviceLoad *what, void **out);
    void (*unload)(void *device);
    Status (*kv_new)(KvPool *kv); // the last kv->n_device layers' planes: kv->device
    void (*kv_free)(KvPool *kv);
    // kv_read_rows and kv_write_rows of such a layer
    void (*kv_move)(const KvPool *kv, int layer, const int *blocks, int first, int n, void *rows, bool store);
    // In such layers slot i of a sequence takes K and V of slot keep[i], for i in [0, n): keep (n_device, n_kv_heads,
    // n) ascends, none before its own place. Dense types.
    void (*close_up)(KvPool *kv, const int *blocks, int n_blocks, const int *keep, int n);
    Status (*probe_new)(Probe *p, const KvPool *kv); // p->device, to be filled
    void (*probe_free)(Probe *p);
    void (*probe_move)(Probe *p, const KvPool *kv, bool store); // their part of p->mass comes from there, or goes there
    Status (*scratch_new)(Workspace *w, const Heads *h);        // w->device, and w->logits
    void (*scratch_free)(Workspace *w);
    // w->x, which the host computed, for layer l
    void (*receive)(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b);
    // logits of b->out_row, and a token drawn from each as b->draw says. Two of them may be on their way.
    void (*draw)(Workspace *w, const Tensor *head, float eps, const Batch *b);
    const int *(*drawn)(Workspace *w); // waits for the older one's tokens: model_drawn
    void (*wait)(void);                // until all that was begun is computed
    const char *(*failure)(void);      // the first that happened, or NULL; what is computed after it is void
} DeviceMemory;

struct Backend {
    const char *name;    // "cpu"
    const char *isa;     // "scalar", "amx", ...
    const char *kernels; // which kernels run, for --verbose: "decode ...; prefill ..."
    size_t (*packed_bytes)(const Backend *be, int max_rows, int max_n_in); // what Workspace.packed must hold
    size_t panel_bytes;                                                    // what each thread needs of Workspace.panels
    const void *impl;                                                      // the backend's own
    const DeviceMemory *memory;                                            // NULL: it computes in the host's
    // With `memory`: layer_forward of n layers in a row, which may be one thing to launch.
    void (*layers)(Workspace *w, const Layer *l, int n, KvPool *kv, const Batch *b);

    void (*copy_blocks)(Workspace *w, KvPool *kv,
                        const Batch *b); // Batch.copy, in every layer whose planes are its own
    // tokens -> x, and what the layers need of positions and of the batch's place in kv
    void (*embed)(Workspace *w, const Backend *be, const Tensor *tok, const Heads *h, const KvPool *kv, const Batch *b);
    void (*attn_in)(Workspace *w, const Layer *l, KvPool *kv, const Batch *b); // norm, QKV, RoPE; K,V to slots
    // a = softmax(q K) V; then the tail pages take the rows of groups that are still open
    void (*attention)(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b);
    void (*attn_out)(Workspace *w, const Layer *l, const Batch *b); // x += Wo a
    void (*ffn_in)(Workspace *w, const Layer *l, const Batch *b);   // h = silu(Wgate xn) * (Wup xn)
    void (*ffn_out)(Workspace *w, const Layer *l, const Batch *b);  // x += Wdown h
    // logits[i] = Whead norm(x[rows[i]]) for i in [0, n_rows), n_rows <= max_out
    void (*logits)(Workspace *w, const Backend *be, const Tensor *head, const float *norm, float eps, const int *rows,
                   int n_rows);
};

static inline void layer_rest(Workspace *w, const Layer *l, KvPool *kv, const Batch *b) {
    l->be->attention(w, l, kv, b); // softmax(Q K^T) V over the block table
    l->be->attn_out(w, l, b);      // x += Wo a
    l->be->ffn_in(w, l, b);        // RMSNorm -> gate, up -> GLU
    l->be->ffn_out(w, l, b);       // x += Wdown h
}

static inline void layer_forward(Workspace *w, const Layer *l, KvPool *kv, const Batch *b) {
    l->be->attn_in(w, l, kv, b); // RMSNorm -> Q,K,V (+bias, +QK-norm) -> RoPE -> K,V into their slots
    layer_rest(w, l, kv, b);
}

// The CPU's backends. isa: "auto", "scalar", "portable", "avx2", "avx512", "amx"; QUILL_USAGE if unknown, QUILL_MODEL
// if this CPU lacks it (both name what there is).
Status cpu_backend(const char *isa, const Backend **out);
// The same, whose results are the same bits whatever the batch, the chunks, the KV layout and the number of threads:
// one kernel of a type serves any number of rows, and attention sums in an order that a row's slot alone decides.
Status cpu_backend_deterministic(const char *isa, const Backend **out);
bool cpu_has_isa(const char *isa);
const char *cpu_isa_list(void); // those this CPU can run, "scalar, portable, avx2, ..."

#endif
