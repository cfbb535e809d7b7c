// gpu/experts.cuh: routing of rows to experts, products of each expert with few rows, and the sum of the outputs of a
// row's experts.
//
// Pairs of a row and one of its experts are sorted by expert, then by row, as in ExpertRows (kernels.h). Padding rows
// have no pairs. A stack of experts is one tall matrix: expert e begins at row e * (rows of one expert).
#ifndef QUILL_EXPERTS_CUH
#define QUILL_EXPERTS_CUH

#include "gpu/gemv.cuh"

enum {
    ROUTE_WARPS = 8, // rows that a block routes
    ROUTE_FEW = 32,  // rows whose pairs one block sorts, at most
    ROUTE_MOST = 16, // warps of that block, at most: with 32, the registers of an SM would not suffice
    GROUP_THREADS = 512,
    MOST_GROUPS = 64, // load/experts.c refuses more
};

struct RouteJob {
    GpuExperts e;
    const int *slot;   // (n_rows) < 0: padding
    const float *bias; // (n_experts) still to be added to the logits, or NULL
    int n_rows, n_experts, n_used;
    size_t stride; // floats from one row of logits to the next
    Routing routing;
    float scale;
    int layer;                               // the layer's number in the model
    const float *expert_bias, *expert_scale; // (n_experts), or NULL: as in Layer
    int n_groups, n_groups_used;             // LayerKind
    float *score; // (n_rows, n_experts) GpuExperts.score; NULL: experts are chosen by their logits
};

// ---- the choice -----------------------------------------------------------------------------------------------------

__device__ __forceinline__ float route_logit(const RouteJob &j, int row, int expert) {
    return j.e.logits[(size_t)row * j.stride + (size_t)expert] + (j.bias ? j.bias[expert] : 0);
}

// Adds the values of all lanes to `sum`, in order of the lanes. Every lane gets the result.
__device__ __forceinline__ float add_lanes(float sum, float v, int n) {
    for (int i = 0; i < n && i < WARP; i++) sum += __shfl_sync(FULL_WARP, v, i);
    return sum;
}

// Whether experts are chosen by sigmoids.
HOST_DEVICE inline bool by_sigmoid(Routing r) { return route_by_sigmoid(r) && !route_weighs_inputs(r); }
__device__ __forceinline__ float sigmoid_of_logit(const RouteJob &j, int row, int expert) {
    return 1 / (1 + expf(-route_logit(j, row, expert)));
}

// The weights of a row's experts if sigmoids decide. The order of summation is the CPU's.
__device__ inline void weigh_sigmoids(const RouteJob &j, int row, const int *chosen, float *weight, int lane) {
    float sum = j.routing == ROUTE_SIGMOID_CHOSEN ? 1e-20f : 1;
    for (int first = 0; first < j.n_used && j.routing == ROUTE_SIGMOID_CHOSEN; first += WARP) {
        int i = first + lane < j.n_used ? first + lane : j.n_used - 1;
        sum = add_lanes(sum, sigmoid_of_logit(j, row, chosen[i]), j.n_used - first);
    }
    for (int k = lane; k < j.n_used; k += WARP) weight[k] = sigmoid_of_logit(j, row, chosen[k]) / sum * j.scale;
}

// The weights of a row's experts. Without expert_bias the first has the largest logit. The order of summation is the
// CPU's.
__device__ inline void weigh_row(const RouteJob &j, int row, const int *chosen, float *weight, int lane) {
    if (route_by_sigmoid(j.routing)) return weigh_sigmoids(j, row, chosen, weight, lane);
    float most = route_logit(j, row, chosen[0]), sum = 0;
    for (int k = 1; k < j.n_used && j.expert_bias; k++) most = fmaxf(most, route_logit(j, row, chosen[k]));
    bool all = j.routing == ROUTE_ALL;
    int n = all ? j.n_experts : j.n_used;
    for (int first = 0; first < n; first += WARP) {
        int i = first + lane < n ? first + lane : n - 1;
        sum = add_lanes(sum, expf(route_logit(j, row, all ? i : chosen[i]) - most), n - first);
    }
    for (int k = lane; k < j.n_used; k += WARP) weight[k] = expf(route_logit(j, row, chosen[k]) - most) / sum * j.scale;
}

// The best score of a group of experts; with `both` the sum of its two best scores.
__device__ inline float group_score(const RouteJob &j, const float *score, int group, bool both) {
    int size = j.n_experts / j.n_groups;
    float best = -INFINITY, second = -INFINITY;
    for (int i = group * size; i < (group + 1) * size; i++) {
        float v = score[i];
        if (v > best) second = best, best = v;
        else if (v > second) second = v;
    }
    return both && size > 1 ? best + second : best;
}

// The largest logit of a row, and the sum of a softmax over all its experts, in the CPU's order of summation.
__device__ inline float softmax_sum(const RouteJob &j, int row, int lane, float *most) {
    float mine = -INFINITY, sum = 0;
    for (int i = lane; i < j.n_experts; i += WARP) mine = fmaxf(mine, route_logit(j, row, i));
    *most = warp_max(mine);
    for (int first = 0; first < j.n_experts; first += WARP) {
        int i = first + lane < j.n_experts ? first + lane : j.n_experts - 1;
        sum = add_lanes(sum, expf(route_logit(j, row, i) - *most), j.n_experts - first);
    }
    return sum;
}

// Computes the scores that a row's experts are chosen by (GpuExperts.score). A lane computes every 32nd expert and
// decides every 32nd group.
__device__ inline void score_row(const RouteJob &j, int row, float *score, int lane) {
    bool sigmoids = by_sigmoid(j.routing);
    float most = 0, sum = !sigmoids && j.expert_bias ? softmax_sum(j, row, lane, &most) : 1;
    for (int i = lane; i < j.n_experts; i += WARP) {
        float v = sigmoids        ? sigmoid_of_logit(j, row, i)
                  : j.expert_bias ? expf(route_logit(j, row, i) - most) / sum
                                  : route_logit(j, row, i);
        score[i] = v + (j.expert_bias ? j.expert_bias[i] : 0);
    }
    __syncwarp();
    float best[MOST_GROUPS / WARP];
    for (int k = 0; k < MOST_GROUPS / WARP; k++)
        best[k] = lane + k * WARP < j.n_groups ? group_score(j, score, lane + k * WARP, sigmoids) : -INFINITY;
    __syncwarp();
    for (int k = 0; k < MOST_GROUPS / WARP; k++) {
        int mine = lane + k * WARP, before = 0, size = j.n_groups > 0 ? j.n_experts / j.n_groups : 0;
        for (int g = 0; g < j.n_groups; g++) {
            float other = __shfl_sync(FULL_WARP, g < WARP ? best[0] : best[1], g % WARP);
            before += other > best[k] || (other == best[k] && g < mine);
        }
        for (int i = mine * size; mine < j.n_groups && before >= j.n_groups_used && i < (mine + 1) * size; i++)
            score[i] = -INFINITY;
    }
    __syncwarp();
}

// One warp per row: chooses its experts and computes their weights.
__device__ inline void route_row(const RouteJob &j, int row, int lane) {
    int *chosen = j.e.chosen + (size_t)row * (size_t)j.n_used;
    float *weight = j.e.weight + (size_t)row * (size_t)j.n_used;
    bool finite = true, padding = j.slot[row] < 0;
    for (int i = lane; i < j.n_experts; i += WARP) finite = finite && isfinite(route_logit(j, row, i));
    for (size_t i = (size_t)j.n_experts; i < j.stride; i++) // the gate of the shared expert
        finite = finite && isfinite(j.e.logits[(size_t)row * j.stride + i]);
    finite = __ballot_sync(FULL_WARP, !finite) == 0;
    if (padding || !finite) {
        for (int k = lane; k < j.n_used; k += WARP) chosen[k] = padding ? -1 : k, weight[k] = NAN;
        if (lane == 0 && !padding && *j.e.broken == 0) *j.e.broken = j.layer + 1; // all rows of a launch write the same
        return;
    }
    float *score = j.score ? j.score + (size_t)row * (size_t)j.n_experts : (float *)NULL;
    if (score) score_row(j, row, score, lane);
    uint64_t last = UINT64_MAX;
    for (int k = 0; k < j.n_used; k++) {
        uint64_t best = 0;
        for (int i = lane; i < j.n_experts; i += WARP) {
            uint64_t key = rank_key(score ? score[i] : route_logit(j, row, i), i);
            if (key < last && key > best) best = key;
        }
        last = warp_max_key(best);
        if (lane == 0) chosen[k] = key_id(last);
    }
    __syncwarp();
    weigh_row(j, row, chosen, weight, lane);
    if (j.expert_scale) // a lane scales the weights that it has written
        for (int k = lane; k < j.n_used; k += WARP) weight[k] *= j.expert_scale[chosen[k]];
}

// ---- pairs by expert ------------------------------------------------------------------------------------------------

__device__ __forceinline__ void put_pair(const RouteJob &j, int pair, int expert, int place) {
    j.e.place[pair] = place;
    j.e.row[place] = pair / j.n_used;
    j.e.expert[place] = expert;
    if (!route_weighs_inputs(j.routing)) return;
    j.e.factor[place] = j.e.weight[pair]; // of the input in place of the output
    j.e.weight[pair] = 1;
}

// For up to ROUTE_FEW rows: one block chooses for all of them; then each thread counts the pairs before its own.
__global__ void __launch_bounds__(ROUTE_MOST *WARP) route_few(GRID_CONSTANT const RouteJob j) {
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, n = j.n_rows * j.n_used;
    let_next_begin();
    wait_for_last();
    for (int row = warp; row < j.n_rows; row += (int)blockDim.x / WARP) route_row(j, row, lane);
    __syncthreads();
    for (int p = (int)threadIdx.x; p < n; p += (int)blockDim.x) {
        int mine = j.e.chosen[p], place = 0, all = 0;
        for (int i = 0; i < n; i++) {
            int other = j.e.chosen[i];
            all += other >= 0;
            place += other >= 0 && (other < mine || (other == mine && i < p));
        }
        if (mine >= 0) put_pair(j, p, mine, place);
        else j.e.place[p] = -1;
        if (p >= all) j.e.expert[p] = -1; // after the last pair
    }
    for (int e = (int)threadIdx.x; e <= j.n_experts; e += (int)blockDim.x) {
        int first = 0;
        for (int i = 0; i < n; i++) first += j.e.chosen[i] >= 0 && j.e.chosen[i] < e;
        j.e.first[e] = first;
    }
}

// One warp per row.
__global__ void route_rows(GRID_CONSTANT const RouteJob j) {
    int row = (int)blockIdx.x * ROUTE_WARPS + (int)threadIdx.x / WARP;
    if (row < j.n_rows) route_row(j, row, (int)threadIdx.x % WARP);
}

// Places the pairs of a block's expert after the `before` pairs of earlier experts.
__device__ inline void place_pairs(const RouteJob &j, int expert, int before, int *of_warp) {
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, warps = (int)blockDim.x / WARP;
    int n = j.n_rows * j.n_used;
    for (int first = 0; first < n; first += (int)blockDim.x) {
        int p = first + (int)threadIdx.x;
        bool mine = p < n && j.e.chosen[p < n ? p : 0] == expert;
        unsigned votes = __ballot_sync(FULL_WARP, mine);
        if (lane == 0) of_warp[warp] = (int)__popc(votes);
        __syncthreads();
        int place = before + (int)__popc(votes & ((1u << lane) - 1)), all = 0;
        for (int w = 0; w < warps; w++) {
            place += w < warp ? of_warp[w] : 0;
            all += of_warp[w];
        }
        if (mine) put_pair(j, p, expert, place);
        else if (p < n && j.e.chosen[p] < 0) j.e.place[p] = -1;
        before += all;
        __syncthreads(); // all threads have read of_warp, which is written again
    }
}

// Divides the expert's pairs into tiles; the last expert marks the remaining tiles as empty.
__device__ inline void cut_tiles(const RouteJob &j, int expert, int first, int n, int tile, int n_tiles) {
    for (int t = (int)threadIdx.x; t * GPU_EXPERT_TILE < n; t += (int)blockDim.x) {
        int left = n - t * GPU_EXPERT_TILE;
        j.e.tile[tile + t] = {expert, first + t * GPU_EXPERT_TILE, left < GPU_EXPERT_TILE ? left : GPU_EXPERT_TILE};
    }
    if (expert != j.n_experts - 1) return;
    tile += (n + GPU_EXPERT_TILE - 1) / GPU_EXPERT_TILE;
    for (int t = tile + (int)threadIdx.x; t < n_tiles; t += (int)blockDim.x) j.e.tile[t] = {0, 0, 0};
}

// One block per expert: counts the pairs of all experts, then places its own.
__global__ __launch_bounds__(GROUP_THREADS) void group_pairs(GRID_CONSTANT const RouteJob j, int n_tiles) {
    Smem smem;
    int *count = smem.take<int>((unsigned)j.n_experts), *of_warp = smem.take<int>(GROUP_THREADS / WARP);
    int expert = (int)blockIdx.x, n = j.n_rows * j.n_used, before = 0, tiles = 0;
    for (int i = (int)threadIdx.x; i < j.n_experts; i += (int)blockDim.x) count[i] = 0;
    __syncthreads();
    for (int p = (int)threadIdx.x; p < n; p += (int)blockDim.x)
        if (j.e.chosen[p] >= 0) atomicAdd(&count[j.e.chosen[p]], 1);
    __syncthreads();
    for (int i = 0; i < expert; i++) {
        before += count[i];
        tiles += (count[i] + GPU_EXPERT_TILE - 1) / GPU_EXPERT_TILE;
    }
    int mine = count[expert];
    if (threadIdx.x == 0) {
        j.e.first[expert] = before;
        if (expert == j.n_experts - 1) j.e.first[j.n_experts] = before + mine;
    }
    for (int p = before + mine + (int)threadIdx.x; expert == j.n_experts - 1 && p < n; p += (int)blockDim.x)
        j.e.expert[p] = -1; // after the last pair
    cut_tiles(j, expert, before, mine, tiles, n_tiles);
    place_pairs(j, expert, before, of_warp);
}

// ---- products of few rows an expert ---------------------------------------------------------------------------------

// Products of the pairs' experts. x: for gate and up the batch's rows, for down the rows of h. y: (pairs, stride).
struct ExpertJob {
    GemvJob g; // its matrices are whole stacks; its x and y have all pairs
    GpuExperts e;
    bool from_rows;      // x has one row for each row of the batch; otherwise one for each pair
    const float *factor; // (pairs) of the rows of x, or NULL
};

// The shared memory of a block that multiplies matrices of a stack, for which the last launch is done.
struct StackBlock {
    GemvInput a;
    float *sums;
};
template <int B, bool INT8> __device__ __forceinline__ StackBlock begin_stack_block(const GemvJob &g) {
    Smem smem;
    StackBlock k = {take_activations<B, INT8>(&smem, g.chunk), smem.take<float>(GEMV_WARPS)};
    let_next_begin();
    wait_for_last();
    return k;
}

// Computes the block's features of one matrix of a stack, for the rows of s.
template <int TYPE, int R, int B, bool INT8>
__device__ __forceinline__ void run_stack_block(const StackBlock &k, const GemvJob &g, const GemvRows &s) {
    NoRing *ring = NULL;
    gemv_block<TYPE, R, B, INT8>(g, s, k.a, k.sums, ring, gemv_share((int)blockIdx.y, (int)gridDim.y, false), NULL);
}

// As gemv_resident.
HOST_DEVICE constexpr int experts_resident(int type, int rows, int batch) {
    return type == TYPE_Q8_0 || batch > 1 ? 2 : gemv_resident(type, rows, batch);
}

// grid: (pairs, blocks of an expert's features). The block of an expert's first pair computes all of its pairs, B at a
// time; the blocks of its other pairs return at once.
template <int TYPE, int R, int B, bool INT8>
__global__ __launch_bounds__(GEMV_WARPS *WARP,
                             experts_resident(TYPE, R, B)) void gemv_experts(GRID_CONSTANT const ExpertJob j) {
    const GemvJob &g = j.g;
    StackBlock k = begin_stack_block<B, INT8>(g);
    int pair = (int)blockIdx.x;
    int expert = j.e.expert[pair];
    if (expert < 0 || j.e.first[expert] != pair) return;
    int end = j.e.first[expert + 1];
    for (; pair < end; pair += B) {
        GemvRows s = {j.from_rows ? g.x : g.x + (size_t)pair * (size_t)g.n_in,
                      j.from_rows ? j.e.row + pair : (const int *)NULL,
                      g.y + (size_t)pair * g.stride,
                      end - pair < B ? end - pair : B,
                      expert * g.n_out[0],
                      j.factor ? j.factor + pair : (const float *)NULL};
        run_stack_block<TYPE, R, B, INT8>(k, g, s);
    }
}

// ---- the sum --------------------------------------------------------------------------------------------------------

struct CombineJob {
    float *x;           // (n_rows, dim)
    float *y;           // (pairs, dim) outputs of the experts; overwritten
    float *shared;      // (n_rows, dim) output of the shared expert, or NULL; overwritten
    const float *route; // logits of the shared expert's gate, `stride` apart; NULL: its weight is 1
    size_t stride;
    const float *norm;                       // (dim) or NULL
    const float *norm_shared, *norm_experts; // (dim) of the shared expert's output and of the experts' sum, or NULL
    float eps, eps_out;                      // eps_out: of `norm`
    const float *weight;
    const int *place; // (n_rows, n_used)
    int n_used, dim;
};

// The same if the experts' sum has a norm of its own: out = [norm_shared](shared) + norm_experts(sum). out is the row's
// first pair's output; a thread reads and writes its own elements only. Returns the thread's squares of out.
__device__ inline float combine_normed(const CombineJob &j, const int *place, const float *weight, float *shared,
                                       float *out, float part, float *sums) {
    float of_shared = 0, of_sum = 0, squares = 0;
    for (int i = (int)threadIdx.x; i < j.dim; i += (int)blockDim.x) {
        float sum = 0;
        for (int k = 0; k < j.n_used; k++) sum += weight[k] * j.y[(size_t)place[k] * (size_t)j.dim + (size_t)i];
        out[i] = sum;
        of_sum += sum * sum;
        if (shared) of_shared += shared[i] * shared[i];
    }
    float scale = 1 / sqrtf(block_sum(of_sum, sums) / (float)j.dim + j.eps);
    float scale_shared = 1 / sqrtf(block_sum(of_shared, sums) / (float)j.dim + j.eps);
    for (int i = (int)threadIdx.x; i < j.dim; i += (int)blockDim.x) {
        float v = shared ? shared[i] : 0;
        if (j.norm_shared) v = v * scale_shared * j.norm_shared[i];
        out[i] = v * part + out[i] * scale * j.norm_experts[i];
        squares += out[i] * out[i];
    }
    return squares;
}

// One block per row: x += norm(the shared expert's output + the sum over its experts in order of falling logit).
__global__ void combine_experts(GRID_CONSTANT const CombineJob j) {
    Smem smem;
    float *sums = smem.take<float>(blockDim.x / WARP);
    size_t row = blockIdx.x, dim = (size_t)j.dim;
    const int *place = j.place + row * (size_t)j.n_used;
    const float *weight = j.weight + row * (size_t)j.n_used;
    float *x = j.x + row * dim, squares = 0;
    let_next_begin();
    wait_for_last();
    if (place[0] < 0) return; // padding
    float part = j.route ? 1 / (1 + expf(-j.route[row * j.stride])) : 1;
    float *kept = j.y + (size_t)place[0] * dim, *shared = j.shared ? j.shared + row * dim : (float *)NULL;
    if (j.norm_experts) squares = combine_normed(j, place, weight, shared, kept, part, sums);
    for (int i = (int)threadIdx.x; !j.norm_experts && i < j.dim; i += (int)blockDim.x) { // a thread's own elements
        float sum = shared ? shared[i] * part : 0;
        for (int k = 0; k < j.n_used; k++) sum += weight[k] * j.y[(size_t)place[k] * dim + (size_t)i];
        if (j.norm) kept[i] = sum;
        else x[i] += sum;
        squares += sum * sum;
    }
    if (!j.norm && !j.norm_experts) return;
    float scale = j.norm ? 1 / sqrtf(block_sum(squares, sums) / (float)j.dim + j.eps_out) : 1;
    for (int i = (int)threadIdx.x; i < j.dim; i += (int)blockDim.x) x[i] += kept[i] * scale * (j.norm ? j.norm[i] : 1);
}

#endif
