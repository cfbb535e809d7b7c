// tests/rig/rounded.c: see tests/rig/rounded.h.
#include "tests/rig/rounded.h"

#include "cpu/backend.h"
#include "cpu/cpu.h"
#include "tests/rig/testing.h"

#include <assert.h>

static void round_int8(const float *x, int n, float *out) {
    for (int first = 0; first < n; first += 32) {
        double most = 0;
        for (int i = first; i < first + 32; i++) most = fmax(most, fabs((double)x[i]));
        double scale = most > 0 ? most / 127 : 1;
        for (int i = first; i < first + 32; i++) out[i] = (float)(rint((double)x[i] / scale) * scale);
    }
}

static float rounded_as(int type, float x) {
    return type == TYPE_F16 ? half_float(float_half(x)) : bf16_float(float_bf16(x));
}

static void round_bf16(const float *x, int n, float *out) {
    for (int i = 0; i < n; i++) out[i] = rounded_as(TYPE_BF16, x[i]);
}

static float *rounded_rows(void (*round)(const float *, int, float *), const float *x, size_t stride, int rows, int n) {
    float *out = mem_alloc((size_t)rows * (size_t)n * sizeof *out);
    for (size_t r = 0; r < (size_t)rows; r++) round(x + r * stride, n, out + r * (size_t)n);
    return out;
}

// The task with other activations, whose rows have no gaps.
static MatvecTask with_rows(const MatvecTask *t, const float *rows) {
    MatvecTask rounded = *t;
    rounded.x = rows;
    rounded.x_stride = (size_t)t->w->n_in;
    return rounded;
}

static void matvec_int8(const MatvecTask *t) {
    if (type_info(t->w->type)->block == 1) {
        cpu_scalar.matvec(t);
        return;
    }
    float *rows = rounded_rows(round_int8, t->x, t->x_stride, t->n_rows, t->w->n_in);
    MatvecTask rounded = with_rows(t, rows);
    cpu_scalar.matvec(&rounded);
    free(rows);
}

static void matvec_bf16(const MatvecTask *t) {
    const Tensor *w = t->w;
    if (w->type == TYPE_F32) {
        cpu_scalar.matvec(t);
        return;
    }
    float *rows = rounded_rows(round_bf16, t->x, t->x_stride, t->n_rows, w->n_in);
    float *weights = mem_alloc((size_t)w->n_in * sizeof *weights);
    for (int f = t->first; f < t->last; f++) {
        cpu_scalar.embed(w, f, weights); // the weights of feature f in f32
        round_bf16(weights, w->n_in, weights);
        Tensor one = {
            .type = TYPE_F32, .data = weights, .n_out = 1, .n_in = w->n_in, .bias = w->bias ? w->bias + f : NULL};
        MatvecTask rounded = with_rows(t, rows);
        rounded.w = &one, rounded.first = 0, rounded.last = 1, rounded.y = t->y + f;
        cpu_scalar.matvec(&rounded);
    }
    free(weights);
    free(rows);
}

// ---- what the GPU rounds beside it ----------------------------------------------------------------------------------

static GpuRounding beside;

static float score(const AttendTask *t, const float *q, const float *k) {
    float sum = 0;
    for (int i = 0; i < t->heads->head_dim; i++) sum += q[i] * k[i];
    return softcap(sum * t->heads->scale, t->heads->softcap);
}

// Attention of one row and head to planes of beside.kv_type, without sinks.
static void attend_rounded_pair(const AttendTask *t, int pair, int slot) {
    float q[SEAL_HEAD], row[SEAL_HEAD], *out = t->out + attend_out(t, pair);
    const TypeInfo *type = type_info(beside.kv_type);
    int n = attend_dim(t, true), first = attend_first(t, slot);
    float max = -INFINITY, sum = 0;
    for (int i = 0; i < t->heads->head_dim; i++)
        q[i] = rounded_as(beside.kv_type, t->q[attend_query(t, pair) + (size_t)i]);
    float *scores = mem_alloc((size_t)(slot - first + 1) * sizeof *scores);
    for (int s = first; s <= slot; s++) {
        type->dequantize(t->kv->k + attend_at(t, false, s) * 2, row, (size_t)t->heads->head_dim);
        scores[s - first] = score(t, q, row);
        max = fmaxf(max, scores[s - first]);
    }
    memset(out, 0, (size_t)n * sizeof *out);
    for (int s = first; s <= slot; s++) {
        float p = expf(scores[s - first] - max);
        type->dequantize(kv_plane(t->kv, true) + attend_at(t, true, s) * 2, row, (size_t)n);
        sum += p;
        for (int i = 0; i < n; i++) out[i] += rounded_as(beside.kv_type, p) * row[i];
    }
    for (int i = 0; i < n; i++) out[i] /= sum;
    free(scores);
}

static void attend_rounded(const AttendTask *t) {
    int group = t->heads->n_heads / t->heads->n_kv_heads;
    if (t->heads->head_dim < beside.least_head) {
        cpu_scalar.attend.run(t);
        return;
    }
    assert(t->kv->type_k == beside.kv_type && t->kv->type_v == beside.kv_type && !t->sinks && !t->lse);
    for (int pair = t->first; pair < t->last; pair++) attend_rounded_pair(t, pair, t->slot[pair / group]);
}

static void gate_rounded(Activation act, float *gate, const float *up, int n) {
    if (n != beside.ffn) {
        cpu_scalar.gate(act, gate, up, n);
        return;
    }
    float *rounded = rounded_rows(round_bf16, up, 0, 1, n);
    round_bf16(gate, n, gate);
    cpu_scalar.gate(act, gate, rounded, n);
    free(rounded);
}

// ---- backends -------------------------------------------------------------------------------------------------------

typedef struct {
    CpuKernels kernels;
    Backend backend;
} RoundedBackend;

static CpuKernels *begin(RoundedBackend *r) {
    const Backend *scalar;
    assert_ok(cpu_backend("scalar", &scalar));
    r->kernels = *(const CpuKernels *)scalar->impl;
    r->backend = *scalar;
    r->backend.impl = &r->kernels;
    return &r->kernels;
}

static void round_products(CpuKernels *k, Rounding products) {
    if (products == INT8) k->matvec = matvec_int8;
    if (products == BF16) k->matvec = matvec_bf16;
}

const Backend *rounded_backend(Rounding products) {
    static RoundedBackend all[ROUNDINGS];
    RoundedBackend *r = &all[products];
    round_products(begin(r), products);
    return &r->backend;
}

const Backend *rounded_like_gpu(Rounding products, GpuRounding others) {
    static RoundedBackend r;
    CpuKernels *k = begin(&r);
    beside = others;
    round_products(k, products);
    if (others.kv_type != TYPE_F32) k->attend.run = attend_rounded;
    if (others.ffn > 0) k->gate = gate_rounded;
    return &r.backend;
}
