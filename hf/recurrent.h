// hf/recurrent.h: converts recurrent layers of a Hugging Face directory to GGUF (hf/recurrent.c has the shapes).
#ifndef QUILL_HF_RECURRENT_H
#define QUILL_HF_RECURRENT_H

#include "hf/model.h"
#include "hf/safetensors.h"

// Reads the keys of config.json about recurrent layers, for families that have them. QUILL_MODEL.
Status hf_read_recurrent(const HfModel *m, int64_t n_layers);
// Takes a tensor that GGUF has in another shape or order; `part` is its name after the layer's number. False: it is
// another. *st: QUILL_MODEL, its shape or type.
bool hf_recurrent_take(const HfModel *m, long layer, const char *part, const SafeTensor *t, Status *st);

#endif
