// families.h: the model families that quill supports, as data: how each one differs from Llama.
//
// A family is a row of the table in families.c. Properties that the tensors and keys of a file show are not in the
// table: biases, a tied head, fused matrices, soft caps, the size of windows, the scaling of RoPE, the temperature of
// scores.
#ifndef QUILL_FAMILIES_H
#define QUILL_FAMILIES_H

#include "layer.h"
#include "base/base.h"

// Whether a family's models have experts: never, if the file has keys for them, or always.
typedef enum { EXPERTS_NEVER, EXPERTS_MAYBE, EXPERTS_ALWAYS } FamilyExperts;

typedef struct {
    const char *arch;     // general.architecture of its files, and the prefix of their keys
    bool rope_adjacent;   // RoPE rotates pairs (2i, 2i+1); otherwise (i, i + n_rot/2). The file may override it
    bool qk_norm;         // Q and K have norms: their tensors must be there
    QkNorm qk_norm_of;    // whether these norms are per head or per row, and before RoPE or after it
    bool layer_norms;     // norms of x subtract the mean: LayerNorms without biases
    bool parallel;        // LayerKind.parallel; both parts have the norm attn_norm
    bool norms_behind;    // outputs of the mixer and of the feed-forward are normalised before they are added to x
    bool no_norms_before; // the inputs of the mixer and of the feed-forward are not normalised
    Activation act;       // of the feed-forward's gate
    bool ungated;         // feed-forwards and experts have no gate: Layer.w_up is empty
    bool embd_sqrt;       // the embedding is multiplied by sqrt(dim)
    bool embd_norm;       // the embedding is normalised, without weights
    bool scales;          // keys of the file may scale the embedding, scores, sublayer outputs, and logits
    bool scales_required; // they must: files from before these keys have no scales at all
    bool logit_factor;    // the key logit_scale multiplies the logits; with `scales` it divides them
    float eps_out;        // LayerKind.eps_out
    int full_every;       // every full_every-th layer sees the whole sequence, the others a window; 0: all are alike
    bool window_optional; // with full_every: a file without a window has no layers with a window
    int window;           // the window of a file that lacks the key; 0: the key is required
    float score_cap;      // the soft caps of a file that lacks their keys; 0: none
    float logit_cap;
    bool window_rope;  // layers with a window have a RoPE of their own: rope.freq_base_swa, without scaling
    float window_base; // its base if the file lacks that key; 0: the base of the other layers
    bool chunked;      // the windows are chunks: Heads.chunked; `window` is their size if the file lacks the key
    // of layers without RoPE, which are those without a window: Rope.temperature, with a span of `window` and `ahead`
    float temperature;
    int rope_skip_every;  // every rope_skip_every-th layer has no RoPE; 0: all have RoPE
    bool rope_in_windows; // in a file with a window only the layers that have it have RoPE
    bool rope_switch;     // rope.scaling.finetuned = false in the file means that no layer has RoPE
    FamilyExperts experts;
    Routing routing;      // of experts; the file may override it
    bool shared_expert;   // a layer with experts has a shared one of the same width
    bool sinks;           // every head has a sink
    bool yarn_unrounded;  // YaRN's two dimensions are not rounded to whole ones
    const char *ffn_norm; // tensor name of the norm before the feed-forward; NULL: ffn_norm
    bool turned_norm;     // heads of Q and K are normalised without weights in layers with RoPE, behind it
    bool v_norm;          // every head of V is normalised, without weights
    float score_scale;    // factor of the scores; 0: 1/sqrt(head_dim), but see n_layers_by_dim
    bool latent;          // K and V are compressed: MIXER_LATENT
    bool parts_apart;     // a layer has only attention, only a recurrent mixer, or only a feed-forward, with one norm
    bool dense_beside;    // a layer with experts also has a plain FFN, whose output is added to theirs
    // The mixer of layers without attention: MIXER_DELTA, MIXER_CONV or MIXER_SSD; MIXER_NONE: all layers have
    // attention. The file says which layers these are
    Mixer recurrent;
    bool key_heads_grouped; // Recurrence.grouped
    AttentionGate gate;     // of attention
    bool head;              // model_load_head knows its prediction heads
    const char *norm_out;   // tensor name of the norm before the head; NULL: output_norm
    int n_layers_by_dim;    // models with this number of layers scale scores by 1/sqrt(dim / n_heads)
} Family;

const Family *family_find(Str arch); // NULL: there is no such family
const char *families_list(void);     // "llama, qwen2, qwen3, ...", for messages and help; static
const Family *families_at(int i);    // row i of the table; NULL after the last one

#endif
