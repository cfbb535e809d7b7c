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
#include "formats/sealed.h"
#include "base/threads.h"
#include "base/base.h"

#include <math.h>

typedef struct Backend Backend;
typedef struct Batch Batch;
typedef struct KvPool KvPool;
typedef struct Workspace Workspace;

// A matrix as the file has it: n_out rows of n_in elements. The data belongs to the model file.
typedef struct {
    const void *data;
    const float *scales; // (n_out * n_in / group), unaligned, of a type whose scales lie apart; otherwise NULL
    const float *bias;   // (n_out), or NULL
    int type;            // TYPE_ of formats/types.h
    int group;           // with scales: elements under one scale, counted over the flat tensor
    int n_out, n_in;
    int stack; // matrices of n_out x n_in one behind the other, each with its bias: experts; 0: this one alone
    size_t row_bytes;
    const void *device; // the copy of the backend that uses it, in that one's memory and layout; NULL: `data` is used
} Tensor;

// Rows of all matrices of a stack.
static inline size_t tensor_rows(const Tensor *t) { return (size_t)t->n_out * (size_t)(t->stack > 0 ? t->stack : 1); }

// Matrix i of a stack.
static inline Tensor tensor_of_stack(const Tensor *t, int i) {
    Tensor one = *t;
    size_t rows = (size_t)i * (size_t)t->n_out;
    one.stack = 0;
    one.data = (const char *)t->data + rows * t->row_bytes;
    if (t->bias) one.bias = t->bias + rows;
    if (t->scales) // unaligned
        one.scales = (const float *)(const void *)((const char *)t->scales +
                                                   rows * (size_t)t->n_in / (size_t)t->group * sizeof(float));
    return one;
}

// What a row's position does to its Q and K in a layer. Layers with the same RoPE use the same table.
typedef struct {
    int table;          // index of its cosines and sines among the model's: Workspace.rope_cos, rope_sin
    int n_rot;          // leading elements of a head that are turned, even; 0: none
    int adjacent;       // 1: pairs are (2i, 2i+1); 0: (i, i + n_rot/2)
    float mscale;       // on cos and sin: YaRN's magnitude, the factor of long contexts; otherwise 1
    float temperature;  // rope_temperature; 0: Q stays as it is turned
    int span;           // positions that share a temperature, at least 1
    const double *freq; // (n_rot/2) radians per position
} Rope;

enum { ROPE_TABLES = 2 }; // at most, in one model

// Turns a head that stands at some position on by `positions`, without the magnitude, which it has already.
static inline void rope_turn(const Rope *r, float *head, double positions) {
    for (int i = 0; i < r->n_rot / 2; i++) {
        double angle = positions * r->freq[i], c = cos(angle), s = sin(angle);
        float *a = &head[r->adjacent ? 2 * i : i], *b = &head[r->adjacent ? 2 * i + 1 : i + r->n_rot / 2];
        double x = (double)*a, y = (double)*b;
        *a = (float)(x * c - y * s);
        *b = (float)(x * s + y * c);
    }
}

// What Q is multiplied by at a position, once it is turned: scores grow slowly beyond the context of training.
HOST_DEVICE static inline float rope_temperature(const Rope *r, int pos) {
    return r->temperature == 0 ? 1 : 1 + r->temperature * logf((float)(1 + pos / r->span));
}

// What attention of a layer does. All fields are words of 4 bytes without padding: kv/fingerprint.c hashes them as
// bytes.
typedef struct {
    int n_heads, n_kv_heads, head_dim;
    int window;    // a row sees its last `window` slots; 0: all
    float scale;   // of the scores
    float softcap; // scores become softcap * tanh(score / softcap); 0: they stay
} Heads;

// What mixes the rows of a sequence in a layer, and what computes each row by itself. Without a mixer a layer has no K
// and V.
typedef enum { MIXER_NONE, MIXER_ATTENTION } Mixer;
typedef enum { FFN_NONE, FFN_GATED, FFN_EXPERTS } FeedForward;
// The gate of FFN_GATED and of every expert: act(v) = v * sigmoid(v), and v * sigmoid(sqrt(8/pi) (v + 0.044715 v^3)),
// which is GELU by tanh. ACT_SWIGLU_CLAMPED, of experts alone, is act(v) = v * sigmoid(1.702 v) of v = min(gate, 7),
// times clamp(up, -7, 7) + 1.
typedef enum { ACT_SILU, ACT_GELU, ACT_SWIGLU_CLAMPED, N_ACTIVATIONS } Activation;
// The weights of a row's chosen experts: a softmax over their logits alone, or their part of one over all experts.
typedef enum { ROUTE_CHOSEN, ROUTE_ALL } Routing;
// What the norms of Q and K go over: every head by itself, or all heads of a row together.
typedef enum { QK_NORM_HEAD, QK_NORM_ROW } QkNorm;
#define GELU_SLOPE 1.5957691216057308f // sqrt(8/pi)
#define GELU_CUBE 0.044715f
#define SWIGLU_SLOPE 1.702f
#define SWIGLU_LIMIT 7.0f
// act(v) = v * sigmoid(sigmoid_of(act, v)), for floats and vectors of them.
#define sigmoid_of(act, v)                                                                                             \
    ((act) == ACT_GELU             ? GELU_SLOPE * (v) * (1.0f + GELU_CUBE * (v) * (v))                                 \
     : (act) == ACT_SWIGLU_CLAMPED ? SWIGLU_SLOPE * (v)                                                                \
                                   : (v))

HOST_DEVICE static inline float softcap(float v, float cap) { return cap != 0 ? cap * tanhf(v / cap) : v; }

// What a layer does besides its heads: words of 4 bytes without padding, as Heads.
typedef struct {
    Mixer mixer;
    FeedForward ffn;
    Activation act;
    QkNorm qk_norm;
    float eps; // of all its norms
    // FFN_EXPERTS: how many there are, how many a row takes, and what their outputs weigh; the weights are multiplied
    // by route_scale
    int n_experts, n_used;
    Routing routing;
    float route_scale;
} LayerKind;

// Every norm is an RMSNorm with weights; NULL: the layer does not have it.
typedef struct {
    LayerKind kind;
    Heads heads;
    Rope rope;
    Tensor wq, wk, wv, wo;       // (n_heads*head_dim, dim), 2 x (n_kv_heads*head_dim, dim), (dim, n_heads*head_dim)
    Tensor w_gate, w_up, w_down; // 2 x (ffn, dim), (dim, ffn); of FFN_EXPERTS stacks of n_experts
    Tensor router;               // (n_experts, dim) of FFN_EXPERTS
    // The expert that every row takes besides; without data: there is none. Its output is multiplied by
    // sigmoid(shared_route x), unless that has no data.
    Tensor shared_gate, shared_up, shared_down; // 2 x (shared, dim), (dim, shared)
    Tensor shared_route;                        // (1, dim)
    const float *norm_att, *norm_ffn;           // (dim) before the mixer and before the feed-forward
    const float *norm_q, *norm_k;               // (layer_norm_q, layer_norm_k) of Q and K, before RoPE
    const float *norm_att_out, *norm_ffn_out;   // (dim) of what is added to x behind the mixer and the feed-forward
    const float *sinks;    // (n_heads) a further score of each head, whose value is nothing; NULL: none
    int index;             // of the layer in the model
    int kv_kind, kv_layer; // its pool among the model's, and its place there; -1: no K and V
    const Backend *be;
    const void *device; // the backend's copy of all of it; NULL: it uses what is above
} Layer;

// Elements of the norms of Q and of K.
static inline int layer_norm_q(const Layer *l) {
    return l->heads.head_dim * (l->kind.qk_norm == QK_NORM_ROW ? l->heads.n_heads : 1);
}
static inline int layer_norm_k(const Layer *l) {
    return l->heads.head_dim * (l->kind.qk_norm == QK_NORM_ROW ? l->heads.n_kv_heads : 1);
}

// X(field) for every matrix of a Layer, those of FFN_EXPERTS alone last; X(field, elements) for every
// vector, of which the norms of Q and K come last.
// clang-format off
#define EACH_GATED_MATRIX(X) X(wq) X(wk) X(wv) X(wo) X(w_gate) X(w_up) X(w_down)
#define EACH_LAYER_MATRIX(X) \
    EACH_GATED_MATRIX(X) X(router) X(shared_gate) X(shared_up) X(shared_down) X(shared_route)
#define EACH_LAYER_VECTOR(X, dim, heads, q, k) \
    X(sinks, heads) X(norm_att, dim) X(norm_ffn, dim) X(norm_att_out, dim) X(norm_ffn_out, dim) X(norm_q, q) X(norm_k, k)
// clang-format on

// What stands before the first layer and behind the last one.
typedef struct {
    Tensor tok_embd, head;
    const float *norm_out; // (dim)
    float eps;
    float embd_scale; // x = embd_scale * row of tok_embd
    float softcap;    // logits become softcap * tanh(logit / softcap); 0: they stay
    int n_ropes;
    Rope ropes[ROPE_TABLES]; // (n_ropes) whose cosines and sines a step needs
} Ends;

// The model's pools of K and V: layers that see all of a sequence have theirs in the first, layers with a window in the
// second, so that blocks which no row sees any more can be used again there.
enum { KV_FULL, KV_WINDOW, KV_KINDS };

// What attention is to report of a batch of one sequence: how much its queries looked at each slot. Dense KV alone.
typedef struct {
    int first_row, n_slots; // rows from first_row on are counted; the sequence has at most n_slots
    float *mass;   // (n_layers, n_kv_heads, n_slots) by Layer.index, added to: softmax weights over the rows and a
                   // group's heads
    float *scores; // (n_kv_heads, n_slots) scratch
    float *device; // the mass of a device's layers, in its memory, where DeviceMemory.probe_new has put it
} Probe;

// Lets some of the batch's rows alone go on after a layer has stored K and V; the others end there.
typedef struct {
    int layer;
    // Puts the rows that go on into `rows`, ascending, the rows whose logits are wanted among them; returns how many.
    int (*choose)(void *arg, const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, int *rows);
    void *arg;
} Narrow;

// K and V of slots that no row of the batch computes, which somebody brings while the step runs.
typedef struct {
    void (*wait)(void *arg, const Layer *l); // before the layer stores K and V: until those are in its pool
    void *arg;
} KvArrival;

// Which product of a layer is about to be computed, and from what: w->x, which the product takes normalised, or w->a or
// w->h as they are.
typedef enum { FEEDS_QKV, FEEDS_ATTENTION_OUT, FEEDS_FFN_IN, FEEDS_FFN_OUT, FEEDS_HEAD, N_FEEDS } WatchFeed;

// Somebody who looks at what happens in each layer; NULL: not at this. On the host alone.
typedef struct {
    // Behind attention, while w->q, w->k, w->v and w->a hold the rows'.
    void (*attended)(void *arg, const Workspace *w, const Layer *l, const Batch *b);
    // In front of a product; of FEEDS_HEAD l is the last layer. Kernels that keep w->h packed (AMX) cannot be watched.
    void (*feeds)(void *arg, WatchFeed feed, const Workspace *w, const Layer *l, const Batch *b);
    void *arg;
} Watch;

struct Batch {
    int n_rows, n_out, n_seqs, max_blocks, n_copies;
    int *token, *pos, *slot, *seq; // (n_rows) rows of a sequence are adjacent, their slots ascending, gaps allowed
    int *out_row;                  // (n_out) rows whose logits are wanted
    // (n_out) NULL, or: the device draws a token from each row's logits, which stay there (model_draws). In the batch
    // after such a one, which has as many rows, a token -1 is the one that was drawn there.
    const Draw *draw;
    int *block_table;  // (n_seqs, max_blocks) physical block of KV_FULL of each logical block
    int *window_table; // the same of KV_WINDOW, anything for blocks that no row sees; NULL without such layers
    int (*copy)[2];    // (n_copies) blocks (src, dst) copied in every layer of KV_FULL, in this order, before any write
    int (*window_copy)[2];    // (n_copies) the same of KV_WINDOW
    Probe *probe;             // NULL: nothing is reported
    const Narrow *narrow;     // NULL: rows without logits end in the last layer, where that is possible
    const Watch *watch;       // NULL: nobody looks
    const KvArrival *arrival; // NULL: all K and V that the rows see are there. The host's layers alone wait
    int n_step;               // set by model_forward and model_hidden: n_rows before a layer narrowed them
};

// Whether a step has one row of each sequence, as in decoding.
static inline bool batch_decodes(const Batch *b) { return b->n_step == b->n_seqs; }

// The K and V of the layers of one kind in blocks of `block` slots; (n_layers, n_blocks, n_kv_heads, block) times
// kv_slot_bytes each. Dense types hold head_dim values a slot. Of a sealed type (kv_is_sealed) a row sees the groups of
// SEAL slots before its own group as they were sealed, and its own group dense: what it reads is a function of its slot
// alone, whatever the batches were. A group is sealed in the step that computes its last slot; until then its rows are
// kept from step to step in a tail page, which belongs to the block of the group's first slot. The rows of a sequence
// in a batch are then consecutive slots. The last n_device layers' part, tail pages too, is in a device's memory; k, v,
// tail_k and tail_v hold the others'.
struct KvPool {
    int kind;     // KV_FULL or KV_WINDOW
    int n_layers; // may be 0: then there are no planes
    int n_blocks, n_kv_heads, block, head_dim;
    int type_k, type_v; // types of formats/kv_types.h
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
};

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
// A batch's block table of a pool, and its copies.
static inline const int *batch_table(const Batch *b, const KvPool *kv) {
    return kv->kind == KV_WINDOW ? b->window_table : b->block_table;
}
static inline const int (*batch_copies(const Batch *b, const KvPool *kv))[2] {
    return (const int(*)[2])(kv->kind == KV_WINDOW ? b->window_copy : b->copy);
}
// The page of the group that a slot of a sequence lies in; -1: it has none, or no plane is sealed.
static inline int kv_tail(const KvPool *kv, const int *blocks, int slot) {
    return kv->tail_of ? kv->tail_of[blocks[slot / SEAL * SEAL / kv->block]] : -1;
}

static inline int kv_n_layers(const KvPool kv[KV_KINDS]) { return kv[KV_FULL].n_layers + kv[KV_WINDOW].n_layers; }

// Which rows of a batch go through which experts. A pair is a row and one of its n_used experts; pairs of an expert lie
// one behind the other, by row, and so do their activations in w->h: (pairs, width of an expert). Those of the
// shared expert, (rows, its width), lie behind the max_rows * n_used first pairs.
typedef struct {
    float *logits; // (max_rows, n_experts) what the router says
    float *shared; // (max_rows) and of the shared expert, before the sigmoid
    int *chosen;   // (max_rows, n_used) a row's experts, by falling logit; of equals the first one
    float *weight; // (max_rows, n_used) of their outputs
    int *place;    // (max_rows, n_used) the pair
    int *row;      // (max_rows * n_used) the row of a pair
    int *first;    // (n_experts + 1) the first pair of an expert
    float *x;      // (max_rows * n_used, dim) what the experts take, then what they give
    float *out;    // (max_rows, dim) what is added to the residual stream
    int *task;     // (2 * n_experts + 1) the first task of each expert's matrices
    size_t *at;    // (n_experts) where an expert's packed rows are in Workspace.packed
    int broken;    // 1 + index of the layer whose router was the first to say NaN; 0: none
} ExpertRows;

// Scratch of a forward, sized once for max_rows; nothing is allocated while decoding. The arrays are the host's
// layers'; without such layers there are none but `logits` and `narrowed`.
struct Workspace {
    int max_rows, max_out;
    int max_slots;                               // of one sequence
    int dim, q_dim, kv_dim, ffn, n_vocab, n_rot; // q_dim = n_heads*head_dim; n_rot: of the widest RoPE
    int n_experts, n_used, ffn_shared; // of FFN_EXPERTS; ffn: of n_used experts together, and behind these the shared
    int n_ropes;
    ThreadPool *pool;
    float *x;                   // (max_rows, dim) the residual stream
    float *q;                   // (max_rows, q_dim) queries, turned
    float *a;                   // (max_rows, q_dim) what attention found
    float *h, *up;              // (max_rows, ffn) gated activations, and what gates them; h: parts of attention too
    float *k, *v;               // (max_rows, kv_dim) before they are stored
    float *xn;                  // (max_rows, dim) a normalised copy of x
    float *rope_cos, *rope_sin; // (n_ropes, max_rows, n_rot/2)
    int *narrowed;              // (5, max_rows) the batch of the rows that go on where some end
    ExpertRows experts;         // of a layer of experts, between Backend.ffn_in and ffn_out
    float *logits;              // (max_out, n_vocab)
    uint8_t *packed;            // the matrix kernels' copy of the activations
    uint8_t *panels;            // (threads, panel_bytes) a worker's own scratch
    size_t packed_bytes, panel_bytes;
    void *pages; // the one allocation all of them lie in
    size_t n_bytes;
    const Backend *be; // that has scratch of its own besides, in `device`; NULL: none
    void *device;
};

// What is loaded into a device's memory: the last n layers, the head, and the embedding where all layers are there.
typedef struct {
    Layer *layers; // (n)
    int n;
    Ends *ends;  // .device of its tensors is filled. A tied head is kept once
    bool embeds; // the device has the embedding too; otherwise the host embeds
    ThreadPool *pool;
    size_t spare;                                         // bytes that it may spend on copies that make products faster
    void (*progress)(void *arg, double done, double all); // in bytes; NULL: nobody looks
    void *arg;
} DeviceLoad;

typedef enum { LAYERS_RUN, LAYERS_DONE } LayersTodo;

// What a backend adds that has memory of its own.
typedef struct {
    // Fills .device of the layers and tensors; *out owns it all until unload. QUILL_MEMORY; nothing is left then.
    Status (*load)(const Backend *be, const DeviceLoad *what, void **out);
    void (*unload)(void *device);
    Status (*kv_new)(KvPool *kv); // the last kv->n_device layers' planes: kv->device
    void (*kv_free)(KvPool *kv);
    // kvrows_read and kvrows_write (kv/kvrows.h) of such a layer
    void (*kv_move)(const KvPool *kv, int layer, const int *blocks, int first, int n, void *rows, bool store);
    // In such layers slot i of a sequence takes K and V of slot keep[i], for i in [0, n): keep (n_device, n_kv_heads,
    // n) ascends, none before its own place. Dense types.
    void (*close_up)(KvPool *kv, const int *blocks, int n_blocks, const int *keep, int n);
    Status (*probe_new)(Probe *p, int n_layers, int n_kv_heads); // p->device for the last n_layers, to be filled
    void (*probe_free)(Probe *p);
    // Its part of p->mass, of layers [first, first + n_layers), comes from there, or goes there.
    void (*probe_move)(Probe *p, int first, int n_layers, int n_kv_heads, bool store);
    Status (*scratch_new)(Workspace *w, const Heads *h); // w->device, and w->logits
    void (*scratch_free)(Workspace *w);
    // w->x, which the host computed, for layer l
    void (*receive)(Workspace *w, const Layer *l, const KvPool kv[KV_KINDS], const Batch *b);
    // Around the n layers of a step. LAYERS_RUN: each is to be computed; LAYERS_DONE: a recorded graph has done so.
    LayersTodo (*layers_begin)(Workspace *w, const Layer *l, int n, const KvPool kv[KV_KINDS], const Batch *b);
    void (*layers_end)(Workspace *w); // after LAYERS_RUN
    // logits of b->out_row, and a token drawn from each as b->draw says. Two of them may be on their way.
    void (*draw)(Workspace *w, const Ends *e, const Batch *b);
    const int *(*drawn)(Workspace *w); // waits for the older one's tokens: model_drawn
    void (*wait)(void);                // until all that was begun is computed
    const char *(*failure)(void);      // the first that happened, or NULL; what is computed after it is void
} DeviceMemory;

// The first of the shared expert's activations in w->h: behind those of all pairs that there may be.
static inline size_t expert_rows_shared(const Workspace *w, const Layer *l) {
    return (size_t)w->max_rows * (size_t)w->n_used * (size_t)l->w_gate.n_out;
}

struct Backend {
    const char *name;    // "cpu"
    const char *isa;     // "scalar", "amx", ...
    const char *kernels; // which kernels run, for --verbose: "decode ...; prefill ..."
    size_t (*packed_bytes)(const Backend *be, int max_rows, int max_n_in);       // what Workspace.packed must hold
    size_t (*expert_bytes)(const Backend *be, const Workspace *w, int max_n_in); // the same for layers of experts, or
                                                                                 // NULL
    size_t panel_bytes;         // what each thread needs of Workspace.panels
    const void *impl;           // the backend's own
    const DeviceMemory *memory; // NULL: it computes in the host's

    // Batch.copy or Batch.window_copy in every layer of the pool whose planes are its own
    void (*copy_blocks)(Workspace *w, KvPool *kv, const Batch *b);
    // tokens -> x, and what the layers need of positions and of the batch's place in the pools
    void (*embed)(Workspace *w, const Backend *be, const Ends *e, const KvPool kv[KV_KINDS], const Batch *b);
    // MIXER_ATTENTION; kv: the layer's own pool
    void (*attn_in)(Workspace *w, const Layer *l, KvPool *kv, const Batch *b); // norm, QKV, QK-norm, RoPE; K,V to slots
    // a = softmax(q K) V; then the tail pages take the rows of groups that are still open
    void (*attention)(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b);
    void (*attn_out)(Workspace *w, const Layer *l, const Batch *b); // x += norm(Wo a)
    // FFN_GATED; FFN_EXPERTS does the same for each row's experts
    void (*ffn_in)(Workspace *w, const Layer *l, const Batch *b);  // h = act(Wgate xn) * (Wup xn)
    void (*ffn_out)(Workspace *w, const Layer *l, const Batch *b); // x += norm(Wdown h)
    // Rows rows[0..b->n_rows), which ascend, of x, q and what positions need move to the front; b: the batch of these
    // rows alone. NULL: the backend cannot.
    void (*narrow)(Workspace *w, const int *rows, const Batch *b);
    // In steps of up to so many rows none end for want of logits, since a recorded graph may replay the step.
    // Batch.narrow ends rows in these too.
    int whole_rows;
    // logits[i] = softcap(Whead norm(x[rows[i]])) for i in [0, n_rows), n_rows <= max_out; the rows are of batch b
    void (*logits)(Workspace *w, const Backend *be, const Ends *e, const Batch *b, const int *rows, int n_rows);
};

#endif
