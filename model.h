// model.h: a model file's weights and shape, and the one forward.
//
// Model is read-only after model_load and may be shared between threads. Its tensors point into the file's mapping: the
// Gguf must outlive it. A Workspace is the scratch memory of one forward at a time. The families are rows of one table
// (families.h).
#ifndef QUILL_MODEL_H
#define QUILL_MODEL_H

#include "files/gguf.h"
#include "kernels.h"

typedef struct {
    char arch[32];                                                  // "llama"
    char name[128];                                                 // general.name, may be empty
    int n_layers, dim, n_heads, n_kv_heads, head_dim, ffn, n_vocab; // ffn: of one expert, where there are some
    int n_experts, n_used, ffn_shared; // of a layer, of them for a row, width of the shared one; 0: there are none
    int ffn_dense, n_dense;            // with experts: width of the first n_dense layers, which have none
    int window_heads, window_dim;      // n_kv_heads and head_dim of layers with a window
    int n_shared_kv;                   // the last layers, which use the K and V of earlier ones
    int kv_rank, q_head, v_head;       // compressed KV: elements of what is kept of K and V; of a head of Q and of V
    int n_ctx_train;                   // the context it was trained for
    int n_rot;
    int window, n_windowed; // slots that some layers see, and how many layers these are; 0: there are none
    int n_recurrent;        // layers with a state in place of K and V
    Recurrence rec;         // what they do
    bool tied;              // the head is the embedding
    float eps, rope_base;
    char rope_scaling[16]; // "none", "linear", "yarn", "longrope"
    float rope_factor;
    int rope_ctx_orig;
} ModelConfig;

typedef struct {
    ModelConfig c;
    Layer *layers;           // (n_layers)
    Ends ends;               // its ropes' frequencies are the model's: layers have copies of the pointers
    double *context_freq[2]; // (n_rot/2) LongRoPE: those of ends.ropes[0] for short contexts and for long; else NULL
    const Backend *be;       // the host's
    const Backend *device;   // of the last n_device layers and the head; NULL: there is none
    int n_device;
    void *on_device; // what is loaded there
    const Gguf *gguf;
    float **owned; // norms and biases that the file has in another type than f32, converted to f32
    int n_owned;
    bool *used; // (gguf_n_tensors) the loader took it
} Model;

// Validates every number that kernels index with. QUILL_MODEL names the tensor or key that is wrong.
Status model_load(Model *m, const Gguf *g, const Backend *be);
// LongRoPE has frequencies for contexts up to c.rope_ctx_orig and others for longer ones: chooses those for runs of
// n_ctx slots, before anything is computed or loaded into a device. model_load chooses for c.n_ctx_train. Other models
// do not change.
void model_set_context(Model *m, int n_ctx);
// Loads the last n layers and the head into a device's memory, the embedding too if these are all layers; the device
// computes them from then on. The caller sets pool, spare, progress and arg of `how`. After QUILL_MEMORY the host
// computes all layers.
Status model_to_device(Model *m, const Backend *device, int n, DeviceLoad how);
// The feed-forwards of experts of the first n layers stay the host's, also where a device computes the rest of the
// layer; before model_to_device.
void model_keep_experts(Model *m, int n);
size_t model_kept_bytes(const Model *m, int first); // of the weights that layers from `first` on keep so
void model_free(Model *m);
// Reads every weight once and reports the first that is not finite (--check-tensors).
Status model_check_tensors(const Model *m);
bool model_uses(const Model *m, int tensor); // by its index in the file
size_t model_weight_bytes(const Model *m);   // of the tensors that the model uses, each counted once
size_t model_n_params(const Model *m);
size_t model_active_bytes(const Model *m);      // of the weights that one row uses: of the experts those that it takes
size_t model_active_params(const Model *m);     // likewise
int layer_norm_floats(const Layer *l, int dim); // elements of all its norms and other vectors
// The first layer's matrix that takes x: its type stands for the model's.
static inline const Tensor *model_first_matrix(const Model *m) {
    const Layer *l = m->layers;
    return mixer_is_recurrent(l->kind.mixer) ? &l->w_mix : &l->wq;
}

// Room for batches of up to max_rows rows, of sequences of up to max_slots slots, and max_out rows of logits.
// QUILL_MEMORY if the system or the device refuses.
Status workspace_new(Workspace *w, const Model *m, ThreadPool *pool, int max_rows, int max_out, int max_slots);
void workspace_free(Workspace *w);
size_t workspace_bytes(const Model *m, int n_threads, int max_rows, int max_out);    // of the host's memory
Workspace workspace_shape(const Model *m, int max_rows, int max_out, int max_slots); // sizes alone

// The forward. kv: the pools of every kind, KvCache.pool. Returns the logits of b->out_row, (b->n_out, n_vocab), valid
// until the next call with this workspace. With b->draw it returns NULL while the device still computes, and
// model_drawn waits for the tokens; a second forward may be begun before that.
float *model_forward(const Model *m, Workspace *w, KvPool kv[KV_KINDS], const Batch *b);
bool model_draws(const Model *m);       // b->draw is possible
bool model_draws_ahead(const Model *m); // and tokens -1 in the batch after it
// Waits for the oldest forward with b->draw whose tokens were not fetched yet: (b->n_out) tokens, -1 where no logit is
// finite; valid until the second forward after it.
const int *model_drawn(const Model *m, Workspace *w);
// How many of a step's rows go through all of the last layer: n_out, if the backend can narrow such a step and the KV
// cache holds no sealed type; the other rows only leave their K and V there. Otherwise all.
int model_last_rows(const Model *m, bool sealed, int n_rows, int n_out);
// The forward in two parts, for more rows of logits than max_out: all layers of all rows, then, slice by slice, the
// logits of any rows of that batch.
void model_hidden(const Model *m, Workspace *w, KvPool kv[KV_KINDS], const Batch *b);
float *model_logits(const Model *m, Workspace *w, const Batch *b, const int *rows, int n_rows);
// The device's first failure since it was opened, in words, or NULL; results after a failure are NaN.
const char *model_failure(const Model *m);
void model_wait(const Model *m); // until a device has computed all that was begun

#endif
