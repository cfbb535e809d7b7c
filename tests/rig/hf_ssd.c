// tests/rig/hf_ssd.c: see tests/rig/hf_ssd.h.
#include "tests/rig/hf_ssd.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/jsonio.h"

static const GgufTensor *layer_tensor(const Gguf *g, int layer, const char *part) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    return gguf_tensor(g, name);
}

// Gate and up as one tensor: of a stack, those of each matrix together.
static void append_fused(HfRecurrent *out, const GgufTensor *gate, const GgufTensor *up) {
    size_t n = gate->n_dims == 3 ? (size_t)gate->dims[2] : 1, bytes = gate->n_bytes / n;
    for (size_t i = 0; i < n; i++) {
        buf_append(&out->data, (const char *)gate->data + i * bytes, bytes);
        buf_append(&out->data, (const char *)up->data + i * bytes, bytes);
    }
    out->dims[out->n_dims - 2] *= 2;
}

static void set_dims(HfRecurrent *out, const GgufTensor *t) {
    out->n_dims = t->n_dims;
    for (int d = 0; d < t->n_dims; d++) out->dims[t->n_dims - 1 - d] = (size_t)t->dims[d];
}

static bool is_nemotron(const char *arch) { return strncmp(arch, "nemotron_h", 10) == 0; }

bool hf_ssd_has(const char *arch) { return is_nemotron(arch) || strcmp(arch, "granitehybrid") == 0; }

// The name of a part of nemotron_h, which granitehybrid has too; false: name_of has it (tests/rig/hf_directory.c).
static bool nemotron_name(const char *part, char out[64]) {
    if (strncmp(out, "mamba.", 6) == 0) memcpy(out, "mixer.", 6);
    else if (strcmp(part, "ffn_up_exps.weight") == 0) strcpy(out, "mixer.experts.up_proj");
    else if (strcmp(part, "ffn_down_exps.weight") == 0) strcpy(out, "mixer.experts.down_proj");
    else return false;
    return true;
}

bool hf_ssd_write(const Gguf *g, const char *arch, int layer, const char *part, const GgufTensor *t, HfRecurrent *out) {
    static const char *const plain[][2] = {{"ssm_in.weight", "mamba.in_proj.weight"},
                                           {"ssm_conv1d.weight", "mamba.conv1d.weight"},
                                           {"ssm_conv1d.bias", "mamba.conv1d.bias"},
                                           {"ssm_a", "mamba.A_log"},
                                           {"ssm_d", "mamba.D"},
                                           {"ssm_dt.bias", "mamba.dt_bias"},
                                           {"ssm_norm.weight", "mamba.norm.weight"},
                                           {"ssm_out.weight", "mamba.out_proj.weight"},
                                           {"ffn_down.weight", "shared_mlp.output_linear.weight"},
                                           {"ffn_down_shexp.weight", "shared_mlp.output_linear.weight"},
                                           {"ffn_down_exps.weight", "block_sparse_moe.output_linear.weight"}};
    static const char *const fused[][3] = {
        {"ffn_gate.weight", "ffn_up.weight", "shared_mlp.input_linear.weight"},
        {"ffn_gate_shexp.weight", "ffn_up_shexp.weight", "shared_mlp.input_linear.weight"},
        {"ffn_gate_exps.weight", "ffn_up_exps.weight", "block_sparse_moe.input_linear.weight"}};
    *out = (HfRecurrent){0};
    set_dims(out, t);
    for (size_t i = 0; i < ARRAY_LEN(fused) && !is_nemotron(arch); i++) {
        if (strcmp(part, fused[i][1]) == 0) return true; // together with the gate
        if (strcmp(part, fused[i][0]) != 0) continue;
        strcpy(out->name, fused[i][2]);
        append_fused(out, t, layer_tensor(g, layer, fused[i][1]));
        return true;
    }
    size_t i = 0;
    while (i < ARRAY_LEN(plain) && strcmp(part, plain[i][0]) != 0) i++;
    strcpy(out->name, i < ARRAY_LEN(plain) ? plain[i][1] : "");
    if (is_nemotron(arch) ? !nemotron_name(part, out->name) : !*out->name) return false;
    bool taps = strcmp(part, "ssm_conv1d.weight") == 0, flat = strcmp(part, "ssm_norm.weight") == 0;
    if (taps) out->n_dims = 3, out->dims[2] = out->dims[1], out->dims[1] = 1;
    if (flat || strcmp(part, "ssm_a") == 0 || strcmp(part, "ssm_d") == 0)
        out->n_dims = 1, out->dims[0] *= t->n_dims > 1 ? out->dims[1] : 1;
    if (strcmp(part, "ssm_a") != 0) {
        buf_append(&out->data, t->data, t->n_bytes);
        return true;
    }
    for (size_t k = 0; k < out->dims[0]; k++) {
        float v = logf(-((const float *)t->data)[k]);
        buf_append(&out->data, &v, sizeof v);
    }
    return true;
}

// Models with experts have the list of today, others the text of older files.
static void nemotron_config(const Gguf *g, const char *arch, json_t *config) {
    bool moe = strcmp(arch, "nemotron_h_moe") == 0;
    char key[96], letters[64] = "";
    uint32_t n = 0, inner = 0;
    float eps = 0;
    snprintf(key, sizeof key, "%s.ssm.inner_size", arch);
    if (gguf_u32(g, key, &inner, true, 0).code) return;
    snprintf(key, sizeof key, "%s.block_count", arch);
    if (gguf_u32(g, key, &n, true, 0).code) return;
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    if (gguf_f32(g, key, &eps, true, 0).code) return;
    jsonio_put(config, "layer_norm_epsilon", json_real((double)eps));
    jsonio_put(config, "mamba_head_dim",
               json_integer((json_int_t)inner / json_integer_value(json_object_get(config, "mamba_num_heads"))));
    json_t *experts = json_object_get(config, "num_local_experts"), *types = json_array();
    if (moe) jsonio_share(config, "n_routed_experts", experts);
    json_object_del(config, "num_local_experts");
    for (int i = 0; i < (int)n && i < 63; i++) {
        const GgufTensor *up = layer_tensor(g, i, "ffn_up.weight");
        bool recurs = layer_tensor(g, i, "ssm_in.weight"), attends = layer_tensor(g, i, "attn_q.weight");
        letters[i] = recurs ? 'M' : attends ? '*' : '-';
        jsonio_append(types, json_string(recurs ? "linear_attention" : attends ? "full_attention" : "moe"));
        if (up) jsonio_put(config, "intermediate_size", json_integer((json_int_t)up->dims[1]));
    }
    if (moe) jsonio_share(config, "layers_block_type", types);
    else jsonio_put(config, "hybrid_override_pattern", json_string(letters));
    json_decref(types);
}

void hf_ssd_keys(const Gguf *g, const char *arch, json_t *config) {
    static const char *const keys[][2] = {{"ssm.group_count", "mamba_n_groups"},
                                          {"ssm.time_step_rank", "mamba_n_heads"},
                                          {"ssm.group_count", "n_groups"},
                                          {"ssm.time_step_rank", "mamba_num_heads"},
                                          {"ssm.state_size", "ssm_state_size"},
                                          {"ssm.conv_kernel", "conv_kernel"},
                                          {"expert_feed_forward_length", "moe_intermediate_size"},
                                          {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
                                          {"ssm.state_size", "mamba_d_state"},
                                          {"ssm.conv_kernel", "mamba_d_conv"},
                                          {"feed_forward_length", "shared_intermediate_size"},
                                          {"expert_shared_feed_forward_length", "shared_intermediate_size"}};
    char key[96];
    uint32_t n;
    bool rope;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        snprintf(key, sizeof key, "%s.%s", arch, keys[i][0]);
        if (gguf_value(g, key) && !gguf_u32(g, key, &n, true, 0).code)
            jsonio_put(config, keys[i][1], json_integer((json_int_t)n));
    }
    if (is_nemotron(arch)) return nemotron_config(g, arch, config);
    if (!json_object_get(config, "num_local_experts")) jsonio_put(config, "num_local_experts", json_integer(0));
    snprintf(key, sizeof key, "%s.rope.scaling.finetuned", arch);
    if (!gguf_bool(g, key, &rope, true).code)
        jsonio_put(config, "position_embedding_type", json_string(rope ? "rope" : "nope"));
    json_t *types = json_array();
    snprintf(key, sizeof key, "%s.block_count", arch);
    if (gguf_u32(g, key, &n, true, 0).code) n = 0;
    for (int i = 0; i < (int)n; i++)
        jsonio_append(types, json_string(layer_tensor(g, i, "ssm_in.weight") ? "mamba" : "attention"));
    jsonio_put(config, "layer_types", types);
}
