// model.c: the forward pass, its scratch memory, and which layers a device computes. See model.h.
#include "model.h"

// ---- a device -------------------------------------------------------------------------------------------------------

Status model_to_device(Model *m, const Backend *device, int n, DeviceLoad how) {
    int first = m->c.n_layers - n;
    how.layers = m->layers + first;
    how.n = n;
    how.ends = &m->ends;
    how.embeds = first == 0;
    TRY(device->memory->load(device, &how, &m->on_device));
    for (int i = first; i < m->c.n_layers; i++) m->layers[i].be = device;
    m->device = device;
    m->n_device = n;
    return OK;
}

void model_keep_experts(Model *m, int n) {
    for (int i = 0; i < m->c.n_layers && i < n; i++) {
        const LayerKind *kind = &m->layers[i].kind;
        m->layers[i].host_ffn = kind->ffn == FFN_EXPERTS && !kind->parallel; // x goes to the host behind attention
    }
}

size_t model_kept_bytes(const Model *m, int first) {
    size_t bytes = 0;
    for (int i = first; i < m->c.n_layers; i++) {
        const Layer *l = &m->layers[i];
        if (!l->host_ffn) continue;
#define ADD_BYTES(field) bytes += tensor_bytes(&l->field);
        EACH_FFN_MATRIX(ADD_BYTES)
    }
    return bytes;
}

// ---- scratch --------------------------------------------------------------------------------------------------------

enum { N_NARROWED = 5 }; // arrays in Workspace.narrowed: the remaining rows, then their pos, slot, seq and out_row

// Places the arrays of a workspace one after another from `base` on, and returns their bytes. base NULL: only counts.
static size_t lay_out(Workspace *w, const Model *m, int n_threads, char *base) {
    bool here = m->n_device < m->c.n_layers || model_kept_bytes(m, 0) > 0; // the host computes layers or experts
    size_t rows = here ? (size_t)w->max_rows : 0, at = 0;
    const ModelConfig *c = &m->c;
    int widest = int_max(int_max(w->dim, int_max(w->q_dim, w->a_dim)), int_max(w->widest, w->latent_dim));
    widest = int_max(widest, w->join_dim);
    size_t pairs = rows * (size_t)w->n_used, experts = (size_t)w->n_experts * (pairs > 0);
    size_t stacks = here ? (size_t)int_max((int)experts, w->latent_heads) : 0;
    ExpertRows *e = &w->experts;
    w->packed_bytes = here ? m->be->packed_bytes(m->be, w->max_rows, widest) : 0;
    if (stacks > 0 && m->be->stack_bytes) {
        size_t more = m->be->stack_bytes(m->be, w, int_max(w->dim, c->ffn));
        if (w->packed_bytes < more) w->packed_bytes = more;
    }
    w->panel_bytes = here ? m->be->panel_bytes : 0;
    size_t logits = (size_t)w->max_out * (size_t)w->n_vocab * 4 * (m->n_device == 0); // else the device has them
    struct {
        void **to;
        size_t bytes;
    } parts[] = {
        {(void **)&w->x, rows * (size_t)w->dim * 4},
        {(void **)&w->q, rows * (size_t)w->q_dim * 4},
        {(void **)&w->a, rows * (size_t)w->a_dim * 4},
        {(void **)&w->mix, rows * (size_t)w->mix_dim * 4},
        {(void **)&w->h, rows * (size_t)w->ffn * 4},
        {(void **)&w->up, rows * (size_t)w->ffn * 4},
        {(void **)&w->k, (rows * (size_t)w->kv_dim + w->kv_step) * 4},
        {(void **)&w->v, (rows * (size_t)w->kv_dim + w->kv_step) * 4},
        {(void **)&w->latent[0], rows * (size_t)w->latent_dim * 4},
        {(void **)&w->latent[1], rows * (size_t)w->latent_dim * 4},
        {(void **)&w->per, rows * (size_t)w->per_dim * 4},
        {(void **)&w->per_token, rows * (size_t)w->per_dim * 4},
        {(void **)&w->xn, rows * (size_t)w->dim * 4},
        {(void **)&w->joined, rows * (size_t)w->join_dim * 4},
        {(void **)&w->rope_cos, (size_t)w->n_ropes * rows * (size_t)(w->n_rot / 2) * 4},
        {(void **)&w->rope_sin, (size_t)w->n_ropes * rows * (size_t)(w->n_rot / 2) * 4},
        {(void **)&w->narrowed, N_NARROWED * (size_t)w->max_rows * sizeof(int)},
        {(void **)&e->logits, rows * (size_t)w->n_experts * 4},
        {(void **)&e->shared, w->n_experts ? rows * 4 : 0},
        {(void **)&e->chosen, pairs * sizeof(int)},
        {(void **)&e->weight, pairs * 4},
        {(void **)&e->place, pairs * sizeof(int)},
        {(void **)&e->row, pairs * sizeof(int)},
        {(void **)&e->first, (stacks + 1) * sizeof(int)},
        {(void **)&e->x, pairs * (size_t)w->dim * 4},
        {(void **)&e->out, pairs ? rows * (size_t)w->dim * 4 : 0},
        {(void **)&e->task, (2 * stacks + 1) * sizeof(int)},
        {(void **)&e->at, stacks * sizeof(size_t)},
        {(void **)&e->asked, (size_t)c->n_layers * experts * sizeof(bool)},
        {(void **)&w->logits, logits},
        {(void **)&w->packed, w->packed_bytes},
        {(void **)&w->panels, w->panel_bytes * (size_t)n_threads},
    };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (base) *parts[i].to = base + at;
        at += round_up(parts[i].bytes, 128);
    }
    return at;
}

// Increases the row sizes of a workspace to what a layer needs.
static void widen(Workspace *w, const Layer *l) {
    const Heads *h = &l->heads;
    bool experts = l->kind.ffn == FFN_EXPERTS, latent = l->kind.mixer == MIXER_LATENT;
    int width = l->w_gate.n_out * (experts ? l->kind.n_used : 1) + l->shared_gate.n_out;
    w->q_dim = int_max(w->q_dim, h->n_heads * h->head_dim);
    w->a_dim = int_max(w->a_dim, int_max(w->q_dim, layer_mixed(l)));
    w->mix_dim = int_max(w->mix_dim, layer_mix_width(l));
    w->kv_dim = int_max(w->kv_dim, h->n_kv_heads * h->head_dim);
    w->ffn = int_max(w->ffn, int_max(width, l->per_gate.n_out));
    w->widest = int_max(w->widest, int_max(l->w_gate.n_out, int_max(l->shared_gate.n_out, l->per_gate.n_out)));
    // The layer reads K and V rows of an earlier layer from w->k and w->v, so the two kinds of pool must not share
    // them.
    if (layer_attends(l) && !layer_owns_kv(l)) w->kv_step = (size_t)w->max_rows * (size_t)w->kv_dim;
    if (!latent) return;
    int a_head = int_max(l->wq.n_out, l->q_a.n_out) / h->n_heads + 1;
    int head = int_max(a_head, int_max(heads_v_dim(h), l->v_b.n_out));
    w->q_dim = int_max(w->q_dim, int_max(l->wq.n_out, h->n_heads * l->v_b.n_out)); // rows before and after the products
    w->a_dim = int_max(w->a_dim, w->q_dim);                                        // with k_b and v_b
    w->latent_heads = h->n_heads;
    w->latent_dim = int_max(w->latent_dim, h->n_heads * head);
}

Workspace workspace_shape(const Model *m, int max_rows, int max_out, int max_slots) {
    const ModelConfig *c = &m->c;
    Workspace w = {.max_rows = max_rows,
                   .max_out = max_out,
                   .max_slots = max_slots,
                   .dim = c->dim,
                   .n_experts = c->n_experts,
                   .n_used = c->n_used,
                   .ffn_shared = c->ffn_shared,
                   .per_dim = c->n_layers * m->ends.per,
                   .join_dim = m->ends.join.n_in,
                   .n_vocab = c->n_vocab,
                   .n_rot = c->n_rot,
                   .n_ropes = m->ends.n_ropes,
                   .be = m->device};
    for (int i = 0; i < m->ends.n_ropes; i++) w.n_rot = int_max(w.n_rot, m->ends.ropes[i].n_rot);
    for (int i = 0; i < c->n_layers; i++) widen(&w, &m->layers[i]);
    return w;
}

Heads model_widest_heads(const Model *m) {
    Heads widest = {0};
    for (int i = 0; i < m->c.n_layers; i++) {
        const Heads *h = &m->layers[i].heads;
        widest.n_heads = int_max(widest.n_heads, h->n_heads);
        widest.n_kv_heads = int_max(widest.n_kv_heads, h->n_kv_heads);
        widest.head_dim = int_max(widest.head_dim, h->head_dim);
    }
    return widest;
}

size_t workspace_bytes(const Model *m, int n_threads, int max_rows, int max_out) {
    Workspace w = workspace_shape(m, max_rows, max_out, 0);
    return lay_out(&w, m, n_threads, NULL);
}

Status workspace_new(Workspace *w, const Model *m, ThreadPool *pool, int max_rows, int max_out, int max_slots) {
    *w = workspace_shape(m, max_rows, max_out, max_slots);
    w->pool = pool;
    w->n_bytes = lay_out(w, m, threads_count(pool), NULL);
    w->pages = w->n_bytes ? pages_alloc(w->n_bytes, true) : NULL;
    if (w->n_bytes && !w->pages)
        return status_error(QUILL_MEMORY,
                            "scratch: %zu bytes for steps of %d rows were refused by the system; try a "
                            "smaller -ub",
                            w->n_bytes, max_rows);
    lay_out(w, m, threads_count(pool), w->pages);
    Heads widest = model_widest_heads(m);
    return w->be ? w->be->memory->scratch_new(w, &widest) : OK;
}

void workspace_free(Workspace *w) {
    if (w->device) w->be->memory->scratch_free(w);
    pages_free(w->pages, w->n_bytes);
    *w = (Workspace){0};
}

// ---- the forward ----------------------------------------------------------------------------------------------------

static void embed(const Model *m, Workspace *w, KvPool *kv, const Batch *b) {
    const Backend *be = m->layers[0].be;
    for (int k = 0; k < KV_KINDS && b->n_copies > 0; k++) {
        if (kv[k].n_device < kv[k].n_layers) m->be->copy_blocks(w, &kv[k], b);
        if (kv[k].n_device > 0) m->device->copy_blocks(w, &kv[k], b);
    }
    be->embed(w, be, &m->ends, kv, b);
}

int model_last_rows(const Model *m, bool sealed, int n_rows, int n_out) {
    const Layer *last = &m->layers[m->c.n_layers - 1];
    const Backend *be = last->be; // NULL: a model without a backend; counts as the CPU
    bool narrows = !be || (be->narrow && n_rows > be->whole_rows);
    // A state depends on every row: on the CPU rows without logits end after the mixer, a device computes them all.
    // Sealing a group needs the K and V of all its rows.
    bool recurrent = mixer_is_recurrent(last->kind.mixer);
    bool needs_all = recurrent ? be && be->memory : sealed && last->kind.mixer != MIXER_NONE;
    return narrows && !needs_all ? n_out : n_rows;
}

// Writes b->out_row to `rows` and returns n_out; returns n_rows if out_row does not ascend, since narrowing moves rows
// in place to lower indices.
static int rows_of_head(const Batch *b, int *rows) {
    for (int i = 0; i < b->n_out; i++) rows[i] = b->out_row[i];
    for (int i = 1; i < b->n_out; i++)
        if (rows[i] <= rows[i - 1]) return b->n_rows;
    return b->n_out;
}

// How many rows of the batch continue after layer l has stored K and V. If they are fewer than n_rows, `rows` lists
// them.
static int rows_that_go_on(const Model *m, const Layer *l, const KvPool *kv, const Batch *b, int *rows) {
    bool last = l->index == m->c.n_layers - 1, sealed = kv && kv_any_sealed(kv->type_k, kv->type_v);
    bool all = b->probe || b->watch || b->whole || !b->out_row;
    if (b->narrow && (l->index == b->narrow->layer || (b->narrow->layer < 0 && !last)))
        return b->narrow->choose(b->narrow->arg, l, kv, b, rows);
    if (!last || all || model_last_rows(m, sealed, b->n_rows, b->n_out) == b->n_rows) return b->n_rows;
    return rows_of_head(b, rows);
}

// Writes to b->ended that the rows of the batch end in layer l, except those n of them that go on. b: before it becomes
// narrower. Its rows are those of the whole step that have not ended before, in order.
static void note_ended(const Model *m, const Layer *l, const Batch *b, const int *rows, int n) {
    for (int at = 0, row = 0, on = 0; b->ended && row < b->n_rows; at++) {
        if (b->ended[at] < m->c.n_layers) continue;
        if (on < n && rows[on] == row) on++;
        else b->ended[at] = l->index;
        row++;
    }
}

// Removes the rows that end in layer l from the batch and from x and q.
static void narrow(const Model *m, Workspace *w, const Layer *l, const KvPool *kv, Batch *b) {
    int most = w->max_rows, *rows = w->narrowed, *pos = rows + most, *slot = pos + most, *seq = slot + most;
    int *out_row = seq + most;
    int n = rows_that_go_on(m, l, kv, b, rows), out = 0;
    if (n == b->n_rows) return;
    note_ended(m, l, b, rows, n);
    for (int i = 0; i < n; i++) {
        pos[i] = b->pos[rows[i]], slot[i] = b->slot[rows[i]], seq[i] = b->seq[rows[i]];
        if (out < b->n_out && b->out_row[out] == rows[i]) out_row[out++] = i;
    }
    b->n_rows = n, b->pos = pos, b->slot = slot, b->seq = seq, b->out_row = out_row;
    l->be->narrow(w, rows, b);
    size_t mixed = (size_t)layer_mixed(l); // a recurrent layer has computed w->a already
    for (size_t i = 0; mixer_is_recurrent(l->kind.mixer) && i < (size_t)n; i++)
        memmove(w->a + i * mixed, w->a + (size_t)rows[i] * mixed, mixed * sizeof *w->a);
}

static void watch_feed(const Batch *b, WatchFeed feed, const Workspace *w, const Layer *l) {
    if (b->watch && b->watch->feeds) b->watch->feeds(b->watch->arg, feed, w, l, b);
}

// Computes on the host the experts of a layer whose other parts are on the device. x is copied to the host and back.
static void host_feed_forward(const Model *m, Workspace *w, const Layer *l, const Batch *b) {
    Layer host = *l;
    host.be = m->be;
    host.device = NULL;
    l->be->memory->fetch(w, b);
    m->be->ffn_in(w, &host, b);
    m->be->ffn_out(w, &host, b);
    l->be->memory->give(w, b);
}

// x += norm(Wo a)
static void add_mixed(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b) {
    if (kv && b->watch && b->watch->attended) b->watch->attended(b->watch->arg, w, l, b);
    watch_feed(b, FEEDS_ATTENTION_OUT, w, l);
    l->be->attn_out(w, l, b);
}

// Computes one layer. Afterwards the batch may have fewer rows, or none.
static void layer_forward(const Model *m, Workspace *w, const Layer *l, KvPool *pools, Batch *b) {
    const Backend *be = l->be;
    bool mixes = l->kind.mixer != MIXER_NONE;
    KvPool *kv = l->kv_kind < 0 ? NULL : &pools[l->kv_kind];
    if (mixes) watch_feed(b, FEEDS_QKV, w, l);
    if (kv && b->arrival && layer_owns_kv(l)) b->arrival->wait(b->arrival->arg, l);
    // norm -> Q, K, V (+ bias, norms) -> RoPE -> K, V into their slots; recurrent: norm -> inputs of the recurrence
    if (mixes) be->attn_in(w, l, kv, b);
    bool recurrent = mixer_is_recurrent(l->kind.mixer);
    if (!recurrent) narrow(m, w, l, kv, b);
    if (b->n_rows == 0) return;
    if (mixes) be->attention(w, l, kv, b); // softmax(Q K^T) V over the block table; or the recurrence from row to row
    if (recurrent) narrow(m, w, l, kv, b);
    if (b->n_rows == 0) return;
    if (mixes && !l->kind.parallel) add_mixed(w, l, kv, b);
    if (l->kind.ffn == FFN_NONE) return;
    if (l->host_ffn && be->memory) return host_feed_forward(m, w, l, b);
    watch_feed(b, FEEDS_FFN_IN, w, l);
    be->ffn_in(w, l, b); // norm -> gate, up -> act(gate) * up
    if (mixes && l->kind.parallel) add_mixed(w, l, kv, b);
    watch_feed(b, FEEDS_FFN_OUT, w, l);
    be->ffn_out(w, l, b); // x += norm(Wdown h)
}

// Computes the first n layers, which are on the host. False: `stop` has abandoned the step.
static bool host_layers(const Model *m, Workspace *w, int n, KvPool *kv, Batch *b, const ModelStop *stop) {
    for (int i = 0; i < n && b->n_rows > 0; i++) {
        if (stop && stop->abandons(stop->arg, i)) return false;
        layer_forward(m, w, &m->layers[i], kv, b);
    }
    return true;
}

// Computes the layers from `first` on, which are on the device.
static void device_layers(const Model *m, Workspace *w, int first, KvPool *kv, Batch *b) {
    const DeviceMemory *memory = m->device->memory;
    if (memory->layers_begin(w, &m->layers[first], m->n_device, kv, b) == LAYERS_DONE) return;
    for (int i = first; i < m->c.n_layers && b->n_rows > 0; i++) layer_forward(m, w, &m->layers[i], kv, b);
    memory->layers_end(w);
}

// The host's layers come first, then the device's. False: `stop` has abandoned the step.
static bool all_layers(const Model *m, Workspace *w, KvPool *kv, Batch *b, const ModelStop *stop) {
    int n_host = m->c.n_layers - m->n_device;
    for (int i = 0; i < b->n_rows && b->ended; i++) b->ended[i] = m->c.n_layers;
    embed(m, w, kv, b);
    if (!host_layers(m, w, n_host, kv, b, stop)) return false;
    if (m->n_device == 0) return true;
    if (n_host > 0) m->device->memory->receive(w, &m->layers[n_host], kv, b);
    device_layers(m, w, n_host, kv, b);
    return true;
}

bool model_hidden(const Model *m, Workspace *w, KvPool kv[KV_KINDS], const Batch *b, const ModelStop *stop) {
    Batch step = *b;
    step.n_step = b->n_rows;
    step.n_out = 0;
    step.out_row = NULL; // no row ends early
    if (!all_layers(m, w, kv, &step, stop)) return false;
    watch_feed(&step, FEEDS_HEAD, w, &m->layers[m->c.n_layers - 1]);
    return true;
}

float *model_logits(const Model *m, Workspace *w, const Batch *b, const int *rows, int n_rows) {
    const Backend *be = m->layers[m->c.n_layers - 1].be;
    be->logits(w, be, &m->ends, b, rows, n_rows);
    return w->logits;
}

bool model_forward_until(const Model *m, Workspace *w, KvPool kv[KV_KINDS], const Batch *b, const ModelStop *stop,
                         float **logits) {
    Batch step = *b;
    step.n_step = b->n_rows;
    if (!all_layers(m, w, kv, &step, stop)) return false;
    bool draws = b->n_out > 0 && b->draw;
    *logits = draws ? NULL : w->logits;
    if (draws) m->device->memory->draw(w, &m->ends, &step);
    else if (b->n_out > 0) model_logits(m, w, &step, step.out_row, b->n_out);
    return true;
}

float *model_forward(const Model *m, Workspace *w, KvPool kv[KV_KINDS], const Batch *b) {
    float *logits;
    model_forward_until(m, w, kv, b, NULL, &logits);
    return logits;
}

const float *model_last_hidden(const Model *m, Workspace *w, int n_rows) {
    const Backend *be = m->layers[m->c.n_layers - 1].be;
    be->hidden(w, be, &m->ends, n_rows);
    return w->xn;
}

void model_wait(const Model *m) {
    if (m->device) m->device->memory->wait();
}

const Status *model_failure(const Model *m) { return m->device ? m->device->memory->failure() : NULL; }

bool model_draws(const Model *m) { return m->n_device > 0; }

bool model_draws_ahead(const Model *m) { return m->n_device == m->c.n_layers; } // the device embeds

int *model_drawn(const Model *m, Workspace *w) { return m->device->memory->drawn(w); }
