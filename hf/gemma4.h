// hf/gemma4.h: reads the keys of config.json that only Gemma 4 has.
#ifndef QUILL_HF_GEMMA4_H
#define QUILL_HF_GEMMA4_H

#include "hf/model.h"

// Sets the keys of the view for two kinds of layers whose heads differ, shared K and V, per-layer embeddings, wider
// feed-forwards and experts. windowed (n_layers): which layers have a window. QUILL_MODEL: a value that is not
// supported.
Status hf_read_gemma4(const HfModel *m, int64_t n_layers, const uint8_t *windowed);

#endif
