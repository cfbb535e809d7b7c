// tests/rig/hf_recurrent.h: writes the tensors of recurrent layers of a GGUF model in the form of a Hugging Face
// directory.
#ifndef QUILL_TESTS_HF_RECURRENT_H
#define QUILL_TESTS_HF_RECURRENT_H

#include <jansson.h>

#include "base/base.h"
#include "files/gguf.h"

// The name of a part in GGUF and in a directory.
typedef struct {
    const char *gguf, *hf;
} NamePair;

static const NamePair hf_next_names[] = {
    {"post_attention_norm", "post_attention_layernorm"}, {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},   {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},   {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}};
static const NamePair hf_lfm_names[] = {{"attn_norm", "operator_norm"},
                                        {"ffn_norm", "ffn_norm"},
                                        {"attn_output", "self_attn.out_proj"},
                                        {"attn_q_norm", "self_attn.q_layernorm"},
                                        {"attn_k_norm", "self_attn.k_layernorm"},
                                        {"shortconv.in_proj", "conv.in_proj"},
                                        {"shortconv.out_proj", "conv.out_proj"},
                                        {"ffn_gate", "feed_forward.w1"},
                                        {"ffn_up", "feed_forward.w3"},
                                        {"ffn_down", "feed_forward.w2"},
                                        {"ffn_gate_inp", "feed_forward.gate"},
                                        {"exp_probs_b", "feed_forward.expert_bias"}};

typedef struct {
    char name[64]; // follows the layer's number; empty: the part is in another tensor
    Buf data;      // the caller frees
    size_t dims[3];
    int n_dims;
} HfRecurrent;

// False: the tensor has the same form in GGUF and in directories. `part` is its name in GGUF after the layer's number.
bool hf_recurrent_write(const Gguf *g, const char *arch, int layer, const char *part, const GgufTensor *t,
                        HfRecurrent *out);

// The number of KV heads of the layers with attention.
int hf_recurrent_kv_heads(const Gguf *g, const char *arch, int n_heads);

// Adds the keys of config.json for such layers.
void hf_recurrent_config(const Gguf *g, const char *arch, int n_heads, json_t *config);

#endif
