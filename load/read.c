// load/read.c: reads and checks keys and tensors of a model file. See load/loader.h.
#include "load/loader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- keys -----------------------------------------------------------------------------------------------------------

Status loader_int(const Loader *l, const char *suffix, int low, int high, bool required, int fallback, int *out) {
    char key[96];
    uint32_t v;
    snprintf(key, sizeof key, "%s.%s", l->family->arch, suffix);
    TRY(gguf_u32(l->g, key, &v, required, (uint32_t)fallback));
    if (v < (uint32_t)low || v > (uint32_t)high)
        return status_error(QUILL_MODEL, "%s: %s: %d to %d expected, %u found", l->file, key, low, high, v);
    *out = (int)v;
    return OK;
}

Status loader_each_layer(const Loader *l, const GgufValue *v) {
    const ModelConfig *c = &l->m->c;
    // The list may go on for prediction heads, which are no layers of the model.
    uint64_t n = (uint64_t)(c->n_layers - l->head), all = (uint64_t)(c->n_layers + c->n_mtp);
    if (v->n == n || v->n == all) return OK;
    return status_error(QUILL_MODEL, "%s: %.*s: one for each of the %d layers expected, %llu found", l->file,
                        (int)v->key.n, v->key.data, c->n_layers, (unsigned long long)v->n);
}

Status loader_layer_ints(const Loader *l, const char *suffix, int low, int high, bool required, int fallback,
                         int **out) {
    char key[96];
    int n = l->m->c.n_layers, one;
    snprintf(key, sizeof key, "%s.%s", l->family->arch, suffix);
    const GgufValue *v = gguf_value(l->g, key);
    *out = NULL;
    if (!v || v->type != GGUF_ARRAY) {
        TRY(loader_int(l, suffix, low, high, required, fallback, &one));
        *out = mem_alloc((size_t)n * sizeof **out);
        for (int i = 0; i < n; i++) (*out)[i] = one;
        return OK;
    }
    TRY(loader_each_layer(l, v));
    *out = mem_alloc((v->n + 1) * sizeof **out);
    TRY(gguf_ints(l->g, v, *out));
    if (v->n < (uint64_t)n) (*out)[v->n] = (*out)[v->n - 1]; // a prediction head is like the last layer
    for (int i = 0; i < n; i++)
        if ((*out)[i] < low || (*out)[i] > high)
            return status_error(QUILL_MODEL, "%s: %s: %d to %d expected, %d found for layer %d", l->file, key, low,
                                high, (*out)[i], i);
    return OK;
}

Status loader_float(const Loader *l, const char *suffix, bool required, float fallback, float *out) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", l->family->arch, suffix);
    TRY(gguf_f32(l->g, key, out, required, fallback));
    if (!isfinite(*out) || *out <= 0)
        return status_error(QUILL_MODEL, "%s: %s: a positive number expected, %g found", l->file, key, (double)*out);
    return OK;
}

// Like loader_float, but 0 is allowed and means the fallback.
Status loader_scale(const Loader *l, const char *suffix, float fallback, float *out) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", l->family->arch, suffix);
    TRY(gguf_f32(l->g, key, out, false, fallback));
    if (!isfinite(*out) || *out < 0)
        return status_error(QUILL_MODEL, "%s: %s: 0 or a positive number expected, %g found", l->file, key,
                            (double)*out);
    if (*out == 0) *out = fallback;
    return OK;
}

// Like loader_float, but 0 is allowed and means no cap.
Status loader_cap(const Loader *l, const char *suffix, float fallback, float *out) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", l->family->arch, suffix);
    *out = fallback;
    return gguf_value(l->g, key) ? loader_scale(l, suffix, 0, out) : OK;
}

int loader_window(const Loader *l, int i) {
    if (l->windowed) return l->windowed[i] ? l->m->c.window : 0;
    int every = l->full_every;
    return every > 0 && (i + 1) % every == 0 ? 0 : l->m->c.window;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

const GgufTensor *loader_tensor(const Loader *l, const char *name) {
    const GgufTensor *t = gguf_tensor(l->g, name);
    if (t) l->m->used[t - gguf_tensor_at(l->g, 0)] = true;
    return t;
}

float *loader_own_floats(Model *m, size_t n) {
    m->owned = mem_resize(m->owned, (size_t)(m->n_owned + 1) * sizeof *m->owned);
    return m->owned[m->n_owned++] = mem_alloc(n * sizeof(float));
}

// The dimensions after the first two, for messages.
static const char *more_dims(const GgufTensor *t) {
    static _Thread_local char text[32];
    snprintf(text, sizeof text, t->n_dims > 3 ? " x %llu x ..." : " x %llu", (unsigned long long)t->dims[2]);
    return t->n_dims > 2 ? text : "";
}

// Loads a matrix, or with stack > 0 a tensor of `stack` matrices.
static Status load_matrices(const Loader *l, Tensor *out, const char *name, int n_out, int n_in, int stack) {
    const GgufTensor *t = loader_tensor(l, name);
    char want[48];
    snprintf(want, sizeof want, stack ? "%d x %d x %d" : "%d x %d", n_in, n_out, stack);
    if (!t)
        return status_error(QUILL_MODEL, "%s: tensor %s: %s expected, none found; is the file complete?", l->file, name,
                            want);
    if (t->dims[0] != (uint64_t)n_in || t->dims[1] != (uint64_t)n_out || t->dims[3] != 1 ||
        t->dims[2] != (uint64_t)int_max(1, stack))
        return status_error(QUILL_MODEL, "%s: tensor %s: %s expected, %llu x %llu%s found", l->file, name, want,
                            (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], more_dims(t));
    const TypeInfo *info = type_info(t->type);
    if (!info)
        return status_error(QUILL_MODEL, "%s: tensor %s: type %s expected, %s found", l->file, name, type_name_list(),
                            type_name(t->type));
    if (stack && t->scales && (uint64_t)n_in * (uint64_t)n_out % (uint64_t)t->group)
        return status_error(QUILL_MODEL,
                            "%s: tensor %s: groups that divide the %llu weights of an expert expected, %d found",
                            l->file, name, (unsigned long long)n_in * (unsigned long long)n_out, t->group);
    *out = (Tensor){.data = t->data,
                    .scales = t->scales,
                    .group = t->group,
                    .type = t->type,
                    .n_out = n_out,
                    .n_in = n_in,
                    .stack = stack,
                    .row_bytes = (size_t)n_in / (size_t)info->block * (size_t)info->bytes};
    return OK;
}

Status loader_matrix(const Loader *l, Tensor *out, const char *name, int n_out, int n_in) {
    return load_matrices(l, out, name, n_out, n_in, 0);
}

// Loads n elements in f32, or with stack > 0 n elements for each of `stack` matrices.
static Status load_floats(const Loader *l, const float **out, const char *name, int n, int stack, bool required) {
    const GgufTensor *t = loader_tensor(l, name);
    *out = NULL;
    if (!t && !required) return OK;
    if (!t)
        return status_error(QUILL_MODEL, "%s: tensor %s: %d elements expected, none found; is the file complete?",
                            l->file, name, n);
    if (t->dims[0] != (uint64_t)n || t->dims[1] != (uint64_t)int_max(1, stack) || t->dims[2] != 1 || t->dims[3] != 1)
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
    size_t all = (size_t)n * (size_t)int_max(1, stack); // up to 2^24 for each of 2^12 experts
    float *copy = loader_own_floats(l->m, all);
    // dequantize needs aligned elements; in the file they may start at any byte
    void *aligned = mem_alloc(all * (size_t)info->bytes);
    memcpy(aligned, t->data, all * (size_t)info->bytes);
    info->dequantize(aligned, copy, all);
    free(aligned);
    *out = copy;
    return OK;
}

Status loader_vector(const Loader *l, const float **out, const char *name, int n, bool required) {
    return load_floats(l, out, name, n, 0, required);
}

Status loader_layer_matrix(const Loader *l, int layer, const char *part, Tensor *out, int n_out, int n_in) {
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    TRY(loader_matrix(l, out, name, n_out, n_in));
    snprintf(name, sizeof name, "blk.%d.%s.bias", layer, part);
    return loader_vector(l, &out->bias, name, n_out, false);
}

Status loader_layer_stack(const Loader *l, int layer, const char *part, Tensor *out, int n, int n_out, int n_in) {
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    TRY(load_matrices(l, out, name, n_out, n_in, n));
    snprintf(name, sizeof name, "blk.%d.%s.bias", layer, part);
    return load_floats(l, &out->bias, name, n_out, n, false);
}

Status loader_layer_vector(const Loader *l, int layer, const char *part, const float **out, int n, bool required) {
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    return loader_vector(l, out, name, n, required);
}

Status loader_layer_named(const Loader *l, int layer, const char *part, const float **out, int n, bool required) {
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    return loader_vector(l, out, name, n, required);
}

Status loader_layer_table(const Loader *l, int layer, const char *part, const float **out, int n, int n_each) {
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    return load_floats(l, out, name, n_each, n, true);
}

Status loader_layer_fused(const Loader *l, int layer, const char *part, const FusedPart *parts, int n_parts, int n_in) {
    Tensor whole;
    int n_out = 0, first = 0;
    for (int i = 0; i < n_parts; i++) n_out += parts[i].n_out;
    TRY(loader_layer_matrix(l, layer, part, &whole, n_out, n_in));
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

bool loader_layer_has(const Loader *l, int layer, const char *part) {
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    return gguf_tensor(l->g, name);
}
