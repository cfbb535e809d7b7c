// load/loader.h: what the files share that make a Model of a model file (model_load.c): the file's keys and tensors,
// checked.
//
// Every function says what is wrong as QUILL_MODEL: file, key or tensor, what was expected, what was found. Keys are
// named without the architecture's prefix.
#ifndef QUILL_LOADER_H
#define QUILL_LOADER_H

#include "families.h"
#include "model.h"

typedef struct {
    Model *m;
    const Gguf *g;
    const Family *family;
    const char *file;
    const uint8_t *windowed; // (n_layers) whether a layer has the window; NULL: as the family has it
    uint8_t *recurrent;      // (n_layers) whether a layer has a state in place of K and V; NULL: none has
    // Family.scales: what the embedding, scores, branches and logits are multiplied by; 0: scores are scaled as usual
    float embedding, scores, branches, logits;
    int *kv_heads, *ffn; // (n_layers) KV heads; widths of feed-forwards without experts
} Loader;

// ---- keys (load/read.c) ----
Status loader_int(const Loader *l, const char *suffix, int low, int high, bool required, int fallback, int *out);
// (n_layers) of a key that has one number for all layers or a list; the caller frees it.
Status loader_layer_ints(const Loader *l, const char *suffix, int low, int high, bool required, int fallback,
                         int **out);
Status loader_float(const Loader *l, const char *suffix, bool required, float fallback, float *out); // above 0
Status loader_scale(const Loader *l, const char *suffix, float fallback, float *out); // 0 is as if the key were missing
Status loader_cap(const Loader *l, const char *suffix, float *out);                   // missing: there is none
int loader_window(const Loader *l, int layer); // the slots that a row of that layer sees; 0: all

// ---- tensors (load/read.c) ----
const GgufTensor *loader_tensor(const Loader *l, const char *name); // noted as used; NULL: there is none
float *loader_own_floats(Model *m, int n);                          // that model_free frees
Status loader_matrix(const Loader *l, Tensor *out, const char *name, int n_out, int n_in);
// A vector in f32: where the file has it so, in place; otherwise converted into memory of the model's.
Status loader_vector(const Loader *l, const float **out, const char *name, int n, bool required);
bool loader_layer_has(const Loader *l, int layer, const char *part);
// A layer's matrix with its bias, if it has one; n of them stacked in one tensor, with stacked biases.
Status loader_layer_matrix(const Loader *l, int layer, const char *part, Tensor *out, int n_out, int n_in);
Status loader_layer_stack(const Loader *l, int layer, const char *part, Tensor *out, int n, int n_out, int n_in);
Status loader_layer_vector(const Loader *l, int layer, const char *part, const float **out, int n, bool required);
// (n, n_each) elements in f32, which must be there.
Status loader_layer_table(const Loader *l, int layer, const char *part, const float **out, int n, int n_each);

// Several matrices of the same input that the file has as one, row above row.
typedef struct {
    Tensor *to;
    int n_out;
} FusedPart;
Status loader_layer_fused(const Loader *l, int layer, const char *part, const FusedPart *parts, int n_parts, int n_in);

// ---- attention (load/attention.c) ----
Status loader_attention_shape(Loader *l); // heads, windows, which layers have K and V
// What layer i is, without its weights; then the weights of its mixer.
Status loader_describe_heads(const Loader *l, int layer);
Status loader_attention(const Loader *l, int layer);

// ---- RoPE (load/rope.c) ----
Status loader_rope(const Loader *l);               // the model's tables
int loader_layer_rope(const Loader *l, int layer); // which of them a layer has

// ---- recurrent layers (load/recurrent.c) ----
// Which layers are recurrent, and what they do; the caller frees l->recurrent. Call it before head_count_kv is read.
Status loader_recurrent_shape(Loader *l);
Status loader_recurrent(const Loader *l, int layer); // its weights
bool loader_is_recurrent(const Loader *l, int layer);

// ---- experts (load/experts.c) ----
Status loader_experts_shape(Loader *l); // how many, and their widths; none where the file has none
bool loader_has_experts(const Loader *l, int layer);
Status loader_experts(const Loader *l, int layer);

#endif
