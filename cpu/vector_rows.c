// cpu/vector_rows.c: the vector kernels of single rows: the weights of a row in f32, norms, RoPE, gates, soft caps, and
// the store of K and V.
#include "cpu/vector.h"

#include "cpu/unpack.h"

#define ROW_CASE(TYPE)                                                                                                 \
    case TYPE: row_to_f32(TYPE, t, row, b0, n, out); break;
void vector_load_row(const Tensor *t, int row, int b0, int n, float *out) {
    switch (t->type) { EACH_TYPE(ROW_CASE) }
}

void vector_embed(const Tensor *t, int row, float *out) {
    float chunk[QK_K];
    for (int i = 0; i < t->n_in; i += QK_K) {
        int n = int_min(QK_K, t->n_in - i);
        vector_load_row(t, row, i / 32, n, chunk);
        memcpy(out + i, chunk, (size_t)n * sizeof *out);
    }
}

void vector_rmsnorm(float *out, const float *x, const float *weight, int n, float eps) {
    float scale;
    int i = 0;
    norm_scales(x, 0, 1, n, eps, &scale);
    for (; i + VL <= n; i += VL) vstore(out + i, vload(x + i) * scale * vload(weight + i));
    for (; i < n; i++) out[i] = x[i] * scale * weight[i];
}

void vector_rope(float *head, const float *restrict cosine, const float *restrict sine, int n_rot, bool adjacent) {
    int half = n_rot / 2;
    if (adjacent) {
        for (int i = 0; i < half; i++) {
            float x = head[2 * i], y = head[2 * i + 1];
            head[2 * i] = x * cosine[i] - y * sine[i];
            head[2 * i + 1] = x * sine[i] + y * cosine[i];
        }
        return;
    }
    float *restrict first = head, *restrict second = head + half;
    for (int i = 0; i < half; i++) {
        float x = first[i], y = second[i];
        first[i] = x * cosine[i] - y * sine[i];
        second[i] = x * sine[i] + y * cosine[i];
    }
}

// act(gate) * up; all activations but ACT_RELU are gate * sigmoid(of something).
INLINE vf gated(Activation act, vf gate, vf up) {
    const vf limit = vset(SWIGLU_LIMIT);
    if (act == ACT_RELU) return vselect(gate < vset(0), vset(0), gate) * up;
    if (act == ACT_SWIGLU_CLAMPED) {
        gate = vselect(gate > limit, limit, gate);
        up = vselect(up > limit, limit, vselect(up < -limit, -limit, up)) + 1.0f;
    }
    return gate / (vexp(-sigmoid_of(act, gate)) + 1.0f) * up;
}

// Loads the first n floats, fewer than a vector; the others are 0. load_part and store_part keep the arithmetic of the
// last elements of a row the same as of all others.
INLINE vf load_part(const float *p, int n) {
    float part[VL] = {0};
    memcpy(part, p, (size_t)n * sizeof *part);
    return vload(part);
}
INLINE void store_part(float *p, vf v, int n) { memcpy(p, &v, (size_t)n * sizeof *p); }

INLINE void gate_all(Activation act, float *gate, const float *up, int n) {
    int i = 0;
    for (; i + VL <= n; i += VL) vstore(gate + i, gated(act, vload(gate + i), vload(up + i)));
    if (i < n) store_part(gate + i, gated(act, load_part(gate + i, n - i), load_part(up + i, n - i)), n - i);
}

void vector_gate(Activation act, float *gate, const float *up, int n) {
    if (act == ACT_GELU) gate_all(ACT_GELU, gate, up, n);
    else if (act == ACT_SWIGLU_CLAMPED) gate_all(ACT_SWIGLU_CLAMPED, gate, up, n);
    else if (act == ACT_RELU) gate_all(ACT_RELU, gate, up, n);
    else gate_all(ACT_SILU, gate, up, n);
}

void vector_softcap(float *v, int n, float cap) {
    int i = 0;
    for (; i + VL <= n; i += VL) vstore(v + i, vcap(vload(v + i), cap));
    if (i < n) store_part(v + i, vcap(load_part(v + i, n - i), cap), n - i);
}

// NaN stays NaN: it is not above 0.
INLINE vf xielu_of(const Xielu *x, vf v) {
    vf below = vselect(v > vset(0), vset(0), v);
    return vselect(v > vset(0), x->p * v * v, x->n * (vexp(below) - 1.0f - below)) + x->b * v;
}

void vector_xielu(const Xielu *x, float *v, int n) {
    int i = 0;
    for (; i + VL <= n; i += VL) vstore(v + i, xielu_of(x, vload(v + i)));
    if (i < n) store_part(v + i, xielu_of(x, load_part(v + i, n - i)), n - i);
}

void vector_to_kv(void *out, int type, const float *x, int n) {
    if (type == TYPE_F32) {
        memcpy(out, x, (size_t)n * sizeof *x);
        return;
    }
    uint16_t *half = out;
    int i = 0;
    for (; i + VL <= n; i += VL) {
        if (type == TYPE_F16) vstore_half(half + i, vload(x + i));
        else vstore_bf16(half + i, vload(x + i));
    }
    for (; i < n; i++) half[i] = type == TYPE_F16 ? float_half(x[i]) : float_bf16(x[i]);
}
