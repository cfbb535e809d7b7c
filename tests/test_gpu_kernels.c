// tests/test_gpu_kernels.c: every kernel of the GPU against the scalar reference, on odd shapes and random input.
//
// A case is a tiny model, a batch and a cache. The CPU's scalar backend runs a layer's operations; each launch gets the
// same input and its result is compared. The cache is NaN wherever no row sees it, tables are permuted, memory is NaN
// until written, a row of padding comes last. Runs on the host that stands for a GPU (gpu_host.h), or on a GPU.
#include "tests/rig/testing.h"

#include "cpu/cpu.h"
#include "gpu/launch.h"
#include "model.h"
#include "sampler.h"
#include "tests/rig/gpu_memory.h"
#include "tests/rig/tiny_model.h"

#include <math.h>

// ---- distances ------------------------------------------------------------------------------------------------------

typedef enum { EMBED, NORM, QKV, FINISH, KV, ATTEND, FLASH, PROBE, ADD, GLU, LOGITS, DENSE, N_OPS } Op;
static const char *const op_names[N_OPS] = {"embed", "rmsnorm", "attn_in", "qkv_finish", "K and V", "attention",
                                            "flash", "probe",   "o, down", "gate, up",   "logits",  "dequantize"};
// Inputs in f32: sums in another order. Inputs or outputs in f16 or bf16. int8 activations, against exact ones.
enum { F32_IN, HALF_IN, INT8_IN, N_WAYS };
static const double limits[N_WAYS] = {1e-5, 5e-3, 1e-2};
static double worst[N_OPS][N_WAYS];
static const char *case_name;

static void take_distance(Op op, int way, double distance) {
    if (!(distance <= limits[way])) // NaN fails too
        fail_msg("%s, %s: distance up to %g expected, %g found", case_name, op_names[op], limits[way], distance);
    if (distance > worst[op][way]) worst[op][way] = distance;
}

static double distance(const float *ref, const float *out, size_t n) {
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        off += ((double)out[i] - (double)ref[i]) * ((double)out[i] - (double)ref[i]);
        all += (double)ref[i] * (double)ref[i];
    }
    return all > 0 ? sqrt(off / all) : sqrt(off);
}

static void launched(void) {
    const char *error = gpu_launch_error();
    if (error) fail_msg("%s: %s", case_name, error);
}

static float as_float(int type, const void *p, size_t i) {
    if (type == TYPE_F32) return ((const float *)p)[i];
    uint16_t bits = ((const uint16_t *)p)[i];
    return type == TYPE_F16 ? half_float(bits) : bf16_float(bits);
}

// n elements of `type` on the device against the reference's.
static void compare_as(Op op, int way, int type, const float *ref, const void *device, size_t n) {
    launched();
    void *bytes = malloc(n * kv_type_bytes(type));
    float *out = malloc(n * sizeof *out);
    device_read(bytes, device, n * kv_type_bytes(type));
    for (size_t i = 0; i < n; i++) out[i] = as_float(type, bytes, i);
    take_distance(op, way, distance(ref, out, n));
    free(bytes);
    free(out);
}

static void compare(Op op, int way, const float *ref, const void *device, size_t n) {
    compare_as(op, way, TYPE_F32, ref, device, n);
}

static int print_distances(void **state) {
    (void)state;
    print_message("largest relative L2 distance       f32      half      int8\n");
    for (int op = 0; op < N_OPS; op++)
        print_message("  %-24s%10.1e%10.1e%10.1e\n", op_names[op], worst[op][F32_IN], worst[op][HALF_IN],
                      worst[op][INT8_IN]);
    return 0;
}

// ---- a case ---------------------------------------------------------------------------------------------------------

typedef struct {
    const char *name;
    TinyModel model;
    struct {
        int type_k, type_v, block, window;
        bool rotate;
    };
    struct { // of the batch
        int n_seqs, rows_each;
        int past;  // slots that the first sequence has already; the next ones have a few more each
        bool gaps; // every third slot only is in the batch, the others have their K and V
    };
} Case;

typedef struct {
    const Case *c;
    Gguf *g;
    Model m;
    ThreadPool *pool;
    Workspace w;
    KvPool kv;
    Batch b;
    uint64_t random;
    // on the device
    GpuLayer l;
    DeviceTensor tok, head;
    GpuRopes ropes;
    KvPool dkv;
    GpuBatch db;
    GpuScratch s;
    float *x, *norm_out;
} Rig;

static void *copy_of(const void *p, size_t n) {
    void *copy = malloc(n);
    memcpy(copy, p, n);
    return copy;
}

static void *random_copy(float *host, size_t n, uint64_t *random) {
    for (size_t i = 0; i < n; i++) host[i] = test_uniform(random);
    return device_new(host, n * sizeof *host);
}

static DeviceTensor upload(const Tensor *t) {
    DeviceTensor d;
    size_t bytes = gpu_tensor_bytes(t, &d), groups = 0;
    gpu_tensor_place(&d, device_new(NULL, bytes));
    if (t->type == TYPE_I8G) groups = ((size_t)t->n_out * (size_t)t->n_in + (size_t)t->group - 1) / (size_t)t->group;
    const float *scales = groups ? device_new(t->scales, groups * sizeof(float)) : NULL;
    for (int first = 0, n; first < t->n_out; first += n) { // in pieces
        n = int_min(t->n_out - first, t->n_out / 2 + 1);
        const char *rows = (const char *)t->data + (size_t)first * t->row_bytes;
        gpu_tensor_fill(&d, t, first, n, device_new(rows, (size_t)n * t->row_bytes), scales, NULL);
    }
    d.bias = t->bias ? device_new(t->bias, (size_t)t->n_out * sizeof(float)) : NULL;
    launched();
    return d;
}

static const float *upload_floats(const float *p, int n) { return p ? device_new(p, (size_t)n * sizeof *p) : NULL; }

static void upload_layer(Rig *r) {
    const Layer *l = &r->m.layers[1];
    r->ropes.n = r->m.ends.n_ropes;
    for (int i = 0; i < r->ropes.n; i++) {
        r->ropes.of[i] = r->m.ends.ropes[i];
        r->ropes.of[i].freq = device_new(r->ropes.of[i].freq, (size_t)(r->ropes.of[i].n_rot / 2) * sizeof(double));
    }
    r->l = (GpuLayer){.wq = upload(&l->wq),
                      .wk = upload(&l->wk),
                      .wv = upload(&l->wv),
                      .wo = upload(&l->wo),
                      .w_gate = upload(&l->w_gate),
                      .w_up = upload(&l->w_up),
                      .w_down = upload(&l->w_down),
                      .norm_att = upload_floats(l->norm_att, r->w.dim),
                      .norm_ffn = upload_floats(l->norm_ffn, r->w.dim),
                      .norm_q = upload_floats(l->norm_q, l->heads.head_dim),
                      .norm_k = upload_floats(l->norm_k, l->heads.head_dim),
                      .norm_att_out = upload_floats(l->norm_att_out, r->w.dim),
                      .norm_ffn_out = upload_floats(l->norm_ffn_out, r->w.dim),
                      .kind = l->kind,
                      .heads = l->heads,
                      .rope = r->ropes.of[l->rope.table],
                      .index = l->kv_layer};
    r->tok = upload(&r->m.ends.tok_embd);
    r->head = upload(&r->m.ends.head);
    r->norm_out = (float *)upload_floats(r->m.ends.norm_out, r->w.dim);
}

// Sequences, their slots, permuted tables; rows come sequence by sequence.
static void make_batch(Rig *r) {
    const Case *c = r->c;
    int step = c->gaps ? 3 : 1, most = c->past + 5 * c->n_seqs + step * c->rows_each;
    Batch *b = &r->b;
    *b = (Batch){.n_rows = c->n_seqs * c->rows_each, .n_seqs = c->n_seqs};
    b->n_step = b->n_rows;
    b->max_blocks = (most + c->block - 1) / c->block;
    size_t rows = (size_t)b->n_rows;
    b->token = malloc(rows * sizeof(int));
    b->pos = malloc(rows * sizeof(int));
    b->slot = malloc(rows * sizeof(int));
    b->seq = malloc(rows * sizeof(int));
    for (int i = 0; i < b->n_rows; i++) {
        int seq = i / c->rows_each;
        b->seq[i] = seq;
        b->slot[i] = c->past + 5 * seq + step * (i % c->rows_each + 1) - 1;
        b->pos[i] = b->slot[i] + 7;
        b->token[i] = (int)(test_random(&r->random) % (uint64_t)r->m.c.n_vocab);
    }
    int n = b->max_blocks * c->n_seqs, *table = malloc((size_t)n * sizeof(int));
    *(c->window ? &b->window_table : &b->block_table) = table;
    for (int i = 0; i < n; i++) {
        int k = (int)(test_random(&r->random) % (uint64_t)(i + 1));
        table[i] = table[k];
        table[k] = i;
    }
}

static int *table_of(const Rig *r, int seq) {
    return (r->c->window ? r->b.window_table : r->b.block_table) + seq * r->b.max_blocks;
}

static int type_of(const KvPool *kv, bool value) { return value ? kv->type_v : kv->type_k; }
static uint8_t *plane(const KvPool *kv, bool value) { return value ? kv->v : kv->k; }
static float *tail(const KvPool *kv, bool value) { return value ? kv->tail_v : kv->tail_k; }
static size_t plane_bytes(const KvPool *kv, bool value) {
    return kv_slot(kv, kv->n_layers, 0, 0, 0) * kv_slot_bytes(type_of(kv, value), kv->head_dim);
}
static size_t tail_floats(const KvPool *kv) { return kv_tail_index(kv, kv->n_layers, 0, 0, 0); }

// Every block has a page; the open groups' rows are in them.
static void make_tails(KvPool *kv) {
    kv->n_tails = kv->n_blocks;
    kv->tail_of = malloc((size_t)kv->n_blocks * sizeof(int));
    for (int i = 0; i < kv->n_blocks; i++) kv->tail_of[i] = kv->n_blocks - 1 - i;
    for (int v = 0; v < 2; v++) {
        if (!kv_is_sealed(type_of(kv, v))) continue;
        float *pages = malloc(tail_floats(kv) * sizeof *pages);
        memset(pages, 0xff, tail_floats(kv) * sizeof *pages);
        *(v ? &kv->tail_v : &kv->tail_k) = pages;
    }
}

// The group that begins at a slot, from SEAL rows of head_dim.
static void seal_at(const KvPool *kv, bool value, int layer, const int *table, int head, int first,
                    const float *const *rows) {
    uint8_t group[SEAL_MOST];
    size_t bytes = kv_slot_bytes(type_of(kv, value), kv->head_dim);
    seal_group(type_of(kv, value), !value, rows, kv->head_dim, group);
    for (int s = 0; s < SEAL; s++) {
        size_t at = kv_slot(kv, layer, table[(first + s) / kv->block], head, (first + s) % kv->block);
        memcpy(plane(kv, value) + at * bytes, group + (size_t)s * bytes, bytes);
    }
}

// n slots of a head: whole groups sealed, the others' rows in the page.
static void fill_sealed(Rig *r, bool value, const int *table, int head, int n) {
    KvPool *kv = &r->kv;
    size_t hd = (size_t)kv->head_dim;
    static float x[SEAL][SEAL_HEAD];
    const float *rows[SEAL];
    for (int first = 0; first < n; first += SEAL) {
        int here = int_min(SEAL, n - first);
        for (int s = 0; s < here; s++) {
            rows[s] = x[s];
            for (size_t i = 0; i < hd; i++) x[s][i] = test_uniform(&r->random);
        }
        if (here == SEAL) seal_at(kv, value, 1, table, head, first, rows);
        else
            for (int s = 0; s < here; s++)
                memcpy(tail(kv, value) + kv_tail_index(kv, 1, kv_tail(kv, table, first), head, s), x[s],
                       hd * sizeof(float));
    }
}

static void fill_dense(Rig *r, bool value, const int *table, int head, int n) {
    KvPool *kv = &r->kv;
    int type = type_of(kv, value);
    for (int slot = 0; slot < n; slot++)
        for (int i = 0; i < kv->head_dim; i++) {
            size_t at = kv_index(kv, 1, table[slot / kv->block], head, slot % kv->block) + (size_t)i;
            float x = test_uniform(&r->random);
            cpu_scalar.to_kv(plane(kv, value) + at * kv_type_bytes(type), type, &x, 1);
        }
}

// What no row of a sequence sees, or reads of what is sealed with the oldest that it sees, is NaN again; and whole
// blocks of it are another's.
static void hide_unseen(Rig *r, int seq) {
    KvPool *kv = &r->kv;
    int *table = table_of(r, seq), oldest = r->b.slot[seq * r->c->rows_each] - r->c->window + 1;
    if (kv->tail_of) oldest = oldest / SEAL * SEAL;
    for (int slot = 0; slot < oldest; slot++)
        for (int head = 0; head < 2 * kv->n_kv_heads; head++) {
            size_t bytes = kv_slot_bytes(type_of(kv, head % 2), kv->head_dim);
            size_t at = kv_slot(kv, 1, table[slot / kv->block], head / 2, slot % kv->block);
            memset(plane(kv, head % 2) + at * bytes, 0xff, bytes);
        }
    for (int i = 0; (i + 1) * kv->block <= oldest; i++) table[i] = 0;
}

// A pool that is NaN but for the slots before the batch's rows and between them, of those that its rows see.
static void make_cache(Rig *r) {
    const Case *c = r->c;
    KvPool *kv = &r->kv;
    *kv = (KvPool){.kind = c->window ? KV_WINDOW : KV_FULL,
                   .n_layers = 2,
                   .n_blocks = r->b.max_blocks * c->n_seqs,
                   .n_kv_heads = r->m.c.n_kv_heads,
                   .block = c->block,
                   .head_dim = r->m.c.head_dim,
                   .type_k = c->type_k,
                   .type_v = c->type_v,
                   .rotate = c->rotate};
    kv->bytes_k = plane_bytes(kv, false);
    kv->bytes_v = plane_bytes(kv, true);
    kv->k = malloc(kv->bytes_k);
    kv->v = malloc(kv->bytes_v);
    memset(kv->k, 0xff, kv->bytes_k);
    memset(kv->v, 0xff, kv->bytes_v);
    if (kv_is_sealed(kv->type_k) || kv_is_sealed(kv->type_v)) make_tails(kv);
    for (int seq = 0; seq < c->n_seqs; seq++) {
        const int *table = table_of(r, seq), *slots = r->b.slot + seq * c->rows_each;
        for (int head = 0; head < 2 * kv->n_kv_heads; head++) {
            bool value = head % 2;
            if (kv_is_sealed(type_of(kv, value))) fill_sealed(r, value, table, head / 2, slots[0]);
            else fill_dense(r, value, table, head / 2, slots[c->rows_each - 1]);
        }
    }
    for (int seq = 0; seq < c->n_seqs && c->window; seq++) hide_unseen(r, seq);
    r->dkv = *kv;
    r->dkv.tail_of = NULL;
    for (int v = 0; v < 2; v++) {
        *(v ? &r->dkv.v : &r->dkv.k) = device_new(plane(kv, v), plane_bytes(kv, v));
        if (tail(kv, v))
            *(v ? &r->dkv.tail_v : &r->dkv.tail_k) = device_new(tail(kv, v), tail_floats(kv) * sizeof(float));
    }
}

static const int *upload_ints(const int *p, int n, int padding) { // and one more, of the row of padding
    int *copy = malloc((size_t)(n + 1) * sizeof *copy);
    memcpy(copy, p, (size_t)n * sizeof *copy);
    copy[n] = padding;
    int *d = device_new(copy, (size_t)(n + 1) * sizeof *copy);
    free(copy);
    return d;
}

static void upload_tails(Rig *r) {
    const Batch *b = &r->b;
    int *since = malloc(2 * (size_t)b->n_rows * sizeof *since), *page = since + b->n_rows;
    for (int i = 0; i < b->n_rows; i++) {
        since[i] = b->slot[i / r->c->rows_each * r->c->rows_each];
        page[i] = kv_tail(&r->kv, table_of(r, b->seq[i]), b->slot[i]);
    }
    r->db.since = upload_ints(since, b->n_rows, -1);
    r->db.page = upload_ints(page, b->n_rows, -1);
    free(since);
}

// The layer's table, and beside it another that must not be read.
static void upload_tables(Rig *r) {
    const Batch *b = &r->b;
    int n = b->max_blocks, window = r->c->window > 0, *tables = malloc((size_t)(2 * n * b->n_seqs) * sizeof *tables);
    for (int i = 0; i < 2 * n * b->n_seqs; i++) tables[i] = 1 << 28;
    for (int seq = 0; seq < b->n_seqs; seq++)
        memcpy(tables + (2 * seq + window) * n, table_of(r, seq), (size_t)n * sizeof *tables);
    r->db.block_table = upload_ints(tables, 2 * n * b->n_seqs, -1);
    r->db.window_table = r->db.block_table + n;
    r->db.table_step = 2 * n;
    free(tables);
}

static void upload_batch(Rig *r) {
    const Batch *b = &r->b;
    int newest = 0;
    for (int i = 0; i < b->n_rows; i++) newest = int_max(newest, b->slot[i]);
    r->db = (GpuBatch){.n_rows = b->n_rows + 1,
                       .max_slots = newest + 1,
                       .token = upload_ints(b->token, b->n_rows, -1),
                       .pos = upload_ints(b->pos, b->n_rows, 0),
                       .slot = upload_ints(b->slot, b->n_rows, -1),
                       .seq = upload_ints(b->seq, b->n_rows, 0)};
    upload_tables(r);
    if (r->kv.tail_of) upload_tails(r);
    size_t rows = (size_t)b->n_rows + 1, half = (size_t)(r->w.n_rot / 2), turns = (size_t)r->ropes.n * rows * half;
    size_t counters = (size_t)gpu_n_counters(&r->l.heads, (int)rows) * sizeof(unsigned);
    void *zeros = calloc(1, counters);
    r->s = (GpuScratch){.rope_cos = device_new(NULL, turns * sizeof(float)),
                        .rope_sin = device_new(NULL, turns * sizeof(float)),
                        .rope_rows = (int)rows,
                        .rope_step = (int)half,
                        .behind = device_new(NULL, rows * (size_t)r->w.dim * sizeof(float)),
                        .partial = device_new(NULL, gpu_attention_bytes(&r->l.heads, (int)rows, newest + 1)),
                        .qkv = device_new(NULL, rows * (size_t)(r->w.q_dim + 2 * r->w.kv_dim) * sizeof(float)),
                        .counters = device_new(zeros, counters)};
    free(zeros);
}

static void rig_open(Rig *r, const Case *c, uint64_t seed) {
    *r = (Rig){.c = c, .random = seed};
    case_name = c->name;
    const Backend *be;
    assert_ok(cpu_backend("scalar", &be));
    r->g = tiny_model(&c->model);
    assert_ok(model_load(&r->m, r->g, be));
    r->m.layers[1].kv_layer = 1; // whatever its kind: there is one pool
    r->m.layers[1].heads.window = c->window;
    r->pool = threads_new(1);
    make_batch(r);
    assert_ok(workspace_new(&r->w, &r->m, r->pool, r->b.n_rows, r->b.n_rows, 1));
    device_order(seed);
    upload_layer(r);
    make_cache(r);
    upload_batch(r);
}

static void free_cache(KvPool *kv) {
    free(kv->k);
    free(kv->v);
    free(kv->tail_k);
    free(kv->tail_v);
    free(kv->tail_of);
}

static void rig_close(Rig *r) {
    device_free_all();
    const char *error = gpu_launch_error();
    if (error) fail_msg("%s: %s", case_name, error);
    free(r->b.token);
    free(r->b.pos);
    free(r->b.slot);
    free(r->b.seq);
    free(r->b.block_table);
    free(r->b.window_table);
    free_cache(&r->kv);
    workspace_free(&r->w);
    threads_free(r->pool);
    model_free(&r->m);
    gguf_close(r->g);
}

// n floats of the host's rows, and a row of padding.
static float *with_padding(Rig *r, const float *rows, int width) {
    size_t n = (size_t)r->b.n_rows * (size_t)width;
    float *copy = malloc((n + (size_t)width) * sizeof *copy);
    memcpy(copy, rows, n * sizeof *copy);
    for (int i = 0; i < width; i++) copy[n + (size_t)i] = test_uniform(&r->random);
    float *d = device_new(copy, (n + (size_t)width) * sizeof *copy);
    free(copy);
    return d;
}

static float *fresh(Rig *r, int width) {
    return device_new(NULL, (size_t)(r->b.n_rows + 1) * (size_t)width * sizeof(float));
}

// ---- the operations -------------------------------------------------------------------------------------------------

static bool same_bytes(const void *host, const void *device, size_t n) {
    void *copy = malloc(n);
    device_read(copy, device, n);
    bool same = memcmp(host, copy, n) == 0;
    free(copy);
    return same;
}

// The rows' K or V in the device's products against the host's, and the groups that they complete as the host seals
// them, byte for byte. before: the pool without them.
static void compare_sealed(Rig *r, int way, bool value, const KvPool *before) {
    const Batch *b = &r->b;
    KvPool *kv = &r->kv;
    size_t width = (size_t)(r->w.q_dim + 2 * r->w.kv_dim), kv_dim = (size_t)r->w.kv_dim, hd = (size_t)kv->head_dim;
    size_t first = (size_t)r->w.q_dim + value * kv_dim, n = (size_t)b->n_rows, bytes = plane_bytes(kv, value);
    float *qkv = malloc(n * width * sizeof *qkv), *got = malloc(n * kv_dim * sizeof *got);
    device_read(qkv, r->s.qkv, n * width * sizeof *qkv);
    for (size_t i = 0; i < n; i++) memcpy(got + i * kv_dim, qkv + i * width + first, kv_dim * sizeof *got);
    take_distance(KV, way, distance(value ? r->w.v : r->w.k, got, n * kv_dim));
    KvPool expected = *before;
    *(value ? &expected.v : &expected.k) = copy_of(plane(before, value), bytes);
    for (int i = 0; i < b->n_rows; i++) {
        int slot = b->slot[i], since = b->slot[i / r->c->rows_each * r->c->rows_each];
        const int *table = table_of(r, b->seq[i]);
        const float *rows[SEAL];
        for (int head = 0; head < kv->n_kv_heads && slot % SEAL == SEAL - 1; head++) {
            for (int s = 0; s < SEAL; s++) {
                int back = SEAL - 1 - s;
                rows[s] = slot - back < since
                              ? tail(before, value) + kv_tail_index(kv, 1, kv_tail(kv, table, slot), head, s)
                              : got + (size_t)(i - back) * kv_dim + (size_t)head * hd;
            }
            seal_at(&expected, value, 1, table, head, slot - SEAL + 1, rows);
        }
    }
    if (!same_bytes(plane(&expected, value), plane(&r->dkv, value), bytes))
        fail_msg("%s: %s sealed in other bytes", case_name, value ? "V" : "K");
    free(plane(&expected, value));
    free(qkv);
    free(got);
}

// The device's planes against the host's: what is NaN here must be NaN there.
static void compare_cache(Rig *r, int way, const KvPool *before) {
    gpu_seal(&r->l, &r->dkv, &r->db, &r->s, NULL);
    launched();
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
            float a = as_float(type, host, i), b = as_float(type, device, i);
            if (isnan(a) != isnan(b))
                fail_msg("%s: element %zu of the cache: %g expected, %g found", case_name, i, a, b);
            if (!isnan(a)) ref[i] = a, out[i] = b;
        }
        take_distance(KV, type == TYPE_F32 ? way : int_max(way, HALF_IN), distance(ref, out, n));
        free(ref);
        free(out);
        free(device);
    }
}

static void reset_cache(Rig *r, const KvPool *to) {
    device_write(r->dkv.k, to->k, to->bytes_k);
    device_write(r->dkv.v, to->v, to->bytes_v);
    for (int v = 0; v < 2; v++)
        if (tail(to, v)) device_write(tail(&r->dkv, v), tail(to, v), tail_floats(to) * sizeof(float));
}

static KvPool cache_copy(const KvPool *kv) {
    KvPool copy = *kv;
    copy.k = copy_of(kv->k, kv->bytes_k);
    copy.v = copy_of(kv->v, kv->bytes_v);
    copy.tail_k = kv->tail_k ? copy_of(kv->tail_k, tail_floats(kv) * sizeof(float)) : NULL;
    copy.tail_v = kv->tail_v ? copy_of(kv->tail_v, tail_floats(kv) * sizeof(float)) : NULL;
    copy.tail_of = kv->tail_of ? copy_of(kv->tail_of, (size_t)kv->n_blocks * sizeof(int)) : NULL;
    return copy;
}

static size_t rows_of(const Rig *r, int width) { return (size_t)r->b.n_rows * (size_t)width; }

static void check_embed(Rig *r) {
    float *x = fresh(r, r->w.dim);
    size_t turns = rows_of(r, r->w.n_rot / 2), table = turns + (size_t)(r->w.n_rot / 2); // with the row of padding
    r->m.be->embed(&r->w, r->m.be, &r->m.ends, &r->kv, &r->b);
    gpu_embed(x, &r->tok, r->m.ends.embd_scale, &r->ropes, &r->db, &r->s, NULL);
    compare(EMBED, F32_IN, r->w.x, x, rows_of(r, r->w.dim));
    for (size_t i = 0; i < (size_t)r->ropes.n; i++) {
        compare(EMBED, F32_IN, r->w.rope_cos + i * turns, r->s.rope_cos + i * table, turns);
        compare(EMBED, F32_IN, r->w.rope_sin + i * turns, r->s.rope_sin + i * table, turns);
    }
    for (size_t i = 0; i < rows_of(r, r->w.dim); i++) r->w.x[i] = test_uniform(&r->random);
}

static bool quantised(const Rig *r) { return type_info(r->c->model.type)->block > 1 || r->c->model.type == TYPE_I8G; }

// How the fused kernels take rows: exact; with activations rounded to int8 where the weights are quantised; with the
// matrix unit.
typedef enum { EXACT, ROUNDED, FEW, N_HOWS } How;
static bool takes(const Rig *r, How how) {
    if (how == FEW) return r->db.n_rows > 4 && r->db.n_rows <= gpu_decode_rows(&r->l);
    return r->db.n_rows <= GPU_DECODE_ROWS;
}
static GpuProduct product_of(How how) { return (GpuProduct){.exact = how == EXACT}; }
static int way_of(const Rig *r, How how) {
    if (how == FEW) return quantised(r) ? INT8_IN : r->c->model.type == TYPE_F32 ? F32_IN : HALF_IN;
    return how == ROUNDED && quantised(r) ? INT8_IN : F32_IN;
}
// Goes to the next way that takes the rows, from how = -1 on; false: there is none.
static bool next_way(const Rig *r, int *how) {
    for (++*how; *how < N_HOWS; ++*how) {
        gpu_tune((GpuTuning){.skinny = *how == FEW});
        if (takes(r, (How)*how)) return true;
    }
    gpu_tune((GpuTuning){0});
    return false;
}

// The product of the layer's matrix without its bias, as the backend's prefill has it.
static void product(const Rig *r, const Tensor *t, const float *x, float *y, size_t stride) {
    Tensor plain = *t;
    plain.bias = NULL;
    cpu_scalar.matvec(&plain, 0, t->n_out, x, (size_t)t->n_in, r->b.n_rows, y, stride, false, NULL);
}

static void check_attn_in(Rig *r) {
    const Layer *l = &r->m.layers[1];
    KvPool before = cache_copy(&r->kv);
    float *x = with_padding(r, r->w.x, r->w.dim);
    l->be->attn_in(&r->w, l, &r->kv, &r->b);
    for (int how = -1; next_way(r, &how);) {
        float *q = fresh(r, r->w.q_dim);
        reset_cache(r, &before);
        gpu_attn_in(q, x, &r->l, &r->dkv, &r->db, &r->s, product_of((How)how), NULL);
        compare(QKV, way_of(r, (How)how), r->w.q, q, rows_of(r, r->w.q_dim));
        compare_cache(r, way_of(r, (How)how), &before);
    }
    // the same in prefill's pieces
    float *xn = fresh(r, r->w.dim), *q = fresh(r, r->w.q_dim);
    gpu_rmsnorm(xn, TYPE_F32, x, r->l.norm_att, l->kind.eps, r->w.dim, NULL, r->db.n_rows, NULL);
    compare(NORM, F32_IN, r->w.xn, xn, rows_of(r, r->w.dim));
    gpu_rmsnorm(xn, TYPE_BF16, x, r->l.norm_att, l->kind.eps, r->w.dim, NULL, r->db.n_rows, NULL);
    compare_as(NORM, HALF_IN, TYPE_BF16, r->w.xn, xn, rows_of(r, r->w.dim));
    size_t width = (size_t)(r->w.q_dim + 2 * r->w.kv_dim);
    float *y = malloc(rows_of(r, (int)width) * sizeof *y);
    product(r, &l->wq, r->w.xn, y, width);
    product(r, &l->wk, r->w.xn, y + r->w.q_dim, width);
    product(r, &l->wv, r->w.xn, y + r->w.q_dim + r->w.kv_dim, width);
    r->s.qkv = with_padding(r, y, (int)width);
    reset_cache(r, &before);
    gpu_qkv_finish(q, &r->l, &r->dkv, &r->db, &r->s, NULL);
    compare(FINISH, F32_IN, r->w.q, q, rows_of(r, r->w.q_dim));
    compare_cache(r, F32_IN, &before);
    reset_cache(r, &r->kv); // attention reads what the reference has written
    free(y);
    free_cache(&before);
}

// The batch's own K and V where attention looks for them, as the reference computed them.
static void place_rows(Rig *r) {
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

// The pages behind a step, of what stays open.
static void check_keep(Rig *r) {
    gpu_keep(&r->l, &r->dkv, &r->db, &r->s, NULL);
    launched();
    for (int v = 0; v < 2; v++)
        if (tail(&r->kv, v))
            assert_true(same_bytes(tail(&r->kv, v), tail(&r->dkv, v), tail_floats(&r->kv) * sizeof(float)));
}

static void padding_is_zero(const Rig *r, const float *a) {
    float *row = malloc((size_t)r->w.q_dim * sizeof *row);
    device_read(row, a + rows_of(r, r->w.q_dim), (size_t)r->w.q_dim * sizeof *row);
    for (int i = 0; i < r->w.q_dim; i++) assert_true(row[i] == 0);
    free(row);
}

static void check_flash(Rig *r, const float *q) {
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
    compare(FLASH, HALF_IN, r->w.a, a, rows_of(r, r->w.q_dim));
    padding_is_zero(r, a);
    gpu_flash(a, TYPE_BF16, q, (size_t)r->w.q_dim, &r->l, &r->dkv, &r->db, &r->s, dt, n_tiles, NULL);
    compare_as(FLASH, HALF_IN, TYPE_BF16, r->w.a, a, rows_of(r, r->w.q_dim));
    free(b.slot);
    free(b.seq);
    free(tiles);
}

// A row's part in it is one for each of a group's heads.
static void check_probe(Rig *r, const Probe *host, const float *q) {
    size_t n = (size_t)r->kv.n_kv_heads * (size_t)host->n_slots;
    float *ones = malloc(n * sizeof *ones), sum = 0;
    for (size_t i = 0; i < n; i++) ones[i] = 1; // it is added to
    float *mass = device_new(ones, n * sizeof *mass);
    gpu_probe(mass, host->n_slots, host->first_row, q, &r->l, &r->dkv, &r->db, &r->s, NULL);
    launched();
    device_read(ones, mass, n * sizeof *mass);
    for (size_t i = 0; i < n; i++) sum += ones[i] -= 1;
    int looks = (r->b.n_rows - host->first_row) * r->l.heads.n_heads;
    assert_true(fabsf(sum - (float)looks) < 1e-3f * (float)looks);
    take_distance(PROBE, F32_IN, distance(host->mass + n, ones, n)); // of layer 1
    free(ones);
}

static void check_attention(Rig *r) {
    const Layer *l = &r->m.layers[1];
    int n_slots = r->b.slot[r->b.n_rows - 1] + 3;
    size_t heads = (size_t)r->kv.n_kv_heads;
    Probe probe = {.first_row = r->b.n_rows / 3, .n_slots = n_slots};
    probe.mass = calloc(2 * heads * (size_t)n_slots, sizeof *probe.mass);
    probe.scores = calloc(heads * (size_t)n_slots, sizeof *probe.scores);
    bool probed = r->c->n_seqs == 1 && !r->kv.tail_of;
    r->b.probe = probed ? &probe : NULL;
    l->be->attention(&r->w, l, &r->kv, &r->b);
    r->b.probe = NULL;
    place_rows(r);
    float *q = with_padding(r, r->w.q, r->w.q_dim), *a = fresh(r, r->w.q_dim), *again = fresh(r, r->w.q_dim);
    gpu_attention(a, q, &r->l, &r->dkv, &r->db, &r->s, NULL);
    compare(ATTEND, F32_IN, r->w.a, a, rows_of(r, r->w.q_dim));
    padding_is_zero(r, a);
    device_order(r->random); // another order of blocks, the same bits
    gpu_attention(again, q, &r->l, &r->dkv, &r->db, &r->s, NULL);
    float *bits = malloc(rows_of(r, r->w.q_dim) * sizeof *bits);
    device_read(bits, a, rows_of(r, r->w.q_dim) * sizeof *bits);
    assert_true(same_bytes(bits, again, rows_of(r, r->w.q_dim) * sizeof *bits));
    free(bits);
    if (probed) check_probe(r, &probe, q);
    if (gpu_flash_can(&r->l.heads, &r->dkv)) check_flash(r, q);
    check_keep(r);
    free(probe.mass);
    free(probe.scores);
}

// What prefill does with a product.
static void add_product(Rig *r, float *x, const float *y, const float *bias, const float *norm) {
    const float *dy = with_padding(r, y, r->w.dim);
    if (norm) gpu_add_normed(x, dy, bias, norm, r->l.kind.eps, r->w.dim, r->db.n_rows, NULL);
    else gpu_add(x, dy, bias, r->w.dim, r->db.n_rows, NULL);
}

static void check_residual(Rig *r) {
    const Layer *l = &r->m.layers[1];
    const float *a = with_padding(r, r->w.a, r->w.q_dim);
    float *x = with_padding(r, r->w.x, r->w.dim);
    size_t n = rows_of(r, r->w.dim);
    float *y = malloc(n * sizeof *y), *before = copy_of(r->w.x, n * sizeof *before);
    product(r, &l->wo, r->w.a, y, (size_t)r->w.dim);
    l->be->attn_out(&r->w, l, &r->b);
    add_product(r, x, y, r->l.wo.bias, r->l.norm_att_out);
    compare(ADD, F32_IN, r->w.x, x, n);
    for (int how = -1; next_way(r, &how);) {
        x = with_padding(r, before, r->w.dim);
        gpu_attn_out(x, a, &r->l, &r->db, &r->s, product_of((How)how), NULL);
        compare(ADD, way_of(r, (How)how), r->w.x, x, n);
    }
    free(y);
    free(before);
}

static void check_ffn(Rig *r) {
    const Layer *l = &r->m.layers[1];
    const float *x = with_padding(r, r->w.x, r->w.dim);
    size_t n = rows_of(r, r->w.ffn), n_x = rows_of(r, r->w.dim);
    float *gate = malloc(n * sizeof *gate), *up = malloc(n * sizeof *up), *down = malloc(n_x * sizeof *down),
          *before = copy_of(r->w.x, n_x * sizeof *before);
    l->be->ffn_in(&r->w, l, &r->b);
    float *h = fresh(r, r->w.ffn);
    for (int how = -1; next_way(r, &how);) {
        gpu_ffn_in(h, x, &r->l, &r->db, product_of((How)how), NULL);
        compare(GLU, way_of(r, (How)how), r->w.h, h, n);
    }
    product(r, &l->w_gate, r->w.xn, gate, (size_t)r->w.ffn);
    product(r, &l->w_up, r->w.xn, up, (size_t)r->w.ffn);
    for (int type = TYPE_F32; type <= TYPE_F16; type++) {
        gpu_gate_mul(h, type, r->l.kind.act, with_padding(r, gate, r->w.ffn), with_padding(r, up, r->w.ffn),
                     (size_t)r->w.ffn, r->l.w_gate.bias, r->l.w_up.bias, r->w.ffn, r->db.n_rows, NULL);
        compare_as(GLU, type == TYPE_F32 ? F32_IN : HALF_IN, type, r->w.h, h, n);
    }
    const float *dh = with_padding(r, r->w.h, r->w.ffn);
    product(r, &l->w_down, r->w.h, down, (size_t)r->w.dim);
    l->be->ffn_out(&r->w, l, &r->b);
    float *out = with_padding(r, before, r->w.dim);
    add_product(r, out, down, r->l.w_down.bias, r->l.norm_ffn_out);
    compare(ADD, F32_IN, r->w.x, out, n_x);
    for (int how = -1; next_way(r, &how);) {
        out = with_padding(r, before, r->w.dim);
        gpu_ffn_out(out, dh, &r->l, &r->db, &r->s, product_of((How)how), NULL);
        compare(ADD, way_of(r, (How)how), r->w.x, out, n_x);
    }
    free(gate);
    free(up);
    free(down);
    free(before);
}

static void check_logits(Rig *r) {
    const float *x = with_padding(r, r->w.x, r->w.dim);
    int rows[GPU_SKINNY_ROWS], n = int_min(r->b.n_rows, r->c->model.type == TYPE_BF16 ? GPU_SKINNY_ROWS : 3);
    for (int i = 0; i < n; i++) rows[i] = r->b.n_rows - 1 - i;
    const Ends *e = &r->m.ends;
    r->m.be->logits(&r->w, r->m.be, e, &r->b, rows, n);
    const int *drows = upload_ints(rows, n, 0);
    for (int how = n > GPU_DECODE_ROWS ? FEW : EXACT; how < (n > 4 ? N_HOWS : FEW); how++) {
        gpu_tune((GpuTuning){.skinny = how == FEW});
        float *out = device_new(NULL, (size_t)n * (size_t)r->m.c.n_vocab * sizeof(float));
        gpu_logits(out, x, &r->head, r->norm_out, e->eps, drows, n, product_of((How)how), NULL);
        gpu_softcap(out, e->softcap, (size_t)n * (size_t)r->m.c.n_vocab, NULL);
        compare(LOGITS, way_of(r, (How)how), r->w.logits, out, (size_t)n * (size_t)r->m.c.n_vocab);
    }
    gpu_tune((GpuTuning){0});
}

static void check_dequantize(Rig *r) {
    const Tensor *t = &r->m.layers[1].w_down;
    int first = 3, n = t->n_out - 5;
    size_t stride = (size_t)t->n_in + 8, all = (size_t)n * (size_t)t->n_in;
    float *ref = malloc(all * sizeof *ref), *out = malloc(all * sizeof *out);
    for (int i = 0; i < n; i++) cpu_scalar.embed(t, first + i, ref + (size_t)i * (size_t)t->n_in);
    for (int type = TYPE_F32; type <= TYPE_BF16; type += type == TYPE_F32 ? TYPE_F16 : TYPE_BF16 - TYPE_F16) {
        size_t bytes = (size_t)n * stride * kv_type_bytes(type);
        void *d = device_new(NULL, bytes), *host = malloc(bytes);
        gpu_dequantize(&r->l.w_down, first, n, type, d, stride, NULL);
        launched();
        device_read(host, d, bytes);
        for (size_t i = 0; i < all; i++)
            out[i] = as_float(type, host, i / (size_t)t->n_in * stride + i % (size_t)t->n_in);
        take_distance(DENSE, type == TYPE_F32 ? F32_IN : HALF_IN, distance(ref, out, all));
        free(host);
    }
    free(ref);
    free(out);
}

static void run_case(const Case *c, uint64_t seed) {
    Rig r;
    rig_open(&r, c, seed);
    check_embed(&r);
    check_attn_in(&r);
    check_attention(&r);
    check_residual(&r);
    check_ffn(&r);
    check_logits(&r);
    check_dequantize(&r);
    rig_close(&r);
}

// ---- the cases ------------------------------------------------------------------------------------------------------

static void every_type(void **state) {
    (void)state;
    for (size_t i = 0; i < TINY_TYPES; i++) {
        Case c = {.name = type_name(tiny_types[i]),
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

static const Case cases[] = {
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

// Ties, both zeros, what a half cannot hold, and now and then what is not finite.
static float odd_value(uint64_t *random) {
    static const float few[] = {0, -0.0f, 0.5f, -0.5f, 1, -1, 3e-8f, 1e-40f, 448, -448, 65504, 1e5f};
    static const float broken[] = {INFINITY, -INFINITY, NAN};
    uint64_t u = test_random(random);
    if (u % 2000 == 0) return broken[u / 2000 % 3];
    if (u % 10 == 0) return few[u / 10 % ARRAY_LEN(few)];
    return test_uniform(random) * (u & 1 ? 1 : 0.01f);
}

// Groups that lie in one piece and those in parts, open ones that began in steps before, rows that complete some,
// contexts over a split's border.
static const Case sealed_cases[] = {
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

// Values of every kind, in groups that a run of rows completes: from a page and from rows, in blocks of every size.
static void sealed_to_the_byte(void **state) {
    (void)state;
    enum { PAST = 19, ROWS = 50, HEADS = 2 }; // groups at 0 and 32
    static const int types[] = {TYPE_FP8, TYPE_Q8_0, TYPE_Q4_0, TYPE_KIVI2};
    static const int head_dims[] = {2, 24, 64, 80, 96, 128, 256}, blocks[] = {1, 16, 32, 64, 70};
    uint64_t random = 9;
    for (size_t i = 0; i < ARRAY_LEN(types) * ARRAY_LEN(head_dims); i++) {
        int hd = head_dims[i % ARRAY_LEN(head_dims)], block = blocks[i % ARRAY_LEN(blocks)], table[PAST + ROWS];
        int n_blocks = (PAST + ROWS - 1) / block + 1, stride = 3 * HEADS * hd, ints[4][ROWS];
        KvPool kv = {.n_layers = 1, .n_blocks = n_blocks, .n_kv_heads = HEADS, .block = block, .head_dim = hd};
        kv.type_k = kv.type_v = types[i / ARRAY_LEN(head_dims)];
        case_name = type_name(kv.type_k);
        make_tails(&kv);
        float *qkv = malloc((size_t)(ROWS * stride) * sizeof *qkv);
        for (int k = 0; k < ROWS * stride; k++) qkv[k] = odd_value(&random);
        for (int k = 0; k < n_blocks; k++) table[k] = n_blocks - 1 - k;
        for (int v = 0; v < 2; v++) {
            for (size_t k = 0; k < tail_floats(&kv); k++) tail(&kv, v)[k] = odd_value(&random);
            *(v ? &kv.v : &kv.k) = malloc(plane_bytes(&kv, v));
            memset(plane(&kv, v), 0xff, plane_bytes(&kv, v));
        }
        for (int k = 0; k < ROWS; k++) {
            ints[0][k] = PAST + k;
            ints[1][k] = 0;
            ints[2][k] = PAST;
            ints[3][k] = kv_tail(&kv, table, PAST + k);
        }
        KvPool d = kv;
        d.tail_k = device_new(kv.tail_k, tail_floats(&kv) * sizeof(float));
        d.tail_v = device_new(kv.tail_v, tail_floats(&kv) * sizeof(float));
        d.k = device_new(kv.k, plane_bytes(&kv, false));
        d.v = device_new(kv.v, plane_bytes(&kv, true));
        GpuBatch b = {.n_rows = ROWS,
                      .table_step = n_blocks,
                      .slot = device_new(ints[0], sizeof ints[0]),
                      .seq = device_new(ints[1], sizeof ints[1]),
                      .since = device_new(ints[2], sizeof ints[2]),
                      .page = device_new(ints[3], sizeof ints[3]),
                      .block_table = device_new(table, (size_t)n_blocks * sizeof *table)};
        GpuLayer l = {.heads = {.n_heads = HEADS, .n_kv_heads = HEADS, .head_dim = hd}};
        GpuScratch s = {.qkv = device_new(qkv, (size_t)(ROWS * stride) * sizeof *qkv)};
        gpu_seal(&l, &d, &b, &s, NULL);
        launched();
        for (int v = 0; v < 2; v++) {
            for (int head = 0; head < 2 * HEADS; head++) {
                int first = head / HEADS * SEAL;
                const float *rows[SEAL];
                for (int k = 0; k < SEAL; k++)
                    rows[k] = first + k < PAST
                                  ? tail(&kv, v) + kv_tail_index(&kv, 0, ints[3][0], head % HEADS, k)
                                  : qkv + (first + k - PAST) * stride + (HEADS * (1 + v) + head % HEADS) * hd;
                seal_at(&kv, v, 0, table, head % HEADS, first, rows);
            }
            if (!same_bytes(plane(&kv, v), plane(&d, v), plane_bytes(&kv, v)))
                fail_msg("%s of %s, head_dim %d, blocks of %d: other bytes", v ? "V" : "K", case_name, hd, block);
        }
        free_cache(&kv);
        free(qkv);
        device_free_all();
    }
}

// GELU, norms behind, capped scores and logits, two RoPE tables; windows at every place of a block, a group and a tile
// of keys, in every type of K and V.
static const Case gemma_cases[] = {
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

static void heads_caches_and_chunks(void **state) { // of x, where it is more than shared memory takes at a time
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) run_case(&cases[i], 100 + i);
}

// int8 activations against a reference that rounds them in the same way.
static void int8_products(void **state) {
    (void)state;
    static const int types[] = {TYPE_Q4_0, TYPE_Q5_1, TYPE_Q8_0, TYPE_Q2_K,
                                TYPE_Q3_K, TYPE_Q4_K, TYPE_Q6_K, TYPE_IQ4_XS};
    enum { N_IN = 1280, N_OUT = 41, ROWS = 3 };
    uint64_t random = 77;
    for (size_t k = 0; k < ARRAY_LEN(types); k++) {
        const TypeInfo *info = type_info(types[k]);
        size_t row_bytes = N_IN / (size_t)info->block * (size_t)info->bytes;
        uint8_t *data = malloc(N_OUT * row_bytes);
        tiny_weights(types[k], data, N_OUT * N_IN, 0.1f, &random);
        Tensor t = {.data = data, .type = types[k], .n_out = N_OUT, .n_in = N_IN, .row_bytes = row_bytes};
        static float x[ROWS * N_IN], rounded[N_IN], w[N_IN], ref[ROWS * N_OUT];
        case_name = info->name;
        GpuLayer l = {.w_down = upload(&t)};
        GpuBatch b = {.n_rows = ROWS};
        const float *dx = random_copy(x, ROWS * N_IN, &random);
        memset(ref, 0, sizeof ref);
        float *y = device_new(ref, sizeof ref);
        for (int r = 0; r < ROWS; r++) {
            for (int i = 0; i < N_IN; i += 32) {
                float most = 0;
                for (int e = i; e < i + 32; e++) most = fmaxf(most, fabsf(x[r * N_IN + e]));
                for (int e = i; e < i + 32; e++) rounded[e] = rintf(x[r * N_IN + e] * (127 / most)) * (most / 127);
            }
            for (int f = 0; f < N_OUT; f++) {
                double sum = 0;
                info->dequantize(data + (size_t)f * row_bytes, w, N_IN);
                for (int i = 0; i < N_IN; i++) sum += (double)w[i] * (double)rounded[i];
                ref[r * N_OUT + f] = (float)sum;
            }
        }
        gpu_ffn_out(y, dx, &l, &b, &(GpuScratch){0}, (GpuProduct){.exact = false}, NULL);
        compare(ADD, F32_IN, ref, y, ROWS * N_OUT);
        device_free_all();
        free(data);
    }
}

// The matrix unit's products: x and the weights are rounded, the sums are f32.
static void products_of_few_rows(void **state) {
    (void)state;
    static const int rows[] = {5, 8, 11, GPU_SKINNY_ROWS};
    enum { N_IN = 5120, N_OUT = 150 }; // more of x than a block has room for; several tiles a block
    uint64_t random = 78;
    for (size_t k = 0; k < TINY_TYPES; k++) {
        const TypeInfo *info = type_info(tiny_types[k]);
        bool dense = info->block == 1;
        if (tiny_types[k] == TYPE_F32 || tiny_types[k] == TYPE_I8G) continue; // the plain kernel; its own test
        int n = rows[k % 4], n_in = info->block == 256 ? (k % 2 ? N_IN : 768) : info->block == 32 ? 32 * 37 : 1002;
        size_t row_bytes = (size_t)(n_in / info->block) * (size_t)info->bytes;
        uint8_t *data = malloc(N_OUT * row_bytes);
        tiny_weights(tiny_types[k], data, (size_t)N_OUT * (size_t)n_in, 0.1f, &random);
        Tensor t = {.data = data, .type = tiny_types[k], .n_out = N_OUT, .n_in = n_in, .row_bytes = row_bytes};
        static float x[GPU_SKINNY_ROWS * N_IN], w[N_IN], ref[GPU_SKINNY_ROWS * N_OUT];
        case_name = info->name;
        GpuLayer l = {.w_down = upload(&t)};
        GpuBatch b = {.n_rows = n};
        const float *dx = random_copy(x, (size_t)(n * n_in), &random);
        memset(ref, 0, sizeof ref);
        float *y = device_new(ref, sizeof ref);
        for (int f = 0; f < N_OUT; f++) {
            info->dequantize(data + (size_t)f * row_bytes, w, n_in);
            for (int r = 0; r < n; r++) {
                double sum = 0;
                for (int i = 0; i < n_in; i++) {
                    float v = x[r * n_in + i];
                    if (dense) v = tiny_types[k] == TYPE_F16 ? half_float(float_half(v)) : bf16_float(float_bf16(v));
                    sum += (double)w[i] * (double)v;
                }
                ref[r * N_OUT + f] = (float)sum;
            }
        }
        gpu_tune((GpuTuning){.skinny = true});
        gpu_ffn_out(y, dx, &l, &b, &(GpuScratch){0}, (GpuProduct){.exact = false}, NULL);
        gpu_tune((GpuTuning){0});
        compare(ADD, dense ? F32_IN : HALF_IN, ref, y, (size_t)(n * N_OUT));
        device_free_all();
        free(data);
    }
}

// What f16 cannot hold becomes the largest that it can; what is no number stays none.
static void rounding_to_f16(void **state) {
    (void)state;
    case_name = "rounding to f16";
    const float in[] = {1e6f, -INFINITY, NAN, 65504, -1}, want[] = {65504, -65504, NAN, 65504, -1};
    uint16_t bits[ARRAY_LEN(in)], *out = device_new(NULL, sizeof bits);
    gpu_convert(out, TYPE_F16, device_new(in, sizeof in), ARRAY_LEN(in), NULL);
    launched();
    device_read(bits, out, sizeof bits);
    for (size_t i = 0; i < ARRAY_LEN(in); i++)
        assert_true(isnan(want[i]) ? isnan(half_float(bits[i])) : half_float(bits[i]) == want[i]);
    device_free_all();
}

// Blocks, and with sealed planes their pages; of blocks of 34 bytes, too.
static void copies_in_order(void **state) {
    (void)state;
    case_name = "copies";
    enum { BLOCKS = 5, SHAPES = 3 };
    KvPool pools[SHAPES] = {{.n_kv_heads = 2, .block = 3, .head_dim = 6, .type_k = TYPE_F32, .type_v = TYPE_F16},
                            {.n_kv_heads = 1, .block = 1, .head_dim = 32, .type_k = TYPE_Q8_0, .type_v = TYPE_KIVI2},
                            {.n_kv_heads = 2, .block = 32, .head_dim = 24, .type_k = TYPE_F16, .type_v = TYPE_FP8}};
    const Backend *be;
    assert_ok(cpu_backend("scalar", &be));
    for (int i = 0; i < SHAPES; i++) {
        KvPool kv = pools[i];
        kv.n_layers = 2;
        kv.n_blocks = BLOCKS;
        int copy[][2] = {{0, 3}, {3, 4}, {1, 3}}, pages[3][2]; // 4 gets what 0 had, 3 what 1 had
        if (i > 0) {
            make_tails(&kv);
            kv.tail_of[i] = -1; // a block without a page is copied all the same
        }
        for (int k = 0; k < 6; k++) pages[k / 2][k % 2] = i ? kv.tail_of[copy[k / 2][k % 2]] : -1;
        kv.bytes_k = plane_bytes(&kv, false);
        kv.bytes_v = plane_bytes(&kv, true);
        KvPool d = kv;
        for (int v = 0; v < 2; v++) {
            uint8_t *bytes = *(v ? &kv.v : &kv.k) = malloc(plane_bytes(&kv, v));
            for (size_t k = 0; k < plane_bytes(&kv, v); k++) bytes[k] = (uint8_t)(k * (v ? 13 : 7) >> 1);
            for (size_t k = 0; tail(&kv, v) && k < tail_floats(&kv); k++) tail(&kv, v)[k] = (float)k;
            *(v ? &d.v : &d.k) = device_new(bytes, plane_bytes(&kv, v));
            if (tail(&kv, v)) *(v ? &d.tail_v : &d.tail_k) = device_new(tail(&kv, v), tail_floats(&kv) * sizeof(float));
        }
        Batch b = {.n_copies = 3, .copy = copy};
        be->copy_blocks(NULL, &kv, &b);
        gpu_copy_blocks(&d, device_new(copy, sizeof copy), device_new(pages, sizeof pages), 3, NULL);
        launched();
        for (int v = 0; v < 2; v++) {
            assert_true(same_bytes(plane(&kv, v), plane(&d, v), plane_bytes(&kv, v)));
            if (tail(&kv, v)) assert_true(same_bytes(tail(&kv, v), tail(&d, v), tail_floats(&kv) * sizeof(float)));
        }
        device_free_all();
        free_cache(&kv);
    }
}

static void rows_that_go_on(void **state) {
    (void)state;
    case_name = "rows that go on";
    enum { ROWS = 50, KEPT = 4, WIDTH = 301 };
    static const int keep[2][KEPT] = {{0, 1, 30, 49}, {3, 4, 5, 6}}; // the second: each goes where another came from
    uint64_t random = 6;
    for (int i = 0; i < 2; i++) {
        float x[ROWS * WIDTH], expected[ROWS * WIDTH];
        float *d = random_copy(x, ROWS * WIDTH, &random);
        memcpy(expected, x, sizeof x);
        for (int k = 0; k < KEPT; k++) memcpy(expected + k * WIDTH, x + keep[i][k] * WIDTH, WIDTH * sizeof *x);
        gpu_move_rows(d, WIDTH, device_new(keep[i], sizeof keep[i]), KEPT, NULL);
        launched();
        assert_true(same_bytes(expected, d, sizeof expected));
        device_free_all();
    }
}

static void slots_that_stay(void **state) {
    (void)state;
    case_name = "close up";
    enum { SLOTS = 40, KEPT = 23, LAYERS = 2, HEADS = 3 };
    uint64_t random = 4;
    KvPool kv = {.n_layers = LAYERS,
                 .n_blocks = 6,
                 .n_kv_heads = HEADS,
                 .block = 7,
                 .head_dim = 6,
                 .type_k = TYPE_F32,
                 .type_v = TYPE_BF16};
    const int table[6] = {3, 0, 5, 1, 4, 2};
    int keep[LAYERS][HEADS][KEPT];
    for (int i = 0; i < LAYERS * HEADS; i++)
        for (int slot = 0, n = 0; n < KEPT; slot++) // each as likely as the next, as long as enough are left
            if (SLOTS - slot == KEPT - n || test_random(&random) % (uint64_t)(SLOTS - slot) < (uint64_t)(KEPT - n))
                keep[i / HEADS][i % HEADS][n++] = slot;
    KvPool d = kv;
    for (int v = 0; v < 2; v++) {
        uint8_t *bytes = *(v ? &kv.v : &kv.k) = malloc(plane_bytes(&kv, v));
        for (size_t i = 0; i < plane_bytes(&kv, v); i++) bytes[i] = (uint8_t)test_random(&random);
        *(v ? &d.v : &d.k) = device_new(bytes, plane_bytes(&kv, v));
    }
    gpu_close_up(&d, device_new(table, sizeof table), device_new(keep, sizeof keep), KEPT, NULL);
    launched();
    for (int v = 0; v < 2; v++) {
        size_t bytes = kv_slot_bytes(type_of(&kv, v), kv.head_dim);
        uint8_t *expected = copy_of(plane(&kv, v), plane_bytes(&kv, v));
        for (int i = 0; i < LAYERS * HEADS * KEPT; i++) {
            int layer = i / KEPT / HEADS, head = i / KEPT % HEADS, to = i % KEPT, from = keep[layer][head][to];
            memcpy(expected + kv_slot(&kv, layer, table[to / 7], head, to % 7) * bytes,
                   plane(&kv, v) + kv_slot(&kv, layer, table[from / 7], head, from % 7) * bytes, bytes);
        }
        assert_true(same_bytes(expected, plane(&d, v), plane_bytes(&kv, v)));
        free(expected);
    }
    device_free_all();
    free_cache(&kv);
}

// ---- sampling: the device draws what the host draws -----------------------------------------------------------------

enum { N_DRAWS = 6 };

static void same_draws(const char *name, SamplerParams p, int n_vocab, uint64_t seed) {
    case_name = name;
    uint64_t random = seed;
    float *logits = malloc((size_t)N_DRAWS * (size_t)n_vocab * sizeof *logits);
    for (size_t i = 0; i < (size_t)N_DRAWS * (size_t)n_vocab; i++) {
        uint64_t u = test_random(&random);
        logits[i] = 8 * test_uniform(&random);
        if (u % 16 == 0) logits[i] = 4; // ties
        else if (u % 101 == 1) logits[i] = NAN;
        else if (u % 101 == 2) logits[i] = -INFINITY;
        else if (u % 101 == 3) logits[i] = u & 1024 ? 0.0f : -0.0f;
    }
    Sampler *s = sampler_new(n_vocab);
    GpuSample plans[N_DRAWS];
    int last[N_DRAWS], expected[N_DRAWS], sampled[N_DRAWS];
    for (int i = 0; i < N_DRAWS; i++) {
        int history[64], n = 30 + i, pending = i % 2; // the last token of every other is not known to the host
        for (int k = 0; k < 64; k++) history[k] = (int)(test_random(&random) % (uint64_t)n_vocab / 4);
        last[i] = history[n - 1];
        p.seed = seed + (uint64_t)i % 2;
        gpu_sample_plan(&plans[i], &(Draw){&p, (uint64_t)i, history, n - pending, pending});
        plans[i].window = device_new(plans[i].window, (size_t)(plans[i].n_window + 1) * sizeof *history);
        plans[i].bias = p.n_bias ? device_new(p.bias, (size_t)p.n_bias * sizeof *p.bias) : NULL;
        expected[i] = sampler_sample(s, &p, logits + (size_t)i * (size_t)n_vocab, history, n, (uint64_t)i, (uint64_t)n);
    }
    int *out = device_new(last, sizeof last);
    gpu_sample(out, device_new(logits, (size_t)N_DRAWS * (size_t)n_vocab * sizeof *logits), n_vocab,
               device_new(plans, sizeof plans), N_DRAWS, device_new(NULL, gpu_sample_bytes(n_vocab, N_DRAWS)), NULL);
    launched();
    device_read(sampled, out, sizeof sampled);
    for (int i = 0; i < N_DRAWS; i++)
        if (sampled[i] != expected[i]) fail_msg("%s: token %d expected, %d found", name, expected[i], sampled[i]);
    sampler_free(s);
    free(logits);
    device_free_all();
}

static void draws(void **state) {
    (void)state;
    SamplerParams p = sampler_defaults();
    assert_true(draw_anywhere(&p));
    same_draws("the defaults", p, 3001, 1);
    p.repeat_penalty = 1.3f, p.frequency_penalty = 0.2f, p.presence_penalty = 0.1f, p.repeat_last_n = 7;
    same_draws("penalties", p, 3001, 2);
    p.repeat_last_n = -1;
    same_draws("penalties over all", p, 2048, 3);
    p.repeat_last_n = 1;
    same_draws("the last token's penalty", p, 3001, 10);
    static const LogitBias bias[] = {{5, 20}, {2900, INFINITY}, {5, -0.5f}, {7, -INFINITY}, {99999, 1}};
    p.bias = bias, p.n_bias = ARRAY_LEN(bias);
    same_draws("a bias", p, 3001, 4);
    p = sampler_defaults();
    p.top_k = 0;
    same_draws("all candidates", p, 5003, 5);
    p.top_p = 1, p.min_p = 0, p.temp = 1.7f;
    same_draws("plain softmax", p, 5003, 6);
    p.top_k = 1000, p.top_p = 0.5f;
    same_draws("top-k 1000", p, 5003, 7);
    p.greedy = true;
    same_draws("greedy", p, 5003, 8);
    p.greedy = false, p.typical = 0.9f;
    assert_false(draw_anywhere(&p));
    same_draws("one token", sampler_defaults(), 1, 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),      cmocka_unit_test(heads_caches_and_chunks),
        cmocka_unit_test(sealed_caches),   cmocka_unit_test(sealed_to_the_byte),
        cmocka_unit_test(int8_products),   cmocka_unit_test(products_of_few_rows),
        cmocka_unit_test(rounding_to_f16), cmocka_unit_test(copies_in_order),
        cmocka_unit_test(slots_that_stay), cmocka_unit_test(draws),
        cmocka_unit_test(rows_that_go_on), cmocka_unit_test(gemma_layers),
    };
    return cmocka_run_group_tests(tests, NULL, print_distances);
}
