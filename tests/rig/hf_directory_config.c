// tests/rig/hf_directory_config.c: config.json of a directory that tests/rig/hf_directory.c writes.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/jsonio.h"
#include "tests/rig/hf_directory_parts.h"
#include "tests/rig/hf_experts.h"
#include "tests/rig/hf_recurrent.h"

static json_t *factors(const Gguf *g, const char *name) {
    const GgufTensor *t = gguf_tensor(g, name);
    json_t *list = json_array();
    for (uint64_t i = 0; t && i < t->dims[0]; i++) jsonio_append(list, json_real((double)((const float *)t->data)[i]));
    return list;
}

static bool is_latent(const HfConfigSource *w) {
    return strcmp(w->arch, "deepseek2") == 0 || strcmp(w->arch, "mistral4") == 0;
}

static json_t *scaling(const HfConfigSource *w, double theta) {
    const Gguf *g = w->g;
    json_t *rope = json_object();
    char key[96];
    Str type;
    snprintf(key, sizeof key, "%s.rope.scaling.type", w->arch);
    gguf_str(g, key, &type, false);
    bool longrope = gguf_tensor(g, "rope_factors_short.weight"), yarn = type.data && str_is(type, "yarn");
    jsonio_put(rope, w->how->v5 ? "rope_type" : "type",
               json_string(longrope    ? "longrope"
                           : yarn      ? "yarn"
                           : type.data ? "linear"
                                       : "default"));
    hf_put_number(rope, "factor", hf_number_of(g, w->arch, "rope.scaling.factor"));
    if (yarn)
        hf_put_number(rope, "original_max_position_embeddings",
                      hf_number_of(g, w->arch, "rope.scaling.original_context_length"));
    if (yarn && strcmp(w->arch, "gpt-oss") == 0) jsonio_put(rope, "truncate", json_false());
    hf_put_number(rope, "beta_fast", hf_number_of(g, w->arch, "rope.scaling.yarn_beta_fast"));
    hf_put_number(rope, "beta_slow", hf_number_of(g, w->arch, "rope.scaling.yarn_beta_slow"));
    hf_put_number(rope, "llama_4_scaling_beta", hf_number_of(g, w->arch, "attention.temperature_scale"));
    bool latent = is_latent(w);
    double all_dim = hf_number_of(g, w->arch, "rope.scaling.yarn_log_multiplier");
    if (latent) all_dim *= 10; // this key has a tenth of the value in such files
    hf_put_number(rope, "mscale_all_dim", all_dim);
    hf_put_number(rope, "mscale", isnan(all_dim) ? NAN : latent ? all_dim : 1);
    if (longrope) {
        hf_put_number(rope, "attention_factor", hf_number_of(g, w->arch, "rope.scaling.attn_factor"));
        jsonio_put(rope, "short_factor", factors(g, "rope_factors_short.weight"));
        jsonio_put(rope, "long_factor", factors(g, "rope_factors_long.weight"));
    }
    if (w->how->v5) hf_put_number(rope, "rope_theta", theta);
    return rope;
}

static void put_rope(const HfConfigSource *w, json_t *config, double head_dim) {
    double theta = hf_number_of(w->g, w->arch, "rope.freq_base"),
           local = hf_number_of(w->g, w->arch, "rope.freq_base_swa");
    double n_rot = hf_number_of(w->g, w->arch, "rope.dimension_count");
    if (isnan(theta)) theta = 10000;
    if (!isnan(n_rot)) jsonio_put(config, "partial_rotary_factor", json_real(n_rot / head_dim));
    if (strcmp(w->arch, "phi3") == 0)
        hf_put_number(config, "original_max_position_embeddings",
                      hf_number_of(w->g, w->arch, "rope.scaling.original_context_length"));
    json_t *rope = scaling(w, theta);
    if (w->how->v5 && !isnan(local)) {
        json_t *sliding = json_pack("{s:s, s:f}", "rope_type", "default", "rope_theta", local);
        jsonio_put(config, "rope_parameters",
                   json_pack("{s:o, s:o}", "full_attention", rope, "sliding_attention", sliding));
    } else if (w->how->v5) jsonio_put(config, "rope_parameters", rope);
    else {
        hf_put_number(config, "rope_theta", theta);
        hf_put_number(config, "rope_local_base_freq", local);
        jsonio_put(config, "rope_scaling", rope);
    }
}

// The keys that only DeepSeek has; the other keys of the shape are written already.
static void put_deepseek(const HfConfigSource *w, json_t *config) {
    static const NamePair keys[] = {{"attention.kv_lora_rank", "kv_lora_rank"},
                                    {"attention.q_lora_rank", "q_lora_rank"},
                                    {"attention.value_length_mla", "v_head_dim"},
                                    {"rope.dimension_count", "qk_rope_head_dim"},
                                    {"expert_count", "n_routed_experts"},
                                    {"expert_group_count", "n_group"},
                                    {"expert_group_used_count", "topk_group"},
                                    {"leading_dense_block_count", "first_k_dense_replace"},
                                    {"expert_weights_scale", "routed_scaling_factor"},
                                    {"feed_forward_length", "intermediate_size"},
                                    {"expert_feed_forward_length", "moe_intermediate_size"}};
    double width = hf_number_of(w->g, w->arch, "expert_feed_forward_length"),
           groups = hf_number_of(w->g, w->arch, "expert_group_count");
    bool norm = false, sigmoid = hf_number_of(w->g, w->arch, "expert_gating_func") == 2;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        double v = hf_number_of(w->g, w->arch, keys[i].gguf);
        if (isnan(v)) jsonio_put(config, keys[i].hf, json_null());
        else hf_put_number(config, keys[i].hf, v);
    }
    if (isnan(groups)) hf_put_number(config, "n_group", 1), hf_put_number(config, "topk_group", 1);
    const GgufTensor *gate = gguf_tensor(w->g, "blk.1.ffn_gate_shexp.weight");
    if (gate) hf_put_number(config, "n_shared_experts", (double)gate->dims[1] / width);
    hf_put_number(config, "qk_nope_head_dim",
                  hf_number_of(w->g, w->arch, "attention.key_length_mla") -
                      hf_number_of(w->g, w->arch, "rope.dimension_count"));
    char key[96];
    snprintf(key, sizeof key, "%s.expert_weights_norm", w->arch);
    gguf_bool(w->g, key, &norm, false);
    jsonio_put(config, "norm_topk_prob", json_boolean(norm));
    jsonio_put(config, "scoring_func", json_string(sigmoid ? "sigmoid" : "softmax"));
    if (!sigmoid && strcmp(w->arch, "deepseek2") == 0) jsonio_put(config, "model_type", json_string("deepseek_v2"));
    if (!isnan(groups)) jsonio_put(config, "topk_method", json_string("group_limited_greedy"));
    jsonio_put(config, "num_key_value_heads", json_integer(w->n_heads));
    json_object_del(config, "head_dim");
    json_object_del(config, "partial_rotary_factor");
}

// The number of rows of a layer's K, and whether the layer has a window.
static double k_rows(const HfConfigSource *w, int layer) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.attn_k.weight", layer);
    const GgufTensor *t = gguf_tensor(w->g, name);
    return t ? (double)t->dims[1] : NAN;
}

static void put_gemma4(const HfConfigSource *w, json_t *config) {
    const GgufValue *windows = gguf_value(w->g, "gemma4.attention.sliding_window_pattern");
    const GgufTensor *freqs = gguf_tensor(w->g, "rope_freqs.weight");
    double narrow = hf_number_of(w->g, w->arch, "attention.key_length_swa"),
           wide = hf_number_of(w->g, w->arch, "attention.key_length");
    double shared = hf_number_of(w->g, w->arch, "attention.shared_kv_layers");
    json_t *types = json_array();
    size_t turned = 0;
    bool k_eq_v = false;
    for (uint64_t i = 0; i < windows->n; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", (int)i);
        jsonio_append(types, json_string(windows->data[i] ? "sliding_attention" : "full_attention"));
        if (isnan(k_rows(w, (int)i))) continue;
        hf_put_number(config, windows->data[i] ? "num_key_value_heads" : "num_global_key_value_heads",
                      k_rows(w, (int)i) / (windows->data[i] ? narrow : wide));
        if (!windows->data[i]) k_eq_v = !gguf_tensor(w->g, name);
    }
    for (uint64_t i = 0; i < freqs->dims[0]; i++) turned += ((const float *)freqs->data)[i] == 1;
    jsonio_put(config, "layer_types", types);
    jsonio_put(config, "attention_k_eq_v", json_boolean(k_eq_v));
    hf_put_number(config, "head_dim", narrow);
    hf_put_number(config, "global_head_dim", wide);
    hf_put_number(config, "num_kv_shared_layers", shared);
    hf_put_number(config, "hidden_size_per_layer_input",
                  hf_number_of(w->g, w->arch, "embedding_length_per_layer_input"));
    hf_put_number(config, "intermediate_size", (double)gguf_tensor(w->g, "blk.0.ffn_gate.weight")->dims[1]);
    jsonio_put(config, "use_double_wide_mlp", json_boolean(shared > 0));
    double n_experts = hf_number_of(w->g, w->arch, "expert_count");
    jsonio_put(config, "enable_moe_block", json_boolean(n_experts > 0));
    hf_put_number(config, "num_experts", n_experts);
    hf_put_number(config, "top_k_experts", hf_number_of(w->g, w->arch, "expert_used_count"));
    hf_put_number(config, "moe_intermediate_size", hf_number_of(w->g, w->arch, "expert_feed_forward_length"));
    static const char *const gone[] = {"num_local_experts",     "num_experts_per_tok", "query_pre_attn_scalar",
                                       "partial_rotary_factor", "rope_scaling",        "rope_theta",
                                       "rope_local_base_freq"};
    for (size_t i = 0; i < ARRAY_LEN(gone); i++) json_object_del(config, gone[i]);
    json_t *full = json_pack("{s:s, s:f, s:f}", "rope_type", "proportional", "rope_theta",
                             hf_number_of(w->g, w->arch, "rope.freq_base"), "partial_rotary_factor",
                             (double)turned / (double)freqs->dims[0]);
    json_t *sliding = json_pack("{s:s, s:f}", "rope_type", "default", "rope_theta",
                                hf_number_of(w->g, w->arch, "rope.freq_base_swa"));
    jsonio_put(config, "rope_parameters",
               json_pack("{s:o, s:o}", "full_attention", full, "sliding_attention", sliding));
}

static void rename_key(json_t *config, const char *from, const char *to) {
    json_t *v = json_object_get(config, from);
    if (v) jsonio_share(config, to, v);
    json_object_del(config, from);
}

// Keys that dense families call otherwise.
static void put_dense(const HfConfigSource *w, json_t *config) {
    if (strcmp(w->arch, "exaone") == 0) {
        rename_key(config, "num_hidden_layers", "num_layers");
        rename_key(config, "rms_norm_eps", "layer_norm_epsilon");
    }
    if (strcmp(w->arch, "minicpm") != 0) return;
    rename_key(config, "embedding_multiplier", "scale_emb");
    hf_put_number(config, "scale_depth",
                  hf_number_of(w->g, w->arch, "residual_scale") * sqrt(hf_number_of(w->g, w->arch, "block_count")));
    hf_put_number(config, "dim_model_base",
                  hf_number_of(w->g, w->arch, "embedding_length") / hf_number_of(w->g, w->arch, "logit_scale"));
}

// The norms of Q have one common value.
static void put_muse(const HfConfigSource *w, json_t *config) {
    const GgufTensor *norm = gguf_tensor(w->g, "blk.0.attn_q_norm.weight");
    jsonio_put(config, "qk_scale_factor", json_real((double)((const float *)norm->data)[0]));
    hf_put_number(config, "output_multiplier", hf_number_of(w->g, w->arch, "logit_scale"));
    json_object_del(config, "logits_scaling");
    int n = (int)hf_number_of(w->g, w->arch, "block_count");
    json_t *types = json_array();
    for (int i = 0; i < n; i++) jsonio_append(types, json_string((i + 1) % 4 ? "sliding_attention" : "full_attention"));
    jsonio_put(config, "layer_types", types);
}

void hf_directory_config(const HfConfigSource *w, const char *dir) {
    static const NamePair keys[] = {{"embedding_length", "hidden_size"},
                                    {"block_count", "num_hidden_layers"},
                                    {"feed_forward_length", "intermediate_size"},
                                    {"attention.head_count", "num_attention_heads"},
                                    {"attention.head_count_kv", "num_key_value_heads"},
                                    {"context_length", "max_position_embeddings"},
                                    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                    {"attention.sliding_window", "sliding_window"},
                                    {"attn_logit_softcapping", "attn_logit_softcapping"},
                                    {"final_logit_softcapping", "final_logit_softcapping"},
                                    {"embedding_scale", "embedding_multiplier"},
                                    {"residual_scale", "residual_multiplier"},
                                    {"attention.scale", "attention_multiplier"},
                                    {"expert_used_count", "num_experts_per_tok"},
                                    {"full_attention_interval", "full_attention_interval"},
                                    {"ssm.group_count", "linear_num_key_heads"},
                                    {"ssm.time_step_rank", "linear_num_value_heads"},
                                    {"ssm.state_size", "linear_key_head_dim"},
                                    {"ssm.conv_kernel", "linear_conv_kernel_dim"},
                                    {"shortconv.l_cache", "conv_L_cache"},
                                    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
                                    {"attention.layer_norm_epsilon", "layer_norm_eps"},
                                    {"logit_scale", "logit_scale"},
                                    {"logit_scale", "logits_scaling"}};
    json_t *config = json_object(), *over = w->how->config ? json_loads(w->how->config, 0, NULL) : NULL, *value;
    const char *key;
    jsonio_put(config, "model_type", json_string(w->model_type));
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        hf_put_number(config, keys[i].hf, hf_number_of(w->g, w->arch, keys[i].gguf));
    if (json_integer_value(json_object_get(config, "sliding_window")) == 0) json_object_del(config, "sliding_window");
    if (strcmp(w->arch, "exaone4") == 0 && isnan(hf_number_of(w->g, w->arch, "attention.sliding_window")))
        jsonio_put(config, "sliding_window", json_null()); // the class has a default
    double width = hf_number_of(w->g, w->arch, "expert_feed_forward_length");
    bool qwen = strncmp(w->arch, "qwen", 4) == 0;
    hf_put_number(config, qwen ? "num_experts" : "num_local_experts", hf_number_of(w->g, w->arch, "expert_count"));
    hf_put_number(config, qwen ? "moe_intermediate_size" : "intermediate_size", width);
    hf_recurrent_config(w->g, w->arch, w->n_heads, config);
    if (strcmp(w->arch, "qwen3moe") == 0) jsonio_put(config, "norm_topk_prob", json_true());
    double dim = hf_number_of(w->g, w->arch, "embedding_length"),
           head_dim = hf_number_of(w->g, w->arch, "attention.key_length");
    hf_put_number(config, "head_dim", head_dim);
    if (isnan(head_dim)) head_dim = dim / w->n_heads;
    if (strncmp(w->arch, "gemma", 5) == 0) hf_put_number(config, "query_pre_attn_scalar", head_dim);
    jsonio_put(config, "tie_word_embeddings", json_boolean(!gguf_tensor(w->g, "output.weight")));
    jsonio_put(config, w->how->v5 ? "dtype" : "torch_dtype", json_string("float32"));
    put_rope(w, config, head_dim);
    hf_experts_config(w->g, w->arch, config);
    put_dense(w, config);
    if (is_latent(w)) put_deepseek(w, config);
    if (strcmp(w->arch, "gemma4") == 0) put_gemma4(w, config);
    if (strcmp(w->arch, "muse-glimmer") == 0) put_muse(w, config);
    json_object_foreach(over, key, value) {
        if (json_is_null(value)) json_object_del(config, key);
        else jsonio_share(config, key, value);
    }
    json_decref(over);
    hf_directory_json(dir, "config.json", config);
}
