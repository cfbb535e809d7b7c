// tests/rig/hf_recurrent.h: tensors of recurrent layers of a GGUF model as a Hugging Face directory has them.
#ifndef QUILL_TESTS_HF_RECURRENT_H
#define QUILL_TESTS_HF_RECURRENT_H

#include "base/base.h"
#include "files/gguf.h"

typedef struct {
    char name[64]; // behind the layer's number; empty: another tensor has it
    Buf data;      // the caller frees
    size_t dims[3];
    int n_dims;
} HfRecurrent;

// False: the tensor is none of those that a directory has in another shape or order. `part` is its name in GGUF behind
// the layer's number.
bool hf_recurrent_write(const Gguf *g, const char *arch, int layer, const char *part, const GgufTensor *t,
                        HfRecurrent *out);

#endif
