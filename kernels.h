// kernels.h: the contract between the model and its backends: tensors, layers, batches, KV storage, operations.
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

// A matrix as it is stored in the model file: n_out rows of n_in elements. The data belongs to the file.
typedef struct {
    const void *data;
    const float *scales; // (n_out * n_in / group), unaligned; NULL unless the type stores its scales apart
    const float *bias;   // (n_out), or NULL
    int type;            // TYPE_ of formats/types.h
    int group;           // with scales: elements per scale, counted over the flat tensor
    int n_out, n_in;
    int stack;      // number of consecutive n_out x n_in matrices, each with its bias (experts, heads); 0: one matrix
    int stack_rows; // rows from one matrix of a stack to the next, at least n_out; 0: n_out
    size_t row_bytes;
    const void *device; // a copy in the memory and layout of the backend that uses the tensor; NULL: `data` is used
} Tensor;

// Number of rows of all matrices of a stack.
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

// The rotary position embedding (RoPE) of a layer's Q and K. Layers with the same RoPE share a table.
typedef struct {
    int table;          // index of its cosines and sines in Workspace.rope_cos and rope_sin
    int n_rot;          // number of leading elements of a head that are rotated, even; 0: none
    int adjacent;       // 1: pairs are (2i, 2i+1); 0: (i, i + n_rot/2)
    float mscale;       // factor of cos and sin: the magnitude of YaRN or LongRoPE; otherwise 1
    float temperature;  // see rope_temperature; 0: Q is not scaled
    int span;           // positions that share a temperature, at least 1
    const double *freq; // (n_rot/2) radians per position
} Rope;

enum { ROPE_TABLES = 2 }; // the most tables of one model

// Rotates a head that is already rotated to some position further by `positions`. Does not multiply by mscale again.
static inline void rope_turn(const Rope *r, float *head, double positions) {
    for (int i = 0; i < r->n_rot / 2; i++) {
        double angle = positions * r->freq[i], c = cos(angle), s = sin(angle);
        float *a = &head[r->adjacent ? 2 * i : i], *b = &head[r->adjacent ? 2 * i + 1 : i + r->n_rot / 2];
        double x = (double)*a, y = (double)*b;
        *a = (float)(x * c - y * s);
        *b = (float)(x * s + y * c);
    }
}

// The factor of the rotated Q at a position. It makes scores grow slowly beyond the context of training.
HOST_DEVICE static inline float rope_temperature(const Rope *r, int pos) {
    return r->temperature == 0 ? 1 : 1 + r->temperature * logf((float)(1 + pos / r->span));
}

// The attention of a layer. All fields have 4 bytes, without padding: kv/fingerprint.c hashes them as bytes.
typedef struct {
    int n_heads, n_kv_heads, head_dim; // head_dim: of Q and K
    int v_dim;                         // elements of a head of V and of the attention output, <= head_dim; 0: head_dim
    int window;                        // a row sees its last `window` slots; 0: all
    float scale;                       // factor of the scores
    float softcap;                     // scores become softcap * tanh(score / softcap); 0: no cap
} Heads;

static inline int heads_v_dim(const Heads *h) { return h->v_dim > 0 ? h->v_dim : h->head_dim; }

// A layer has a mixer, which combines the rows of a sequence, and a feed-forward, which computes each row by itself.
// MIXER_ATTENTION and MIXER_LATENT have K and V. MIXER_LATENT is attention to compressed K and V (DeepSeek-V2): a slot
// has one KV head, which is the compressed vector (used as V) followed by the rotated part of K. A matrix of each head
// maps Q into the compressed space (k_b), and another one maps the attention output out of it (v_b).
// The two recurrent mixers have a state of fixed size for each sequence instead (StatePool): MIXER_DELTA is gated
// DeltaNet (Yang et al. 2024), MIXER_CONV a short convolution between two gates (LFM2).
typedef enum { MIXER_NONE, MIXER_ATTENTION, MIXER_LATENT, MIXER_DELTA, MIXER_CONV } Mixer;
static inline bool mixer_is_recurrent(Mixer m) { return m == MIXER_DELTA || m == MIXER_CONV; }
typedef enum { FFN_NONE, FFN_GATED, FFN_EXPERTS } FeedForward;
// The activation of the gate in FFN_GATED and in every expert.
// ACT_SILU: act(v) = v * sigmoid(v).
// ACT_GELU: act(v) = v * sigmoid(sqrt(8/pi) (v + 0.044715 v^3)), which is GELU in its tanh form.
// ACT_SWIGLU_CLAMPED (experts only): v * sigmoid(1.702 v) with v = min(gate, 7), times clamp(up, -7, 7) + 1.
typedef enum { ACT_SILU, ACT_GELU, ACT_SWIGLU_CLAMPED, N_ACTIVATIONS } Activation;
// The weights of a row's chosen experts. ROUTE_CHOSEN: a softmax over the logits of the chosen experts. ROUTE_ALL: a
// softmax over all experts, not renormalised. ROUTE_SIGMOID_CHOSEN: sigmoids of the logits, divided by the sum over the
// chosen experts. ROUTE_SIGMOID: sigmoids as they are. Both sigmoid kinds choose by sigmoid + expert_bias.
typedef enum { ROUTE_CHOSEN, ROUTE_ALL, ROUTE_SIGMOID_CHOSEN, ROUTE_SIGMOID } Routing;
// Whether the norms of Q and K normalise each head separately or all heads of a row together.
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

// The hyper-parameters of a layer that are not in Heads. As in Heads all fields have 4 bytes, without padding.
typedef struct {
    Mixer mixer;
    FeedForward ffn;
    Activation act;
    QkNorm qk_norm;
    int gated; // 1: for each head Wq has head_dim rows of Q, then head_dim of a gate, whose sigmoid multiplies `a`
    float eps; // of all norms of the layer
    // FFN_EXPERTS: number of experts, number used by each row, and their weights, which are multiplied by route_scale
    int n_experts, n_used;
    Routing routing;
    float route_scale;
    int n_groups, n_groups_used; // consecutive experts form groups; a row's experts come from its best groups; 0: none
    float out_scale;             // factor of the residual stream after the layer; 0: no scaling
} LayerKind;

// The recurrence of a recurrent layer. As in Heads all fields have 4 bytes, without padding. Each channel has a causal
// convolution of its own with `taps` inputs:
//     u_t[c] = sum over j of conv[c][j] in_{t - taps + 1 + j}[c], zeros before the sequence's start.
// MIXER_CONV: in = B * X and a = C * u, where B, C and X are the three parts of w_mix h.
// MIXER_DELTA: in = w_mix h, and silu(u) holds q, k (n_keys, key_dim) and v (n_values, value_dim). q and k become
// x / sqrt(x.x + 1e-6), and q is divided by sqrt(key_dim). Each value head has a matrix M (key_dim, value_dim), zeros
// at the start: M *= exp(decay * softplus(alpha + dt_bias)); M += k d^T with d = sigmoid(beta) (v - M^T k); then
// a = norm(M^T q) * silu(z). Value head h uses q and k of key head h / (n_values / n_keys) if `grouped`, else of
// h % n_keys. If there is no w_alpha, w_beta holds both: for each key head the rows of beta of its value heads, then
// those of alpha.
typedef struct {
    int channels, taps;
    int n_keys, n_values, key_dim, value_dim; // MIXER_DELTA; otherwise 0
    int grouped;
} Recurrence;
#define DELTA_EPS 1e-6f

// A layer: hyper-parameters and weights. Every norm is an RMSNorm with weights; NULL: the layer does not have it.
typedef struct {
    LayerKind kind;
    Heads heads;
    Recurrence rec;
    Rope rope;
    // (n_heads*head_dim, dim), (n_kv_heads*head_dim, dim), (n_kv_heads*v_dim, dim), (dim, n_heads*v_dim). A layer
    // without wk uses the K and V of an earlier layer, the one with the same kv_kind and kv_layer. With wk but without
    // wv, V is K before its norm and RoPE.
    Tensor wq, wk, wv, wo;
    Tensor w_gate, w_up, w_down; // 2 x (ffn, dim), (dim, ffn); for FFN_EXPERTS stacks of n_experts
    Tensor router;               // (n_experts, dim) of FFN_EXPERTS
    // The shared expert, which every row uses in addition; no data: there is none. Its output is multiplied by
    // sigmoid(shared_route x) if shared_route has data.
    Tensor shared_gate, shared_up, shared_down; // 2 x (shared, dim), (dim, shared)
    Tensor shared_route;                        // (1, dim)
    // The input matrix of recurrent mixers: (channels, dim), for MIXER_CONV (3 dim, dim). Their output matrix is wo
    // (dim, layer_mixed).
    Tensor w_mix;
    Tensor w_z, w_beta, w_alpha;               // MIXER_DELTA: (n_values*value_dim, dim), 2 x (n_values, dim)
    const float *conv;                         // (channels, taps)
    const float *decay, *dt_bias, *norm_state; // MIXER_DELTA: 2 x (n_values), (value_dim)
    // MIXER_LATENT. wk (v_dim + n_rot, dim) computes the stored vector; wq (n_heads * (n + n_rot), dim or q_a.n_out)
    Tensor q_a;      // (any, dim) applied before wq; no data: wq takes x
    Tensor k_b, v_b; // stacks of n_heads: (v_dim, n) for the unrotated part of Q, (v, v_dim) for the attention output
    // A further term of x: per_out (act(per_gate x) * the layer's part of Workspace.per); no data: none
    Tensor per_gate, per_out;         // (Ends.per, dim), (dim, Ends.per)
    const float *norm_att, *norm_ffn; // (dim) before the mixer and before the feed-forward
    // (layer_norm_q, layer_norm_k) of Q and K, before RoPE; for MIXER_LATENT norm_k is of the compressed vector
    const float *norm_q, *norm_k;
    const float *norm_att_out, *norm_ffn_out; // (dim) of the outputs of mixer and feed-forward, before they are added
    const float *norm_v;                      // (v_dim) of each head of V
    const float *norm_q_a;                    // (q_a.n_out) of the output of q_a
    const float *norm_per;                    // (dim) of the output of per_out
    // FFN_EXPERTS, (dim). norm_router, norm_experts: of the inputs of the router and of the routed experts; NULL: their
    // input is that of the shared expert (norm_ffn). The others: of the outputs of the shared and of the routed experts
    const float *norm_router, *norm_experts, *norm_shared_out, *norm_experts_out;
    const float *expert_bias, *expert_scale; // (n_experts) added to scores for the choice; factors of weights
    const float *sinks;    // (n_heads) an additional score in the softmax of each head, without a value; NULL: none
    int index;             // of the layer in the model
    int kv_kind, kv_layer; // which of the model's pools holds its K and V, and its index there; -1: no K and V
    int state_layer;       // its index among the layers with a state; -1: it has no state
    bool kv_used_later;    // a later layer uses the same K and V, also the rows in Workspace.k and v
    int host_ffn;          // 1: the host computes its feed-forward even if a device has the layer (model_keep_experts)
    const Backend *be;
    const void *device; // the backend's copy of the layer; NULL: the backend uses the fields above
} Layer;

static inline bool layer_attends(const Layer *l) {
    return l->kind.mixer == MIXER_ATTENTION || l->kind.mixer == MIXER_LATENT;
}
// Whether a layer computes K and V of its own. Otherwise it attends to those of the layer with the same kv_layer.
static inline bool layer_owns_kv(const Layer *l) { return l->kv_kind >= 0 && l->wk.data; }

// Number of elements of the norms of Q and of K.
static inline int layer_norm_q(const Layer *l) {
    return l->heads.head_dim * (l->kind.qk_norm == QK_NORM_ROW ? l->heads.n_heads : 1);
}
static inline int layer_norm_k(const Layer *l) {
    if (l->kind.mixer == MIXER_LATENT) return heads_v_dim(&l->heads);
    return l->heads.head_dim * (l->kind.qk_norm == QK_NORM_ROW ? l->heads.n_kv_heads : 1);
}

// Elements of a row of Workspace.a, the input of Wo.
static inline int layer_mixed(const Layer *l) {
    if (!mixer_is_recurrent(l->kind.mixer)) return l->heads.n_heads * l->heads.head_dim;
    return l->kind.mixer == MIXER_DELTA ? l->rec.n_values * l->rec.value_dim : l->rec.channels;
}
// Elements of a row of Workspace.mix. MIXER_DELTA: the outputs of w_mix, w_z, w_beta and w_alpha, then the final beta
// and decay of each value head. MIXER_CONV: the output of w_mix. Gated attention: the output of Wq.
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

// EACH_LAYER_MATRIX: X(field) for every matrix of a Layer: those of attention, those of the feed-forward with its
// experts, then those that only some families have. EACH_LAYER_VECTOR: X(field, elements) for its vectors except those
// of recurrent mixers, which EACH_RECURRENT_VECTOR has; the norms of Q and K come last.
// clang-format off
#define EACH_ATTENTION_MATRIX(X) X(wq) X(wk) X(wv) X(wo)
#define EACH_FFN_MATRIX(X) \
    X(w_gate) X(w_up) X(w_down) X(router) X(shared_gate) X(shared_up) X(shared_down) X(shared_route)
#define EACH_RECURRENT_MATRIX(X) X(w_mix) X(w_z) X(w_beta) X(w_alpha)
#define EACH_LATENT_MATRIX(X) X(q_a) X(k_b) X(v_b)
#define EACH_PER_LAYER_MATRIX(X) X(per_gate) X(per_out)
#define EACH_LAYER_MATRIX(X) \
    EACH_ATTENTION_MATRIX(X) EACH_FFN_MATRIX(X) EACH_LATENT_MATRIX(X) EACH_PER_LAYER_MATRIX(X) \
    EACH_RECURRENT_MATRIX(X)
#define EACH_LAYER_VECTOR(X, dim, heads, q, k) \
    X(sinks, heads) X(norm_att, dim) X(norm_ffn, dim) X(norm_att_out, dim) X(norm_ffn_out, dim) X(norm_q, q) X(norm_k, k)
#define EACH_RECURRENT_VECTOR(X, r) \
    X(conv, (r)->channels * (r)->taps) X(decay, (r)->n_values) X(dt_bias, (r)->n_values) X(norm_state, (r)->value_dim)
#define EACH_FAMILY_VECTOR(X, dim, l) /* that only some families have; without norm_v, which is all ones */ \
    X(norm_q_a, (l)->q_a.n_out) X(norm_per, dim) X(norm_router, dim) \
    X(norm_experts, dim) X(norm_shared_out, dim) X(norm_experts_out, dim) \
    X(expert_bias, (l)->kind.n_experts) X(expert_scale, (l)->kind.n_experts)
// clang-format on

// The parts of the model before the first layer and after the last one.
typedef struct {
    Tensor tok_embd, head;
    const float *norm_out; // (dim)
    float eps;
    float embd_scale; // x = embd_scale * row of tok_embd
    float softcap;    // logits become softcap * tanh(logit / softcap); 0: no cap
    // Per-layer embeddings: each layer gets `per` additional values for a token, its part of
    // (norm_per(per_proj x) + sqrt(per) * row of per_embd) / sqrt(2).
    int per;                   // 0: the model has none
    Tensor per_embd, per_proj; // (n_vocab, n_layers*per), (n_layers*per, dim)
    const float *norm_per;     // (per)
    // A prediction head (model_load_head): x = join [norm_embd(embedding), norm_given(Batch.given)]. No data: x is the
    // embedding
    Tensor join;                         // (dim, 2 dim)
    const float *norm_embd, *norm_given; // (dim)
    int n_ropes;
    Rope ropes[ROPE_TABLES]; // (n_ropes) all different RoPEs of the layers
} Ends;

// The model's two pools of K and V. KV_FULL holds the layers that see the whole sequence. KV_WINDOW holds the layers
// with a window: its blocks are reused as soon as no row can see them.
enum { KV_FULL, KV_WINDOW, KV_KINDS };

// Attention weights that a step is to record: how much weight each slot received. Needs a batch of one sequence and
// dense KV.
typedef struct {
    int first_row, n_slots; // rows from first_row on are counted; the sequence has at most n_slots
    float *mass;   // (n_layers, n_kv_heads, n_slots) by Layer.index: to each the step adds the softmax weights of its
                   // rows, summed over the query heads of the KV head
    float *scores; // (n_kv_heads, n_slots) scratch
    float *device; // the mass of the device's layers, in the device's memory (DeviceMemory.probe_new)
} Probe;

// Selects the rows that continue after a layer has stored K and V. The other rows end there.
typedef struct {
    int layer; // Layer.index; -1: each layer but the last
    // Writes the rows that continue to `rows`, ascending, including all rows of b->out_row; returns their number.
    int (*choose)(void *arg, const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, int *rows);
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
    int n_step; // set by model_forward and model_hidden: n_rows before any layer narrowed them
};

// Whether the step has one row for each sequence, as in decoding.
static inline bool batch_decodes(const Batch *b) { return b->n_step == b->n_seqs; }

// The K and V of the layers of one kind, in blocks of `block` slots. Each plane, K and V, is an array (n_layers,
// n_blocks, n_kv_heads, block) of kv_slot_bytes. Dense types hold head_dim values per slot in K and v_dim in V.
// Sealed types (kv_is_sealed) quantise groups of SEAL slots. A row reads the groups before its own as sealed data and
// its own group as dense data, so that what it reads depends on its slot only, not on how steps were cut. A group is
// sealed in the step that computes its last slot. Until then a tail page keeps its rows from step to step; the page
// belongs to the block of the group's first slot. With sealed types the rows of a sequence in a batch must be
// consecutive slots.
// The last n_device layers, with their tail pages, are in a device's memory; k, v, tail_k and tail_v hold the others.
struct KvPool {
    int kind;     // KV_FULL or KV_WINDOW
    int n_layers; // may be 0: then there are no planes
    int n_blocks, n_kv_heads, block, head_dim;
    int v_dim;          // values of V per slot; 0: head_dim
    bool v_in_k;        // V of a slot is the first v_dim values of its K; there is no plane for V
    int type_k, type_v; // types of formats/kv_types.h
    uint8_t *k, *v;
    size_t bytes_k, bytes_v; // of k and v
    int n_device;
    const Backend *be; // the device that holds the last n_device layers; NULL: none
    void *device;
    // sealed types
    bool rotate;            // stored K and its queries are multiplied by a Hadamard matrix
    int n_tails;            // pages
    int *tail_of;           // (n_blocks) the page of the block's open group, -1: none; NULL: no plane is sealed
    float *tail_k, *tail_v; // (host layers, n_tails, n_kv_heads, SEAL, head_dim or v_dim); NULL: that plane is dense
};

// The states of recurrent layers, f32: (n_states, layers, floats). One state covers all recurrent layers of one
// sequence after one of its tokens. The cache assigns states to sequences (kvcache.h). The last n_device layers are in
// a device's memory; data holds the others.
struct StatePool {
    int n_layers, n_states; // n_layers 0: no layer is recurrent, and there are no states
    size_t floats;          // of one layer: recurrence_floats
    float *data;            // (n_states, n_layers - n_device, floats); NULL: the host has none
    int n_device;
    const Backend *be; // the device that holds the last n_device layers; NULL: none
    float *device;     // (n_states, n_device, floats) in the device's memory
};
static inline float *state_at(const StatePool *p, int state, int layer) { // a layer of the host's
    return p->data + ((size_t)state * (size_t)(p->n_layers - p->n_device) + (size_t)layer) * p->floats;
}

static inline size_t kv_type_bytes(int type) { return type == TYPE_F32 ? 4 : 2; } // of an element of a dense type
// Index, in slots, of one slot of one block and KV head in a plane.
HOST_DEVICE static inline size_t kv_slot(const KvPool *kv, int layer, int block, int head, int offset) {
    return (((size_t)layer * (size_t)kv->n_blocks + (size_t)block) * (size_t)kv->n_kv_heads + (size_t)head) *
               (size_t)kv->block +
           (size_t)offset;
}
static inline int kv_v_dim(const KvPool *kv) { return kv->v_dim > 0 ? kv->v_dim : kv->head_dim; }
// The plane that K or V (`value`) is read from: its memory, its type, its values per slot, its tail pages.
static inline uint8_t *kv_plane(const KvPool *kv, bool value) { return value && !kv->v_in_k ? kv->v : kv->k; }
static inline int kv_plane_type(const KvPool *kv, bool value) { return value && !kv->v_in_k ? kv->type_v : kv->type_k; }
static inline int kv_plane_dim(const KvPool *kv, bool value) {
    return value && !kv->v_in_k ? kv_v_dim(kv) : kv->head_dim;
}
static inline float *kv_plane_tail(const KvPool *kv, bool value) {
    return value && !kv->v_in_k ? kv->tail_v : kv->tail_k;
}
// Number of planes: K, and V unless it is part of K.
static inline int kv_planes(const KvPool *kv) { return kv->v_in_k ? 1 : 2; }
// Bytes of K and V of a slot in one layer.
static inline size_t kv_slot_bytes_both(const KvPool *kv) {
    size_t v = kv->v_in_k ? 0 : kv_slot_bytes(kv->type_v, kv_v_dim(kv));
    return (kv_slot_bytes(kv->type_k, kv->head_dim) + v) * (size_t)kv->n_kv_heads;
}
// Index, in elements, of the first value of a slot in a dense plane of K.
static inline size_t kv_index(const KvPool *kv, int layer, int block, int head, int offset) {
    return kv_slot(kv, layer, block, head, offset) * (size_t)kv->head_dim;
}
// Index of the first value of slot `offset` of a page's group in tail_k or tail_v, with `dim` values per slot.
// kv_tail_index is the same for tail_k.
HOST_DEVICE static inline size_t kv_tail_at(const KvPool *kv, int dim, int layer, int page, int head, int offset) {
    return ((((size_t)layer * (size_t)kv->n_tails + (size_t)page) * (size_t)kv->n_kv_heads + (size_t)head) * SEAL +
            (size_t)offset) *
           (size_t)dim;
}
HOST_DEVICE static inline size_t kv_tail_index(const KvPool *kv, int layer, int page, int head, int offset) {
    return kv_tail_at(kv, kv->head_dim, layer, page, head, offset);
}
// The block table and the block copies of a batch for a pool.
static inline const int *batch_table(const Batch *b, const KvPool *kv) {
    return kv->kind == KV_WINDOW ? b->window_table : b->block_table;
}
static inline const int (*batch_copies(const Batch *b, const KvPool *kv))[2] {
    return (const int(*)[2])(kv->kind == KV_WINDOW ? b->window_copy : b->copy);
}
// The tail page of the group that contains a slot of a sequence; -1: it has none, or no plane is sealed.
static inline int kv_tail(const KvPool *kv, const int *blocks, int slot) {
    return kv->tail_of ? kv->tail_of[blocks[slot / SEAL * SEAL / kv->block]] : -1;
}

static inline int kv_n_layers(const KvPool kv[KV_KINDS]) { return kv[KV_FULL].n_layers + kv[KV_WINDOW].n_layers; }

// The assignment of a batch's rows to experts. A pair is a row and one of its n_used experts. Pairs are ordered by
// expert, then by row; their activations are in w->h in this order, (pairs, width of an expert). The activations of the
// shared expert, (rows, its width), follow after max_rows * n_used pairs.
typedef struct {
    float *logits; // (max_rows, n_experts) the router's output
    float *shared; // (max_rows) the output of shared_route, before the sigmoid
    int *chosen;   // (max_rows, n_used) a row's experts, by descending logit; among equal logits the lower index first
    float *weight; // (max_rows, n_used) the weights of their outputs
    int *place;    // (max_rows, n_used) the index of the pair
    int *row;      // (max_rows * n_used) the row of a pair
    int *first;    // (n_experts + 1) the first pair of an expert. Here, in `task` and in `at` the size is that of
                   // latent_heads if it is larger than n_experts
    float *x;      // (max_rows * n_used, dim) the experts' inputs, later their outputs
    float *out;    // (max_rows, dim) the sum that is added to the residual stream
    int *task;     // (2 * n_experts + 1) the first task of each expert's matrices
    size_t *at;    // (n_experts) offset of an expert's packed rows in Workspace.packed
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
    // Sets .device of the layers and tensors; *out owns all copies until unload. QUILL_MEMORY: nothing is loaded.
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
    const int *(*drawn)(Workspace *w); // waits for the tokens of the oldest draw in flight: model_drawn
    void (*wait)(void);                // returns when the device has computed everything that was started
    const char *(*failure)(void);      // the first failure, or NULL; results after it are void
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
    // Keeps only some rows: moves rows[i] of x, q and the RoPE data to row i, for i in [0, b->n_rows); rows ascends. b:
    // the batch of the remaining rows. NULL: the backend cannot do it.
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
