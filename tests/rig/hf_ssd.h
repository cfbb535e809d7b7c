// tests/rig/hf_ssd.h: writes the tensors of Mamba-2 layers, and those of granitehybrid that differ from other families,
// in the form of a Hugging Face directory.
#ifndef QUILL_TESTS_HF_SSD_H
#define QUILL_TESTS_HF_SSD_H

#include "tests/rig/hf_recurrent.h"

static const NamePair hf_ssd_names[] = {{"ffn_gate_inp", "block_sparse_moe.router.layer"}};

// As hf_recurrent_write and hf_recurrent_config, for these families.
bool hf_ssd_write(const Gguf *g, int layer, const char *part, const GgufTensor *t, HfRecurrent *out);
void hf_ssd_keys(const Gguf *g, const char *arch, json_t *config);

#endif
