// blend/blend.c: see blend/blend.h.
#include "blend/blend.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/note.h"
#include "base/stats.h"
#include "blend/loader.h"
#include "kv/kvrows.h"

// Decides which tokens become rows of the next step.
typedef enum {
    BLEND_PLAIN, // the scheduler's choice: the uncomputed tokens in order
    BLEND_CHECK, // all up to the end of the last chunk; tokens from the first chunk on end in the check layer
    BLEND_AGAIN, // the tokens that plan_choose has chosen
} BlendPhase;

struct Blend {
    const BlendContext *context;
    Policy policy;
    BlendSpan *spans;
    bool *damaged; // (n_spans) the chunk's file could not be read: it is not opened again
    int n_spans;
    BlendPlan plan;          // a copy of the context's; with ratio=auto its ratio may grow
    double stepped, checked; // start of the current BLEND_CHECK step; total time of these steps without waiting
    BlendPhase phase;
    const Layer *check;    // the check layer: the second layer with K and V; NULL: none
    BlendLoader *loader;   // NULL: nothing is being loaded
    int first, end;        // the first token of the chunks that is not cached, the end of the last chunk
    int *rows, n_rows, at; // tokens that become rows in this phase; the first `at` of them are computed
    int n_reused;          // tokens that BLEND_AGAIN leaves as they were loaded
    uint8_t *kept;         // (n_tokens) 1: the token has loaded K and V and need not be recomputed
    float *values;         // (n_tokens, kv_dim) stored V of the check layer, later of the layer being computed
    double *deviation;     // (n_tokens) deviation of V in the check layer
    RowsEnd ends, thins;   // end rows in the check layer; end rows in the layers after it, if the plan is gradual
    const Sequence *q;
    int *going, n_going;  // tokens of the step whose rows have not ended yet
    int n_layers, n_most; // layers with K and V after the check layer; tokens of the step with `kept`
    KvArrival arrival;
    BlendStats stats;
};

Status blend_check(const Model *m, const KvPool kv[KV_KINDS]) {
    const char *why = strcmp(m->c.rope_scaling, "longrope") == 0 ? "K depends on the context's length" : NULL;
    TRY(kvcache_check_dense(kv, "--chunk"));
    for (int i = 0; i < m->c.n_layers; i++) {
        const LayerKind *kind = &m->layers[i].kind;
        if (mixer_is_recurrent(kind->mixer)) why = "recurrent layers keep all text before them in a state";
        if (m->layers[i].heads.chunked) why = "attention has chunks at fixed positions";
        else if (kind->qk_norm == QK_NORM_TURNED) why = "K has a norm after RoPE"; // its weights follow the rotation
    }
    if (why)
        return status_error(QUILL_MODEL,
                            "--chunk: a model whose K can be rotated to other positions expected, found %s, whose %s; "
                            "give the files with -f instead",
                            m->c.arch, why);
    return kvcache_check_alike(kv, m->c.n_layers, "--chunk");
}

// ---- loading --------------------------------------------------------------------------------------------------------

static void forget(Blend *b) {
    int bad;
    if (b->loader) loader_end(b->loader, &bad);
    free(b->rows);
    free(b->kept);
    free(b->values);
    free(b->deviation);
    free(b->going);
    b->going = NULL;
    b->n_going = 0;
    b->loader = NULL;
    b->rows = NULL;
    b->kept = NULL;
    b->values = NULL;
    b->deviation = NULL;
    b->phase = BLEND_PLAIN;
    b->plan = b->context->plan;
    b->checked = 0;
}

static void note(const Blend *b, Status st) {
    if (st.code) note_print(b->context->quiet, "%s; this chunk is computed again", st.message);
}

int *blend_chunk_tokens(const BlendContext *context, const int *tokens, BlendSpan s, int *n) {
    int n_lead = context->n_lead, *ids = mem_alloc((size_t)(n_lead + s.n) * sizeof *ids);
    if (n_lead) memcpy(ids, context->lead, (size_t)n_lead * sizeof *ids);
    memcpy(ids + n_lead, tokens + s.first, (size_t)s.n * sizeof *ids);
    *n = n_lead + s.n;
    return ids;
}

// Opens the file of a chunk, to load it from slot `first` of the sequence on. False: it has none.
static bool open_chunk(const Blend *b, const int *tokens, BlendSpan span, int first, LoaderChunk *out) {
    const BlendContext *x = b->context;
    int n, *ids = blend_chunk_tokens(x, tokens, span, &n);
    Status st = OK;
    bool found = chunkstore_open(x->store, ids, n, &out->file, &st);
    free(ids);
    note(b, st);
    out->skip = x->n_lead + first - span.first;
    out->first = first;
    out->n = span.first + span.n - first;
    return found;
}

// Opens the chunks that end after token `from`, and sets `kept`. The loader takes over the array. NULL: no chunk.
static LoaderChunk *open_chunks(Blend *b, const Sequence *q, int from, int *n) {
    LoaderChunk *chunks = mem_alloc((size_t)b->n_spans * sizeof *chunks);
    *n = 0;
    b->stats = (BlendStats){.n_chunks = b->n_spans};
    for (int i = 0; i < b->n_spans; i++) {
        BlendSpan s = b->spans[i];
        int first = int_max(s.first, from);
        if (first >= s.first + s.n) continue;
        LoaderChunk *c = &chunks[*n];
        if (b->damaged[i] || !open_chunk(b, q->tokens, s, first, c)) {
            b->stats.n_lost++;
            continue;
        }
        ++*n;
        b->stats.n_kept += c->n;
        memset(b->kept + first, 1, (size_t)c->n);
        int k = int_max(0, int_min(c->n, s.first + b->plan.k - first));
        memset(b->kept + first, 0, (size_t)k);
    }
    if (*n > 0) return chunks;
    free(chunks);
    return NULL;
}

// ---- phases ---------------------------------------------------------------------------------------------------------

static void begin_again(Blend *b, const Sequence *q, int first) {
    BlendPlan *p = &b->plan;
    if (p->by_loading && b->loader)
        p->ratio = plan_ratio_by_loading(p, loader_layer_seconds(b->loader), b->checked / b->check->index);
    double share = p->mode == BLEND_CACHEBLEND ? plan_share(p, 0, b->n_layers) : 0;
    b->n_rows = plan_choose(share, b->kept, b->deviation, first, q->n_tokens, b->rows);
    b->n_reused = q->n_tokens - first - b->n_rows;
    b->at = 0;
    b->phase = BLEND_AGAIN;
    for (int i = 0; i < b->n_rows; i++) b->stats.n_again += b->rows[i] >= b->first && b->rows[i] < b->end;
}

static void begin_check(Blend *b, int first) {
    b->n_rows = b->end - first;
    for (int i = 0; i < b->n_rows; i++) b->rows[i] = first + i;
    b->at = 0;
    b->phase = BLEND_CHECK;
}

// Starts loading the chunks and chooses the first rows. If no chunk can be used, the phase stays BLEND_PLAIN and the
// whole prompt is computed.
static void begin(Blend *b, Request *r) {
    const BlendContext *x = b->context;
    Sequence *q = r->seq;
    size_t n = (size_t)q->n_tokens, kv_dim = (size_t)x->kv->pool->n_kv_heads * (size_t)x->kv->pool->head_dim;
    int n_chunks, from = q->n_cached;
    bool checks = x->plan.mode == BLEND_CACHEBLEND && x->plan.ratio > 0;
    if (x->plan.mode == BLEND_FULL || (checks && !b->check)) return;
    b->first = int_max(from, b->spans[0].first);
    b->end = b->spans[b->n_spans - 1].first + b->spans[b->n_spans - 1].n;
    // A pending copy of blocks would overwrite the loaded K and V.
    if (b->first >= b->end || !kvcache_reserve(x->kv, q, q->n_tokens) || x->kv->n_copies > 0) return;
    b->kept = mem_alloc(n);
    LoaderChunk *chunks = open_chunks(b, q, from, &n_chunks);
    if (!chunks) return;
    b->rows = mem_alloc(n * sizeof *b->rows);
    b->kept[n - 1] = 0; // computed in any case, for its logits
    sequence_alter(q, b->first);
    b->q = q;
    if (checks) {
        b->deviation = mem_alloc(n * sizeof *b->deviation);
        b->values = mem_alloc(n * kv_dim * sizeof *b->values);
        b->going = mem_alloc(n * sizeof *b->going);
    }
    LoaderPlan plan = {.m = x->m,
                       .kv = x->kv,
                       .q = q,
                       .chunks = chunks,
                       .n_chunks = n_chunks,
                       .check = checks ? b->check->index : -1,
                       .kept = b->values};
    double start = clock_now();
    b->loader = loader_start(&plan);
    b->stats.load_seconds += clock_now() - start;
    if (checks) begin_check(b, from);
    else begin_again(b, q, from);
}

// The number of layers with K and V from l on.
static int layers_behind(const Model *m, const Layer *l) {
    int n = 0;
    for (int i = l->index; i < m->c.n_layers; i++) n += m->layers[i].kv_kind >= 0;
    return n;
}

// Begins a step over these tokens whose layers end rows gradually. No row ends up to the check layer.
static void begin_thinning(Blend *b, const int *tokens, int n) {
    memcpy(b->going, tokens, (size_t)n * sizeof *tokens);
    b->n_going = n;
    b->n_most = 0;
    for (int i = 0; i < n; i++) b->n_most += b->kept[tokens[i]];
}

// ---- the policy -----------------------------------------------------------------------------------------------------

static bool fetch(const Policy *p, Request *r, int most) {
    Blend *b = p->arg;
    const BlendContext *x = b->context;
    const Policy *next = policy_with_fetch(p->next);
    forget(b);
    if (x->ready && !x->ready(x->arg, r->seq->tokens, b->spans, b->n_spans)) return false;
    if (next && !next->fetch(next, r, most)) return false;
    if (r->n_new == 0) begin(b, r); // a request that was preempted during its answer is computed in full
    return true;
}

static int pick(const Policy *p, Scheduler *s, StepRows *rows, int most) {
    Blend *b = p->arg;
    (void)s;
    if (b->phase == BLEND_PLAIN) return 0;
    int n = int_min(most, b->n_rows - b->at);
    rows->picked = b->rows + b->at;
    bool thins = b->phase == BLEND_AGAIN && b->plan.gradual > 0 && b->going;
    if (b->phase == BLEND_CHECK) b->stepped = clock_now();
    if (b->phase == BLEND_CHECK && rows->picked[n - 1] >= b->first) {
        rows->ending = true;
        rows->ends = &b->ends;
    }
    if (thins) {
        rows->ends = &b->thins;
        begin_thinning(b, rows->picked, n);
    }
    if (b->loader || thins) rows->arrival = &b->arrival;
    return n;
}

// Waits until all layers are loaded. False: a chunk could not be loaded; the request begins again without that chunk.
static bool end_loading(Blend *b, Sequence *q, Request *r) {
    int bad = 0;
    if (!b->loader) return true;
    Status st = loader_end(b->loader, &bad);
    b->loader = NULL;
    if (!st.code) return true;
    note(b, st);
    forget(b);
    // The chunk is not loaded again: its file may still be there, and would fail again.
    for (int i = 0; i < b->n_spans; i++)
        b->damaged[i] |= b->spans[i].first <= bad && bad < b->spans[i].first + b->spans[i].n;
    kvcache_release(b->context->kv, q);
    r->fetched = false;
    return false;
}

// Whether the loader may keep running during the next step. It must not if the cache may release window blocks
// (partners) between steps, because the loader writes into them.
static bool may_load_on(const Blend *b, bool last) {
    const KvCache *kv = b->context->kv;
    return b->loader && !last && !loader_over(b->loader) && (!kv->partner || kv->keep_partners);
}

static bool picked(const Policy *p, Scheduler *s, StepRows *rows) {
    Blend *b = p->arg;
    Sequence *q = rows->seq;
    (void)s;
    bool last = b->phase == BLEND_AGAIN && b->at + rows->n_known == b->n_rows;
    if (!may_load_on(b, last) && !end_loading(b, q, rows->request)) return false;
    if (b->phase == BLEND_CHECK) b->checked += clock_now() - b->stepped;
    b->at += rows->n_known;
    int next = b->at < b->n_rows ? b->rows[b->at] : b->end;
    if (b->phase == BLEND_CHECK) {
        q->n_cached = int_min(next, b->first);
        if (b->at == b->n_rows) begin_again(b, q, b->first);
        return true;
    }
    q->n_cached = b->at < b->n_rows ? next : q->n_tokens;
    if (b->at < b->n_rows) return true;
    rows->request->n_reused += b->n_reused;
    b->phase = BLEND_PLAIN;
    return true;
}

static void preempted(const Policy *p, Request *r) {
    (void)r;
    forget(p->arg); // ends the loader before its blocks are reused
}

static void end(const Policy *p, Scheduler *s, Request *r) {
    forget(p->arg);
    const Policy *next = policy_with_end(p->next);
    if (next) next->end(next, s, r);
}

// ---- callbacks of the layers ----------------------------------------------------------------------------------------

// Reads V of n slots of a layer from the cache, as f32.
static void read_values(const KvPool *kv, const Layer *l, const int *blocks, int slot, int n, float *out) {
    uint8_t *stored = mem_alloc(kvrows_bytes(kv, n));
    kvrows_read(kv, l->kv_layer, blocks, slot, n, stored);
    const uint8_t *v = stored + (size_t)(n * kv->n_kv_heads) * kv_slot_bytes(kv->type_k, kv->head_dim);
    type_info(kv->type_v)->dequantize(v, out, (size_t)(n * kv->n_kv_heads) * (size_t)kv->head_dim);
    free(stored);
}

// Copies the loaded V of the step's tokens before the layer overwrites it.
static void keep_values(const Blend *b, const Layer *l) {
    const KvPool *kv = &b->context->kv->pool[l->kv_kind];
    size_t row = (size_t)kv->n_kv_heads * (size_t)kv->head_dim;
    int *blocks = mem_alloc((size_t)b->q->n_blocks * sizeof *blocks);
    kvcache_table(b->context->kv, b->q, l->kv_kind, blocks);
    for (int i = 0; i < b->n_going; i++)
        if (b->kept[b->going[i]]) read_values(kv, l, blocks, b->going[i], 1, b->values + (size_t)b->going[i] * row);
    free(blocks);
}

static void wait_for_layer(void *arg, const Layer *l) {
    Blend *b = arg;
    double start = clock_now();
    if (b->phase == BLEND_CHECK) return; // rows that continue after the check layer are tokens before the first chunk
    if (b->loader) loader_wait(b->loader, l);
    b->stats.load_seconds += clock_now() - start;
    if (b->n_going > 0 && l->index > b->check->index) keep_values(b, l);
}

// Writes the deviations of rows [first, first + n) of the batch, whose slots are consecutive, to `out`.
static void find_deviations(const Blend *b, const Layer *l, const KvPool *kv, const Batch *batch, int first, int n,
                            double *out) {
    size_t row = (size_t)kv->n_kv_heads * (size_t)kv->head_dim;
    float *fresh = mem_alloc((size_t)n * row * sizeof *fresh);
    int slot = batch->slot[first];
    const int *blocks = batch_table(batch, kv) + (size_t)batch->seq[first] * (size_t)batch->max_blocks;
    read_values(kv, l, blocks, slot, n, fresh);
    for (int i = 0; i < n; i++)
        if (b->kept[slot + i])
            out[i] = plan_deviation(fresh + (size_t)i * row, b->values + (size_t)(slot + i) * row, row);
    free(fresh);
}

// RowsEnd.choose of the check layer: computes the deviations of tokens from the first chunk on, and ends these rows.
static int end_in_check(void *arg, const Layer *l, const KvPool *kv, const Batch *batch, int first, int n, int *rows) {
    Blend *b = arg;
    int n_out = 0;
    double start = clock_now();
    if (b->loader) loader_wait(b->loader, l);
    b->stepped += clock_now() - start; // excludes the waiting time
    while (n_out < n && batch->slot[first + n_out] < b->first) rows[n_out] = first + n_out, n_out++;
    if (n_out < n)
        find_deviations(b, l, kv, batch, first + n_out, n - n_out, b->deviation + batch->slot[first + n_out]);
    return n_out;
}

// RowsEnd.choose of the layers after it: ends the rows whose V deviates least, until the share of the layer is left.
static int end_gradually(void *arg, const Layer *l, const KvPool *kv, const Batch *batch, int first, int n, int *rows) {
    Blend *b = arg;
    const BlendPlan *p = &b->plan;
    uint8_t *kept = mem_alloc((size_t)n);
    double *deviation = mem_alloc((size_t)n * sizeof *deviation);
    int layer = b->n_layers - layers_behind(b->context->m, l), n_kept = 0, n_out;
    bool looks = l->kv_kind >= 0 && layer > 0;
    int want = (int)(b->n_most * plan_share(p, layer, b->n_layers) / plan_share(p, 0, b->n_layers) + 1e-9);
    for (int i = 0; i < n; i++) n_kept += kept[i] = b->kept[batch->slot[first + i]];
    looks = looks && n_kept > want;
    for (int i = 0; i < n && looks; i++)
        if (kept[i]) find_deviations(b, l, kv, batch, first + i, 1, &deviation[i]);
    n_out = looks ? plan_choose((double)want / n_kept, kept, deviation, 0, n, rows) : n;
    for (int i = 0; i < n_out; i++) {
        rows[i] = first + (looks ? rows[i] : i);
        b->going[i] = batch->slot[rows[i]];
    }
    b->n_going = n_out;
    free(kept);
    free(deviation);
    return n_out;
}

// ---- open, close ----------------------------------------------------------------------------------------------------

static const Layer *second_with_kv(const Model *m) {
    for (int i = 0, n = 0; i < m->c.n_layers; i++)
        if (m->layers[i].kv_kind >= 0 && n++ == 1) return &m->layers[i];
    return NULL;
}

Blend *blend_new(const BlendContext *context, const BlendSpan *spans, int n_spans, const Policy *next) {
    assert(n_spans > 0);
    Blend *b = mem_alloc(sizeof *b);
    *b = (Blend){.context = context, .n_spans = n_spans, .check = second_with_kv(context->m)};
    b->spans = mem_alloc((size_t)n_spans * sizeof *spans);
    memcpy(b->spans, spans, (size_t)n_spans * sizeof *spans);
    b->damaged = mem_alloc((size_t)n_spans * sizeof *b->damaged);
    b->policy = (Policy){
        .fetch = fetch, .pick = pick, .picked = picked, .preempted = preempted, .end = end, .arg = b, .next = next};
    if (b->check) b->ends = (RowsEnd){b->check->index, end_in_check, b};
    if (b->check) b->n_layers = layers_behind(context->m, b->check) - 1;
    b->thins = (RowsEnd){-1, end_gradually, b};
    b->arrival = (KvArrival){wait_for_layer, b};
    return b;
}

const Policy *blend_policy(const Blend *b) { return &b->policy; }

BlendStats blend_stats(const Blend *b) { return b->stats; }

void blend_free(Blend *b) {
    if (!b) return;
    forget(b);
    free(b->spans);
    free(b->damaged);
    free(b);
}
