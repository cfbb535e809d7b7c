// hf/config.c: see hf/config.h.
#include "hf/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "hf/gemma4.h"
#include "hf/llama4.h"
#include "hf/muse.h"
#include "hf/recurrent.h"
#include "hf/ssd.h"
#include "hf/xielu.h"

enum { MAX_LAYERS = 1 << 12 };

static bool is_true(const json_t *object, const char *key) { return json_is_true(json_object_get(object, key)); }

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

// ---- the number of experts ------------------------------------------------------------------------------------------

static const char *const expert_keys[] = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"};

const char *hf_config_experts(const HfModel *m, int64_t *n) {
    *n = 0;
    if (m->family->names == HF_NAMES_HUNYUAN) return NULL; // its files have keys of the same class's mixtures
    for (size_t i = 0; i < ARRAY_LEN(expert_keys); i++) {
        const json_t *v = json_object_get(m->config, expert_keys[i]);
        if (!v || json_is_null(v)) continue; // null in dense models of families that may have experts (Gemma 4)
        hf_config_int(m->config, expert_keys[i], n);
        return expert_keys[i];
    }
    return NULL;
}

// Whether the key has the number of experts, and the file has it under one of its names: transformers 5 writes
// num_local_experts for Qwen3-MoE, whose class has a default for num_experts.
static bool has_experts(const HfModel *m, const char *key) {
    int64_t n;
    for (size_t i = 0; i < ARRAY_LEN(expert_keys); i++)
        if (strcmp(key, expert_keys[i]) == 0) return hf_config_experts(m, &n);
    return false;
}

// ---- which family ---------------------------------------------------------------------------------------------------

// Copies values of keys that a family's files call otherwise.
static void take_other_names(HfModel *m) {
    static const struct {
        HfNames names;
        const char *other, *usual;
    } keys[] = {{HF_NAMES_LFM, "tie_embedding", "tie_word_embeddings"},
                {HF_NAMES_EXAONE, "num_layers", "num_hidden_layers"},
                {HF_NAMES_EXAONE, "layer_norm_epsilon", "rms_norm_eps"},
                {HF_NAMES_EXAONE, "activation_function", "hidden_act"}};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        json_t *v = json_object_get(m->config, keys[i].other);
        if (m->family->names == keys[i].names && v && !json_is_null(v)) jsonio_share(m->config, keys[i].usual, v);
    }
}

// Finds the family. The text model of a multimodal model has its own configuration inside, as text_config.
static Status find_family(HfModel *m) {
    json_t *text = json_object_get(m->file, "text_config");
    m->config = json_is_object(text) ? json_copy(text) : json_copy(m->file);
    const char *type = text_of(m->config, "model_type"), *whole = text_of(m->file, "model_type");
    static const char *const seeing[][2] = {{"gemma3", "gemma3_text"},     {"gemma4", "gemma4_text"},
                                            {"llama4", "llama4_text"},     {"muse_glimmer", "muse_glimmer_text"},
                                            {"qwen2_vl", "qwen2_vl_text"}, {"qwen2_5_vl", "qwen2_5_vl_text"},
                                            {"qwen3_vl", "qwen3_vl_text"}, {"qwen3_vl_moe", "qwen3_vl_moe_text"}};
    for (size_t i = 0; i < ARRAY_LEN(seeing); i++)
        if (whole && strcmp(whole, seeing[i][0]) == 0 && (!type || strcmp(type, whole) == 0)) type = seeing[i][1];
    if (!type) type = whole;
    m->family = type ? hf_family(type) : NULL;
    if (!m->family)
        return status_error(QUILL_MODEL,
                            "%s/config.json: model_type: a supported one expected, %.60s found; supported are %s",
                            m->dir, type ? type : "nothing", hf_family_list());
    // The outer key decides. But many classes with images tie the head if one of the two keys is true.
    json_t *tied = json_object_get(m->file, "tie_word_embeddings");
    if (tied && !json_is_null(tied) && !is_true(m->config, "tie_word_embeddings"))
        jsonio_share(m->config, "tie_word_embeddings", tied);
    take_other_names(m);
    json_error_t error;
    json_t *defaults = json_loads(m->family->defaults, 0, &error), *value;
    const char *key;
    bool has_rope = json_is_object(json_object_get(m->config, "rope_parameters")); // the newer name of rope_scaling
    if (!has_rope) json_object_del(m->config, "rope_parameters");                  // null
    json_object_foreach(defaults, key, value) {
        if (json_object_get(m->config, key) || has_experts(m, key)) continue;
        if (!has_rope || strcmp(key, "rope_scaling") != 0) jsonio_share(m->config, key, value);
    }
    json_decref(defaults);
    return OK;
}

// ---- types ----------------------------------------------------------------------------------------------------------

// Keys that are not required, which another type must not turn into their defaults without a word.
static Status check_types(const HfModel *m) {
    static const char *const numeric[] = {"rope_theta",
                                          "rope_local_base_freq",
                                          "partial_rotary_factor",
                                          "original_max_position_embeddings",
                                          "max_window_layers",
                                          "sliding_window_pattern",
                                          "num_kv_shared_layers",
                                          "decoder_sparse_step",
                                          "hidden_size_per_layer_input",
                                          "swiglu_limit",
                                          "swiglu_alpha",
                                          "block_ff_dim",
                                          "block_multiple_of",
                                          "block_ffn_dim_multiplier",
                                          "no_rope_layer_interval",
                                          "rotary_dim",
                                          "moe_layer_interval",
                                          "moe_layer_end_index",
                                          "moe_norm_min"};
    static const char *const boolean[] = {"use_sliding_window",
                                          "norm_topk_prob",
                                          "tie_word_embeddings",
                                          "tie_embedding",
                                          "attention_k_eq_v",
                                          "enable_moe_block",
                                          "conv_bias",
                                          "use_double_wide_mlp",
                                          "rope_interleave",
                                          "block_auto_adjust_ff_dim",
                                          "use_bias"};
    for (size_t i = 0; i < ARRAY_LEN(numeric); i++) {
        const json_t *v = json_object_get(m->config, numeric[i]);
        bool pattern = json_is_string(v) && m->family->rope_in_windows && // EXAONE 4's "LLLG"
                       strcmp(numeric[i], "sliding_window_pattern") == 0;
        if (v && !json_is_null(v) && !json_is_number(v) && !pattern) return hf_config_wrong(m, numeric[i], "a number");
    }
    for (size_t i = 0; i < ARRAY_LEN(boolean); i++) {
        const json_t *v = json_object_get(m->config, boolean[i]);
        if (v && !json_is_null(v) && !json_is_boolean(v)) return hf_config_wrong(m, boolean[i], "true or false");
    }
    return OK;
}

// ---- unsupported settings -------------------------------------------------------------------------------------------

static Status refuse_act(const HfModel *m) {
    bool gemma =
        m->family->names == HF_NAMES_GEMMA || m->family->names == HF_NAMES_GEMMA4; // gemma4's classes ignore hidden_act
    bool nemotron = m->family->names == HF_NAMES_NEMOTRON;
    const char *key = gemma ? "hidden_activation" : nemotron ? "mlp_hidden_act" : "hidden_act";
    const char *act = text_of(m->config, key);
    if (!act || strcmp(act, m->family->act) == 0) return OK;
    if (strcmp(m->family->arch, "gemma") == 0 && strcmp(act, "gelu") == 0) return OK; // means the tanh form there
    return status_error(QUILL_MODEL, "%s/config.json: %s: %s expected, %.60s found", m->dir, key, m->family->act, act);
}

// SmolLM3: refuses models whose layers without RoPE are not every fourth one.
static Status refuse_nope(const HfModel *m) {
    const json_t *list = json_object_get(m->config, "no_rope_layers");
    int64_t every = 0;
    if (!hf_config_int(m->config, "no_rope_layer_interval", &every)) return OK;
    bool same = json_array_size(list) > 0 || every == 4;
    for (size_t i = 0; i < json_array_size(list); i++)
        same = same && (json_number_value(json_array_get(list, i)) == 0) == ((i + 1) % 4 == 0);
    if (same) return OK;
    return status_error(QUILL_MODEL,
                        "%s/config.json: no_rope_layers: every fourth layer without RoPE expected, others "
                        "found",
                        m->dir);
}

// The rows and columns of FP8's blocks: weight_block_size may be absent or null.
static Status read_fp8_block(HfModel *m, const json_t *quantization) {
    const json_t *v = json_object_get(quantization, "weight_block_size");
    if (!v || json_is_null(v)) return OK;
    int rows = hf_config_id(json_array_get(v, 0)), columns = hf_config_id(json_array_get(v, 1));
    m->fp8 = (Fp8Block){(size_t)rows, (size_t)columns};
    if (json_array_size(v) == 2 && rows > 0 && columns > 0) return OK;
    Buf found = {0};
    jsonio_print(v, JSON_ENCODE_ANY | JSON_COMPACT, &found);
    Status st = status_error(QUILL_MODEL,
                             "%s/config.json: quantization_config.weight_block_size: two whole numbers from 1 on "
                             "expected, %.60s found; download config.json again",
                             m->dir, found.data);
    buf_free(&found);
    return st;
}

static Status read_quantization(HfModel *m) {
    const json_t *q = json_object_get(m->file, "quantization_config");
    if (!q) q = json_object_get(m->config, "quantization_config");
    if (!json_is_object(q)) return OK;
    const char *method = text_of(q, "quant_method"), *format = text_of(q, "format");
    if (method && strcmp(method, "mxfp4") == 0 && m->family->names == HF_NAMES_OSS) return OK;
    bool compressed = method && strcmp(method, "compressed-tensors") == 0;
    bool whole = !format || strcmp(format, "float-quantized") == 0 || strcmp(format, "naive-quantized") == 0 ||
                 strcmp(format, "dense") == 0; // a value for each weight
    if (compressed && !whole)
        return status_error(
            QUILL_MODEL,
            "%s/config.json: quantization_config.format: float-quantized expected, %.60s found; take the "
            "original weights, or a GGUF file",
            m->dir, format);
    if (compressed || (method && strcmp(method, "fp8") == 0))
        return read_fp8_block(m, q); // matrices in FP8 are found by their type
    return status_error(
        QUILL_MODEL,
        "%s/config.json: quantization_config.quant_method: fp8 expected, %.60s found; take the original "
        "weights, or a GGUF file",
        m->dir, method ? method : "nothing");
}

static Status refuse_others(HfModel *m) {
    TRY(refuse_act(m));
    TRY(refuse_nope(m));
    TRY(read_quantization(m));
    static const char *const switches[] = {"use_bidirectional_attention", "is_encoder_decoder", "use_bias"};
    for (size_t i = 0; i < ARRAY_LEN(switches); i++)
        if (is_true(m->config, switches[i]))
            return status_error(QUILL_MODEL,
                                "%s/config.json: %s: false expected, true found; such models are not "
                                "supported",
                                m->dir, switches[i]);
    // Gemma 4: with "vision" only images see tokens after them, with "all" every token does
    const char *bidirectional = text_of(m->config, "use_bidirectional_attention");
    if (bidirectional && strcmp(bidirectional, "all") == 0)
        return hf_config_wrong(m, "use_bidirectional_attention", "false or vision");
    if (hf_class_has(m, "mup_enabled") && !is_true(m->config, "mup_enabled")) // the embedding's factor
        return hf_config_wrong(m, "mup_enabled", "true");
    const json_t *clip = json_object_get(m->config, "clip_qkv"); // the limit of elements of Q, K and V
    if (clip && !json_is_null(clip) && hf_class_has(m, "clip_qkv")) return hf_config_wrong(m, "clip_qkv", "null");
    const json_t *layers = json_object_get(m->config, "per_layer_config");
    if (json_object_size(layers) > 0 && m->family->names != HF_NAMES_GEMMA4)
        return hf_config_wrong(m, "per_layer_config", "no key of single layers");
    return OK;
}

// ---- numbers --------------------------------------------------------------------------------------------------------

static const struct {
    const char *name, *suffix;
    bool required;
} counts[] = {
    {"hidden_size", "embedding_length", true},
    {"num_hidden_layers", "block_count", true},
    {"intermediate_size", "feed_forward_length", true},
    {"num_attention_heads", "attention.head_count", true},
    {"num_key_value_heads", "attention.head_count_kv", false},
    {"max_position_embeddings", "context_length", true},
    {"head_dim", "attention.key_length", false},
    {"head_dim", "attention.value_length", false},
    {"vocab_size", "vocab_size", false},
    {"num_experts_per_tok", "expert_used_count", false},
    {"moe_intermediate_size", "expert_feed_forward_length", false},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", false},
    {"n_shared_experts", "expert_shared_count", false},
    {"moe_k", "expert_used_count", false},
    {"moe_num_shared_experts", "expert_shared_count", false},
    {"num_shared_experts", "expert_shared_count", false},
    {"shared_intermediate_size", "expert_shared_feed_forward_length", false},
    {"kv_lora_rank", "attention.kv_lora_rank", false},
    {"q_lora_rank", "attention.q_lora_rank", false},
    {"v_head_dim", "attention.value_length_mla", false},
};

static const struct {
    const char *name, *suffix;
} numbers[] = {
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"norm_eps", "attention.layer_norm_rms_epsilon"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"embedding_multiplier", "embedding_scale"},
    {"residual_multiplier", "residual_scale"},
    {"attention_multiplier", "attention.scale"},
    {"logits_scaling", "logit_scale"},
    {"routed_scaling_factor", "expert_weights_scale"},
    {"output_multiplier", "logit_scale"},
    {"layer_norm_eps", "attention.layer_norm_epsilon"},
    {"logit_scale", "logit_scale"},
    {"route_scale", "expert_weights_scale"},
    {"router_scaling_factor", "expert_weights_scale"},
    {"scale_emb", "embedding_scale"},
};

static Status set_counts(const HfModel *m) {
    char key[96];
    int64_t n_experts;
    bool dense = !hf_config_experts(m, &n_experts);
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        const json_t *v = json_object_get(m->config, counts[i].name);
        if (dense && strncmp(counts[i].suffix, "expert_", 7) == 0) continue;
        // Without a common width: experts have their own (qwen3_next), or hf/recurrent.c computes it (lfm2).
        bool optional = m->family->recurrent && strcmp(counts[i].name, "intermediate_size") == 0;
        if ((!v || json_is_null(v)) && (optional || !counts[i].required)) continue;
        int64_t n, low = strstr(counts[i].name, "shared_") ? 0 : 1; // no shared expert
        if (!hf_config_int(m->config, counts[i].name, &n) || n < low || n > INT32_MAX)
            return hf_config_wrong(m, counts[i].name, low ? "a whole number from 1 on" : "a whole number");
        gguf_set_u32(m->g, hf_key(m, counts[i].suffix, key), (uint32_t)n);
    }
    return OK;
}

// MiniCPM: sets the factors of sublayer outputs and logits.
static Status set_minicpm(const HfModel *m) {
    char key[96];
    double depth, base, n_layers = 0, dim = 0;
    hf_config_number(m->config, "num_hidden_layers", &n_layers);
    hf_config_number(m->config, "hidden_size", &dim);
    if (!hf_config_number(m->config, "scale_depth", &depth) || !(depth > 0))
        return hf_config_wrong(m, "scale_depth", "a positive number");
    if (!hf_config_number(m->config, "dim_model_base", &base) || !(base > 0))
        return hf_config_wrong(m, "dim_model_base", "a positive number");
    gguf_set_f32(m->g, hf_key(m, "residual_scale", key), (float)(depth / sqrt(n_layers)));
    gguf_set_f32(m->g, hf_key(m, "logit_scale", key), (float)(dim / base));
    return OK;
}

static Status set_numbers(const HfModel *m) {
    char key[96];
    double v;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        const json_t *found = json_object_get(m->config, numbers[i].name);
        // A Gemma 2 without a soft cap says so: without the key the family's own cap would apply.
        if (json_is_null(found) && strcmp(m->family->arch, "gemma2") == 0 && strstr(numbers[i].name, "softcapping"))
            gguf_set_f32(m->g, hf_key(m, numbers[i].suffix, key), 0);
        if (!found || json_is_null(found) || !hf_class_has(m, numbers[i].name)) continue;
        if (!hf_config_number(m->config, numbers[i].name, &v) || !(v > 0))
            return hf_config_wrong(m, numbers[i].name, "a positive number");
        gguf_set_f32(m->g, hf_key(m, numbers[i].suffix, key), (float)v);
    }
    if (hf_class_has(m, "scale_depth")) TRY(set_minicpm(m));
    if (!hf_class_has(m, "query_pre_attn_scalar")) return OK;
    if (!hf_config_number(m->config, "query_pre_attn_scalar", &v) || !(v > 0))
        return hf_config_wrong(m, "query_pre_attn_scalar", "a positive number");
    gguf_set_f32(m->g, hf_key(m, "attention.scale", key), (float)(1 / sqrt(v)));
    return OK;
}

// Sets the width of experts, if it has no key of its own, and the width of a shared expert that has the width of
// several ones. Other programs read both.
static Status set_widths(const HfModel *m) {
    char key[96];
    int64_t width = 0, n = 0;
    if (m->family->names == HF_NAMES_OSS || strcmp(m->family->arch, "minimax-m2") == 0) {
        hf_config_int(m->config, "intermediate_size", &width);
        gguf_set_u32(m->g, hf_key(m, "expert_feed_forward_length", key), (uint32_t)width);
    }
    const char *shared = hf_class_has(m, "num_shared_experts") ? "num_shared_experts" : "moe_num_shared_experts";
    if (!hf_config_int(m->config, shared, &n) || n == 0) return OK;
    hf_config_int(m->config, "moe_intermediate_size", &width);
    if (n * width > INT32_MAX) return hf_config_wrong(m, shared, "a smaller number");
    gguf_set_u32(m->g, hf_key(m, "expert_shared_feed_forward_length", key), (uint32_t)(n * width));
    return OK;
}

// Sets the number of experts, and whether the weights of a row's experts are normalised to a sum of one.
static Status set_experts(const HfModel *m) {
    char key[96];
    int64_t n;
    const char *name = hf_config_experts(m, &n);
    if (name && (n < 1 || n > INT32_MAX)) return hf_config_wrong(m, name, "a whole number from 1 on");
    if (name) gguf_set_u32(m->g, hf_key(m, "expert_count", key), (uint32_t)n);
    const json_t *norm = json_object_get(m->config, "norm_topk_prob");
    if (json_is_boolean(norm) && hf_class_has(m, "norm_topk_prob"))
        gguf_set_bool(m->g, hf_key(m, "expert_weights_norm", key), json_is_true(norm));
    if (hf_class_has(m, "route_norm")) { // the same; transformers normalises whatever it says
        if (!is_true(m->config, "route_norm")) return hf_config_wrong(m, "route_norm", "true");
        gguf_set_bool(m->g, hf_key(m, "expert_weights_norm", key), true);
    }
    double limit, alpha, step, least;
    if (hf_class_has(m, "moe_norm_min") && hf_config_number(m->config, "moe_norm_min", &least) && least > 1e-9)
        return hf_config_wrong(m, "moe_norm_min", "at most 1e-9");
    if (hf_config_number(m->config, "swiglu_limit", &limit) && limit != 7)
        return hf_config_wrong(m, "swiglu_limit", "7");
    if (hf_config_number(m->config, "swiglu_alpha", &alpha) && alpha != 1.702)
        return hf_config_wrong(m, "swiglu_alpha", "1.702");
    if (name && json_array_size(json_object_get(m->config, "mlp_only_layers")) > 0)
        return hf_config_wrong(m, "mlp_only_layers", "an empty list, which gives all layers experts,");
    if (name && hf_config_number(m->config, "decoder_sparse_step", &step) && step != 1)
        return hf_config_wrong(m, "decoder_sparse_step", "1, which gives all layers experts,");
    return set_widths(m);
}

// Sets the groups of experts, if a row's experts are chosen from some of them.
static Status set_groups(const HfModel *m) {
    static const char *const names[][2] = {{"n_group", "expert_group_count"},
                                           {"topk_group", "expert_group_used_count"}};
    char key[96];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const json_t *v = json_object_get(m->config, names[i][0]);
        int64_t n;
        if (!v || json_is_null(v)) continue;
        if (!hf_config_int(m->config, names[i][0], &n) || n < 1 || n > INT32_MAX)
            return hf_config_wrong(m, names[i][0], "a whole number from 1 on");
        gguf_set_u32(m->g, hf_key(m, names[i][1], key), (uint32_t)n);
    }
    return OK;
}

// Sets how a row's experts are chosen and weighted. DeepSeek-V2 has no groups unless topk_method says so.
static Status set_choice(const HfModel *m) {
    static const char *const functions[] = {NULL, "softmax", "sigmoid"};
    char key[96];
    int gating = m->family->gating;
    bool v2 = hf_class_has(m, "topk_method"), grouped = hf_class_has(m, "n_group");
    const char *scoring = text_of(m->config, "scoring_func");
    if (gating == 0) return OK;
    if (scoring && strcmp(scoring, functions[gating]) != 0)
        return hf_config_wrong(m, "scoring_func", functions[gating]);
    gguf_set_u32(m->g, hf_key(m, "expert_gating_func", key), (uint32_t)gating);
    int64_t groups = 1; // behind a softmax, only V2's groups are known: as good as their best expert
    if (gating == 1 && !v2 && hf_config_int(m->config, "n_group", &groups) && groups != 1)
        return hf_config_wrong(m, "n_group", "1");
    if (v2) {
        const char *method = text_of(m->config, "topk_method");
        grouped = method && strcmp(method, "group_limited_greedy") == 0;
        if (!grouped && (!method || strcmp(method, "greedy") != 0))
            return hf_config_wrong(m, "topk_method", "greedy or group_limited_greedy");
        // With true, transformers ignores the key, and the model's own code leaves out routed_scaling_factor.
        if (is_true(m->config, "norm_topk_prob")) return hf_config_wrong(m, "norm_topk_prob", "false");
    }
    return grouped ? set_groups(m) : OK;
}

// mlp_layer_types: "dense" for the first layers, "sparse" for the others. Sets the number of the first ones.
static Status set_listed_layers(const HfModel *m, const json_t *types, int64_t n_layers) {
    char key[96];
    int64_t n_dense = 0, i = 0;
    const char *type = NULL;
    for (; i < n_layers; i++) {
        type = json_string_value(json_array_get(types, (size_t)i));
        if (!type || strcmp(type, n_dense == i && strcmp(type, "dense") == 0 ? "dense" : "sparse") != 0) break;
        n_dense += strcmp(type, "dense") == 0;
    }
    gguf_set_u32(m->g, hf_key(m, "leading_dense_block_count", key), (uint32_t)n_dense);
    if (i == n_layers && json_array_size(types) == (size_t)n_layers) return OK;
    return status_error(QUILL_MODEL,
                        "%s/config.json: mlp_layer_types: dense for the first layers and sparse for the others "
                        "expected, %.60s found for layer %d",
                        m->dir, type ? type : "another value", (int)i);
}

// Sets the layers with experts: all from a first one on.
static Status set_expert_layers(const HfModel *m, int64_t n_layers) {
    static const char *const firsts[] = {"first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"};
    static const char *const steps[] = {"moe_layer_freq", "moe_layer_interval"};
    char key[96];
    int64_t n;
    bool some = false;
    for (size_t i = 0; i < ARRAY_LEN(firsts); i++) {
        if (!hf_class_has(m, firsts[i])) continue;
        some = true;
        if (!hf_config_int(m->config, firsts[i], &n) || n < 0 || n > MAX_LAYERS)
            return hf_config_wrong(m, firsts[i], "a whole number from 0 to 4096");
        gguf_set_u32(m->g, hf_key(m, "leading_dense_block_count", key), (uint32_t)n);
    }
    const json_t *types = json_object_get(m->config, "mlp_layer_types");
    bool listed = hf_config_experts(m, &n) && types && !json_is_null(types);
    if (listed) TRY(set_listed_layers(m, types, n_layers));
    for (size_t i = 0; some && i < ARRAY_LEN(steps); i++)
        if (hf_config_int(m->config, steps[i], &n) && n != 1) return hf_config_wrong(m, steps[i], "1");
    if (!hf_class_has(m, "moe_layer_interval")) return OK;
    gguf_set_u32(m->g, hf_key(m, "interleave_moe_layer_step", key), 1);
    if (hf_config_int(m->config, "moe_layer_end_index", &n) && n != -1 && n < n_layers - 1)
        return hf_config_wrong(m, "moe_layer_end_index", "-1, for the last layer,");
    return OK;
}

// DeepSeek: sets the sizes of compressed K and V. Sets *n_rot.
static Status set_deepseek(const HfModel *m, int64_t *n_rot) {
    int64_t plain;
    char key[96];
    if (!hf_config_int(m->config, "qk_nope_head_dim", &plain) || plain < 1 || plain > 1 << 15)
        return hf_config_wrong(m, "qk_nope_head_dim", "a whole number from 1 to 32768");
    if (!hf_config_int(m->config, "qk_rope_head_dim", n_rot) || *n_rot < 2 || *n_rot > 1 << 15)
        return hf_config_wrong(m, "qk_rope_head_dim", "a whole number from 2 to 32768");
    gguf_set_u32(m->g, hf_key(m, "attention.key_length_mla", key), (uint32_t)(plain + *n_rot));
    int64_t rank = 0;
    hf_config_int(m->config, "kv_lora_rank", &rank);
    // GGUF files describe the stored vector as the one head of K and V
    gguf_set_u32(m->g, hf_key(m, "attention.key_length", key), (uint32_t)(rank + *n_rot));
    gguf_set_u32(m->g, hf_key(m, "attention.value_length", key), (uint32_t)rank);
    gguf_set_u32(m->g, hf_key(m, "attention.head_count_kv", key), 1);
    if (json_is_false(json_object_get(m->config, "rope_interleave"))) gguf_set_bool(m->g, "quill.rope.halves", true);
    return OK;
}

// ---- windows --------------------------------------------------------------------------------------------------------

// Whether layer i has a sliding window, if the configuration has no list of layer types.
static bool slides(const HfModel *m, int64_t i, int64_t n_layers) {
    int64_t every = m->family->full_every, limit = 0;
    bool on = is_true(m->config, "use_sliding_window");
    const char *pattern = text_of(m->config, "sliding_window_pattern");
    hf_config_int(m->config, "max_window_layers", &limit);
    switch (m->family->window) {
    case HF_WINDOW_ALL: return true;
    case HF_WINDOW_BEHIND: return i >= limit;
    case HF_WINDOW_SWITCH: return on && i >= limit;
    case HF_WINDOW_SWITCH_ALL: return on;
    case HF_WINDOW_ODD: return on && i < limit && i % 2 == 0;
    case HF_WINDOW_UNROTATED: return on && (i + 1) % 4 == 0;
    case HF_WINDOW_PATTERN:
        if (pattern && *pattern) return pattern[(size_t)i % strlen(pattern)] == 'L'; // "LLLG": L local, G global
        if (!hf_config_int(m->config, "sliding_window_pattern", &every) &&
            !hf_config_int(m->config, "_sliding_window_pattern", &every))
            hf_config_int(m->config, "global_attn_every_n_layers", &every);
        return every < 1 || (i + 1) % every != 0;
    case HF_WINDOW_FROM_LAST: return (n_layers - 1 - i) % every != 0;
    case HF_WINDOW_NONE: break;
    }
    return false;
}

static Status read_layer_types(const HfModel *m, int64_t n_layers, uint8_t *windowed) {
    const json_t *types = json_object_get(m->config, "layer_types");
    const char *narrow = hf_is_llama4(m) ? "chunked_attention" : "sliding_attention";
    bool listed = json_is_array(types);
    if (listed && json_array_size(types) != (size_t)n_layers)
        return status_error(QUILL_MODEL,
                            "%s/config.json: layer_types: one for each of the %d layers expected, %zu found", m->dir,
                            (int)n_layers, json_array_size(types));
    for (int64_t i = 0; i < n_layers; i++) {
        const char *type = listed ? json_string_value(json_array_get(types, (size_t)i)) : NULL;
        bool window = type && strcmp(type, narrow) == 0;
        bool recurrent = type && m->family->recurrent && strcmp(type, m->family->recurrent) == 0;
        recurrent = recurrent || m->family->names == HF_NAMES_NEMOTRON; // hf/ssd.c checks these types
        if (listed && !window && !recurrent && (!type || strcmp(type, "full_attention") != 0))
            return status_error(QUILL_MODEL, "%s/config.json: layer_types: full_attention or %s expected, %.60s found",
                                m->dir, narrow, type ? type : "another value");
        windowed[i] = listed ? window : slides(m, i, n_layers);
    }
    if (m->family->names == HF_NAMES_GEMMA4) windowed[n_layers - 1] = false; // whatever the list says, as transformers
    return OK;
}

// Sets the sliding window and the layers that have it. In families with windows every GGUF file has the key.
static Status set_sliding(const HfModel *m, int64_t n_layers, const uint8_t *windowed) {
    char key[96];
    int64_t window = 0;
    const json_t *size = json_object_get(m->config, "sliding_window");
    bool counts = m->family->rope_in_windows || memchr(windowed, 1, (size_t)n_layers);
    bool some = counts && size && !json_is_null(size);
    // A Cohere 2 without a window would have no RoPE at all; an EXAONE 4 has it in all layers then.
    if (strcmp(m->family->arch, "cohere2") == 0) some = true;
    if (some && (!hf_config_int(m->config, "sliding_window", &window) || window < 1 || window > INT32_MAX))
        return hf_config_wrong(m, "sliding_window", "a whole number from 1 on");
    if (!some && m->family->full_every == 0) return OK;
    gguf_set_u32(m->g, hf_key(m, "attention.sliding_window", key), (uint32_t)window);
    hf_set_flags(m, "attention.sliding_window_pattern", windowed, n_layers);
    return OK;
}

static Status set_windows(const HfModel *m, int64_t n_layers) {
    uint8_t *windowed = mem_alloc((size_t)n_layers);
    Status st = read_layer_types(m, n_layers, windowed);
    if (!st.code) st = (hf_is_llama4(m) ? hf_read_llama4 : set_sliding)(m, n_layers, windowed);
    if (!st.code && hf_is_muse(m)) st = hf_read_muse(m, n_layers, windowed);
    if (!st.code && m->family->names == HF_NAMES_GEMMA4) st = hf_read_gemma4(m, n_layers, windowed);
    free(windowed);
    return st;
}

// ---- everything together --------------------------------------------------------------------------------------------

Status hf_read_config(HfModel *m) {
    TRY(find_family(m));
    TRY(hf_ssd_prepare(m));
    TRY(check_types(m));
    TRY(refuse_others(m));
    gguf_set_str(m->g, "general.architecture", m->family->arch);
    TRY(set_counts(m));
    TRY(set_numbers(m));
    TRY(set_experts(m));
    int64_t n_layers = 0, dim = 0, n_heads = 1, head_dim;
    hf_config_int(m->config, "num_hidden_layers", &n_layers);
    hf_config_int(m->config, "hidden_size", &dim);
    hf_config_int(m->config, "num_attention_heads", &n_heads);
    if (n_layers > MAX_LAYERS) return hf_config_wrong(m, "num_hidden_layers", "at most 4096");
    TRY(set_choice(m));
    TRY(set_expert_layers(m, n_layers));
    TRY(set_windows(m, n_layers));
    TRY(hf_read_recurrent(m, n_layers));
    hf_xielu_begin(m, n_layers);
    bool two = m->family->names == HF_NAMES_GEMMA4 && hf_config_int(m->config, "global_head_dim", &head_dim);
    if (!two && !hf_config_int(m->config, "head_dim", &head_dim)) head_dim = dim / n_heads;
    if (m->family->names == HF_NAMES_DEEPSEEK) TRY(set_deepseek(m, &head_dim)); // elements that RoPE rotates
    if (head_dim < 1 || head_dim > 1 << 16) return hf_config_wrong(m, "head_dim", "a whole number from 1 to 65536");
    if (m->family->halves) gguf_set_bool(m->g, "quill.rope.halves", true);
    m->head_dim = (int)head_dim;
    return OK;
}
