// load/loader.h: internal header of model_load.c and load/*.c, which make a Model from a model file: reading and
// checking keys and tensors.
//
// Errors are QUILL_MODEL; the message names the file, the key or tensor, what was expected and what was found. Key
// names are given without the architecture's prefix.
#ifndef QUILL_LOAD_LOADER_H
#define QUILL_LOAD_LOADER_H

#include "families.h"
#include "model.h"

typedef struct {
    Model *m;
    const Gguf *g;
    const Family *family;
    const char *file;
    int full_every;      // Family.full_every, or what the file says
    int32_t *windowed;   // (n_layers) whether a layer has a window; NULL: decided by full_every
    uint8_t *recurrent;  // (n_layers) whether a layer is recurrent; NULL: no layer is
    uint8_t *feeds_only; // (n_layers) whether a layer has only a feed-forward (Family.parts_apart); NULL: no layer has
    int *source;         // (n_layers) the layer whose K and V a layer uses
    float embedding, branches, logits; // factors of the embedding, of what each sublayer adds to x, and of logits
    bool head; // loads the prediction head (load/head.c): its layer counts as the last one, others are skipped
    int *kv_heads, *ffn; // (n_layers) number of KV heads; width of the feed-forward if it has no experts
} Loader;

// ---- keys (load/read.c) ----
Status loader_int(const Loader *l, const char *suffix, int low, int high, bool required, int fallback, int *out);
// Reads a key that has one number for all layers or a list. *out: (n_layers), which the caller frees.
Status loader_layer_ints(const Loader *l, const char *suffix, int low, int high, bool required, int fallback,
                         int **out);
Status loader_each_layer(const Loader *l, const GgufValue *v); // QUILL_MODEL: not as many elements as layers
Status loader_float(const Loader *l, const char *suffix, bool required, float fallback, float *out); // a number above 0
Status loader_scale(const Loader *l, const char *suffix, float fallback, float *out); // 0 also means the fallback
Status loader_cap(const Loader *l, const char *suffix, float fallback, float *out);   // 0: no cap
int loader_window(const Loader *l, int layer); // the number of slots that a row of that layer sees; 0: all

// ---- tensors (load/read.c) ----
const GgufTensor *loader_tensor(const Loader *l, const char *name); // marks it as used; NULL: there is none
float *loader_own_floats(Model *m, size_t n);                       // allocates floats that model_free frees
Status loader_matrix(const Loader *l, Tensor *out, const char *name, int n_out, int n_in);
// A vector in f32. If the file stores f32, *out points into the file, otherwise to a converted copy that the model
// owns.
Status loader_vector(const Loader *l, const float **out, const char *name, int n, bool required);
bool loader_layer_has(const Loader *l, int layer, const char *part);
// A layer's matrix with its bias, if it has one. loader_layer_stack: n matrices stacked in one tensor, biases likewise.
Status loader_layer_matrix(const Loader *l, int layer, const char *part, Tensor *out, int n_out, int n_in);
Status loader_layer_stack(const Loader *l, int layer, const char *part, Tensor *out, int n, int n_out, int n_in);
Status loader_layer_vector(const Loader *l, int layer, const char *part, const float **out, int n, bool required);
// The same for a tensor whose name does not end in .weight.
Status loader_layer_named(const Loader *l, int layer, const char *part, const float **out, int n, bool required);
// A required tensor of (n, n_each) elements in f32; `part` includes its ending.
Status loader_layer_table(const Loader *l, int layer, const char *part, const float **out, int n, int n_each);

// One of several matrices with the same input that the file stores as one tensor, their rows one after another.
typedef struct {
    Tensor *to;
    int n_out;
} FusedPart;
Status loader_layer_fused(const Loader *l, int layer, const char *part, const FusedPart *parts, int n_parts, int n_in);

// ---- attention (load/attention.c) ----
Status loader_attention_shape(Loader *l);                 // sets heads, windows, and which layers have K and V
Status loader_describe_heads(const Loader *l, int layer); // sets the hyper-parameters of a layer's attention
Status loader_attention(const Loader *l, int layer);      // loads its weights

// ---- RoPE (load/rope.c) ----
Status loader_rope(const Loader *l);               // sets the model's tables
int loader_layer_rope(const Loader *l, int layer); // the index of a layer's table

// ---- feed-forwards (load/xielu.c) ----
Status loader_xielu(const Loader *l, int layer); // sets LayerKind.xielu

// ---- recurrent layers (load/recurrent.c) ----
// Sets l->recurrent and l->feeds_only, which the caller frees, and ModelConfig.rec. Call it before head_count_kv is
// read.
Status loader_recurrent_shape(Loader *l);
Status loader_recurrent(const Loader *l, int layer); // loads the weights of a recurrent layer
bool loader_is_recurrent(const Loader *l, int layer);
bool loader_attends(const Loader *l, int layer); // whether a layer has K and V, its own or those of another layer
// Whether a layer has a feed-forward; whether it has a mixer.
bool loader_feeds(const Loader *l, int layer);
bool loader_mixes(const Loader *l, int layer);

// ---- experts (load/experts.c) ----
Status loader_experts_shape(Loader *l); // number and widths of experts; 0 if the file has none
bool loader_has_experts(const Loader *l, int layer);
Status loader_experts(const Loader *l, int layer);

// ---- the prediction head (load/head.c) ----
Status loader_check_head(const Model *m); // QUILL_MODEL: the model's file has none, or its family's is not supported
// Loads what joins the head's inputs and its own ends, if it has any. Keeps its layer, `at`, as the only one.
Status loader_head(const Loader *l, int at);

#endif
