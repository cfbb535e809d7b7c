// blend/blend.c: see blend/blend.h.
#include "blend/blend.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "blend/loader.h"
#include "kv/kvrows.h"

// Which rows are next.
typedef enum {
    BLEND_PLAIN, // the tokens as they stand
    BLEND_CHECK, // all up to the last chunk's end: those of chunks and between them end in the check layer
    BLEND_AGAIN, // the chosen ones
} BlendPhase;

struct Blend {
    const BlendContext *context;
    Policy policy;
    BlendSpan *spans;
    int n_spans;
    BlendPhase phase;
    const Layer *check;    // the second layer that has K and V; NULL: there is none
    BlendLoader *loader;   // NULL: all is there
    int first, end;        // tokens from the first chunk on, up to the last one's end
    int *rows, n_rows, at; // tokens that have rows in this phase, and how many of them had theirs
    uint8_t *kept;         // (n_tokens) the token has K and V from its chunk, and may keep them
    float *values;         // (n_tokens, kv_dim) V of the check layer that was kept
    double *deviation;     // (n_tokens)
    RowsEnd ends;
    KvArrival arrival;
    BlendStats stats;
};

Status blend_check(const Model *m, const KvPool *kv) {
    TRY(kvcache_check_dense(kv, "--chunk"));
    TRY(kvcache_check_alike(kv, m->c.n_layers, "--chunk"));
    bool fixed = strcmp(m->c.rope_scaling, "longrope") != 0;
    for (int i = 0; i < m->c.n_layers; i++) {
        Mixer mixer = m->layers[i].kind.mixer;
        fixed = fixed && (mixer == MIXER_ATTENTION || mixer == MIXER_NONE);
    }
    if (fixed) return OK;
    return status_error(
        QUILL_MODEL,
        "--chunk: a model whose keys can be moved expected, found %s, whose K and V depend on the length "
        "or on all text before; give the files with -f instead",
        m->c.arch);
}

// ---- loading --------------------------------------------------------------------------------------------------------

static void forget(Blend *b) {
    int bad;
    if (b->loader) loader_end(b->loader, &bad);
    free(b->rows);
    free(b->kept);
    free(b->values);
    free(b->deviation);
    b->loader = NULL;
    b->rows = NULL;
    b->kept = NULL;
    b->values = NULL;
    b->deviation = NULL;
    b->phase = BLEND_PLAIN;
}

static void note(const Blend *b, Status st) {
    if (st.code && !b->context->quiet) fprintf(stderr, "quill: note: %s; that chunk is computed again\n", st.message);
}

// Opens the file of a chunk from slot `first` of the sequence on; false: it has none.
static bool open_chunk(const Blend *b, const int *tokens, BlendSpan span, int first, LoaderChunk *out) {
    const BlendContext *x = b->context;
    int n = x->n_lead + span.n, *ids = mem_alloc((size_t)n * sizeof *ids);
    Status st = OK;
    if (x->n_lead) memcpy(ids, x->lead, (size_t)x->n_lead * sizeof *ids);
    memcpy(ids + x->n_lead, tokens + span.first, (size_t)span.n * sizeof *ids);
    bool found = chunkstore_open(x->store, ids, n, &out->file, &st);
    free(ids);
    note(b, st);
    out->skip = x->n_lead + first - span.first;
    out->first = first;
    out->n = span.first + span.n - first;
    return found;
}

// Opens the chunks behind token `from`; the array is the loader's. NULL: there is none.
static LoaderChunk *open_chunks(Blend *b, const Sequence *q, int from, int *n) {
    LoaderChunk *chunks = mem_alloc((size_t)b->n_spans * sizeof *chunks);
    *n = 0;
    b->stats = (BlendStats){.n_chunks = b->n_spans};
    for (int i = 0; i < b->n_spans; i++) {
        BlendSpan s = b->spans[i];
        int first = int_max(s.first, from);
        if (first >= s.first + s.n) continue;
        LoaderChunk *c = &chunks[*n];
        if (!open_chunk(b, q->tokens, s, first, c)) {
            b->stats.n_lost++;
            continue;
        }
        ++*n;
        b->stats.n_kept += c->n;
        memset(b->kept + first, 1, (size_t)c->n);
        int k = int_max(0, int_min(c->n, s.first + b->context->plan.k - first));
        memset(b->kept + first, 0, (size_t)k);
    }
    if (*n > 0) return chunks;
    free(chunks);
    return NULL;
}

// ---- phases ---------------------------------------------------------------------------------------------------------

static void begin_again(Blend *b, const Sequence *q, int first) {
    const BlendPlan *p = &b->context->plan;
    b->n_rows =
        plan_choose(p->mode == BLEND_CACHEBLEND ? p->ratio : 0, b->kept, b->deviation, first, q->n_tokens, b->rows);
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

// Loads what there is and decides on the rows. Where nothing can be blended, the prompt is computed as it stands.
static void begin(Blend *b, Request *r) {
    const BlendContext *x = b->context;
    Sequence *q = r->seq;
    size_t n = (size_t)q->n_tokens, kv_dim = (size_t)x->kv->pool->n_kv_heads * (size_t)x->kv->pool->head_dim;
    int n_chunks, from = q->n_cached;
    bool checks = x->plan.mode == BLEND_CACHEBLEND && x->plan.ratio > 0;
    if (x->plan.mode == BLEND_FULL || (checks && !b->check)) return;
    b->first = int_max(from, b->spans[0].first);
    b->end = b->spans[b->n_spans - 1].first + b->spans[b->n_spans - 1].n;
    // A copy that is still to be made would overwrite what is loaded.
    if (b->first >= b->end || !kvcache_reserve(x->kv, q, q->n_tokens) || x->kv->n_copies > 0) return;
    b->kept = mem_alloc(n);
    LoaderChunk *chunks = open_chunks(b, q, from, &n_chunks);
    if (!chunks) return;
    b->rows = mem_alloc(n * sizeof *b->rows);
    b->kept[n - 1] = 0; // its logits are wanted
    q->own = true;
    if (checks) {
        b->deviation = mem_alloc(n * sizeof *b->deviation);
        b->values = mem_alloc(n * kv_dim * sizeof *b->values);
    }
    LoaderPlan plan = {.m = x->m,
                       .kv = x->kv,
                       .q = q,
                       .chunks = chunks,
                       .n_chunks = n_chunks,
                       .store = x->store,
                       .check = checks ? b->check->index : -1,
                       .kept = b->values};
    double start = clock_now();
    b->loader = loader_start(&plan);
    b->stats.load_seconds += clock_now() - start;
    if (checks) begin_check(b, from);
    else begin_again(b, q, from);
}

// ---- the policy -----------------------------------------------------------------------------------------------------

static const Policy *behind_with_fetch(const Policy *p) {
    for (p = p->next; p && !p->fetch;) p = p->next;
    return p;
}

static bool fetch(const Policy *p, Request *r, int most) {
    Blend *b = p->arg;
    const BlendContext *x = b->context;
    const Policy *next = behind_with_fetch(p);
    forget(b);
    if (x->ready && !x->ready(x->arg, r->seq->tokens, b->spans, b->n_spans)) return false;
    if (next && !next->fetch(next, r, most)) return false;
    if (r->n_new == 0) begin(b, r); // one that was preempted in its answer is computed as it stands
    return true;
}

static int pick(const Policy *p, Scheduler *s, SeqRows *rows, int most) {
    Blend *b = p->arg;
    (void)s;
    if (b->phase == BLEND_PLAIN) return 0;
    int n = int_min(most, b->n_rows - b->at);
    rows->picked = b->rows + b->at;
    if (b->phase == BLEND_CHECK) {
        rows->n_ending = int_max(0, n - int_max(0, b->first - rows->picked[0]));
        rows->ends = &b->ends;
    }
    if (b->loader) rows->arrival = &b->arrival;
    return n;
}

// The files' layers are there, or the request begins anew without the chunk that is broken.
static bool end_loading(Blend *b, Sequence *q, Request *r) {
    int bad = 0;
    if (!b->loader) return true;
    Status st = loader_end(b->loader, &bad);
    b->loader = NULL;
    if (!st.code) return true;
    note(b, st);
    forget(b);
    for (int i = 0; i < b->n_spans && st.code != QUILL_MODEL; i++) // it stays, and would fail again
        if (b->spans[i].first <= bad && bad < b->spans[i].first + b->spans[i].n) b->spans[i].n = 0;
    kvcache_release(b->context->kv, q);
    r->fetched = false;
    return false;
}

static bool picked(const Policy *p, Scheduler *s, SeqRows *rows) {
    Blend *b = p->arg;
    Sequence *q = rows->seq;
    (void)s;
    if (!end_loading(b, q, rows->request)) return false;
    b->at += rows->n_known;
    int next = b->at < b->n_rows ? b->rows[b->at] : b->end;
    if (b->phase == BLEND_CHECK) {
        q->n_cached = int_min(next, b->first);
        if (b->at == b->n_rows) begin_again(b, q, b->first);
        return true;
    }
    q->n_cached = b->at < b->n_rows ? next : q->n_tokens;
    if (b->at == b->n_rows) b->phase = BLEND_PLAIN;
    return true;
}

static void end(const Policy *p, Scheduler *s, Request *r) {
    forget(p->arg);
    for (p = p->next; p && !p->end;) p = p->next;
    if (p) p->end(p, s, r);
}

// ---- what its rows call ---------------------------------------------------------------------------------------------

static void wait_for_layer(void *arg, const Layer *l) {
    Blend *b = arg;
    double start = clock_now();
    if (b->phase == BLEND_CHECK && l->index <= b->check->index) return; // nothing is loaded there
    loader_wait(b->loader, l);
    b->stats.load_seconds += clock_now() - start;
}

// How far V of these rows, as it is stored, is from what was kept.
static void look(void *arg, const Layer *l, const KvPool *kv, const Batch *batch, int first, int n) {
    Blend *b = arg;
    size_t row = (size_t)kv->n_kv_heads * (size_t)kv->head_dim;
    uint8_t *stored = mem_alloc(kvrows_bytes(kv, n));
    float *fresh = mem_alloc((size_t)n * row * sizeof *fresh);
    int slot = batch->slot[first];
    if (b->loader) loader_wait(b->loader, l);
    kvrows_read(kv, l->kv_layer, batch_table(batch, kv) + (size_t)batch->seq[first] * (size_t)batch->max_blocks, slot,
                n, stored);
    const uint8_t *v = stored + (size_t)(n * kv->n_kv_heads) * kv_slot_bytes(kv->type_k, kv->head_dim);
    type_info(kv->type_v)->dequantize(v, fresh, (size_t)n * row);
    for (int i = 0; i < n; i++)
        if (b->kept[slot + i])
            b->deviation[slot + i] = plan_deviation(fresh + (size_t)i * row, b->values + (size_t)(slot + i) * row, row);
    free(fresh);
    free(stored);
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
    b->policy = (Policy){.fetch = fetch, .pick = pick, .picked = picked, .end = end, .arg = b, .next = next};
    if (b->check) b->ends = (RowsEnd){b->check->index, look, b};
    b->arrival = (KvArrival){wait_for_layer, b};
    return b;
}

const Policy *blend_policy(const Blend *b) { return &b->policy; }

BlendStats blend_stats(const Blend *b) { return b->stats; }

void blend_free(Blend *b) {
    if (!b) return;
    forget(b);
    free(b->spans);
    free(b);
}
