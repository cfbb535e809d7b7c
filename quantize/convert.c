// quantize/convert.c: see quantize/convert.h.
#define _GNU_SOURCE // madvise
#include "quantize/convert.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/signals.h"
#include "encode/encode.h"
#include "formats/types.h"
#include "quantize/importance.h"

enum {
    TASK = 1 << 15, // weights of a task, approximately
    SLAB = 1 << 23, // weights of a slab, which is converted and then written
};

typedef struct {
    const PlanTensor *p;
    size_t n_in, first, n_rows; // the slab has rows [first, first + n_rows)
    size_t rows_a_task;
    float *weights;               // (threads, 2, n_in): a row in f32, and scratch memory for pruning
    uint8_t *out;                 // the slab's blocks
    size_t from_row, to_row;      // bytes of a row in the source and in the new type
    bool copied;                  // the type stays the same: blocks are copied
    size_t rows_a_matrix;         // rows of each matrix of the tensor
    float *importance, *norms;    // (matrices, n_in) or NULL; norms: only for a Wanda rule
    const PruneRule *prune;       // NULL: this tensor stays whole
    const FileExchange *exchange; // NULL: rows keep their places
    _Atomic size_t wrong;         // the first weight that cannot be written; SIZE_MAX: none
} ConvertSlab;

static size_t row_bytes(int type, size_t n) {
    const TypeInfo *t = type_info(type);
    return n / (size_t)t->block * (size_t)t->bytes;
}

// Dequantises a row.
static void load_row(const GgufTensor *t, size_t row, size_t n_in, float *out) {
    const TypeInfo *info = type_info(t->type);
    const uint8_t *from = t->data;
    if (info->dequantize) {
        info->dequantize(from + row * row_bytes(t->type, n_in), out, n_in);
        return;
    }
    for (size_t i = 0; i < n_in; i++) { // llama2.c's groups of int8, whose scales are a separate array
        float scale;
        memcpy(&scale, (const uint8_t *)t->scales + (row * n_in + i) / (size_t)t->group * sizeof scale, sizeof scale);
        out[i] = scale * (float)(int8_t)from[row * n_in + i];
    }
}

// Blocks that are copied hold whatever finite weights they have.
static float largest_of(const ConvertSlab *s) { return s->copied ? __FLT_MAX__ : encode_largest(s->p->type); }

// Whether the magnitude of every weight is at most `most`; otherwise *at is the first whose magnitude is not.
static bool fits(float most, const float *x, size_t n, size_t *at) {
    float worst = 0;
    for (size_t i = 0; i < n; i++) worst += fabsf(x[i]) <= most ? 0.0f : 1.0f;
    for (*at = 0; worst > 0 && *at < n && fabsf(x[*at]) <= most;) ++*at;
    return worst == 0;
}

static void keep_least(_Atomic size_t *least, size_t v) {
    size_t seen = atomic_load(least);
    while (v < seen && !atomic_compare_exchange_weak(least, &seen, v)) {
    }
}

// Gives the elements of a bias the places of the rows that they belong to.
static void move_elements(const ConvertSlab *s, float *x) {
    float *copy = x + s->n_in; // the scratch memory
    memcpy(copy, x, s->n_in * sizeof *x);
    for (size_t i = 0; i < s->n_in; i++) x[i] = copy[exchange_row(s->exchange, i)];
}

static void convert_rows(void *arg, int task, int thread) {
    ConvertSlab *s = arg;
    size_t first = (size_t)task * s->rows_a_task, last = first + s->rows_a_task;
    float *x = s->weights + (size_t)thread * 2 * s->n_in;
    if (last > s->n_rows) last = s->n_rows;
    for (size_t r = first; r < last; r++) {
        size_t row = s->first + r, at;
        bool bias = s->exchange && s->p->from->n_dims == 1;
        if (s->exchange && !bias) row = exchange_row(s->exchange, row);
        load_row(s->p->from, row, s->n_in, x);
        if (!fits(largest_of(s), x, s->n_in, &at)) {
            keep_least(&s->wrong, row * s->n_in + at);
            return;
        }
        if (bias) move_elements(s, x);
        uint8_t *out = s->out + r * s->to_row;
        size_t column = row / s->rows_a_matrix * s->n_in;
        if (s->prune) prune_row(s->prune, x, s->norms ? s->norms + column : NULL, s->n_in, x + s->n_in);
        if (s->copied) memcpy(out, (const uint8_t *)s->p->from->data + row * s->from_row, s->to_row);
        else encode_row(s->p->type, x, s->importance ? s->importance + column : NULL, s->n_in, out);
    }
}

static Status wrong_weight(const TensorConversion *c, const ConvertSlab *s) {
    float *x = s->weights;
    size_t at = s->wrong, row = at / s->n_in;
    load_row(s->p->from, row, s->n_in, x);
    float v = x[at % s->n_in];
    Str name = s->p->from->name;
    if (!isfinite(v))
        return status_error(QUILL_MODEL,
                            "%s: tensor %.*s: element %zu (row %zu, column %zu): a finite weight expected, found %g",
                            gguf_name(c->g), (int)name.n, name.data, at, row, at % s->n_in, (double)v);
    return status_error(QUILL_MODEL,
                        "%s: tensor %.*s: element %zu (row %zu, column %zu) is %.9g, %s holds at most %.9g; --tensor "
                        "'%.*s=F32' keeps it",
                        gguf_name(c->g), (int)name.n, name.data, at, row, at % s->n_in, (double)v,
                        type_name(s->p->type), (double)encode_largest(s->p->type), (int)name.n, name.data);
}

// Lets the system drop pages of the mapped file that were read.
static void forget(const Gguf *g, const void *data, size_t n) {
    int n_maps;
    const FileMap *maps = gguf_maps(g, &n_maps);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)data, to = from + n;
    for (int i = 0; i < n_maps; i++) {
        uintptr_t lo = (uintptr_t)maps[i].data, hi = lo + maps[i].n;
        if (from < lo || to > hi) continue;
        lo = from & ~(page - 1);
        if ((to & ~(page - 1)) > lo) madvise((void *)lo, (to & ~(page - 1)) - lo, MADV_DONTNEED);
    }
}

static Status convert_slab(TensorConversion *c, ConvertSlab *s, int fd) {
    size_t n_tasks = (s->n_rows + s->rows_a_task - 1) / s->rows_a_task;
    threads_run(c->pool, convert_rows, s, (int)n_tasks);
    if (s->wrong != SIZE_MAX) return wrong_weight(c, s);
    if (signals_caught()) return signals_status();
    TRY(fd_write_all(fd, s->out, s->n_rows * s->to_row));
    forget(c->g, (const uint8_t *)s->p->from->data + s->first * s->from_row, s->n_rows * s->from_row);
    c->n_done += s->n_rows * s->n_in;
    progress_show(&c->progress, "quantize", (double)c->n_done, (double)c->plan->n_weights);
    return OK;
}

// Whether the tensor is of a prediction head's layer. They follow the others, and no importance matrix has them.
static bool in_head(const Gguf *g, Str name) {
    Str arch;
    char key[96], text[32];
    uint32_t n = 0, n_heads = 0;
    if (gguf_str(g, "general.architecture", &arch, true).code || arch.n > 60) return false;
    snprintf(key, sizeof key, "%.*s.block_count", (int)arch.n, arch.data);
    bool known = !gguf_u32(g, key, &n, true, 0).code;
    snprintf(key, sizeof key, "%.*s.nextn_predict_layers", (int)arch.n, arch.data);
    known = known && !gguf_u32(g, key, &n_heads, true, 0).code;
    snprintf(text, sizeof text, "%.*s", (int)name.n, name.data);
    return known && n_heads <= n && strtoul(text + strlen("blk."), NULL, 10) >= n - n_heads;
}

// Sets the tensor's importance and its pruning rule.
static Status add_rules(const TensorConversion *c, ConvertSlab *s) {
    const GgufTensor *t = s->p->from;
    if (!s->p->matrix) return OK;
    s->prune = c->prune && str_has_prefix(t->name, "blk.") ? c->prune : NULL;
    s->importance = c->imatrix ? importance_of(c->imatrix, t) : NULL;
    if (s->prune && s->prune->wanda && !s->importance && in_head(c->g, t->name)) s->prune = NULL;
    s->copied &= !s->prune;
    if (!s->prune || !s->prune->wanda) return OK;
    if (!s->importance)
        return status_error(
            QUILL_MODEL,
            "--prune-by wanda: an importance matrix with every matrix of the layers expected, found no %.*s",
            (int)t->name.n, t->name.data);
    size_t n = (size_t)(t->dims[0] * t->dims[2] * t->dims[3]);
    s->norms = mem_alloc(n * sizeof *s->norms);
    importance_to_norms(t, s->importance, s->norms);
    return OK;
}

static Status convert_matrix(TensorConversion *c, const PlanTensor *p, int fd) {
    const GgufTensor *t = p->from;
    size_t n_in = (size_t)t->dims[0], n_rows = (size_t)(t->dims[1] * t->dims[2] * t->dims[3]);
    size_t most = n_in < SLAB ? SLAB / n_in : 1, scratch = (size_t)threads_count(c->pool) * 2 * n_in * sizeof(float);
    if (most > n_rows) most = n_rows;
    ConvertSlab s = {.p = p, .n_in = n_in, .rows_a_task = n_in < TASK ? TASK / n_in : 1, .wrong = SIZE_MAX};
    s.rows_a_matrix = (size_t)t->dims[1];
    s.exchange = exchange_moves(c->exchange, t) ? c->exchange : NULL;
    s.copied = p->type == t->type && !(s.exchange && t->n_dims == 1);
    s.from_row = row_bytes(t->type, n_in);
    s.to_row = row_bytes(p->type, n_in);
    s.weights = pages_alloc(scratch, false);
    s.out = pages_alloc(most * s.to_row, false);
    Status st = add_rules(c, &s);
    if (!st.code && (!s.weights || !s.out))
        st = status_error(QUILL_MEMORY, "quill quantize: %.*s: out of memory", (int)t->name.n, t->name.data);
    for (; s.first < n_rows && !st.code; s.first += s.n_rows) {
        s.n_rows = n_rows - s.first < most ? n_rows - s.first : most;
        st = convert_slab(c, &s, fd);
    }
    pages_free(s.weights, scratch);
    pages_free(s.out, most * s.to_row);
    free(s.importance);
    free(s.norms);
    return st;
}

Status convert_tensor(void *conversion, int i, int fd) {
    TensorConversion *c = conversion;
    const PlanTensor *p = &c->plan->tensor[i];
    const GgufTensor *t = p->from;
    if (type_info(t->type)) return convert_matrix(c, p, fd);
    c->n_done += gguf_tensor_weights(t);
    return fd_write_all(fd, t->data, t->n_bytes);
}
