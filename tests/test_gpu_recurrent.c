// tests/test_gpu_recurrent.c: the kernels of recurrent layers (gpu/recurrent.cuh) against the formulas of Recurrence
// (layer.h) in double: odd shapes, sequences of several lengths, states that are kept after rows and overwritten.
// Runs on a GPU, or on the host that stands for one (tests/rig/gpu_memory.h).
#include "tests/rig/testing.h"

#include "gpu/recurrent.h"
#include "tests/rig/gpu_memory.h"

#include <math.h>

enum { MOST_SEQS = 40, LAYER = 1 }; // the layer is the second of two in a state

typedef struct {
    Mixer mixer;
    int key_dim, value_dim, n_keys, n_values, taps; // MIXER_CONV: channels in key_dim
    int rows[MOST_SEQS], n_seqs;                    // of each sequence
    int padding;
    bool grouped, fused;
} SpanShape;

typedef struct {
    const SpanShape *s;
    Recurrence r;
    int n_rows, n_room, n_spans, n_states;
    size_t stride, floats, step, mixed;
    float *y, *conv, *conv_bias, *decay, *bias, *norm, *skip, *states, *a;
    double *want_a, *want_states; // as `a` and `states`
    int *keep, *slot, *seq;
    GpuSpan *span;
} SpanCase;

static float *random_floats(size_t n, float centre, float spread, uint64_t *random) {
    float *v = malloc((n + 1) * sizeof *v);
    for (size_t i = 0; i < n; i++) v[i] = centre + spread * test_uniform(random);
    return v;
}

// Each third sequence begins, the others have state i. in_place: the last row overwrites that; otherwise rows keep
// states of their own.
static void place_rows(SpanCase *c, bool in_place) {
    int at = 0, fresh = c->s->n_seqs;
    for (int i = 0; i < c->n_room; i++) c->keep[i] = c->slot[i] = -1;
    for (int i = 0; i < c->n_spans; i++) c->span[i] = (GpuSpan){.state = -1};
    for (int i = 0; i < c->s->n_seqs; i++) {
        int n = c->s->rows[i];
        c->span[i] = (GpuSpan){at, n, i % 3 == 2 ? -1 : i};
        for (int k = 0; k < n; k++) {
            c->slot[at + k] = k;
            c->seq[at + k] = i;
            if (k == n - 1) c->keep[at + k] = in_place && i % 3 != 2 ? i : fresh++;
            else if (!in_place && k % 2 == 0) c->keep[at + k] = fresh++;
        }
        at += n;
    }
}

static SpanCase new_case(const SpanShape *s, bool in_place, uint64_t seed) {
    SpanCase c = {.s = s, .r = {.taps = s->taps, .grouped = s->grouped}};
    c.r.channels = s->key_dim;
    if (s->mixer != MIXER_CONV) {
        c.r.key_dim = s->key_dim, c.r.value_dim = s->value_dim, c.r.n_keys = s->n_keys, c.r.n_values = s->n_values;
        c.r.channels = 2 * s->n_keys * s->key_dim + s->n_values * s->value_dim;
    }
    for (int i = 0; i < s->n_seqs; i++) c.n_rows += s->rows[i];
    Layer shape = {.kind.mixer = s->mixer, .rec = c.r};
    size_t room = (size_t)(c.n_room = c.n_rows + s->padding);
    c.n_spans = c.n_room <= 32 ? c.n_room : s->n_seqs;
    c.n_states = s->n_seqs + c.n_rows;
    c.stride = round_up((size_t)layer_mix_width(&shape), 4);
    c.mixed = (size_t)layer_mixed(&shape);
    c.floats = recurrence_floats(&c.r);
    c.step = 2 * c.floats;
    size_t values = (size_t)s->n_values, n_states = (size_t)c.n_states * c.step;
    c.y = random_floats(room * c.stride, 0, 1, &seed);
    c.conv = random_floats((size_t)c.r.channels * (size_t)s->taps, 0, 1, &seed);
    c.decay = random_floats(values, -0.5f, 0.4f, &seed);
    c.bias = random_floats(values, 0, 1, &seed);
    c.norm = random_floats((size_t)layer_norm_state(&shape), 1, 0.2f, &seed);
    c.conv_bias = random_floats((size_t)c.r.channels, 0, 0.5f, &seed);
    c.skip = random_floats(values, 1, 0.5f, &seed);
    c.states = random_floats(n_states, 0, 1, &seed);
    c.a = malloc(room * c.mixed * sizeof *c.a);
    c.want_a = calloc(room * c.mixed, sizeof *c.want_a);
    c.want_states = malloc(n_states * sizeof *c.want_states);
    for (size_t i = 0; i < n_states; i++) c.want_states[i] = (double)c.states[i];
    c.keep = malloc(3 * room * sizeof *c.keep);
    c.slot = c.keep + room, c.seq = c.slot + room;
    for (size_t i = 0; i < room; i++) c.seq[i] = 0;
    c.span = malloc((size_t)c.n_spans * sizeof *c.span);
    place_rows(&c, in_place);
    return c;
}

static void free_case(SpanCase *c) {
    void *all[] = {c->y, c->conv,   c->decay,       c->bias, c->norm, c->states,   c->skip,
                   c->a, c->want_a, c->want_states, c->keep, c->span, c->conv_bias};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) free(all[i]);
}

// ---- the formulas ---------------------------------------------------------------------------------------------------

static double sigmoid(double v) { return 1 / (1 + exp(-v)); }

// u (channels) of a row; the tail moves on by one input.
static void convolve_row(const SpanCase *c, const float *y, double *tail, double *u) {
    size_t channels = (size_t)c->r.channels, taps = (size_t)c->r.taps;
    for (size_t i = 0; i < channels; i++) {
        double in = (double)y[i];
        if (c->s->mixer == MIXER_CONV) in *= (double)y[2 * channels + i];
        u[i] = (double)c->conv[i * taps + taps - 1] * in;
        for (size_t j = 0; j + 1 < taps; j++) u[i] += (double)c->conv[i * taps + j] * tail[j * channels + i];
        for (size_t j = 0; j + 2 < taps; j++) tail[j * channels + i] = tail[(j + 1) * channels + i];
        tail[(taps - 2) * channels + i] = in;
    }
}

static void unit_heads(const SpanCase *c, double *u) {
    size_t n = (size_t)c->r.key_dim;
    for (int h = 0; h < 2 * c->r.n_keys; h++, u += n) {
        double squares = 1e-6;
        for (size_t i = 0; i < n; i++) squares += u[i] * u[i];
        for (size_t i = 0; i < n; i++) u[i] /= sqrt(squares) * (h < c->r.n_keys ? sqrt((double)n) : 1);
    }
}

static void delta_head(const SpanCase *c, int head, const float *y, const double *u, double *m, double *out) {
    const Recurrence *r = &c->r;
    int group = r->n_values / r->n_keys, key = r->grouped ? head / group : head % r->n_keys;
    int at = c->s->fused ? head / group * 2 * group + head % group : head;
    const float *raw = y + r->channels + r->n_values * r->value_dim, *z = y + r->channels + head * r->value_dim;
    const double *q = u + key * r->key_dim, *k = u + (r->n_keys + key) * r->key_dim;
    const double *v = u + 2 * r->n_keys * r->key_dim + head * r->value_dim;
    double alpha = (double)raw[at + (c->s->fused ? group : r->n_values)] + (double)c->bias[head], squares = 0;
    double factor = exp((double)c->decay[head] * log1p(exp(alpha))), beta = sigmoid((double)raw[at]);
    for (int i = 0; i < r->value_dim; i++) {
        double found = 0;
        for (int row = 0; row < r->key_dim; row++) found += (m[row * r->value_dim + i] *= factor) * k[row];
        out[i] = 0;
        for (int row = 0; row < r->key_dim; row++)
            out[i] += (m[row * r->value_dim + i] += k[row] * beta * (v[i] - found)) * q[row];
        squares += out[i] * out[i];
    }
    for (int i = 0; i < r->value_dim; i++)
        out[i] *= (double)c->norm[i] / sqrt(squares / r->value_dim + 1e-5) * (double)z[i] * sigmoid((double)z[i]);
}

// One value head of MIXER_SSD, before the norm: (M^T q + skip v) silu(z).
static void ssd_head(const SpanCase *c, int head, const float *y, const double *u, double *m, double *out) {
    const Recurrence *r = &c->r;
    int group = head / (r->n_values / r->n_keys), inner = r->n_values * r->value_dim;
    const double *v = u + head * r->value_dim, *k = u + inner + group * r->key_dim, *q = k + r->n_keys * r->key_dim;
    const float *z = y + r->channels + head * r->value_dim;
    double dt = log1p(exp((double)y[r->channels + inner + head] + (double)c->bias[head]));
    for (int i = 0; i < r->value_dim; i++) {
        out[i] = (double)c->skip[head] * v[i];
        for (int row = 0; row < r->key_dim; row++) {
            double *at = &m[row * r->value_dim + i];
            *at = exp((double)c->decay[head] * dt) * *at + dt * k[row] * v[i];
            out[i] += q[row] * *at;
        }
        out[i] *= (double)z[i] * sigmoid((double)z[i]);
    }
}

static void norm_groups(const SpanCase *c, double *out) {
    int inner = c->r.n_values * c->r.value_dim, n = inner / c->r.n_keys;
    for (int at = 0; at < inner; at += n) {
        double squares = 0;
        for (int i = at; i < at + n; i++) squares += out[i] * out[i];
        for (int i = at; i < at + n; i++) out[i] *= (double)c->norm[i] / sqrt(squares / n + 1e-5);
    }
}

static void expect_row(const SpanCase *c, int row, double *state, double *u) {
    const float *y = c->y + (size_t)row * c->stride;
    double *out = c->want_a + (size_t)row * c->mixed, *m = state + (size_t)(c->r.taps - 1) * (size_t)c->r.channels;
    convolve_row(c, y, state, u);
    if (c->s->mixer == MIXER_CONV) {
        for (int i = 0; i < c->r.channels; i++) out[i] = (double)y[c->r.channels + i] * u[i];
        return;
    }
    bool ssd = c->s->mixer == MIXER_SSD;
    for (int i = 0; i < c->r.channels; i++) u[i] += ssd ? (double)c->conv_bias[i] : 0;
    for (int i = 0; i < c->r.channels; i++) u[i] *= sigmoid(u[i]);
    if (!ssd) unit_heads(c, u);
    for (int h = 0; h < c->r.n_values; h++)
        (ssd ? ssd_head : delta_head)(c, h, y, u, m + (size_t)h * (size_t)c->r.key_dim * (size_t)c->r.value_dim,
                                      out + (size_t)h * (size_t)c->r.value_dim);
    if (ssd) norm_groups(c, out);
}

static double *state_in(const SpanCase *c, int state) { // of the layer
    return c->want_states + (size_t)state * c->step + LAYER * c->floats;
}

static void expect_all(const SpanCase *c) {
    double *state = malloc(c->floats * sizeof *state), *u = malloc((size_t)c->r.channels * sizeof *u);
    for (int s = 0; s < c->s->n_seqs; s++) {
        GpuSpan span = c->span[s];
        for (size_t i = 0; i < c->floats; i++) state[i] = span.state < 0 ? 0 : state_in(c, span.state)[i];
        for (int row = span.first; row < span.first + span.n; row++) {
            expect_row(c, row, state, u);
            if (c->keep[row] >= 0) memcpy(state_in(c, c->keep[row]), state, c->floats * sizeof *state);
        }
    }
    free(state);
    free(u);
}

// ---- the kernels ----------------------------------------------------------------------------------------------------

static void run_kernels(SpanCase *c) {
    size_t room = (size_t)c->n_room, wide = room * c->stride * 4, out = room * c->mixed * 4,
           values = (size_t)c->s->n_values;
    size_t n_states = (size_t)c->n_states * c->step * sizeof(float);
    bool ssd = c->s->mixer == MIXER_SSD;
    GpuLayer l = {.kind = {.mixer = c->s->mixer, .eps = 1e-5f}, .rec = c->r, .index = LAYER};
    l.conv = device_new(c->conv, (size_t)c->r.channels * (size_t)c->r.taps * 4);
    l.decay = device_new(c->decay, values * 4 + 4);
    l.dt_bias = device_new(c->bias, values * 4 + 4);
    l.norm_state = device_new(c->norm, (ssd ? c->mixed : (size_t)c->s->value_dim) * 4 + 4);
    if (ssd) l.conv_bias = device_new(c->conv_bias, (size_t)c->r.channels * 4);
    if (ssd) l.skip = device_new(c->skip, values * 4);
    l.w_alpha.n_out = c->s->fused ? 0 : c->s->n_values;
    GpuBatch b = {.n_rows = c->n_room};
    b.slot = device_new(c->slot, room * sizeof(int));
    b.seq = device_new(c->seq, room * sizeof(int));
    GpuStates s = {.n_spans = c->n_spans, .step = c->step};
    s.span = device_new(c->span, (size_t)c->n_spans * sizeof *c->span);
    s.keep = device_new(c->keep, room * sizeof(int));
    s.data = device_new(c->states, n_states);
    float *y = device_new(c->y, wide), *mix = device_new(NULL, wide), *a = device_new(NULL, out);
    float *raw = device_new(NULL, out);
    gpu_convolve(a, TYPE_F32, mix, y, c->stride, &l, &b, &s, NULL);
    if (c->s->mixer != MIXER_CONV) gpu_delta(a, TYPE_F32, raw, mix, y, c->stride, &l, &b, &s, NULL);
    assert_null(gpu_launch_error());
    device_read(c->a, a, (size_t)c->n_rows * c->mixed * 4);
    device_read(c->states, s.data, n_states);
    device_free_all();
}

static void check_shape(const SpanShape *s, bool in_place) {
    SpanCase c = new_case(s, in_place, 7);
    expect_all(&c);
    device_order((uint64_t)(s->key_dim + in_place));
    run_kernels(&c);
    double worst = 0;
    for (size_t i = 0; i < (size_t)c.n_rows * c.mixed; i++)
        worst = test_worse(worst, fabs((double)c.a[i] - c.want_a[i]) / (1 + fabs(c.want_a[i])));
    for (size_t i = 0; i < (size_t)c.n_states * c.step; i++) // states that nobody wrote are as they were
        worst = test_worse(worst, fabs((double)c.states[i] - c.want_states[i]) / (1 + fabs(c.want_states[i])));
    print_message("  %s, heads of %d and %d, %d taps, %d sequences, %d rows: %.1e\n",
                  s->mixer == MIXER_CONV  ? "convolution"
                  : s->mixer == MIXER_SSD ? "state space"
                                          : "delta rule",
                  s->key_dim, s->value_dim, s->taps, s->n_seqs, c.n_rows, worst);
    if (!(worst < 5e-6)) fail_msg("up to 5e-6 expected, %g found", worst);
    free_case(&c);
}

static void test_shapes(void **state) {
    (void)state;
    SpanShape many = {MIXER_DELTA, 33, 48, 2, 2, 4, {0}, MOST_SEQS, 0, false, false}; // one row each
    for (int i = 0; i < MOST_SEQS; i++) many.rows[i] = 1;
    const SpanShape all[] = {
        {MIXER_CONV, 200, 0, 0, 0, 3, {1, 2, 7}, 3, 6, false, false},
        {MIXER_CONV, 130, 0, 0, 0, 5, {40, 1, 3}, 3, 0, false, false}, // many rows: not a block a sequence
        {MIXER_DELTA, 16, 16, 2, 4, 4, {1, 1, 1}, 3, 1, false, false},
        {MIXER_DELTA, 13, 7, 2, 4, 2, {3, 9, 17}, 3, 3, true, true},
        {MIXER_DELTA, 128, 128, 1, 2, 4, {1, 20}, 2, 11, true, false},
        {MIXER_DELTA, 128, 128, 1, 2, 4, {1, 50, 2}, 3, 0, true, false}, // slices of a head
        {MIXER_DELTA, 40, 150, 1, 2, 3, {1, 5}, 2, 2, false, true},      // more columns than a block has
        {MIXER_DELTA, 200, 49, 1, 1, 4, {30, 9}, 2, 0, false, true},
        {MIXER_SSD, 16, 8, 1, 6, 4, {1, 1, 1}, 3, 1, true, true},
        {MIXER_SSD, 13, 7, 2, 4, 2, {3, 9, 17}, 3, 3, true, true},
        {MIXER_SSD, 128, 64, 1, 3, 4, {1, 50, 2}, 3, 0, true, true},
        {MIXER_SSD, 40, 150, 2, 2, 3, {1, 5}, 2, 2, true, true},
        {MIXER_SSD, 200, 80, 1, 4, 4, {30, 9}, 2, 0, true, true},
        many,
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        for (int in_place = 0; in_place < 2; in_place++) check_shape(&all[i], in_place);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
