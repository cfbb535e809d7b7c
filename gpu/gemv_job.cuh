// gpu/gemv_job.cuh: what a product of few rows is asked to do, and its division into tasks of warps.
#ifndef QUILL_GEMV_JOB_CUH
#define QUILL_GEMV_JOB_CUH

#include "gpu/heads.cuh"
#include "gpu/rows.cuh"
#include "gpu/tensors.cuh"

// What a block does with the sums v.
typedef enum {
    GEMV_STORE, // y = v
    GEMV_ADD,   // y += v
    GEMV_GLU,   // y = act(v of w[0]) * (v of w[1]): a warp takes half its rows from each
    GEMV_GATED, // y = act(y) * v: GLU's second half where the two matrices differ in type
    GEMV_STACK, // y = v, with the results of up to three matrices side by side
    GEMV_QKV,   // y = v; then norm and RoPE of the heads, which are stored as Q or in the cache
} GemvMode;

// GEMV_AHEAD: pieces of x that a thread loads before it uses the first, because several loads at once take no longer
// than one.
enum { GEMV_WARPS = 8, GEMV_SMEM = 64 << 10, GEMV_AHEAD = 3 };

// Rows of the matrix that a warp computes at a time: more for large matrices and a single row of x.
enum { GEMV_FEW = 2, GEMV_MANY = 4 };

struct GemvJob {
    DeviceTensor w[3]; // one matrix; GLU: gate and up; QKV, STACK: up to three
    int n_out[3];      // for each of w: features, of a stack those of one matrix
    int first_task[4]; // the first task of each of w, then their end; GLU has one range
    int chunk;         // elements of x in shared memory at a time, a multiple of QK_K
    int n_rows, n_in;
    const float *x; // (.., n_in), rows x_stride apart
    size_t x_stride;
    bool whole;        // rows of x are whole pieces of four, 16-byte aligned
    const int *rows;   // (n_rows) the rows of x to use; NULL: the first n_rows
    const float *norm; // (n_in), or NULL
    float eps;
    GemvMode mode;
    Activation act; // GLU, GATED
    float slope;    // activation_slope(act)
    float *y;       // (n_rows, stride)
    size_t stride;
    HeadJob heads;      // QKV
    bool paired;        // QKV: a warp finishes pairs of elements by itself (finish_pair)
    unsigned *counters; // QKV, not paired: one for each head of Q, then of K, then of V
};

// The rows of x, y and the matrices that a block computes.
struct GemvRows {
    const float *x;  // (.., n_in), rows GemvJob.x_stride apart
    const int *rows; // (n) the rows of x to use; NULL: the first n
    float *y;        // (n, stride)
    int n;
    int base;            // the matrices, and their biases, begin at this row
    const float *factor; // (n) what the rows of x are multiplied by, or NULL
};

__device__ __forceinline__ GemvRows gemv_all_rows(const GemvJob &g) { return {g.x, g.rows, g.y, g.n_rows, 0, NULL}; }

// The features that a warp computes at a time: their part of the job, the first of them, and the part's end.
struct GemvTask {
    int part, first, n_out;
};

// features: those of a task
__device__ __forceinline__ GemvTask gemv_task(const GemvJob &g, int task, int features) {
    int part = 0;
    while (task >= g.first_task[part + 1]) part++;
    return {part, (task - g.first_task[part]) * features, g.n_out[part]};
}

// The matrix's row of feature f of part `part`: features 2i and 2i + 1 of a paired job are the elements that RoPE turns
// together.
__device__ __forceinline__ int paired_row(const GemvJob &g, int part, int f) {
    int n = g.heads.heads.head_dim, half = n / 2;
    if (!g.paired || part == 2 || g.heads.rope.adjacent) return f;
    return f / n * n + f % n / 2 + f % 2 * half;
}

// The matrix of row r of a task with R rows.
template <int R> __device__ __forceinline__ const DeviceTensor &matrix_of(const GemvJob &g, int part, int r) {
    return g.w[g.mode == GEMV_GLU ? (r >= R / 2 ? 1 : 0) : part];
}

// The rows of the matrices that a task multiplies.
template <int R>
__device__ __forceinline__ void rows_of(int (&row)[R], const GemvJob &g, const GemvRows &s, const GemvTask &t) {
    UNROLL
    for (int r = 0; r < R; r++) {
        int f = t.first + (g.mode == GEMV_GLU ? r % (R / 2) : r);
        row[r] = s.base + paired_row(g, t.part, f < t.n_out ? f : t.n_out - 1);
    }
}

// Matrices of any type, which the kernel checks at run time.
enum { ANY_WEIGHT = -1 };

#endif
