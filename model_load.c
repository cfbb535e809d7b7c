// model_load.c: makes a Model (model.h) from a model file: hyper-parameters and the weights of each layer. Also counts
// and checks the weights.
#include "load/loader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIM = 1 << 24 };

// ---- hyper-parameters -----------------------------------------------------------------------------------------------

static Status find_family(Loader *l) {
    Str arch;
    TRY(gguf_str(l->g, "general.architecture", &arch, true));
    l->family = family_find(arch);
    if (!l->family)
        return status_error(QUILL_MODEL,
                            "%s: general.architecture: a supported one expected, %.*s found; supported are %s", l->file,
                            (int)(arch.n < 64 ? arch.n : 64), arch.data, families_list());
    return OK;
}

// A key of Family.scales, without which the scale is 1.
static Status load_scale(const Loader *l, const char *suffix, float *out) {
    if (l->family->scales_required) return loader_float(l, suffix, true, 1, out);
    return loader_scale(l, suffix, 1, out);
}

static Status load_scales(Loader *l) {
    l->embedding = l->branches = l->logits = 1;
    if (l->family->logit_factor) return loader_scale(l, "logit_scale", 1, &l->logits);
    if (!l->family->scales) return OK;
    float divisor;
    TRY(load_scale(l, "embedding_scale", &l->embedding));
    TRY(load_scale(l, "residual_scale", &l->branches));
    TRY(load_scale(l, "logit_scale", &divisor));
    l->logits = 1 / divisor;
    return OK;
}

// Reads the number of layers. A file counts the layers of its multi-token prediction heads ("nextn") too; they come
// last, and the model is complete without them.
static Status load_n_layers(const Loader *l) {
    ModelConfig *c = &l->m->c;
    // A layer has at least six tensors, or three if it is a feed-forward alone. So the number of tensors bounds that of
    // layers before anything is allocated.
    int least = l->family->parts_apart ? 3 : 6;
    TRY(loader_int(l, "block_count", 1, int_max(1, gguf_n_tensors(l->g) / least), true, 0, &c->n_layers));
    TRY(loader_int(l, "nextn_predict_layers", 0, c->n_layers - 1, false, 0, &c->n_mtp));
    c->n_layers -= c->n_mtp;
    for (int i = c->n_layers; i < c->n_layers + c->n_mtp; i++)
        if (!loader_layer_has(l, i, "nextn.eh_proj"))
            return status_error(QUILL_MODEL,
                                "%s: %s.nextn_predict_layers is %d: tensor blk.%d.nextn.eh_proj.weight expected, none "
                                "found",
                                l->file, c->arch, c->n_mtp, i);
    c->n_layers += l->head; // the head's layer counts as the last one until model_load_head
    c->n_mtp -= l->head;
    return OK;
}

static Status load_shape(Loader *l) {
    ModelConfig *c = &l->m->c;
    snprintf(c->arch, sizeof c->arch, "%s", l->family->arch);
    Str name;
    TRY(gguf_str(l->g, "general.name", &name, false));
    snprintf(c->name, sizeof c->name, "%.*s", (int)(name.n < 127 ? name.n : 127), name.data ? name.data : "");
    if (gguf_n_tensors(l->g) == 0)
        return status_error(QUILL_MODEL, "%s: weights expected, but the file has no tensors (a vocabulary alone?)",
                            l->file);
    TRY(load_n_layers(l));
    TRY(loader_int(l, "embedding_length", 1, MAX_DIM, true, 0, &c->dim));
    TRY(loader_experts_shape(l));
    TRY(loader_int(l, "context_length", 1, 1 << 30, true, 0, &c->n_ctx_train));
    char key[96]; // files of nemotron_h may have the other name alone
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", c->arch);
    bool other = l->family->layer_norms || (l->family->parts_apart && !gguf_value(l->g, key));
    TRY(loader_float(l, other ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", true, 0, &c->eps));
    TRY(loader_recurrent_shape(l));
    TRY(loader_attention_shape(l));
    return OK;
}

// ---- layers ---------------------------------------------------------------------------------------------------------

// Files of some families multiply what each branch (mixer or feed-forward) adds to x by one factor r. Since a norm
// divides by the size of its input, x += r * branch(norm(x)) equals y += branch(norm'(y)) for y = x / r. So the
// embedding is divided by r, and norm' has eps / r^2.
static float scaled_eps(const Loader *l) { return l->m->c.eps / (l->branches * l->branches); }

// Sets the hyper-parameters of layer i.
static Status describe_layer(const Loader *l, int i) {
    const Family *f = l->family;
    l->m->layers[i] = (Layer){
        .kind = {.mixer = f->latent ? MIXER_LATENT : MIXER_ATTENTION,
                 .ffn = FFN_GATED,
                 .act = f->act,
                 .qk_norm = f->qk_norm_of,
                 .gate = f->gate,
                 .eps = scaled_eps(l),
                 .eps_out = f->eps_out,
                 .centred = f->layer_norms,
                 .parallel = f->parallel},
        .index = i,
        .state_layer = -1,
        .be = l->m->be,
    };
    return loader_describe_heads(l, i);
}

static Status load_ffn(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    int ffn = l->ffn[i];
    char name[96];
    snprintf(name, sizeof name, "blk.%d.ffn_up.weight", i);
    const GgufTensor *up = gguf_tensor(l->g, name);
    if (l->family->ungated) {
        TRY(loader_layer_matrix(l, i, "ffn_up", &y->w_gate, ffn, c->dim));
        if (y->kind.act == ACT_XIELU) TRY(loader_xielu(l, i));
        return loader_layer_matrix(l, i, "ffn_down", &y->w_down, c->dim, ffn);
    }
    FusedPart gate_up[] = {{&y->w_gate, ffn}, {&y->w_up, ffn}};
    if (!loader_layer_has(l, i, "ffn_gate") && up && up->dims[1] == 2 * (uint64_t)ffn) {
        TRY(loader_layer_fused(l, i, "ffn_up", gate_up, 2, c->dim));
    } else {
        TRY(loader_layer_matrix(l, i, "ffn_gate", &y->w_gate, ffn, c->dim));
        TRY(loader_layer_matrix(l, i, "ffn_up", &y->w_up, ffn, c->dim));
    }
    return loader_layer_matrix(l, i, "ffn_down", &y->w_down, c->dim, ffn);
}

// Loads the last parts of a layer: the factor of its output, and the matrices of per-layer embeddings.
static Status load_layer_end(const Loader *l, int i) {
    Layer *y = &l->m->layers[i];
    int dim = l->m->c.dim, per = l->m->ends.per;
    const float *scale;
    TRY(loader_layer_vector(l, i, "layer_output_scale", &scale, 1, false));
    if (scale) y->kind.out_scale = *scale;
    if (scale && (!isfinite(*scale) || *scale == 0))
        return status_error(QUILL_MODEL,
                            "%s: tensor blk.%d.layer_output_scale.weight: a number other than 0 expected, "
                            "%g found",
                            l->file, i, (double)*scale);
    if (per == 0) return OK;
    TRY(loader_layer_matrix(l, i, "inp_gate", &y->per_gate, per, dim));
    TRY(loader_layer_matrix(l, i, "proj", &y->per_out, dim, per));
    return loader_layer_vector(l, i, "post_norm", &y->norm_per, dim, true);
}

static Status load_mixer(const Loader *l, int i) {
    int dim = l->m->c.dim;
    Layer *y = &l->m->layers[i];
    if (!l->family->no_norms_before) TRY(loader_layer_vector(l, i, "attn_norm", &y->norm_att, dim, true));
    TRY(loader_is_recurrent(l, i) ? loader_recurrent(l, i) : loader_attention(l, i));
    if (!l->family->norms_behind) return OK;
    return loader_layer_vector(l, i, "post_attention_norm", &y->norm_att_out, dim, true);
}

// Makes layer i one without a mixer.
static void leave_mixer_out(Layer *y) {
    y->kind.mixer = MIXER_NONE;
    y->kv_kind = y->kv_layer = -1;
    y->rope = (Rope){.mscale = 1, .span = 1};
}

static Status load_layer(const Loader *l, int i) {
    int dim = l->m->c.dim;
    Layer *y = &l->m->layers[i];
    bool before = !l->family->no_norms_before, behind = l->family->norms_behind;
    TRY(describe_layer(l, i));
    if (loader_mixes(l, i)) TRY(load_mixer(l, i));
    else leave_mixer_out(y);
    if (!loader_feeds(l, i)) {
        y->kind.ffn = FFN_NONE;
        return load_layer_end(l, i);
    }
    const char *ffn_norm = l->family->ffn_norm ? l->family->ffn_norm : "ffn_norm";
    if (l->family->parallel) y->norm_ffn = y->norm_att;
    else if (before) TRY(loader_layer_vector(l, i, ffn_norm, &y->norm_ffn, dim, true));
    TRY(loader_has_experts(l, i) ? loader_experts(l, i) : load_ffn(l, i));
    if (behind) TRY(loader_layer_vector(l, i, "post_ffw_norm", &y->norm_ffn_out, dim, true));
    return load_layer_end(l, i);
}

// Loads the per-layer embeddings (Ends.per).
static Status load_per_layer(const Loader *l) {
    Ends *e = &l->m->ends;
    const ModelConfig *c = &l->m->c;
    int most = MAX_DIM / c->n_layers;
    if (l->head) return OK;
    TRY(loader_int(l, "embedding_length_per_layer_input", 0, most, false, 0, &e->per));
    if (e->per == 0) return OK;
    TRY(loader_matrix(l, &e->per_embd, "per_layer_token_embd.weight", c->n_vocab, c->n_layers * e->per));
    TRY(loader_matrix(l, &e->per_proj, "per_layer_model_proj.weight", c->n_layers * e->per, c->dim));
    return loader_vector(l, &e->norm_per, "per_layer_proj_norm.weight", e->per, true);
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
    e->centred = l->family->layer_norms;
    e->embd_scale = l->family->embd_sqrt ? sqrtf((float)c->dim) : l->embedding / l->branches;
    if (l->family->embd_norm) e->embd_eps = e->eps;
    TRY(loader_cap(l, "final_logit_softcapping", l->family->logit_cap, &e->softcap));
    TRY(loader_matrix(l, &e->tok_embd, "token_embd.weight", c->n_vocab, c->dim));
    const char *norm_out = l->family->norm_out ? l->family->norm_out : "output_norm";
    char name[64];
    snprintf(name, sizeof name, "%s.weight", norm_out);
    TRY(loader_vector(l, &e->norm_out, name, c->dim, true));
    if (l->logits != 1) {
        float *norm = loader_own_floats(l->m, (size_t)c->dim);
        for (int i = 0; i < c->dim; i++) norm[i] = e->norm_out[i] * l->logits;
        e->norm_out = norm;
    }
    c->tied = !gguf_tensor(l->g, "output.weight");
    if (c->tied) e->head = e->tok_embd;
    else TRY(loader_matrix(l, &e->head, "output.weight", c->n_vocab, c->dim));
    return load_per_layer(l);
}

static Status check_causal(const Loader *l) {
    char key[96];
    bool causal;
    snprintf(key, sizeof key, "%s.attention.causal", l->family->arch);
    TRY(gguf_bool(l->g, key, &causal, true));
    if (causal) return OK;
    return status_error(QUILL_MODEL,
                        "%s: %s: true expected, false found: tokens of this model see the tokens after them, and quill "
                        "computes a text from left to right",
                        l->file, key);
}

// Whether a tensor is K or V of a layer that uses those of an earlier layer: checkpoints of Gemma 4 have them.
static bool is_shared_kv(const Loader *l, int layer, const char *name) {
    return l->source[layer] != layer && (strstr(name, ".attn_k") || strstr(name, ".attn_v"));
}

// Tensors of a layer that are not used would change the results, and so would a bias of the head. Some files have
// frequencies of RoPE that the program computes, and both forms of compressed K and V.
static Status check_unused(const Loader *l) {
    static const char *const spare[] = {"attn_rot_embd.weight", "attn_kv_b.weight"};
    for (int i = 0; i < gguf_n_tensors(l->g) && !l->head; i++) {
        Str name = gguf_tensor_at(l->g, i)->name;
        int layer = -1;
        char text[64]; // longer than any name
        snprintf(text, sizeof text, "%.*s", (int)name.n, name.data);
        bool head = str_is(name, "output.bias") || str_is(name, "output.scale");
        bool part = sscanf(text, "blk.%d.", &layer) == 1 && layer < l->m->c.n_layers;
        for (size_t k = 0; k < ARRAY_LEN(spare); k++) part &= !str_has_suffix(name, spare[k]);
        part = part && !is_shared_kv(l, layer, text);
        if ((head || part) && !l->m->used[i])
            return status_error(QUILL_MODEL,
                                "%s: tensor %s: none expected, one found: its values change the results, and quill "
                                "does not compute with it in %s models",
                                l->file, text, l->m->c.arch);
    }
    return OK;
}

static Status load_all(Loader *l) {
    TRY(find_family(l));
    TRY(check_causal(l));
    TRY(load_scales(l));
    TRY(load_shape(l));
    TRY(loader_rope(l));
    TRY(load_ends(l));
    l->m->layers = mem_alloc((size_t)l->m->c.n_layers * sizeof *l->m->layers);
    int first = l->head ? l->m->c.n_layers - 1 : 0;
    for (int i = first; i < l->m->c.n_layers; i++) TRY(load_layer(l, i));
    return l->head ? loader_head(l, first) : check_unused(l);
}

static Status load_model(Model *m, const Gguf *g, const Backend *be, bool head) {
    *m = (Model){.be = be, .gguf = g};
    m->used = mem_alloc((size_t)gguf_n_tensors(g) * sizeof *m->used);
    Loader l = {.m = m, .g = g, .file = gguf_name(g), .head = head};
    Status st = load_all(&l);
    free(l.kv_heads);
    free(l.ffn);
    free(l.windowed);
    free(l.recurrent);
    free(l.feeds_only);
    free(l.source);
    if (st.code) model_free(m);
    return st;
}

Status model_load(Model *m, const Gguf *g, const Backend *be) { return load_model(m, g, be, false); }

Status model_load_head(Model *head, const Model *m) {
    *head = (Model){0};
    TRY(loader_check_head(m));
    return load_model(head, m->gguf, m->be, true);
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

// ---- counting weights -----------------------------------------------------------------------------------------------

// Calls visit with each matrix of the model, a tied head once.
static void each_matrix(const Model *m, void (*visit)(const Tensor *t, void *arg), void *arg) {
    visit(&m->ends.tok_embd, arg);
    visit(&m->ends.per_embd, arg);
    visit(&m->ends.per_proj, arg);
    visit(&m->ends.join, arg);
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *y = &m->layers[i];
#define VISIT(field) visit(&y->field, arg);
        EACH_LAYER_MATRIX(VISIT)
    }
    if (!m->c.tied) visit(&m->ends.head, arg);
}

static void add_bytes(const Tensor *t, void *arg) { *(size_t *)arg += tensor_bytes(t); }

static void add_params(const Tensor *t, void *arg) {
    *(size_t *)arg += tensor_rows(t) * ((size_t)t->n_in + (t->bias ? 1 : 0));
}

int layer_norm_floats(const Layer *l, int dim) {
    int n = 0;
#define ADD_NORM(field, size) n += l->field ? (size) : 0;
    EACH_LAYER_VECTOR(ADD_NORM, dim, l->heads.n_heads, layer_norm_q(l), layer_norm_k(l))
    EACH_FAMILY_VECTOR(ADD_NORM, dim, l)
    EACH_RECURRENT_VECTOR(ADD_NORM, l)
    return n + (l->kind.out_scale != 0);
}

static size_t norm_params(const Model *m) {
    size_t n = (size_t)m->c.dim * (m->ends.join.data ? 3 : 1) + (size_t)m->ends.per;
    for (int i = 0; i < m->c.n_layers; i++) n += (size_t)layer_norm_floats(&m->layers[i], m->c.dim);
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

// The bytes or parameters that one row does not use: of each layer n_experts - n_used experts. add: add_bytes or
// add_params.
static size_t idle(const Model *m, void (*add)(const Tensor *t, void *arg)) {
    size_t n = 0;
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *y = &m->layers[i];
        const Tensor *stacks[] = {&y->w_gate, &y->w_up, &y->w_down};
        for (size_t k = 0; k < ARRAY_LEN(stacks) && y->kind.ffn == FFN_EXPERTS; k++) {
            if (!stacks[k]->data) continue; // experts without a gate
            Tensor one = tensor_of_stack(stacks[k], 0);
            size_t each = 0;
            add(&one, &each);
            n += each * (size_t)(y->kind.n_experts - y->kind.n_used);
        }
    }
    return n;
}

size_t model_active_bytes(const Model *m) { return model_weight_bytes(m) - idle(m, add_bytes); }

size_t model_active_params(const Model *m) { return model_n_params(m) - idle(m, add_params); }

size_t model_row_bytes(const Model *m) {
    size_t tables = tensor_bytes(&m->ends.per_embd) + (m->c.tied ? 0 : tensor_bytes(&m->ends.tok_embd));
    return model_active_bytes(m) - tables;
}

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
    float values[QK_K]; // a multiple of the block of every type
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
