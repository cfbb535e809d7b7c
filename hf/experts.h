// hf/experts.h: collects the experts of a Hugging Face directory into GGUF's stacks (shapes: hf/experts.c).
#ifndef QUILL_HF_EXPERTS_H
#define QUILL_HF_EXPERTS_H

#include "hf/model.h"
#include "hf/safetensors.h"

// A stack that is being filled with the tensors of a layer's experts.
typedef struct {
    long layer;
    int part; // gate, up, down
    int type;
    uint64_t n_out, n_in;
    int64_t n_experts, n_found;
    uint8_t *data; // owned by the view
    bool *seen;    // (n_experts)
} HfStack;

typedef struct {
    HfStack *stacks; // (n)
    int n;
} HfExperts;

// Adds a tensor if `part`, its name after the layer's number, belongs to experts. False: it does not. *st:
// QUILL_MODEL, wrong shape or type.
bool hf_experts_take(HfExperts *x, const HfModel *m, const SafeFiles *files, long layer, const char *part,
                     const SafeTensor *t, Status *st);
Status hf_experts_end(HfExperts *x, const HfModel *m); // adds the stacks to the view. QUILL_MODEL: an expert is missing
void hf_experts_free(HfExperts *x);

#endif
