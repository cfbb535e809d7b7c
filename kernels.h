// kernels.h: the contract between the model and its backends: batches, scratch memory, operations. layer.h has the
// layers, kv/kvpool.h the memory of K and V.
//
// A batch is a list of rows. A row is one token of one sequence. It has two numbers that must not be confused: `slot`,
// its index in the cache of its sequence, and `pos`, its RoPE position. A row writes its K and V at its slot, and
// attends to its own sequence at slots <= its own. All rows write their K and V of a layer before any row reads them.
// There is no prefill flag, no length and no mask: prefill, chunked prefill, decoding, batching and speculation differ
// in their rows only. A layer is five operations, the same on every backend; a single row is a batch with n_rows == 1.
//
// All data is in the host's memory, except that a backend may have a memory of its own (Backend.memory). Then Model,
// KvPool and Workspace hold handles to the data there, and model.c copies the residual stream from the host to the
// device between the host's last layer and the device's first.
#ifndef QUILL_KERNELS_H
#define QUILL_KERNELS_H

#include "layer.h"
#include "sampling.h"
#include "kv/kvpool.h"
#include "base/threads.h"
#include "base/base.h"

typedef struct Batch Batch;
typedef struct Workspace Workspace;

// Attention weights that a step is to record: how much weight each slot received. Needs a batch of one sequence and
// dense KV.
typedef struct {
    int first_row, n_slots; // rows from first_row on are counted; the sequence has at most n_slots
    float *mass;   // (n_layers, n_kv_heads, n_slots) by Layer.index: to each the step adds the softmax weights of its
                   // rows, summed over the query heads of the KV head
    float *device; // the mass of the device's layers, in the device's memory (DeviceMemory.probe_new)
} Probe;

// Selects the rows that continue after a layer has stored K and V. The other rows end there.
typedef struct {
    int layer; // Layer.index; -1: each layer but the last
    // Writes the rows that continue to `rows`, ascending, including all rows of b->out_row; returns their number.
    int (*choose)(void *arg, const Layer *l, const KvPool *kv, const Batch *b, int *rows);
    void *arg;
} Narrow;

// K and V of slots that no row of the batch computes: they are loaded into the pool while the step runs.
typedef struct {
    void (*wait)(void *arg, const Layer *l); // called before the layer stores K and V: returns when its pool has them
    void *arg;
} KvArrival;

// The product that is about to be computed. Its input is w->x after a norm (FEEDS_QKV, FEEDS_FFN_IN, FEEDS_HEAD), or
// w->a or w->h as it is (FEEDS_ATTENTION_OUT, FEEDS_FFN_OUT).
typedef enum { FEEDS_QKV, FEEDS_ATTENTION_OUT, FEEDS_FFN_IN, FEEDS_FFN_OUT, FEEDS_HEAD } WatchFeed;

// Callbacks that observe the layers; either may be NULL. Only for layers that the host computes.
typedef struct {
    // Called after attention, while w->q, w->k, w->v and w->a hold the values of the rows.
    void (*attended)(void *arg, const Workspace *w, const Layer *l, const Batch *b);
    // Called before a product; for FEEDS_HEAD l is the last layer.
    void (*feeds)(void *arg, WatchFeed feed, const Workspace *w, const Layer *l, const Batch *b);
    void *arg;
} Watch;

struct Batch {
    int n_rows, n_out, n_seqs, max_blocks, n_copies;
    int *token, *pos, *slot, *seq; // (n_rows) rows of a sequence are adjacent, their slots ascending, gaps allowed
    int *out_row;                  // (n_out) rows whose logits are wanted
    // (n_out) how the device draws a token from the logits of each row, which stay on the device (model_draws); NULL:
    // the host gets the logits. In the batch after one with draws, which has as many rows, a row with the token -1 uses
    // the token drawn at its index.
    const Draw *draw;
    int *block_table;  // (n_seqs, max_blocks) physical block of KV_FULL of each logical block
    int *window_table; // the same of KV_WINDOW, any value for blocks that no row sees; NULL without such layers
    int (*copy)[2];    // (n_copies) blocks (src, dst) copied in every layer of KV_FULL, in this order, before any write
    int (*window_copy)[2];    // (n_copies) the same of KV_WINDOW
    Probe *probe;             // NULL: no attention weights are recorded
    const Narrow *narrow;     // NULL: rows without logits end in the last layer, if the backend can do that
    const Watch *watch;       // NULL: no callbacks
    const KvArrival *arrival; // NULL: all K and V that the rows see are in the pool. Only the host's layers wait
    // For recurrent layers; NULL: there are none. state_in: for each sequence the index of its state before its first
    // row, -1: the start of the sequence. state_out: for each row the index where the state after it is stored, -1: it
    // is not stored. The last row of a sequence always stores its state, possibly over the sequence's state_in.
    StatePool *states;
    int *state_in, *state_out; // (n_seqs), (n_rows)
    const float *given;        // (n_rows, dim) the hidden vectors that Ends.join takes; NULL without it
    bool whole; // rows without logits pass the last layer too, so that model_last_hidden gives those of all rows
    // (n_rows) Layer.index of the layer in which each row ended; the number of layers: it passed all of them.
    // model_forward and model_hidden write it, and costs_batch (costs.h) reads it. NULL: it is not wanted
    int *ended;
    int n_step; // set by model_forward and model_hidden: n_rows before any layer narrowed them
};

// Whether the step has one row for each sequence, as in decoding.
static inline bool batch_decodes(const Batch *b) { return b->n_step == b->n_seqs; }

// The block table and the block copies of a batch for a pool.
static inline const int *batch_table(const Batch *b, const KvPool *kv) {
    return kv->kind == KV_WINDOW ? b->window_table : b->block_table;
}
static inline const int (*batch_copies(const Batch *b, const KvPool *kv))[2] {
    return (const int(*)[2])(kv->kind == KV_WINDOW ? b->window_copy : b->copy);
}
// The assignment of a batch's rows to experts. A pair is a row and one of its n_used experts. Pairs are ordered by
// expert, then by row; their activations are in w->h in this order, (pairs, width of an expert). The activations of the
// shared expert, (rows, its width), follow after max_rows * n_used pairs.
typedef struct {
    float *logits; // (max_rows, n_experts) the router's output
    float *shared; // (max_rows) the output of shared_route, before the sigmoid
    int *chosen;   // (max_rows, n_used) a row's experts, by descending score: the logit, or its probability plus the
                   // expert's bias, in the groups that are kept; among equal scores the lower index first
    float *weight; // (max_rows, n_used) the weights of their outputs, or inputs (Routing)
    int *place;    // (max_rows, n_used) the index of the pair
    int *row;      // (max_rows * n_used) the row of a pair
    int *first;    // (n_experts + 1) the first pair of an expert. Here, in `task` and in `at` the size is that of
                   // latent_heads if it is larger than n_experts
    float *x;      // (max_rows * n_used, dim) the experts' inputs, later their outputs
    float *out;    // (max_rows, dim) the sum that is added to the residual stream
    int *task;     // (2 * n_experts + 1) the first task of each expert's matrices
    size_t *at;    // (n_experts) offset of an expert's packed rows in Workspace.packed
    bool *asked;   // (n_layers, n_experts) by Layer.index: an expert's weights were asked for (file_want)
    int broken;    // 1 + index of the first layer whose router gave NaN; 0: none
} ExpertRows;

// Scratch memory of a forward pass, allocated once for max_rows; decoding allocates nothing. The arrays are for layers
// that the host computes; if there are none, only `logits` and `narrowed` exist.
struct Workspace {
    int max_rows, max_out;
    int max_slots; // of one sequence
    // Strides of rows, those of the widest layer: q_dim = n_heads*head_dim, kv_dim = n_kv_heads*head_dim, ffn. n_rot:
    // of the widest RoPE
    int dim, q_dim, kv_dim, ffn, n_vocab, n_rot;
    int a_dim, mix_dim;                // the widest layer_mixed and layer_mix_width
    int n_experts, n_used, ffn_shared; // of FFN_EXPERTS, where ffn = n_used * an expert's width + ffn_shared
    int n_ropes;
    int latent_dim, latent_heads; // of MIXER_LATENT; 0: there is no such layer
    int per_dim;                  // n_layers * Ends.per
    int widest;                   // the widest output of a feed-forward's gate
    int join_dim;                 // n_in of Ends.join; 0: there is none
    ThreadPool *pool;
    float *x;               // (max_rows, dim) the residual stream
    float *q;               // (max_rows, q_dim) queries, rotated
    float *a;               // (max_rows, a_dim) the output of attention or of a recurrence
    float *mix;             // (max_rows, mix_dim) intermediate values of recurrent mixers and gated attention
    float *h, *up;          // (max_rows, ffn) act(gate) * up, and up; attention uses h for partial results
    float *k, *v;           // (max_rows, kv_dim) K and V before they are stored; kv_step > 0: one array for each pool
    size_t kv_step;         // floats from the rows of KV_FULL to those of KV_WINDOW; 0: both use the same memory
    float *xn;              // (max_rows, dim) a normalised copy of x
    float *latent[2];       // (max_rows, latent_dim) MIXER_LATENT: Q and the attention output, by row or by head
    float *per, *per_token; // (max_rows, per_dim) the per-layer embeddings (Ends.per); their rows of per_embd
    float *joined;          // (max_rows, join_dim) the input of Ends.join
    float *rope_cos, *rope_sin; // (n_ropes, max_rows, n_rot/2)
    int *narrowed;              // (5, max_rows) the batch of the rows that continue when others end
    ExpertRows experts;         // of the current layer, valid from Backend.ffn_in to ffn_out
    float *logits;              // (max_out, n_vocab)
    uint8_t *packed;            // the matrix kernels' copy of the activations
    uint8_t *panels;            // (threads, panel_bytes) scratch of each thread
    size_t packed_bytes, panel_bytes;
    void *pages; // the one allocation that contains all these arrays
    size_t n_bytes;
    const Backend *be; // a backend with scratch memory of its own, `device`; NULL: none
    void *device;
};

// The K and V rows of a layer in this step, before they are stored. Layers that share another layer's K and V read them
// here.
static inline float *workspace_k(const Workspace *w, const Layer *l) {
    return w->k + (l->kv_kind == KV_WINDOW ? w->kv_step : 0);
}
static inline float *workspace_v(const Workspace *w, const Layer *l) {
    if (l->kind.mixer == MIXER_LATENT) return workspace_k(w, l);
    return w->v + (l->kv_kind == KV_WINDOW ? w->kv_step : 0);
}

// The parts of a model to load into a device's memory: the last n layers, the head, and the embedding if these are all
// layers.
typedef struct {
    Layer *layers; // (n)
    int n;
    Ends *ends;  // load sets .device of its tensors. A tied head is loaded once
    bool embeds; // load the embedding and per-layer embeddings too; false: the host embeds
    ThreadPool *pool;
    size_t spare; // bytes that the device may use for additional copies of weights, which make products faster
    void (*progress)(void *arg, double done, double all); // in bytes; NULL: no reports
    void *arg;
} DeviceLoad;

typedef enum { LAYERS_RUN, LAYERS_DONE } LayersTodo;

// Additional operations of a backend with a memory of its own. "Its layers" are those in that memory, the last ones.
typedef struct {
    // Sets .device of the layers and tensors; *out owns all copies until unload. An error: nothing is loaded.
    // QUILL_MEMORY; QUILL_MODEL: the device fails.
    Status (*load)(const Backend *be, const DeviceLoad *what, void **out);
    void (*unload)(void *device);
    Status (*kv_new)(KvPool *kv); // allocates the planes of its layers, kv->device
    void (*kv_free)(KvPool *kv);
    // kvrows_read and kvrows_write (kv/kvrows.h) for one of its layers
    void (*kv_move)(const KvPool *kv, int layer, const int *blocks, int first, int n, void *rows, bool store);
    // In its layers, moves K and V of slot keep[i] of a sequence to slot i, for i in [0, n). keep (n_device,
    // n_kv_heads, n) ascends, keep[i] >= i. Dense types only.
    void (*close_up)(KvPool *kv, const int *blocks, int n_blocks, const int *keep, int n);
    Status (*states_new)(StatePool *p); // allocates the states of its layers, p->device
    void (*states_free)(StatePool *p);
    // Copies one state of one of its layers, or with `store` writes it. values: (p->floats)
    void (*state_move)(const StatePool *p, int state, int layer, float *values, bool store);
    Status (*probe_new)(Probe *p, int n_layers, int n_kv_heads); // allocates p->device for the last n_layers
    void (*probe_free)(Probe *p);
    // Copies p->mass of layers [first, first + n_layers) from the device, or with `store` to the device.
    void (*probe_move)(Probe *p, int first, int n_layers, int n_kv_heads, bool store);
    // Allocates w->device and w->logits. h: the largest sizes of the heads of all layers (model_widest_heads)
    Status (*scratch_new)(Workspace *w, const Heads *h);
    void (*scratch_free)(Workspace *w);
    // Copies w->x and w->per from the host to the device, before layer l, the first of its layers
    void (*receive)(Workspace *w, const Layer *l, const KvPool kv[KV_KINDS], const Batch *b);
    // Copy w->x to the host (fetch: also w->per) and back, before and after a feed-forward with host_ffn
    void (*fetch)(Workspace *w, const Batch *b);
    void (*give)(Workspace *w, const Batch *b);
    // Called before the n layers of a step. LAYERS_RUN: compute each; LAYERS_DONE: a recorded graph computes them all.
    LayersTodo (*layers_begin)(Workspace *w, const Layer *l, int n, const KvPool kv[KV_KINDS], const Batch *b);
    void (*layers_end)(Workspace *w); // called after the layers if LAYERS_RUN
    // Starts the logits of b->out_row and the draw of a token from each (b->draw). Two draws may be in flight.
    void (*draw)(Workspace *w, const Ends *e, const Batch *b);
    int *(*drawn)(Workspace *w); // waits for the tokens of the oldest draw in flight: model_drawn
    void (*wait)(void);          // returns when the device has computed everything that was started
    // The first failure, or NULL: QUILL_MEMORY or QUILL_MODEL. Results after it are void.
    const Status *(*failure)(void);
} DeviceMemory;

// Index in w->h of the shared expert's activations, after those of the largest possible number of pairs.
static inline size_t expert_rows_shared(const Workspace *w, const Layer *l) {
    return (size_t)w->max_rows * (size_t)w->n_used * (size_t)l->w_gate.n_out;
}

struct Backend {
    const char *name;    // "cpu"
    const char *isa;     // "scalar", "amx", ...
    const char *kernels; // which kernels run, for --verbose: "decode ...; prefill ..."
    size_t (*packed_bytes)(const Backend *be, int max_rows, int max_n_in); // size of Workspace.packed
    // The same for products with stacks (experts, heads of MIXER_LATENT). NULL: they need no packed rows
    size_t (*stack_bytes)(const Backend *be, const Workspace *w, int max_n_in);
    size_t panel_bytes;         // bytes of Workspace.panels for each thread
    const void *impl;           // private data of the backend
    const DeviceMemory *memory; // NULL: the backend computes in the host's memory

    // Copies the blocks of Batch.copy or Batch.window_copy, in those layers of the pool that are in its memory
    void (*copy_blocks)(Workspace *w, KvPool *kv, const Batch *b);
    // x = embeddings of the tokens; also prepares RoPE tables and other data of the batch that all layers use
    void (*embed)(Workspace *w, const Backend *be, const Ends *e, const KvPool kv[KV_KINDS], const Batch *b);
    // The mixer is attn_in, attention and attn_out. kv: the layer's pool; NULL for recurrent mixers
    // norm, QKV, QK-norm, RoPE; K,V to slots. Recurrent: norm, then the products with w_mix, w_z, w_beta, w_alpha
    void (*attn_in)(Workspace *w, const Layer *l, KvPool *kv, const Batch *b);
    // a = softmax(q K) V; then rows of groups that are still open are stored in the tail pages. Recurrent: the formulas
    // of Recurrence; new states are stored in b->states
    void (*attention)(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b);
    void (*attn_out)(Workspace *w, const Layer *l, const Batch *b); // x += norm(Wo a)
    // FFN_GATED; FFN_EXPERTS does the same for each row's experts
    void (*ffn_in)(Workspace *w, const Layer *l, const Batch *b);  // h = act(Wgate xn) * (Wup xn)
    void (*ffn_out)(Workspace *w, const Layer *l, const Batch *b); // x += norm(Wdown h)
    // Keeps only some rows: moves rows[i] of x, q, mix (if the layer's attention is gated), per (if the model has
    // embeddings per layer) and the RoPE data to row i, for i in [0, b->n_rows); rows ascends. b: the batch of the
    // remaining rows. NULL: the backend cannot do it.
    void (*narrow)(Workspace *w, const int *rows, const Batch *b);
    // In steps of at most whole_rows rows, rows without logits pass the whole last layer too, since a recorded graph
    // may replay the step. Batch.narrow applies to these steps all the same.
    int whole_rows;
    // logits[i] = softcap(Whead norm(x[rows[i]])) for i in [0, n_rows), n_rows <= max_out; the rows are of batch b
    void (*logits)(Workspace *w, const Backend *be, const Ends *e, const Batch *b, const int *rows, int n_rows);
    // xn[i] = norm(x[i]) for the first n_rows rows: what the head multiplies. NULL: the backend cannot do it; only the
    // CPU's can
    void (*hidden)(Workspace *w, const Backend *be, const Ends *e, int n_rows);
};

#endif
