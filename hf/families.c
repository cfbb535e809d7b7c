// hf/families.c: see hf/families.h.
#include "hf/families.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

// The defaults are those of each family's configuration class in transformers, for the keys that hf/ reads.

// Shared by the classes with gated DeltaNet.
#define DELTA_DEFAULTS                                                                                                 \
    "\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 32768, \"head_dim\": 256, "                                  \
    "\"partial_rotary_factor\": 0.25, \"full_attention_interval\": 4, \"linear_conv_kernel_dim\": 4, "                 \
    "\"linear_key_head_dim\": 128, \"linear_value_head_dim\": 128, \"linear_num_key_heads\": 16, "                     \
    "\"linear_num_value_heads\": 32"

// Shared by the DeepSeek classes.
#define DEEPSEEK_DEFAULTS                                                                                              \
    "\"rms_norm_eps\": 1e-6, \"kv_lora_rank\": 512, \"q_lora_rank\": 1536, \"qk_nope_head_dim\": 128, "                \
    "\"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"num_experts_per_tok\": 8"

#define GRANITE_HYBRID_DEFAULTS                                                                                        \
    "\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 2048, \"hidden_size\": 4096, "                               \
    "\"intermediate_size\": 11008, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "                           \
    "\"embedding_multiplier\": 1.0, \"logits_scaling\": 1.0, \"residual_multiplier\": 1.0, "                           \
    "\"attention_multiplier\": 1.0, \"num_local_experts\": 8, \"num_experts_per_tok\": 2, "                            \
    "\"shared_intermediate_size\": 1024"

#define NEMOTRON_DEFAULTS                                                                                              \
    "\"rms_norm_eps\": 1e-5, \"layer_norm_epsilon\": 1e-5, \"max_position_embeddings\": 4096, \"hidden_size\": 4096, " \
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 128, \"intermediate_size\": 21504, "       \
    "\"ssm_state_size\": 128, \"mamba_num_heads\": 128, \"mamba_head_dim\": 64, \"n_groups\": 8, \"conv_kernel\": 4"

// Shared by the Granite classes with experts.
#define GRANITE_MOE_DEFAULTS                                                                                           \
    "\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 2048, \"embedding_multiplier\": 1.0, "                       \
    "\"logits_scaling\": 1.0, \"residual_multiplier\": 1.0, \"attention_multiplier\": 1.0, "                           \
    "\"num_local_experts\": 8, \"num_experts_per_tok\": 2"

// Shared by Qwen2-VL and Qwen2.5-VL.
#define QWEN2_VL_DEFAULTS                                                                                              \
    "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 32768, \"num_key_value_heads\": 8, "                        \
    "\"sliding_window\": 4096, \"max_window_layers\": 80}"

static const HfFamily families[] = {
    {.model_type = "llama",
     .arch = "llama",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .halves = true,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 2048}"},
    {.model_type = "mistral",
     .arch = "llama",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_ALL,
     .halves = true,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 131072, \"num_key_value_heads\": 8, "
                 "\"sliding_window\": 4096}"},
    {.model_type = "qwen2",
     .arch = "qwen2",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_SWITCH,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 32768, \"sliding_window\": 4096, "
                 "\"max_window_layers\": 28}"},
    {.model_type = "qwen3",
     .arch = "qwen3",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_SWITCH,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 32768, \"head_dim\": 128, "
                 "\"sliding_window\": 4096, \"max_window_layers\": 28}"},
    {.model_type = "qwen2_vl_text",
     .arch = "qwen2vl",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_SWITCH,
     .sections = true,
     .defaults = QWEN2_VL_DEFAULTS},
    {.model_type = "qwen2_5_vl_text",
     .arch = "qwen2vl",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_SWITCH,
     .sections = true,
     .defaults = QWEN2_VL_DEFAULTS},
    {.model_type = "qwen3_vl_text",
     .arch = "qwen3vl",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .sections = true,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 128000, \"head_dim\": 128, "
                 "\"rope_theta\": 500000.0}"},
    {.model_type = "seed_oss",
     .arch = "seed_oss",
     .act = "silu",
     .names = HF_NAMES_SEED,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 524288, \"head_dim\": 128, "
                 "\"num_key_value_heads\": 8}"},
    {.model_type = "ernie4_5",
     .arch = "ernie4_5",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 131072, \"head_dim\": 128, "
                 "\"num_key_value_heads\": 2, \"rope_theta\": 500000.0, \"tie_word_embeddings\": true}"},
    {.model_type = "exaone",
     .arch = "exaone",
     .act = "silu",
     .names = HF_NAMES_EXAONE,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 4096, \"intermediate_size\": 14336, "
                 "\"num_key_value_heads\": 8, \"rope_theta\": 500000.0}"},
    {.model_type = "exaone4",
     .arch = "exaone4",
     .act = "silu",
     .names = HF_NAMES_OLMO,
     .window = HF_WINDOW_PATTERN,
     .full_every = 4,
     .rope_in_windows = true,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048, \"num_key_value_heads\": 32, "
                 "\"sliding_window\": 4096}"},
    {.model_type = "hunyuan_v1_dense",
     .arch = "hunyuan-dense",
     .act = "silu",
     .names = HF_NAMES_HUNYUAN,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048}"},
    {.model_type = "apertus",
     .arch = "apertus",
     .act = "xielu",
     .names = HF_NAMES_APERTUS,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 65536, \"hidden_size\": 4096, "
                 "\"intermediate_size\": 14336, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
                 "\"rope_theta\": 12000000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
                 "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                 "\"original_max_position_embeddings\": 8192}}"},
    {.model_type = "arcee",
     .arch = "arcee",
     .act = "relu2",
     .names = HF_NAMES_LLAMA,
     .halves = true,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 4096}"},
    {.model_type = "cohere",
     .arch = "command-r",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .defaults = "{\"layer_norm_eps\": 1e-5, \"max_position_embeddings\": 8192, \"logit_scale\": 0.0625, "
                 "\"rope_theta\": 500000.0, \"tie_word_embeddings\": true}"},
    {.model_type = "cohere2",
     .arch = "cohere2",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_PATTERN,
     .full_every = 4,
     .rope_in_windows = true,
     .defaults = "{\"layer_norm_eps\": 1e-5, \"max_position_embeddings\": 8192, \"logit_scale\": 0.0625, "
                 "\"sliding_window\": 4096, \"tie_word_embeddings\": true}"},
    {.model_type = "gemma",
     .arch = "gemma",
     .act = "gelu_pytorch_tanh",
     .names = HF_NAMES_LLAMA,
     .norm_plus_one = true,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 8192, \"head_dim\": 256, "
                 "\"num_key_value_heads\": 16, \"tie_word_embeddings\": true}"},
    {.model_type = "gemma2",
     .arch = "gemma2",
     .act = "gelu_pytorch_tanh",
     .names = HF_NAMES_GEMMA,
     .window = HF_WINDOW_PATTERN,
     .full_every = 2,
     .norm_plus_one = true,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 8192, \"head_dim\": 256, "
                 "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"hidden_size\": 2304, "
                 "\"intermediate_size\": 9216, \"num_hidden_layers\": 26, \"query_pre_attn_scalar\": 256, "
                 "\"sliding_window\": 4096, \"attn_logit_softcapping\": 50.0, \"final_logit_softcapping\": 30.0, "
                 "\"tie_word_embeddings\": true}"},
    {.model_type = "gemma3_text",
     .arch = "gemma3",
     .act = "gelu_pytorch_tanh",
     .names = HF_NAMES_GEMMA,
     .window = HF_WINDOW_PATTERN,
     .full_every = 6,
     .norm_plus_one = true,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 131072, \"head_dim\": 256, "
                 "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"hidden_size\": 2304, "
                 "\"intermediate_size\": 9216, \"num_hidden_layers\": 26, \"query_pre_attn_scalar\": 256, "
                 "\"sliding_window\": 4096, \"rope_theta\": 1000000.0, \"rope_local_base_freq\": 10000.0, "
                 "\"final_logit_softcapping\": null, \"tie_word_embeddings\": true}"},
    {.model_type = "gemma4_text",
     .arch = "gemma4",
     .act = "gelu_pytorch_tanh",
     .names = HF_NAMES_GEMMA4,
     .window = HF_WINDOW_PATTERN,
     .full_every = 6,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 131072, \"head_dim\": 256, "
                 "\"global_head_dim\": 512, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "
                 "\"hidden_size\": 2304, \"intermediate_size\": 9216, \"num_hidden_layers\": 30, "
                 "\"sliding_window\": 512, \"hidden_size_per_layer_input\": 256, \"num_kv_shared_layers\": 0, "
                 "\"final_logit_softcapping\": null, \"tie_word_embeddings\": true, \"rope_parameters\": {"
                 "\"full_attention\": {\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.25, "
                 "\"rope_theta\": 1000000.0}, \"sliding_attention\": {\"rope_theta\": 10000.0}}}"},
    {.model_type = "phi3",
     .arch = "phi3",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_ALL,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 4096, \"partial_rotary_factor\": 1.0, "
                 "\"original_max_position_embeddings\": 4096}"},
    {.model_type = "granite",
     .arch = "granite",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .halves = true,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 2048, \"embedding_multiplier\": 1.0, "
                 "\"logits_scaling\": 1.0, \"residual_multiplier\": 1.0, \"attention_multiplier\": 1.0}"},
    {.model_type = "minicpm",
     .arch = "minicpm",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .halves = true,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 2048, \"scale_emb\": 1.0, "
                 "\"scale_depth\": 1.0, \"dim_model_base\": 1, \"tie_word_embeddings\": true}"},
    {.model_type = "granitemoehybrid", // without experts and with attention in all layers
     .arch = "granite",
     .act = "silu",
     .names = HF_NAMES_GRANITE_HYBRID,
     .halves = true,
     .defaults = "{" GRANITE_HYBRID_DEFAULTS "}"},
    {.model_type = "granitemoehybrid",
     .arch = "granitehybrid",
     .act = "silu",
     .names = HF_NAMES_GRANITE_HYBRID,
     .halves = true,
     .recurrent = "linear_attention",
     .defaults = "{" GRANITE_HYBRID_DEFAULTS ", \"mamba_n_heads\": 128, \"mamba_n_groups\": 1, "
                 "\"mamba_d_state\": 256, \"mamba_d_head\": \"auto\", \"mamba_d_conv\": 4, \"mamba_expand\": 2}"},
    {.model_type = "smollm3",
     .arch = "smollm3",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_UNROTATED,
     .halves = true,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 32768, \"hidden_size\": 2048, "
                 "\"intermediate_size\": 11008, \"num_hidden_layers\": 36, \"num_attention_heads\": 16, "
                 "\"num_key_value_heads\": 4, \"rope_theta\": 2000000.0, "
                 "\"no_rope_layer_interval\": 4, \"tie_word_embeddings\": true}"},
    {.model_type = "ministral3",
     .arch = "mistral3",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_ALL,
     .halves = true,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 262144, \"head_dim\": 128, "
                 "\"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 34, "
                 "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
                 "\"rope_scaling\": {\"rope_type\": \"yarn\", \"rope_theta\": 1000000.0, \"factor\": 16.0, "
                 "\"original_max_position_embeddings\": 16384, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, "
                 "\"llama_4_scaling_beta\": 0.1}}"},
    {.model_type = "olmo2",
     .arch = "olmo2",
     .act = "silu",
     .names = HF_NAMES_OLMO,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048}"},
    {.model_type = "olmo3",
     .arch = "olmo2",
     .act = "silu",
     .names = HF_NAMES_OLMO,
     .window = HF_WINDOW_PATTERN,
     .full_every = 4,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048, \"sliding_window\": 4096, "
                 "\"rope_theta\": 500000.0}"},
    {.model_type = "glm4",
     .arch = "glm4",
     .act = "silu",
     .names = HF_NAMES_GLM,
     .defaults = "{\"rms_norm_eps\": 1.5625e-7, \"max_position_embeddings\": 131072, \"head_dim\": 128, "
                 "\"num_key_value_heads\": 2, \"partial_rotary_factor\": 0.5}"},
    {.model_type = "mixtral",
     .arch = "llama",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_ALL,
     .halves = true,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 131072, \"num_key_value_heads\": 8, "
                 "\"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"rope_theta\": 1000000.0}"},
    {.model_type = "qwen2_moe",
     .arch = "qwen2moe",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_ODD,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 32768, \"sliding_window\": 4096, "
                 "\"max_window_layers\": 28, \"num_experts\": 60, \"num_experts_per_tok\": 4, "
                 "\"moe_intermediate_size\": 1408, \"shared_expert_intermediate_size\": 5632, "
                 "\"norm_topk_prob\": false}"},
    {.model_type = "qwen3_moe",
     .arch = "qwen3moe",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_SWITCH_ALL,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 32768, \"sliding_window\": 4096, "
                 "\"num_experts\": 128, \"num_experts_per_tok\": 8, "
                 "\"moe_intermediate_size\": 768, \"norm_topk_prob\": false}"},
    {.model_type = "qwen3_vl_moe_text",
     .arch = "qwen3vlmoe",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .turns_experts = true,
     .sections = true,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 128000, \"rope_theta\": 500000.0, "
                 "\"num_experts\": 60, \"num_experts_per_tok\": 4, \"moe_intermediate_size\": 1408}"},
    {.model_type = "deepseek_v2",
     .arch = "deepseek2",
     .act = "silu",
     .names = HF_NAMES_DEEPSEEK,
     .gating = 1,
     .defaults = "{" DEEPSEEK_DEFAULTS ", \"max_position_embeddings\": 2048, "
                 "\"n_routed_experts\": 64, \"n_shared_experts\": 2, \"first_k_dense_replace\": 0, "
                 "\"moe_intermediate_size\": 1407, \"routed_scaling_factor\": 1.0, \"norm_topk_prob\": false, "
                 "\"topk_method\": \"greedy\", \"scoring_func\": \"softmax\"}"},
    {.model_type = "deepseek_v3",
     .arch = "deepseek2",
     .act = "silu",
     .names = HF_NAMES_DEEPSEEK,
     .gating = 2,
     .defaults = "{" DEEPSEEK_DEFAULTS ", \"max_position_embeddings\": 4096, "
                 "\"n_routed_experts\": 256, \"n_shared_experts\": 1, \"first_k_dense_replace\": 3, \"n_group\": 8, "
                 "\"topk_group\": 4, \"moe_intermediate_size\": 2048, "
                 "\"routed_scaling_factor\": 2.5, \"norm_topk_prob\": true, \"scoring_func\": \"sigmoid\"}"},
    {.model_type = "mistral4",
     .arch = "mistral4",
     .act = "silu",
     .names = HF_NAMES_DEEPSEEK,
     .gating = 1,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 1048576, \"hidden_size\": 4096, "
                 "\"intermediate_size\": 12288, \"moe_intermediate_size\": 2048, \"num_hidden_layers\": 36, "
                 "\"num_attention_heads\": 32, \"kv_lora_rank\": 256, \"q_lora_rank\": 1024, "
                 "\"qk_nope_head_dim\": 64, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, "
                 "\"n_routed_experts\": 128, \"num_experts_per_tok\": 4, \"n_shared_experts\": 1, "
                 "\"first_k_dense_replace\": 0, \"n_group\": 1, \"topk_group\": 1, "
                 "\"routed_scaling_factor\": 1.0, \"norm_topk_prob\": true, \"partial_rotary_factor\": null, "
                 "\"rope_scaling\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000.0, \"factor\": 128.0, "
                 "\"original_max_position_embeddings\": 8192, \"beta_fast\": 32.0, \"beta_slow\": 1.0, "
                 "\"mscale\": 1.0, \"mscale_all_dim\": 1.0, \"llama_4_scaling_beta\": 0.1}}"},
    {.model_type = "olmoe",
     .arch = "olmoe",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 4096, \"num_experts\": 64, "
                 "\"num_experts_per_tok\": 8, \"norm_topk_prob\": false, \"clip_qkv\": null}"},
    {.model_type = "granitemoe",
     .arch = "granitemoe",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .halves = true,
     .defaults = "{" GRANITE_MOE_DEFAULTS "}"},
    {.model_type = "granitemoeshared",
     .arch = "granitemoe",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .halves = true,
     .defaults = "{" GRANITE_MOE_DEFAULTS ", \"shared_intermediate_size\": 0}"},
    {.model_type = "ernie4_5_moe",
     .arch = "ernie4_5-moe",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 131072, \"num_key_value_heads\": 4, "
                 "\"moe_num_experts\": 64, \"moe_k\": 6, \"moe_num_shared_experts\": 2, "
                 "\"moe_intermediate_size\": 1536, \"moe_layer_start_index\": 1, \"moe_layer_end_index\": -1, "
                 "\"moe_layer_interval\": 1, \"moe_norm_min\": 1e-12, \"use_bias\": false, "
                 "\"rope_theta\": 500000.0, \"tie_word_embeddings\": true}"},
    {.model_type = "llama4_text",
     .arch = "llama4",
     .act = "silu",
     .names = HF_NAMES_LLAMA4,
     .window = HF_WINDOW_PATTERN,
     .full_every = 4,
     .rope_in_windows = true,
     .turns_experts = true,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 131072, \"hidden_size\": 5120, "
                 "\"intermediate_size\": 8192, \"intermediate_size_mlp\": 16384, \"num_hidden_layers\": 48, "
                 "\"num_attention_heads\": 40, \"num_key_value_heads\": 8, \"head_dim\": 128, "
                 "\"num_local_experts\": 16, \"num_experts_per_tok\": 1, \"interleave_moe_layer_step\": 1, "
                 "\"use_qk_norm\": true, \"no_rope_layer_interval\": 4, \"attention_chunk_size\": 8192, "
                 "\"attn_temperature_tuning\": true, \"floor_scale\": 8192, \"attn_scale\": 0.1, "
                 "\"rope_theta\": 500000.0}"},
    {.model_type = "glm4_moe",
     .arch = "glm4moe",
     .act = "silu",
     .names = HF_NAMES_GLM_MOE,
     .gating = 2,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 131072, \"num_key_value_heads\": 8, "
                 "\"partial_rotary_factor\": 0.5, \"n_routed_experts\": 128, \"num_experts_per_tok\": 8, "
                 "\"n_shared_experts\": 1, \"moe_intermediate_size\": 1408, \"first_k_dense_replace\": 1, "
                 "\"n_group\": 1, \"topk_group\": 1, \"routed_scaling_factor\": 1.0, "
                 "\"norm_topk_prob\": true}"},
    {.model_type = "hy_v3",
     .arch = "hy_v3",
     .act = "silu",
     .names = HF_NAMES_HY,
     .gating = 2,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 131072, \"hidden_size\": 4096, "
                 "\"intermediate_size\": 13312, \"num_hidden_layers\": 80, \"num_attention_heads\": 64, "
                 "\"num_key_value_heads\": 8, \"head_dim\": 128, \"num_experts\": 192, "
                 "\"num_experts_per_tok\": 8, \"num_shared_experts\": 1, \"moe_intermediate_size\": 1536, "
                 "\"router_scaling_factor\": 2.826, \"route_norm\": true, \"first_k_dense_replace\": 1, "
                 "\"rope_theta\": 11158840.0}"},
    {.model_type = "dots1",
     .arch = "dots1",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_BEHIND,
     .gating = 2,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 2048, \"num_key_value_heads\": 32, "
                 "\"sliding_window\": 4096, \"max_window_layers\": 62, \"first_k_dense_replace\": 0, "
                 "\"n_group\": 1, \"topk_group\": 1, \"routed_scaling_factor\": 1.0, "
                 "\"norm_topk_prob\": false}"},
    {.model_type = "mellum",
     .arch = "mellum",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .full_every = 4,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 131072, \"head_dim\": 128, "
                 "\"hidden_size\": 2304, \"intermediate_size\": 7168, \"num_hidden_layers\": 28, "
                 "\"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"sliding_window\": 1024, "
                 "\"num_experts\": 64, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 896, "
                 "\"norm_topk_prob\": true, \"rope_theta\": 500000.0}"},
    {.model_type = "exaone_moe",
     .arch = "exaone-moe",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .window = HF_WINDOW_PATTERN,
     .full_every = 4,
     .rope_in_windows = true,
     .gating = 2,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 2048, \"num_key_value_heads\": 32, "
                 "\"sliding_window\": 4096, \"num_experts\": 64, \"num_experts_per_tok\": 8, "
                 "\"num_shared_experts\": 1, \"moe_intermediate_size\": 1024, \"first_k_dense_replace\": 1, "
                 "\"n_group\": 1, \"topk_group\": 1, \"routed_scaling_factor\": 2.5, \"norm_topk_prob\": true}"},
    {.model_type = "afmoe",
     .arch = "afmoe",
     .act = "silu",
     .names = HF_NAMES_AFMOE,
     .window = HF_WINDOW_PATTERN,
     .full_every = 4,
     .rope_in_windows = true,
     .gating = 2,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 16384, \"hidden_size\": 2048, "
                 "\"intermediate_size\": 6144, \"num_hidden_layers\": 32, \"num_attention_heads\": 16, "
                 "\"head_dim\": 128, \"sliding_window\": 1024, \"num_experts\": 64, "
                 "\"num_experts_per_tok\": 6, \"num_shared_experts\": 2, \"moe_intermediate_size\": 1408, "
                 "\"num_dense_layers\": 1, \"route_scale\": 1.0, \"route_norm\": true, "
                 "\"mup_enabled\": false}"},
    {.model_type = "minimax_m2",
     .arch = "minimax-m2",
     .act = "silu",
     .names = HF_NAMES_LLAMA,
     .gating = 2,
     .defaults = "{\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 196608, \"num_key_value_heads\": 8, "
                 "\"head_dim\": 128, \"num_local_experts\": 256, \"num_experts_per_tok\": 8, "
                 "\"rope_theta\": 5000000.0, \"rotary_dim\": null, \"partial_rotary_factor\": null}"},
    {.model_type = "gpt_oss",
     .arch = "gpt-oss",
     .act = "silu",
     .names = HF_NAMES_OSS,
     .window = HF_WINDOW_PATTERN,
     .full_every = 2,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 131072, \"head_dim\": 64, "
                 "\"num_key_value_heads\": 8, \"num_attention_heads\": 64, \"hidden_size\": 2880, "
                 "\"intermediate_size\": 2880, \"num_hidden_layers\": 36, \"sliding_window\": 128, "
                 "\"num_local_experts\": 128, \"num_experts_per_tok\": 4, \"rope_theta\": 150000.0, "
                 "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 32.0, \"beta_fast\": 32.0, "
                 "\"beta_slow\": 1.0, \"truncate\": false, \"original_max_position_embeddings\": 4096}}"},
    {.model_type = "muse_glimmer_text",
     .arch = "muse-glimmer",
     .act = "silu",
     .names = HF_NAMES_GEMMA,
     .window = HF_WINDOW_FROM_LAST,
     .full_every = 4,
     .halves = true,
     .norm_plus_one = true,
     .last_norm_plain = true,
     .defaults = "{\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 131072, \"head_dim\": 128, "
                 "\"num_attention_heads\": 32, \"num_key_value_heads\": 2, \"hidden_size\": 6656, "
                 "\"intermediate_size\": 19968, \"num_hidden_layers\": 52, \"sliding_window\": 2048, "
                 "\"final_logit_softcapping\": 20.0, \"qk_scale_factor\": 3.87, "
                 "\"output_multiplier\": 0.19611613513818404, \"post_norm_eps\": 1e-8, "
                 "\"tie_word_embeddings\": false}"},
    {.model_type = "qwen3_next",
     .arch = "qwen3next",
     .act = "silu",
     .names = HF_NAMES_NEXT,
     .norm_plus_one = true,
     .recurrent = "linear_attention",
     .defaults = "{" DELTA_DEFAULTS ", \"num_key_value_heads\": 2, "
                 "\"num_experts\": 512, \"num_experts_per_tok\": 10, \"moe_intermediate_size\": 512, "
                 "\"shared_expert_intermediate_size\": 512, \"norm_topk_prob\": true}"},
    {.model_type = "qwen3_5_text",
     .arch = "qwen35",
     .act = "silu",
     .names = HF_NAMES_NEXT,
     .norm_plus_one = true,
     .recurrent = "linear_attention",
     .defaults = "{" DELTA_DEFAULTS ", \"num_key_value_heads\": 4}"},
    {.model_type = "qwen3_5_moe_text",
     .arch = "qwen35moe",
     .act = "silu",
     .names = HF_NAMES_NEXT,
     .norm_plus_one = true,
     .recurrent = "linear_attention",
     .defaults = "{" DELTA_DEFAULTS ", \"num_key_value_heads\": 2, "
                 "\"num_experts\": 256, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 512, "
                 "\"shared_expert_intermediate_size\": 512}"},
    {.model_type = "nemotron_h", // without experts
     .arch = "nemotron_h",
     .act = "relu2",
     .names = HF_NAMES_NEMOTRON,
     .recurrent = "linear_attention",
     .defaults = "{" NEMOTRON_DEFAULTS "}"},
    {.model_type = "nemotron_h",
     .arch = "nemotron_h_moe",
     .act = "relu2",
     .names = HF_NAMES_NEMOTRON,
     .recurrent = "linear_attention",
     .defaults = "{" NEMOTRON_DEFAULTS ", \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, "
                 "\"moe_intermediate_size\": 7688, \"moe_shared_expert_intermediate_size\": 7688, "
                 "\"n_shared_experts\": 1, \"routed_scaling_factor\": 1.0, \"n_group\": 1, \"topk_group\": 1, "
                 "\"norm_topk_prob\": true}"},
    {.model_type = "lfm2",
     .arch = "lfm2",
     .act = "silu",
     .names = HF_NAMES_LFM,
     .recurrent = "conv",
     .defaults = "{\"norm_eps\": 1e-5, \"max_position_embeddings\": 128000, \"hidden_size\": 2560, "
                 "\"intermediate_size\": 12288, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
                 "\"num_key_value_heads\": 8, \"conv_L_cache\": 3, \"block_multiple_of\": 256, "
                 "\"block_ffn_dim_multiplier\": 1.0, \"rope_theta\": 1000000.0, \"tie_word_embeddings\": true}"},
    {.model_type = "lfm2_moe",
     .arch = "lfm2moe",
     .act = "silu",
     .names = HF_NAMES_LFM,
     .gating = 2,
     .recurrent = "conv",
     .defaults = "{\"norm_eps\": 1e-5, \"max_position_embeddings\": 128000, \"hidden_size\": 2048, "
                 "\"intermediate_size\": 7168, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
                 "\"num_key_value_heads\": 8, \"conv_L_cache\": 3, \"num_dense_layers\": 2, \"num_experts\": 32, "
                 "\"num_experts_per_tok\": 4, \"moe_intermediate_size\": 1792, \"routed_scaling_factor\": 1.0, "
                 "\"norm_topk_prob\": true, \"rope_theta\": 1000000.0, \"tie_word_embeddings\": true}"},
};

// Rows of one model_type are adjacent.
static bool is_last(size_t i) {
    return i + 1 == ARRAY_LEN(families) || strcmp(families[i].model_type, families[i + 1].model_type) != 0;
}

const HfFamily *hf_family(const char *model_type) {
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (strcmp(families[i].model_type, model_type) == 0 && is_last(i)) return &families[i];
    return NULL;
}

const HfFamily *hf_family_dense(const HfFamily *f) {
    size_t i = 0;
    while (strcmp(families[i].model_type, f->model_type) != 0) i++;
    return &families[i];
}

const char *hf_family_list(void) {
    static char list[ARRAY_LEN(families) * 24];
    *list = 0;
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (is_last(i)) str_list(list, sizeof list, families[i].model_type);
    return list;
}
