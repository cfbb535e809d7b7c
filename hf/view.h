// hf/view.h: adds tensors of safetensors files to the view, for the files that convert them (hf/tensors.c,
// hf/experts.c, hf/recurrent.c).
#ifndef QUILL_HF_VIEW_H
#define QUILL_HF_VIEW_H

#include "hf/model.h"
#include "hf/safetensors.h"

// Reads the number of a layer or an expert at the beginning of a text. Signs and leading zeros are refused: two names
// must not have the same number. *end: what follows the number.
bool hf_number(const char *text, const char **end, long *out);
int hf_type_of(const SafeTensor *t); // TYPE_ of F32, F16 or BF16; -1: another type
// The tensor's data at an address that is a multiple of its elements' size: t->data, or a copy that the view owns.
const void *hf_aligned_data(const HfModel *m, const SafeTensor *t);
void *hf_view_alloc(Gguf *g, size_t n); // n bytes, freed with the view
// Adds a matrix (n_out, n_in), a vector (n_out 0), or with n_stack > 0 a stack of matrices. `data` must live as long as
// the view: it is in a mapped file, or from hf_view_alloc. t: the tensor that it comes from, NULL: several.
// QUILL_MODEL: the view has a tensor of this name.
Status hf_view_add(const HfModel *m, const SafeTensor *t, const char *name, int type, size_t n_in, size_t n_out,
                   size_t n_stack, const void *data);
// Adds the filters (channels, 1, taps) of a convolution over each channel as (channels, taps). QUILL_MODEL.
Status hf_take_taps(const HfModel *m, const char *name, const SafeTensor *t);
Status hf_check_vector(const SafeTensor *t); // QUILL_MODEL: one dimension of F32, F16 or BF16 was expected
Status hf_refuse(const SafeTensor *t, const char *expected); // QUILL_MODEL: another type or shape was expected

#endif
