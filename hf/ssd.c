// hf/ssd.c: Mamba-2 layers of a directory, and what else Granite 4.0 H and Nemotron have in a form of their own.
//
// Shapes as the directory has them, slowest first; H heads of width W, G groups, S elements of B and C, inner = H W:
//   mamba.in_proj.weight (2 inner + 2 G S + H, dim): the rows of z, x, B, C and dt, as in GGUF
//   mamba.conv1d.weight (inner + 2 G S, 1, taps), conv1d.bias
//   mamba.A_log, mamba.D (H): (H, 1) in GGUF, which has -exp of A_log; mamba.norm.weight (inner): (G, inner / G) there
//   Nemotron calls each layer's part `mixer`, whatever it is
#include "hf/ssd.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "formats/types.h"
#include "hf/view.h"

// ---- keys -----------------------------------------------------------------------------------------------------------

static bool nemotron(const HfModel *m) { return m->family->names == HF_NAMES_NEMOTRON; }

// The type of a layer by today's name in transformers. Older files have a letter, or another name.
static const char *type_of(const char *name) {
    static const char *const names[][3] = {{"linear_attention", "mamba", "M"},
                                           {"full_attention", "attention", "*"},
                                           {"mlp", "mlp", "-"},
                                           {"moe", "moe", "E"}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (int k = 0; k < 3; k++)
            if (strcmp(name, names[i][k]) == 0) return names[i][0];
    return name;
}

// Sets layer_types, which may have other names, or be a text with a letter for each layer.
static void rename_layers(const HfModel *m) {
    const json_t *types = json_object_get(m->config, "layer_types");
    const char *letters = json_string_value(json_object_get(m->config, "hybrid_override_pattern"));
    if (!json_is_array(types)) types = json_object_get(m->config, "layers_block_type");
    if (!json_is_array(types) && (!letters || !nemotron(m))) return;
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(types); i++) {
        json_t *type = json_array_get(types, i);
        const char *name = json_string_value(type);
        jsonio_append(out, name ? json_string(type_of(name)) : json_incref(type));
    }
    for (size_t i = 0; !json_is_array(types) && letters[i]; i++) // a byte of a longer character is no text
        jsonio_append(out, (letters[i] & 0x80) != 0 ? json_null() : json_string(type_of((char[2]){letters[i]})));
    jsonio_put(m->config, "layer_types", out);
}

static int count_layers(const HfModel *m, const char *type) {
    const json_t *types = json_object_get(m->config, "layer_types");
    int n = 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *name = json_string_value(json_array_get(types, i));
        n += name && strcmp(name, type) == 0;
    }
    return n;
}

// The number of layers is that of the list, and either all feed-forwards have experts or none.
static Status prepare_nemotron(HfModel *m) {
    static const char *const of_experts[] = {"n_routed_experts", "num_experts_per_tok",   "moe_intermediate_size",
                                             "n_shared_experts", "routed_scaling_factor", "norm_topk_prob"};
    int mlp = count_layers(m, "mlp"), moe = count_layers(m, "moe"), recurrent = count_layers(m, "linear_attention");
    size_t n = json_array_size(json_object_get(m->config, "layer_types"));
    const json_t *latent = json_object_get(m->config, "moe_latent_size");
    if (n < 1 || (size_t)(mlp + moe + recurrent + count_layers(m, "full_attention")) != n || (mlp > 0 && moe > 0))
        return hf_config_wrong(m, "layer_types",
                               "for each layer linear_attention, full_attention, and either mlp or moe,");
    if (latent && !json_is_null(latent)) return hf_config_wrong(m, "moe_latent_size", "null");
    jsonio_put(m->config, "num_hidden_layers", json_integer((json_int_t)n));
    jsonio_share(m->config, "rms_norm_eps", json_object_get(m->config, "layer_norm_epsilon"));
    if (moe > 0)
        jsonio_share(m->config, "shared_expert_intermediate_size",
                     json_object_get(m->config, "moe_shared_expert_intermediate_size"));
    else {
        m->family = hf_family_dense(m->family);
        for (size_t i = 0; i < ARRAY_LEN(of_experts); i++) json_object_del(m->config, of_experts[i]);
    }
    return OK;
}

Status hf_ssd_prepare(HfModel *m) {
    int64_t n = 0;
    json_t *shared = json_object_get(m->config, "shared_intermediate_size");
    if (m->family->names != HF_NAMES_GRANITE_HYBRID && !nemotron(m)) return OK;
    rename_layers(m);
    if (nemotron(m)) return prepare_nemotron(m);
    // Without experts the shared expert is a plain feed-forward, and the keys about experts have no effect.
    bool dense = hf_config_int(m->config, "num_local_experts", &n) && n == 0;
    jsonio_share(m->config, dense ? "intermediate_size" : "shared_expert_intermediate_size", shared);
    if (!dense) return OK;
    size_t all = json_array_size(json_object_get(m->config, "layer_types"));
    if (all > 0 && (size_t)count_layers(m, "full_attention") == all) m->family = hf_family_dense(m->family);
    json_object_del(m->config, "num_local_experts");
    json_object_del(m->config, "num_experts_per_tok");
    return OK;
}

typedef struct {
    int64_t heads, width, groups, state, taps;
} SsdShape;

static Status count_of(const HfModel *m, const char *name, int64_t *out) {
    if (hf_config_int(m->config, name, out) && *out >= 1 && *out <= 1 << 20) return OK;
    return hf_config_wrong(m, name, "a whole number from 1 to 2^20");
}

static Status read_shape(const HfModel *m, SsdShape *s) {
    int64_t dim = 0, expand = 0;
    if (nemotron(m)) {
        TRY(count_of(m, "mamba_num_heads", &s->heads));
        TRY(count_of(m, "n_groups", &s->groups));
        TRY(count_of(m, "ssm_state_size", &s->state));
        TRY(count_of(m, "conv_kernel", &s->taps));
        TRY(count_of(m, "mamba_head_dim", &s->width));
        return s->heads % s->groups == 0 ? OK : hf_config_wrong(m, "n_groups", "a divisor of mamba_num_heads");
    }
    const char *width = json_string_value(json_object_get(m->config, "mamba_d_head"));
    TRY(count_of(m, "mamba_n_heads", &s->heads));
    TRY(count_of(m, "mamba_n_groups", &s->groups));
    TRY(count_of(m, "mamba_d_state", &s->state));
    TRY(count_of(m, "mamba_d_conv", &s->taps));
    TRY(count_of(m, "mamba_expand", &expand));
    TRY(count_of(m, "hidden_size", &dim));
    if (width && strcmp(width, "auto") == 0) s->width = expand * dim / s->heads;
    else TRY(count_of(m, "mamba_d_head", &s->width));
    if (s->width * s->heads != expand * dim)
        return hf_config_wrong(m, "mamba_d_head", "mamba_expand * hidden_size / mamba_n_heads");
    return s->heads % s->groups == 0 ? OK : hf_config_wrong(m, "mamba_n_groups", "a divisor of mamba_n_heads");
}

// Infinity is written as a word, or in an object.
static bool is_infinite(const json_t *v) {
    const char *word = json_string_value(json_is_object(v) ? json_object_get(v, "__float__") : v);
    return word && strcmp(word, "Infinity") == 0;
}

static Status refuse_limit(const HfModel *m) {
    const json_t *v = json_object_get(m->config, "time_step_limit");
    if (!v || json_is_null(v)) return OK;
    bool none = json_array_size(v) == 2 && json_number_value(json_array_get(v, 0)) == 0 &&
                json_is_number(json_array_get(v, 0)) && is_infinite(json_array_get(v, 1));
    return none ? OK : hf_config_wrong(m, "time_step_limit", "0 and Infinity");
}

// Without the key there is no RoPE.
Status hf_ssd_rope(const HfModel *m) {
    char key[96];
    if (m->family->names != HF_NAMES_GRANITE_HYBRID) return OK;
    const json_t *v = json_object_get(m->config, "position_embedding_type");
    const char *type = json_string_value(v);
    bool rope = type && strcmp(type, "rope") == 0;
    if (v && !json_is_null(v) && !rope && (!type || strcmp(type, "nope") != 0))
        return hf_config_wrong(m, "position_embedding_type", "rope, nope or null");
    gguf_set_bool(m->g, hf_key(m, "rope.scaling.finetuned", key), rope);
    return OK;
}

// Whether layer i is only a feed-forward.
static bool feeds(const HfModel *m, int64_t i) {
    const char *type = json_string_value(json_array_get(json_object_get(m->config, "layer_types"), (size_t)i));
    return nemotron(m) && type && (strcmp(type, "mlp") == 0 || strcmp(type, "moe") == 0);
}

// Nemotron: the width of a layer's feed-forward, 0 for layers without one, and how experts are chosen.
static Status set_widths(const HfModel *m, int64_t n_layers) {
    static const char *const groups[][2] = {{"n_group", "expert_group_count"},
                                            {"topk_group", "expert_group_used_count"}};
    const char *act = json_string_value(json_object_get(m->config, "mamba_hidden_act"));
    bool moe = count_layers(m, "moe") > 0;
    char key[96];
    double eps;
    int64_t n;
    if (hf_config_number(m->config, "layer_norm_epsilon", &eps)) // llama.cpp wants it by this name
        gguf_set_f32(m->g, hf_key(m, "attention.layer_norm_epsilon", key), (float)eps);
    if (act && strcmp(act, "silu") != 0) return hf_config_wrong(m, "mamba_hidden_act", "silu");
    TRY(count_of(m, moe ? "moe_intermediate_size" : "intermediate_size", &n));
    int32_t *widths = mem_alloc((size_t)n_layers * sizeof *widths);
    for (int64_t i = 0; i < n_layers; i++) widths[i] = feeds(m, i) ? (int32_t)n : 0;
    hf_set_ints(m, "feed_forward_length", widths, n_layers);
    free(widths);
    if (!moe) return OK;
    gguf_set_u32(m->g, hf_key(m, "expert_gating_func", key), 2); // sigmoids
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        TRY(count_of(m, groups[i][0], &n));
        gguf_set_u32(m->g, hf_key(m, groups[i][1], key), (uint32_t)n);
    }
    return OK;
}

Status hf_ssd_config(const HfModel *m, int64_t n_layers, const uint8_t *recurrent) {
    char key[96];
    int64_t kv_heads = 0;
    SsdShape s;
    TRY(read_shape(m, &s));
    TRY(refuse_limit(m));
    gguf_set_u32(m->g, hf_key(m, "ssm.group_count", key), (uint32_t)s.groups);
    gguf_set_u32(m->g, hf_key(m, "ssm.time_step_rank", key), (uint32_t)s.heads);
    gguf_set_u32(m->g, hf_key(m, "ssm.state_size", key), (uint32_t)s.state);
    gguf_set_u32(m->g, hf_key(m, "ssm.inner_size", key), (uint32_t)(s.heads * s.width));
    gguf_set_u32(m->g, hf_key(m, "ssm.conv_kernel", key), (uint32_t)s.taps);
    if (!hf_config_int(m->config, "num_key_value_heads", &kv_heads)) TRY(count_of(m, "num_attention_heads", &kv_heads));
    int32_t *heads = mem_alloc((size_t)n_layers * sizeof *heads);
    for (int64_t i = 0; i < n_layers; i++) heads[i] = recurrent[i] || feeds(m, i) ? 0 : (int32_t)kv_heads;
    hf_set_ints(m, "attention.head_count_kv", heads, n_layers);
    free(heads);
    return nemotron(m) ? set_widths(m, n_layers) : OK;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

// A vector as n rows of one element. decay: -exp of it, in f32
static Status take_column(const HfModel *m, const char *name, const SafeTensor *t, bool decay) {
    TRY(hf_check_vector(t));
    size_t n = (size_t)t->dims[0];
    float *v = gguf_alloc(m->g, n * sizeof *v);
    type_info(hf_type_of(t))->dequantize(hf_aligned_data(m, t), v, n);
    for (size_t i = 0; i < n && decay; i++) v[i] = -expf(v[i]);
    return hf_view_add(m, t, name, TYPE_F32, 1, n, 0, v);
}

static Status take_decay(const HfModel *m, const char *name, const SafeTensor *t) {
    return take_column(m, name, t, true);
}

static Status take_skip(const HfModel *m, const char *name, const SafeTensor *t) {
    return take_column(m, name, t, false);
}

static Status take_vector(const HfModel *m, const char *name, const SafeTensor *t) {
    TRY(hf_check_vector(t));
    return hf_view_add(m, t, name, hf_type_of(t), (size_t)t->dims[0], 0, 0, hf_aligned_data(m, t));
}

static Status take_norm(const HfModel *m, const char *name, const SafeTensor *t) {
    SsdShape s;
    TRY(read_shape(m, &s));
    TRY(hf_check_vector(t));
    if (t->dims[0] % (uint64_t)s.groups) return hf_refuse(t, "a multiple of mamba_n_groups elements");
    return hf_view_add(m, t, name, hf_type_of(t), (size_t)t->dims[0] / (size_t)s.groups, (size_t)s.groups, 0,
                       hf_aligned_data(m, t));
}

static bool has_experts(const HfModel *m) { return json_object_get(m->config, "num_local_experts"); }

// The output matrix of the shared expert; without experts it is that of the feed-forward. hf/experts.c takes its input
// matrices.
static Status take_shared_out(const HfModel *m, long layer, const SafeTensor *t) {
    char name[64];
    snprintf(name, sizeof name, "blk.%ld.ffn_down%s.weight", layer, has_experts(m) ? "_shexp" : "");
    if (t->n_dims != 2 || t->dims[0] < 1 || t->dims[1] < 1 || hf_type_of(t) < 0)
        return hf_refuse(t, "F32, F16 or BF16 of two dimensions");
    return hf_view_add(m, t, name, hf_type_of(t), (size_t)t->dims[1], (size_t)t->dims[0], 0, hf_aligned_data(m, t));
}

bool hf_ssd_take(const HfModel *m, long layer, const char *part, const SafeTensor *t, Status *st) {
    static const struct {
        const char *part, *gguf;
        Status (*take)(const HfModel *m, const char *name, const SafeTensor *t);
    } parts[] = {{"conv1d.weight", "ssm_conv1d.weight", hf_take_taps},
                 {"conv1d.bias", "ssm_conv1d.bias", take_vector},
                 {"A_log", "ssm_a", take_decay},
                 {"D", "ssm_d", take_skip},
                 {"dt_bias", "ssm_dt.bias", take_vector},
                 {"norm.weight", "ssm_norm.weight", take_norm}};
    const char *root = nemotron(m) ? "mixer." : "mamba.";
    char name[64];
    if (m->family->names != HF_NAMES_GRANITE_HYBRID && !nemotron(m)) return false;
    if (strcmp(part, "shared_mlp.output_linear.weight") == 0) *st = take_shared_out(m, layer, t);
    else if (strncmp(part, root, strlen(root)) != 0) return false;
    else {
        size_t i = 0;
        while (i < ARRAY_LEN(parts) && strcmp(part + strlen(root), parts[i].part) != 0) i++;
        if (i == ARRAY_LEN(parts)) return false;
        snprintf(name, sizeof name, "blk.%ld.%s", layer, parts[i].gguf);
        *st = parts[i].take(m, name, t);
    }
    return true;
}
