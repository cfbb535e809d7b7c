// gpu/cuda_layers.c: see gpu/cuda.h. The operations queue launches on one stream; the host waits where it needs a result
// (logits, rows of KV) and before it writes a batch over one that may still be on its way.
#include "gpu/cuda_model.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    UNPACK_ROWS = 32,  // which the fused kernels take where a product would have to unpack weights first
    ATTEND_ROWS = 32,  // of one launch of the attention without tiles
    LEAST_SLOTS = 256, // for which a graph is captured
    MAX_GRAPHS = 64,
    SLICE_BYTES = 256 << 20, // of weights that are made dense at a time
};

// ---- the process's GPU ----------------------------------------------------------------------------------------------

static struct {
    GpuInfo info;
    GpuStream stream;
    GpuTuning tuning;
    bool asked, products; // whether cuBLAS was opened, and is there
    CudaCounts counts;
    char isa[16], kernels[256];
    Backend backend;
} gpu;

CudaCounts cuda_counts(void) { return gpu.counts; }

static void wait(void) { rt_sync(gpu.stream); }

// Backend.kernels
static void describe(const char *prefill) {
    snprintf(gpu.kernels, sizeof gpu.kernels, "decode fused kernels in graphs%s%s; prefill %.150s",
             gpu.tuning.few ? ", 5 to 16 rows on the matrix unit" : "", gpu.tuning.early ? ", begun early" : "",
             prefill);
}

// Whether there is cuBLAS. It is opened when a product first asks: a large library, which decoding does without.
static bool has_products(void) {
    if (gpu.asked) return gpu.products;
    Status st = rt_products_open(gpu.stream);
    gpu.asked = true;
    gpu.products = !st.code;
    if (gpu.products) describe(rt_products_name());
    else snprintf(gpu.kernels, sizeof gpu.kernels, "fused kernels for prefill too, which is slow: %.180s", st.message);
    return gpu.products;
}

void cuda_open_products(void) { has_products(); }

static const char *failure(void) {
    const char *e = gpu_launch_error();
    if (e) rt_fail(e);
    return rt_failure();
}

// ---- scratch --------------------------------------------------------------------------------------------------------

// A graph is of one model's layers, their pools, one number of rows, one bound on slots, one width of the block tables,
// and what is counted of the rows' looks.
typedef struct {
    const void *layer, *kv[KV_KINDS], *mass;
    int n_layers, n_rows, max_slots, table_step, first_row;
    RtGraph *graph;
} Graph;

// A batch on its way: while one runs, the host makes the next.
typedef struct {
    int *ints;   // (n_ints) pinned; free again after `sent`
    int *tokens; // (n_tokens) pinned; there after `drawn`
    int n_tokens;
    RtMark *sent, *drawn; // of every other batch, and of every other one with draws
} Flight;

typedef struct {   // Workspace.device
    float *x;      // (max_rows, dim)
    float *y;      // (max_rows, widest product): Q, K and V up to the end of attention, gate and up, what is normalised
    float *q, *a;  // (max_rows, q_dim)
    float *h;      // (max_rows, ffn)
    void *xn;      // (max_rows, widest of dim and q_dim) what goes into a product, 4 bytes an element at most
    float *logits; // (max_out, n_vocab)
    int *rows;     // (max_out)
    uint8_t *slice;
    size_t slice_bytes;
    GpuScratch gpu;
    int attend_rows;
    void *sampling; // of gpu_sample
    int *sampled;   // (max_out) tokens
    void *memory;   // all of the above
    int *ints;      // (n_ints) a batch's numbers, on the device
    size_t n_ints;
    Flight flights[2];
    unsigned n_sent, n_drawn, n_told; // batches; those with draws, and of these the ones that were asked for
    int max_rows, max_slots;
    GpuBatch batch;
    const int *out_row; // (n_out) rows whose logits are wanted
    int n_out;
    const GpuSample *draws;
    const GpuTile *tiles;
    int n_tiles;
    Graph graphs[MAX_GRAPHS];
    int n_graphs;
    bool recording; // between layers_begin and layers_end
    Graph recorded; // what is being recorded, its `graph` not yet
    unsigned warm;  // the numbers of rows, powers of two, that a step has run with
} Scratch;

typedef struct {
    void **to;
    size_t bytes;
} Part;

static size_t place_parts(const Part *parts, size_t n, uint8_t *base) {
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (base) *parts[i].to = base + at;
        at += round_up(parts[i].bytes, 256);
    }
    return at;
}

static int power_of_two(int n) {
    int p = 1;
    while (p < n && p < 1 << 30) p *= 2;
    return p;
}

static int slots_bound(int n_slots) { return power_of_two(int_max(n_slots, LEAST_SLOTS)); }

// How many rows a step of so many is padded to: few rows run as graphs, which are of a few sizes.
static int padded_rows(int n_rows) { return n_rows <= UNPACK_ROWS ? power_of_two(n_rows) : n_rows; }

static size_t most_rows(const Workspace *w) {
    return (size_t)int_max(w->max_rows, padded_rows(int_min(w->max_rows, UNPACK_ROWS)));
}

// Lays scratch out; base NULL: counts alone.
static size_t lay_out(Scratch *s, const Workspace *w, const Heads *h, uint8_t *base) {
    size_t rows = most_rows(w), turns = (size_t)w->n_ropes * rows * (size_t)(w->n_rot / 2);
    size_t q_dim = (size_t)w->q_dim, kv_dim = (size_t)w->kv_dim, dim = (size_t)w->dim, ffn = (size_t)w->ffn;
    size_t qkv = q_dim + 2 * kv_dim, y = qkv > 2 * ffn ? qkv : 2 * ffn, xn = dim > q_dim ? dim : q_dim;
    if (y < dim) y = dim;
    size_t widest = y * (dim > ffn ? dim : ffn) * 4;
    s->attend_rows = int_min((int)rows, ATTEND_ROWS);
    s->slice_bytes = widest < SLICE_BYTES ? widest : SLICE_BYTES;
    const Part parts[] = {
        {(void **)&s->x, rows * dim * 4},
        {(void **)&s->y, rows * y * 4},
        {(void **)&s->q, rows * q_dim * 4},
        {(void **)&s->a, rows * q_dim * 4},
        {(void **)&s->h, rows * ffn * 4},
        {&s->xn, rows * xn * 4},
        {(void **)&s->logits, (size_t)w->max_out * (size_t)w->n_vocab * 4},
        {(void **)&s->rows, (size_t)w->max_out * sizeof(int)},
        {&s->sampling, gpu_sample_bytes(w->n_vocab, int_min(w->max_out, GPU_DRAW_ROWS))},
        {(void **)&s->sampled, (size_t)w->max_out * sizeof(int)},
        {(void **)&s->slice, s->slice_bytes},
        {(void **)&s->gpu.rope_cos, turns * 4},
        {(void **)&s->gpu.rope_sin, turns * 4},
        {(void **)&s->gpu.partial, gpu_attention_bytes(h, s->attend_rows, slots_bound(w->max_slots))},
        {(void **)&s->gpu.tickets, (size_t)gpu_n_tickets(h, s->attend_rows) * sizeof(unsigned)},
    };
    size_t n = place_parts(parts, ARRAY_LEN(parts), base);
    s->gpu.qkv = s->gpu.behind = s->y;
    s->gpu.rope_rows = (int)rows;
    s->gpu.rope_step = w->n_rot / 2;
    return n;
}

// Numbers of a batch of max_rows rows with a table of some length; more are made room for when they come.
static size_t first_ints(const Workspace *w) { return 16 * most_rows(w) + 4096; }

size_t cuda_scratch_bytes(const Workspace *shape, const Layer *widest, size_t *host) {
    Scratch s = {0};
    *host = 2 * (first_ints(shape) + (size_t)shape->max_out) * sizeof(int) +
            (size_t)shape->max_out * (size_t)shape->n_vocab * sizeof(float);
    return lay_out(&s, shape, &widest->heads, NULL) + first_ints(shape) * sizeof(int);
}

static void drop_graphs(Scratch *s) {
    rt_sync(gpu.stream); // one may be on its way
    for (int i = 0; i < s->n_graphs; i++) rt_graph_free(s->graphs[i].graph);
    s->n_graphs = 0;
}

static void scratch_free(Workspace *w) {
    Scratch *s = w->device;
    drop_graphs(s);
    rt_free(s->memory);
    rt_free(s->ints);
    for (int i = 0; i < 2; i++) {
        Flight *f = &s->flights[i];
        rt_unpin(f->ints);
        rt_unpin(f->tokens);
        rt_mark_free(f->sent);
        rt_mark_free(f->drawn);
    }
    rt_unpin(w->logits);
    free(s);
    w->device = w->logits = NULL;
}

// Room for n numbers of a batch; false: there is none, and the failure is noted.
static bool room_for_ints(Scratch *s, size_t n) {
    if (n <= s->n_ints) return true;
    drop_graphs(s); // they know the old place
    s->n_ints = n + n / 2;
    rt_free(s->ints);
    s->ints = rt_alloc(s->n_ints * sizeof(int));
    bool good = s->ints != NULL;
    for (int i = 0; i < 2; i++) {
        rt_unpin(s->flights[i].ints);
        s->flights[i].ints = rt_pinned(s->n_ints * sizeof(int));
        good &= s->flights[i].ints != NULL;
    }
    if (good) return true;
    s->n_ints = 0;
    rt_fail("out of memory: a batch's block table");
    return false;
}

static bool flights_new(Scratch *s, int max_out) {
    bool good = true;
    for (int i = 0; i < 2; i++) {
        Flight *f = &s->flights[i];
        f->sent = rt_mark_new();
        f->drawn = rt_mark_new();
        f->tokens = rt_pinned((size_t)max_out * sizeof *f->tokens);
        good &= f->tokens != NULL;
    }
    return good;
}

static Status scratch_new(Workspace *w, const Heads *h) {
    Scratch *s = w->device = mem_alloc(sizeof *s);
    s->max_rows = w->max_rows;
    s->max_slots = slots_bound(w->max_slots);
    size_t n = lay_out(s, w, h, NULL);
    s->memory = rt_alloc(n);
    w->logits = rt_pinned((size_t)w->max_out * (size_t)w->n_vocab * sizeof(float));
    if (!flights_new(s, w->max_out) || !s->memory || !w->logits || !room_for_ints(s, first_ints(w)))
        return status_error(
            QUILL_MEMORY,
            "the GPU: scratch: %zu bytes for steps of %d rows expected, %zu are free; try a smaller -ub, "
            "-c or -ngl",
            n, w->max_rows, rt_free_bytes());
    lay_out(s, w, h, s->memory);
    rt_zero(s->memory, n, gpu.stream); // the tickets begin at zero
    return rt_sync(gpu.stream) ? OK : status_error(QUILL_MODEL, "the GPU failed: %s", failure());
}

// ---- KV planes ------------------------------------------------------------------------------------------------------

static void kv_free(KvPool *kv) {
    KvPool *on_gpu = kv->device;
    rt_free(on_gpu->k);
    rt_free(on_gpu->v);
    rt_free(on_gpu->tail_k);
    rt_free(on_gpu->tail_v);
    free(on_gpu);
    kv->device = NULL;
}

static size_t plane_bytes(const KvPool *kv, int type) {
    return kv_slot(kv, kv->n_layers, 0, 0, 0) * kv_slot_bytes(type, kv->head_dim);
}

// A plane's tail pages; true where it has none.
static bool tail_new(const KvPool *kv, int type, float **out) {
    size_t n = kv_tail_index(kv, kv->n_layers, 0, 0, 0) * sizeof **out;
    return !kv_is_sealed(type) || (*out = rt_alloc(n));
}

static Status kv_new(KvPool *kv) {
    KvPool *on_gpu = kv->device = mem_alloc(sizeof *on_gpu);
    *on_gpu = *kv;
    on_gpu->n_layers = kv->n_device;
    on_gpu->n_device = 0;
    on_gpu->bytes_k = plane_bytes(on_gpu, kv->type_k);
    on_gpu->bytes_v = plane_bytes(on_gpu, kv->type_v);
    on_gpu->k = rt_alloc(on_gpu->bytes_k);
    on_gpu->v = rt_alloc(on_gpu->bytes_v);
    on_gpu->tail_k = on_gpu->tail_v = NULL; // the host's until here
    bool tails = tail_new(on_gpu, kv->type_k, &on_gpu->tail_k) && tail_new(on_gpu, kv->type_v, &on_gpu->tail_v);
    if (on_gpu->k && on_gpu->v && tails) return OK;
    return status_error(QUILL_MEMORY, "the GPU: KV cache: %zu bytes expected, %zu are free; try a smaller -c or -ngl",
                        on_gpu->bytes_k + on_gpu->bytes_v, rt_free_bytes());
}

// n slots of `size` bytes a head: in the pool a head's lie together, the next head's `step` bytes on; outside a slot's
// heads do. Returns where the rows end.
static uint8_t *move_run(int n_heads, int n, uint8_t *stored, size_t size, size_t step, uint8_t *rows, bool store) {
    size_t row = size * (size_t)n_heads;
    for (int head = 0; head < n_heads; head++, stored += step) {
        uint8_t *at = rows + (size_t)head * size;
        if (store) rt_move_rows(stored, size, at, row, size, n, true, gpu.stream);
        else rt_move_rows(at, row, stored, size, size, n, false, gpu.stream);
    }
    return rows + (size_t)n * row;
}

// Slots of one plane, stored as they are.
static uint8_t *move_slots(const KvPool *on_gpu, bool value, int layer, const int *blocks, int first, int n,
                           uint8_t *rows, bool store) {
    size_t size = kv_slot_bytes(value ? on_gpu->type_v : on_gpu->type_k, on_gpu->head_dim);
    for (int slot = first, run; slot < first + n; slot += run) {
        run = int_min(on_gpu->block - slot % on_gpu->block, first + n - slot);
        size_t at = kv_slot(on_gpu, layer, blocks[slot / on_gpu->block], 0, slot % on_gpu->block);
        rows = move_run(on_gpu->n_kv_heads, run, (value ? on_gpu->v : on_gpu->k) + at * size, size,
                        (size_t)on_gpu->block * size, rows, store);
    }
    return rows;
}

// The rows of a group that is open, in its tail page.
static uint8_t *move_open(const KvPool *on_gpu, bool value, int layer, int page, int n, uint8_t *rows, bool store) {
    size_t size = kv_slot_bytes(TYPE_F32, on_gpu->head_dim);
    float *tail = (value ? on_gpu->tail_v : on_gpu->tail_k) + kv_tail_index(on_gpu, layer, page, 0, 0);
    return move_run(on_gpu->n_kv_heads, n, (uint8_t *)tail, size, SEAL * size, rows, store);
}

static void kv_move(const KvPool *kv, int layer, const int *blocks, int first, int n, void *rows, bool store) {
    const KvPool *on_gpu = kv->device;
    layer -= kv->n_layers - kv->n_device;
    for (int v = 0; v < 2; v++) {
        int whole = (int)kv_whole_slots(v ? kv->type_v : kv->type_k, (size_t)n);
        rows = move_slots(on_gpu, v, layer, blocks, first, whole, rows, store);
        if (whole < n) rows = move_open(on_gpu, v, layer, kv_tail(kv, blocks, first + whole), n - whole, rows, store);
    }
    rt_sync(gpu.stream);
}

// ---- slots that are given up ----------------------------------------------------------------------------------------

static void close_up(KvPool *kv, const int *blocks, int n_blocks, const int *keep, int n) {
    const KvPool *on_gpu = kv->device;
    size_t n_keep = (size_t)on_gpu->n_layers * (size_t)on_gpu->n_kv_heads * (size_t)n, table = (size_t)n_blocks;
    int *ints = rt_alloc((table + n_keep) * sizeof *ints);
    if (!ints) {
        rt_fail("out of memory: which slots stay");
        return;
    }
    rt_upload(ints, blocks, table * sizeof *ints, gpu.stream);
    rt_upload(ints + table, keep, n_keep * sizeof *ints, gpu.stream);
    gpu_close_up(on_gpu, ints, ints + table, n, gpu.stream);
    rt_sync(gpu.stream);
    rt_free(ints);
}

static size_t probe_floats(const Probe *p, int n_layers, int n_kv_heads) {
    return (size_t)n_layers * (size_t)n_kv_heads * (size_t)p->n_slots;
}

static Status probe_new(Probe *p, int n_layers, int n_kv_heads) {
    size_t n = probe_floats(p, n_layers, n_kv_heads) * sizeof *p->device;
    p->device = rt_alloc(n);
    if (p->device) return OK;
    return status_error(QUILL_MEMORY,
                        "the GPU: what queries look at: %zu bytes expected, %zu are free; try a smaller -c", n,
                        rt_free_bytes());
}

static void probe_free(Probe *p) {
    rt_sync(gpu.stream);
    rt_free(p->device);
    p->device = NULL;
}

static void probe_move(Probe *p, int first, int n_layers, int n_kv_heads, bool store) {
    float *host = p->mass + probe_floats(p, first, n_kv_heads);
    size_t n = probe_floats(p, n_layers, n_kv_heads) * sizeof *host;
    if (store) rt_upload(p->device, host, n, gpu.stream);
    else rt_download(host, p->device, n, gpu.stream);
    rt_sync(gpu.stream);
}

// ---- a batch goes up ------------------------------------------------------------------------------------------------

// Numbers in the order in which they lie on both sides.
typedef struct {
    int *host, *device;
    size_t at;
} Ints;

static const void *put(Ints *to, const void *from, size_t n, size_t room) {
    const int *at = to->device + to->at;
    if (n) memcpy(to->host + to->at, from, n * sizeof(int));
    to->at += room;
    return at;
}

enum { SAMPLE_INTS = sizeof(GpuSample) / sizeof(int), BIAS_INTS = sizeof(LogitBias) / sizeof(int) };

static size_t draw_ints(const Batch *b) { // at most
    size_t n = 1;
    for (int i = 0; b->draw && i < b->n_out; i++) {
        GpuSample d;
        gpu_sample_plan(&d, &b->draw[i]);
        n += SAMPLE_INTS + (size_t)d.n_window + (size_t)d.n_bias * BIAS_INTS;
    }
    return n;
}

static const GpuSample *put_draws(Ints *to, const Batch *b) {
    to->at = round_up(to->at, 2); // they have pointers
    GpuSample *draws = (GpuSample *)(void *)(to->host + to->at);
    const GpuSample *there = put(to, NULL, 0, (size_t)b->n_out * SAMPLE_INTS);
    for (int i = 0; i < b->n_out; i++) {
        GpuSample *d = &draws[i];
        gpu_sample_plan(d, &b->draw[i]);
        size_t bias = (size_t)d->n_bias * BIAS_INTS;
        d->window = put(to, d->window, (size_t)d->n_window, (size_t)d->n_window);
        d->bias = put(to, d->bias, bias, bias);
    }
    return there;
}

// A sequence's blocks in one pool and in the other lie side by side: where they lie does not depend on the number of
// sequences, so that a graph finds them.
static void put_tables(Ints *to, const Batch *b, GpuBatch *g) {
    size_t n = (size_t)b->max_blocks;
    g->table_step = b->max_blocks * (b->window_table ? 2 : 1);
    g->block_table = to->device + to->at;
    g->window_table = b->window_table ? g->block_table + n : NULL;
    for (size_t i = 0; i < (size_t)b->n_seqs; i++) {
        put(to, b->block_table + i * n, n, n);
        if (b->window_table) put(to, b->window_table + i * n, n, n);
    }
}

// What sealed planes need to know of each row; -1 for padding. A page has the same number in every pool.
static void put_tails(Ints *to, const KvPool *kv, const Batch *b, GpuBatch *g) {
    size_t room = (size_t)g->n_rows;
    int *since = to->host + to->at, *page = since + room;
    g->since = put(to, NULL, 0, room);
    g->page = put(to, NULL, 0, room);
    for (int i = 0; i < g->n_rows; i++) {
        bool padding = i >= b->n_rows, goes_on = !padding && i > 0 && b->seq[i] == b->seq[i - 1];
        const int *table = padding ? NULL : b->block_table + (size_t)b->seq[i] * (size_t)b->max_blocks;
        since[i] = padding ? -1 : goes_on ? since[i - 1] : b->slot[i];
        page[i] = padding ? -1 : kv_tail(kv, table, b->slot[i]);
    }
}

// A flight with room for n numbers; NULL: there is none, or something failed.
static Flight *next_flight(Scratch *s, size_t n) {
    if (!room_for_ints(s, n)) return NULL;
    Flight *f = &s->flights[s->n_sent++ % 2];
    return rt_wait(f->sent) ? f : NULL;
}

static void send(Scratch *s, Flight *f, size_t n) {
    rt_upload(s->ints, f->ints, n * sizeof(int), gpu.stream);
    rt_mark(f->sent, gpu.stream);
}

static Flight *last_flight(Scratch *s) { return &s->flights[(s->n_sent - 1) % 2]; }

// Puts a batch's numbers into device memory, at places that depend on the padded number of rows alone up to the tables.
static bool send_batch(Scratch *s, const KvPool kv[KV_KINDS], const Batch *b) {
    size_t n = (size_t)b->n_rows, room = (size_t)padded_rows(b->n_rows);
    size_t tables = (size_t)b->n_seqs * (size_t)b->max_blocks * (b->window_table ? 2 : 1);
    Flight *f = next_flight(s, 7 * room + tables + 2 * n + draw_ints(b));
    if (!f) return false;
    Ints to = {f->ints, s->ints, 0};
    GpuBatch *g = &s->batch;
    *g = (GpuBatch){.n_rows = (int)room, .sampled = s->sampled};
    g->token = put(&to, b->token, n, room);
    g->pos = put(&to, b->pos, n, room);
    g->slot = put(&to, b->slot, n, room);
    g->seq = put(&to, b->seq, n, room);
    for (size_t i = n; i < room; i++) {
        f->ints[i] = f->ints[room + i] = f->ints[3 * room + i] = 0;
        f->ints[2 * room + i] = -1; // padding
    }
    if (kv[KV_FULL].tail_of) put_tails(&to, &kv[KV_FULL], b, g);
    s->out_row = put(&to, b->out_row, (size_t)b->n_out, room);
    s->n_out = b->n_out;
    put_tables(&to, b, g);
    s->n_tiles = gpu_tiles(b, (GpuTile *)(f->ints + to.at));
    s->tiles = put(&to, NULL, 0, 2 * (size_t)s->n_tiles);
    if (b->draw) s->draws = put_draws(&to, b);
    for (size_t i = 0; i < n; i++) g->max_slots = int_max(g->max_slots, b->slot[i] + 1);
    assert(b->n_rows <= s->max_rows && g->max_slots <= s->max_slots);
    g->max_slots = slots_bound(g->max_slots);
    send(s, f, to.at);
    return true;
}

// Some rows of the batch, and the scratch that goes with them.
typedef struct {
    GpuBatch batch;
    GpuScratch scratch;
    size_t first; // row
} Rows;

// The next `most` rows at most; false: there are no more. Begins with (Rows){0}.
static bool next_rows(const Scratch *s, const Heads *h, int most, Rows *p) {
    size_t first = p->first + (size_t)p->batch.n_rows;
    int left = s->batch.n_rows - (int)first;
    if (left == 0) return false;
    p->first = first;
    p->batch = s->batch;
    p->batch.n_rows = int_min(most, left);
    p->batch.token += first;
    p->batch.pos += first;
    p->batch.slot += first;
    p->batch.seq += first;
    if (p->batch.page) p->batch.since += first, p->batch.page += first;
    p->scratch = s->gpu;
    p->scratch.qkv += first * (size_t)(h->n_heads + 2 * h->n_kv_heads) * (size_t)h->head_dim;
    p->scratch.rope_cos += first * (size_t)s->gpu.rope_step; // of every table
    p->scratch.rope_sin += first * (size_t)s->gpu.rope_step;
    return true;
}

// ---- products -------------------------------------------------------------------------------------------------------

// Rows [first, first + n) of a stack as a dense matrix: where it lies, or made in the slice.
static const void *dense_rows(Scratch *s, const Stack *k, int first, int n) {
    size_t row = k->stride * dense_bytes(k->type);
    if (k->dense) return (const uint8_t *)k->dense + (size_t)first * row;
    int begin = 0; // of the part
    for (int i = 0; i < k->n_parts; begin += k->part[i++].n_out) {
        int from = int_max(first, begin), to = int_min(first + n, begin + k->part[i].n_out);
        if (from < to)
            gpu_dequantize(&k->part[i], from - begin, to - from, k->type, s->slice + (size_t)(from - first) * row,
                           k->stride, gpu.stream);
    }
    return s->slice;
}

// y (n_rows, n) = or += x (n_rows, n_in) of the stack's type times its rows [first, first + n), x's rows `stride`
// apart.
static void multiply(Scratch *s, const Stack *k, int first, int n, const void *x, int n_rows, float *y, size_t y_stride,
                     bool add) {
    int most = k->dense ? n : (int)(s->slice_bytes / (k->stride * dense_bytes(k->type)));
    for (int done = 0, now; done < n; done += now) {
        now = int_min(most, n - done);
        rt_product(&(RtProduct){.type = k->type,
                                .n_rows = n_rows,
                                .n_out = now,
                                .n_in = k->n_in,
                                .x = x,
                                .w = dense_rows(s, k, first + done, now),
                                .y = y + done,
                                .x_stride = (size_t)k->n_in,
                                .w_stride = k->stride,
                                .y_stride = y_stride,
                                .add = add},
                   gpu.stream);
    }
}

// ---- the operations -------------------------------------------------------------------------------------------------

static const GpuProduct rounded = {.exact = false}; // activations beside quantised weights: int8

// Whether a layer's matrices meet these rows in the fused kernels.
static bool by_matvec(const Scratch *s, const CudaLayer *c) {
    return s->batch.n_rows <= (c->dense ? gpu_decode_rows(&c->gpu) : UNPACK_ROWS) || !has_products();
}

static bool by_tiles(const Scratch *s, const CudaLayer *c, const KvPool *on_gpu) {
    return !by_matvec(s, c) && gpu_flash_can(&c->gpu.heads, on_gpu);
}

static void copy_blocks(Workspace *w, KvPool *kv, const Batch *b) {
    Scratch *s = w->device;
    const int(*copy)[2] = batch_copies(b, kv);
    size_t n = 2 * (size_t)b->n_copies;
    Flight *f = next_flight(s, 2 * n);
    if (!f) return;
    memcpy(f->ints, copy, n * sizeof(int));
    for (size_t i = 0; i < n && kv->tail_of; i++) f->ints[n + i] = kv->tail_of[copy[i / 2][i % 2]];
    send(s, f, kv->tail_of ? 2 * n : n);
    const int(*there)[2] = (const int(*)[2])s->ints;
    gpu_copy_blocks(kv->device, there, there + b->n_copies, b->n_copies, gpu.stream);
}

static void embed(Workspace *w, const Backend *be, const Ends *e, const KvPool kv[KV_KINDS], const Batch *b) {
    (void)be;
    Scratch *s = w->device;
    const CudaMatrix *m = e->tok_embd.device;
    if (send_batch(s, kv, b)) gpu_embed(s->x, &m->t, e->embd_scale, m->ropes, &s->batch, &s->gpu, gpu.stream);
}

static void receive(Workspace *w, const Layer *l, const KvPool kv[KV_KINDS], const Batch *b) {
    Scratch *s = w->device;
    const CudaLayer *c = l->device;
    if (!send_batch(s, kv, b)) return;
    rt_upload(s->x, w->x, (size_t)b->n_rows * (size_t)w->dim * sizeof(float), gpu.stream);
    gpu_embed(NULL, &c->gpu.wq, 1, c->ropes, &s->batch, &s->gpu, gpu.stream); // the angles alone; no tensor is read
}

// The last batch's numbers go up again, of the rows that go on: a step that no graph replays, of dense KV.
static void narrow(Workspace *w, const int *rows, int n) {
    Scratch *s = w->device;
    GpuBatch *g = &s->batch;
    Flight *f = last_flight(s);
    assert(!s->recording && !g->since);
    if (n == 0 || !rt_wait(f->sent)) return;
    const int *which = memcpy(f->ints + (g->token - s->ints), rows, (size_t)n * sizeof *rows); // tokens are embedded
    int *pos = f->ints + (g->pos - s->ints), *slot = f->ints + (g->slot - s->ints), *seq = f->ints + (g->seq - s->ints);
    int *out_row = f->ints + (s->out_row - s->ints), *tiles = f->ints + ((const int *)s->tiles - s->ints);
    for (int i = 0, out = 0; i < n; i++) {
        pos[i] = pos[which[i]], slot[i] = slot[which[i]], seq[i] = seq[which[i]];
        if (out < s->n_out && out_row[out] == which[i]) out_row[out++] = i;
    }
    g->n_rows = n;
    s->n_tiles = gpu_tiles(&(Batch){.n_rows = n, .slot = slot, .seq = seq}, (GpuTile *)tiles);
    send(s, f, (size_t)(tiles - f->ints) + 2 * (size_t)s->n_tiles);
    gpu_move_rows(s->x, w->dim, g->token, n, gpu.stream);
    gpu_move_rows(s->q, w->q_dim, g->token, n, gpu.stream);
    for (int i = 0; i < w->n_ropes; i++) {
        size_t table = (size_t)i * (size_t)s->gpu.rope_rows * (size_t)s->gpu.rope_step;
        gpu_move_rows(s->gpu.rope_cos + table, s->gpu.rope_step, g->token, n, gpu.stream);
        gpu_move_rows(s->gpu.rope_sin + table, s->gpu.rope_step, g->token, n, gpu.stream);
    }
}

static void attn_in(Workspace *w, const Layer *l, KvPool *kv, const Batch *b) {
    (void)b;
    Scratch *s = w->device;
    const CudaLayer *c = l->device;
    const Stack *k = &c->stack[QKV];
    int n = s->batch.n_rows;
    if (by_matvec(s, c))
        for (Rows p = {0}; next_rows(s, &l->heads, gpu_decode_rows(&c->gpu), &p);)
            gpu_attn_in(s->q + p.first * (size_t)w->q_dim, s->x + p.first * (size_t)w->dim, &c->gpu, kv->device,
                        &p.batch, &p.scratch, rounded, gpu.stream);
    else {
        gpu_rmsnorm(s->xn, k->type, s->x, c->gpu.norm_att, l->kind.eps, w->dim, NULL, n, gpu.stream);
        multiply(s, k, 0, k->n_out, s->xn, n, s->gpu.qkv, (size_t)k->n_out, false);
        gpu_qkv_finish(s->q, &c->gpu, kv->device, &s->batch, &s->gpu, gpu.stream);
    }
    gpu_seal(&c->gpu, kv->device, &s->batch, &s->gpu, gpu.stream);
}

// The rows' part in what queries look at.
static void count_looks(Scratch *s, const Layer *l, const KvPool *on_gpu, const Probe *probe, size_t q_dim) {
    const CudaLayer *c = l->device;
    size_t layer = (size_t)c->at * (size_t)l->heads.n_kv_heads * (size_t)probe->n_slots;
    for (Rows p = {0}; next_rows(s, &l->heads, s->attend_rows, &p);) {
        int first = int_max(0, probe->first_row - (int)p.first);
        if (first < p.batch.n_rows)
            gpu_probe(probe->device + layer, probe->n_slots, first, s->q + p.first * q_dim, &c->gpu, on_gpu, &p.batch,
                      &p.scratch, gpu.stream);
    }
}

// Leaves f32 in `a` where the fused kernels go on, and what the next product takes in `xn` otherwise.
static void attention(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b) {
    Scratch *s = w->device;
    const CudaLayer *c = l->device;
    int n = s->batch.n_rows, type = c->stack[OUT].type;
    size_t q_dim = (size_t)w->q_dim;
    if (by_tiles(s, c, kv->device))
        gpu_flash(s->xn, type, s->q, q_dim, &c->gpu, kv->device, &s->batch, &s->gpu, s->tiles, s->n_tiles, gpu.stream);
    else {
        for (Rows p = {0}; next_rows(s, &l->heads, s->attend_rows, &p);)
            gpu_attention(s->a + p.first * q_dim, s->q + p.first * q_dim, &c->gpu, kv->device, &p.batch, &p.scratch,
                          gpu.stream);
        if (!by_matvec(s, c)) gpu_convert(s->xn, type, s->a, (size_t)n * q_dim, gpu.stream);
    }
    gpu_keep(&c->gpu, kv->device, &s->batch, &s->gpu, gpu.stream);
    if (b->probe) count_looks(s, l, kv->device, b->probe, q_dim);
}

// x += norm(the stack's product with `from`), or the product itself where there is no norm.
static void add_product(Workspace *w, const Stack *k, const void *from, const float *norm, float eps) {
    Scratch *s = w->device;
    const float *bias = k->part[0].bias;
    int n = s->batch.n_rows;
    multiply(s, k, 0, w->dim, from, n, norm ? s->gpu.behind : s->x, (size_t)w->dim, !norm);
    if (norm) gpu_add_normed(s->x, s->gpu.behind, bias, norm, eps, w->dim, n, gpu.stream);
    else if (bias) gpu_add(s->x, NULL, bias, w->dim, n, gpu.stream);
}

static void attn_out(Workspace *w, const Layer *l, const Batch *b) {
    (void)b;
    Scratch *s = w->device;
    const CudaLayer *c = l->device;
    if (!by_matvec(s, c)) return add_product(w, &c->stack[OUT], s->xn, c->gpu.norm_att_out, l->kind.eps);
    for (Rows p = {0}; next_rows(s, &l->heads, gpu_decode_rows(&c->gpu), &p);)
        gpu_attn_out(s->x + p.first * (size_t)w->dim, s->a + p.first * (size_t)w->q_dim, &c->gpu, &p.batch, &p.scratch,
                     rounded, gpu.stream);
}

static void ffn_in(Workspace *w, const Layer *l, const Batch *b) {
    (void)b;
    Scratch *s = w->device;
    const CudaLayer *c = l->device;
    const Stack *k = &c->stack[GATE_UP];
    int n = s->batch.n_rows;
    if (by_matvec(s, c)) {
        for (Rows p = {0}; next_rows(s, &l->heads, gpu_decode_rows(&c->gpu), &p);)
            gpu_ffn_in(s->h + p.first * (size_t)w->ffn, s->x + p.first * (size_t)w->dim, &c->gpu, &p.batch, rounded,
                       gpu.stream);
        return;
    }
    gpu_rmsnorm(s->xn, k->type, s->x, c->gpu.norm_ffn, l->kind.eps, w->dim, NULL, n, gpu.stream);
    multiply(s, k, 0, k->n_out, s->xn, n, s->y, (size_t)k->n_out, false);
    gpu_gate_mul(s->h, c->stack[DOWN].type, l->kind.act, s->y, s->y + w->ffn, (size_t)k->n_out, c->gpu.w_gate.bias,
                 c->gpu.w_up.bias, w->ffn, n, gpu.stream);
}

static void ffn_out(Workspace *w, const Layer *l, const Batch *b) {
    (void)b;
    Scratch *s = w->device;
    const CudaLayer *c = l->device;
    if (!by_matvec(s, c)) return add_product(w, &c->stack[DOWN], s->h, c->gpu.norm_ffn_out, l->kind.eps);
    for (Rows p = {0}; next_rows(s, &l->heads, gpu_decode_rows(&c->gpu), &p);)
        gpu_ffn_out(s->x + p.first * (size_t)w->dim, s->h + p.first * (size_t)w->ffn, &c->gpu, &p.batch, &p.scratch,
                    rounded, gpu.stream);
}

// More rows than the fused kernel takes go through products, a slice of the head at a time, where there is room for
// their normalised copy.
static void multiply_head(Workspace *w, const Ends *e, const int *rows, int n_rows) {
    Scratch *s = w->device;
    const CudaMatrix *m = e->head.device;
    size_t n_vocab = (size_t)w->n_vocab;
    int most = gpu_logits_rows(&m->t);
    assert(n_rows <= w->max_out);
    if (n_rows > 2 * GPU_DECODE_ROWS && n_rows <= w->max_rows && has_products()) {
        gpu_rmsnorm(s->xn, m->stack.type, s->x, m->norm, e->eps, w->dim, rows, n_rows, gpu.stream);
        multiply(s, &m->stack, 0, w->n_vocab, s->xn, n_rows, s->logits, n_vocab, false);
    } else
        for (int first = 0; first < n_rows; first += most)
            gpu_logits(s->logits + (size_t)first * n_vocab, s->x, &m->t, m->norm, e->eps, rows + first,
                       int_min(most, n_rows - first), rounded, gpu.stream);
    if (e->softcap != 0) gpu_softcap(s->logits, e->softcap, (size_t)n_rows * n_vocab, gpu.stream);
}

static void logits(Workspace *w, const Backend *be, const Ends *e, const Batch *b, const int *rows, int n_rows) {
    (void)be, (void)b;
    Scratch *s = w->device;
    size_t n = (size_t)n_rows * (size_t)w->n_vocab;
    rt_upload(s->rows, rows, (size_t)n_rows * sizeof *rows, gpu.stream);
    multiply_head(w, e, s->rows, n_rows);
    rt_download(w->logits, s->logits, n * sizeof(float), gpu.stream);
    gpu.counts.rows_fetched += n_rows;
    if (!rt_sync(gpu.stream) || failure())
        for (size_t i = 0; i < n; i++) w->logits[i] = NAN;
}

// ---- tokens ---------------------------------------------------------------------------------------------------------

static void draw(Workspace *w, const Ends *e, const Batch *b) {
    Scratch *s = w->device;
    Flight *f = &s->flights[s->n_drawn++ % 2];
    multiply_head(w, e, s->out_row, b->n_out);
    for (int first = 0, n; first < b->n_out; first += n) {
        n = int_min(GPU_DRAW_ROWS, b->n_out - first);
        gpu_sample(s->sampled + first, s->logits + (size_t)first * (size_t)w->n_vocab, w->n_vocab, s->draws + first, n,
                   s->sampling, gpu.stream);
    }
    rt_download(f->tokens, s->sampled, (size_t)b->n_out * sizeof *f->tokens, gpu.stream);
    rt_mark(f->drawn, gpu.stream);
    f->n_tokens = b->n_out;
    gpu.counts.drawn += b->n_out;
    if (b->draw->pending) gpu.counts.drawn_ahead += b->n_out;
}

static const int *drawn(Workspace *w) {
    Scratch *s = w->device;
    assert(s->n_told != s->n_drawn && s->n_drawn - s->n_told <= 2);
    Flight *f = &s->flights[s->n_told++ % 2];
    if (!rt_wait(f->drawn) || failure())
        for (int i = 0; i < f->n_tokens; i++) f->tokens[i] = -1;
    return f->tokens;
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

static Graph *find_graph(Scratch *s, const Graph *like) {
    for (int i = 0; i < s->n_graphs; i++) {
        const Graph *g = &s->graphs[i];
        if (g->layer == like->layer && memcmp(g->kv, like->kv, sizeof g->kv) == 0 && g->n_layers == like->n_layers &&
            g->n_rows == like->n_rows && g->max_slots == like->max_slots && g->table_step == like->table_step &&
            g->mass == like->mass && g->first_row == like->first_row)
            return &s->graphs[i];
    }
    return NULL;
}

static void replay(const Graph *g) {
    rt_replay(g->graph, gpu.stream);
    gpu.counts.replays++;
}

static bool all_by_matvec(const Scratch *s, const Layer *l, int n) {
    for (int i = 0; i < n; i++)
        if (!by_matvec(s, l[i].device)) return false;
    return s->batch.n_rows <= UNPACK_ROWS;
}

// Few rows run as a graph: the first step of so many rows runs plainly, the next one is recorded and launched.
static LayersTodo layers_begin(Workspace *w, const Layer *l, int n, const KvPool kv[KV_KINDS], const Batch *b) {
    Scratch *s = w->device;
    if (failure()) return LAYERS_DONE; // nothing that follows can be right
    if (!all_by_matvec(s, l, n) || b->narrow) return LAYERS_RUN;
    gpu.counts.steps++;
    unsigned bit = (unsigned)s->batch.n_rows; // a power of two
    if (!(s->warm & bit)) { // what is launched for the first time is loaded then, which a capture may not see
        s->warm |= bit;
        return LAYERS_RUN;
    }
    s->recorded = (Graph){.layer = l->device,
                          .kv = {kv[KV_FULL].device, kv[KV_WINDOW].device},
                          .n_layers = n,
                          .n_rows = s->batch.n_rows,
                          .max_slots = s->batch.max_slots,
                          .table_step = s->batch.table_step,
                          .mass = b->probe ? b->probe->device : NULL,
                          .first_row = b->probe ? b->probe->first_row : 0};
    const Graph *g = find_graph(s, &s->recorded);
    if (g) replay(g);
    else s->recording = rt_capture(gpu.stream);
    return s->recording ? LAYERS_RUN : LAYERS_DONE;
}

static void layers_end(Workspace *w) {
    Scratch *s = w->device;
    if (!s->recording) return;
    s->recording = false;
    s->recorded.graph = rt_capture_end(gpu.stream);
    if (!s->recorded.graph) return;
    gpu.counts.captures++;
    if (s->n_graphs == MAX_GRAPHS) drop_graphs(s); // a context that grew through many sizes: begin again
    s->graphs[s->n_graphs++] = s->recorded;
    replay(&s->recorded);
}

// ---- the backend ----------------------------------------------------------------------------------------------------

static Status load(const Backend *be, const DeviceLoad *what, void **out) {
    (void)be;
    CudaModel *m = NULL;
    TRY(cuda_load(what, &m));
    gpu.counts.n_layers += m->n_layers;
    for (int i = 0; i < m->n_layers; i++) gpu.counts.dense_layers += m->layers[i].dense;
    *out = m;
    return OK;
}

static void unload(void *device) {
    rt_sync(gpu.stream);
    cuda_unload(device);
}

static const DeviceMemory memory = {
    .load = load,
    .unload = unload,
    .kv_new = kv_new,
    .kv_free = kv_free,
    .kv_move = kv_move,
    .close_up = close_up,
    .probe_new = probe_new,
    .probe_free = probe_free,
    .probe_move = probe_move,
    .scratch_new = scratch_new,
    .scratch_free = scratch_free,
    .receive = receive,
    .layers_begin = layers_begin,
    .layers_end = layers_end,
    .draw = draw,
    .drawn = drawn,
    .wait = wait,
    .failure = failure,
};

// What no GPU has timed yet, in words with commas between them.
static Status read_tuning(GpuTuning *t) {
    const char *words = getenv("QUILL_GPU_TRY");
    *t = (GpuTuning){0};
    for (size_t n; words && *words; words += n + (words[n] == ',')) {
        n = strcspn(words, ",");
        if (n == 3 && memcmp(words, "few", n) == 0) t->few = true;
        else if (n == 5 && memcmp(words, "early", n) == 0) t->early = true;
        else
            return status_error(QUILL_USAGE, "QUILL_GPU_TRY: few or early expected, or few,early; \"%.*s\" found",
                                (int)n, words);
    }
    return OK;
}

// A launch that does nothing of use shows whether this build has code for this GPU.
static Status first_launch(void) {
    float *p = rt_alloc(2 * sizeof *p);
    if (!p) return status_error(QUILL_MODEL, "%s has no memory left, not for its first kernel", gpu.info.name);
    rt_zero(p, 2 * sizeof *p, gpu.stream);
    gpu_convert(p + 1, TYPE_F32, p, 1, gpu.stream);
    bool good = rt_sync(gpu.stream) && !failure();
    rt_free(p);
    if (good) return OK;
    return status_error(QUILL_MODEL, "%s (sm_%d%d) refuses its first kernel: %s; make CUDA_ARCH=sm_%d%d builds for it",
                        gpu.info.name, gpu.info.major, gpu.info.minor, failure(), gpu.info.major, gpu.info.minor);
}

static Status open_gpu(void) {
    TRY(read_tuning(&gpu.tuning));
    TRY(rt_open(&gpu.info));
    gpu.tuning = gpu_tune(gpu.tuning);
    gpu.stream = rt_stream();
    TRY(first_launch());
    snprintf(gpu.isa, sizeof gpu.isa, "sm_%d%d", gpu.info.major, gpu.info.minor);
    describe("cuBLAS, not opened");
    gpu.backend = (Backend){.name = gpu.info.name,
                            .isa = gpu.isa,
                            .kernels = gpu.kernels,
                            .memory = &memory,
                            .copy_blocks = copy_blocks,
                            .embed = embed,
                            .attn_in = attn_in,
                            .attention = attention,
                            .attn_out = attn_out,
                            .ffn_in = ffn_in,
                            .ffn_out = ffn_out,
                            .narrow = narrow,
                            .whole_rows = UNPACK_ROWS,
                            .logits = logits};
    return OK;
}

Status cuda_can(const Heads *h) {
    if (h->head_dim > GPU_MAX_HEAD || h->head_dim % 2)
        return status_error(
            QUILL_MODEL, "the GPU: heads of an even number of up to %d elements expected, %d found; --device cpu works",
            GPU_MAX_HEAD, h->head_dim);
    return OK;
}

size_t cuda_free_bytes(void) { return gpu.isa[0] ? rt_free_bytes() : 0; }

Status cuda_look(void) {
    GpuInfo info;
    return rt_look(&info);
}

void cuda_describe(Buf *out) {
    GpuInfo i;
    int toolkit = rt_toolkit();
    buf_printf(out, "%d.%d; ", toolkit / 1000, toolkit % 1000 / 10);
    Status st = rt_look(&i);
    if (st.code) buf_str(out, st.message);
    else
        buf_printf(out, "%s, sm_%d%d, driver for CUDA %d.%d", i.name, i.major, i.minor, i.driver / 1000,
                   i.driver % 1000 / 10);
}

Status cuda_backend(const Backend **out) {
    static bool tried;
    static Status result;
    if (!tried) result = open_gpu();
    tried = true;
    *out = result.code ? NULL : &gpu.backend;
    return result;
}
