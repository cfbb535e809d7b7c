// families.h: the model families that quill runs, as data: in what each one differs from Llama.
//
// A family is a row of the table in families.c. What a file tells by its tensors and keys is not in the table: biases,
// a tied head, fused matrices, soft caps, the size of windows, the scaling of RoPE, a temperature of scores.
#ifndef QUILL_FAMILIES_H
#define QUILL_FAMILIES_H

#include "base/base.h"
#include "kernels.h"

// Whether a family's layers have experts: none, where a file says so, or all.
typedef enum { EXPERTS_NEVER, EXPERTS_MAYBE, EXPERTS_ALWAYS } FamilyExperts;

typedef struct {
    const char *arch;     // general.architecture of its files, and the prefix of their keys
    bool rope_adjacent;   // RoPE turns pairs (2i, 2i+1); otherwise (i, i + n_rot/2). A file may say otherwise
    bool qk_norm;         // Q and K have norms: their tensors must be there
    QkNorm qk_norm_of;    // what such a norm goes over
    bool norms_behind;    // outputs of the mixer and of the feed-forward have norms before they are added to x
    bool no_norms_before; // the mixer and the feed-forward take x as it is
    Activation act;       // of the feed-forward's gate
    bool embd_sqrt;       // the embedding is multiplied by sqrt(dim)
    bool scales;          // keys may scale the embedding, scores, what is added to x, and logits
    int full_every;       // of so many layers the last one sees everything, the others their window; 0: all are alike
    bool window_optional; // with full_every: a file without a window has no such layers
    bool window_rope;     // layers with a window have a RoPE of their own: rope.freq_base_swa, without scaling
    float window_base;    // its base where the file has no such key; 0: that of the other layers
    int rope_skip_every;  // of so many layers the last one has no RoPE; 0: all have it
    bool rope_switch;     // rope.scaling.finetuned = false says that no layer has RoPE
    FamilyExperts experts;
    Routing routing;      // of experts; a file may say otherwise
    bool sinks;           // every head has a sink
    bool yarn_unrounded;  // YaRN's two dimensions are not rounded to whole ones
    const char *ffn_norm; // what the norm in front of the feed-forward is called; NULL: ffn_norm
    bool v_norm;          // every head of V has a norm without weights
    float score_scale;    // scores are multiplied by this; 0: by 1/sqrt(head_dim), as the next line says
    bool latent;          // K and V are compressed: MIXER_LATENT
    bool dense_beside;    // a layer with experts has an FFN besides, which is added to what they give
    // Layers without attention, which have a state instead: MIXER_DELTA, MIXER_CONV; MIXER_NONE: there are none. Which
    // layers these are, the file says
    Mixer recurrent;
    bool key_heads_grouped; // Recurrence.grouped
    bool gated_attention;   // LayerKind.gated
    const char *norm_out;   // what the norm in front of the head is called; NULL: output_norm
    int n_layers_by_dim; // a model of so many layers scales scores by 1/sqrt(dim / n_heads), others by 1/sqrt(head_dim)
} Family;

const Family *family_find(Str arch); // NULL: there is no such family
const char *families_list(void);     // "llama, qwen2, qwen3, ...", for messages and help; static

// ---- for the tests ----

const Family *families_at(int i); // in the table's order; NULL behind the last one

#endif
