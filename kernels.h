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
typedef struct StatePool StatePool;
typedef struct Workspace Workspace;

// A matrix as the file has it: n_out rows of n_in elements. The data belongs to the model file.
typedef struct {
    const void *data;
    const float *scales; // (n_out * n_in / group), unaligned, of a type whose scales lie apart; otherwise NULL
    const float *bias;   // (n_out), or NULL
    int type;            // TYPE_ of formats/types.h
    int group;           // with scales: elements under one scale, counted over the flat tensor
    int n_out, n_in;
    int stack; // matrices of n_out x n_in one behind the other, each with its bias: experts, heads; 0: this one alone
    int stack_rows; // from a matrix of a stack to the next, n_out or more; 0: n_out
    size_t row_bytes;
    const void *device; // the copy of the backend that uses it, in that one's memory and layout; NULL: `data` is used
} Tensor;

// Rows of all matrices of a stack.
static inline size_t tensor_rows(const Tensor *t) { return (size_t)t->n_out * (size_t)(t->stack > 0 ? t->stack : 1); }

// Matrix i of a stack.
static inline Tensor tensor_of_stack(const Tensor *t, int i) {
    Tensor one = *t;
    size_t rows = (size_t)i * (size_t)(t->stack_rows > 0 ? t->stack_rows : t->n_out);
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
    int n_heads, n_kv_heads, head_dim; // head_dim: of Q and K
    int v_dim;                         // of V and of what attention finds, up to head_dim; 0: as head_dim
    int window;                        // a row sees its last `window` slots; 0: all
    float scale;                       // of the scores
    float softcap;                     // scores become softcap * tanh(score / softcap); 0: they stay
} Heads;

static inline int heads_v_dim(const Heads *h) { return h->v_dim > 0 ? h->v_dim : h->head_dim; }

// What mixes the rows of a sequence in a layer, and what computes each row by itself. Attention alone has K and V.
// MIXER_LATENT is attention to compressed K and V (DeepSeek-V2): the one KV head of a slot is what V is made of, behind
// it the part of K that RoPE turns; Q and what attention finds go through a matrix of each head.
// The two recurrent mixers have a state of fixed size for each sequence instead (StatePool): MIXER_DELTA is gated
// DeltaNet (Yang et al. 2024), MIXER_CONV a short convolution between two gates (LFM2).
typedef enum { MIXER_NONE, MIXER_ATTENTION, MIXER_LATENT, MIXER_DELTA, MIXER_CONV } Mixer;
static inline bool mixer_is_recurrent(Mixer m) { return m == MIXER_DELTA || m == MIXER_CONV; }
typedef enum { FFN_NONE, FFN_GATED, FFN_EXPERTS } FeedForward;
// The gate of FFN_GATED and of every expert: act(v) = v * sigmoid(v), and v * sigmoid(sqrt(8/pi) (v + 0.044715 v^3)),
// which is GELU by tanh. ACT_SWIGLU_CLAMPED, of experts alone, is act(v) = v * sigmoid(1.702 v) of v = min(gate, 7),
// times clamp(up, -7, 7) + 1.
typedef enum { ACT_SILU, ACT_GELU, ACT_SWIGLU_CLAMPED, N_ACTIVATIONS } Activation;
// The weights of a row's chosen experts: a softmax over their logits alone, or their part of one over all experts; or
// the sigmoid of each one's logit, divided by their sum or as it is. Of sigmoids the choice is by sigmoid +
// expert_bias.
typedef enum { ROUTE_CHOSEN, ROUTE_ALL, ROUTE_SIGMOID_CHOSEN, ROUTE_SIGMOID } Routing;
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
    int gated; // 1: of each head Wq has head_dim rows for Q, then head_dim for a gate; a is multiplied by its sigmoid
    float eps; // of all its norms
    // FFN_EXPERTS: how many there are, how many a row takes, and what their outputs weigh; the weights are multiplied
    // by route_scale
    int n_experts, n_used;
    Routing routing;
    float route_scale;
    int n_groups, n_groups_used; // of experts, by their order: the best ones are chosen first; 0: there are no groups
    float out_scale;             // of the residual stream behind the layer; 0: it stays
} LayerKind;

// What a recurrent layer does; words of 4 bytes without padding, as Heads. A causal convolution of `taps` inputs runs
// over every channel by itself:
//     u_t[c] = sum over j of conv[c][j] in_{t - taps + 1 + j}[c], zeros before the sequence's start.
// MIXER_CONV: in = B * X and a = C * u, where B, C and X are the three parts of w_mix h.
// MIXER_DELTA: in = w_mix h, and silu(u) holds q, k (n_keys, key_dim) and v (n_values, value_dim). q and k become
// x / sqrt(x.x + 1e-6), and q is divided by sqrt(key_dim). Each value head has a matrix M (key_dim, value_dim), zeros
// at the start: M *= exp(decay * softplus(alpha + dt_bias)); M += k d^T with d = sigmoid(beta) (v - M^T k); then
// a = norm(M^T q) * silu(z). Value head h has the q and k of key head h / (n_values / n_keys) if `grouped`, else of
// h % n_keys. Without w_alpha, w_beta has for each key head the rows of beta of its value heads, then those of alpha.
typedef struct {
    int channels, taps;
    int n_keys, n_values, key_dim, value_dim; // MIXER_DELTA; otherwise 0
    int grouped;
} Recurrence;
#define DELTA_EPS 1e-6f

// Every norm is an RMSNorm with weights; NULL: the layer does not have it.
typedef struct {
    LayerKind kind;
    Heads heads;
    Recurrence rec;
    Rope rope;
    // (n_heads*head_dim, dim), (n_kv_heads*head_dim, dim), (n_kv_heads*v_dim, dim), (dim, n_heads*v_dim). Without wk
    // the layer uses the K and V of an earlier one, which has the same place in the pool; with wk alone V is K before
    // its norm and RoPE
    Tensor wq, wk, wv, wo;
    Tensor w_gate, w_up, w_down; // 2 x (ffn, dim), (dim, ffn); of FFN_EXPERTS stacks of n_experts
    Tensor router;               // (n_experts, dim) of FFN_EXPERTS
    // The expert that every row takes besides; without data: there is none. Its output is multiplied by
    // sigmoid(shared_route x), unless that has no data.
    Tensor shared_gate, shared_up, shared_down; // 2 x (shared, dim), (dim, shared)
    Tensor shared_route;                        // (1, dim)
    // Recurrent mixers: (channels, dim), of MIXER_CONV (3 dim, dim); wo (dim, layer_mixed) comes behind
    Tensor w_mix;
    Tensor w_z, w_beta, w_alpha;               // MIXER_DELTA: (n_values*value_dim, dim), 2 x (n_values, dim)
    const float *conv;                         // (channels, taps)
    const float *decay, *dt_bias, *norm_state; // MIXER_DELTA: 2 x (n_values), (value_dim)
    // MIXER_LATENT. wk makes what is stored, (v_dim + n_rot, dim); wq (n_heads * (n + n_rot), dim), or of q_a's
    // outputs.
    Tensor q_a;      // (any, dim) in front of wq; without data: wq takes x
    Tensor k_b, v_b; // stacks of n_heads: (v_dim, n) of the part of Q without RoPE, (v, v_dim) of what attention finds
    // What every layer adds besides: per_out (act(per_gate x) * its part of Workspace.per); without data: nothing
    Tensor per_gate, per_out;         // (Ends.per, dim), (dim, Ends.per)
    const float *norm_att, *norm_ffn; // (dim) before the mixer and before the feed-forward
    const float *norm_q, *norm_k; // (layer_norm_q, layer_norm_k) of Q and K, before RoPE; MIXER_LATENT: of what is V
    const float *norm_att_out, *norm_ffn_out; // (dim) of what is added to x behind the mixer and the feed-forward
    const float *norm_v;                      // (v_dim) of each head of V
    const float *norm_q_a;                    // (q_a.n_out) of what q_a makes
    const float *norm_per;                    // (dim) of what per_out makes
    // FFN_EXPERTS: of x for the router and for the experts, where these are not norm_ffn, which the shared one has; of
    // what the shared expert and the others give (dim)
    const float *norm_router, *norm_experts, *norm_shared_out, *norm_experts_out;
    const float *expert_bias, *expert_scale; // (n_experts) added for the choice; times the weight
    const float *sinks;    // (n_heads) a further score of each head, whose value is nothing; NULL: none
    int index;             // of the layer in the model
    int kv_kind, kv_layer; // its pool among the model's, and its place there; -1: no K and V
    int state_layer;       // its place among the layers with a state; -1: it has none
    bool kv_used_later;    // a later layer uses the same K and V, and what the step has of them
    int host_ffn;          // 1: its feed-forward is the host's, also where the rest is a device's (model_keep_experts)
    const Backend *be;
    const void *device; // the backend's copy of all of it; NULL: it uses what is above
} Layer;

static inline bool layer_attends(const Layer *l) {
    return l->kind.mixer == MIXER_ATTENTION || l->kind.mixer == MIXER_LATENT;
}
// Whether a layer has K and V of its own; otherwise it attends to those of the layer that has its place in the pool.
static inline bool layer_owns_kv(const Layer *l) { return l->kv_kind >= 0 && l->wk.data; }

// Elements of the norms of Q and of K.
static inline int layer_norm_q(const Layer *l) {
    return l->heads.head_dim * (l->kind.qk_norm == QK_NORM_ROW ? l->heads.n_heads : 1);
}
static inline int layer_norm_k(const Layer *l) {
    if (l->kind.mixer == MIXER_LATENT) return heads_v_dim(&l->heads);
    return l->heads.head_dim * (l->kind.qk_norm == QK_NORM_ROW ? l->heads.n_kv_heads : 1);
}

// Elements of a row of Workspace.a, which Wo takes.
static inline int layer_mixed(const Layer *l) {
    if (!mixer_is_recurrent(l->kind.mixer)) return l->heads.n_heads * l->heads.head_dim;
    return l->kind.mixer == MIXER_DELTA ? l->rec.n_values * l->rec.value_dim : l->rec.channels;
}
// Elements of a row of Workspace.mix: what w_mix, w_z, w_beta and w_alpha give, and beta and the decay for use; or of
// gated attention what Wq gives.
static inline int layer_mix_width(const Layer *l) {
    const Recurrence *r = &l->rec;
    if (l->kind.mixer == MIXER_CONV) return 3 * r->channels;
    if (l->kind.mixer == MIXER_DELTA) return r->channels + r->n_values * (r->value_dim + 4);
    return l->kind.gated ? 2 * l->heads.n_heads * l->heads.head_dim : 0;
}
// Floats of a layer's state: the last taps - 1 inputs of the convolution, (taps - 1, channels), oldest first, then the
// matrices of the value heads, (n_values, key_dim, value_dim).
static inline size_t recurrence_floats(const Recurrence *r) {
    return (size_t)(r->taps - 1) * (size_t)r->channels +
           (size_t)r->n_values * (size_t)r->key_dim * (size_t)r->value_dim;
}

// X(field) for every matrix of a Layer, those of FFN_EXPERTS and of recurrent mixers alone last; X(field, elements) for
// every vector but those of recurrent mixers, of which the norms of Q and K come last.
// clang-format off
#define EACH_GATED_MATRIX(X) X(wq) X(wk) X(wv) X(wo) X(w_gate) X(w_up) X(w_down)
#define EACH_LAYER_MATRIX(X) \
    EACH_GATED_MATRIX(X) X(router) X(shared_gate) X(shared_up) X(shared_down) X(shared_route) \
    X(q_a) X(k_b) X(v_b) X(per_gate) X(per_out) \
    X(w_mix) X(w_z) X(w_beta) X(w_alpha)
#define EACH_LAYER_VECTOR(X, dim, heads, q, k) \
    X(sinks, heads) X(norm_att, dim) X(norm_ffn, dim) X(norm_att_out, dim) X(norm_ffn_out, dim) X(norm_q, q) X(norm_k, k)
#define EACH_HOST_VECTOR(X, dim, l) /* that the file has, of the host's layers alone; norm_v is all ones */ \
    X(norm_q_a, (l)->q_a.n_out) X(norm_per, dim) X(norm_router, dim) \
    X(norm_experts, dim) X(norm_shared_out, dim) X(norm_experts_out, dim) \
    X(expert_bias, (l)->kind.n_experts) X(expert_scale, (l)->kind.n_experts)
// clang-format on

// What stands before the first layer and behind the last one.
typedef struct {
    Tensor tok_embd, head;
    const float *norm_out; // (dim)
    float eps;
    float embd_scale; // x = embd_scale * row of tok_embd
    float softcap;    // logits become softcap * tanh(logit / softcap); 0: they stay
    // What each layer gets of a token besides: per values, (norm_per(per_proj x) + a row of per_embd * sqrt(per)) /
    // sqrt(2)
    int per;                   // 0: nothing
    Tensor per_embd, per_proj; // (n_vocab, n_layers*per), (n_layers*per, dim)
    const float *norm_per;     // (per)
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
    int layer; // -1: each but the last
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
    // Recurrent layers: the pool, and for each sequence the state in front of its first row (-1: the start); for each
    // row where the state behind it is kept, -1: it is not. The last row of a sequence keeps its state; that may be the
    // place of the one in front of the first row, which is not needed any more then. NULL: no layer is recurrent.
    StatePool *states;
    int *state_in, *state_out; // (n_seqs), (n_rows)
    int n_step;                // set by model_forward and model_hidden: n_rows before a layer narrowed them
};

// Whether a step has one row of each sequence, as in decoding.
static inline bool batch_decodes(const Batch *b) { return b->n_step == b->n_seqs; }

// The K and V of the layers of one kind in blocks of `block` slots; (n_layers, n_blocks, n_kv_heads, block) times
// kv_slot_bytes each. Dense types hold head_dim values a slot in K and v_dim in V. Of a sealed type (kv_is_sealed) a
// row sees the groups of SEAL slots before its own group as they were sealed, and its own group dense: what it reads is
// a function of its slot alone, whatever the batches were. A group is sealed in the step that computes its last slot;
// until then its rows are kept from step to step in a tail page, which belongs to the block of the group's first slot.
// The rows of a sequence in a batch are then consecutive slots. The last n_device layers' part, tail pages too, is in a
// device's memory; k, v, tail_k and tail_v hold the others'.
struct KvPool {
    int kind;     // KV_FULL or KV_WINDOW
    int n_layers; // may be 0: then there are no planes
    int n_blocks, n_kv_heads, block, head_dim;
    int v_dim;          // values of V a slot; 0: head_dim
    bool v_in_k;        // V of a slot is the first v_dim values of its K, and has no plane of its own
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
    float *tail_k, *tail_v; // (layers here, n_tails, n_kv_heads, SEAL, head_dim, or v_dim); NULL: that plane is dense
};

// The states of recurrent layers, f32: (n_states, n_layers, floats). A state is that of one sequence behind one of its
// tokens in all of these layers; which of them is whose is the cache's business (kvcache.h).
struct StatePool {
    int n_layers, n_states; // n_layers 0: no layer is recurrent, and there are no states
    size_t floats;          // of a layer: recurrence_floats
    float *data;
};
static inline float *state_at(const StatePool *p, int state, int layer) {
    return p->data + ((size_t)state * (size_t)p->n_layers + (size_t)layer) * p->floats;
}

static inline size_t kv_type_bytes(int type) { return type == TYPE_F32 ? 4 : 2; } // of an element of a dense type
// One slot of one block and KV head, counted over the plane.
HOST_DEVICE static inline size_t kv_slot(const KvPool *kv, int layer, int block, int head, int offset) {
    return (((size_t)layer * (size_t)kv->n_blocks + (size_t)block) * (size_t)kv->n_kv_heads + (size_t)head) *
               (size_t)kv->block +
           (size_t)offset;
}
static inline int kv_v_dim(const KvPool *kv) { return kv->v_dim > 0 ? kv->v_dim : kv->head_dim; }
// Of the plane that a slot's K or V is read from: its memory, its type, the values that it has a slot, and the page
// rows.
static inline uint8_t *kv_plane(const KvPool *kv, bool value) { return value && !kv->v_in_k ? kv->v : kv->k; }
static inline int kv_plane_type(const KvPool *kv, bool value) { return value && !kv->v_in_k ? kv->type_v : kv->type_k; }
static inline int kv_plane_dim(const KvPool *kv, bool value) {
    return value && !kv->v_in_k ? kv_v_dim(kv) : kv->head_dim;
}
static inline float *kv_plane_tail(const KvPool *kv, bool value) {
    return value && !kv->v_in_k ? kv->tail_v : kv->tail_k;
}
// Planes that hold something: K's, and V's unless it lies in K.
static inline int kv_planes(const KvPool *kv) { return kv->v_in_k ? 1 : 2; }
// Bytes of K and V of a slot in one layer.
static inline size_t kv_slot_bytes_both(const KvPool *kv) {
    size_t v = kv->v_in_k ? 0 : kv_slot_bytes(kv->type_v, kv_v_dim(kv));
    return (kv_slot_bytes(kv->type_k, kv->head_dim) + v) * (size_t)kv->n_kv_heads;
}
// Index, in elements, of the values of one slot of one block and KV head in the dense plane of K.
static inline size_t kv_index(const KvPool *kv, int layer, int block, int head, int offset) {
    return kv_slot(kv, layer, block, head, offset) * (size_t)kv->head_dim;
}
// The same in tail_k and tail_v, of a slot of a page's group, of a plane with `dim` values a slot; then of K's.
HOST_DEVICE static inline size_t kv_tail_at(const KvPool *kv, int dim, int layer, int page, int head, int offset) {
    return ((((size_t)layer * (size_t)kv->n_tails + (size_t)page) * (size_t)kv->n_kv_heads + (size_t)head) * SEAL +
            (size_t)offset) *
           (size_t)dim;
}
HOST_DEVICE static inline size_t kv_tail_index(const KvPool *kv, int layer, int page, int head, int offset) {
    return kv_tail_at(kv, kv->head_dim, layer, page, head, offset);
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
    int *first;    // (n_experts + 1) the first pair of an expert; here and below, of heads where these are more
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
    int max_slots; // of one sequence
    // q_dim = n_heads*head_dim and kv_dim = n_kv_heads*head_dim of the widest layer: rows are so far apart in all of
    // them. ffn: likewise; n_rot: of the widest RoPE
    int dim, q_dim, kv_dim, ffn, n_vocab, n_rot;
    int a_dim, mix_dim;                // the widest layer_mixed and layer_mix_width
    int n_experts, n_used, ffn_shared; // of FFN_EXPERTS; ffn: of n_used experts together, and behind these the shared
    int n_ropes;
    int latent_dim, latent_heads; // of MIXER_LATENT; 0: there is no such layer
    int per_dim;                  // n_layers * Ends.per
    int widest;                   // input of a feed-forward's matrices
    ThreadPool *pool;
    float *x;               // (max_rows, dim) the residual stream
    float *q;               // (max_rows, q_dim) queries, turned
    float *a;               // (max_rows, a_dim) what attention or a recurrence found
    float *mix;             // (max_rows, mix_dim) what recurrent mixers and gated attention work on
    float *h, *up;          // (max_rows, ffn) gated activations, and what gates them; h: parts of attention too
    float *k, *v;           // (max_rows, kv_dim) before they are stored; with kv_step twice, for each kind of pool
    size_t kv_step;         // floats from the rows of KV_FULL to those of KV_WINDOW; 0: they share the room
    float *xn;              // (max_rows, dim) a normalised copy of x
    float *latent[2];       // (max_rows, latent_dim) of MIXER_LATENT: Q and what was found, by row or by head
    float *per, *per_token; // (max_rows, per_dim) what layers get of a token besides (Ends.per); the token's own part
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

// Where a layer's K and V rows of the step lie before they are stored. Layers that use another's take them from there.
static inline float *workspace_k(const Workspace *w, const Layer *l) {
    return w->k + (l->kv_kind == KV_WINDOW ? w->kv_step : 0);
}
static inline float *workspace_v(const Workspace *w, const Layer *l) {
    if (l->kind.mixer == MIXER_LATENT) return workspace_k(w, l);
    return w->v + (l->kv_kind == KV_WINDOW ? w->kv_step : 0);
}

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
    // w->x, which the device computed, comes to the host, and goes back: around the feed-forward of a host_ffn
    void (*fetch)(Workspace *w, const Batch *b);
    void (*give)(Workspace *w, const Batch *b);
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
    size_t (*packed_bytes)(const Backend *be, int max_rows, int max_n_in); // what Workspace.packed must hold
    // The same for products of stacks: experts, heads of MIXER_LATENT. NULL: there are none
    size_t (*stack_bytes)(const Backend *be, const Workspace *w, int max_n_in);
    size_t panel_bytes;         // what each thread needs of Workspace.panels
    const void *impl;           // the backend's own
    const DeviceMemory *memory; // NULL: it computes in the host's

    // Batch.copy or Batch.window_copy in every layer of the pool whose planes are its own
    void (*copy_blocks)(Workspace *w, KvPool *kv, const Batch *b);
    // tokens -> x, and what the layers need of positions and of the batch's place in the pools
    void (*embed)(Workspace *w, const Backend *be, const Ends *e, const KvPool kv[KV_KINDS], const Batch *b);
    // A mixer; kv: the layer's own pool, of recurrent mixers NULL
    // norm, QKV, QK-norm, RoPE; K,V to slots. Recurrent: norm, then the products with w_mix, w_z, w_beta, w_alpha
    void (*attn_in)(Workspace *w, const Layer *l, KvPool *kv, const Batch *b);
    // a = softmax(q K) V; then the tail pages take the rows of groups that are still open. Recurrent: a as Recurrence
    // has it; b->states takes the states
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
