// hf/recurrent.c: recurrent layers of a directory: gated DeltaNet (linear_attn) and LFM2's short convolutions (conv).
//
// Shapes as the directory has them, slowest first; nk key heads of width S, nv value heads of width V, r = nv / nk:
//   linear_attn.conv1d.weight (2 nk S + nv V, 1, taps), conv.conv.weight (dim, 1, taps)
//   linear_attn.A_log (nv): GGUF has -exp of it
//   linear_attn.in_proj_qkvz.weight: for each key head S rows of q, S of k, r V of v, r V of z; GGUF has all q, all k
//   and all v in one matrix and z in another
// Value heads stay in the directory's order, in which those of a key head stand together: quill.key_heads.grouped.
#include "hf/recurrent.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/types.h"
#include "hf/ssd.h"
#include "hf/view.h"

static Status count_of(const HfModel *m, const char *name, int64_t *out) {
    if (hf_config_int(m->config, name, out) && *out >= 1 && *out <= 1 << 20) return OK;
    return hf_config_wrong(m, name, "a whole number from 1 on");
}

// ---- keys -----------------------------------------------------------------------------------------------------------

typedef struct {
    int64_t n_keys, n_values, key_dim, value_dim;
} DeltaShape;

static Status delta_shape(const HfModel *m, DeltaShape *d) {
    TRY(count_of(m, "linear_num_key_heads", &d->n_keys));
    TRY(count_of(m, "linear_num_value_heads", &d->n_values));
    TRY(count_of(m, "linear_key_head_dim", &d->key_dim));
    TRY(count_of(m, "linear_value_head_dim", &d->value_dim));
    return d->n_values % d->n_keys == 0 ? OK
                                        : hf_config_wrong(m, "linear_num_value_heads", "a multiple of the key heads");
}

// Whether each layer is recurrent: by layer_types; without it by the interval of the other layers, or in LFM2 by their
// list. Without that list LFM2 has no recurrent layer. Families with Mamba-2 have it in all layers without a type.
static Status find_layers(const HfModel *m, int64_t n_layers, uint8_t *recurrent) {
    const json_t *types = json_object_get(m->config, "layer_types"),
                 *full = json_object_get(m->config, "full_attn_idxs");
    bool listed = json_array_size(types) > 0, conv = m->family->names == HF_NAMES_LFM;
    bool ssd = m->family->names == HF_NAMES_GRANITE_HYBRID || m->family->names == HF_NAMES_NEMOTRON;
    int64_t every = 0;
    if (!listed && !conv && !ssd) TRY(count_of(m, "full_attention_interval", &every));
    for (int64_t i = 0; i < n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        recurrent[i] = type   ? strcmp(type, m->family->recurrent) == 0
                       : conv ? json_is_array(full)
                       : ssd  ? true
                              : (i + 1) % every != 0;
    }
    for (size_t i = 0; i < json_array_size(full) && conv; i++) {
        int at = hf_config_id(json_array_get(full, i));
        if (at < 0 || at >= n_layers) return hf_config_wrong(m, "full_attn_idxs", "numbers of layers");
        if (!listed) recurrent[at] = 0;
    }
    return OK;
}

static Status set_delta(const HfModel *m, int64_t n_layers, const uint8_t *recurrent) {
    char key[96];
    int64_t taps;
    DeltaShape d;
    TRY(delta_shape(m, &d));
    TRY(count_of(m, "linear_conv_kernel_dim", &taps));
    gguf_set_u32(m->g, hf_key(m, "ssm.group_count", key), (uint32_t)d.n_keys);
    gguf_set_u32(m->g, hf_key(m, "ssm.time_step_rank", key), (uint32_t)d.n_values);
    gguf_set_u32(m->g, hf_key(m, "ssm.state_size", key), (uint32_t)d.key_dim);
    gguf_set_u32(m->g, hf_key(m, "ssm.inner_size", key), (uint32_t)(d.n_values * d.value_dim));
    gguf_set_u32(m->g, hf_key(m, "ssm.conv_kernel", key), (uint32_t)taps);
    gguf_set_bool(m->g, "quill.key_heads.grouped", true);
    hf_set_flags(m, "attention.recurrent_layers", recurrent, n_layers);
    return OK;
}

// Sets the width of the feed-forward, which LFM2's class computes from several keys.
static Status set_width(const HfModel *m) {
    char key[96];
    int64_t width, multiple = 256;
    double factor;
    const json_t *adjust = json_object_get(m->config, "block_auto_adjust_ff_dim");
    if (!hf_config_int(m->config, "block_ff_dim", &width)) TRY(count_of(m, "intermediate_size", &width));
    if (!adjust || json_is_true(adjust)) {
        width = 2 * width / 3;
        if (hf_config_number(m->config, "block_ffn_dim_multiplier", &factor)) {
            factor *= (double)width;
            if (!(factor >= 1 && factor <= 1 << 24))
                return hf_config_wrong(m, "block_ffn_dim_multiplier", "a factor that gives a width of 1 to 2^24");
            width = (int64_t)factor;
        }
        hf_config_int(m->config, "block_multiple_of", &multiple);
        if (multiple < 1) return hf_config_wrong(m, "block_multiple_of", "a whole number from 1 on");
        width = (width + multiple - 1) / multiple * multiple;
    }
    if (width < 1 || width > 1 << 24) return hf_config_wrong(m, "intermediate_size", "1 to 2^24");
    gguf_set_u32(m->g, hf_key(m, "feed_forward_length", key), (uint32_t)width);
    return OK;
}

static Status set_conv(const HfModel *m, int64_t n_layers, const uint8_t *recurrent) {
    char key[96];
    int64_t taps, kv_heads;
    if (json_is_true(json_object_get(m->config, "conv_bias"))) return hf_config_wrong(m, "conv_bias", "false");
    TRY(count_of(m, "conv_L_cache", &taps));
    TRY(count_of(m, "num_key_value_heads", &kv_heads));
    int32_t *heads = mem_alloc((size_t)n_layers * sizeof *heads);
    for (int64_t i = 0; i < n_layers; i++) heads[i] = recurrent[i] ? 0 : (int32_t)kv_heads;
    hf_set_ints(m, "attention.head_count_kv", heads, n_layers);
    free(heads);
    gguf_set_u32(m->g, hf_key(m, "shortconv.l_cache", key), (uint32_t)taps);
    return hf_class_has(m, "block_multiple_of") ? set_width(m) : OK;
}

Status hf_read_recurrent(const HfModel *m, int64_t n_layers) {
    TRY(hf_ssd_rope(m));
    if (!m->family->recurrent) return OK;
    uint8_t *recurrent = mem_alloc((size_t)n_layers);
    Status st = find_layers(m, n_layers, recurrent);
    HfNames names = m->family->names;
    bool ssd = names == HF_NAMES_GRANITE_HYBRID || names == HF_NAMES_NEMOTRON;
    if (!st.code) st = (names == HF_NAMES_LFM ? set_conv : ssd ? hf_ssd_config : set_delta)(m, n_layers, recurrent);
    free(recurrent);
    return st;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

static Status take_decay(const HfModel *m, const char *name, const SafeTensor *t) {
    TRY(hf_check_vector(t));
    size_t n = (size_t)t->dims[0];
    float *v = gguf_alloc(m->g, n * sizeof *v);
    type_info(hf_type_of(t))->dequantize(hf_aligned_data(m, t), v, n);
    for (size_t i = 0; i < n; i++) v[i] = -expf(v[i]);
    return hf_view_add(m, t, name, TYPE_F32, n, 0, 0, v);
}

static Status take_vector(const HfModel *m, const char *name, const SafeTensor *t) {
    TRY(hf_check_vector(t));
    return hf_view_add(m, t, name, hf_type_of(t), (size_t)t->dims[0], 0, 0, hf_aligned_data(m, t));
}

// Divides the fused matrix into one with the rows of all q, all k and all v, and another one with those of z.
static Status take_qkvz(const HfModel *m, long layer, const SafeTensor *t) {
    DeltaShape d;
    char name[64];
    TRY(delta_shape(m, &d));
    size_t group = (size_t)(d.n_values / d.n_keys), s = (size_t)d.key_dim, v = group * (size_t)d.value_dim;
    size_t nk = (size_t)d.n_keys, rows = nk * (2 * s + 2 * v), keys = nk * s;
    if (t->n_dims != 2 || t->dims[0] != rows || t->dims[1] < 1 || hf_type_of(t) < 0)
        return hf_refuse(t, "F32, F16 or BF16 with a row for each element of q, k, v and z");
    size_t bytes = t->n_bytes / rows;
    const uint8_t *from = t->data;
    uint8_t *qkv = hf_view_alloc(m->g, (2 * keys + nk * v) * bytes), *z = hf_view_alloc(m->g, nk * v * bytes);
    for (size_t h = 0; h < nk; h++) {
        memcpy(qkv + h * s * bytes, from, s * bytes);
        memcpy(qkv + (keys + h * s) * bytes, from + s * bytes, s * bytes);
        memcpy(qkv + (2 * keys + h * v) * bytes, from + 2 * s * bytes, v * bytes);
        memcpy(z + h * v * bytes, from + (2 * s + v) * bytes, v * bytes);
        from += (2 * s + 2 * v) * bytes;
    }
    snprintf(name, sizeof name, "blk.%ld.attn_qkv.weight", layer);
    TRY(hf_view_add(m, t, name, hf_type_of(t), (size_t)t->dims[1], 2 * keys + nk * v, 0, qkv));
    snprintf(name, sizeof name, "blk.%ld.attn_gate.weight", layer);
    return hf_view_add(m, t, name, hf_type_of(t), (size_t)t->dims[1], nk * v, 0, z);
}

bool hf_recurrent_take(const HfModel *m, long layer, const char *part, const SafeTensor *t, Status *st) {
    static const struct {
        const char *part, *gguf;
        Status (*take)(const HfModel *m, const char *name, const SafeTensor *t);
    } parts[] = {{"linear_attn.conv1d.weight", "ssm_conv1d.weight", hf_take_taps},
                 {"conv.conv.weight", "shortconv.conv.weight", hf_take_taps},
                 {"linear_attn.A_log", "ssm_a", take_decay},
                 {"linear_attn.dt_bias", "ssm_dt.bias", take_vector},
                 {"linear_attn.norm.weight", "ssm_norm.weight", take_vector}};
    char name[64];
    if (hf_ssd_take(m, layer, part, t, st)) return true;
    if (!m->family->recurrent) return false;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (strcmp(part, parts[i].part) != 0) continue;
        snprintf(name, sizeof name, "blk.%ld.%s", layer, parts[i].gguf);
        *st = parts[i].take(m, name, t);
        return true;
    }
    if (strcmp(part, "linear_attn.in_proj_qkvz.weight") != 0) return false;
    *st = take_qkvz(m, layer, t);
    return true;
}
