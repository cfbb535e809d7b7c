// load/attention.c: loads attention from a model file: heads, windows, which layers share K and V, and the weights. See
// load/loader.h.
#include "load/loader.h"

#include "formats/types.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADS = 1 << 12, MAX_RANK = 1 << 16 };

// ---- the shape ------------------------------------------------------------------------------------------------------

// A file may say which layers have a window: sliding_window_pattern lists them, as booleans or integers, or is the
// number n of which each n-th layer has none.
static Status load_windowed(Loader *l) {
    static const char suffix[] = "attention.sliding_window_pattern";
    char key[96];
    snprintf(key, sizeof key, "%s.%s", l->family->arch, suffix);
    const GgufValue *v = gguf_value(l->g, key);
    l->full_every = l->family->full_every;
    if (!v || l->head) return OK;
    if (v->type != GGUF_ARRAY) return loader_int(l, suffix, 0, 1 << 30, true, 0, &l->full_every);
    TRY(loader_each_layer(l, v));
    l->windowed = mem_alloc((v->n + 1) * sizeof *l->windowed);
    if (v->elem_type != GGUF_BOOL) return gguf_ints(l->g, v, l->windowed);
    for (uint64_t i = 0; i < v->n; i++) l->windowed[i] = v->data[i];
    return OK;
}

static bool owns_kv(const ModelConfig *c, int i) { return i < c->n_layers - c->n_shared_kv; }

// Finds the layer whose K and V each layer uses: itself, or the last layer before it of the same kind (with or without
// a window) that has K and V of its own; -1: there is none. A layer without attention has none and is never used:
// itself.
static void find_sources(Loader *l) {
    const ModelConfig *c = &l->m->c;
    int last[KV_KINDS] = {-1, -1};
    l->source = mem_alloc((size_t)c->n_layers * sizeof *l->source);
    for (int i = 0; i < c->n_layers; i++) {
        int *of_kind = &last[loader_window(l, i) > 0];
        if (loader_attends(l, i) && owns_kv(c, i)) *of_kind = i;
        l->source[i] = loader_attends(l, i) ? *of_kind : i;
    }
}

// Reads the number of KV heads, which must be equal in all layers with a window and in all others with attention.
static Status load_kv_heads(Loader *l) {
    ModelConfig *c = &l->m->c;
    TRY(loader_layer_ints(l, "attention.head_count_kv", l->recurrent ? 0 : 1, c->n_heads, false, c->n_heads,
                          &l->kv_heads));
    c->n_kv_heads = c->window_heads = 0;
    for (int i = 0; i < c->n_layers; i++) {
        int *of_kind = loader_window(l, i) > 0 ? &c->window_heads : &c->n_kv_heads, n = l->kv_heads[i];
        if (!loader_attends(l, i)) continue;
        if (n < 1)
            return status_error(QUILL_MODEL, "%s: %s.attention.head_count_kv: 1 to %d expected for layer %d, %d found",
                                l->file, c->arch, c->n_heads, i, n);
        if (c->n_heads % n)
            return status_error(QUILL_MODEL, "%s: %s.attention.head_count_kv: a divisor of %d heads expected, %d found",
                                l->file, c->arch, c->n_heads, n);
        if (*of_kind == 0) *of_kind = n;
        if (*of_kind != n)
            return status_error(QUILL_MODEL,
                                "%s: %s.attention.head_count_kv: %d in all layers %s a window expected, %d found for "
                                "layer %d",
                                l->file, c->arch, *of_kind, loader_window(l, i) > 0 ? "with" : "without", n, i);
    }
    if (c->n_kv_heads == 0) c->n_kv_heads = c->window_heads;
    if (c->n_kv_heads == 0) c->n_kv_heads = 1; // no layer has attention
    if (c->window_heads == 0) c->window_heads = c->n_kv_heads;
    return OK;
}

// Reads the width of heads of K; that of V must be the same.
static Status load_width(const Loader *l, const char *key_length, const char *value_length, int usual, int *out) {
    int value;
    TRY(loader_int(l, key_length, 1, SEAL_HEAD, false, usual, out));
    TRY(loader_int(l, value_length, 1, SEAL_HEAD, false, *out, &value));
    if (value == *out) return OK;
    return status_error(QUILL_MODEL, "%s: %s.%s: key_length's %d expected, %d found", l->file, l->m->c.arch,
                        value_length, *out, value);
}

static Status load_head_dim(const Loader *l) {
    ModelConfig *c = &l->m->c;
    char key[96];
    snprintf(key, sizeof key, "%s.attention.key_length", c->arch);
    if (!gguf_value(l->g, key) && c->dim % c->n_heads)
        return status_error(QUILL_MODEL,
                            "%s: %s.attention.head_count: a divisor of the embedding's %d expected, %d found", l->file,
                            c->arch, c->dim, c->n_heads);
    int natural = int_max(1, int_min(c->dim / c->n_heads, SEAL_HEAD));
    TRY(load_width(l, "attention.key_length", "attention.value_length", natural, &c->head_dim));
    return load_width(l, "attention.key_length_swa", "attention.value_length_swa", c->head_dim, &c->window_dim);
}

// The width of a head with compressed K and V: key_length_mla or value_length_mla. Older files, whose matrices of K and
// V are one tensor, call it key_length or value_length.
static Status load_latent_width(const Loader *l, const char *name, int low, int *out) {
    char key[96], newer[64];
    snprintf(newer, sizeof newer, "attention.%s_mla", name);
    snprintf(key, sizeof key, "%s.%s", l->family->arch, newer);
    bool older = loader_layer_has(l, 0, "attn_kv_b") && !gguf_value(l->g, key);
    snprintf(key, sizeof key, "attention.%s", name);
    return loader_int(l, older ? key : newer, low, MAX_RANK, true, 0, out);
}

// Compressed K and V: a slot stores kv_rank elements, from which K and V are computed, and n_rot rotated elements of K.
static Status load_latent(const Loader *l) {
    ModelConfig *c = &l->m->c;
    int n_rot;
    TRY(loader_int(l, "attention.kv_lora_rank", 1, SEAL_HEAD, true, 0, &c->kv_rank));
    TRY(loader_int(l, "rope.dimension_count", 2, SEAL_HEAD, true, 0, &n_rot));
    TRY(load_latent_width(l, "key_length", n_rot + 1, &c->q_head));
    TRY(load_latent_width(l, "value_length", 1, &c->v_head));
    c->head_dim = c->window_dim = c->kv_rank + n_rot;
    if (c->head_dim > SEAL_HEAD)
        return status_error(QUILL_MODEL, "%s: %s.attention.kv_lora_rank: at most %d expected, %d found", l->file,
                            c->arch, SEAL_HEAD - n_rot, c->kv_rank);
    c->n_kv_heads = c->window_heads = 1;
    return OK;
}

Status loader_attention_shape(Loader *l) {
    ModelConfig *c = &l->m->c;
    const Family *f = l->family;
    TRY(loader_int(l, "attention.head_count", 1, MAX_HEADS, true, 0, &c->n_heads));
    bool has_window = f->full_every > 0 && !f->window_optional && f->window == 0;
    int least = f->rope_in_windows && !f->window_optional; // a model without windows would have no RoPE at all
    TRY(loader_int(l, "attention.sliding_window", least, 1 << 30, has_window, f->window, &c->window));
    if (f->chunked) TRY(loader_int(l, "attention.chunk_size", 1, 1 << 30, false, f->window, &c->window));
    TRY(load_windowed(l));
    TRY(loader_int(l, "attention.shared_kv_layers", 0, c->n_layers - 1, false, 0, &c->n_shared_kv));
    if (f->latent && c->n_shared_kv > 0)
        return status_error(QUILL_MODEL,
                            "%s: %s.attention.shared_kv_layers: 0 with compressed K and V expected, %d found", l->file,
                            c->arch, c->n_shared_kv);
    find_sources(l);
    if (f->latent) return load_latent(l);
    TRY(load_kv_heads(l));
    TRY(load_head_dim(l));
    for (int i = 0; i < c->n_layers; i++) {
        c->n_windowed += loader_window(l, i) > 0;
        if (f->chunked && (loader_window(l, i) > 0) != ((i + 1) % f->full_every != 0))
            return status_error(QUILL_MODEL,
                                "%s: attention: chunks in all layers but each %dth expected, another kind found for "
                                "layer %d (%s.attention.sliding_window_pattern)",
                                l->file, f->full_every, i, c->arch);
        if (l->source[i] < 0)
            return status_error(QUILL_MODEL,
                                "%s: %s.attention.shared_kv_layers is %d: before layer %d a layer of its kind with K "
                                "and V of its own expected, none found",
                                l->file, c->arch, c->n_shared_kv, i);
    }
    return OK;
}

// ---- a layer --------------------------------------------------------------------------------------------------------

// The factor of the scores. With compressed K and V, YaRN scales the scores instead of cosines and sines.
static Status score_scale(const Loader *l, float *out) {
    const ModelConfig *c = &l->m->c;
    const Family *f = l->family;
    int width = c->n_layers == f->n_layers_by_dim ? c->dim / c->n_heads : f->latent ? c->q_head : c->head_dim;
    double scale = f->score_scale != 0 ? (double)f->score_scale : 1 / sqrt((double)width);
    float growth;
    TRY(loader_scale(l, "rope.scaling.yarn_log_multiplier", 0, &growth));
    if (f->latent && strcmp(c->rope_scaling, "yarn") == 0)
        scale *= pow(1 + (double)growth * log((double)c->rope_factor), 2);
    return loader_scale(l, "attention.scale", (float)scale, out);
}

Status loader_describe_heads(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    int window = loader_window(l, i), from = l->source[i], n_before = 0; // n_before: of the same pool, before `from`
    for (int k = 0; k < from; k++) n_before += loader_attends(l, k) && (loader_window(l, k) > 0) == (window > 0);
    y->heads = (Heads){.n_heads = c->n_heads,
                       .n_kv_heads = window > 0 ? c->window_heads : c->n_kv_heads,
                       .head_dim = window > 0 ? c->window_dim : c->head_dim,
                       .v_dim = l->family->latent ? c->kv_rank : 0,
                       .window = window,
                       .chunked = window > 0 && l->family->chunked};
    y->rope = l->m->ends.ropes[loader_layer_rope(l, i)];
    y->kv_kind = window > 0 ? KV_WINDOW : KV_FULL;
    y->kv_layer = n_before;
    for (int k = i + 1; k < c->n_layers && !y->kv_used_later; k++) y->kv_used_later = l->source[k] == from;
    TRY(score_scale(l, &y->heads.scale));
    return loader_cap(l, "attn_logit_softcapping", l->family->score_cap, &y->heads.softcap);
}

// Memory of the model for a stack of n matrices.
static void *own_stack(const Loader *l, Tensor *out, int type, int n, int n_out, int n_in) {
    const TypeInfo *info = type_info(type);
    size_t row = (size_t)n_in / (size_t)info->block * (size_t)info->bytes;
    size_t floats = ((size_t)n * (size_t)n_out * row + sizeof(float) - 1) / sizeof(float);
    void *data = loader_own_floats(l->m, floats);
    *out = (Tensor){.data = data, .type = type, .n_out = n_out, .n_in = n_in, .stack = n, .row_bytes = row};
    return data;
}

static void put_float(void *data, int type, size_t i, float v) {
    if (type == TYPE_F32) ((float *)data)[i] = v;
    else ((uint16_t *)data)[i] = type == TYPE_F16 ? float_half(v) : float_bf16(v);
}

// Older files have K and V of all heads in one tensor: for each head K's rows, then V's. Q takes those of K transposed.
// The model owns copies of both; K's are in f16 unless the file has a type without blocks.
static Status load_fused_latent(const Loader *l, int i, int plain) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    Tensor both;
    size_t rank = (size_t)c->kv_rank, v_rows = (size_t)c->v_head, rows = (size_t)plain + v_rows;
    TRY(loader_layer_matrix(l, i, "attn_kv_b", &both, c->n_heads * (int)rows, c->kv_rank));
    const TypeInfo *info = type_info(both.type);
    if (both.scales || both.bias || rank * rows * (size_t)c->n_heads > INT_MAX)
        return status_error(QUILL_MODEL,
                            "%s: tensor blk.%d.attn_kv_b.weight: a matrix without a bias in a type of GGUF expected, "
                            "found %s%s",
                            l->file, i, type_name(both.type), both.bias ? " with a bias" : "");
    int type = info->block == 1 ? both.type : TYPE_F16;
    void *k = own_stack(l, &y->k_b, type, c->n_heads, c->kv_rank, plain);
    char *v = own_stack(l, &y->v_b, both.type, c->n_heads, c->v_head, c->kv_rank);
    void *row = mem_alloc(both.row_bytes); // aligned, as dequantize needs it
    float *values = mem_alloc(rank * sizeof *values);
    for (size_t head = 0; head < (size_t)c->n_heads; head++) {
        const char *from = (const char *)both.data + head * rows * both.row_bytes;
        for (size_t d = 0; d < (size_t)plain; d++) {
            memcpy(row, from + d * both.row_bytes, both.row_bytes);
            info->dequantize(row, values, rank);
            for (size_t r = 0; r < rank; r++) put_float(k, type, (head * rank + r) * (size_t)plain + d, values[r]);
        }
        memcpy(v + head * v_rows * both.row_bytes, from + (size_t)plain * both.row_bytes, v_rows * both.row_bytes);
    }
    free(row);
    free(values);
    return OK;
}

static Status load_latent_layer(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    int plain = c->q_head - y->rope.n_rot, rank = c->dim;
    if (loader_layer_has(l, i, "attn_q_a")) {
        TRY(loader_int(l, "attention.q_lora_rank", 1, MAX_RANK, true, 0, &rank));
        TRY(loader_layer_matrix(l, i, "attn_q_a", &y->q_a, rank, c->dim));
        TRY(loader_layer_vector(l, i, "attn_q_a_norm", &y->norm_q_a, rank, true));
        TRY(loader_layer_matrix(l, i, "attn_q_b", &y->wq, c->n_heads * c->q_head, rank));
    } else TRY(loader_layer_matrix(l, i, "attn_q", &y->wq, c->n_heads * c->q_head, c->dim));
    TRY(loader_layer_matrix(l, i, "attn_kv_a_mqa", &y->wk, c->head_dim, c->dim));
    TRY(loader_layer_vector(l, i, "attn_kv_a_norm", &y->norm_k, c->kv_rank, true));
    if (loader_layer_has(l, i, "attn_kv_b") && !loader_layer_has(l, i, "attn_k_b")) TRY(load_fused_latent(l, i, plain));
    else {
        TRY(loader_layer_stack(l, i, "attn_k_b", &y->k_b, c->n_heads, c->kv_rank, plain));
        TRY(loader_layer_stack(l, i, "attn_v_b", &y->v_b, c->n_heads, c->v_head, c->kv_rank));
    }
    return loader_layer_matrix(l, i, "attn_output", &y->wo, c->dim, c->n_heads * c->v_head);
}

// The weights of a norm that has none in the file: all are 1.
static const float *ones(const Loader *l, int n) {
    float *all = loader_own_floats(l->m, (size_t)n);
    for (int i = 0; i < n; i++) all[i] = 1;
    return all;
}

static Status load_kv(const Loader *l, int i, int kv_dim) {
    const ModelConfig *c = &l->m->c;
    const Family *f = l->family;
    Layer *y = &l->m->layers[i];
    TRY(loader_layer_matrix(l, i, "attn_k", &y->wk, kv_dim, c->dim));
    TRY(loader_layer_vector(l, i, "attn_k_norm", &y->norm_k, layer_norm_k(y), f->qk_norm));
    if (f->v_norm) y->norm_v = ones(l, y->heads.head_dim);
    if (f->v_norm && !loader_layer_has(l, i, "attn_v")) return OK; // V is K
    return loader_layer_matrix(l, i, "attn_v", &y->wv, kv_dim, c->dim);
}

// Norms of Q and K that the file has no weights for (Family.turned_norm). Models with 128 experts (Maverick) have none.
static Status load_turned_norms(const Loader *l, Layer *y) {
    char key[96];
    bool has;
    snprintf(key, sizeof key, "%s.use_qk_norm", l->family->arch);
    TRY(gguf_bool(l->g, key, &has, l->m->c.n_experts != 128));
    if (has && l->family->turned_norm && y->rope.n_rot > 0) y->norm_q = y->norm_k = ones(l, y->heads.head_dim);
    return OK;
}

Status loader_attention(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    if (l->family->latent) return load_latent_layer(l, i);
    int q_dim = c->n_heads * y->heads.head_dim, kv_dim = y->heads.n_kv_heads * y->heads.head_dim;
    bool normed = l->family->qk_norm;
    FusedPart qkv[] = {{&y->wq, q_dim}, {&y->wk, kv_dim}, {&y->wv, kv_dim}};
    if (y->kind.gate != GATE_IN_WQ && loader_layer_has(l, i, "attn_qkv")) { // which has no rows for gates
        if (!owns_kv(c, i))
            return status_error(
                QUILL_MODEL,
                "%s: %s.attention.shared_kv_layers is %d: no tensor blk.%d.attn_qkv.weight, which has K "
                "and V of layer %d, expected",
                l->file, c->arch, c->n_shared_kv, i, i);
        TRY(loader_layer_fused(l, i, "attn_qkv", qkv, 3, c->dim));
        TRY(loader_layer_vector(l, i, "attn_k_norm", &y->norm_k, layer_norm_k(y), normed));
    } else {
        TRY(loader_layer_matrix(l, i, "attn_q", &y->wq, y->kind.gate == GATE_IN_WQ ? 2 * q_dim : q_dim, c->dim));
        if (owns_kv(c, i)) TRY(load_kv(l, i, kv_dim));
    }
    if (y->kind.gate == GATE_OWN) TRY(loader_layer_matrix(l, i, "attn_gate", &y->w_mix, q_dim, c->dim));
    if (l->family->sinks) TRY(loader_layer_vector(l, i, "attn_sinks", &y->sinks, c->n_heads, true));
    TRY(loader_layer_vector(l, i, "attn_q_norm", &y->norm_q, layer_norm_q(y), normed));
    TRY(load_turned_norms(l, y));
    if (l->branches != 1 && (y->norm_q || y->norm_k))
        return status_error(QUILL_MODEL, "%s: %s.residual_scale: none expected with norms of Q and K, %g found",
                            l->file, c->arch, (double)l->branches);
    if (l->family->layer_norms && (y->norm_q || y->norm_k))
        return status_error(QUILL_MODEL,
                            "%s: tensor blk.%d.attn_%c_norm.weight: none expected in %s models, whose norms are "
                            "LayerNorms, one found",
                            l->file, i, y->norm_q ? 'q' : 'k', c->arch);
    return loader_layer_matrix(l, i, "attn_output", &y->wo, c->dim, q_dim);
}
