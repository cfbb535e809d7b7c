// tests/rig/plain_ssd.c: see tests/rig/plain_ssd.h.
#include "tests/rig/plain_ssd.h"

typedef struct {
    int groups, heads, state, inner, width; // width: of a head
    int x, b, c, dt, all;                   // where x, B, C and dt begin in a row of ssm_in's outputs; z is at 0
} Ssd;

static double silu(double v) { return v / (1 + exp(-v)); }

static const float *floats_of(const Plain *p, int layer, const char *name) {
    char whole[96];
    snprintf(whole, sizeof whole, "blk.%d.%s", layer, name);
    const GgufTensor *t = gguf_tensor(p->g, whole);
    return t ? t->data : NULL;
}

// rows (n, all): x, B and C become silu of their convolution.
static void convolve(const Plain *p, const Ssd *s, int layer, double *rows, int n) {
    const float *w = floats_of(p, layer, "ssm_conv1d.weight"), *bias = floats_of(p, layer, "ssm_conv1d.bias");
    int taps = (int)number(p, "ssm.conv_kernel", 0);
    for (int c = s->x; c < s->dt; c++)
        for (int t = n - 1; t >= 0; t--) {
            double sum = bias ? (double)bias[c - s->x] : 0;
            for (int j = 0; j < taps; j++)
                if (t - taps + 1 + j >= 0)
                    sum += (double)w[(c - s->x) * taps + j] * rows[(t - taps + 1 + j) * s->all + c];
            rows[t * s->all + c] = silu(sum);
        }
}

// One head over all rows; y (n, inner).
static void run_head(const Plain *p, const Ssd *s, int layer, int head, const double *rows, double *y, int n) {
    double a = (double)floats_of(p, layer, "ssm_a")[head], d = (double)floats_of(p, layer, "ssm_d")[head];
    double bias = (double)floats_of(p, layer, "ssm_dt.bias")[head];
    double *h = calloc((size_t)(s->width * s->state), sizeof *h);
    int group = head / (s->heads / s->groups);
    for (int t = 0; t < n; t++) {
        const double *row = rows + t * s->all, *x = row + s->x + head * s->width;
        const double *b = row + s->b + group * s->state, *c = row + s->c + group * s->state;
        double dt = log1p(exp(row[s->dt + head] + bias)), *out = y + t * s->inner + head * s->width;
        for (int i = 0; i < s->width; i++) {
            out[i] = d * x[i];
            for (int k = 0; k < s->state; k++) {
                double *at = &h[i * s->state + k];
                *at = exp(a * dt) * *at + dt * b[k] * x[i];
                out[i] += c[k] * *at;
            }
        }
    }
    free(h);
}

double *plain_ssd(const Plain *p, int layer, const double *x, int n) {
    if (!tensor_of(p, layer, "ssm_in", "weight")) return NULL;
    Ssd s = {.groups = (int)number(p, "ssm.group_count", 0),
             .heads = (int)number(p, "ssm.time_step_rank", 0),
             .state = (int)number(p, "ssm.state_size", 0),
             .inner = (int)number(p, "ssm.inner_size", 0)};
    s.width = s.inner / s.heads;
    s.x = s.inner;
    s.b = s.x + s.inner;
    s.c = s.b + s.groups * s.state;
    s.dt = s.c + s.groups * s.state;
    s.all = s.dt + s.heads;
    double *rows = malloc((size_t)(n * s.all) * sizeof *rows), *y = malloc((size_t)(n * s.inner) * sizeof *y);
    double *out = malloc((size_t)(n * p->dim) * sizeof *out), h[4096];
    for (int t = 0; t < n; t++) {
        memcpy(h, x + t * p->dim, (size_t)p->dim * sizeof *h);
        norm(p, layer, "attn_norm", h, p->dim);
        product(p, layer, "ssm_in", 0, s.all, h, rows + t * s.all);
    }
    convolve(p, &s, layer, rows, n);
    for (int head = 0; head < s.heads; head++) run_head(p, &s, layer, head, rows, y, n);
    const float *weights = floats_of(p, layer, "ssm_norm.weight");
    for (int t = 0; t < n; t++) {
        double *row = y + t * s.inner;
        for (int i = 0; i < s.inner; i++) row[i] *= silu(rows[t * s.all + i]);
        norm_by(p, NULL, row, s.inner, s.inner / s.groups);
        for (int i = 0; i < s.inner; i++) row[i] *= (double)weights[i];
        product(p, layer, "ssm_out", 0, p->dim, row, out + t * p->dim);
    }
    free(rows);
    free(y);
    return out;
}
