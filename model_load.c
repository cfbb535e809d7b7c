// model_load.c: a model file becomes a Model (model.h): hyper-parameters, RoPE tables, the weights of each layer; and
// what the weights amount to.
#include "model.h"

#include "families.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIM = 1 << 24, MAX_HEADS = 1 << 12 };

// What the loading functions share.
typedef struct {
    Model *m;
    const Gguf *g;
    const Family *family;
    const char *file;
    const uint8_t *windowed; // (n_layers) whether a layer has the window; NULL: as the family has it
    // Family.scales: what the embedding, scores, branches and logits are multiplied by; 0: scores are scaled as usual
    float embedding, scores, branches, logits;
} Loader;

// The tensor of that name, noted as used; NULL: there is none.
static const GgufTensor *take_tensor(const Loader *l, const char *name) {
    const GgufTensor *t = gguf_tensor(l->g, name);
    if (t) l->m->used[t - gguf_tensor_at(l->g, 0)] = true;
    return t;
}

// ---- hyper-parameters -----------------------------------------------------------------------------------------------

static Status get_int(const Loader *l, const char *suffix, int low, int high, bool required, int fallback, int *out) {
    char key[96];
    uint32_t v;
    snprintf(key, sizeof key, "%s.%s", l->family->arch, suffix);
    TRY(gguf_u32(l->g, key, &v, required, (uint32_t)fallback));
    if (v < (uint32_t)low || v > (uint32_t)high)
        return status_error(QUILL_MODEL, "%s: %s: %d to %d expected, %u found", l->file, key, low, high, v);
    *out = (int)v;
    return OK;
}

static Status get_float(const Loader *l, const char *suffix, bool required, float fallback, float *out) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", l->family->arch, suffix);
    TRY(gguf_f32(l->g, key, out, required, fallback));
    if (!isfinite(*out) || *out <= 0)
        return status_error(QUILL_MODEL, "%s: %s: a positive number expected, %g found", l->file, key, (double)*out);
    return OK;
}

// The same where 0 is as if the key were missing.
static Status get_scale(const Loader *l, const char *suffix, float fallback, float *out) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", l->family->arch, suffix);
    TRY(gguf_f32(l->g, key, out, false, fallback));
    if (!isfinite(*out) || *out < 0)
        return status_error(QUILL_MODEL, "%s: %s: 0 or a positive number expected, %g found", l->file, key,
                            (double)*out);
    if (*out == 0) *out = fallback;
    return OK;
}

// The same where a missing key says that there is none.
static Status get_cap(const Loader *l, const char *suffix, float *out) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", l->family->arch, suffix);
    *out = 0;
    return gguf_value(l->g, key) ? get_float(l, suffix, true, 0, out) : OK;
}

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

// The slots that a row of layer i sees; 0: all.
static int layer_window(const Loader *l, int i) {
    if (l->windowed) return l->windowed[i] ? l->m->c.window : 0;
    int every = l->family->full_every;
    return every > 0 && (i + 1) % every == 0 ? 0 : l->m->c.window;
}

static Status load_scales(Loader *l) {
    l->embedding = l->branches = l->logits = 1;
    TRY(get_scale(l, "attention.scale", 0, &l->scores)); // Gemma's in directories too
    if (!l->family->scales) return OK;
    float divisor;
    TRY(get_scale(l, "embedding_scale", 1, &l->embedding));
    TRY(get_scale(l, "residual_scale", 1, &l->branches));
    TRY(get_scale(l, "logit_scale", 1, &divisor));
    l->logits = 1 / divisor;
    return OK;
}

// What files of a known family may have that is not computed here.
static Status refuse_unsupported(const Loader *l) {
    static const struct {
        const char *suffix, *what;
    } features[] = {{"expert_count", "mixtures of experts"},
                    {"nextn_predict_layers", "layers that predict more than the next token"}};
    for (size_t i = 0; i < ARRAY_LEN(features); i++) {
        int n;
        TRY(get_int(l, features[i].suffix, 0, 1 << 30, false, 0, &n));
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
    TRY(get_int(l, "block_count", 1, most_layers, true, 0, &c->n_layers));
    TRY(get_int(l, "embedding_length", 1, MAX_DIM, true, 0, &c->dim));
    TRY(get_int(l, "feed_forward_length", 1, MAX_DIM, true, 0, &c->ffn));
    TRY(get_int(l, "attention.head_count", 1, MAX_HEADS, true, 0, &c->n_heads));
    TRY(get_int(l, "attention.head_count_kv", 1, c->n_heads, false, c->n_heads, &c->n_kv_heads));
    TRY(get_int(l, "context_length", 1, 1 << 30, true, 0, &c->n_ctx_train));
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
    TRY(get_int(l, "attention.key_length", 1, SEAL_HEAD, false, natural, &c->head_dim));
    TRY(get_int(l, "attention.value_length", 1, SEAL_HEAD, false, c->head_dim, &value_length));
    if (value_length != c->head_dim)
        return status_error(QUILL_MODEL, "%s: %s.attention.value_length: key_length's %d expected, %d found", l->file,
                            c->arch, c->head_dim, value_length);
    TRY(get_float(l, "attention.layer_norm_rms_epsilon", true, 0, &c->eps));
    bool has_window = l->family->full_every > 0 && !l->family->window_optional;
    TRY(get_int(l, "attention.sliding_window", 0, 1 << 30, has_window, 0, &c->window));
    TRY(load_windowed(l, c->n_layers));
    for (int i = 0; i < c->n_layers; i++) c->n_windowed += layer_window(l, i) > 0;
    return OK;
}

// ---- RoPE -----------------------------------------------------------------------------------------------------------

// YaRN (Peng et al. 2023): the dimension whose wave turns `turns` times over the original context.
static double yarn_dim(const ModelConfig *c, double turns) {
    return c->n_rot * log(c->rope_ctx_orig / (turns * 6.283185307179586)) / (2 * log((double)c->rope_base));
}

static Status scale_yarn(const Loader *l, double *freq, double *magnitude) {
    const ModelConfig *c = &l->m->c;
    float fast, slow, divisor; // of the magnitude: 0 to leave it, 1 for none
    TRY(get_float(l, "rope.scaling.yarn_beta_fast", false, 32, &fast));
    TRY(get_float(l, "rope.scaling.yarn_beta_slow", false, 1, &slow));
    TRY(get_scale(l, "rope.scaling.yarn_log_multiplier", 0, &divisor));
    double low = fmax(0, floor(yarn_dim(c, fast))), high = fmin(c->n_rot - 1, ceil(yarn_dim(c, slow)));
    for (int i = 0; i < c->n_rot / 2; i++) {
        double ramp = (i - low) / fmax(0.001, high - low);
        double keep = 1 - fmin(1, fmax(0, ramp)); // 1: turns often enough to stay as it is; 0: interpolated
        freq[i] = freq[i] / c->rope_factor * (1 - keep) + freq[i] * keep;
    }
    double growth = 0.1 * log((double)c->rope_factor);
    *magnitude = (1 + growth) / (1 + divisor * growth);
    return OK;
}

// The frequencies as rope.scaling.type has them, and what cosines and sines are multiplied by.
static Status scale_freq(const Loader *l, double *freq, float *mscale) {
    const ModelConfig *c = &l->m->c;
    float attn_factor;
    double magnitude = 1;
    TRY(get_float(l, "rope.scaling.attn_factor", false, 1, &attn_factor));
    if (strcmp(c->rope_scaling, "linear") == 0)
        for (int i = 0; i < c->n_rot / 2; i++) freq[i] /= c->rope_factor;
    if (strcmp(c->rope_scaling, "yarn") == 0) TRY(scale_yarn(l, freq, &magnitude));
    *mscale = attn_factor * (float)magnitude;
    return OK;
}

// Divides the frequencies by the elements of a tensor.
static Status divide_by_tensor(const Loader *l, const char *name, double *freq) {
    const GgufTensor *t = take_tensor(l, name);
    int n = l->m->c.n_rot / 2;
    if (!t) return status_error(QUILL_MODEL, "%s: tensor %s: F32 %d expected, none found", l->file, name, n);
    if (t->type != TYPE_F32 || t->n_dims != 1 || t->dims[0] != (uint64_t)n)
        return status_error(QUILL_MODEL, "%s: tensor %s: F32 %d expected, %s %llu found", l->file, name, n,
                            type_name(t->type), (unsigned long long)t->dims[0]);
    for (int i = 0; i < n; i++) {
        float divisor;
        memcpy(&divisor, (const char *)t->data + 4 * (size_t)i, 4);
        if (!isfinite(divisor) || divisor <= 0)
            return status_error(QUILL_MODEL, "%s: tensor %s: positive numbers expected, %g found", l->file, name,
                                (double)divisor);
        freq[i] /= divisor;
    }
    return OK;
}

static const char *const context_tensors[2] = {"rope_factors_short.weight", "rope_factors_long.weight"};

static bool has_context_tensors(const Gguf *g) {
    return gguf_tensor(g, context_tensors[0]) || gguf_tensor(g, context_tensors[1]);
}

// Whether RoPE turns pairs (2i, 2i+1): as the family has it. Rows of Q and K in the order of Hugging Face files need
// the other kind, and so do those that were ordered for positions of several parts (rope.dimension_sections).
static Status rope_is_adjacent(const Loader *l, bool *adjacent) {
    char key[96];
    bool halves;
    snprintf(key, sizeof key, "%s.rope.dimension_sections", l->family->arch);
    const GgufValue *v = gguf_value(l->g, key);
    int32_t *sections = v ? mem_alloc((size_t)v->n * sizeof *sections) : NULL;
    Status st = v ? gguf_ints(l->g, v, sections) : OK;
    bool several = !st.code && v && v->n > 1 && sections[0] > 0 && sections[1] > 0;
    free(sections);
    TRY(st);
    TRY(gguf_bool(l->g, "quill.rope.halves", &halves, !l->family->rope_adjacent || several));
    *adjacent = !halves;
    return OK;
}

// The next table of the model, its frequencies those of a base.
static Status new_rope(const Loader *l, float base, int n_rot, Rope **out) {
    Ends *e = &l->m->ends;
    const ModelConfig *c = &l->m->c;
    bool adjacent;
    TRY(rope_is_adjacent(l, &adjacent));
    double *freq = mem_alloc((size_t)(n_rot / 2) * sizeof *freq);
    for (int i = 0; i < n_rot / 2; i++) freq[i] = pow((double)base, -2.0 * i / n_rot);
    Rope *r = &e->ropes[e->n_ropes];
    *r = (Rope){.table = e->n_ropes++, .n_rot = n_rot, .adjacent = adjacent, .mscale = 1, .span = 1, .freq = freq};
    TRY(get_scale(l, "attention.temperature_scale", 0, &r->temperature));
    if (r->temperature != 0) r->span = c->rope_ctx_orig;
    *out = r;
    return OK;
}

static Status load_scaling(const Loader *l) {
    ModelConfig *c = &l->m->c;
    Str kind;
    char key[96];
    snprintf(key, sizeof key, "%s.rope.scaling.type", c->arch);
    TRY(gguf_str(l->g, key, &kind, false));
    float legacy; // files from before scaling.type had only this
    TRY(get_float(l, "rope.scale_linear", false, 1, &legacy));
    if (!kind.data) kind = str_of(has_context_tensors(l->g) ? "longrope" : legacy != 1 ? "linear" : "none");
    if (!str_is(kind, "none") && !str_is(kind, "linear") && !str_is(kind, "yarn") && !str_is(kind, "longrope"))
        return status_error(QUILL_MODEL, "%s: %s: none, linear, yarn or longrope expected, %.*s found", l->file, key,
                            (int)(kind.n < 32 ? kind.n : 32), kind.data);
    snprintf(c->rope_scaling, sizeof c->rope_scaling, "%.*s", (int)kind.n, kind.data);
    TRY(get_float(l, "rope.scaling.factor", false, legacy, &c->rope_factor));
    return get_int(l, "rope.scaling.original_context_length", 1, 1 << 30, false, c->n_ctx_train, &c->rope_ctx_orig);
}

// LongRoPE (Ding et al. 2024): two lists of divisors.
static Status load_context_freq(const Loader *l, const Rope *r) {
    Model *m = l->m;
    for (int k = 0; k < 2; k++) {
        size_t n = (size_t)(r->n_rot / 2) * sizeof *r->freq;
        float mscale;
        m->context_freq[k] = mem_alloc(n);
        if (n) memcpy(m->context_freq[k], r->freq, n);
        TRY(divide_by_tensor(l, context_tensors[k], m->context_freq[k]));
        TRY(scale_freq(l, m->context_freq[k], &mscale));
    }
    return OK;
}

void model_set_context(Model *m, int n_ctx) {
    const Rope *r = &m->ends.ropes[0];
    const double *from = m->context_freq[n_ctx > m->c.rope_ctx_orig];
    for (int i = 0; from && i < r->n_rot / 2; i++) ((double *)r->freq)[i] = from[i]; // the model's own
}

static Status load_rope(const Loader *l) {
    ModelConfig *c = &l->m->c;
    const Family *f = l->family;
    bool turns = true;
    char key[96];
    Rope *r, *other;
    float window_base;
    TRY(get_int(l, "rope.dimension_count", 1, c->head_dim, false, c->head_dim, &c->n_rot));
    if (c->n_rot % 2)
        return status_error(QUILL_MODEL, "%s: %s.rope.dimension_count: an even number expected, %d found", l->file,
                            c->arch, c->n_rot);
    snprintf(key, sizeof key, "%s.rope.scaling.finetuned", c->arch);
    if (f->rope_switch) TRY(gguf_bool(l->g, key, &turns, true));
    if (!turns) c->n_rot = 0;
    TRY(get_float(l, "rope.freq_base", false, 10000, &c->rope_base));
    TRY(load_scaling(l));
    TRY(new_rope(l, c->rope_base, c->n_rot, &r));
    double *freq = (double *)r->freq; // the model's own
    if (gguf_tensor(l->g, "rope_freqs.weight")) TRY(divide_by_tensor(l, "rope_freqs.weight", freq));
    if (has_context_tensors(l->g) || strcmp(c->rope_scaling, "longrope") == 0) TRY(load_context_freq(l, r));
    TRY(scale_freq(l, freq, &r->mscale));
    model_set_context(l->m, c->n_ctx_train);
    TRY(get_float(l, "rope.freq_base_swa", false, f->window_base != 0 ? f->window_base : c->rope_base, &window_base));
    if (f->window_rope && c->n_windowed > 0) TRY(new_rope(l, window_base, c->n_rot, &other));
    if (f->rope_skip_every > 0) TRY(new_rope(l, c->rope_base, 0, &other));
    return OK;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

// n floats that model_free frees.
static float *own_floats(Model *m, int n) {
    m->owned = mem_resize(m->owned, (size_t)(m->n_owned + 1) * sizeof *m->owned);
    return m->owned[m->n_owned++] = mem_alloc((size_t)n * sizeof(float));
}

static Status load_matrix(const Loader *l, Tensor *out, const char *name, int n_out, int n_in) {
    const GgufTensor *t = take_tensor(l, name);
    if (!t)
        return status_error(QUILL_MODEL, "%s: tensor %s: %d x %d expected, none found; is the file complete?", l->file,
                            name, n_in, n_out);
    if (t->n_dims > 2 || t->dims[0] != (uint64_t)n_in || t->dims[1] != (uint64_t)n_out)
        return status_error(QUILL_MODEL, "%s: tensor %s: %d x %d expected, %llu x %llu%s found", l->file, name, n_in,
                            n_out, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                            t->n_dims > 2 ? " x ..." : "");
    const TypeInfo *info = type_info(t->type);
    if (!info)
        return status_error(QUILL_MODEL, "%s: tensor %s: type %s expected, %s found", l->file, name, type_name_list(),
                            type_name(t->type));
    *out = (Tensor){.data = t->data,
                    .scales = t->scales,
                    .group = t->group,
                    .type = t->type,
                    .n_out = n_out,
                    .n_in = n_in,
                    .row_bytes = (size_t)n_in / (size_t)info->block * (size_t)info->bytes};
    return OK;
}

// A vector in f32: where the file has it so, in place; otherwise converted into memory of the model's.
static Status load_vector(const Loader *l, const float **out, const char *name, int n, bool required) {
    const GgufTensor *t = take_tensor(l, name);
    *out = NULL;
    if (!t && !required) return OK;
    if (!t)
        return status_error(QUILL_MODEL, "%s: tensor %s: %d elements expected, none found; is the file complete?",
                            l->file, name, n);
    if (t->n_dims != 1 || t->dims[0] != (uint64_t)n)
        return status_error(QUILL_MODEL, "%s: tensor %s: %d elements expected, %llu%s found", l->file, name, n,
                            (unsigned long long)t->dims[0], t->n_dims > 1 ? " x ..." : "");
    const TypeInfo *info = type_info(t->type);
    if (!info || info->block != 1 || !info->dequantize)
        return status_error(QUILL_MODEL, "%s: tensor %s: type F32, F16 or BF16 expected, %s found", l->file, name,
                            type_name(t->type));
    if (t->type == TYPE_F32 && (uintptr_t)t->data % sizeof(float) == 0) {
        *out = t->data;
        return OK;
    }
    float *copy = own_floats(l->m, n);
    // dequantize reads elements of the type's own alignment; the file may have them at any byte
    void *aligned = mem_alloc((size_t)n * (size_t)info->bytes);
    memcpy(aligned, t->data, (size_t)n * (size_t)info->bytes);
    info->dequantize(aligned, copy, (size_t)n);
    free(aligned);
    *out = copy;
    return OK;
}

static Status layer_matrix(const Loader *l, int layer, const char *part, Tensor *out, int n_out, int n_in) {
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    TRY(load_matrix(l, out, name, n_out, n_in));
    snprintf(name, sizeof name, "blk.%d.%s.bias", layer, part);
    return load_vector(l, &out->bias, name, n_out, false);
}

static Status layer_vector(const Loader *l, int layer, const char *part, const float **out, int n, bool required) {
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    return load_vector(l, out, name, n, required);
}

// Several matrices of the same input that the file has as one, row above row.
typedef struct {
    Tensor *to;
    int n_out;
} FusedPart;

static Status layer_fused(const Loader *l, int layer, const char *part, const FusedPart *parts, int n_parts, int n_in) {
    Tensor whole;
    int n_out = 0, first = 0;
    for (int i = 0; i < n_parts; i++) n_out += parts[i].n_out;
    TRY(layer_matrix(l, layer, part, &whole, n_out, n_in));
    for (int i = 0; i < n_parts; first += parts[i++].n_out) {
        Tensor *t = parts[i].to;
        size_t before = (size_t)first * (size_t)n_in; // elements
        if (whole.scales && before % (size_t)whole.group)
            return status_error(QUILL_MODEL, "%s: tensor blk.%d.%s.weight: groups of %d within its parts expected",
                                l->file, layer, part, whole.group);
        *t = whole;
        t->data = (const char *)whole.data + (size_t)first * whole.row_bytes;
        t->n_out = parts[i].n_out;
        if (whole.bias) t->bias = whole.bias + first;
        if (whole.scales) // unaligned
            t->scales = (const void *)((const char *)whole.scales + before / (size_t)whole.group * sizeof(float));
    }
    return OK;
}

static bool layer_has(const Loader *l, int layer, const char *part) {
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    return gguf_tensor(l->g, name);
}

// Which of the model's RoPE tables layer i has: the second one is of layers with a window, or of those without RoPE.
static int layer_rope(const Loader *l, int i) {
    const Family *f = l->family;
    bool skips = f->rope_skip_every > 0 && (i + 1) % f->rope_skip_every == 0;
    return skips || (f->window_rope && layer_window(l, i) > 0) ? 1 : 0;
}

// x += r * branch(norm(x)) with one r for all branches is y += branch(norm'(y)) for y = x / r, since a norm divides by
// the size of its input: the embedding is divided by r, and norm' has eps / r^2.
static float scaled_eps(const Loader *l) { return l->m->c.eps / (l->branches * l->branches); }

// What layer i is, without its weights.
static Status describe_layer(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    const Ends *e = &l->m->ends;
    const Family *f = l->family;
    int window = layer_window(l, i), width = c->n_layers == f->n_layers_by_dim ? c->dim / c->n_heads : c->head_dim;
    float scale;
    TRY(get_float(l, "attention.scale", false, (float)(1 / sqrt((double)width)), &scale));
    int n_before = 0; // layers of its pool
    for (int k = 0; k < i; k++) n_before += (layer_window(l, k) > 0) == (window > 0);
    l->m->layers[i] = (Layer){
        .kind =
            {.mixer = MIXER_ATTENTION, .ffn = FFN_GATED, .act = f->act, .qk_norm = f->qk_norm_of, .eps = scaled_eps(l)},
        .heads = {.n_heads = c->n_heads,
                  .n_kv_heads = c->n_kv_heads,
                  .head_dim = c->head_dim,
                  .window = window,
                  .scale = l->scores != 0 ? l->scores : (float)(1 / sqrt((double)width))},
        .rope = e->ropes[layer_rope(l, i)],
        .index = i,
        .kv_kind = window > 0 ? KV_WINDOW : KV_FULL,
        .kv_layer = n_before,
        .be = l->m->be,
    };
    return get_cap(l, "attn_logit_softcapping", &l->m->layers[i].heads.softcap);
}

static Status load_attention(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    int q_dim = c->n_heads * c->head_dim, kv_dim = c->n_kv_heads * c->head_dim;
    bool normed = l->family->qk_norm;
    FusedPart qkv[] = {{&y->wq, q_dim}, {&y->wk, kv_dim}, {&y->wv, kv_dim}};
    if (layer_has(l, i, "attn_qkv")) {
        TRY(layer_fused(l, i, "attn_qkv", qkv, 3, c->dim));
    } else {
        TRY(layer_matrix(l, i, "attn_q", &y->wq, q_dim, c->dim));
        TRY(layer_matrix(l, i, "attn_k", &y->wk, kv_dim, c->dim));
        TRY(layer_matrix(l, i, "attn_v", &y->wv, kv_dim, c->dim));
    }
    TRY(layer_vector(l, i, "attn_q_norm", &y->norm_q, layer_norm_q(y), normed));
    TRY(layer_vector(l, i, "attn_k_norm", &y->norm_k, layer_norm_k(y), normed));
    if (l->branches != 1 && (y->norm_q || y->norm_k))
        return status_error(QUILL_MODEL, "%s: %s.residual_scale: none expected with norms of Q and K, %g found",
                            l->file, c->arch, (double)l->branches);
    return layer_matrix(l, i, "attn_output", &y->wo, c->dim, q_dim);
}

static Status load_ffn(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    char name[96];
    snprintf(name, sizeof name, "blk.%d.ffn_up.weight", i);
    const GgufTensor *up = gguf_tensor(l->g, name);
    FusedPart gate_up[] = {{&y->w_gate, c->ffn}, {&y->w_up, c->ffn}};
    if (!layer_has(l, i, "ffn_gate") && up && up->dims[1] == 2 * (uint64_t)c->ffn) {
        TRY(layer_fused(l, i, "ffn_up", gate_up, 2, c->dim));
    } else {
        TRY(layer_matrix(l, i, "ffn_gate", &y->w_gate, c->ffn, c->dim));
        TRY(layer_matrix(l, i, "ffn_up", &y->w_up, c->ffn, c->dim));
    }
    return layer_matrix(l, i, "ffn_down", &y->w_down, c->dim, c->ffn);
}

static Status load_layer(const Loader *l, int i) {
    int dim = l->m->c.dim;
    Layer *y = &l->m->layers[i];
    bool before = !l->family->no_norms_before, behind = l->family->norms_behind;
    TRY(describe_layer(l, i));
    if (before) TRY(layer_vector(l, i, "attn_norm", &y->norm_att, dim, true));
    TRY(load_attention(l, i));
    if (behind) TRY(layer_vector(l, i, "post_attention_norm", &y->norm_att_out, dim, true));
    if (before) TRY(layer_vector(l, i, "ffn_norm", &y->norm_ffn, dim, true));
    TRY(load_ffn(l, i));
    if (behind) TRY(layer_vector(l, i, "post_ffw_norm", &y->norm_ffn_out, dim, true));
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
    TRY(get_cap(l, "final_logit_softcapping", &e->softcap));
    TRY(load_matrix(l, &e->tok_embd, "token_embd.weight", c->n_vocab, c->dim));
    TRY(load_vector(l, &e->norm_out, "output_norm.weight", c->dim, true));
    if (l->logits != 1) {
        float *norm = own_floats(l->m, c->dim);
        for (int i = 0; i < c->dim; i++) norm[i] = e->norm_out[i] * l->logits;
        e->norm_out = norm;
    }
    c->tied = !gguf_tensor(l->g, "output.weight");
    if (c->tied) e->head = e->tok_embd;
    else TRY(load_matrix(l, &e->head, "output.weight", c->n_vocab, c->dim));
    return OK;
}

static Status load_all(Loader *l) {
    TRY(find_family(l));
    TRY(load_scales(l));
    TRY(load_shape(l));
    TRY(load_rope(l));
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
    size_t n = (size_t)t->n_out * t->row_bytes;
    if (t->scales) n += (size_t)t->n_out * (size_t)t->n_in / (size_t)t->group * sizeof(float);
    *(size_t *)arg += n;
}

static void add_params(const Tensor *t, void *arg) { *(size_t *)arg += (size_t)t->n_out * (size_t)t->n_in; }

int layer_norm_floats(const Layer *l, int dim) {
    int n = 0;
#define ADD_NORM(field, size) n += l->field ? (size) : 0;
    EACH_LAYER_NORM(ADD_NORM, dim, layer_norm_q(l), layer_norm_k(l))
    return n;
}

static size_t norm_params(const Model *m) {
    size_t n = (size_t)m->c.dim;
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *y = &m->layers[i];
        n += (size_t)layer_norm_floats(y, m->c.dim);
#define ADD_BIAS(field) n += y->field.bias ? (size_t)y->field.n_out : 0;
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
