// families.h: the model families that quill runs, as data: in what each one differs from Llama.
//
// A family is a row of the table in families.c. What a file tells by its tensors and keys is not in the table: biases,
// a tied head, soft caps, the size of windows, the scaling of RoPE.
#ifndef QUILL_FAMILIES_H
#define QUILL_FAMILIES_H

#include "base/base.h"
#include "kernels.h"

typedef struct {
    const char *arch;    // general.architecture of its files, and the prefix of their keys
    bool rope_adjacent;  // RoPE turns pairs (2i, 2i+1); otherwise (i, i + n_rot/2)
    bool qk_norm;        // every head of Q and K has a norm: its tensors must be there
    bool norms_behind;   // outputs of the mixer and of the feed-forward have norms before they are added to x
    Activation act;      // of the feed-forward's gate
    bool embd_sqrt;      // the embedding is multiplied by sqrt(dim)
    int full_every;      // of so many layers the last one sees everything, the others their window; 0: all are alike
    bool window_rope;    // layers with a window have a RoPE of their own: rope.freq_base_swa, without scaling
    int n_layers_by_dim; // a model of so many layers scales scores by 1/sqrt(dim / n_heads), others by 1/sqrt(head_dim)
} Family;

const Family *family_find(Str arch); // NULL: there is no such family
const char *families_list(void);     // "llama, qwen2, qwen3, ...", for messages and help; static

// ---- for the tests ----

const Family *families_at(int i); // in the table's order; NULL behind the last one

#endif
