// hf/sampling.h: reads the sampling of generation_config.json into GGUF's keys, which answer/file_sampling.h checks and
// applies.
#ifndef QUILL_HF_SAMPLING_H
#define QUILL_HF_SAMPLING_H

#include "hf/model.h"

// generation: generation_config.json; NULL: the file does not exist. null is no value. A wrong value is kept, as text
// if it is no number: only an answer needs it, and an option can replace it.
void hf_read_sampling(const HfModel *m, const json_t *generation);

#endif
