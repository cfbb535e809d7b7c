// hf/llama4.h: what config.json of Llama 4 has beside the keys of other families.
#ifndef QUILL_HF_LLAMA4_H
#define QUILL_HF_LLAMA4_H

#include "hf/model.h"

bool hf_is_llama4(const HfModel *m);
// Sets the chunks of attention, the temperature of its scores, whether Q and K have norms, the widths of both kinds of
// feed-forward, and which layers have experts. windowed (n_layers): 1 for layers whose attention has chunks.
// QUILL_MODEL: a wrong value, or one without a place in GGUF.
Status hf_read_llama4(const HfModel *m, int64_t n_layers, const uint8_t *windowed);

#endif
