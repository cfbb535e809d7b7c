// hf/muse.h: what directories of Muse Glimmer have beside the keys and tensors of other families.
#ifndef QUILL_HF_MUSE_H
#define QUILL_HF_MUSE_H

#include "hf/model.h"

bool hf_is_muse(const HfModel *m);
// Checks the layers' RoPE and the eps of norms behind the branches, which GGUF has no keys for. windowed (n_layers): 1
// for layers with a window. QUILL_MODEL: other values than the family's arithmetic has.
Status hf_read_muse(const HfModel *m, int64_t n_layers, const uint8_t *windowed);
// Adds the norms of Q and K. They have no weights in transformers, but a common factor of Q. Called after the tensors
// are read.
Status hf_muse_norms(const HfModel *m);

#endif
