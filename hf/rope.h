// hf/rope.h: reads the RoPE of config.json into GGUF's keys and tensors.
#ifndef QUILL_HF_ROPE_H
#define QUILL_HF_ROPE_H

#include "hf/model.h"

// Called after hf_read_config. Sets base, dimensions and scaling, and adds the tensors of divisors, which the view
// owns. QUILL_MODEL: a type of scaling or a number that is not supported.
Status hf_read_rope(const HfModel *m);

#endif
