// hf/experts.h: collects the experts of a Hugging Face directory into GGUF's stacks (shapes: hf/experts.c).
#ifndef QUILL_HF_EXPERTS_H
#define QUILL_HF_EXPERTS_H

#include "hf/parts.h"
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

Status hf_refuse(const SafeTensor *t, const char *expected); // QUILL_MODEL: another type or shape was expected

// hf/tensors.c
// Reads the number of a layer or an expert at the beginning of a text. Signs and leading zeros are refused: two names
// must not have the same number. *end: what follows the number.
bool hf_number(const char *text, const char **end, long *out);
// Adds a tensor, or with n_stack > 0 a stack, to the view. t: whose data it has, NULL: several tensors'. QUILL_MODEL:
// the view has one of this name.
Status hf_add(const HfModel *m, const SafeTensor *t, const char *name, int type, size_t n_in, size_t n_out,
              size_t n_stack, const void *data);
const void *hf_aligned_data(const HfModel *m, const SafeTensor *t); // t->data, or a copy if it is not aligned
int hf_type_of(const SafeTensor *t);                                // TYPE_ of F32, F16 or BF16; -1: another type
void *hf_view_alloc(Gguf *g, size_t n);                             // memory of the view

#endif
