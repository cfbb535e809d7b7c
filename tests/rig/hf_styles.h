// tests/rig/hf_styles.h: how directories of each family name their tensors, for tests/rig/hf_directory.c.
#ifndef QUILL_TESTS_HF_STYLES_H
#define QUILL_TESTS_HF_STYLES_H

#include <string.h>

#include "tests/rig/hf_directory_parts.h"
#include "tests/rig/hf_ssd.h"

// The parts of a shared expert in most families.
#define SHARED_EXPERTS                                                                                                 \
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"}, {"ffn_up_shexp", "mlp.shared_experts.up_proj"}, {              \
        "ffn_down_shexp", "mlp.shared_experts.down_proj"                                                               \
    }
static const NamePair usual[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_qkv", "self_attn.qkv_proj"},  {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"}, {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},           {"ffn_down", "mlp.down_proj"},       {"ffn_norm", "post_attention_layernorm"},
    {"attn_sinks", "self_attn.sinks"}};
static const NamePair gemma[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                                 {"post_attention_norm", "post_attention_layernorm"},
                                 {"post_ffw_norm", "post_feedforward_layernorm"}};
static const NamePair glm[] = {{"post_attention_norm", "post_self_attn_layernorm"},
                               {"post_ffw_norm", "post_mlp_layernorm"},
                               {"ffn_up", "mlp.gate_up_proj"}};
static const NamePair phi[] = {{"ffn_up", "mlp.gate_up_proj"}};
static const NamePair qwen_moe[] = {{"ffn_gate_inp", "mlp.gate"},
                                    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                                    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}};
static const NamePair apertus[] = {{"attn_norm", "attention_layernorm"}, {"ffn_norm", "feedforward_layernorm"}};
static const NamePair llama4[] = {{"ffn_gate", "feed_forward.gate_proj"},
                                  {"ffn_up", "feed_forward.up_proj"},
                                  {"ffn_down", "feed_forward.down_proj"},
                                  {"ffn_gate_inp", "feed_forward.router"},
                                  {"ffn_gate_shexp", "feed_forward.shared_expert.gate_proj"},
                                  {"ffn_up_shexp", "feed_forward.shared_expert.up_proj"},
                                  {"ffn_down_shexp", "feed_forward.shared_expert.down_proj"}};
static const NamePair mixtral[] = {{"ffn_gate_inp", "block_sparse_moe.gate"},
                                   {"exp_probs_b", "block_sparse_moe.e_score_correction_bias"}};
static const NamePair glm_moe[] = {{"ffn_gate_inp", "mlp.gate"},
                                   SHARED_EXPERTS,
                                   {"post_attention_norm", "post_attention_layernorm"},
                                   {"exp_probs_b", "mlp.gate.e_score_correction_bias"}};
static const NamePair ernie[] = {
    {"ffn_gate_inp", "mlp.gate"}, SHARED_EXPERTS, {"exp_probs_b", "mlp.moe_statics.e_score_correction_bias"}};
static const NamePair granite_moe[] = {{"ffn_gate_inp", "block_sparse_moe.router.layer"},
                                       {"ffn_down_shexp", "shared_mlp.output_linear"}};
static const NamePair deepseek[] = {{"attn_q_a", "self_attn.q_a_proj"},
                                    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                                    {"attn_q_b", "self_attn.q_b_proj"},
                                    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                                    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                                    {"ffn_gate_inp", "mlp.gate"},
                                    SHARED_EXPERTS,
                                    {"exp_probs_b", "mlp.gate.e_score_correction_bias"}};
static const NamePair muse[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                                {"post_attention_norm", "post_attention_layernorm"},
                                {"post_ffw_norm", "post_feedforward_layernorm"},
                                {"attn_gate", "self_attn.gate_proj"}};
static const NamePair gemma4[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                                  {"post_attention_norm", "post_attention_layernorm"},
                                  {"post_ffw_norm", "post_feedforward_layernorm"},
                                  {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
                                  {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
                                  {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
                                  {"inp_gate", "per_layer_input_gate"},
                                  {"proj", "per_layer_projection"},
                                  {"post_norm", "post_per_layer_input_norm"}};
static const NamePair seed[] = {{"post_attention_norm", "post_attention_layernorm"}};
static const NamePair hunyuan[] = {{"attn_q_norm", "self_attn.query_layernorm"},
                                   {"attn_k_norm", "self_attn.key_layernorm"}};
static const NamePair afmoe[] = {{"post_attention_norm", "post_attention_layernorm"},
                                 {"ffn_norm", "pre_mlp_layernorm"},
                                 {"post_ffw_norm", "post_mlp_layernorm"},
                                 {"attn_gate", "self_attn.gate_proj"},
                                 {"ffn_gate_inp", "mlp.router.gate"},
                                 SHARED_EXPERTS,
                                 {"exp_probs_b", "mlp.expert_bias"}};
static const NamePair hy[] = {{"ffn_gate_inp", "mlp.router.gate"},
                              {"ffn_gate_shexp", "mlp.shared_mlp.gate_proj"},
                              {"ffn_up_shexp", "mlp.shared_mlp.up_proj"},
                              {"ffn_down_shexp", "mlp.shared_mlp.down_proj"},
                              {"exp_probs_b", "mlp.expert_bias"}};
static const NamePair exaone[] = {{"token_embd.weight", "transformer.wte.weight"},
                                  {"output_norm.weight", "transformer.ln_f.weight"},
                                  {"attn_norm", "ln_1"},
                                  {"ffn_norm", "ln_2"},
                                  {"attn_q", "attn.attention.q_proj"},
                                  {"attn_k", "attn.attention.k_proj"},
                                  {"attn_v", "attn.attention.v_proj"},
                                  {"attn_output", "attn.attention.out_proj"},
                                  {"ffn_gate", "mlp.c_fc_0"},
                                  {"ffn_up", "mlp.c_fc_1"},
                                  {"ffn_down", "mlp.c_proj"}};
static const NamePair exaone_moe[] = {
    {"ffn_gate_inp", "mlp.gate"}, SHARED_EXPERTS, {"exp_probs_b", "mlp.e_score_correction_bias"}};
static const NamePair oss[] = {{"ffn_gate_inp", "mlp.router"}, {"post_attention_norm", "post_attention_layernorm"}};

// The differences of a family in a directory.
typedef struct {
    const char *arch, *model_type;
    bool permuted, norm_minus_one, last_norm_plain; // norm_minus_one: not the last norm if last_norm_plain
    bool no_qk_norms;                               // norms of Q and K are not tensors
    const NamePair *names;                          // searched before the usual names
    int n_names;
    const char *experts; // the part that has experts, whose matrices are w1, w3 and w2; NULL: mlp, with other names
    const char *layers;  // what names of layers begin with; NULL: model.layers.
} Style;

static const Style styles[] = {
    {.arch = "llama", .model_type = "llama", .permuted = true},
    {.arch = "qwen2", .model_type = "qwen2"},
    {.arch = "qwen3", .model_type = "qwen3"},
    {.arch = "qwen2vl", .model_type = "qwen2_vl_text"},
    {.arch = "qwen3vl", .model_type = "qwen3_vl_text"},
    {.arch = "seed_oss", .model_type = "seed_oss", .names = seed, .n_names = 1},
    {.arch = "ernie4_5", .model_type = "ernie4_5"},
    {.arch = "minicpm", .model_type = "minicpm", .permuted = true},
    {.arch = "exaone",
     .model_type = "exaone",
     .names = exaone,
     .n_names = ARRAY_LEN(exaone),
     .layers = "transformer.h."},
    {.arch = "exaone4", .model_type = "exaone4", .names = gemma, .n_names = 3},
    {.arch = "hunyuan-dense", .model_type = "hunyuan_v1_dense", .names = hunyuan, .n_names = 2},
    {.arch = "apertus", .model_type = "apertus", .names = apertus, .n_names = 2},
    {.arch = "arcee", .model_type = "arcee", .permuted = true},
    {.arch = "command-r", .model_type = "cohere"},
    {.arch = "cohere2", .model_type = "cohere2"},
    {.arch = "gemma", .model_type = "gemma", .norm_minus_one = true},
    {.arch = "gemma2", .model_type = "gemma2", .norm_minus_one = true, .names = gemma, .n_names = 3},
    {.arch = "gemma3", .model_type = "gemma3_text", .norm_minus_one = true, .names = gemma, .n_names = 3},
    {.arch = "phi3", .model_type = "phi3", .names = phi, .n_names = 1},
    {.arch = "granite", .model_type = "granite", .permuted = true},
    {.arch = "granitehybrid", .model_type = "granitemoehybrid", .permuted = true, .names = hf_ssd_names, .n_names = 1},
    {.arch = "smollm3", .model_type = "smollm3", .permuted = true},
    {.arch = "mistral3", .model_type = "ministral3", .permuted = true},
    {.arch = "olmo2", .model_type = "olmo2", .names = gemma, .n_names = 3},
    {.arch = "glm4", .model_type = "glm4", .names = glm, .n_names = 3},
    {.arch = "qwen2moe", .model_type = "qwen2_moe", .names = qwen_moe, .n_names = 5},
    {.arch = "qwen3moe", .model_type = "qwen3_moe", .names = qwen_moe, .n_names = 5},
    {.arch = "qwen3vlmoe", .model_type = "qwen3_vl_moe_text", .names = qwen_moe, .n_names = 5},
    {.arch = "gpt-oss", .model_type = "gpt_oss", .names = oss, .n_names = 2},
    {.arch = "gemma4", .model_type = "gemma4_text", .names = gemma4, .n_names = ARRAY_LEN(gemma4)},
    {.arch = "mistral4", .model_type = "mistral4", .names = deepseek, .n_names = ARRAY_LEN(deepseek)},
    {.arch = "deepseek2", .model_type = "deepseek_v3", .names = deepseek, .n_names = ARRAY_LEN(deepseek)},
    {.arch = "qwen3next", .model_type = "qwen3_next", .norm_minus_one = true, .names = hf_next_names, .n_names = 6},
    {.arch = "qwen35", .model_type = "qwen3_5_text", .norm_minus_one = true, .names = hf_next_names, .n_names = 6},
    {.arch = "qwen35moe",
     .model_type = "qwen3_5_moe_text",
     .norm_minus_one = true,
     .names = hf_next_names,
     .n_names = 6},
    {.arch = "muse-glimmer",
     .model_type = "muse_glimmer_text",
     .permuted = true,
     .norm_minus_one = true,
     .last_norm_plain = true,
     .no_qk_norms = true,
     .names = muse,
     .n_names = 4},
    {.arch = "nemotron_h", .model_type = "nemotron_h", .names = hf_nemotron_names, .n_names = 13},
    {.arch = "nemotron_h_moe", .model_type = "nemotron_h", .names = hf_nemotron_names, .n_names = 13},
    {.arch = "lfm2", .model_type = "lfm2", .names = hf_lfm_names, .n_names = ARRAY_LEN(hf_lfm_names)},
    {.arch = "lfm2moe",
     .model_type = "lfm2_moe",
     .names = hf_lfm_names,
     .n_names = ARRAY_LEN(hf_lfm_names),
     .experts = "feed_forward"},
    {.arch = "olmoe", .model_type = "olmoe", .names = qwen_moe, .n_names = 5},
    {.arch = "granitemoe", .model_type = "granitemoe", .permuted = true, .names = granite_moe, .n_names = 2},
    {.arch = "ernie4_5-moe", .model_type = "ernie4_5_moe", .names = ernie, .n_names = ARRAY_LEN(ernie)},
    {.arch = "glm4moe", .model_type = "glm4_moe", .names = glm_moe, .n_names = ARRAY_LEN(glm_moe)},
    {.arch = "hy_v3", .model_type = "hy_v3", .names = hy, .n_names = ARRAY_LEN(hy)},
    {.arch = "dots1", .model_type = "dots1", .names = glm_moe, .n_names = ARRAY_LEN(glm_moe)},
    {.arch = "mellum", .model_type = "mellum", .names = qwen_moe, .n_names = 5},
    {.arch = "exaone-moe", .model_type = "exaone_moe", .names = exaone_moe, .n_names = ARRAY_LEN(exaone_moe)},
    {.arch = "afmoe", .model_type = "afmoe", .names = afmoe, .n_names = ARRAY_LEN(afmoe)},
    {.arch = "llama4",
     .model_type = "llama4_text",
     .names = llama4,
     .n_names = ARRAY_LEN(llama4),
     .experts = "feed_forward"},
    {.arch = "minimax-m2", .model_type = "minimax_m2", .names = mixtral, .n_names = 2, .experts = "block_sparse_moe"},
    {.arch = "mixtral",
     .model_type = "mixtral",
     .permuted = true,
     .names = mixtral,
     .n_names = 2,
     .experts = "block_sparse_moe"},
};

static const Style *style_of(const char *arch) {
    for (size_t i = 0; i < ARRAY_LEN(styles); i++)
        if (strcmp(styles[i].arch, arch) == 0) return &styles[i];
    hf_directory_impossible("a family that directories have expected", arch);
}

static const char *find_name(const NamePair *names, int n, const char *part) {
    for (int i = 0; i < n; i++)
        if (strcmp(names[i].gguf, part) == 0) return names[i].hf;
    return NULL;
}

#endif
