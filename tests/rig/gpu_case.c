// tests/rig/gpu_case.c: see tests/rig/gpu_case.h.
#include "cpu/backend.h"
#include "tests/rig/gpu_case.h"

#include "cpu/cpu.h"

static const float *upload_floats(const float *p, int n) { return p ? device_new(p, (size_t)n * sizeof *p) : NULL; }

static void upload_layer(GpuCaseRig *r) {
    const Layer *l = &r->m.layers[1];
    r->ropes.n = r->m.ends.n_ropes;
    for (int i = 0; i < r->ropes.n; i++) {
        r->ropes.of[i] = r->m.ends.ropes[i];
        r->ropes.of[i].freq = device_new(r->ropes.of[i].freq, (size_t)(r->ropes.of[i].n_rot / 2) * sizeof(double));
    }
    r->l = (GpuLayer){.wq = device_tensor(&l->wq),
                      .wk = device_tensor(&l->wk),
                      .wv = device_tensor(&l->wv),
                      .wo = device_tensor(&l->wo),
                      .w_gate = device_tensor(&l->w_gate),
                      .w_up = device_tensor(&l->w_up),
                      .w_down = device_tensor(&l->w_down),
                      .norm_att = upload_floats(l->norm_att, r->w.dim),
                      .norm_ffn = upload_floats(l->norm_ffn, r->w.dim),
                      .norm_q = upload_floats(l->norm_q, layer_norm_q(l)),
                      .norm_k = upload_floats(l->norm_k, layer_norm_k(l)),
                      .norm_att_out = upload_floats(l->norm_att_out, r->w.dim),
                      .norm_ffn_out = upload_floats(l->norm_ffn_out, r->w.dim),
                      .kind = l->kind,
                      .heads = l->heads,
                      .rope = r->ropes.of[l->rope.table],
                      .index = l->kv_layer};
    r->tok = device_tensor(&r->m.ends.tok_embd);
    r->head = device_tensor(&r->m.ends.head);
    r->norm_out = (float *)upload_floats(r->m.ends.norm_out, r->w.dim);
}

// Makes sequences, their slots and permuted tables; the rows of a sequence are adjacent.
static void make_batch(GpuCaseRig *r) {
    const GpuCase *c = r->c;
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

int *gpu_case_table(const GpuCaseRig *r, int seq) {
    return (r->c->window ? r->b.window_table : r->b.block_table) + seq * r->b.max_blocks;
}

// Fills n slots of a head: complete groups are sealed, the other rows are in the page.
static void fill_sealed(GpuCaseRig *r, bool value, const int *table, int head, int n) {
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
        if (here == SEAL) pool_seal_at(kv, value, 1, table, head, first, rows);
        else
            for (int s = 0; s < here; s++)
                memcpy(pool_tail(kv, value) + kv_tail_index(kv, 1, kv_tail(kv, table, first), head, s), x[s],
                       hd * sizeof(float));
    }
}

static void fill_dense(GpuCaseRig *r, bool value, const int *table, int head, int n) {
    KvPool *kv = &r->kv;
    int type = pool_type(kv, value);
    for (int slot = 0; slot < n; slot++)
        for (int i = 0; i < kv->head_dim; i++) {
            size_t at = kv_index(kv, 1, table[slot / kv->block], head, slot % kv->block) + (size_t)i;
            float x = test_uniform(&r->random);
            cpu_scalar.to_kv(pool_plane(kv, value) + at * kv_type_bytes(type), type, &x, 1);
        }
}

// Sets to NaN again what no row of a sequence sees: unseen slots, except those of a sealed group with a seen slot. The
// table entries of completely unseen blocks become 0, which is a block of another sequence.
static void hide_unseen(GpuCaseRig *r, int seq) {
    KvPool *kv = &r->kv;
    int *table = gpu_case_table(r, seq), first = r->b.slot[seq * r->c->rows_each], window = abs(r->c->window);
    int oldest = r->c->window < 0 ? first / window * window : first - window + 1;
    if (kv->tail_of) oldest = oldest / SEAL * SEAL;
    for (int slot = 0; slot < oldest; slot++)
        for (int head = 0; head < 2 * kv->n_kv_heads; head++) {
            size_t bytes = kv_slot_bytes(pool_type(kv, head % 2), kv->head_dim);
            size_t at = kv_slot(kv, 1, table[slot / kv->block], head / 2, slot % kv->block);
            memset(pool_plane(kv, head % 2) + at * bytes, 0xff, bytes);
        }
    for (int i = 0; (i + 1) * kv->block <= oldest; i++) table[i] = 0;
}

// A pool that is NaN except for the slots that the batch's rows see and do not compute themselves.
static void make_cache(GpuCaseRig *r) {
    const GpuCase *c = r->c;
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
    kv->bytes_k = pool_plane_bytes(kv, false);
    kv->bytes_v = pool_plane_bytes(kv, true);
    kv->k = malloc(kv->bytes_k);
    kv->v = malloc(kv->bytes_v);
    memset(kv->k, 0xff, kv->bytes_k);
    memset(kv->v, 0xff, kv->bytes_v);
    if (kv_is_sealed(kv->type_k) || kv_is_sealed(kv->type_v)) pool_make_tails(kv);
    for (int seq = 0; seq < c->n_seqs; seq++) {
        const int *table = gpu_case_table(r, seq), *slots = r->b.slot + seq * c->rows_each;
        for (int head = 0; head < 2 * kv->n_kv_heads; head++) {
            bool value = head % 2;
            if (kv_is_sealed(pool_type(kv, value))) fill_sealed(r, value, table, head / 2, slots[0]);
            else fill_dense(r, value, table, head / 2, slots[c->rows_each - 1]);
        }
    }
    for (int seq = 0; seq < c->n_seqs && c->window; seq++) hide_unseen(r, seq);
    r->dkv = *kv;
    r->dkv.tail_of = NULL;
    for (int v = 0; v < 2; v++) {
        *(v ? &r->dkv.v : &r->dkv.k) = device_new(pool_plane(kv, v), pool_plane_bytes(kv, v));
        if (pool_tail(kv, v))
            *(v ? &r->dkv.tail_v : &r->dkv.tail_k) = device_new(pool_tail(kv, v), pool_tail_floats(kv) * sizeof(float));
    }
}

static void upload_tails(GpuCaseRig *r) {
    const Batch *b = &r->b;
    int *since = malloc(2 * (size_t)b->n_rows * sizeof *since), *page = since + b->n_rows;
    for (int i = 0; i < b->n_rows; i++) {
        since[i] = b->slot[i / r->c->rows_each * r->c->rows_each];
        page[i] = kv_tail(&r->kv, gpu_case_table(r, b->seq[i]), b->slot[i]);
    }
    r->db.since = device_ints(since, b->n_rows, -1);
    r->db.page = device_ints(page, b->n_rows, -1);
    free(since);
}

// Uploads the layer's table, and a second table that must not be read.
static void upload_tables(GpuCaseRig *r) {
    const Batch *b = &r->b;
    int n = b->max_blocks, window = r->c->window != 0, *tables = malloc((size_t)(2 * n * b->n_seqs) * sizeof *tables);
    for (int i = 0; i < 2 * n * b->n_seqs; i++) tables[i] = 1 << 28;
    for (int seq = 0; seq < b->n_seqs; seq++)
        memcpy(tables + (2 * seq + window) * n, gpu_case_table(r, seq), (size_t)n * sizeof *tables);
    r->db.block_table = device_ints(tables, 2 * n * b->n_seqs, -1);
    r->db.window_table = r->db.block_table + n;
    r->db.table_step = 2 * n;
    free(tables);
}

static void upload_batch(GpuCaseRig *r) {
    const Batch *b = &r->b;
    int newest = 0;
    for (int i = 0; i < b->n_rows; i++) newest = int_max(newest, b->slot[i]);
    r->db = (GpuBatch){.n_rows = b->n_rows + 1,
                       .max_slots = newest + 1,
                       .token = device_ints(b->token, b->n_rows, -1),
                       .pos = device_ints(b->pos, b->n_rows, 0),
                       .slot = device_ints(b->slot, b->n_rows, -1),
                       .seq = device_ints(b->seq, b->n_rows, 0)};
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

void gpu_case_open(GpuCaseRig *r, const GpuCase *c, uint64_t seed) {
    *r = (GpuCaseRig){.c = c, .random = seed};
    gpu_compare_case = c->name;
    const Backend *be;
    assert_ok(cpu_backend("scalar", &be));
    r->g = tiny_model(&c->model);
    assert_ok(model_load(&r->m, r->g, be));
    r->m.layers[1].kv_layer = 1; // the index does not depend on the layer's kind: there is one pool
    r->m.layers[1].heads.window = abs(c->window);
    r->m.layers[1].heads.chunked = c->window < 0;
    r->pool = threads_new(1);
    make_batch(r);
    assert_ok(workspace_new(&r->w, &r->m, r->pool, r->b.n_rows, r->b.n_rows, 1));
    device_order(seed);
    upload_layer(r);
    make_cache(r);
    upload_batch(r);
}

void gpu_case_close(GpuCaseRig *r) {
    device_free_all();
    const Status *error = gpu_launch_error();
    if (error) fail_msg("%s: %s", gpu_compare_case, error->message);
    free(r->b.token);
    free(r->b.pos);
    free(r->b.slot);
    free(r->b.seq);
    free(r->b.block_table);
    free(r->b.window_table);
    pool_free(&r->kv);
    workspace_free(&r->w);
    threads_free(r->pool);
    model_free(&r->m);
    gguf_close(r->g);
}
