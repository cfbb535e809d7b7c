// cpu/scalar.c: the reference kernels, which specify every operation, as plain f32 loops.
//
// Each output has one fixed order of summation, whatever the batch, the chunking, the block size and the number of
// threads, so all of them give the same bits. Compiled without contraction or fast-math.
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { CHUNK = QK_K }; // a multiple of every block

// Elements [first, first + n) of a row in f32; first a multiple of CHUNK.
static void dequantize(const Tensor *t, int row, int first, int n, float *out) {
    if (t->scales) {
        size_t at = (size_t)row * (size_t)t->n_in + (size_t)first;
        for (int i = 0; i < n; i++) {
            float scale;
            memcpy(&scale, (const char *)t->scales + (at + (size_t)i) / (size_t)t->group * 4, 4);
            out[i] = scale * (float)((const int8_t *)t->data)[at + (size_t)i];
        }
        return;
    }
    const TypeInfo *info = type_info(t->type);
    const char *blocks = (const char *)t->data + (size_t)row * t->row_bytes;
    info->dequantize(blocks + (size_t)(first / info->block) * (size_t)info->bytes, out, (size_t)n);
}

static void embed(const Tensor *t, int row, float *out) {
    for (int i = 0; i < t->n_in; i += CHUNK) dequantize(t, row, i, int_min(CHUNK, t->n_in - i), out + i);
}

// Element i goes to sum i % 8: eight short sums round less than one long one.
static float dot(const float *a, const float *b, int n) {
    float s[8] = {0};
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += a[i + k] * b[i + k];
    for (int k = 0; i < n; i++, k++) s[k] += a[i] * b[i];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static void rmsnorm(float *out, const float *x, const float *weight, int n, float eps) {
    float scale = 1 / sqrtf(dot(x, x, n) / (float)n + eps);
    for (int i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];
}

static void rope(float *head, const float *cosine, const float *sine, int n_rot, bool adjacent) {
    for (int i = 0; i < n_rot / 2; i++) {
        float *a = adjacent ? &head[2 * i] : &head[i], *b = adjacent ? &head[2 * i + 1] : &head[i + n_rot / 2];
        float x = *a, y = *b;
        *a = x * cosine[i] - y * sine[i];
        *b = x * sine[i] + y * cosine[i];
    }
}

static void gate(Activation act, float *gate, const float *up, int n) {
    for (int i = 0; i < n; i++) {
        float v = gate[i], u = up[i];
        if (act == ACT_SWIGLU_CLAMPED) {
            v = v > SWIGLU_LIMIT ? SWIGLU_LIMIT : v;
            u = (u > SWIGLU_LIMIT ? SWIGLU_LIMIT : u < -SWIGLU_LIMIT ? -SWIGLU_LIMIT : u) + 1;
        }
        float s = sigmoid_of(act, v);
        gate[i] = (act == ACT_RELU ? (v < 0 ? 0 : v) : v / (1 + expf(-s))) * u;
    }
}

static void xielu(const Xielu *x, float *v, int n) {
    for (int i = 0; i < n; i++) {
        float a = v[i];
        v[i] = (a > 0 ? x->p * a * a : x->n * (expm1f(a) - a)) + x->b * a;
    }
}

static void cap_all(float *v, int n, float cap) {
    for (int i = 0; i < n; i++) v[i] = softcap(v[i], cap);
}

static void to_kv(void *out, int type, const float *x, int n) {
    for (int i = 0; i < n; i++) {
        if (type == TYPE_F32) ((float *)out)[i] = x[i];
        else if (type == TYPE_F16) ((uint16_t *)out)[i] = float_half(x[i]);
        else ((uint16_t *)out)[i] = float_bf16(x[i]);
    }
}

static void matvec(const MatvecTask *t) {
    const Tensor *w = t->w;
    float weights[CHUNK];
    enum { ROWS = 64 };
    for (int f = t->first; f < t->last; f++)
        for (int r0 = 0; r0 < t->n_rows; r0 += ROWS) {
            float sum[ROWS] = {0};
            int rows = int_min(ROWS, t->n_rows - r0);
            for (int i = 0; i < w->n_in; i += CHUNK) {
                int n = int_min(CHUNK, w->n_in - i);
                dequantize(w, f, i, n, weights);
                for (int r = 0; r < rows; r++) sum[r] += dot(weights, t->x + (size_t)(r0 + r) * t->x_stride + i, n);
            }
            for (int r = 0; r < rows; r++) {
                float *out = &t->y[(size_t)(r0 + r) * t->y_stride + (size_t)f];
                float value = sum[r] + (w->bias ? w->bias[f] : 0);
                *out = t->add ? *out + value : value;
            }
        }
}

// ---- attention ------------------------------------------------------------------------------------------------------

// Scratch of an attention task: the last unsealed group of K and of V in f32.
typedef struct {
    int group[2]; // their numbers; -1: none yet
    float rows[2][SEAL * SEAL_HEAD];
    uint8_t room[SEAL_MOST];
} Groups;

static void from_kv(const uint8_t *plane, int type, size_t i, int n, float *out) {
    const void *at = plane + i * kv_type_bytes(type);
    type_info(type)->dequantize(at, out, (size_t)n);
}

// K or V of a slot in f32: converted into `out`, or a pointer to where it is stored.
static const float *row_at(const AttendTask *t, bool value, int slot, float *out) {
    const KvPool *kv = t->kv;
    int type = kv_plane_type(kv, value), group = slot / SEAL;
    if (!kv_is_sealed(type)) {
        from_kv(kv_plane(kv, value), type, attend_at(t, value, slot), attend_dim(t, value), out);
        return out;
    }
    if (group == attend_group(t)) return attend_open(t, value, slot);
    Groups *g = t->scratch;
    if (g->group[value] != group)
        sealed_unpack_group(type, !value || kv->v_in_k, attend_sealed(t, value, group, g->room),
                            kv_plane_dim(kv, value), g->rows[value], SEAL_HEAD);
    g->group[value] = group;
    return g->rows[value] + (size_t)(slot % SEAL) * SEAL_HEAD;
}

static float score(const AttendTask *t, const float *q, int slot) {
    float row[SEAL_HEAD], sum = 0;
    const float *k = row_at(t, false, slot, row);
    for (int i = 0; i < t->heads->head_dim; i++) sum += q[i] * k[i];
    return softcap(sum * t->heads->scale, t->heads->softcap);
}

// One row and head: the largest score first, then the weighted sum; scores are computed twice and never stored.
static void attend_pair(const AttendTask *t, int pair, int slot) {
    const float *q = t->q + attend_query(t, pair), *sink = attend_sink(t, pair);
    float *out = t->out + attend_out(t, pair);
    int n = attend_dim(t, true), first = attend_first(t, slot);
    float max = sink ? *sink : -INFINITY, sum = 0, row[SEAL_HEAD];
    for (int s = first; s <= slot; s++) max = fmaxf(max, score(t, q, s));
    if (sink) sum = expf(*sink - max);
    memset(out, 0, (size_t)n * sizeof *out);
    for (int s = first; s <= slot; s++) {
        float p = expf(score(t, q, s) - max);
        const float *v = row_at(t, true, s, row);
        sum += p;
        for (int i = 0; i < n; i++) out[i] += p * v[i];
    }
    for (int i = 0; i < n; i++) out[i] /= sum;
    attend_put_lse(t, pair, max, sum);
}

static void attend(const AttendTask *t) {
    int group = t->heads->n_heads / t->heads->n_kv_heads;
    Groups *g = t->scratch;
    g->group[0] = g->group[1] = -1;
    for (int pair = t->first; pair < t->last; pair++) attend_pair(t, pair, t->slot[pair / group]);
}

static void attend_mass(const AttendTask *t, float *mass) {
    int group = t->heads->n_heads / t->heads->n_kv_heads;
    ((Groups *)t->scratch)->group[0] = -1;
    for (int pair = t->first; pair < t->last; pair++) {
        const float *q = t->q + attend_query(t, pair);
        int slot = t->slot[pair / group], first = attend_first(t, slot);
        float max = -INFINITY, sum = 0;
        for (int s = first; s <= slot; s++) max = fmaxf(max, score(t, q, s));
        for (int s = first; s <= slot; s++) sum += expf(score(t, q, s) - max);
        sum += attend_sink_weight(t, pair, max);
        for (int s = first; s <= slot; s++) mass[s] += expf(score(t, q, s) - max) / sum;
    }
}

// ---- recurrences ----------------------------------------------------------------------------------------------------

// The input of channel c, `back` rows before row i.
static float input_at(const ConvolveTask *t, int i, int back, int c) {
    return i >= back ? t->rows[(size_t)(i - back) * t->stride + (size_t)c]
                     : t->before[(size_t)(t->taps - 1 + i - back) * (size_t)t->n_channels + (size_t)c];
}

static void convolve(const ConvolveTask *t) {
    for (int i = t->n_rows - 1; i >= 0; i--) // from the last row, so that the inputs of earlier rows are still there
        for (int c = 0; c < t->n_channels; c++) {
            float sum = 0;
            for (int j = 0; j < t->taps; j++) sum += t->weights[c * t->taps + j] * input_at(t, i, t->taps - 1 - j, c);
            t->rows[(size_t)i * t->stride + (size_t)c] = sum;
        }
}

// One value column of M over one row.
static float delta_column(const DeltaTask *t, size_t row, int column) {
    const float *q = t->q + row * t->stride, *k = t->k + row * t->stride;
    float decay = expf(t->decay[row * t->stride]), found = 0, out = 0;
    size_t width = (size_t)t->value_dim;
    float *m = t->state + column;
    for (int i = 0; i < t->key_dim; i++) {
        m[(size_t)i * width] *= decay;
        found += m[(size_t)i * width] * k[i];
    }
    float d = t->beta[row * t->stride] * (t->v[row * t->stride + (size_t)column] - (t->plain ? 0 : found));
    for (int i = 0; i < t->key_dim; i++) {
        m[(size_t)i * width] += k[i] * d;
        out += m[(size_t)i * width] * q[i];
    }
    return out;
}

static void delta(const DeltaTask *t) {
    for (int head = 0; head < t->n_heads; head++) {
        DeltaTask one = delta_head(t, head);
        for (size_t row = 0; row < (size_t)t->n_rows; row++)
            for (int column = 0; column < t->value_dim; column++)
                one.out[row * t->out_stride + (size_t)column] = delta_column(&one, row, column);
    }
}

const CpuKernels cpu_scalar = {
    .isa = "scalar",
    .embed = embed,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .gate = gate,
    .xielu = xielu,
    .softcap = cap_all,
    .to_kv = to_kv,
    .matvec = matvec,
    .convolve = convolve,
    .delta = delta,
    .delta_in_order = delta,
    .attend = {.run = attend, .scratch = sizeof(Groups), .pairs = 8, .gives_lse = true},
    .attend_in_order = attend,
    .attend_mass = attend_mass,
};
