// tests/test_gpu_kernels.c: every kernel of a layer on the GPU against the scalar reference, on odd shapes and random
// input.
//
// The CPU's scalar backend runs a layer's operations; each launch gets the same input and its result is compared. Runs
// on the host that stands for a GPU (tests/rig/gpu_host.h), or on a GPU (make gpu-tests).
#include "tests/rig/testing.h"

#include "cpu/cpu.h"
#include "tests/rig/gpu_case.h"

#include <math.h>

// Copies n floats of the host's rows to the device, with a row of padding.
static float *with_padding(GpuCaseRig *r, const float *rows, int width) {
    size_t n = (size_t)r->b.n_rows * (size_t)width;
    float *copy = malloc((n + (size_t)width) * sizeof *copy);
    memcpy(copy, rows, n * sizeof *copy);
    for (int i = 0; i < width; i++) copy[n + (size_t)i] = test_uniform(&r->random);
    float *d = device_new(copy, (n + (size_t)width) * sizeof *copy);
    free(copy);
    return d;
}

static float *fresh(GpuCaseRig *r, int width) {
    return device_new(NULL, (size_t)(r->b.n_rows + 1) * (size_t)width * sizeof(float));
}

// The same in bf16.
static const void *rounded_rows(GpuCaseRig *r, const float *rows, int width) {
    void *out = fresh(r, width);
    gpu_convert(out, TYPE_BF16, with_padding(r, rows, width), (size_t)(r->b.n_rows + 1) * (size_t)width, NULL);
    return out;
}

// ---- the operations -------------------------------------------------------------------------------------------------

// Compares the rows' K or V among the device's products with the host's; the groups that the rows complete must equal
// the host's byte for byte. before: the pool without the rows.
static void compare_sealed(GpuCaseRig *r, int way, bool value, const KvPool *before) {
    const Batch *b = &r->b;
    KvPool *kv = &r->kv;
    size_t width = (size_t)(r->w.q_dim + 2 * r->w.kv_dim), kv_dim = (size_t)r->w.kv_dim, hd = (size_t)kv->head_dim;
    size_t first = (size_t)r->w.q_dim + value * kv_dim, n = (size_t)b->n_rows, bytes = pool_plane_bytes(kv, value);
    float *qkv = malloc(n * width * sizeof *qkv), *got = malloc(n * kv_dim * sizeof *got);
    device_read(qkv, r->s.qkv, n * width * sizeof *qkv);
    for (size_t i = 0; i < n; i++) memcpy(got + i * kv_dim, qkv + i * width + first, kv_dim * sizeof *got);
    gpu_compare_note(KV, way, test_distance(got, value ? r->w.v : r->w.k, n * kv_dim));
    KvPool expected = *before;
    *(value ? &expected.v : &expected.k) = host_copy(pool_plane(before, value), bytes);
    for (int i = 0; i < b->n_rows; i++) {
        int slot = b->slot[i], since = b->slot[i / r->c->rows_each * r->c->rows_each];
        const int *table = gpu_case_table(r, b->seq[i]);
        const float *rows[SEAL];
        for (int head = 0; head < kv->n_kv_heads && slot % SEAL == SEAL - 1; head++) {
            for (int s = 0; s < SEAL; s++) {
                int back = SEAL - 1 - s;
                rows[s] = slot - back < since
                              ? pool_tail(before, value) + kv_tail_index(kv, 1, kv_tail(kv, table, slot), head, s)
                              : got + (size_t)(i - back) * kv_dim + (size_t)head * hd;
            }
            pool_seal_at(&expected, value, 1, table, head, slot - SEAL + 1, rows);
        }
    }
    if (!device_same(pool_plane(&expected, value), pool_plane(&r->dkv, value), bytes))
        fail_msg("%s: %s sealed in other bytes", gpu_compare_case, value ? "V" : "K");
    free(pool_plane(&expected, value));
    free(qkv);
    free(got);
}

// Compares the device's planes with the host's: NaN on one side must be NaN on the other.
static void compare_cache(GpuCaseRig *r, int way, const KvPool *before) {
    gpu_seal(&r->l, &r->dkv, &r->db, &r->s, NULL);
    gpu_compare_launched();
    for (int v = 0; v < 2; v++) {
        int type = v ? r->kv.type_v : r->kv.type_k;
        if (kv_is_sealed(type)) {
            compare_sealed(r, way, v, before);
            continue;
        }
        size_t n = (v ? r->kv.bytes_v : r->kv.bytes_k) / kv_type_bytes(type);
        const uint8_t *host = v ? r->kv.v : r->kv.k;
        uint8_t *device = malloc(n * kv_type_bytes(type));
        device_read(device, v ? r->dkv.v : r->dkv.k, n * kv_type_bytes(type));
        float *ref = calloc(n, sizeof *ref), *out = calloc(n, sizeof *out);
        for (size_t i = 0; i < n; i++) {
            float a = gpu_compare_float(type, host, i), b = gpu_compare_float(type, device, i);
            if (isnan(a) != isnan(b))
                fail_msg("%s: element %zu of the cache: %g expected, %g found", gpu_compare_case, i, a, b);
            if (!isnan(a)) ref[i] = a, out[i] = b;
        }
        gpu_compare_note(KV, type == TYPE_F32 ? way : int_max(way, HALF_IN), test_distance(out, ref, n));
        free(ref);
        free(out);
        free(device);
    }
}

static void reset_cache(GpuCaseRig *r, const KvPool *to) {
    device_write(r->dkv.k, to->k, to->bytes_k);
    device_write(r->dkv.v, to->v, to->bytes_v);
    for (int v = 0; v < 2; v++)
        if (pool_tail(to, v))
            device_write(pool_tail(&r->dkv, v), pool_tail(to, v), pool_tail_floats(to) * sizeof(float));
}

static KvPool cache_copy(const KvPool *kv) {
    KvPool copy = *kv;
    copy.k = host_copy(kv->k, kv->bytes_k);
    copy.v = host_copy(kv->v, kv->bytes_v);
    copy.tail_k = kv->tail_k ? host_copy(kv->tail_k, pool_tail_floats(kv) * sizeof(float)) : NULL;
    copy.tail_v = kv->tail_v ? host_copy(kv->tail_v, pool_tail_floats(kv) * sizeof(float)) : NULL;
    copy.tail_of = kv->tail_of ? host_copy(kv->tail_of, (size_t)kv->n_blocks * sizeof(int)) : NULL;
    return copy;
}

static size_t rows_of(const GpuCaseRig *r, int width) { return (size_t)r->b.n_rows * (size_t)width; }

static void check_embed(GpuCaseRig *r) {
    float *x = fresh(r, r->w.dim);
    size_t turns = rows_of(r, r->w.n_rot / 2), table = turns + (size_t)(r->w.n_rot / 2); // with the row of padding
    r->m.be->embed(&r->w, r->m.be, &r->m.ends, &r->kv, &r->b);
    gpu_embed(x, &r->tok, r->m.ends.embd_scale, 0, &r->ropes, &r->db, &r->s, NULL);
    gpu_compare_f32(EMBED, F32_IN, r->w.x, x, rows_of(r, r->w.dim));
    for (size_t i = 0; i < (size_t)r->ropes.n; i++) {
        gpu_compare_f32(EMBED, F32_IN, r->w.rope_cos + i * turns, r->s.rope_cos + i * table, turns);
        gpu_compare_f32(EMBED, F32_IN, r->w.rope_sin + i * turns, r->s.rope_sin + i * table, turns);
    }
    for (size_t i = 0; i < rows_of(r, r->w.dim); i++) r->w.x[i] = test_uniform(&r->random);
}

static bool quantised(const GpuCaseRig *r) {
    return type_info(r->c->model.type)->block > 1 || r->c->model.type == TYPE_I8G;
}

// How the fused kernels compute rows: exactly; with activations rounded to int8 if the weights are quantised; on the
// tensor cores.
typedef enum { EXACT, ROUNDED, TENSOR_CORES, N_HOWS } ProductWay;
static bool takes(const GpuCaseRig *r, ProductWay how) {
    if (how == TENSOR_CORES) return r->db.n_rows >= 3 && r->db.n_rows <= gpu_decode_rows(&r->l);
    return r->db.n_rows <= GPU_DECODE_ROWS;
}
static GpuProduct product_of(ProductWay how) { return (GpuProduct){.exact = how == EXACT}; }
static int way_of(const GpuCaseRig *r, ProductWay how) {
    if (how == TENSOR_CORES) return quantised(r) ? INT8_IN : r->c->model.type == TYPE_F32 ? F32_IN : HALF_IN;
    return how == ROUNDED && quantised(r) ? INT8_IN : F32_IN;
}
// Advances *how (first -1) to the next way that supports the rows; false: there is none.
static bool next_way(const GpuCaseRig *r, int *how) {
    for (++*how; *how < N_HOWS; ++*how) {
        gpu_tune((GpuTuning){.skinny = *how == TENSOR_CORES});
        if (takes(r, (ProductWay)*how)) return true;
    }
    gpu_tune((GpuTuning){0});
    return false;
}

// The product with a matrix of the layer, without its bias, as the backend's prefill computes it.
static void product(const GpuCaseRig *r, const Tensor *t, const float *x, float *y, size_t stride) {
    Tensor plain = *t;
    plain.bias = NULL;
    cpu_scalar.matvec(&(MatvecTask){.w = &plain,
                                    .last = t->n_out,
                                    .x = x,
                                    .x_stride = (size_t)t->n_in,
                                    .n_rows = r->b.n_rows,
                                    .y = y,
                                    .y_stride = stride});
}

// The input of a layer's first products: the norm of x, or x if there is no norm.
static const float *normed(const GpuCaseRig *r, const float *norm) { return norm ? r->w.xn : r->w.x; }

static void check_attn_in(GpuCaseRig *r) {
    const Layer *l = &r->m.layers[1];
    KvPool before = cache_copy(&r->kv);
    float *x = with_padding(r, r->w.x, r->w.dim);
    l->be->attn_in(&r->w, l, &r->kv, &r->b);
    for (int how = -1; next_way(r, &how);) {
        float *q = fresh(r, r->w.q_dim);
        reset_cache(r, &before);
        gpu_attn_in(q, x, &r->l, &r->dkv, &r->db, &r->s, product_of((ProductWay)how), NULL);
        gpu_compare_f32(QKV, way_of(r, (ProductWay)how), r->w.q, q, rows_of(r, r->w.q_dim));
        compare_cache(r, way_of(r, (ProductWay)how), &before);
    }
    // the same with the separate kernels of prefill
    float *xn = fresh(r, r->w.dim), *q = fresh(r, r->w.q_dim);
    gpu_rmsnorm(xn, TYPE_F32, x, r->l.norm_att, l->kind.eps, r->w.dim, NULL, r->db.n_rows, NULL);
    const float *in = normed(r, l->norm_att);
    gpu_compare_f32(NORM, F32_IN, in, xn, rows_of(r, r->w.dim));
    gpu_rmsnorm(xn, TYPE_BF16, x, r->l.norm_att, l->kind.eps, r->w.dim, NULL, r->db.n_rows, NULL);
    gpu_compare_as(NORM, HALF_IN, TYPE_BF16, in, xn, rows_of(r, r->w.dim));
    size_t width = (size_t)(r->w.q_dim + 2 * r->w.kv_dim);
    float *y = malloc(rows_of(r, (int)width) * sizeof *y);
    product(r, &l->wq, in, y, width);
    product(r, &l->wk, in, y + r->w.q_dim, width);
    product(r, &l->wv, in, y + r->w.q_dim + r->w.kv_dim, width);
    r->s.qkv = with_padding(r, y, (int)width);
    reset_cache(r, &before);
    gpu_qkv_finish(q, &r->l, &r->dkv, &r->db, &r->s, NULL);
    gpu_compare_f32(FINISH, F32_IN, r->w.q, q, rows_of(r, r->w.q_dim));
    compare_cache(r, F32_IN, &before);
    reset_cache(r, &r->kv); // attention reads the values that the reference has written
    free(y);
    pool_free(&before);
}

// Puts the batch's own K and V, as the reference computed them, where attention reads them.
static void place_rows(GpuCaseRig *r) {
    size_t width = (size_t)(r->w.q_dim + 2 * r->w.kv_dim), kv_dim = (size_t)r->w.kv_dim;
    float *y = malloc(rows_of(r, (int)width) * sizeof *y);
    memset(y, 0xff, rows_of(r, (int)width) * sizeof *y);
    for (size_t i = 0; i < (size_t)r->b.n_rows; i++) {
        memcpy(y + i * width + r->w.q_dim, r->w.k + i * kv_dim, kv_dim * sizeof *y);
        memcpy(y + i * width + (size_t)r->w.q_dim + kv_dim, r->w.v + i * kv_dim, kv_dim * sizeof *y);
    }
    r->s.qkv = with_padding(r, y, (int)width);
    free(y);
}

// Checks the tail pages after a step: they hold the rows of open groups.
static void check_keep(GpuCaseRig *r) {
    gpu_keep(&r->l, &r->dkv, &r->db, &r->s, NULL);
    gpu_compare_launched();
    for (int v = 0; v < 2; v++)
        if (pool_tail(&r->kv, v))
            assert_true(
                device_same(pool_tail(&r->kv, v), pool_tail(&r->dkv, v), pool_tail_floats(&r->kv) * sizeof(float)));
}

static void padding_is_zero(const GpuCaseRig *r, const float *a) {
    float *row = malloc((size_t)r->w.q_dim * sizeof *row);
    device_read(row, a + rows_of(r, r->w.q_dim), (size_t)r->w.q_dim * sizeof *row);
    for (int i = 0; i < r->w.q_dim; i++) assert_true(row[i] == 0);
    free(row);
}

static void check_flash(GpuCaseRig *r, const float *q) {
    Batch b = r->b; // with the row of padding
    int n = b.n_rows;
    b.slot = malloc((size_t)(n + 1) * sizeof(int));
    b.seq = malloc((size_t)(n + 1) * sizeof(int));
    memcpy(b.slot, r->b.slot, (size_t)n * sizeof(int));
    memcpy(b.seq, r->b.seq, (size_t)n * sizeof(int));
    b.slot[n] = -1;
    b.seq[n] = r->b.seq[n - 1];
    b.n_rows = n + 1;
    GpuTile *tiles = malloc((size_t)b.n_rows * sizeof *tiles);
    int n_tiles = gpu_tiles(&b, tiles), rows = 0;
    for (int i = 0; i < n_tiles; i++) rows += tiles[i].n;
    assert_int_equal(rows, b.n_rows);
    float *a = fresh(r, r->w.q_dim);
    const GpuTile *dt = device_new(tiles, (size_t)n_tiles * sizeof *tiles);
    gpu_flash(a, TYPE_F32, q, (size_t)r->w.q_dim, &r->l, &r->dkv, &r->db, &r->s, dt, n_tiles, NULL);
    gpu_compare_f32(FLASH, HALF_IN, r->w.a, a, rows_of(r, r->w.q_dim));
    padding_is_zero(r, a);
    gpu_flash(a, TYPE_BF16, q, (size_t)r->w.q_dim, &r->l, &r->dkv, &r->db, &r->s, dt, n_tiles, NULL);
    gpu_compare_as(FLASH, HALF_IN, TYPE_BF16, r->w.a, a, rows_of(r, r->w.q_dim));
    free(b.slot);
    free(b.seq);
    free(tiles);
}

// A row adds to it once for each head of a group.
static void check_probe(GpuCaseRig *r, const Probe *host, const float *q) {
    size_t n = (size_t)r->kv.n_kv_heads * (size_t)host->n_slots;
    float *ones = malloc(n * sizeof *ones), sum = 0;
    for (size_t i = 0; i < n; i++) ones[i] = 1; // the kernel adds to it
    float *mass = device_new(ones, n * sizeof *mass);
    gpu_probe(mass, host->n_slots, host->first_row, q, &r->l, &r->dkv, &r->db, &r->s, NULL);
    gpu_compare_launched();
    device_read(ones, mass, n * sizeof *mass);
    for (size_t i = 0; i < n; i++) sum += ones[i] -= 1;
    int looks = (r->b.n_rows - host->first_row) * r->l.heads.n_heads;
    assert_true(fabsf(sum - (float)looks) < 1e-3f * (float)looks);
    gpu_compare_note(PROBE, F32_IN, test_distance(ones, host->mass + n, n)); // of layer 1
    free(ones);
}

static void check_attention(GpuCaseRig *r) {
    const Layer *l = &r->m.layers[1];
    int n_slots = r->b.slot[r->b.n_rows - 1] + 3;
    size_t heads = (size_t)r->kv.n_kv_heads;
    Probe probe = {.first_row = r->b.n_rows / 3, .n_slots = n_slots};
    probe.mass = calloc(2 * heads * (size_t)n_slots, sizeof *probe.mass);
    bool probed = r->c->n_seqs == 1 && !r->kv.tail_of;
    r->b.probe = probed ? &probe : NULL;
    l->be->attention(&r->w, l, &r->kv, &r->b);
    r->b.probe = NULL;
    place_rows(r);
    float *q = with_padding(r, r->w.q, r->w.q_dim), *a = fresh(r, r->w.q_dim), *again = fresh(r, r->w.q_dim);
    gpu_attention(a, q, &r->l, &r->dkv, &r->db, &r->s, NULL);
    gpu_compare_f32(ATTEND, F32_IN, r->w.a, a, rows_of(r, r->w.q_dim));
    padding_is_zero(r, a);
    device_order(r->random); // another order of blocks, the same bits
    gpu_attention(again, q, &r->l, &r->dkv, &r->db, &r->s, NULL);
    float *bits = malloc(rows_of(r, r->w.q_dim) * sizeof *bits);
    device_read(bits, a, rows_of(r, r->w.q_dim) * sizeof *bits);
    assert_true(device_same(bits, again, rows_of(r, r->w.q_dim) * sizeof *bits));
    free(bits);
    if (probed) check_probe(r, &probe, q);
    if (gpu_flash_can(&r->l.heads, &r->dkv)) check_flash(r, q);
    check_keep(r);
    free(probe.mass);
}

// Adds a product to x as prefill does.
static void add_product(GpuCaseRig *r, float *x, const float *y, const float *bias, const float *norm) {
    const float *dy = with_padding(r, y, r->w.dim);
    if (norm) gpu_add_normed(x, dy, bias, norm, r->l.kind.eps, r->w.dim, r->db.n_rows, NULL);
    else gpu_add(x, dy, bias, r->w.dim, r->db.n_rows, NULL);
}

static void check_residual(GpuCaseRig *r) {
    const Layer *l = &r->m.layers[1];
    const float *a = with_padding(r, r->w.a, r->w.q_dim);
    float *x = with_padding(r, r->w.x, r->w.dim);
    size_t n = rows_of(r, r->w.dim);
    float *y = malloc(n * sizeof *y), *before = host_copy(r->w.x, n * sizeof *before);
    product(r, &l->wo, r->w.a, y, (size_t)r->w.dim);
    l->be->attn_out(&r->w, l, &r->b);
    add_product(r, x, y, r->l.wo.bias, r->l.norm_att_out);
    gpu_compare_f32(ADD, F32_IN, r->w.x, x, n);
    for (int how = -1; next_way(r, &how);) {
        x = with_padding(r, before, r->w.dim);
        gpu_attn_out(x, a, &r->l, &r->db, &r->s, product_of((ProductWay)how), NULL);
        gpu_compare_f32(ADD, way_of(r, (ProductWay)how), r->w.x, x, n);
    }
    free(y);
    free(before);
}

static void check_ffn(GpuCaseRig *r) {
    const Layer *l = &r->m.layers[1];
    const float *x = with_padding(r, r->w.x, r->w.dim);
    size_t n = rows_of(r, r->w.ffn), n_x = rows_of(r, r->w.dim);
    float *gate = malloc(n * sizeof *gate), *up = malloc(n * sizeof *up), *down = malloc(n_x * sizeof *down),
          *before = host_copy(r->w.x, n_x * sizeof *before);
    l->be->ffn_in(&r->w, l, &r->b);
    float *h = fresh(r, r->w.ffn);
    for (int how = -1; next_way(r, &how);) {
        gpu_ffn_in(h, x, &r->l, &r->db, product_of((ProductWay)how), NULL);
        gpu_compare_f32(GLU, way_of(r, (ProductWay)how), r->w.h, h, n);
    }
    product(r, &l->w_gate, normed(r, l->norm_ffn), gate, (size_t)r->w.ffn);
    product(r, &l->w_up, normed(r, l->norm_ffn), up, (size_t)r->w.ffn);
    for (int type = TYPE_F32; type <= TYPE_F16; type++) {
        gpu_gate_mul(h, type, r->l.kind.act, with_padding(r, gate, r->w.ffn), with_padding(r, up, r->w.ffn), TYPE_F32,
                     (size_t)r->w.ffn, r->l.w_gate.bias, r->l.w_up.bias, r->w.ffn, r->db.n_rows, NULL);
        gpu_compare_as(GLU, type == TYPE_F32 ? F32_IN : HALF_IN, type, r->w.h, h, n);
    }
    gpu_gate_mul(h, TYPE_BF16, r->l.kind.act, rounded_rows(r, gate, r->w.ffn), rounded_rows(r, up, r->w.ffn), TYPE_BF16,
                 (size_t)r->w.ffn, r->l.w_gate.bias, r->l.w_up.bias, r->w.ffn, r->db.n_rows, NULL);
    gpu_compare_as(GLU, HALF_IN, TYPE_BF16, r->w.h, h, n);
    const float *dh = with_padding(r, r->w.h, r->w.ffn);
    product(r, &l->w_down, r->w.h, down, (size_t)r->w.dim);
    l->be->ffn_out(&r->w, l, &r->b);
    float *out = with_padding(r, before, r->w.dim);
    add_product(r, out, down, r->l.w_down.bias, r->l.norm_ffn_out);
    gpu_compare_f32(ADD, F32_IN, r->w.x, out, n_x);
    for (int how = -1; next_way(r, &how);) {
        out = with_padding(r, before, r->w.dim);
        gpu_ffn_out(out, dh, &r->l, &r->db, &r->s, product_of((ProductWay)how), NULL);
        gpu_compare_f32(ADD, way_of(r, (ProductWay)how), r->w.x, out, n_x);
    }
    free(gate);
    free(up);
    free(down);
    free(before);
}

static void check_logits(GpuCaseRig *r) {
    const float *x = with_padding(r, r->w.x, r->w.dim);
    int rows[GPU_SKINNY_ROWS], n = int_min(r->b.n_rows, r->c->model.type == TYPE_BF16 ? GPU_SKINNY_ROWS : 3);
    for (int i = 0; i < n; i++) rows[i] = r->b.n_rows - 1 - i;
    const Ends *e = &r->m.ends;
    r->m.be->logits(&r->w, r->m.be, e, &r->b, rows, n);
    const int *drows = device_ints(rows, n, 0);
    for (int how = n > GPU_DECODE_ROWS ? TENSOR_CORES : EXACT; how < (n > 2 ? N_HOWS : TENSOR_CORES); how++) {
        gpu_tune((GpuTuning){.skinny = how == TENSOR_CORES});
        float *out = device_new(NULL, (size_t)n * (size_t)r->m.c.n_vocab * sizeof(float));
        gpu_logits(out, x, &r->head, r->norm_out, e->eps, drows, n, product_of((ProductWay)how), NULL);
        gpu_softcap(out, e->softcap, (size_t)n * (size_t)r->m.c.n_vocab, NULL);
        gpu_compare_f32(LOGITS, way_of(r, (ProductWay)how), r->w.logits, out, (size_t)n * (size_t)r->m.c.n_vocab);
    }
    gpu_tune((GpuTuning){0});
}

static void check_dequantize(GpuCaseRig *r) {
    const Tensor *t = &r->m.layers[1].w_down;
    int first = 3, n = t->n_out - 5;
    size_t stride = (size_t)t->n_in + 8, all = (size_t)n * (size_t)t->n_in;
    float *ref = malloc(all * sizeof *ref), *out = malloc(all * sizeof *out);
    for (int i = 0; i < n; i++) cpu_scalar.embed(t, first + i, ref + (size_t)i * (size_t)t->n_in);
    for (int type = TYPE_F32; type <= TYPE_BF16; type += type == TYPE_F32 ? TYPE_F16 : TYPE_BF16 - TYPE_F16) {
        size_t bytes = (size_t)n * stride * kv_type_bytes(type);
        void *d = device_new(NULL, bytes), *host = malloc(bytes);
        gpu_dequantize(&r->l.w_down, first, n, type, d, stride, NULL);
        gpu_compare_launched();
        device_read(host, d, bytes);
        for (size_t i = 0; i < all; i++)
            out[i] = gpu_compare_float(type, host, i / (size_t)t->n_in * stride + i % (size_t)t->n_in);
        gpu_compare_note(DENSE, type == TYPE_F32 ? F32_IN : HALF_IN, test_distance(out, ref, all));
        free(host);
    }
    free(ref);
    free(out);
}

static void run_case(const GpuCase *c, uint64_t seed) {
    GpuCaseRig r;
    gpu_case_open(&r, c, seed);
    check_embed(&r);
    check_attn_in(&r);
    check_attention(&r);
    check_residual(&r);
    check_ffn(&r);
    check_logits(&r);
    check_dequantize(&r);
    gpu_case_close(&r);
}

// ---- the cases ------------------------------------------------------------------------------------------------------

static void every_type(void **state) {
    (void)state;
    for (size_t i = 0; i < TINY_TYPES; i++) {
        GpuCase c = {
            .name = type_name(tiny_types[i]),
            .model = {.type = tiny_types[i], .dim = 256, .n_heads = 4, .head_dim = 64, .ffn = 512, .vocab = 300},
            .type_k = TYPE_F16,
            .type_v = TYPE_F16,
            .block = 16,
            .n_seqs = i % 3 == 0 ? 1 : (int)i % 3 + 1,
            .rows_each = i % 3 == 1 ? 2 : 1,
            .past = 5};
        run_case(&c, i + 1);
    }
}

static const GpuCase cases[] = {
    {"head_dim 64, no groups, f32 cache, over a split's border",
     {.dim = 128, .n_heads = 2, .n_kv_heads = 2, .head_dim = 64},
     {TYPE_F32, TYPE_F32, 1, 0, false},
     {2, 1, 254, false}},
    {"head_dim 80, groups of 4, f16 cache, 17 rows",
     {.arch = "qwen2", .dim = 64, .n_heads = 4, .n_kv_heads = 1, .head_dim = 80},
     {TYPE_F16, TYPE_F16, 16, 0, false},
     {1, 17, 0, false}},
    {"head_dim 96, groups of 8, bf16 cache, several splits",
     {.arch = "qwen3", .dim = 64, .n_heads = 8, .n_kv_heads = 1, .head_dim = 96},
     {TYPE_BF16, TYPE_BF16, 64, 0, false},
     {3, 2, 530, false}},
    {"head_dim 128, groups of 3, tiles, window",
     {.arch = "qwen3", .dim = 64, .n_heads = 6, .n_kv_heads = 2, .head_dim = 128},
     {TYPE_F16, TYPE_F16, 16, 40, false},
     {2, 70, 30, false}},
    {"head_dim 128, groups of 3, tiles, chunks",
     {.arch = "qwen3", .dim = 64, .n_heads = 6, .n_kv_heads = 2, .head_dim = 128},
     {TYPE_F16, TYPE_F16, 16, -40, false},
     {2, 70, 30, false}},
    {"head_dim 64, chunks over splits",
     {.dim = 128, .n_heads = 4, .n_kv_heads = 1, .head_dim = 64},
     {TYPE_F16, TYPE_F16, 16, -300, false},
     {2, 1, 520, false}},
    {"head_dim 256, gaps",
     {.dim = 64, .n_heads = 1, .n_kv_heads = 1, .head_dim = 256},
     {TYPE_BF16, TYPE_BF16, 16, 0, false},
     {1, 33, 10, true}},
    {"head_dim 64, windows over splits, K f32 and V f16",
     {.dim = 128, .n_heads = 4, .n_kv_heads = 1, .head_dim = 64},
     {TYPE_F32, TYPE_F16, 16, 300, false},
     {2, 1, 520, false}},
    {"head_dim 6, groups of 9",
     {.dim = 36, .n_heads = 9, .n_kv_heads = 1, .head_dim = 6, .ffn = 44},
     {TYPE_F16, TYPE_F16, 16, 0, false},
     {1, 2, 300, false}},
    {"long rows: splits of 128 and of 256",
     {.dim = 16, .n_heads = 2, .n_kv_heads = 1, .head_dim = 8, .ffn = 32},
     {TYPE_F16, TYPE_F16, 64, 0, false},
     {2, 1, 16382, false}},
    {"head_dim 72, groups of 16, bf16 cache, several splits, window",
     {.arch = "qwen3", .dim = 32, .n_heads = 16, .n_kv_heads = 1, .head_dim = 72, .ffn = 32},
     {TYPE_BF16, TYPE_BF16, 16, 250, false},
     {2, 2, 420, false}},
    {"head_dim 40, groups of 20",
     {.dim = 40, .n_heads = 20, .n_kv_heads = 1, .head_dim = 40, .ffn = 32},
     {TYPE_F16, TYPE_F16, 32, 0, false},
     {1, 3, 130, false}},
    {"head_dim 64, groups of 7, tiles of 40 rows, window",
     {.dim = 32, .n_heads = 14, .n_kv_heads = 2, .head_dim = 64, .ffn = 32},
     {TYPE_F16, TYPE_F16, 16, 50, false},
     {2, 40, 100, false}},
    {"head_dim 8, groups of 16",
     {.dim = 128, .n_heads = 16, .n_kv_heads = 1, .head_dim = 8},
     {TYPE_F16, TYPE_F16, 64, 0, false},
     {1, 4, 3, false}},
    {"chunks of f32, 7 rows",
     {.type = TYPE_F16, .dim = 256, .n_heads = 4, .ffn = 2824},
     {TYPE_F16, TYPE_F16, 16, 0, false},
     {7, 1, 1, false}},
    {"biases, windows, bf16, 14 rows",
     {.arch = "qwen2", .type = TYPE_BF16, .dim = 76, .n_heads = 3, .n_kv_heads = 1, .head_dim = 80, .ffn = 100},
     {TYPE_BF16, TYPE_BF16, 16, 20, false},
     {7, 2, 3, false}},
    {"norms of heads, q8_0, 15 rows",
     {.arch = "qwen3", .type = TYPE_Q8_0, .dim = 160, .n_heads = 4, .n_kv_heads = 2, .head_dim = 32, .ffn = 288},
     {TYPE_F16, TYPE_F16, 16, 0, false},
     {3, 5, 3, false}},
    {"a norm over chunks, 7 rows",
     {.type = TYPE_BF16, .dim = 3080, .n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .ffn = 40},
     {TYPE_F16, TYPE_F16, 16, 0, false},
     {7, 1, 1, false}},
    {"a norm over chunks, 13 rows",
     {.type = TYPE_F16, .dim = 3082, .n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .ffn = 40},
     {TYPE_F16, TYPE_F16, 16, 0, false},
     {13, 1, 1, false}},
    {"a norm over chunks of int8, 7 rows",
     {.type = TYPE_Q8_0, .dim = 4640, .n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .ffn = 64},
     {TYPE_F16, TYPE_F16, 16, 0, false},
     {7, 1, 1, false}},
    {"chunks of int8, 7 rows",
     {.type = TYPE_Q4_K, .dim = 256, .n_heads = 4, .ffn = 4864},
     {TYPE_F16, TYPE_F16, 16, 0, false},
     {7, 1, 1, false}},
};

// Groups in one piece and in parts; open groups that began in earlier steps; rows that complete a group; contexts
// across a split's border.
static const GpuCase sealed_cases[] = {
    {"q8_0, head_dim 64, over a split's border, a group completed",
     {.dim = 128, .n_heads = 2, .n_kv_heads = 2, .head_dim = 64},
     {TYPE_Q8_0, TYPE_Q8_0, 32, 0, false},
     {2, 1, 255, false}},
    {"kivi2, head_dim 80, groups of 4, parts, 40 rows",
     {.arch = "qwen2", .dim = 64, .n_heads = 4, .n_kv_heads = 1, .head_dim = 80},
     {TYPE_KIVI2, TYPE_KIVI2, 16, 0, false},
     {1, 40, 21, false}},
    {"fp8, head_dim 96, groups of 8, several splits, parts of one slot",
     {.arch = "qwen3", .dim = 64, .n_heads = 8, .n_kv_heads = 1, .head_dim = 96},
     {TYPE_FP8, TYPE_FP8, 1, 0, false},
     {3, 2, 530, false}},
    {"q4_0, head_dim 128, tiles over several groups, window, rotated",
     {.arch = "qwen3", .dim = 64, .n_heads = 6, .n_kv_heads = 2, .head_dim = 128},
     {TYPE_Q4_0, TYPE_Q4_0, 64, 40, true},
     {2, 140, 30, false}},
    {"q4_0 and kivi2, chunks that begin inside of a group",
     {.arch = "qwen3", .dim = 64, .n_heads = 6, .n_kv_heads = 2, .head_dim = 128},
     {TYPE_Q4_0, TYPE_KIVI2, 64, -45, false},
     {2, 140, 30, false}},
    {"kivi2, head_dim 256, parts of one slot",
     {.dim = 64, .n_heads = 1, .n_kv_heads = 1, .head_dim = 256},
     {TYPE_KIVI2, TYPE_KIVI2, 1, 0, false},
     {1, 33, 40, false}},
    {"K q8_0 and V q4_0, head_dim 64, windows over splits",
     {.dim = 128, .n_heads = 4, .n_kv_heads = 1, .head_dim = 64},
     {TYPE_Q8_0, TYPE_Q4_0, 64, 300, false},
     {2, 3, 520, false}},
    {"K f16 and V kivi2, head_dim 64, tiles",
     {.dim = 128, .n_heads = 4, .n_kv_heads = 1, .head_dim = 64},
     {TYPE_F16, TYPE_KIVI2, 32, 0, true},
     {2, 37, 60, false}},
    {"K kivi2 and V f32, head_dim 6, groups of 9",
     {.dim = 36, .n_heads = 9, .n_kv_heads = 1, .head_dim = 6, .ffn = 44},
     {TYPE_KIVI2, TYPE_F32, 64, 0, false},
     {1, 2, 300, false}},
    {"fp8, head_dim 24, rotated, 7 sequences",
     {.dim = 48, .n_heads = 2, .n_kv_heads = 1, .head_dim = 24},
     {TYPE_FP8, TYPE_FP8, 64, 0, true},
     {7, 1, 27, false}},
    {"fp8, head_dim 6",
     {.dim = 36, .n_heads = 3, .n_kv_heads = 3, .head_dim = 6, .ffn = 44},
     {TYPE_FP8, TYPE_FP8, 16, 0, false},
     {1, 3, 62, false}},
    {"q8_0, head_dim 128, groups of 16, a group begins",
     {.dim = 64, .n_heads = 16, .n_kv_heads = 1, .head_dim = 128},
     {TYPE_Q8_0, TYPE_Q8_0, 64, 0, false},
     {1, 1, 64, false}},
};

static void sealed_caches(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sealed_cases); i++) run_case(&sealed_cases[i], 300 + i);
}

// GELU, output norms, capped scores and logits, two RoPE tables; windows that begin at every place of a block, a group
// and a tile of keys, with every type of K and V.
static const GpuCase gemma_cases[] = {
    {"gemma2, head_dim 256, window of 5",
     {.arch = "gemma2", .dim = 96, .n_heads = 4, .n_kv_heads = 2, .head_dim = 256},
     {TYPE_F16, TYPE_F16, 16, 5, false},
     {1, 5, 40, false}},
    {"gemma2, tiles, window over blocks, bf16 cache",
     {.arch = "gemma2", .dim = 96, .n_heads = 4, .n_kv_heads = 1, .head_dim = 64, .tied = true},
     {TYPE_BF16, TYPE_BF16, 16, 70, false},
     {2, 70, 130, false}},
    {"gemma2, no window, several splits, f32 cache",
     {.arch = "gemma2", .dim = 96, .n_heads = 9, .n_kv_heads = 1, .head_dim = 24},
     {TYPE_F32, TYPE_F32, 32, 0, false},
     {1, 3, 530, false}},
    {"gemma2, window over splits, 14 rows, Q4_K",
     {.arch = "gemma2", .type = TYPE_Q4_K, .dim = 256, .n_heads = 4, .head_dim = 128, .ffn = 512},
     {TYPE_F16, TYPE_F16, 16, 300, false},
     {7, 2, 600, false}},
    {"gemma3, head_dim 256, blocks of one slot, BF16",
     {.arch = "gemma3", .type = TYPE_BF16, .dim = 100, .n_heads = 2, .n_kv_heads = 1, .head_dim = 256, .ffn = 84},
     {TYPE_BF16, TYPE_BF16, 1, 13, false},
     {3, 4, 61, false}},
    {"gemma3, tiles with gaps",
     {.arch = "gemma3", .dim = 96, .n_heads = 6, .n_kv_heads = 2, .head_dim = 80},
     {TYPE_F16, TYPE_F16, 64, 33, false},
     {1, 66, 100, true}},
    {"gemma2, q8_0, tiles, window",
     {.arch = "gemma2", .dim = 96, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64},
     {TYPE_Q8_0, TYPE_Q8_0, 16, 37, false},
     {2, 70, 130, false}},
    {"gemma2, kivi2, window, parts, rotated",
     {.arch = "gemma2", .dim = 96, .n_heads = 4, .n_kv_heads = 1, .head_dim = 96},
     {TYPE_KIVI2, TYPE_KIVI2, 16, 50, true},
     {1, 40, 150, false}},
    {"gemma3, fp8 and q4_0, window over splits",
     {.arch = "gemma3", .dim = 96, .n_heads = 2, .n_kv_heads = 1, .head_dim = 128},
     {TYPE_FP8, TYPE_Q4_0, 32, 290, false},
     {2, 3, 560, false}},
    {"gemma2, K f16 and V f32, head_dim 6, window of one slot",
     {.arch = "gemma2", .dim = 36, .n_heads = 3, .n_kv_heads = 3, .head_dim = 6, .ffn = 44},
     {TYPE_F16, TYPE_F32, 4, 1, false},
     {1, 3, 62, false}},
};

static void gemma_layers(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(gemma_cases); i++) run_case(&gemma_cases[i], 500 + i);
}

// Norms of whole Q and K, layers without input norms, a temperature of Q, RoPE on a part of the head.
static const GpuCase family_cases[] = {
    {"olmo2, head_dim 24, groups of 3, 3 rows",
     {.arch = "olmo2", .dim = 76, .n_heads = 6, .n_kv_heads = 2, .head_dim = 24, .ffn = 100},
     {TYPE_F32, TYPE_F32, 16, 0, false},
     {1, 3, 10, false}},
    {"olmo2 with biases, head_dim 64, bf16, 14 rows",
     {.arch = "olmo2", .type = TYPE_BF16, .dim = 96, .n_heads = 4, .n_kv_heads = 1, .head_dim = 64, .qkv_bias = true},
     {TYPE_BF16, TYPE_BF16, 16, 0, false},
     {7, 2, 3, false}},
    {"olmo2, q8_0, tiles, sealed K and V",
     {.arch = "olmo2", .type = TYPE_Q8_0, .dim = 96, .n_heads = 2, .n_kv_heads = 2, .head_dim = 64},
     {TYPE_Q8_0, TYPE_Q8_0, 32, 0, true},
     {1, 40, 30, false}},
    {"mistral3, a temperature, groups of 4, 17 rows",
     {.arch = "mistral3", .dim = 64, .n_heads = 4, .n_kv_heads = 1, .head_dim = 80},
     {TYPE_F16, TYPE_F16, 16, 0, false},
     {1, 17, 40, false}},
    {"phi3, fused, RoPE on half of the head, 2 sequences",
     {.arch = "phi3", .type = TYPE_Q4_0, .dim = 96, .n_heads = 4, .n_kv_heads = 2, .head_dim = 24, .qkv_bias = true},
     {TYPE_F16, TYPE_F16, 16, 0, false},
     {2, 2, 5, false}},
    {"hunyuan-dense, norms behind RoPE, 3 rows",
     {.arch = "hunyuan-dense", .dim = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 40, .n_rot = 24},
     {TYPE_F16, TYPE_F16, 16, 0, false},
     {1, 3, 9, false}},
    {"glm4, pairs on a part of the head, 5 rows",
     {.arch = "glm4", .dim = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 96, .n_rot = 34},
     {TYPE_F32, TYPE_F32, 16, 0, false},
     {1, 5, 20, false}},
};

static void family_layers(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(family_cases); i++) run_case(&family_cases[i], 700 + i);
}

static void heads_caches_and_chunks(void **state) { // of x, where it is more than shared memory takes at a time
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) run_case(&cases[i], 100 + i);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),   cmocka_unit_test(heads_caches_and_chunks), cmocka_unit_test(sealed_caches),
        cmocka_unit_test(gemma_layers), cmocka_unit_test(family_layers),
    };
    return cmocka_run_group_tests(tests, NULL, gpu_compare_print);
}
