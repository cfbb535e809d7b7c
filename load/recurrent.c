// load/recurrent.c: loads recurrent layers from a model file: which layers these are, their shape, their weights. See
// load/loader.h.
#include "load/loader.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_HEADS = 1 << 10 };

bool loader_is_recurrent(const Loader *l, int layer) { return l->recurrent && l->recurrent[layer]; }
bool loader_mixes(const Loader *l, int layer) { return !l->feeds_only || !l->feeds_only[layer]; }
bool loader_feeds(const Loader *l, int layer) { return !l->feeds_only || l->feeds_only[layer]; }
bool loader_attends(const Loader *l, int layer) { return loader_mixes(l, layer) && !loader_is_recurrent(l, layer); }

// Gated DeltaNet: the key's array of booleans says which layers are recurrent. Without it all are, except every
// full_attention_interval-th.
static Status delta_layers(const Loader *l, const char *key) {
    int n = l->m->c.n_layers, every;
    const GgufValue *v = gguf_value(l->g, key);
    TRY(loader_int(l, "full_attention_interval", 1, 1 << 30, false, 4, &every));
    if (v && (v->type != GGUF_ARRAY || v->elem_type != GGUF_BOOL))
        return status_error(QUILL_MODEL, "%s: %s: an array of BOOL expected, %s found", l->file, key,
                            gguf_type_name(v->type == GGUF_ARRAY ? v->elem_type : v->type));
    if (v) TRY(loader_each_layer(l, v));
    for (int i = 0; i < n - l->head; i++) l->recurrent[i] = v ? ((const uint8_t *)v->data)[i] : (i + 1) % every != 0;
    return OK; // a prediction head has attention
}

// Other mixers: the layers with 0 KV heads in the list head_count_kv are recurrent, except those that have a
// feed-forward in place of a mixer.
static Status layers_without_kv(const Loader *l, const char *key) {
    int n = l->m->c.n_layers;
    const GgufValue *v = gguf_value(l->g, key);
    if (!v || v->type != GGUF_ARRAY)
        return status_error(QUILL_MODEL, "%s: %s: an array of one number a layer expected, %s found", l->file, key,
                            v ? "something else" : "none");
    TRY(loader_each_layer(l, v));
    int32_t *heads = mem_alloc(v->n * sizeof *heads);
    Status st = gguf_ints(l->g, v, heads);
    for (int i = 0; i < n - l->head && !st.code; i++) {
        bool feeds = l->family->parts_apart && l->ffn[i] > 0;
        l->recurrent[i] = heads[i] == 0 && !feeds;
        if (l->family->parts_apart) l->feeds_only[i] = feeds;
    }
    free(heads);
    return st;
}

// The shape of a mixer whose state has a matrix for each value head. Mamba-2 calls value heads simply heads, and key
// heads groups.
static Status matrix_shape(const Loader *l, Recurrence *r) {
    int inner;
    TRY(loader_int(l, "ssm.group_count", 1, MOST_HEADS, true, 0, &r->n_keys));
    TRY(loader_int(l, "ssm.time_step_rank", 1, MOST_HEADS, true, 0, &r->n_values));
    TRY(loader_int(l, "ssm.state_size", 1, SEAL_HEAD, true, 0, &r->key_dim));
    TRY(loader_int(l, "ssm.inner_size", 1, MOST_HEADS * SEAL_HEAD, true, 0, &inner));
    TRY(loader_int(l, "ssm.conv_kernel", 2, MOST_TAPS, true, 0, &r->taps));
    if (r->n_values % r->n_keys)
        return status_error(QUILL_MODEL, "%s: %s.ssm.time_step_rank: a multiple of the %d key heads expected, %d found",
                            l->file, l->family->arch, r->n_keys, r->n_values);
    r->value_dim = inner / r->n_values;
    if (inner % r->n_values || r->value_dim > SEAL_HEAD)
        return status_error(QUILL_MODEL,
                            "%s: %s.ssm.inner_size: %d value heads of 1 to %d elements each expected, %d found",
                            l->file, l->family->arch, r->n_values, SEAL_HEAD, inner);
    r->channels = 2 * r->n_keys * r->key_dim + inner;
    bool grouped = l->family->recurrent == MIXER_SSD;
    if (!grouped) TRY(gguf_bool(l->g, "quill.key_heads.grouped", &grouped, l->family->key_heads_grouped));
    r->grouped = grouped;
    return OK;
}

Status loader_recurrent_shape(Loader *l) {
    ModelConfig *c = &l->m->c;
    Mixer mixer = l->family->recurrent;
    char key[96];
    if (mixer == MIXER_NONE) return OK;
    l->recurrent = mem_alloc((size_t)c->n_layers);
    if (l->family->parts_apart) l->feeds_only = mem_alloc((size_t)c->n_layers);
    snprintf(key, sizeof key, "%s.%s", c->arch,
             mixer == MIXER_DELTA ? "attention.recurrent_layers" : "attention.head_count_kv");
    TRY(mixer == MIXER_DELTA ? delta_layers(l, key) : layers_without_kv(l, key));
    if (mixer != MIXER_CONV) TRY(matrix_shape(l, &c->rec));
    else {
        c->rec = (Recurrence){.channels = c->dim};
        TRY(loader_int(l, "shortconv.l_cache", 2, MOST_TAPS, true, 0, &c->rec.taps));
    }
    for (int i = 0; i < c->n_layers; i++) c->n_recurrent += l->recurrent[i] != 0;
    return OK;
}

// ---- weights --------------------------------------------------------------------------------------------------------

// Loads the taps of the convolution, (channels, taps) in f32.
static Status load_taps(const Loader *l, int i, const char *part, const float **out) {
    const Recurrence *r = &l->m->c.rec;
    return loader_layer_table(l, i, part, out, r->channels, r->taps);
}

static Status load_conv(const Loader *l, int i) {
    Layer *y = &l->m->layers[i];
    int dim = l->m->c.dim;
    TRY(loader_layer_matrix(l, i, "shortconv.in_proj", &y->w_mix, 3 * dim, dim));
    TRY(load_taps(l, i, "shortconv.conv.weight", &y->conv));
    return loader_layer_matrix(l, i, "shortconv.out_proj", &y->wo, dim, dim);
}

static Status load_delta(const Loader *l, int i) {
    Layer *y = &l->m->layers[i];
    const Recurrence *r = &y->rec;
    int dim = l->m->c.dim, inner = r->n_values * r->value_dim;
    TRY(loader_layer_matrix(l, i, "attn_qkv", &y->w_mix, r->channels, dim));
    TRY(loader_layer_matrix(l, i, "attn_gate", &y->w_z, inner, dim));
    if (loader_layer_has(l, i, "ssm_ba")) {
        TRY(loader_layer_matrix(l, i, "ssm_ba", &y->w_beta, 2 * r->n_values, dim));
    } else {
        TRY(loader_layer_matrix(l, i, "ssm_beta", &y->w_beta, r->n_values, dim));
        TRY(loader_layer_matrix(l, i, "ssm_alpha", &y->w_alpha, r->n_values, dim));
    }
    TRY(load_taps(l, i, "ssm_conv1d.weight", &y->conv));
    TRY(loader_layer_named(l, i, "ssm_a", &y->decay, r->n_values, true)); // no ending at all
    TRY(loader_layer_named(l, i, "ssm_dt.bias", &y->dt_bias, r->n_values, true));
    TRY(loader_layer_vector(l, i, "ssm_norm", &y->norm_state, r->value_dim, true));
    return loader_layer_matrix(l, i, "ssm_out", &y->wo, dim, inner);
}

static Status load_ssd(const Loader *l, int i) {
    Layer *y = &l->m->layers[i];
    const Recurrence *r = &y->rec;
    int dim = l->m->c.dim, inner = r->n_values * r->value_dim;
    if (l->branches != 1) y->kind.eps_out = l->m->c.eps; // kind.eps is for norms of x
    FusedPart in[] = {{&y->w_z, inner}, {&y->w_mix, r->channels}, {&y->w_beta, r->n_values}};
    TRY(loader_layer_fused(l, i, "ssm_in", in, ARRAY_LEN(in), dim));
    TRY(load_taps(l, i, "ssm_conv1d.weight", &y->conv));
    TRY(loader_layer_named(l, i, "ssm_conv1d.bias", &y->conv_bias, r->channels, false));
    TRY(loader_layer_table(l, i, "ssm_a", &y->decay, r->n_values, 1)); // no ending at all
    TRY(loader_layer_table(l, i, "ssm_d", &y->skip, r->n_values, 1));
    TRY(loader_layer_named(l, i, "ssm_dt.bias", &y->dt_bias, r->n_values, true));
    TRY(loader_layer_table(l, i, "ssm_norm.weight", &y->norm_state, r->n_keys, inner / r->n_keys));
    return loader_layer_matrix(l, i, "ssm_out", &y->wo, dim, inner);
}

Status loader_recurrent(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    y->kind.mixer = l->family->recurrent;
    y->kind.gate = GATE_NONE; // the family's gate is for attention only
    y->rec = c->rec;
    y->kv_kind = y->kv_layer = -1;
    y->rope = (Rope){.mscale = 1, .span = 1};
    y->state_layer = 0;
    for (int k = 0; k < i; k++) y->state_layer += loader_is_recurrent(l, k);
    return y->kind.mixer == MIXER_DELTA ? load_delta(l, i)
           : y->kind.mixer == MIXER_SSD ? load_ssd(l, i)
                                        : load_conv(l, i);
}
