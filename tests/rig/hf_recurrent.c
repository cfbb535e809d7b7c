// tests/rig/hf_recurrent.c: see tests/rig/hf_recurrent.h.
#include "tests/rig/hf_recurrent.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/jsonio.h"
#include "tests/rig/hf_ssd.h"

typedef struct {
    int n_keys, n_values, key_dim, value_dim;
} DeltaHeads;

static int number(const Gguf *g, const char *arch, const char *suffix) {
    char key[96];
    uint32_t n = 0;
    snprintf(key, sizeof key, "%s.%s", arch, suffix);
    return gguf_u32(g, key, &n, false, 0).code ? 0 : (int)n;
}

// The index in the file of the value head at place `at` of a directory, where the value heads of a key head are
// adjacent. In files of Qwen3.5 value head h belongs to key head h % n_keys.
static int head_at(const DeltaHeads *s, bool grouped, int at) {
    int group = s->n_values / s->n_keys;
    return grouped ? at : at % group * s->n_keys + at / group;
}

// Appends value heads of `size` bytes each, in the directory's order.
static void append_heads(Buf *out, const char *heads, const DeltaHeads *s, bool grouped, size_t size) {
    for (int i = 0; i < s->n_values; i++) buf_append(out, heads + (size_t)head_at(s, grouped, i) * size, size);
}

// For each key head its q, k, v and z.
static void append_qkvz(Buf *out, const char *qkv, const char *z, const DeltaHeads *s, size_t row) {
    size_t group = (size_t)(s->n_values / s->n_keys), k = (size_t)s->key_dim * row,
           v = group * (size_t)s->value_dim * row;
    const char *all_k = qkv + (size_t)s->n_keys * k, *all_v = all_k + (size_t)s->n_keys * k;
    for (size_t h = 0; h < (size_t)s->n_keys; h++) {
        buf_append(out, qkv + h * k, k);
        buf_append(out, all_k + h * k, k);
        buf_append(out, all_v + h * v, v);
        buf_append(out, z + h * v, v);
    }
}

// Reorders the columns of value heads in each row.
static void append_columns(Buf *out, const GgufTensor *t, const DeltaHeads *s, bool grouped) {
    size_t row = t->n_bytes / (size_t)t->dims[1];
    for (size_t i = 0; i < t->dims[1]; i++)
        append_heads(out, (const char *)t->data + i * row, s, grouped, row / (size_t)s->n_values);
}

// A convolution has a dimension of 1 between its channels and its taps.
static void make_taps(HfRecurrent *out, const GgufTensor *t) {
    out->n_dims = 3;
    out->dims[2] = (size_t)t->dims[0];
    out->dims[1] = 1;
}

static bool is(const char *part, const char *name) { return strcmp(part, name) == 0; }

bool hf_recurrent_write(const Gguf *g, const char *arch, int layer, const char *part, const GgufTensor *t,
                        HfRecurrent *out) {
    if (hf_ssd_has(arch)) return hf_ssd_write(g, arch, layer, part, t, out);
    DeltaHeads s = {number(g, arch, "ssm.group_count"), number(g, arch, "ssm.time_step_rank"),
                    number(g, arch, "ssm.state_size"), 0};
    bool next = strcmp(arch, "qwen3next") == 0, conv = is(part, "shortconv.conv.weight");
    *out = (HfRecurrent){.n_dims = t->n_dims, .dims = {(size_t)t->dims[t->n_dims == 2], (size_t)t->dims[0]}};
    const char *data = t->data;
    size_t row = t->n_bytes / out->dims[0];
    if (conv || is(part, "ssm_conv1d.weight")) make_taps(out, t);
    if (conv) {
        strcpy(out->name, "conv.conv.weight");
        buf_append(&out->data, data, t->n_bytes);
        return true;
    }
    if (s.n_keys == 0) return false;
    s.value_dim = number(g, arch, "ssm.inner_size") / s.n_values;
    size_t keys = 2 * (size_t)(s.n_keys * s.key_dim) * row;
    if (is(part, "ssm_conv1d.weight") || (is(part, "attn_qkv.weight") && !next)) {
        strcpy(out->name, out->n_dims == 3 ? "linear_attn.conv1d.weight" : "linear_attn.in_proj_qkv.weight");
        buf_append(&out->data, data, keys);
        append_heads(&out->data, data + keys, &s, next, (size_t)s.value_dim * row);
    } else if (is(part, "attn_qkv.weight")) {
        char gate[64];
        snprintf(gate, sizeof gate, "blk.%d.attn_gate.weight", layer);
        const GgufTensor *z = gguf_tensor(g, gate);
        if (!z) return false; // a fused matrix of attention
        strcpy(out->name, "linear_attn.in_proj_qkvz.weight");
        append_qkvz(&out->data, data, z->data, &s, row);
        out->dims[0] += (size_t)z->dims[1];
    } else if (is(part, "attn_gate.weight")) {
        if (!next) strcpy(out->name, "linear_attn.in_proj_z.weight");
        append_heads(&out->data, data, &s, next, (size_t)s.value_dim * row);
    } else if (is(part, "ssm_ba.weight") || is(part, "ssm_beta.weight") || is(part, "ssm_alpha.weight")) {
        strcpy(out->name, next                          ? "linear_attn.in_proj_ba.weight"
                          : is(part, "ssm_beta.weight") ? "linear_attn.in_proj_b.weight"
                                                        : "linear_attn.in_proj_a.weight");
        if (next) buf_append(&out->data, data, t->n_bytes);
        else append_heads(&out->data, data, &s, false, row);
    } else if (is(part, "ssm_a")) {
        strcpy(out->name, "linear_attn.A_log");
        for (int i = 0; i < s.n_values; i++) {
            float v = logf(-((const float *)t->data)[head_at(&s, next, i)]);
            buf_append(&out->data, &v, sizeof v);
        }
    } else if (is(part, "ssm_dt.bias")) {
        strcpy(out->name, "linear_attn.dt_bias");
        append_heads(&out->data, data, &s, next, sizeof(float));
    } else if (is(part, "ssm_norm.weight")) {
        strcpy(out->name, "linear_attn.norm.weight");
        buf_append(&out->data, data, t->n_bytes);
    } else if (is(part, "ssm_out.weight")) {
        strcpy(out->name, "linear_attn.out_proj.weight");
        append_columns(&out->data, t, &s, next);
    } else return false;
    return true;
}

static void put_int(json_t *config, const char *key, int n) { jsonio_put(config, key, json_integer(n)); }

int hf_recurrent_kv_heads(const Gguf *g, const char *arch, int n_heads) {
    int head_dim = number(g, arch, "attention.key_length");
    if (!head_dim) head_dim = number(g, arch, "embedding_length") / n_heads;
    for (int i = 0; i < number(g, arch, "block_count"); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_k.weight", i);
        const GgufTensor *k = gguf_tensor(g, name);
        if (k) return (int)k->dims[1] / head_dim;
    }
    return 1;
}

void hf_recurrent_config(const Gguf *g, const char *arch, int n_heads, json_t *config) {
    int inner = number(g, arch, "ssm.inner_size");
    float eps;
    char key[96];
    if (hf_ssd_has(arch)) hf_ssd_keys(g, arch, config);
    if (hf_ssd_has(arch) || strncmp(arch, "lfm2", 4) == 0)
        put_int(config, "num_key_value_heads", hf_recurrent_kv_heads(g, arch, n_heads));
    if (inner) put_int(config, "linear_value_head_dim", inner / number(g, arch, "ssm.time_step_rank"));
    if (strncmp(arch, "lfm2", 4) != 0) return;
    json_t *types = json_array();
    for (int i = 0; i < number(g, arch, "block_count"); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_k.weight", i);
        jsonio_append(types, json_string(gguf_tensor(g, name) ? "full_attention" : "conv"));
    }
    jsonio_put(config, "layer_types", types);
    jsonio_put(config, "block_auto_adjust_ff_dim", json_false());
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    if (!gguf_f32(g, key, &eps, true, 0).code) jsonio_put(config, "norm_eps", json_real((double)eps));
}
