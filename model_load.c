// model_load.c: a model file becomes a Model (model.h): hyper-parameters, the weights of each layer; and what the
// weights amount to.
#include "load/loader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIM = 1 << 24, MAX_HEADS = 1 << 12 };

// ---- hyper-parameters -----------------------------------------------------------------------------------------------

static Status find_family(Loader *l) {
    Str arch;
    TRY(gguf_str(l->g, "general.architecture", &arch, true));
    l->family = family_find(arch);
    if (!l->family)
        return status_error(QUILL_MODEL, "%s: general.architecture: one of %s expected, %.*s found", l->file,
                            families_list(), (int)(arch.n < 64 ? arch.n : 64), arch.data);
    return OK;
}

// Files may list their layers: sliding_window_pattern as an array of booleans.
static Status load_windowed(Loader *l, int n_layers) {
    char key[96];
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", l->family->arch);
    const GgufValue *v = gguf_value(l->g, key);
    if (!v || v->type != GGUF_ARRAY || v->elem_type != GGUF_BOOL) return OK;
    if (v->n != (uint64_t)n_layers)
        return status_error(QUILL_MODEL, "%s: %s: one for each of the %d layers expected, %llu found", l->file, key,
                            n_layers, (unsigned long long)v->n);
    l->windowed = v->data;
    return OK;
}

static Status load_scales(Loader *l) {
    l->embedding = l->branches = l->logits = 1;
    TRY(loader_scale(l, "attention.scale", 0, &l->scores)); // Gemma's in directories too
    if (!l->family->scales) return OK;
    float divisor;
    TRY(loader_scale(l, "embedding_scale", 1, &l->embedding));
    TRY(loader_scale(l, "residual_scale", 1, &l->branches));
    TRY(loader_scale(l, "logit_scale", 1, &divisor));
    l->logits = 1 / divisor;
    return OK;
}

// What files of a known family may have that is not computed here.
static Status refuse_unsupported(const Loader *l) {
    static const struct {
        const char *suffix, *what;
    } features[] = {{"nextn_predict_layers", "layers that predict more than the next token"}};
    for (size_t i = 0; i < ARRAY_LEN(features); i++) {
        int n;
        TRY(loader_int(l, features[i].suffix, 0, 1 << 30, false, 0, &n));
        if (n > 0)
            return status_error(QUILL_MODEL, "%s: %s.%s is %d: %s are not supported", l->file, l->family->arch,
                                features[i].suffix, n, features[i].what);
    }
    return OK;
}

static Status load_shape(Loader *l) {
    ModelConfig *c = &l->m->c;
    snprintf(c->arch, sizeof c->arch, "%s", l->family->arch);
    Str name;
    TRY(gguf_str(l->g, "general.name", &name, false));
    snprintf(c->name, sizeof c->name, "%.*s", (int)(name.n < 127 ? name.n : 127), name.data ? name.data : "");
    TRY(refuse_unsupported(l));
    if (gguf_n_tensors(l->g) == 0)
        return status_error(QUILL_MODEL, "%s: weights expected, but the file has no tensors (a vocabulary alone?)",
                            l->file);
    // A layer has at least six tensors, so their number bounds the layers before anything is allocated.
    int most_layers = int_max(1, gguf_n_tensors(l->g) / 6);
    TRY(loader_int(l, "block_count", 1, most_layers, true, 0, &c->n_layers));
    TRY(loader_int(l, "embedding_length", 1, MAX_DIM, true, 0, &c->dim));
    TRY(loader_experts_shape(l));
    TRY(loader_int(l, "attention.head_count", 1, MAX_HEADS, true, 0, &c->n_heads));
    TRY(loader_int(l, "attention.head_count_kv", 1, c->n_heads, false, c->n_heads, &c->n_kv_heads));
    TRY(loader_int(l, "context_length", 1, 1 << 30, true, 0, &c->n_ctx_train));
    if (c->n_heads % c->n_kv_heads)
        return status_error(QUILL_MODEL, "%s: %s.attention.head_count_kv: a divisor of %d heads expected, %d found",
                            l->file, c->arch, c->n_heads, c->n_kv_heads);
    char key[96];
    snprintf(key, sizeof key, "%s.attention.key_length", c->arch);
    if (!gguf_value(l->g, key) && c->dim % c->n_heads)
        return status_error(QUILL_MODEL,
                            "%s: %s.attention.head_count: a divisor of the embedding's %d expected, %d found", l->file,
                            c->arch, c->dim, c->n_heads);
    int value_length;
    int natural = int_max(1, int_min(c->dim / c->n_heads, SEAL_HEAD));
    TRY(loader_int(l, "attention.key_length", 1, SEAL_HEAD, false, natural, &c->head_dim));
    TRY(loader_int(l, "attention.value_length", 1, SEAL_HEAD, false, c->head_dim, &value_length));
    if (value_length != c->head_dim)
        return status_error(QUILL_MODEL, "%s: %s.attention.value_length: key_length's %d expected, %d found", l->file,
                            c->arch, c->head_dim, value_length);
    TRY(loader_float(l, "attention.layer_norm_rms_epsilon", true, 0, &c->eps));
    bool has_window = l->family->full_every > 0 && !l->family->window_optional;
    TRY(loader_int(l, "attention.sliding_window", 0, 1 << 30, has_window, 0, &c->window));
    TRY(load_windowed(l, c->n_layers));
    for (int i = 0; i < c->n_layers; i++) c->n_windowed += loader_window(l, i) > 0;
    return OK;
}

// ---- layers ---------------------------------------------------------------------------------------------------------

// x += r * branch(norm(x)) with one r for all branches is y += branch(norm'(y)) for y = x / r, since a norm divides by
// the size of its input: the embedding is divided by r, and norm' has eps / r^2.
static float scaled_eps(const Loader *l) { return l->m->c.eps / (l->branches * l->branches); }

// What layer i is, without its weights.
static Status describe_layer(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    const Ends *e = &l->m->ends;
    const Family *f = l->family;
    int window = loader_window(l, i), width = c->n_layers == f->n_layers_by_dim ? c->dim / c->n_heads : c->head_dim;
    float scale;
    TRY(loader_float(l, "attention.scale", false, (float)(1 / sqrt((double)width)), &scale));
    int n_before = 0; // layers of its pool
    for (int k = 0; k < i; k++) n_before += (loader_window(l, k) > 0) == (window > 0);
    l->m->layers[i] = (Layer){
        .kind =
            {.mixer = MIXER_ATTENTION, .ffn = FFN_GATED, .act = f->act, .qk_norm = f->qk_norm_of, .eps = scaled_eps(l)},
        .heads = {.n_heads = c->n_heads,
                  .n_kv_heads = c->n_kv_heads,
                  .head_dim = c->head_dim,
                  .window = window,
                  .scale = l->scores != 0 ? l->scores : (float)(1 / sqrt((double)width))},
        .rope = e->ropes[loader_layer_rope(l, i)],
        .index = i,
        .kv_kind = window > 0 ? KV_WINDOW : KV_FULL,
        .kv_layer = n_before,
        .be = l->m->be,
    };
    return loader_cap(l, "attn_logit_softcapping", &l->m->layers[i].heads.softcap);
}

static Status load_attention(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    int q_dim = c->n_heads * c->head_dim, kv_dim = c->n_kv_heads * c->head_dim;
    bool normed = l->family->qk_norm;
    FusedPart qkv[] = {{&y->wq, q_dim}, {&y->wk, kv_dim}, {&y->wv, kv_dim}};
    if (loader_layer_has(l, i, "attn_qkv")) {
        TRY(loader_layer_fused(l, i, "attn_qkv", qkv, 3, c->dim));
    } else {
        TRY(loader_layer_matrix(l, i, "attn_q", &y->wq, q_dim, c->dim));
        TRY(loader_layer_matrix(l, i, "attn_k", &y->wk, kv_dim, c->dim));
        TRY(loader_layer_matrix(l, i, "attn_v", &y->wv, kv_dim, c->dim));
    }
    if (l->family->sinks) TRY(loader_layer_vector(l, i, "attn_sinks", &y->sinks, c->n_heads, true));
    TRY(loader_layer_vector(l, i, "attn_q_norm", &y->norm_q, layer_norm_q(y), normed));
    TRY(loader_layer_vector(l, i, "attn_k_norm", &y->norm_k, layer_norm_k(y), normed));
    if (l->branches != 1 && (y->norm_q || y->norm_k))
        return status_error(QUILL_MODEL, "%s: %s.residual_scale: none expected with norms of Q and K, %g found",
                            l->file, c->arch, (double)l->branches);
    return loader_layer_matrix(l, i, "attn_output", &y->wo, c->dim, q_dim);
}

static Status load_ffn(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    char name[96];
    snprintf(name, sizeof name, "blk.%d.ffn_up.weight", i);
    const GgufTensor *up = gguf_tensor(l->g, name);
    FusedPart gate_up[] = {{&y->w_gate, c->ffn}, {&y->w_up, c->ffn}};
    if (!loader_layer_has(l, i, "ffn_gate") && up && up->dims[1] == 2 * (uint64_t)c->ffn) {
        TRY(loader_layer_fused(l, i, "ffn_up", gate_up, 2, c->dim));
    } else {
        TRY(loader_layer_matrix(l, i, "ffn_gate", &y->w_gate, c->ffn, c->dim));
        TRY(loader_layer_matrix(l, i, "ffn_up", &y->w_up, c->ffn, c->dim));
    }
    return loader_layer_matrix(l, i, "ffn_down", &y->w_down, c->dim, c->ffn);
}

static Status load_layer(const Loader *l, int i) {
    int dim = l->m->c.dim;
    Layer *y = &l->m->layers[i];
    bool before = !l->family->no_norms_before, behind = l->family->norms_behind;
    TRY(describe_layer(l, i));
    if (before) TRY(loader_layer_vector(l, i, "attn_norm", &y->norm_att, dim, true));
    TRY(load_attention(l, i));
    if (behind) TRY(loader_layer_vector(l, i, "post_attention_norm", &y->norm_att_out, dim, true));
    const char *ffn_norm = l->family->ffn_norm ? l->family->ffn_norm : "ffn_norm";
    if (before) TRY(loader_layer_vector(l, i, ffn_norm, &y->norm_ffn, dim, true));
    TRY(l->m->c.n_experts > 0 ? loader_experts(l, i) : load_ffn(l, i));
    if (behind) TRY(loader_layer_vector(l, i, "post_ffw_norm", &y->norm_ffn_out, dim, true));
    return OK;
}

static Status load_ends(const Loader *l) {
    Ends *e = &l->m->ends;
    ModelConfig *c = &l->m->c;
    const GgufTensor *embd = gguf_tensor(l->g, "token_embd.weight");
    if (!embd || embd->n_dims != 2 || embd->dims[1] > MAX_DIM)
        return status_error(QUILL_MODEL, "%s: tensor token_embd.weight: %d x (up to %d) expected, %s found", l->file,
                            c->dim, MAX_DIM, embd ? "another shape" : "none");
    c->n_vocab = (int)embd->dims[1];
    const GgufValue *tokens = gguf_value(l->g, "tokenizer.ggml.tokens");
    if (tokens && tokens->type == GGUF_ARRAY && tokens->n > (uint64_t)c->n_vocab)
        return status_error(QUILL_MODEL,
                            "%s: tokenizer.ggml.tokens: at most the embedding's %d tokens expected, %llu found",
                            l->file, c->n_vocab, (unsigned long long)tokens->n);
    e->eps = scaled_eps(l);
    e->embd_scale = l->family->embd_sqrt ? sqrtf((float)c->dim) : l->embedding / l->branches;
    TRY(loader_cap(l, "final_logit_softcapping", &e->softcap));
    TRY(loader_matrix(l, &e->tok_embd, "token_embd.weight", c->n_vocab, c->dim));
    TRY(loader_vector(l, &e->norm_out, "output_norm.weight", c->dim, true));
    if (l->logits != 1) {
        float *norm = loader_own_floats(l->m, c->dim);
        for (int i = 0; i < c->dim; i++) norm[i] = e->norm_out[i] * l->logits;
        e->norm_out = norm;
    }
    c->tied = !gguf_tensor(l->g, "output.weight");
    if (c->tied) e->head = e->tok_embd;
    else TRY(loader_matrix(l, &e->head, "output.weight", c->n_vocab, c->dim));
    return OK;
}

static Status load_all(Loader *l) {
    TRY(find_family(l));
    TRY(load_scales(l));
    TRY(load_shape(l));
    TRY(loader_rope(l));
    TRY(load_ends(l));
    l->m->layers = mem_alloc((size_t)l->m->c.n_layers * sizeof *l->m->layers);
    for (int i = 0; i < l->m->c.n_layers; i++) TRY(load_layer(l, i));
    return OK;
}

Status model_load(Model *m, const Gguf *g, const Backend *be) {
    *m = (Model){.be = be, .gguf = g};
    m->used = mem_alloc((size_t)gguf_n_tensors(g) * sizeof *m->used);
    Loader l = {.m = m, .g = g, .file = gguf_name(g)};
    Status st = load_all(&l);
    if (st.code) model_free(m);
    return st;
}

void model_free(Model *m) {
    if (m->on_device) m->device->memory->unload(m->on_device);
    for (int i = 0; i < m->n_owned; i++) free(m->owned[i]);
    free(m->owned);
    free(m->used);
    free(m->layers);
    for (int i = 0; i < m->ends.n_ropes; i++) free((double *)m->ends.ropes[i].freq);
    for (int i = 0; i < 2; i++) free(m->context_freq[i]);
    *m = (Model){0};
}

// ---- what it holds --------------------------------------------------------------------------------------------------

// Calls visit with each matrix of the model, a tied head once.
static void each_matrix(const Model *m, void (*visit)(const Tensor *t, void *arg), void *arg) {
    visit(&m->ends.tok_embd, arg);
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *y = &m->layers[i];
#define VISIT(field) visit(&y->field, arg);
        EACH_LAYER_MATRIX(VISIT)
    }
    if (!m->c.tied) visit(&m->ends.head, arg);
}

static void add_bytes(const Tensor *t, void *arg) {
    size_t n = tensor_rows(t) * t->row_bytes;
    if (t->scales) n += tensor_rows(t) * (size_t)t->n_in / (size_t)t->group * sizeof(float);
    *(size_t *)arg += n;
}

static void add_params(const Tensor *t, void *arg) { *(size_t *)arg += tensor_rows(t) * (size_t)t->n_in; }

int layer_norm_floats(const Layer *l, int dim) {
    int n = 0;
#define ADD_NORM(field, size) n += l->field ? (size) : 0;
    EACH_LAYER_VECTOR(ADD_NORM, dim, l->heads.n_heads, layer_norm_q(l), layer_norm_k(l))
    return n;
}

static size_t norm_params(const Model *m) {
    size_t n = (size_t)m->c.dim;
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *y = &m->layers[i];
        n += (size_t)layer_norm_floats(y, m->c.dim);
#define ADD_BIAS(field) n += y->field.bias ? tensor_rows(&y->field) : 0;
        EACH_LAYER_MATRIX(ADD_BIAS)
    }
    return n;
}

bool model_uses(const Model *m, int tensor) { return m->used[tensor]; }

size_t model_weight_bytes(const Model *m) {
    size_t n = norm_params(m) * sizeof(float);
    each_matrix(m, add_bytes, &n);
    return n;
}

size_t model_n_params(const Model *m) {
    size_t n = norm_params(m);
    each_matrix(m, add_params, &n);
    return n;
}

// What a row does not use: all experts of a layer but those that it takes.
static size_t idle(const Model *m, void (*add)(const Tensor *t, void *arg), size_t of_bias) {
    size_t n = 0;
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *y = &m->layers[i];
        const Tensor *stacks[] = {&y->w_gate, &y->w_up, &y->w_down};
        for (size_t k = 0; k < ARRAY_LEN(stacks) && y->kind.ffn == FFN_EXPERTS; k++) {
            Tensor one = tensor_of_stack(stacks[k], 0);
            size_t each = one.bias ? (size_t)one.n_out * of_bias : 0;
            add(&one, &each);
            n += each * (size_t)(y->kind.n_experts - y->kind.n_used);
        }
    }
    return n;
}

size_t model_active_bytes(const Model *m) { return model_weight_bytes(m) - idle(m, add_bytes, sizeof(float)); }

size_t model_active_params(const Model *m) { return model_n_params(m) - idle(m, add_params, 1); }

static Status not_finite(const Model *m, const GgufTensor *t, double value, size_t element) {
    return status_error(QUILL_MODEL, "%s: tensor %.*s: finite weights expected, %g found at element %zu",
                        gguf_name(m->gguf), (int)t->name.n, t->name.data, value, element);
}

static Status check_scales(const Model *m, const GgufTensor *t) { // int8 values are finite, their scales may not be
    for (size_t i = 0; i < t->n_bytes / (size_t)t->group; i++) {
        float scale;
        memcpy(&scale, (const char *)t->scales + i * sizeof scale, sizeof scale);
        if (!isfinite(scale)) return not_finite(m, t, (double)scale, i * (size_t)t->group);
    }
    return OK;
}

static Status check_values(const Model *m, const GgufTensor *t, const TypeInfo *info) {
    float values[QK_K]; // whole blocks of every type
    size_t block = (size_t)info->block, n = t->n_bytes / (size_t)info->bytes * block;
    for (size_t done = 0; done < n; done += QK_K) {
        size_t now = n - done < QK_K ? n - done : QK_K;
        info->dequantize((const char *)t->data + done / block * (size_t)info->bytes, values, now);
        for (size_t k = 0; k < now; k++)
            if (!isfinite(values[k])) return not_finite(m, t, (double)values[k], done + k);
    }
    return OK;
}

Status model_check_tensors(const Model *m) {
    for (int i = 0; i < gguf_n_tensors(m->gguf); i++) {
        const GgufTensor *t = gguf_tensor_at(m->gguf, i);
        const TypeInfo *info = type_info(t->type);
        if (!info) continue;
        TRY(info->dequantize ? check_values(m, t, info) : check_scales(m, t));
    }
    return OK;
}
