// tests/rig/plain_file.h: the first part of plain_forward.c: what a model file says, read without the program's loader,
// products and norms in double.
#ifndef QUILL_PLAIN_FILE_H
#define QUILL_PLAIN_FILE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/gguf.h"
#include "formats/types.h"

typedef struct {
    const Gguf *g;
    char arch[32];
    int dim, n_layers, n_heads, n_kv_heads, head_dim, n_rot, window, n_ctx;
    double eps;
    double **k, **v;  // (n_layers) K and V of all positions, for each layer that computes its own
    const double *x0; // (n, dim) the embeddings of the tokens
    const int *tokens;
} Plain;

// ---- what the file says ---------------------------------------------------------------------------------------------

static inline double number(const Plain *p, const char *suffix, double fallback) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", p->arch, suffix);
    const GgufValue *v = gguf_value(p->g, key);
    if (!v) return fallback;
    uint64_t magnitude;
    bool negative;
    float f = 0;
    if (gguf_integer(v, &magnitude, &negative)) return negative ? -(double)magnitude : (double)magnitude;
    return gguf_f32(p->g, key, &f, true, 0).code ? fallback : (double)f;
}

// *out becomes the key's value, if the file has it.
static inline void plain_switch(const Plain *p, const char *suffix, bool *out) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", p->arch, suffix);
    if (gguf_bool(p->g, key, out, *out).code) abort();
}

static inline bool is(const Plain *p, const char *arch) { return strcmp(p->arch, arch) == 0; }

static inline bool is_latent(const Plain *p) { return is(p, "deepseek2") || is(p, "mistral4"); }
static inline bool is_qwen35(const Plain *p) { return is(p, "qwen3next") || is(p, "qwen35") || is(p, "qwen35moe"); }

// Families whose layers have one norm, a LayerNorm, and a feed-forward in parallel to attention.
static inline bool is_cohere(const Plain *p) { return is(p, "command-r") || is(p, "cohere2"); }
// A layer has one part, and feed-forwards have no gate.
static inline bool is_apart(const Plain *p) { return is(p, "nemotron_h") || is(p, "nemotron_h_moe"); }

// layer -1: a tensor outside the layers. kind NULL: the name ends with the part.
static inline const GgufTensor *tensor_of(const Plain *p, int layer, const char *part, const char *kind) {
    char name[96];
    const char *dot = kind ? "." : "", *last = kind ? kind : "";
    if (layer < 0) snprintf(name, sizeof name, "%s%s%s", part, dot, last);
    else snprintf(name, sizeof name, "blk.%d.%s%s%s", layer, part, dot, last);
    return gguf_tensor(p->g, name);
}

static inline void row_of(const GgufTensor *t, uint64_t row, double *out) {
    const TypeInfo *info = type_info(t->type);
    size_t n = (size_t)t->dims[0], bytes = n / (size_t)info->block * (size_t)info->bytes;
    float *values = malloc(n * sizeof *values);
    info->dequantize((const char *)t->data + row * bytes, values, n);
    for (size_t i = 0; i < n; i++) out[i] = (double)values[i];
    free(values);
}

// y (n) = rows [first, first + n) of a matrix times x, with their bias where there is one.
static inline void product(const Plain *p, int layer, const char *part, int first, int n, const double *x, double *y) {
    const GgufTensor *w = tensor_of(p, layer, part, "weight"), *bias = tensor_of(p, layer, part, "bias");
    double *row = malloc((size_t)w->dims[0] * sizeof *row);
    for (int i = 0; i < n; i++) {
        row_of(w, (uint64_t)(first + i), row);
        y[i] = bias ? (double)((const float *)bias->data)[first + i] : 0;
        for (uint64_t k = 0; k < w->dims[0]; k++) y[i] += row[k] * x[k];
    }
    free(row);
}

// Normalises x in pieces of `width`, with the weights w, or without weights if w is NULL.
static inline void norm_by(const Plain *p, const GgufTensor *w, double *x, int n, int width) {
    for (int at = 0; at < n; at += width) {
        double squares = 0, mean = 0;
        for (int i = 0; i < width && is_cohere(p); i++) mean += x[at + i] / width;
        for (int i = 0; i < width; i++) x[at + i] -= mean;
        for (int i = 0; i < width; i++) squares += x[at + i] * x[at + i];
        double scale = 1 / sqrt(squares / width + p->eps);
        for (int i = 0; i < width; i++) x[at + i] *= scale * (w ? (double)((const float *)w->data)[i] : 1);
    }
}

// Normalises in place, in pieces of the norm's length; does nothing if the file has no such norm.
static inline void norm(const Plain *p, int layer, const char *part, double *x, int n) {
    const GgufTensor *w = tensor_of(p, layer, part, "weight");
    if (w) norm_by(p, w, x, n, (int)w->dims[0]);
}

#endif
