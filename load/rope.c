// load/rope.c: loads RoPE from a model file: its tables, their scaling, and which table a layer has. See load/loader.h.
#include "load/loader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// YaRN (Peng et al. 2023): the dimension that makes `turns` full rotations over the original context.
static double yarn_dim(const ModelConfig *c, double turns) {
    return c->n_rot * log(c->rope_ctx_orig / (turns * 6.283185307179586)) / (2 * log((double)c->rope_base));
}

static Status scale_yarn(const Loader *l, double *freq, double *magnitude) {
    const ModelConfig *c = &l->m->c;
    float fast, slow, divisor; // divisor: weight of the magnitude's divisor; 0: full magnitude, 1: none
    TRY(loader_float(l, "rope.scaling.yarn_beta_fast", false, 32, &fast));
    TRY(loader_float(l, "rope.scaling.yarn_beta_slow", false, 1, &slow));
    TRY(loader_scale(l, "rope.scaling.yarn_log_multiplier", 0, &divisor));
    double low = yarn_dim(c, fast), high = yarn_dim(c, slow);
    if (!l->family->yarn_unrounded) low = floor(low), high = ceil(high);
    low = fmax(0, low), high = fmin(c->n_rot - 1, high);
    for (int i = 0; i < c->n_rot / 2; i++) {
        double ramp = (i - low) / fmax(0.001, high - low);
        double keep = 1 - fmin(1, fmax(0, ramp)); // 1: a fast dimension keeps its frequency; 0: fully interpolated
        freq[i] = freq[i] / c->rope_factor * (1 - keep) + freq[i] * keep;
    }
    double growth = 0.1 * log((double)c->rope_factor);
    *magnitude = l->family->latent ? 1 : (1 + growth) / (1 + divisor * growth); // latent: scores are scaled instead
    return OK;
}

// Scales the frequencies as rope.scaling.type says, and sets the factor of cosines and sines.
static Status scale_freq(const Loader *l, double *freq, float *mscale) {
    const ModelConfig *c = &l->m->c;
    float attn_factor;
    double magnitude = 1;
    TRY(loader_float(l, "rope.scaling.attn_factor", false, 1, &attn_factor));
    if (strcmp(c->rope_scaling, "linear") == 0)
        for (int i = 0; i < c->n_rot / 2; i++) freq[i] /= c->rope_factor;
    if (strcmp(c->rope_scaling, "yarn") == 0) TRY(scale_yarn(l, freq, &magnitude));
    *mscale = attn_factor * (float)magnitude;
    return OK;
}

// Divides the frequencies by the elements of a tensor.
static Status divide_by_tensor(const Loader *l, const char *name, double *freq) {
    const GgufTensor *t = loader_tensor(l, name);
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

// Whether RoPE rotates pairs (2i, 2i+1). This is a property of the family, except in two cases, which use pairs (i, i +
// n_rot/2): the rows of Q and K have the order of Hugging Face files (quill.rope.halves), or the file has positions of
// several parts (rope.dimension_sections).
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

// Adds a table to the model, with frequencies for the given base.
static Status new_rope(const Loader *l, float base, int n_rot, Rope **out) {
    Ends *e = &l->m->ends;
    const ModelConfig *c = &l->m->c;
    bool adjacent;
    TRY(rope_is_adjacent(l, &adjacent));
    double *freq = mem_alloc((size_t)(n_rot / 2) * sizeof *freq);
    for (int i = 0; i < n_rot / 2; i++) freq[i] = pow((double)base, -2.0 * i / n_rot);
    Rope *r = &e->ropes[e->n_ropes];
    *r = (Rope){.table = e->n_ropes++, .n_rot = n_rot, .adjacent = adjacent, .mscale = 1, .span = 1, .freq = freq};
    *out = r;
    bool own = l->family->temperature != 0;
    if (own && n_rot > 0) return OK;
    TRY(loader_cap(l, "attention.temperature_scale", l->family->temperature, &r->temperature));
    if (r->temperature == 0) return OK;
    r->ahead = own;
    return loader_int(l, "attention.temperature_length", 1, 1 << 30, false, own ? l->family->window : c->rope_ctx_orig,
                      &r->span);
}

static Status load_scaling(const Loader *l) {
    ModelConfig *c = &l->m->c;
    Str kind;
    char key[96];
    snprintf(key, sizeof key, "%s.rope.scaling.type", c->arch);
    TRY(gguf_str(l->g, key, &kind, false));
    float legacy; // the factor's key in older files, which have no scaling.type
    TRY(loader_scale(l, "rope.scale_linear", 1, &legacy));
    TRY(loader_scale(l, "rope.scaling.factor", legacy, &c->rope_factor));
    if (!kind.data) kind = str_of(has_context_tensors(l->g) ? "longrope" : c->rope_factor != 1 ? "linear" : "none");
    if (!str_is(kind, "none") && !str_is(kind, "linear") && !str_is(kind, "yarn") && !str_is(kind, "longrope"))
        return status_error(QUILL_MODEL, "%s: %s: none, linear, yarn or longrope expected, %.*s found", l->file, key,
                            (int)(kind.n < 32 ? kind.n : 32), kind.data);
    snprintf(c->rope_scaling, sizeof c->rope_scaling, "%.*s", (int)kind.n, kind.data);
    return loader_int(l, "rope.scaling.original_context_length", 1, 1 << 30, false, c->n_ctx_train, &c->rope_ctx_orig);
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
    for (int i = 0; from && i < r->n_rot / 2; i++) ((double *)r->freq)[i] = from[i]; // the model owns this array
}

// Reads the number of elements of a head that are rotated.
static Status load_turned(const Loader *l, const char *suffix, int most, int usual, int *out) {
    TRY(loader_int(l, suffix, 1, most, false, usual, out));
    if (*out % 2 == 0) return OK;
    return status_error(QUILL_MODEL, "%s: %s.%s: an even number expected, %d found", l->file, l->m->c.arch, suffix,
                        *out);
}

Status loader_rope(const Loader *l) {
    ModelConfig *c = &l->m->c;
    const Family *f = l->family;
    bool turns = true;
    char key[96];
    Rope *r, *other;
    float window_base;
    int window_rot;
    TRY(load_turned(l, "rope.dimension_count", c->head_dim, c->head_dim, &c->n_rot));
    TRY(load_turned(l, "rope.dimension_count_swa", c->window_dim, int_min(c->n_rot, c->window_dim), &window_rot));
    snprintf(key, sizeof key, "%s.rope.scaling.finetuned", c->arch);
    if (f->rope_switch) TRY(gguf_bool(l->g, key, &turns, true));
    if (!turns) c->n_rot = 0;
    TRY(loader_float(l, "rope.freq_base", false, 10000, &c->rope_base));
    TRY(load_scaling(l));
    TRY(new_rope(l, c->rope_base, c->n_rot, &r));
    double *freq = (double *)r->freq; // the model owns this array
    if (gguf_tensor(l->g, "rope_freqs.weight")) TRY(divide_by_tensor(l, "rope_freqs.weight", freq));
    if (has_context_tensors(l->g) || strcmp(c->rope_scaling, "longrope") == 0) TRY(load_context_freq(l, r));
    TRY(scale_freq(l, freq, &r->mscale));
    model_set_context(l->m, c->n_ctx_train);
    TRY(loader_float(l, "rope.freq_base_swa", false, f->window_base != 0 ? f->window_base : c->rope_base,
                     &window_base));
    if (!f->window_rope && c->n_windowed > 0 && window_base != c->rope_base)
        return status_error(QUILL_MODEL, "%s: %s.rope.freq_base_swa: freq_base's %g expected, %g found", l->file,
                            c->arch, (double)c->rope_base, (double)window_base);
    if (f->window_rope && c->n_windowed > 0) TRY(new_rope(l, window_base, window_rot, &other));
    if (f->rope_skip_every > 0 || (f->rope_in_windows && c->window > 0)) TRY(new_rope(l, c->rope_base, 0, &other));
    return OK;
}

// The index of layer i's RoPE table: 1 for layers with a window and a RoPE of their own and for layers without RoPE,
// otherwise 0.
int loader_layer_rope(const Loader *l, int i) {
    const Family *f = l->family;
    bool skips = f->rope_skip_every > 0 && (i + 1) % f->rope_skip_every == 0;
    skips = skips || (f->rope_in_windows && l->m->c.window > 0 && loader_window(l, i) == 0);
    return skips || (f->window_rope && loader_window(l, i) > 0) ? 1 : 0;
}
