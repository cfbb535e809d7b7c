// quantize/importance.c: see quantize/importance.h.
#include "quantize/importance.h"

#include <math.h>
#include <stddef.h>

#define LEAST 1e-6f // the least importance after scaling to a mean of 1

static size_t columns(const GgufTensor *t) { return (size_t)(t->dims[0] * t->dims[2] * t->dims[3]); }

// Whether n values are those of all columns in one row, as a .dat file has them for experts.
static bool is_stacked(const GgufTensor *t, int n, int n_mat) { return n_mat == 1 && (size_t)n == columns(t); }

Status importance_check(const Imatrix *m, const QuantizePlan *p, const char *path, int *n_found) {
    *n_found = 0;
    for (int i = 0; i < p->n; i++) {
        const GgufTensor *t = p->tensor[i].from;
        int n, n_mat;
        if (!p->tensor[i].matrix || !imatrix_of(m, t->name, &n, &n_mat)) continue;
        bool rows = (uint64_t)n == t->dims[0] && (n_mat == 1 || (size_t)n * (size_t)n_mat == columns(t));
        if (!rows && !is_stacked(t, n, n_mat))
            return status_error(
                QUILL_MODEL,
                "%s: importance of %.*s: %llu columns expected, found %d: the file was made with another "
                "model",
                path, (int)t->name.n, t->name.data, (unsigned long long)t->dims[0], n);
        ++*n_found;
    }
    if (*n_found == 0)
        return status_error(QUILL_MODEL,
                            "%s: importance of this model's matrices expected, found %d others: the file was made with "
                            "another model",
                            path, imatrix_count(m));
    return OK;
}

float *importance_of(const Imatrix *m, const GgufTensor *t) {
    int n, n_mat;
    const float *mean = imatrix_of(m, t->name, &n, &n_mat);
    if (!mean) return NULL;
    size_t all = columns(t), row = (size_t)t->dims[0];
    bool shared = n_mat == 1 && !is_stacked(t, n, n_mat); // one row of values for all experts
    float *out = mem_alloc(all * sizeof *out);
    for (size_t first = 0; first < all; first += row) {
        const float *from = shared ? mean : mean + first;
        double sum = 0;
        for (size_t i = 0; i < row; i++) sum += (double)from[i];
        for (size_t i = 0; i < row; i++)
            out[first + i] = sum > 0 ? fmaxf((float)((double)from[i] / sum * (double)row), LEAST) : 1;
    }
    return out;
}

void importance_to_norms(const GgufTensor *t, const float *importance, float *norms) {
    for (size_t i = 0; i < columns(t); i++) norms[i] = sqrtf(importance[i]);
}
