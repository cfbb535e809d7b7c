// hf/ssd.h: converts Mamba-2 layers of a Hugging Face directory to GGUF (hf/ssd.c has the shapes).
#ifndef QUILL_HF_SSD_H
#define QUILL_HF_SSD_H

#include "hf/model.h"
#include "hf/safetensors.h"

// Gives keys of config.json in which families with Mamba-2 layers differ from others the usual names and values, before
// other keys are read. Sets m->family, which depends on the layers. QUILL_MODEL.
Status hf_ssd_prepare(HfModel *m);
Status hf_ssd_rope(const HfModel *m); // sets whether layers have RoPE. QUILL_MODEL
// Sets the keys of the layers' shape. recurrent: (n_layers) whether a layer has Mamba-2. QUILL_MODEL.
Status hf_ssd_config(const HfModel *m, int64_t n_layers, const uint8_t *recurrent);
// As hf_recurrent_take, for these layers and for the parts of granitemoehybrid that are stored in one tensor.
bool hf_ssd_take(const HfModel *m, long layer, const char *part, const SafeTensor *t, Status *st);

#endif
