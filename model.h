// model.h: the weights and the shape of a model file, and the forward pass.
//
// A Model is read-only after model_load and may be shared between threads. Its tensors point into the mapped file: the
// Gguf must outlive the Model. A Workspace is scratch memory for one forward pass at a time. The model families are
// rows of one table (families.h).
#ifndef QUILL_MODEL_H
#define QUILL_MODEL_H

#include "files/gguf.h"
#include "kernels.h"

typedef struct {
    char arch[32];                                                  // "llama"
    char name[128];                                                 // general.name, may be empty
    int n_layers, dim, n_heads, n_kv_heads, head_dim, ffn, n_vocab; // ffn: in a model with experts, of one expert
    int n_experts, n_used, ffn_shared; // experts of a layer, experts used by a row, width of the shared one; 0: none
    // With experts: the first n_dense layers have a plain FFN of width ffn_dense, and of the others all but every
    // expert_step-th
    int ffn_dense, n_dense, expert_step;
    int window_heads, window_dim;      // n_kv_heads and head_dim of layers with a window
    int n_shared_kv;                   // number of last layers, which use the K and V of earlier ones
    int kv_rank, q_head, v_head;       // compressed KV: elements of the compressed vector; of a head of Q and of V
    int n_ctx_train;                   // the context length of training
    int n_rot;
    int window, n_windowed; // the window in slots, and the number of layers that have it; 0: none
    int n_recurrent;        // number of recurrent layers, which have a state in place of K and V
    int n_mtp;      // prediction heads: layers that the file has after these n_layers; not used (see model_load_head)
    Recurrence rec; // of the recurrent layers
    bool tied;      // the head is the embedding matrix
    float eps, rope_base;
    char rope_scaling[16]; // "none", "linear", "yarn", "longrope"
    float rope_factor;
    int rope_ctx_orig;
} ModelConfig;

typedef struct {
    ModelConfig c;
    Layer *layers;           // (n_layers)
    Ends ends;               // owns the frequencies of its ropes; layers have copies of the pointers
    double *context_freq[2]; // (n_rot/2) LongRoPE: frequencies of ends.ropes[0] for short and long contexts; else NULL
    const Backend *be;       // the host's backend
    const Backend *device;   // computes the last n_device layers and the head; NULL: there is no device
    int n_device;
    void *on_device; // handle to the weights in the device's memory
    const Gguf *gguf;
    float **owned; // vectors that the file does not have in f32: converted or computed while loading
    int n_owned;
    bool *used; // (gguf_n_tensors) whether the model uses the tensor
} Model;

// Validates every number that kernels use as an index or a size. QUILL_MODEL names the tensor or key that is wrong.
Status model_load(Model *m, const Gguf *g, const Backend *be);
// Loads the first multi-token prediction head of the model's file (DeepSeek-V3, arXiv:2412.19437, section 2.2) as a
// model of one layer: from the hidden vector of a token and the embedding of the next one it predicts the token after
// that one. Its ends are the model's own where the file has no others, and Ends.join combines the two inputs.
// QUILL_MODEL: the file has no head, or a head of this family is not supported.
Status model_load_head(Model *head, const Model *m);
// LongRoPE has frequencies for contexts up to c.rope_ctx_orig and others for longer ones. Chooses those for a context
// of n_ctx slots; call it before anything is computed or loaded into a device. model_load chooses for c.n_ctx_train.
// Has no effect on other models.
void model_set_context(Model *m, int n_ctx);
// Loads the last n layers and the head into a device's memory, and the embedding if these are all layers. From then on
// the device computes them. The caller sets pool, spare, progress and arg of `how`. QUILL_MEMORY, or
// QUILL_MODEL if the device fails: the host computes all layers.
Status model_to_device(Model *m, const Backend *device, int n, DeviceLoad how);
// Makes the host compute the experts of the first n layers even if a device computes the rest of the layer. Call it
// before model_to_device.
void model_keep_experts(Model *m, int n);
size_t model_kept_bytes(const Model *m, int first); // bytes of such experts in the layers from `first` on
void model_free(Model *m);
// Reads every weight once and reports the first that is not finite (--check-tensors).
Status model_check_tensors(const Model *m);
bool model_uses(const Model *m, int tensor); // tensor: index in the file
size_t model_weight_bytes(const Model *m);   // of the tensors that the model uses, each counted once
size_t model_n_params(const Model *m);
size_t model_active_bytes(const Model *m);      // of the weights that one row uses: of n_experts experts only n_used
size_t model_active_params(const Model *m);     // likewise
size_t model_row_bytes(const Model *m);         // of the weights that one row reads whole: without the embedding table
int layer_norm_floats(const Layer *l, int dim); // elements of all norms and other vectors of the layer
// The first matrix of the first layer. Its type is taken as the type of the model's weights.
static inline const Tensor *model_first_matrix(const Model *m) {
    const Layer *l = m->layers;
    if (l->kind.mixer == MIXER_NONE) return &l->w_gate;
    return mixer_is_recurrent(l->kind.mixer) ? &l->w_mix : &l->wq;
}
// The type of K and V unless another is asked for. A model in F32 is computed in f32 throughout, and an f32 cache keeps
// that exactness; for others f16 is enough.
static inline int model_kv_type(const Model *m) {
    return model_first_matrix(m)->type == TYPE_F32 ? TYPE_F32 : TYPE_F16;
}

// Allocates scratch memory for batches of up to max_rows rows, of sequences of up to max_slots slots, with max_out rows
// of logits. QUILL_MEMORY: the system or the device has no memory for it.
Status workspace_new(Workspace *w, const Model *m, ThreadPool *pool, int max_rows, int max_out, int max_slots);
void workspace_free(Workspace *w);
size_t workspace_bytes(const Model *m, int n_threads, int max_rows, int max_out);    // of the host's memory
Workspace workspace_shape(const Model *m, int max_rows, int max_out, int max_slots); // sizes only, no memory
Heads model_widest_heads(const Model *m); // the largest sizes of the heads of all layers, each by itself; the rest is 0

// The forward pass. kv: both pools, KvCache.pool. Returns the logits of b->out_row, (b->n_out, n_vocab), valid until
// the next call with this workspace. With b->draw it returns NULL while the device still computes; model_drawn waits
// for the tokens. A second model_forward may be called before model_drawn.
float *model_forward(const Model *m, Workspace *w, KvPool kv[KV_KINDS], const Batch *b);
// The same, but before each layer of the host `stop` is asked whether to abandon the step; NULL: never. A device is not
// asked: its layers, once started, run to their end. False: the step is abandoned, *logits is not set. Block copies
// were made, and some layers have written K and V into the slots of the rows, other layers have not. So these slots
// must not count as computed. States of recurrent layers and tail pages of sealed types are written in place: what they
// held before the step is lost. scheduler_may_abandon says which steps can be abandoned.
typedef struct {
    bool (*abandons)(void *arg, int n_layers); // n_layers are computed
    void *arg;
} ModelStop;
bool model_forward_until(const Model *m, Workspace *w, KvPool kv[KV_KINDS], const Batch *b, const ModelStop *stop,
                         float **logits);
bool model_draws(const Model *m);       // whether b->draw may be used
bool model_draws_ahead(const Model *m); // whether the batch after one with b->draw may have tokens -1
// Waits for the oldest model_forward with b->draw whose tokens were not fetched yet. Returns (b->n_out) tokens, -1
// where no logit is finite; valid until the second model_forward after it. The caller may change them.
int *model_drawn(const Model *m, Workspace *w);
// How many rows of a step pass the whole last layer: n_out if the backend can narrow such a step and the KV cache has
// no sealed type; the other rows only store their K and V there, or change the state. Otherwise n_rows.
int model_last_rows(const Model *m, bool sealed, int n_rows, int n_out);
// The forward pass in two parts, for more rows of logits than max_out: model_hidden computes all layers of all rows;
// then model_logits computes the logits of up to max_out rows of that batch in each call. False: `stop` has abandoned
// the step, as in model_forward_until.
bool model_hidden(const Model *m, Workspace *w, KvPool kv[KV_KINDS], const Batch *b, const ModelStop *stop);
float *model_logits(const Model *m, Workspace *w, const Batch *b, const int *rows, int n_rows);
// The hidden vectors of all rows, after model_forward of a batch with b->whole or after model_hidden: the norm of the
// residual stream behind the last layer, which the head multiplies. (n_rows, dim), valid until the next call with this
// workspace. The CPU must compute the last layer.
const float *model_last_hidden(const Model *m, Workspace *w, int n_rows);
// The device's first failure since it was opened, or NULL: QUILL_MEMORY or QUILL_MODEL. Results after it are NaN.
const Status *model_failure(const Model *m);
void model_wait(const Model *m); // returns when the device has computed everything that was started

#endif
