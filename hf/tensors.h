// hf/tensors.h: the tensors of a directory under GGUF's names. Their data stays in the mapped files, except for norms
// that are stored minus one, FP8 matrices, experts and recurrent layers that GGUF orders in another way, and tensors
// whose elements are not aligned.
#ifndef QUILL_HF_TENSORS_H
#define QUILL_HF_TENSORS_H

#include "hf/model.h"

// Adds all tensors that GGUF has to the view, which then owns the mapped files. Needs the fields that hf_read_config
// sets. QUILL_MODEL: a file or tensor is missing, damaged, or of another type or shape than expected.
Status hf_read_tensors(const HfModel *m);

#endif
