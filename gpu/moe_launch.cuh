// gpu/moe_launch.cuh: launches the kernels of gpu/experts.cuh and gpu/expert_tiles.cuh.
#ifndef QUILL_MOE_LAUNCH_CUH
#define QUILL_MOE_LAUNCH_CUH

#include "gpu/expert_tiles.cuh"
#include "gpu/products.cuh"

// ---- products of experts with few rows ------------------------------------------------------------------------------

template <int TYPE, int B, bool INT8> static void experts_launch(ExpertJob j, int n_used, GpuStream stream) {
    constexpr int R = GEMV_FEW;
    int pairs = j.g.n_rows * n_used, features = j.g.mode == GEMV_GLU ? R / 2 : R;
    size_t smem;
    dim3 grid =
        stack_grid<B, INT8>(&j.g, features, pairs, pairs < 64 ? pairs : 64, experts_resident(TYPE, R, B), &smem);
    LAUNCH_EARLY(tuning.early, (gemv_experts<TYPE, R, B, INT8>), grid, GEMV_WARPS * WARP, smem, stream, j);
}

// With quantised weights, activations are rounded to int8. A single row has one pair per expert; for more rows the sums
// need as many registers as unpacking the types.
static void experts_run(ExpertJob j, int n_matrices, const LayerKind &kind, GpuStream stream) {
    gemv_measure(&j.g, n_matrices, kind.n_experts);
    int n_used = kind.n_used;
    bool dense = is_dense(j.g.w[0].type);
    if (j.g.n_rows > 1 && dense) return experts_launch<ANY_WEIGHT, 4, false>(j, n_used, stream);
    if (j.g.n_rows > 1) return experts_launch<ANY_WEIGHT, 4, true>(j, n_used, stream);
    switch (j.g.w[0].type) {
#define DENSE_KERNEL(TYPE)                                                                                             \
    case TYPE: return experts_launch<TYPE, 1, false>(j, n_used, stream);
        EACH_HOT_DENSE(DENSE_KERNEL)
#undef DENSE_KERNEL
#define QUANT_KERNEL(TYPE)                                                                                             \
    case TYPE: return experts_launch<TYPE, 1, true>(j, n_used, stream);
        EACH_HOT_QUANT(QUANT_KERNEL)
#undef QUANT_KERNEL
    }
    if (dense) experts_launch<ANY_WEIGHT, 1, false>(j, n_used, stream);
    else experts_launch<ANY_WEIGHT, 1, true>(j, n_used, stream);
}

static int expert_tile_bound(int n_experts, int n_used, int n_rows) {
    int pairs = n_rows * n_used, groups = pairs < n_experts ? pairs : n_experts;
    return pairs / GPU_EXPERT_TILE + groups;
}

size_t gpu_experts_place(GpuExperts *out, int n_experts, int n_used, int max_rows, void *memory) {
    size_t rows = (size_t)max_rows, pairs = rows * (size_t)n_used, at = 0;
    struct {
        void **to;
        size_t words;
    } parts[] = {{(void **)&out->logits, rows * (size_t)(n_experts + 1)},
                 {(void **)&out->chosen, pairs},
                 {(void **)&out->weight, pairs},
                 {(void **)&out->factor, pairs},
                 {(void **)&out->score, rows * (size_t)n_experts},
                 {(void **)&out->place, pairs},
                 {(void **)&out->row, pairs},
                 {(void **)&out->expert, pairs},
                 {(void **)&out->first, (size_t)n_experts + 1},
                 {(void **)&out->tile, 3 * (size_t)expert_tile_bound(n_experts, n_used, max_rows)},
                 {(void **)&out->broken, 1}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; at += (parts[i++].words * 4 + 255) / 256 * 256)
        if (memory) *parts[i].to = (uint8_t *)memory + at;
    return at;
}

static bool has_shared(const GpuLayer *l) { return l->shared_down.n_out > 0; }
static const float *input_factors(const GpuLayer *l, const GpuExperts *e) {
    return route_weighs_inputs(l->kind.routing) ? e->factor : (const float *)NULL;
}
static size_t logits_stride(const GpuLayer *l) {
    return (size_t)l->kind.n_experts + (l->shared_route.n_out > 0 ? 1 : 0);
}

void gpu_expert_logits(float *logits, const float *x, const GpuLayer *l, const GpuBatch *b, GpuStream stream) {
    GemvJob g = gemv_job(l->router, b->n_rows, x, logits, logits_stride(l), GEMV_STACK);
    g.w[1] = l->shared_route;
    g.norm = l->norm_router ? l->norm_router : l->norm_ffn;
    g.eps = l->kind.eps;
    gemv_run(g, l->shared_route.n_out > 0 ? 2 : 1, {true}, stream);
}

void gpu_route(const GpuExperts *e, const GpuLayer *l, const GpuBatch *b, bool biased, bool tiles, GpuStream stream) {
    const LayerKind &k = l->kind;
    RouteJob j = {*e,
                  b->slot,
                  biased ? l->router.bias : NULL,
                  b->n_rows,
                  k.n_experts,
                  k.n_used,
                  logits_stride(l),
                  k.routing,
                  k.route_scale,
                  l->number,
                  l->expert_bias,
                  l->expert_scale,
                  k.n_groups,
                  k.n_groups_used,
                  by_sigmoid(k.routing) || l->expert_bias || k.n_groups > 0 ? e->score : (float *)NULL};
    if (b->n_rows <= ROUTE_FEW && !tiles) {
        int threads = (b->n_rows > ROUTE_WARPS ? ROUTE_MOST : ROUTE_WARPS) * WARP;
        LAUNCH_EARLY(tuning.early, route_few, 1, (unsigned)threads, 0, stream, j);
        return;
    }
    int n_tiles = expert_tile_bound(k.n_experts, k.n_used, b->n_rows);
    size_t smem = ((size_t)k.n_experts * 4 + 15) / 16 * 16 + GROUP_THREADS / WARP * 4;
    LAUNCH(route_rows, blocks_for((size_t)b->n_rows, ROUTE_WARPS), ROUTE_WARPS * WARP, 0, stream, j);
    LAUNCH(group_pairs, (unsigned)k.n_experts, GROUP_THREADS, smem, stream, j, n_tiles);
}

void gpu_experts_in(float *h, const float *x, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                    GpuStream stream) {
    int n_out = l->w_gate.n_out / l->kind.n_experts;
    const float *norm = l->norm_experts ? l->norm_experts : l->norm_ffn;
    run_gated(gemv_job(l->w_gate, b->n_rows, x, h, (size_t)n_out, GEMV_GLU), l->w_up, norm, l,
              [&](const GemvJob &g, int n_matrices) {
                  experts_run({g, *e, true, input_factors(l, e)}, n_matrices, l->kind, stream);
              });
}

void gpu_experts_out(float *y, const float *h, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                     GpuStream stream) {
    int n_out = l->w_down.n_out / l->kind.n_experts;
    experts_run({gemv_job(l->w_down, b->n_rows, h, y, (size_t)n_out, GEMV_STORE), *e, false, NULL}, 1, l->kind, stream);
}

int gpu_expert_tiles_type(const GpuLayer *l, bool down) {
    const DeviceTensor &a = down ? l->w_down : l->w_gate, &b = down ? l->w_down : l->w_up;
    return a.n_in % 8 == 0 && skinny_type(a.type) == skinny_type(b.type) ? skinny_type(a.type) : 0;
}

static void tiles_run(const ExpertTileJob &j, const GpuLayer *l, const GpuBatch *b, GpuStream stream) {
    dim3 grid(blocks_for((size_t)j.n_out, j.glu ? TILE_OUT / 2 : TILE_OUT),
              (unsigned)expert_tile_bound(l->kind.n_experts, l->kind.n_used, b->n_rows));
    switch (j.w[0].type) {
#define TILES(TYPE)                                                                                                    \
    case TYPE: LAUNCH(expert_tiles<TYPE>, grid, TILE_THREADS, expert_tile_smem(), stream, j); break;
        EACH_QUANT(TILES)
        TILES(TYPE_F16)
        TILES(TYPE_BF16)
#undef TILES
    default: assert(false);
    }
}

void gpu_expert_tiles_in(void *h, const void *x, float *gate, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                         GpuStream stream) {
    ExpertTileJob j = {{l->w_gate, l->w_up},
                       *e,
                       x,
                       true,
                       l->w_gate.n_in,
                       l->w_gate.n_out / l->kind.n_experts,
                       true,
                       NULL,
                       l->kind.act,
                       h,
                       gpu_expert_tiles_type(l, true),
                       input_factors(l, e)};
    if (l->w_gate.type == l->w_up.type) return tiles_run(j, l, b, stream);
    ExpertTileJob first = j;
    first.glu = j.glu = false;
    first.y = gate;
    first.type = TYPE_F32;
    first.w[1] = {};
    tiles_run(first, l, b, stream);
    j.w[0] = l->w_up;
    j.w[1] = {};
    j.gate = gate;
    tiles_run(j, l, b, stream);
}

void gpu_expert_tiles_out(float *y, const void *h, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                          GpuStream stream) {
    ExpertTileJob j = {{l->w_down, {}}, *e,   h,           false, l->w_down.n_in, l->w_down.n_out / l->kind.n_experts,
                       false,           NULL, l->kind.act, y,     TYPE_F32,       NULL};
    tiles_run(j, l, b, stream);
}

void gpu_shared_in(float *h, const float *x, const GpuLayer *l, const GpuBatch *b, GpuProduct how, GpuStream stream) {
    glu(h, x, l->shared_gate, l->shared_up, l, b->n_rows, how, stream);
}

void gpu_shared_out(float *y, const float *h, const GpuLayer *l, const GpuBatch *b, GpuProduct how, GpuStream stream) {
    const DeviceTensor &w = l->shared_down;
    gemv_run(gemv_job(w, b->n_rows, h, y, (size_t)w.n_out, GEMV_STORE), 1, how, stream);
}

void gpu_experts_combine(float *x, float *y, float *shared, const GpuLayer *l, const GpuBatch *b, const GpuExperts *e,
                         GpuStream stream) {
    CombineJob j = {x,
                    y,
                    has_shared(l) ? shared : NULL,
                    l->shared_route.n_out > 0 ? e->logits + l->kind.n_experts : NULL,
                    logits_stride(l),
                    l->norm_ffn_out,
                    l->norm_shared_out,
                    l->norm_experts_out,
                    l->kind.eps,
                    kind_eps_out(&l->kind),
                    e->weight,
                    e->place,
                    l->kind.n_used,
                    l->w_down.n_out / l->kind.n_experts};
    LAUNCH_EARLY(tuning.early, combine_experts, (unsigned)b->n_rows, THREADS, THREADS / WARP * 4, stream, j);
}

#endif
