// layer.h: a layer of a model: its hyper-parameters and weights, and the parts of the model before the first layer and
// after the last one.
#ifndef QUILL_LAYER_H
#define QUILL_LAYER_H

#include "formats/types.h"
#include "base/base.h"

#include <math.h>

typedef struct Backend Backend;

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

// Bytes of a tensor with its scales and its bias.
static inline size_t tensor_bytes(const Tensor *t) {
    size_t n = tensor_rows(t) * t->row_bytes;
    if (t->scales) n += tensor_rows(t) * (size_t)t->n_in / (size_t)t->group * sizeof *t->scales;
    if (t->bias) n += tensor_rows(t) * sizeof *t->bias;
    return n;
}

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
    int ahead;          // added to the position first
    const double *freq; // (n_rot/2) radians per position
} Rope;

enum { ROPE_TABLES = 2 }; // the most tables of one model

// The factor of the rotated Q at a position. It makes scores grow slowly beyond the context of training.
HOST_DEVICE static inline float rope_temperature(const Rope *r, int pos) {
    return r->temperature == 0 ? 1 : 1 + r->temperature * logf((float)(1 + (pos + r->ahead) / r->span));
}

// The attention of a layer. All fields have 4 bytes, without padding: kv/fingerprint.c hashes them as bytes.
typedef struct {
    int n_heads, n_kv_heads, head_dim; // head_dim: of Q and K
    int v_dim;                         // elements of a head of V and of the attention output, <= head_dim; 0: head_dim
    int window;                        // a row sees its last `window` slots; 0: all
    float scale;                       // factor of the scores
    float softcap;                     // scores become softcap * tanh(score / softcap); 0: no cap
    int chunked;                       // 1: slots form chunks of `window`, and a row sees only those of its own chunk
} Heads;

// The oldest slot that a row at `slot` sees.
HOST_DEVICE static inline int heads_oldest(const Heads *h, int slot) {
    if (h->window == 0) return 0;
    if (h->chunked) return slot / h->window * h->window;
    return slot >= h->window ? slot - h->window + 1 : 0;
}

static inline int heads_v_dim(const Heads *h) { return h->v_dim > 0 ? h->v_dim : h->head_dim; }

// A layer has a mixer, which combines the rows of a sequence, and a feed-forward, which computes each row by itself.
// MIXER_ATTENTION and MIXER_LATENT have K and V. MIXER_LATENT is attention to compressed K and V (DeepSeek-V2): a slot
// has one KV head, which is the compressed vector (used as V) followed by the rotated part of K. A matrix of each head
// maps Q into the compressed space (k_b), and another one maps the attention output out of it (v_b).
// The three recurrent mixers have a state of fixed size for each sequence instead (StatePool): MIXER_DELTA is gated
// DeltaNet (Yang et al. 2024), MIXER_CONV a short convolution between two gates (LFM2), MIXER_SSD state space duality
// (Mamba-2; Dao and Gu 2024).
typedef enum { MIXER_NONE, MIXER_ATTENTION, MIXER_LATENT, MIXER_DELTA, MIXER_CONV, MIXER_SSD } Mixer;
static inline bool mixer_is_recurrent(Mixer m) { return m == MIXER_DELTA || m == MIXER_CONV || m == MIXER_SSD; }
typedef enum { FFN_NONE, FFN_GATED, FFN_EXPERTS } FeedForward;
// The activation of the gate in FFN_GATED and in every expert.
// ACT_SILU: act(v) = v * sigmoid(v).
// ACT_GELU: act(v) = v * sigmoid(sqrt(8/pi) (v + 0.044715 v^3)), which is GELU in its tanh form.
// ACT_SWIGLU_CLAMPED (experts only): v * sigmoid(1.702 v) with v = min(gate, 7), times clamp(up, -7, 7) + 1.
// ACT_RELU (only without w_up): act(v) = max(v, 0).
// ACT_XIELU (only without w_up, and not of experts): no gate, but the function of Huang and Schlag 2024 in Xielu.
// N_GATES: the number of activations of gates, which come first.
typedef enum { ACT_SILU, ACT_GELU, ACT_SWIGLU_CLAMPED, ACT_RELU, N_GATES, ACT_XIELU = N_GATES } Activation;
// p v^2 + b v above 0; n (e^v - 1 - v) + b v below.
typedef struct {
    float p, n, b;
} Xielu;
// The weights of a row's chosen experts. ROUTE_CHOSEN: a softmax over the logits of the chosen experts. ROUTE_ALL: a
// softmax over all experts, not renormalised. ROUTE_SIGMOID_CHOSEN: sigmoids of the logits, divided by the sum over the
// chosen experts. ROUTE_SIGMOID: sigmoids as they are. Experts are chosen by the sigmoid, or by the softmax over all
// experts, plus expert_bias. ROUTE_SIGMOID_INPUT: sigmoids as they are, which multiply the experts' inputs in place of
// their outputs; experts are chosen by the logits.
typedef enum { ROUTE_CHOSEN, ROUTE_ALL, ROUTE_SIGMOID_CHOSEN, ROUTE_SIGMOID, ROUTE_SIGMOID_INPUT } Routing;
HOST_DEVICE static inline bool route_by_sigmoid(Routing r) {
    return r == ROUTE_SIGMOID_CHOSEN || r == ROUTE_SIGMOID || r == ROUTE_SIGMOID_INPUT;
}
// Whether the weights multiply the experts' inputs.
HOST_DEVICE static inline bool route_weighs_inputs(Routing r) { return r == ROUTE_SIGMOID_INPUT; }
// Whether the norms of Q and K normalise each head separately or all heads of a row together. QK_NORM_TURNED: each head
// separately, after RoPE instead of before it.
typedef enum { QK_NORM_HEAD, QK_NORM_ROW, QK_NORM_TURNED } QkNorm;
// The gate of attention, whose sigmoid multiplies `a`. GATE_IN_WQ: for each head Wq has head_dim rows of Q, then
// head_dim rows of the gate. GATE_OWN: w_mix has the gate's rows.
typedef enum { GATE_NONE, GATE_IN_WQ, GATE_OWN } AttentionGate;
#define GELU_SLOPE 1.5957691216057308f // sqrt(8/pi)
#define GELU_CUBE 0.044715f
#define SWIGLU_SLOPE 1.702f
#define SWIGLU_LIMIT 7.0f
// act(v) = v * sigmoid(sigmoid_of(act, v)) for all gates but ACT_RELU, for floats and vectors of them.
#define sigmoid_of(act, v)                                                                                             \
    ((act) == ACT_GELU             ? GELU_SLOPE * (v) * (1.0f + GELU_CUBE * (v) * (v))                                 \
     : (act) == ACT_SWIGLU_CLAMPED ? SWIGLU_SLOPE * (v)                                                                \
                                   : (v))

HOST_DEVICE static inline float softcap(float v, float cap) { return cap != 0 ? cap * tanhf(v / cap) : v; }

// The most experts and groups of them in a layer, and the most taps: load/ refuses more, and kernels have arrays of
// these sizes.
enum { MOST_EXPERTS = 1 << 12, MOST_EXPERT_GROUPS = 64, MOST_TAPS = 16 };

// The hyper-parameters of a layer that are not in Heads. As in Heads all fields have 4 bytes, without padding.
typedef struct {
    Mixer mixer;
    FeedForward ffn;
    Activation act;
    QkNorm qk_norm;
    AttentionGate gate;
    float eps; // of all norms of the layer, but see eps_out
    // FFN_EXPERTS: number of experts, number used by each row, and their weights, which are multiplied by route_scale
    int n_experts, n_used;
    Routing routing;
    float route_scale;
    int n_groups, n_groups_used; // consecutive experts form groups; a row's experts come from its best groups; 0: none
    float out_scale;             // factor of the residual stream after the layer; 0: no scaling
    float eps_out;               // of norm_att_out, norm_ffn_out and norm_state; 0: eps
    // 1: the mean of the residual stream is subtracted from it after the layer (Ends.centred: after the embedding), so
    // that RMSNorms of it are LayerNorms
    int centred;
    int parallel; // 1: the feed-forward gets the residual stream as it is before the mixer's output is added
    Xielu xielu;  // of ACT_XIELU
} LayerKind;

HOST_DEVICE static inline float kind_eps_out(const LayerKind *k) { return k->eps_out != 0 ? k->eps_out : k->eps; }

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
// MIXER_SSD: in = w_mix h, and silu(u + conv_bias) holds v, k and q in this order; Mamba-2 calls them x, B and C. Each
// value head has a matrix M as above: with dt = softplus(w_beta h + dt_bias), M *= exp(decay * dt); M += k (dt v)^T;
// o = M^T q + skip v. Then a = norm(o * silu(z)), normalised over the value heads of a key head together.
typedef struct {
    int channels, taps;
    int n_keys, n_values, key_dim, value_dim; // of mixers with matrices M; otherwise 0
    int grouped;
} Recurrence;
#define DELTA_EPS 1e-6f

// Where q, k and v begin among the channels.
HOST_DEVICE static inline int recurrence_q_at(Mixer m, const Recurrence *r) {
    return m == MIXER_SSD ? r->n_values * r->value_dim + r->n_keys * r->key_dim : 0;
}
HOST_DEVICE static inline int recurrence_k_at(Mixer m, const Recurrence *r) {
    return m == MIXER_SSD ? r->n_values * r->value_dim : r->n_keys * r->key_dim;
}
HOST_DEVICE static inline int recurrence_v_at(Mixer m, const Recurrence *r) {
    return m == MIXER_SSD ? 0 : 2 * r->n_keys * r->key_dim;
}

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
    // 2 x (ffn, dim), (dim, ffn); for FFN_EXPERTS stacks of n_experts. Without w_up (no data) the product of w_gate is
    // multiplied by its own activation, as relu squared
    Tensor w_gate, w_up, w_down;
    Tensor router; // (n_experts, dim) of FFN_EXPERTS
    // The shared expert, which every row uses in addition; no data: there is none. It may also lack shared_up. Its
    // output is multiplied by sigmoid(shared_route x) if shared_route has data.
    Tensor shared_gate, shared_up, shared_down; // 2 x (shared, dim), (dim, shared)
    Tensor shared_route;                        // (1, dim)
    // The input matrix of recurrent mixers: (channels, dim), for MIXER_CONV (3 dim, dim). Their output matrix is wo
    // (dim, layer_mixed). The gate's matrix of GATE_OWN: (n_heads*head_dim, dim)
    Tensor w_mix;
    Tensor w_z, w_beta, w_alpha;               // with matrices M: (n_values*value_dim, dim), 2 x (n_values, dim)
    const float *conv, *conv_bias;             // (channels, taps), (channels)
    const float *decay, *dt_bias, *norm_state; // with matrices M: 2 x (n_values), (layer_norm_state)
    const float *skip;                         // MIXER_SSD: (n_values)
    // MIXER_LATENT. wk (v_dim + n_rot, dim) computes the stored vector; wq (n_heads * (n + n_rot), dim or q_a.n_out)
    Tensor q_a;      // (any, dim) applied before wq; no data: wq takes x
    Tensor k_b, v_b; // stacks of n_heads: (v_dim, n) for the unrotated part of Q, (v, v_dim) for the attention output
    // A further term of x: per_out (act(per_gate x) * the layer's part of Workspace.per); no data: none
    Tensor per_gate, per_out;         // (Ends.per, dim), (dim, Ends.per)
    const float *norm_att, *norm_ffn; // (dim) before the mixer and before the feed-forward
    // (layer_norm_q, layer_norm_k) of Q and K, around RoPE as qk_norm says; for MIXER_LATENT norm_k is of the
    // compressed vector
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

// The same of the norm of a recurrent mixer's output.
static inline int layer_norm_state(const Layer *l) {
    return l->kind.mixer == MIXER_SSD ? l->rec.n_values * l->rec.value_dim : l->rec.value_dim;
}

// Elements of a row of Workspace.a, the input of Wo.
static inline int layer_mixed(const Layer *l) {
    if (!mixer_is_recurrent(l->kind.mixer)) return l->heads.n_heads * l->heads.head_dim;
    return l->kind.mixer == MIXER_CONV ? l->rec.channels : l->rec.n_values * l->rec.value_dim;
}
// Elements of a row of Workspace.mix. MIXER_DELTA and MIXER_SSD: the outputs of w_mix, w_z, w_beta and w_alpha, then
// the final beta (or dt) and decay of each value head. MIXER_CONV: the output of w_mix. GATE_IN_WQ: the output of Wq.
// GATE_OWN: the gates.
static inline int layer_mix_width(const Layer *l) {
    const Recurrence *r = &l->rec;
    if (l->kind.mixer == MIXER_CONV) return 3 * r->channels;
    if (mixer_is_recurrent(l->kind.mixer)) return r->channels + r->n_values * (r->value_dim + 4);
    return (l->kind.gate == GATE_IN_WQ ? 2 : l->kind.gate == GATE_OWN) * l->heads.n_heads * l->heads.head_dim;
}
// Gated attention: where the first head's gate is in a row of Workspace.mix, and elements from there to the next one's.
static inline int layer_gate_at(const Layer *l) { return l->kind.gate == GATE_IN_WQ ? l->heads.head_dim : 0; }
static inline int layer_gate_step(const Layer *l) { return l->heads.head_dim + layer_gate_at(l); }
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
#define EACH_RECURRENT_VECTOR(X, l) \
    X(conv, (l)->rec.channels * (l)->rec.taps) X(conv_bias, (l)->rec.channels) X(decay, (l)->rec.n_values) \
    X(dt_bias, (l)->rec.n_values) X(norm_state, layer_norm_state(l)) X(skip, (l)->rec.n_values)
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
    float embd_eps;   // x is then normalised with this eps, without weights; 0: it is not
    float softcap;    // logits become softcap * tanh(logit / softcap); 0: no cap
    int centred;      // 1: the mean of x is subtracted (LayerKind.centred)
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

#endif
