// gpu/recurrent_launch.cuh: launches the kernels of gpu/recurrent.cuh, and the products in front of them.
#ifndef QUILL_RECURRENT_LAUNCH_CUH
#define QUILL_RECURRENT_LAUNCH_CUH

#include "gpu/products.cuh"
#include "gpu/recurrent.cuh"

// y (n_rows, stride) = the products of up to three matrices with norm(x), side by side.
static void normed_products(float *y, size_t stride, const float *x, const DeviceTensor *const *w, int n,
                            const GpuLayer *l, int n_rows, GpuProduct how, GpuStream stream) {
    GemvJob g = gemv_job(*w[0], n_rows, x, y, stride, GEMV_STACK);
    for (int i = 1; i < n; i++) g.w[i] = *w[i];
    g.norm = l->norm_att;
    g.eps = l->kind.eps;
    gemv_run(g, n, how, stream);
}

void gpu_recurrent_in(float *y, size_t stride, const float *x, const GpuLayer *l, const GpuBatch *b, GpuProduct how,
                      GpuStream stream) {
    const DeviceTensor *mix[] = {&l->w_mix, &l->w_z}, *rates[] = {&l->w_beta, &l->w_alpha};
    bool rated = l->kind.mixer != MIXER_CONV;
    normed_products(y, stride, x, mix, rated ? 2 : 1, l, b->n_rows, how, stream);
    if (!rated) return;
    how.exact = true; // small matrices; errors of beta and alpha would scale the whole state
    normed_products(y + l->w_mix.n_out + l->w_z.n_out, stride, x, rates, l->w_alpha.n_out > 0 ? 2 : 1, l, b->n_rows,
                    how, stream);
}

void gpu_gate_in(float *gate, size_t stride, const float *x, const GpuLayer *l, const GpuBatch *b, GpuProduct how,
                 GpuStream stream) {
    const DeviceTensor *w[] = {&l->w_mix};
    normed_products(gate, stride, x, w, 1, l, b->n_rows, how, stream);
}

void gpu_gate(void *a, int type, const float *gate, size_t stride, int width, int n_rows, GpuStream stream) {
    dim3 grid((unsigned)n_rows, blocks_for((size_t)width, THREADS));
    LAUNCH(gate_rows, grid, THREADS, 0, stream, a, type, gate, stride, width);
}

// ---- the recurrence -------------------------------------------------------------------------------------------------

enum {
    SPAN_ROWS = 32, // with at most this many rows in a step, one block computes all rows of a sequence
    SLICE_ROWS = 4, // average rows of a sequence above which its heads are divided into slices
    SLICE_THREADS = 128,
};

static LayerStates layer_states(const GpuLayer *l, const GpuStates *s, bool matrices) {
    size_t floats = recurrence_floats(&l->rec), tail = (size_t)(l->rec.taps - 1) * (size_t)l->rec.channels;
    return {*s, (size_t)l->index * floats + (matrices ? tail : 0)};
}

template <int TAPS> static void convolve_launch(const ConvJob &j, GpuStream stream) {
    unsigned tasks = blocks_for((size_t)j.n_tasks, CONV_WARPS);
    dim3 spans((unsigned)j.t.s.n_spans, tasks), rows(blocks_for((size_t)j.n_rows, CONV_ROWS), tasks);
    if (j.n_rows <= SPAN_ROWS) {
        LAUNCH(convolve_spans<TAPS>, spans, CONV_WARPS * WARP, 0, stream, j);
        return;
    }
    LAUNCH(convolve_rows<TAPS>, rows, CONV_WARPS * WARP, 0, stream, j);
    LAUNCH(keep_tails, spans, CONV_WARPS * WARP, 0, stream, j);
}

void gpu_convolve(void *a, int type, float *mix, const float *y, size_t stride, const GpuLayer *l, const GpuBatch *b,
                  const GpuStates *s, GpuStream stream) {
    const Recurrence *r = &l->rec;
    ConvJob j = {};
    j.t = layer_states(l, s, false);
    j.r = *r;
    j.mixer = l->kind.mixer;
    j.conv = l->conv;
    j.conv_bias = l->conv_bias;
    j.decay = l->decay;
    j.dt_bias = l->dt_bias;
    j.fused = l->w_alpha.n_out == 0;
    j.y = y;
    j.mix = mix;
    j.stride = stride;
    j.a = a;
    j.type = type;
    j.n_rows = b->n_rows;
    j.slot = b->slot;
    j.seq = b->seq;
    j.n_tasks = j.mixer == MIXER_CONV ? (r->channels + CONV_WIDTH - 1) / CONV_WIDTH : 2 * r->n_keys + r->n_values;
    switch (r->taps) {
    case 3: convolve_launch<3>(j, stream); break;
    case 4: convolve_launch<4>(j, stream); break;
    default: convolve_launch<0>(j, stream);
    }
}

template <int R> static void delta_launch(const DeltaJob &j, int threads, GpuStream stream) {
    dim3 grid((unsigned)j.t.s.n_spans, (unsigned)(j.r.n_values * j.slices));
    LAUNCH(delta_rule<R>, grid, (unsigned)threads, delta_smem(DELTA_PARTS * R, threads), stream, j);
}

void gpu_delta(void *a, int type, float *raw, const float *mix, const float *y, size_t stride, const GpuLayer *l,
               const GpuBatch *b, const GpuStates *s, GpuStream stream) {
    const Recurrence *r = &l->rec;
    int columns = (r->value_dim + DELTA_COLUMNS - 1) / DELTA_COLUMNS * DELTA_COLUMNS, threads = columns * 4;
    if (threads < SLICE_THREADS) threads = SLICE_THREADS;
    // The choice may depend only on numbers that are the same in every replay of a captured graph.
    bool few = b->n_rows <= SPAN_ROWS || b->n_rows <= SLICE_ROWS * s->n_spans;
    bool whole = few && threads <= delta_most(r->key_dim > 128 ? 32 : 16);
    if (!whole) threads = SLICE_THREADS;
    float eps = kind_eps_out(&l->kind);
    DeltaJob j = {layer_states(l, s, true),
                  *r,
                  l->kind.mixer,
                  y,
                  mix,
                  stride,
                  raw,
                  a,
                  type,
                  l->norm_state,
                  l->skip,
                  eps,
                  0,
                  false};
    bool ssd = j.mixer == MIXER_SSD;
    j.slices = whole ? 1 : (columns * 4 + threads - 1) / threads;
    j.finishes = j.slices == 1 && !ssd;
    assert(r->key_dim <= GPU_MAX_STATE && r->value_dim <= GPU_MAX_STATE);
    if (r->key_dim <= 32) delta_launch<4>(j, threads, stream);
    else if (r->key_dim <= 128) delta_launch<16>(j, threads, stream);
    else delta_launch<32>(j, threads, stream);
    size_t pairs = (size_t)b->n_rows * (size_t)r->n_values;
    dim3 groups((unsigned)b->n_rows, (unsigned)r->n_keys);
    if (ssd) LAUNCH(finish_groups, groups, THREADS, THREADS / WARP * sizeof(float), stream, j, b->slot);
    else if (!j.finishes)
        LAUNCH(finish_heads, blocks_for(pairs, THREADS / WARP), THREADS, 0, stream, j, b->slot, b->n_rows);
}

#endif
