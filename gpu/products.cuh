// gpu/products.cuh: launches products of few rows (gpu/gemv.cuh, gpu/skinny_gemm.cuh): chooses the kernel for the
// matrices, and the shape of its grid.
#ifndef QUILL_PRODUCTS_CUH
#define QUILL_PRODUCTS_CUH

#include "gpu/gemv.cuh"
#include "gpu/skinny_gemm.cuh"

enum { THREADS = 256 }; // threads of a block in kernels with one thread for each element

static unsigned blocks_for(size_t n, size_t threads) { return (unsigned)((n + threads - 1) / threads); }

static int device_attribute(cudaDeviceAttr which, int otherwise) {
    int device, n;
    bool known = cudaGetDevice(&device) == cudaSuccess && cudaDeviceGetAttribute(&n, which, device) == cudaSuccess;
    return known ? n : otherwise;
}

// A property of the device that is current at the first launch.
static int multiprocessors(void) {
    static int n = device_attribute(cudaDevAttrMultiProcessorCount, 1);
    return n;
}
static size_t shared_memory(void) { // bytes that a block can have
    static int n = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, 48 << 10);
    return (size_t)n;
}
static size_t shared_memory_of_all(void) { // bytes that the blocks of a multiprocessor have together
    static int n = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, 48 << 10);
    return (size_t)n;
}

static GpuTuning tuning;

// Calls launch(Constant<Activation, act>{}), so that a kernel has the activation as a template argument.
template <typename T, T N> struct Constant { static constexpr T value = N; };
template <typename Launch> static void with_activation(Activation act, Launch launch) {
    switch (act) {
    case ACT_SILU: return launch(Constant<Activation, ACT_SILU>{});
    case ACT_GELU: return launch(Constant<Activation, ACT_GELU>{});
    case ACT_SWIGLU_CLAMPED: return launch(Constant<Activation, ACT_SWIGLU_CLAMPED>{});
    case ACT_RELU: return launch(Constant<Activation, ACT_RELU>{});
    case ACT_XIELU: assert(false);
    }
}

// ---- grids ----------------------------------------------------------------------------------------------------------

// Elements of x in shared memory at a time, if at most `fit` fit: pieces of equal length, a multiple of `step`.
static int x_chunk(int n_in, size_t fit, int step) {
    int most = (int)fit / step * step, n = (n_in + most - 1) / most;
    return ((n_in + n - 1) / n + step - 1) / step * step;
}

// Divides the parts of g into tasks of `features` rows; returns their number. Gate and up have one range of tasks.
static int cut_parts(GemvJob *g, int n_parts, int features) {
    if (g->mode == GEMV_GLU) n_parts = 1;
    for (int i = 0; i < 3; i++)
        g->first_task[i + 1] = g->first_task[i] + (i < n_parts ? (g->n_out[i] + features - 1) / features : 0);
    return g->first_task[3];
}

// Bytes of shared memory for finishing a head.
static size_t head_smem(const GemvJob &g, int warps) {
    return g.mode == GEMV_QKV && !g.paired ? (size_t)warps * (size_t)g.heads.heads.head_dim * 4 + 16 : 0;
}

// The blocks that run at once, if each has so much shared memory; most: for each multiprocessor
static int resident_blocks(int most, size_t smem) {
    int fit = (int)(shared_memory_of_all() / (smem + 1024)); // CUDA takes 1 KiB for each block
    return int_max(int_min(most, fit), 1) * multiprocessors();
}

// Sets the chunk of x, of at most `most` bytes; returns the bytes of shared memory of a block, `rest` and the chunk.
template <int B, bool INT8> static size_t gemv_smem(GemvJob *g, size_t most, size_t rest, int step) {
    size_t room = shared_memory() - rest;
    g->chunk = x_chunk(g->n_in, (most < room ? most : room) / activation_bytes(INT8) / B * UNIT, step);
    return (size_t)B * (size_t)g->chunk / UNIT * activation_bytes(INT8) + rest;
}

// The grid of products with matrices of a stack, (columns, blocks of a matrix): with `busy` columns that have work, as
// many blocks begin as are resident at once. *smem: bytes of shared memory of a block
template <int B, bool INT8>
static dim3 stack_grid(GemvJob *g, int features, int columns, int busy, int resident, size_t *smem) {
    int n_blocks = (cut_parts(g, 1, features) + GEMV_WARPS - 1) / GEMV_WARPS,
        most = resident * multiprocessors() / busy;
    *smem = gemv_smem<B, INT8>(g, GEMV_SMEM, GEMV_WARPS * 4, QK_K);
    return dim3((unsigned)columns, (unsigned)int_min(n_blocks, int_max(most, 1)));
}

// ---- kernels by type ------------------------------------------------------------------------------------------------

// X(TYPE): types with their own kernels for products of few rows, which need fewer registers than a kernel that checks
// the type.
#define EACH_HOT_DENSE(X) X(TYPE_F16) X(TYPE_BF16)
#define EACH_HOT_QUANT(X) X(TYPE_Q4_0) X(TYPE_Q8_0) X(TYPE_Q4_K) X(TYPE_Q5_K) X(TYPE_Q6_K) X(TYPE_IQ4_XS) X(TYPE_MXFP4)

template <int TYPE, int R, int B, bool INT8> static void gemv_launch(GemvJob g, int n_parts, GpuStream stream) {
    constexpr int resident = gemv_resident(TYPE, R, B);
    int n_tasks = cut_parts(&g, n_parts, g.mode == GEMV_GLU ? R / 2 : R), most = resident * multiprocessors();
    size_t smem = gemv_smem<B, INT8>(&g, GEMV_SMEM, GEMV_WARPS * 4 + head_smem(g, GEMV_WARPS), QK_K);
    LAUNCH_EARLY(tuning.early, (gemv<TYPE, R, B, INT8, false>),
                 (unsigned)int_min((n_tasks + GEMV_WARPS - 1) / GEMV_WARPS, most), GEMV_WARPS * WARP, smem, stream, g);
}

// The same with a ring for the weights of a single row. If warps have one task each, x is staged once in any case, and
// a small chunk leaves room for other blocks.
template <int TYPE, int R, bool INT8> static void ring_launch(GemvJob g, int n_parts, GpuStream stream) {
    constexpr int step = stage_elements(TYPE) > QK_K ? stage_elements(TYPE) : QK_K,
                  resident = gemv_resident(TYPE, R, 1);
    int n_tasks = cut_parts(&g, n_parts, g.mode == GEMV_GLU ? R / 2 : R);
    bool once = n_tasks <= GEMV_WARPS * resident * multiprocessors();
    size_t rest = WeightRing<TYPE, R>::BLOCK_BYTES + GEMV_WARPS * 4 + head_smem(g, GEMV_WARPS);
    size_t smem = gemv_smem<1, INT8>(&g, once ? GEMV_SMEM / 2 : GEMV_SMEM, rest, step);
    LAUNCH_EARLY(tuning.early, (gemv<TYPE, R, 1, INT8, true>),
                 (unsigned)int_min(n_tasks, resident_blocks(resident, smem)), GEMV_WARPS * WARP, smem, stream, g);
}

// Whether pieces of rows can be copied by cp.async: the scales of a row are whole words.
static bool has_words(const DeviceTensor &t) {
    PlaneBytes p = plane_bytes(t.type);
    int units = t.n_in / UNIT;
    return is_dense(t.type) || (units * p.scales % 4 == 0 && (p.super ? units / SUPER_UNITS : units) * p.d % 4 == 0);
}

// Whether a task through a ring has R rows: a task of four needs too many registers to unpack quantised weights.
template <int TYPE, int R> static constexpr bool ring_has() {
    return TYPE != ANY_WEIGHT && (R == GEMV_FEW || is_dense(TYPE));
}

template <int TYPE, int R, bool INT8> static void gemv_single(const GemvJob &g, int n_parts, GpuStream stream) {
    if constexpr (ring_has<TYPE, R>())
        if (tuning.ring && has_words(g.w[0])) return ring_launch<TYPE, R, INT8>(g, n_parts, stream);
    gemv_launch<TYPE, R, 1, INT8>(g, n_parts, stream);
}

// A single row: with few features half as many rows of the matrix per warp, so that every multiprocessor has work. A
// kernel for any type has no registers for more rows.
template <int TYPE, bool INT8> static void gemv_one_row(const GemvJob &g, int n_parts, GpuStream stream) {
    if constexpr (TYPE != ANY_WEIGHT) {
        GemvJob copy = g;
        int tasks = cut_parts(&copy, n_parts, GEMV_MANY / (g.mode == GEMV_GLU ? 2 : 1));
        if (tasks >= 2 * GEMV_WARPS * multiprocessors() && (!tuning.ring || ring_has<TYPE, GEMV_MANY>()))
            return gemv_single<TYPE, GEMV_MANY, INT8>(g, n_parts, stream);
    }
    gemv_single<TYPE, GEMV_FEW, INT8>(g, n_parts, stream);
}

template <int TYPE, bool INT8> static void gemv_rows(const GemvJob &g, int n_parts, GpuStream stream) {
    if (g.n_rows > 4) gemv_launch<TYPE, GEMV_FEW, GPU_DECODE_ROWS, INT8>(g, n_parts, stream);
    else if (g.n_rows > 1) gemv_launch<TYPE, GEMV_FEW, 4, INT8>(g, n_parts, stream);
    else gemv_one_row<TYPE, INT8>(g, n_parts, stream);
}

// With more than one row the sums need as many registers as unpacking quantised weights.
template <int TYPE, bool INT8> static bool gemv_typed(const GemvJob &g, int n_parts, GpuStream stream) {
    if constexpr (INT8) {
        if (g.n_rows > 1) return false;
        gemv_one_row<TYPE, INT8>(g, n_parts, stream);
    } else gemv_rows<TYPE, INT8>(g, n_parts, stream);
    return true;
}

// Launches the kernel for the type of all n_matrices of g.w. False: their types differ or have no kernel of their own.
// int8: activations are rounded.
static bool gemv_hot(const GemvJob &g, int n_matrices, bool int8, GpuStream stream) {
    for (int i = 1; i < n_matrices; i++)
        if (g.w[i].type != g.w[0].type) return false;
    switch (g.w[0].type) {
#define DENSE_KERNEL(TYPE)                                                                                             \
    case TYPE: return gemv_typed<TYPE, false>(g, n_matrices, stream);
        EACH_HOT_DENSE(DENSE_KERNEL)
#undef DENSE_KERNEL
#define QUANT_KERNEL(TYPE)                                                                                             \
    case TYPE: return int8 && gemv_typed<TYPE, true>(g, n_matrices, stream);
        EACH_HOT_QUANT(QUANT_KERNEL)
#undef QUANT_KERNEL
    default: return false;
    }
}

// g.w has n_matrices matrices. Products of quantised weights with f32 activations are rare: only the kernel for the
// largest number of rows has code for them.
static void gemv_any(const GemvJob &g, int n_matrices, GpuProduct how, GpuStream stream) {
    bool int8 = !how.exact, quants = false;
    for (int i = 0; i < n_matrices; i++) {
        int8 &= !is_dense(g.w[i].type);
        quants |= !is_dense(g.w[i].type);
    }
    if (gemv_hot(g, n_matrices, int8, stream)) return;
    if (quants && !int8) gemv_launch<ANY_WEIGHT, GEMV_FEW, GPU_DECODE_ROWS, false>(g, n_matrices, stream);
    else if (int8) gemv_rows<ANY_WEIGHT, true>(g, n_matrices, stream);
    else gemv_rows<ANY_WEIGHT, false>(g, n_matrices, stream);
}

// ---- the tensor cores -----------------------------------------------------------------------------------------------

// One block per multiprocessor: x is rounded and stored once for all rows of the matrix that the block computes.
template <int TYPE, int COLUMNS> static void skinny_launch(GemvJob g, int n_parts, GpuStream stream) {
    g.paired = false;
    size_t rest = skinny_smem(COLUMNS) + head_smem(g, SKINNY_WARPS);
    int blocks = int_min(cut_parts(&g, n_parts, SKINNY_TILES * (g.mode == GEMV_GLU ? 8 : 16)), multiprocessors());
    g.chunk = x_chunk(g.n_in, (shared_memory() - rest) / (2 * COLUMNS), QK_K);
    LAUNCH_EARLY(tuning.early, (skinny_gemm<TYPE, COLUMNS>), (unsigned)blocks, SKINNY_THREADS,
                 2 * (size_t)COLUMNS * (size_t)g.chunk + rest, stream, g);
}

template <int TYPE> static void skinny_batch(const GemvJob &g, int n_parts, GpuStream stream) {
    if (g.n_rows > SKINNY_COLUMNS) skinny_launch<TYPE, 2 * SKINNY_COLUMNS>(g, n_parts, stream);
    else skinny_launch<TYPE, SKINNY_COLUMNS>(g, n_parts, stream);
}

// Whether the tensor cores take these rows. An H100 needs less time for 8 rows there than for 2 quantised or 3 dense
// ones without.
static bool skinny_takes(const GemvJob &g) { return g.n_rows >= (is_dense(g.w[0].type) ? 3 : 2); }

// The type of x for products on the tensor cores with all of these matrices; 0: not supported.
static int skinny_type_of(const DeviceTensor *const *w, int n) {
    int type = skinny_type(w[0]->type);
    for (int i = 1; i < n; i++)
        if (skinny_type(w[i]->type) != type) return 0;
    return type;
}

// ---- a product ------------------------------------------------------------------------------------------------------

// Notes the sizes of g's matrices, which are stacks of n_stack.
static void gemv_measure(GemvJob *g, int n_matrices, int n_stack) {
    for (int i = 0; i < n_matrices; i++) g->n_out[i] = g->w[i].n_out / n_stack;
}

// g.w has n_matrices matrices.
static void gemv_run(GemvJob g, int n_matrices, GpuProduct how, GpuStream stream) {
    const DeviceTensor *w[] = {&g.w[0], &g.w[1], &g.w[2]};
    gemv_measure(&g, n_matrices, 1);
    int type = tuning.skinny && !how.exact && skinny_takes(g) ? skinny_type_of(w, n_matrices) : 0;
    if (type == TYPE_F16) return skinny_batch<TYPE_F16>(g, n_matrices, stream);
    if (type) return skinny_batch<TYPE_BF16>(g, n_matrices, stream);
    assert(g.n_rows >= 1 && g.n_rows <= GPU_DECODE_ROWS);
    gemv_any(g, n_matrices, how, stream);
}

static GemvJob gemv_job(const DeviceTensor &w, int n_rows, const float *x, float *y, size_t stride, GemvMode mode) {
    GemvJob g = {};
    g.w[0] = w;
    g.n_rows = n_rows;
    g.n_in = w.n_in;
    g.x = x;
    g.x_stride = (size_t)w.n_in;
    g.whole = w.n_in % 4 == 0;
    g.y = y;
    g.stride = stride;
    g.mode = mode;
    return g;
}

// Runs a gated product: run(job, n_matrices) launches one kernel if the types of gate (g.w[0]) and up are equal,
// otherwise one for each.
template <typename Run>
static void run_gated(GemvJob g, const DeviceTensor &up, const float *norm, const GpuLayer *l, Run run) {
    g.norm = norm;
    g.eps = l->kind.eps;
    g.act = l->kind.act;
    g.slope = activation_slope(g.act);
    if (g.w[0].type == up.type) {
        g.w[1] = up;
        return run(g, 2);
    }
    g.mode = GEMV_STORE;
    run(g, 1);
    g.w[0] = up;
    g.mode = GEMV_GATED;
    run(g, 1);
}

// h (n_rows, width) = act(gate norm(x)) * (up norm(x))
static void glu(float *h, const float *x, const DeviceTensor &gate, const DeviceTensor &up, const GpuLayer *l,
                int n_rows, GpuProduct how, GpuStream stream) {
    run_gated(gemv_job(gate, n_rows, x, h, (size_t)gate.n_out, GEMV_GLU), up, l->norm_ffn, l,
              [&](const GemvJob &g, int n_matrices) { gemv_run(g, n_matrices, how, stream); });
}

#endif
