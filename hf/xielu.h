// hf/xielu.h: the parameters of the activation xIELU (Apertus). A directory has them as tensors of one number in each
// layer, GGUF as a list for each parameter.
#ifndef QUILL_HF_XIELU_H
#define QUILL_HF_XIELU_H

#include "hf/model.h"
#include "hf/safetensors.h"

// Sets the lists with what the class of transformers has without these tensors. Does nothing for other activations.
void hf_xielu_begin(const HfModel *m, int64_t n_layers);
// Takes a parameter into its list. part: the tensor's name behind the layer's number. False: it is none.
bool hf_xielu_take(const HfModel *m, long layer, const char *part, const SafeTensor *t, Status *st);
// After all tensors. QUILL_MODEL: one is missing that the class has no value for.
Status hf_xielu_end(const HfModel *m);

#endif
