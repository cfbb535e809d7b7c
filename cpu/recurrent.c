// cpu/recurrent.c: see cpu/recurrent.h.
//
// A row of w->mix: MIXER_DELTA and MIXER_SSD: q, k, v (channels; MIXER_SSD: v, k, q), z (n_values * value_dim), then
// four arrays of n_values: the products for beta and alpha, then beta and the decay as the recurrence uses them;
// MIXER_SSD has no alpha, and beta is dt. MIXER_CONV: B, C, X.
#include "cpu/recurrent.h"

#include "cpu/cpu.h"
#include "cpu/matmul.h"
#include "cpu/tasks.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    CHANNELS = 128, // channels in a task of the convolution
};

typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const Layer *l;
    const Batch *b;
    int n_parts; // tasks per sequence in the convolution, per key head in the recurrence
    int n_heads; // most value heads in a task of the recurrence
} Recurrent;

// ---- rows and offsets -----------------------------------------------------------------------------------------------

typedef struct {
    int first, n;
} SeqSpan;

// The rows of sequence `seq` of the batch.
static SeqSpan span_of(const Batch *b, int seq) {
    SeqSpan r = {0, 0};
    while (b->seq[r.first] != seq) r.first++;
    while (r.first + r.n < b->n_rows && b->seq[r.first + r.n] == seq) r.n++;
    return r;
}

static float *mix_row(const Recurrent *s, int row) { return s->w->mix + (size_t)row * (size_t)s->w->mix_dim; }

static float *out_row(const Recurrent *s, int row) { return s->w->a + (size_t)row * (size_t)layer_mixed(s->l); }

// Offsets of z and of the four arrays of n_values in a row of w->mix.
static int z_at(const Recurrence *r) { return r->channels; }
static int heads_at(const Recurrence *r, int which) {
    return r->channels + r->n_values * r->value_dim + which * r->n_values;
}

// ---- products -------------------------------------------------------------------------------------------------------

void recurrent_in(Workspace *w, const Layer *l, const Batch *b) {
    const CpuKernels *k = cpu_kernels_of(l->be);
    const Recurrence *r = &l->rec;
    size_t stride = (size_t)w->mix_dim;
    MatmulRows rows = matmul_normed_rows(w, l->norm_att, l->kind.eps, b);
    MatmulJob jobs[] = {{.w = &l->w_mix, .y = w->mix, .y_stride = stride},
                        {.w = &l->w_z, .y = w->mix + z_at(r), .y_stride = stride}};
    matmul_run(k, w, jobs, l->kind.mixer == MIXER_CONV ? 1 : 2, rows);
    if (l->kind.mixer == MIXER_CONV) return;
    MatmulJob heads[] = {{.w = &l->w_beta, .y = w->mix + heads_at(r, 0), .y_stride = stride},
                         {.w = &l->w_alpha, .y = w->mix + heads_at(r, 1), .y_stride = stride}};
    rows.exact = true; // small matrices; errors of beta and alpha would scale the whole state
    matmul_run(k, w, heads, l->w_alpha.data ? 2 : 1, rows);
}

// ---- the convolution ------------------------------------------------------------------------------------------------

// Copies the inputs before a sequence's first row, channels [c, c + n) of the state's tail.
static void load_tail(const Recurrent *s, int seq, int c, int n, float *before) {
    const Recurrence *r = &s->l->rec;
    int state = s->b->state_in[seq];
    size_t bytes = (size_t)n * sizeof *before;
    for (int i = 0; i < r->taps - 1; i++) {
        if (state < 0) memset(before + i * n, 0, bytes);
        else
            memcpy(before + i * n,
                   state_at(s->b->states, state, s->l->state_layer) + (size_t)i * (size_t)r->channels + c, bytes);
    }
}

// Writes the tails of the states that are kept.
static void keep_tails(const Recurrent *s, SeqSpan rows, int c, int n, const float *before) {
    const Recurrence *r = &s->l->rec;
    size_t bytes = (size_t)n * sizeof *before;
    for (int i = 0; i < rows.n; i++) {
        int state = s->b->state_out[rows.first + i];
        if (state < 0) continue;
        float *tail = state_at(s->b->states, state, s->l->state_layer) + c;
        for (int j = 0; j < r->taps - 1; j++) {
            int from = i - (r->taps - 2) + j; // a row of the batch; negative: an input before it
            memcpy(tail + (size_t)j * (size_t)r->channels,
                   from < 0 ? before + (from + r->taps - 1) * n : mix_row(s, rows.first + from) + c, bytes);
        }
    }
}

static void finish_channels(const Recurrent *s, int row, int c, int n) {
    static const float ones[CHANNELS] = {[0 ... CHANNELS - 1] = 1};
    float *u = mix_row(s, row) + c;
    const float *bias = s->l->conv_bias;
    for (int i = 0; bias && i < n; i++) u[i] += bias[c + i];
    if (s->l->kind.mixer != MIXER_CONV) {
        s->k->gate(ACT_SILU, u, ones, n);
        return;
    }
    const float *gate = u + s->l->rec.channels;
    float *a = out_row(s, row) + c;
    for (int i = 0; i < n; i++) a[i] = gate[i] * u[i];
}

static void convolve_part(void *arg, int task, int thread) {
    (void)thread;
    const Recurrent *s = arg;
    const Recurrence *r = &s->l->rec;
    float before[(MOST_TAPS - 1) * CHANNELS];
    int seq = task / s->n_parts, c = task % s->n_parts * CHANNELS, n = int_min(CHANNELS, r->channels - c);
    SeqSpan rows = span_of(s->b, seq);
    if (s->l->kind.mixer == MIXER_CONV)
        for (int i = 0; i < rows.n; i++) {
            float *in = mix_row(s, rows.first + i) + c;
            const float *x = in + 2 * r->channels;
            for (int j = 0; j < n; j++) in[j] *= x[j];
        }
    load_tail(s, seq, c, n, before);
    keep_tails(s, rows, c, n, before);
    s->k->convolve(&(ConvolveTask){.n_rows = rows.n,
                                   .n_channels = n,
                                   .taps = r->taps,
                                   .weights = s->l->conv + (size_t)c * (size_t)r->taps,
                                   .before = before,
                                   .rows = mix_row(s, rows.first) + c,
                                   .stride = (size_t)s->w->mix_dim});
    for (int i = 0; i < rows.n; i++) finish_channels(s, rows.first + i, c, n);
}

// ---- matrices -------------------------------------------------------------------------------------------------------

// x / sqrt(x.x + DELTA_EPS), divided by `by`.
static void unit_head(const Recurrent *s, float *x, int n, float by) {
    float weights[SEAL_HEAD];
    for (int i = 0; i < n; i++) weights[i] = 1 / (sqrtf((float)n) * by);
    s->k->rmsnorm(x, x, weights, n, DELTA_EPS / (float)n);
}

static float softplus(float v) { return v > 20 ? v : log1pf(expf(v)); }

// MIXER_SSD: converts dt and the decay to the values that the recurrence uses.
static void prepare_steps(void *arg, int first, int last, int thread) {
    (void)thread;
    const Recurrent *s = arg;
    const Recurrence *r = &s->l->rec;
    for (int row = first; row < last; row++) {
        float *mix = mix_row(s, row), *dt = mix + heads_at(r, 2), *decay = mix + heads_at(r, 3);
        for (int h = 0; h < r->n_values; h++) {
            dt[h] = softplus(mix[heads_at(r, 0) + h] + s->l->dt_bias[h]);
            decay[h] = s->l->decay[h] * dt[h];
        }
    }
}

// Converts q, k, beta and the decay to the values that the recurrence uses.
static void prepare_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    const Recurrent *s = arg;
    const Recurrence *r = &s->l->rec;
    int group = r->n_values / r->n_keys;
    bool fused = !s->l->w_alpha.data;
    for (int row = first; row < last; row++) {
        float *mix = mix_row(s, row), *beta = mix + heads_at(r, 2), *decay = mix + heads_at(r, 3);
        const float *raw = mix + heads_at(r, 0);
        for (int h = 0; h < r->n_keys; h++) {
            unit_head(s, mix + h * r->key_dim, r->key_dim, sqrtf((float)r->key_dim));
            unit_head(s, mix + (r->n_keys + h) * r->key_dim, r->key_dim, 1);
        }
        for (int h = 0; h < r->n_values; h++) {
            int at = fused ? h / group * 2 * group + h % group : h, alpha = at + (fused ? group : r->n_values);
            beta[h] = 1 / (1 + expf(-raw[at]));
            decay[h] = s->l->decay[h] * softplus(raw[alpha] + s->l->dt_bias[h]);
        }
    }
}

// The head's matrix M in a state.
static float *matrix_of(const Recurrent *s, int state, int head) {
    const Recurrence *r = &s->l->rec;
    return state_at(s->b->states, state, s->l->state_layer) + (size_t)(r->taps - 1) * (size_t)r->channels +
           (size_t)head * (size_t)r->key_dim * (size_t)r->value_dim;
}

// out = norm(out) * silu(z) of one head; overwrites z.
static void finish_head(const Recurrent *s, int row, int head) {
    const Recurrence *r = &s->l->rec;
    int n = r->value_dim;
    float *out = out_row(s, row) + head * n, *z = mix_row(s, row) + z_at(r) + head * n;
    s->k->rmsnorm(out, out, s->l->norm_state, n, kind_eps_out(&s->l->kind));
    s->k->gate(ACT_SILU, z, out, n);
    memcpy(out, z, (size_t)n * sizeof *out);
}

// MIXER_SSD: out = norm((out + skip v) * silu(z)); overwrites z.
static void finish_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    const Recurrent *s = arg;
    const Recurrence *r = &s->l->rec;
    int n = r->n_values * r->value_dim, part = n / r->n_keys;
    for (int row = first; row < last; row++) {
        float *out = out_row(s, row), *z = mix_row(s, row) + z_at(r);
        const float *v = mix_row(s, row) + recurrence_v_at(MIXER_SSD, r);
        for (int h = 0, i = 0; h < r->n_values; h++)
            for (float skip = s->l->skip[h]; i < (h + 1) * r->value_dim; i++) out[i] += skip * v[i];
        s->k->gate(ACT_SILU, z, out, n);
        for (int at = 0; at < n; at += part)
            s->k->rmsnorm(out + at, z + at, s->l->norm_state + at, part, kind_eps_out(&s->l->kind));
    }
}

// n value heads that share a key head: head, head + apart, head + 2 apart, ...
typedef struct {
    int head, apart, n;
} HeadSpan;

// Copies the matrices of the heads from state `from` to state `to`. from < 0: zeros.
static void copy_matrices(const Recurrent *s, HeadSpan heads, int from, int to) {
    size_t bytes = (size_t)s->l->rec.key_dim * (size_t)s->l->rec.value_dim * sizeof(float);
    for (int i = 0, head = heads.head; i < heads.n && from != to; i++, head += heads.apart) {
        if (from < 0) memset(matrix_of(s, to, head), 0, bytes);
        else memcpy(matrix_of(s, to, head), matrix_of(s, from, head), bytes);
    }
}

// Computes value heads of one sequence, in spans of rows that end where a state is kept.
static void matrix_heads(void *arg, int task, int thread) {
    const Recurrent *s = arg;
    const Recurrence *r = &s->l->rec;
    const Batch *b = s->b;
    Mixer mixer = s->l->kind.mixer;
    int group = r->n_values / r->n_keys, first = task % s->n_parts * s->n_heads;
    int key = task / s->n_parts % r->n_keys, seq = task / s->n_parts / r->n_keys;
    HeadSpan heads = {r->grouped ? key * group + first : key + first * r->n_keys, r->grouped ? 1 : r->n_keys,
                      int_min(s->n_heads, group - first)};
    int head = heads.head;
    SeqSpan rows = span_of(b, seq);
    int last = rows.first + rows.n - 1, final = b->state_out[last];
    assert(final >= 0);
    copy_matrices(s, heads, b->state_in[seq], final);
    for (int row = rows.first, end; row <= last; row = end) {
        for (end = row; b->state_out[end++] < 0;) {
        }
        float *mix = mix_row(s, row);
        s->k->delta(&(DeltaTask){.n_rows = end - row,
                                 .key_dim = r->key_dim,
                                 .value_dim = r->value_dim,
                                 .n_heads = heads.n,
                                 .apart = (size_t)heads.apart,
                                 .plain = mixer == MIXER_SSD,
                                 .q = mix + recurrence_q_at(mixer, r) + key * r->key_dim,
                                 .k = mix + recurrence_k_at(mixer, r) + key * r->key_dim,
                                 .v = mix + recurrence_v_at(mixer, r) + head * r->value_dim,
                                 .beta = mix + heads_at(r, 2) + head,
                                 .decay = mix + heads_at(r, 3) + head,
                                 .stride = (size_t)s->w->mix_dim,
                                 .out = out_row(s, row) + head * r->value_dim,
                                 .out_stride = (size_t)layer_mixed(s->l),
                                 .state = matrix_of(s, final, head),
                                 .scratch = tasks_scratch(s->w, thread)});
        if (end <= last) copy_matrices(s, heads, final, b->state_out[end - 1]);
    }
    for (int row = rows.first; row <= last && mixer == MIXER_DELTA; row++)
        for (int i = 0; i < heads.n; i++) finish_head(s, row, head + i * heads.apart);
}

// Divides the value heads of each key head into tasks: as many heads together as possible, because they share products
// of many rows, but enough tasks for all threads.
static void divide_heads(Recurrent *s) {
    // MANY_ROWS: as LEAST_ROWS of cpu/vector_delta.c; fewer rows share nothing. More heads than MOST_HEADS would gain
    // little. TASKS: for each thread.
    enum { MANY_ROWS = 12, MOST_HEADS = 8, TASKS = 4 };
    const Recurrence *r = &s->l->rec;
    int group = r->n_values / r->n_keys, keys = s->b->n_seqs * r->n_keys, least = TASKS * threads_count(s->w->pool);
    s->n_heads = s->b->n_rows < MANY_ROWS * s->b->n_seqs ? 1 : int_min(group, MOST_HEADS);
    while (s->n_heads > 1 && keys * ((group + s->n_heads - 1) / s->n_heads) < least) s->n_heads /= 2;
    s->n_parts = (group + s->n_heads - 1) / s->n_heads;
}

void recurrent_run(Workspace *w, const Layer *l, const Batch *b) {
    const Recurrence *r = &l->rec;
    Recurrent s = {.k = cpu_kernels_of(l->be), .w = w, .l = l, .b = b};
    s.n_parts = (r->channels + CHANNELS - 1) / CHANNELS;
    threads_run(w->pool, convolve_part, &s, b->n_seqs * s.n_parts);
    if (l->kind.mixer == MIXER_CONV) return;
    bool ssd = l->kind.mixer == MIXER_SSD;
    double cost = ssd ? 40.0 * r->n_values : 8.0 * r->n_keys * r->key_dim;
    tasks_over_rows(w, b->n_rows, cost, ssd ? prepare_steps : prepare_rows, &s);
    divide_heads(&s);
    threads_run(w->pool, matrix_heads, &s, b->n_seqs * r->n_keys * s.n_parts);
    if (ssd) tasks_over_rows(w, b->n_rows, 16.0 * layer_mixed(l), finish_rows, &s);
}
