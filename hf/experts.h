// hf/experts.h: experts in a Hugging Face directory, on their way to GGUF's stacks (hf/experts.c has the shapes).
#ifndef QUILL_HF_EXPERTS_H
#define QUILL_HF_EXPERTS_H

#include "hf/parts.h"
#include "hf/safetensors.h"

// The stack that the tensors of a layer's experts are put together in.
typedef struct {
    long layer;
    int part; // gate, up, down
    int type;
    uint64_t n_out, n_in;
    int64_t n_experts, n_found;
    uint8_t *data; // the view's
} HfStack;

typedef struct {
    HfStack *stacks; // (n)
    int n;
} HfExperts;

// Takes a tensor if its name behind the layer's number (`part`) is one of experts. False: it is another. *st:
// QUILL_MODEL, its shape or type.
bool hf_experts_take(HfExperts *x, const HfModel *m, const SafeFiles *files, long layer, const char *part,
                     const SafeTensor *t, Status *st);
Status hf_experts_end(HfExperts *x, const HfModel *m); // adds what was put together. QUILL_MODEL: an expert is missing
void hf_experts_free(HfExperts *x);

// hf/tensors.c
int hf_type_of(const SafeTensor *t);    // F32, F16, BF16; -1: another
void *hf_view_alloc(Gguf *g, size_t n); // memory of the view

#endif
