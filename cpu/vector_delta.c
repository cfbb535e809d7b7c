// cpu/vector_delta.c: the vector kernels of recurrent layers: the short convolution, the gated delta rule row by row
// and in chunks (Yang et al. 2024, "Gated Delta Networks").
//
// In a chunk of C rows let G_t be the sum of the decays (logarithms) up to row t, and M the matrix in front of it:
//     u_t = beta_t (v_t - e^G_t M^T k_t - sum over i < t of e^(G_t - G_i) (k_t.k_i) u_i)
//     out_t = e^G_t M^T q_t + sum over i <= t of e^(G_t - G_i) (q_t.k_i) u_i
//     M after the chunk = e^G_C M + sum over i of e^(G_C - G_i) k_i u_i^T
// The sum in u_t makes a triangular system of C rows, which is solved in blocks; everything else is matrix products.
// Decays are negative or 0, so that no exponential overflows. With DeltaTask.plain u_t is beta_t v_t: there is no
// system to solve. The products k_t.k_i and q_t.k_i are computed once for all value heads of a key head.
#include "cpu/vector.h"

enum {
    CHUNK = DELTA_CHUNK,
    LEAST_ROWS = 12, // with fewer rows, computing row by row is faster
    BLOCK = 16,      // rows of the triangular system that are solved one by one; blocks before them by a product
    TILE_ROWS = 4,
    TILE_VECTORS = QUILL_SIMD == 512 ? 4 : 2,
    STEP_VECTORS = 2, // vectors of value columns of M per pass: with 128 rows these columns stay in the L1 cache
};

// ---- the convolution ------------------------------------------------------------------------------------------------

void vector_convolve(const ConvolveTask *t) {
    enum { WIDTH = 128 };
    for (int c0 = 0; c0 < t->n_channels; c0 += WIDTH) {
        int n = int_min(WIDTH, t->n_channels - c0), last = t->taps - 1;
        float weights[MOST_TAPS][WIDTH];
        for (int c = 0; c < n; c++)
            for (int j = 0; j < t->taps; j++) weights[j][c] = t->weights[(c0 + c) * t->taps + j];
        for (int i = t->n_rows - 1; i >= 0; i--) {
            float *row = t->rows + (size_t)i * t->stride + c0;
            const float *in[MOST_TAPS];
            for (int j = 0; j < t->taps; j++) {
                int from = i - last + j;
                in[j] = from >= 0 ? t->rows + (size_t)from * t->stride + c0
                                  : t->before + (size_t)(from + last) * (size_t)t->n_channels + c0;
            }
            int c = 0;
            for (; c + VL <= n; c += VL) {
                vf sum = {0};
                for (int j = 0; j < t->taps; j++) sum += vload(&weights[j][c]) * vload(in[j] + c);
                vstore(row + c, sum);
            }
            for (; c < n; c++) {
                float sum = 0;
                for (int j = 0; j < t->taps; j++) sum += weights[j][c] * in[j][c];
                row[c] = sum;
            }
        }
    }
}

// ---- row by row -----------------------------------------------------------------------------------------------------

// C vectors of value columns from `column` on; C is a constant.
INLINE void step_columns(const DeltaTask *t, size_t row, int column, int C) {
    const float *q = t->q + row * t->stride, *k = t->k + row * t->stride, *v = t->v + row * t->stride + column;
    float decay = expf(t->decay[row * t->stride]), beta = t->beta[row * t->stride];
    size_t width = (size_t)t->value_dim;
    float *m = t->state + column;
    vf found[STEP_VECTORS] = {0}, d[STEP_VECTORS], out[STEP_VECTORS] = {0};
    for (int i = 0; i < t->key_dim && !t->plain; i++) UNROLL(2)
    for (int c = 0; c < C; c++) found[c] += vload(m + (size_t)i * width + c * VL) * k[i];
    UNROLL(2)
    for (int c = 0; c < C; c++) d[c] = (vload(v + c * VL) - found[c] * decay) * beta;
    for (int i = 0; i < t->key_dim; i++) UNROLL(2)
    for (int c = 0; c < C; c++) {
        float *at = m + (size_t)i * width + c * VL;
        vf now = vload(at) * decay + d[c] * k[i];
        out[c] += now * q[i];
        vstore(at, now);
    }
    UNROLL(2)
    for (int c = 0; c < C; c++) vstore(t->out + row * t->out_stride + column + c * VL, out[c]);
}

static void step_column(const DeltaTask *t, size_t row, int column) {
    const float *q = t->q + row * t->stride, *k = t->k + row * t->stride;
    float decay = expf(t->decay[row * t->stride]), found = 0, out = 0;
    size_t width = (size_t)t->value_dim;
    float *m = t->state + column;
    for (int i = 0; i < t->key_dim && !t->plain; i++) found += m[(size_t)i * width] * k[i];
    float d = (t->v[row * t->stride + (size_t)column] - found * decay) * t->beta[row * t->stride];
    for (int i = 0; i < t->key_dim; i++) {
        m[(size_t)i * width] = m[(size_t)i * width] * decay + d * k[i];
        out += m[(size_t)i * width] * q[i];
    }
    t->out[row * t->out_stride + (size_t)column] = out;
}

static void head_in_order(const DeltaTask *t) {
    int column = 0;
    for (; column + STEP_VECTORS * VL <= t->value_dim; column += STEP_VECTORS * VL)
        for (size_t row = 0; row < (size_t)t->n_rows; row++) step_columns(t, row, column, STEP_VECTORS);
    for (; column + VL <= t->value_dim; column += VL)
        for (size_t row = 0; row < (size_t)t->n_rows; row++) step_columns(t, row, column, 1);
    for (; column < t->value_dim; column++)
        for (size_t row = 0; row < (size_t)t->n_rows; row++) step_column(t, row, column);
}

void vector_delta_in_order(const DeltaTask *t) {
    for (int head = 0; head < t->n_heads; head++) {
        DeltaTask one = delta_head(t, head);
        head_in_order(&one);
    }
}

// ---- products -------------------------------------------------------------------------------------------------------

// y (R rows, V vectors) += x b, `depth` deep; R and V are constants.
INLINE void tile(float *y, size_t y_stride, const float *x, size_t x_stride, const float *b, size_t b_stride, int depth,
                 int R, int V) {
    vf sum[TILE_ROWS][TILE_VECTORS];
    UNROLL(4)
    for (int r = 0; r < R; r++) UNROLL(4)
    for (int v = 0; v < V; v++) sum[r][v] = vload(y + (size_t)r * y_stride + v * VL);
    for (int i = 0; i < depth; i++) {
        vf row[TILE_VECTORS];
        UNROLL(4)
        for (int v = 0; v < V; v++) row[v] = vload(b + (size_t)i * b_stride + v * VL);
        UNROLL(4)
        for (int r = 0; r < R; r++) {
            vf scale = vset(x[(size_t)r * x_stride + (size_t)i]);
            UNROLL(4)
            for (int v = 0; v < V; v++) sum[r][v] += scale * row[v];
        }
    }
    UNROLL(4)
    for (int r = 0; r < R; r++) UNROLL(4)
    for (int v = 0; v < V; v++) vstore(y + (size_t)r * y_stride + v * VL, sum[r][v]);
}

// y (n_rows, n_columns) += x (n_rows, depth) b (depth, n_columns); n_columns is whole vectors.
static void add_product(float *y, size_t y_stride, const float *x, size_t x_stride, const float *b, size_t b_stride,
                        int n_rows, int depth, int n_columns) {
    for (int c = 0, wide; c < n_columns; c += wide * VL) {
        wide = c + TILE_VECTORS * VL <= n_columns ? TILE_VECTORS : 1;
        int r = 0;
        for (; r + TILE_ROWS <= n_rows; r += TILE_ROWS) {
            float *at = y + (size_t)r * y_stride + c;
            const float *from = x + (size_t)r * x_stride;
            if (wide == TILE_VECTORS)
                tile(at, y_stride, from, x_stride, b + c, b_stride, depth, TILE_ROWS, TILE_VECTORS);
            else tile(at, y_stride, from, x_stride, b + c, b_stride, depth, TILE_ROWS, 1);
        }
        for (; r < n_rows; r++) {
            float *at = y + (size_t)r * y_stride + c;
            const float *from = x + (size_t)r * x_stride;
            if (wide == TILE_VECTORS) tile(at, y_stride, from, x_stride, b + c, b_stride, depth, 1, TILE_VECTORS);
            else tile(at, y_stride, from, x_stride, b + c, b_stride, depth, 1, 1);
        }
    }
}

// ---- a chunk --------------------------------------------------------------------------------------------------------

// dots = x k^T up to the diagonal, in whole vectors. x: (n_rows, key_dim), rows t->stride apart.
static void multiply_keys(const DeltaTask *t, float *dots, const float *x, const float *keys, int n_rows) {
    for (int first = 0; first < n_rows; first += TILE_ROWS) {
        int end = int_min(n_rows, first + TILE_ROWS), n = (end + VL - 1) / VL * VL;
        for (int i = first; i < end; i++) memset(dots + i * CHUNK, 0, (size_t)n * sizeof *dots);
        add_product(dots + first * CHUNK, CHUNK, x + (size_t)first * t->stride, t->stride, keys, CHUNK, end - first,
                    t->key_dim, n);
    }
}

// Computes what the value heads of a key head have in common: the products of q and k of the chunk's rows.
static void multiply_rows(const DeltaTask *t, DeltaChunk *room, int n_rows) {
    int n = (n_rows + VL - 1) / VL * VL;
    for (int d = 0; d < t->key_dim; d++)
        for (int i = 0; i < n; i++)
            room->keys[d * CHUNK + i] = i < n_rows ? t->k[(size_t)i * t->stride + (size_t)d] : 0;
    if (!t->plain) multiply_keys(t, room->dots_k, t->k, room->keys, n_rows);
    multiply_keys(t, room->dots_q, t->q, room->keys, n_rows);
}

// Scales elements up to the diagonal of row t of both matrices by the decay between row t and the row of the element.
// Elements behind it, up to the end of its block of TILE_ROWS, become 0.
static void scale_row(DeltaChunk *room, int t, float beta, bool plain) {
    float *solve = room->solve + t * CHUNK, *weigh = room->weigh + t * CHUNK;
    const float *of_k = room->dots_k + t * CHUNK, *of_q = room->dots_q + t * CHUNK;
    for (int i = 0; i < t / TILE_ROWS * TILE_ROWS + TILE_ROWS; i += VL) {
        vf e = vexp(vset(room->sum[t]) - vload(room->sum + i) + (vset(room->rest[t]) - vload(room->rest + i)));
        vf p = vload(of_q + i) * e;
        for (int l = 0; l < VL; l++) weigh[i + l] = i + l <= t ? p[l] : 0;
        if (plain) continue;
        vf a = vload(of_k + i) * e * -beta;
        for (int l = 0; l < VL; l++) solve[i + l] = i + l < t ? a[l] : 0;
    }
}

// Computes G, and the two matrices that relate the rows of the chunk: room->solve for u, room->weigh for the outputs.
static void relate_rows(const DeltaTask *t, DeltaChunk *room, int n_rows) {
    int n = (n_rows + VL - 1) / VL * VL;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        if (i < n_rows) sum += (double)t->decay[(size_t)i * t->stride];
        room->sum[i] = (float)sum;
        room->rest[i] = (float)(sum - (double)room->sum[i]);
        room->grown[i] = expf(room->sum[i]);
    }
    for (int i = 0; i < n_rows; i++) scale_row(room, i, t->beta[(size_t)i * t->stride], t->plain);
}

// Computes u of all rows: first the terms with M, then, block by block, the terms of earlier rows of the chunk.
static void solve_updates(const DeltaTask *t, DeltaChunk *room, int n_rows) {
    size_t width = (size_t)t->value_dim;
    memset(room->updates, 0, (size_t)n_rows * width * sizeof(float));
    if (!t->plain)
        add_product(room->updates, width, t->k, t->stride, t->state, width, n_rows, t->key_dim, t->value_dim);
    for (size_t i = 0; i < (size_t)n_rows; i++) {
        float *u = room->updates + i * width, beta = t->beta[i * t->stride], grown = room->grown[i];
        const float *v = t->v + i * t->stride;
        for (size_t c = 0; c < width; c += VL) vstore(u + c, (vload(v + c) - vload(u + c) * grown) * beta);
    }
    for (int first = 0; first < n_rows && !t->plain; first += BLOCK) {
        int end = int_min(n_rows, first + BLOCK);
        add_product(room->updates + (size_t)first * width, width, room->solve + first * CHUNK, CHUNK, room->updates,
                    width, end - first, first, t->value_dim);
        for (int i = first + 1; i < end; i++)
            add_product(room->updates + (size_t)i * width, width, room->solve + i * CHUNK + first, CHUNK,
                        room->updates + (size_t)first * width, width, 1, i - first, t->value_dim);
    }
}

static void chunk_outputs(const DeltaTask *t, const DeltaChunk *room, int n_rows) {
    size_t width = (size_t)t->value_dim;
    for (size_t i = 0; i < (size_t)n_rows; i++) memset(t->out + i * t->out_stride, 0, width * sizeof(float));
    add_product(t->out, t->out_stride, t->q, t->stride, t->state, width, n_rows, t->key_dim, t->value_dim);
    for (size_t i = 0; i < (size_t)n_rows; i++) {
        float *out = t->out + i * t->out_stride;
        for (size_t c = 0; c < width; c += VL) vstore(out + c, vload(out + c) * room->grown[i]);
    }
    for (int first = 0; first < n_rows; first += TILE_ROWS) { // skips the zeros above the diagonal
        int end = int_min(n_rows, first + TILE_ROWS);
        add_product(t->out + (size_t)first * t->out_stride, t->out_stride, room->weigh + first * CHUNK, CHUNK,
                    room->updates, width, end - first, end, t->value_dim);
    }
}

static void chunk_state(const DeltaTask *t, DeltaChunk *room, int n_rows) {
    size_t width = (size_t)t->value_dim, all = (size_t)t->key_dim * width;
    int last = n_rows - 1;
    float grown = room->grown[last];
    for (int i = 0; i < n_rows; i++) {
        float *u = room->updates + (size_t)i * width,
              later = expf(room->sum[last] - room->sum[i] + (room->rest[last] - room->rest[i]));
        for (size_t c = 0; c < width; c += VL) vstore(u + c, vload(u + c) * later);
    }
    for (size_t i = 0; i < all; i += VL) vstore(t->state + i, vload(t->state + i) * grown);
    add_product(t->state, width, room->keys, CHUNK, room->updates, width, t->key_dim, n_rows, t->value_dim);
}

void vector_delta(const DeltaTask *t) {
    if (t->n_rows < LEAST_ROWS || t->value_dim % VL) {
        vector_delta_in_order(t);
        return;
    }
    for (int first = 0, n; first < t->n_rows; first += n) {
        DeltaTask part = *t;
        size_t ahead = (size_t)first * t->stride;
        n = int_min(CHUNK, t->n_rows - first);
        part.q += ahead, part.k += ahead, part.v += ahead, part.beta += ahead, part.decay += ahead;
        part.out += (size_t)first * t->out_stride;
        multiply_rows(&part, t->scratch, n);
        for (int head = 0; head < t->n_heads; head++) {
            DeltaTask one = delta_head(&part, head);
            relate_rows(&one, t->scratch, n);
            solve_updates(&one, t->scratch, n);
            chunk_outputs(&one, t->scratch, n);
            chunk_state(&one, t->scratch, n);
        }
    }
}
