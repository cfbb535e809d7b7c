// tests/rig/hf_ssd.h: writes the tensors of Mamba-2 layers, and others of granitehybrid and nemotron_h that have a
// form of their own, in the form of a Hugging Face directory.
#ifndef QUILL_TESTS_HF_SSD_H
#define QUILL_TESTS_HF_SSD_H

#include "tests/rig/hf_recurrent.h"

static const NamePair hf_ssd_names[] = {{"ffn_gate_inp", "block_sparse_moe.router.layer"}};
static const NamePair hf_nemotron_names[] = {{"attn_norm", "norm"},
                                             {"attn_q", "mixer.q_proj"},
                                             {"attn_k", "mixer.k_proj"},
                                             {"attn_v", "mixer.v_proj"},
                                             {"attn_output", "mixer.o_proj"},
                                             {"ffn_up", "mixer.up_proj"},
                                             {"ffn_down", "mixer.down_proj"},
                                             {"ffn_gate_inp", "mixer.gate"},
                                             {"ffn_up_shexp", "mixer.shared_experts.up_proj"},
                                             {"ffn_down_shexp", "mixer.shared_experts.down_proj"},
                                             {"exp_probs_b", "mixer.gate.e_score_correction_bias"},
                                             {"token_embd.weight", "model.embeddings.weight"},
                                             {"output_norm.weight", "model.norm_f.weight"}};

bool hf_ssd_has(const char *arch); // whether a family has such layers
// As hf_recurrent_write and hf_recurrent_config, for these families.
bool hf_ssd_write(const Gguf *g, const char *arch, int layer, const char *part, const GgufTensor *t, HfRecurrent *out);
void hf_ssd_keys(const Gguf *g, const char *arch, json_t *config);

#endif
