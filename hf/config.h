// hf/config.h: reads config.json into GGUF's keys: shape, windows, experts, scales, soft caps. hf/rope.h reads its
// RoPE.
#ifndef QUILL_HF_CONFIG_H
#define QUILL_HF_CONFIG_H

#include "hf/model.h"

// Reads m->file, config.json: finds the family, sets m->config, family, fp8 and head_dim, and the keys of the view. The
// caller frees m->config, also after an error. QUILL_MODEL: a family, setting or value that is not supported.
Status hf_read_config(HfModel *m);
// The key of config.json that has the number of experts; NULL: there is none, or only null. *n: their number; 0: none,
// or no whole number.
const char *hf_config_experts(const HfModel *m, int64_t *n);

#endif
