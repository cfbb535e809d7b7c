// kv/evict.c: see kv/evict.h.
#include "kv/evict.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/pairs.h"
#include "kv/kvrows.h"
#include "kv/kvturn.h"
#include "request.h"

struct Evict {
    EvictPlan plan;
    KvCache *kv;
    const Model *m;
    int capacity;    // the most slots of a sequence; when they are full, slots are evicted
    uint8_t *sinks;  // (n_layers, sink, n_kv_heads) stored heads: K of the sinks as first computed
    uint8_t *rows;   // K and V of slots of one layer: of the sinks, or of the heavy slots
    int n_turned;    // positions by which the sinks in the cache are rotated
    Probe probe;     // mass NULL: attention sums are not needed
    bool compressed; // snapkv: the prompt has been compressed
    int *keep;       // (capacity) the kept slots of one layer and head
    int *turns;      // (n_layers, n_kv_heads, heavy) h2o: by how many positions each kept slot is rotated
    int *keep_there; // (n_device, n_kv_heads, n <= capacity) the kept slots of all layers on the device
};

// ---- the plan -------------------------------------------------------------------------------------------------------

static Status bad_plan(const char *text) {
    return status_error(QUILL_USAGE,
                        "--evict %.100s: sinks,sink=4,window=1024 or shift,sink=1 or h2o,heavy=512,recent=512 or "
                        "snapkv,cap=2048,window=32 expected, with whole numbers",
                        text);
}

Status evict_parse(const char *text, EvictPlan *out) {
    static const char *const words[] = {"sinks", "shift", "h2o", "snapkv"}; // by EvictKind
    static const struct {
        const char *first, *second; // names; second NULL: there is one number
        double one, two;            // their defaults
    } numbers_of[] = {
        {"sink", "window", 4, 1024}, {"sink", NULL, 1, 0}, {"heavy", "recent", 512, 512}, {"cap", "window", 2048, 32}};
    enum { MOST = INT_MAX / 2 }; // of a number: two of them can be added
    const char *at = text;
    int word = pairs_word(&at, words, ARRAY_LEN(words)), kind = word < 0 ? EVICT_SINKS : word;
    if (word < 0 && !strchr(text, '=')) return bad_plan(text);
    double one = numbers_of[kind].one, two = numbers_of[kind].two;
    const PairsNumber numbers[] = {{numbers_of[kind].first, &one, 0, MOST, .whole = true},
                                   {numbers_of[kind].second, &two, 0, MOST, .whole = true}};
    if (!pairs_read(at, numbers, numbers_of[kind].second ? 2 : 1)) return bad_plan(text);
    bool keeps_ends = kind == EVICT_SINKS || kind == EVICT_SHIFT;
    *out = (EvictPlan){(EvictKind)kind, .sink = keeps_ends ? (int)one : 0, .window = (int)two};
    if (!keeps_ends) out->most = (int)(kind == EVICT_H2O ? one + two : one);
    bool whole = kind == EVICT_SHIFT || (out->window > 0 && (kind == EVICT_SINKS || out->most > out->window));
    return whole ? OK : bad_plan(text);
}

// ---- moving slots ---------------------------------------------------------------------------------------------------

static const KvPool *pool_of(const Evict *e, int layer) { return &e->kv->pool[e->m->layers[layer].kv_kind]; }

static uint8_t *slot_at(const Evict *e, const Sequence *s, bool value, int layer, int head, int slot) {
    const KvPool *kv = pool_of(e, layer);
    size_t size = kv_slot_bytes(value ? kv->type_v : kv->type_k, kv->head_dim);
    int block = s->blocks[slot / kv->block], at = e->m->layers[layer].kv_layer;
    if (kv->kind == KV_WINDOW) block = e->kv->partner[block];
    return (value ? kv->v : kv->k) + kv_slot(kv, at, block, head, slot % kv->block) * size;
}

static float *mass_of(const Evict *e, int layer, int head) {
    size_t at = (size_t)layer * (size_t)e->kv->pool->n_kv_heads + (size_t)head;
    return e->probe.mass + at * (size_t)e->capacity;
}

// By how many positions an eviction of h2o moves the kept slots of a layer and head towards the new tokens.
static int *turns_of(const Evict *e, int layer, int head) {
    size_t at = (size_t)layer * (size_t)e->kv->pool->n_kv_heads + (size_t)head;
    return e->turns + at * (size_t)(e->plan.most - e->plan.window);
}

static void move_slots(const Evict *e, const Sequence *s, int layer, int head, int n) {
    const KvPool *kv = e->kv->pool;
    for (int i = 0; i < n; i++)
        for (int v = 0; v < 2 && e->keep[i] != i; v++)
            memcpy(slot_at(e, s, v, layer, head, i), slot_at(e, s, v, layer, head, e->keep[i]),
                   kv_slot_bytes(v ? kv->type_v : kv->type_k, kv->head_dim));
}

// The list of kept slots of one layer and head on the device: n per head; layers of KV_FULL, then of KV_WINDOW.
static int *keep_there(const Evict *e, int layer, int head, int n) {
    const KvPool *kv = pool_of(e, layer);
    int before = kv->kind == KV_WINDOW ? e->kv->pool[KV_FULL].n_device : 0;
    int at = before + e->m->layers[layer].kv_layer - (kv->n_layers - kv->n_device);
    return e->keep_there + (size_t)(at * kv->n_kv_heads + head) * (size_t)n;
}

// Moves the slots e->keep[0..n), which ascend, to the front in one layer and head. For a layer on the device it only
// notes them; close_up_there moves them. Moves the attention sums likewise.
static void close_up(Evict *e, const Sequence *s, int layer, int head, int n) {
    if (layer < e->m->c.n_layers - e->m->n_device) move_slots(e, s, layer, head, n);
    else memcpy(keep_there(e, layer, head, n), e->keep, (size_t)n * sizeof *e->keep);
    if (!e->probe.mass) return;
    float *mass = mass_of(e, layer, head);
    for (int i = 0; i < n; i++) mass[i] = mass[e->keep[i]];
    memset(mass + n, 0, (size_t)(e->capacity - n) * sizeof *mass);
}

// Moves the kept slots of a device's layers to the front, n in each layer and head.
static void close_up_there(Evict *e, const Sequence *s, int n) {
    if (e->m->n_device == 0) return;
    int *table = mem_alloc((size_t)s->n_blocks * sizeof *table), *keep = e->keep_there;
    for (int kind = 0; kind < KV_KINDS; kind++) {
        KvPool *kv = &e->kv->pool[kind];
        if (kv->n_device == 0) continue;
        kvcache_table(e->kv, s, kind, table);
        kv->be->memory->close_up(kv, table, s->n_blocks, keep, n);
        keep += (size_t)kv->n_device * (size_t)kv->n_kv_heads * (size_t)n;
    }
    free(table);
}

// Copies the attention sums of the layers on the device to the host, or with `store` back.
static void move_mass(Evict *e, bool store) {
    int n = e->m->n_device;
    if (e->probe.device)
        e->m->device->memory->probe_move(&e->probe, e->m->c.n_layers - n, n, e->kv->pool->n_kv_heads, store);
}

// ---- sinks ----------------------------------------------------------------------------------------------------------

// Rotates the sinks' K by `turned` positions, always from the K as first computed, so that roundings do not add up.
static void turn_sinks(Evict *e, const Sequence *s, int turned) {
    KvPool *kv = e->kv->pool;
    size_t n = (size_t)(e->plan.sink * kv->n_kv_heads), bytes = n * kv_slot_bytes(kv->type_k, kv->head_dim);
    uint8_t *first = e->sinks;
    for (int layer = 0; layer < e->m->c.n_layers; layer++, first += bytes) {
        const Layer *l = &e->m->layers[layer];
        kvcache_load_rows(e->kv, s, kvcache_row_layer(e->kv, l), 0, e->plan.sink, e->rows);
        if (e->n_turned == 0) memcpy(first, e->rows, bytes);
        else memcpy(e->rows, first, bytes);
        kvturn_keys(kv, &l->rope, turned, e->rows, n);
        kvcache_store_rows(e->kv, s, kvcache_row_layer(e->kv, l), 0, e->plan.sink, e->rows);
    }
    e->n_turned = turned;
}

static int keep_ends(Evict *e, int n, int n_gone) {
    int sink = e->plan.sink, k = 0;
    for (int i = 0; i < n; i++)
        if (i < sink || i >= sink + n_gone) e->keep[k++] = i;
    return k;
}

// ---- the slots with the most attention ------------------------------------------------------------------------------

typedef struct {
    float mass;
    int slot;
} Looked;

static int more_looked_at(const void *a, const void *b) { // ties: the earlier slot first
    const Looked *x = a, *y = b;
    if (x->mass != y->mass) return x->mass < y->mass ? 1 : -1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static int ascending(const void *a, const void *b) { return *(const int *)a < *(const int *)b ? -1 : 1; }

// Chooses the `most` slots with the most mass among the first `old`, and all slots from `old` to n.
static int keep_heavy(Evict *e, const float *mass, int old, int n, int most) {
    Looked *all = mem_alloc((size_t)old * sizeof *all + 1);
    for (int i = 0; i < old; i++) all[i] = (Looked){mass[i], i};
    qsort(all, (size_t)old, sizeof *all, more_looked_at);
    int k = int_min(most, old);
    for (int i = 0; i < k; i++) e->keep[i] = all[i].slot;
    free(all);
    qsort(e->keep, (size_t)k, sizeof *e->keep, ascending);
    for (int i = old; i < n; i++) e->keep[k++] = i;
    return k;
}

// SnapKV's pooling: the mean over five neighbouring slots.
static void pool_mass(const float *mass, int n, float *out) {
    for (int i = 0; i < n; i++) {
        out[i] = 0;
        for (int k = int_max(0, i - 2); k <= int_min(n - 1, i + 2); k++) out[i] += mass[k] / 5;
    }
}

// Rotates the keys of the first n slots, which are the heavy ones, by e->turns.
static void turn_heavy(Evict *e, const Sequence *s, int n) {
    const KvPool *kv = e->kv->pool;
    size_t size = kv_slot_bytes(kv->type_k, kv->head_dim);
    for (int layer = 0; layer < e->m->c.n_layers && n > 0; layer++) {
        const Layer *l = &e->m->layers[layer];
        kvcache_load_rows(e->kv, s, kvcache_row_layer(e->kv, l), 0, n, e->rows);
        for (int head = 0; head < kv->n_kv_heads; head++) {
            uint8_t *keys = e->rows + (size_t)head * size;
            kvturn_each(kv, &l->rope, turns_of(e, layer, head), keys, n, (size_t)kv->n_kv_heads * size);
        }
        kvcache_store_rows(e->kv, s, kvcache_row_layer(e->kv, l), 0, n, e->rows);
    }
}

// Keeps, in every layer and head, the `most` slots with the largest (pooled) mass of the first `old` slots, and the
// slots from `old` to n. Returns how many are kept, the same number in every layer and head.
static int keep_looked_at(Evict *e, const Sequence *s, int old, int n, int most, bool pooled) {
    const KvPool *kv = e->kv->pool;
    float *mass = mem_alloc((size_t)n * sizeof *mass);
    int kept = 0;
    move_mass(e, false);
    for (int layer = 0; layer < e->m->c.n_layers; layer++)
        for (int head = 0; head < kv->n_kv_heads; head++) {
            if (pooled) pool_mass(mass_of(e, layer, head), old, mass);
            else memcpy(mass, mass_of(e, layer, head), (size_t)old * sizeof *mass);
            kept = keep_heavy(e, mass, old, n, most);
            for (int i = 0; e->turns && i < kept - (n - old); i++)
                turns_of(e, layer, head)[i] = n - kept - (e->keep[i] - i);
            close_up(e, s, layer, head, kept);
        }
    close_up_there(e, s, kept);
    move_mass(e, true);
    free(mass);
    return kept;
}

// ---- open, close ----------------------------------------------------------------------------------------------------

static void begin_anew(Evict *e) {
    size_t n = (size_t)e->m->c.n_layers * (size_t)e->kv->pool->n_kv_heads * (size_t)e->capacity;
    e->n_turned = 0;
    e->compressed = false;
    if (e->probe.mass) memset(e->probe.mass, 0, n * sizeof *e->probe.mass);
    move_mass(e, true);
}

// Allocates the memory that the plan needs; after a failure call evict_free.
static Status make_room(Evict *e) {
    const KvPool *pool = e->kv->pool;
    size_t capacity = (size_t)e->capacity, sink = (size_t)e->plan.sink, kv_heads = (size_t)pool->n_kv_heads;
    size_t heads = (size_t)e->m->c.n_layers * kv_heads, n_device = (size_t)e->m->n_device;
    e->keep = mem_alloc(capacity * sizeof *e->keep);
    if (n_device > 0) e->keep_there = mem_alloc(n_device * kv_heads * capacity * sizeof *e->keep_there);
    if (e->plan.kind == EVICT_SINKS || e->plan.kind == EVICT_SHIFT) {
        e->sinks = mem_alloc(heads * sink * kv_slot_bytes(pool->type_k, pool->head_dim) + 1);
        e->rows = mem_alloc(kvrows_bytes(pool, e->plan.sink) + 1);
        return OK;
    }
    if (e->plan.kind == EVICT_H2O) {
        int heavy = e->plan.most - e->plan.window;
        e->turns = mem_alloc(heads * (size_t)heavy * sizeof *e->turns + 1);
        e->rows = mem_alloc(kvrows_bytes(pool, heavy) + 1);
    }
    e->probe.n_slots = e->capacity;
    e->probe.mass = mem_alloc(heads * capacity * sizeof *e->probe.mass);
    return n_device > 0 ? e->m->device->memory->probe_new(&e->probe, e->m->n_device, pool->n_kv_heads) : OK;
}

Status evict_new(const EvictPlan *plan, const Model *m, KvCache *kv, Evict **out) {
    const KvPool *pool = kv->pool;
    EvictPlan p = *plan;
    if (p.kind == EVICT_SHIFT) p.window = kv->max_slots - p.sink;
    int64_t need = p.kind == EVICT_SINKS || p.kind == EVICT_SHIFT ? (int64_t)p.sink + int_max(p.window, 2) : p.most;
    *out = NULL;
    TRY(kvcache_check_dense(pool, "--evict"));
    if (m->c.n_recurrent > 0)
        return status_error(
            QUILL_MODEL,
            "--evict: a model with attention in all layers expected, found %s, whose recurrent layers keep "
            "what they have read in a state; leave --evict out",
            m->c.arch);
    TRY(kvcache_check_alike(pool, m->c.n_layers, "--evict"));
    const Layer *l = &m->layers[0];
    const char *why = l->heads.chunked                    ? "attention has chunks at fixed positions"
                      : l->kind.qk_norm == QK_NORM_TURNED ? "K has a norm after RoPE" // its weights follow the rotation
                                                          : NULL;
    if (why)
        return status_error(QUILL_MODEL,
                            "--evict: a model whose K can be rotated to other positions expected, found %s, whose %s; "
                            "leave --evict out",
                            m->c.arch, why);
    if (need > kv->max_slots)
        return status_error(QUILL_USAGE,
                            "--evict: at most the %d slots of the context expected, found %lld; -c %lld fits",
                            kv->max_slots, (long long)need, (long long)need);
    Evict *e = mem_alloc(sizeof *e);
    *e = (Evict){.plan = p, .kv = kv, .m = m};
    e->capacity = p.kind == EVICT_SNAPKV ? kv->max_slots : (int)need;
    Status st = make_room(e);
    if (st.code) {
        evict_free(e);
        return st;
    }
    begin_anew(e);
    *out = e;
    return OK;
}

void evict_free(Evict *e) {
    if (!e) return;
    if (e->probe.device) e->m->device->memory->probe_free(&e->probe);
    free(e->keep);
    free(e->keep_there);
    free(e->turns);
    free(e->sinks);
    free(e->rows);
    free(e->probe.mass);
    free(e);
}

bool evict_endless(const Evict *e) { return e->plan.kind != EVICT_SNAPKV; }
bool evict_counts(const Evict *e) { return e->plan.kind == EVICT_H2O; }

// ---- evicting -------------------------------------------------------------------------------------------------------

static void give_up_middle(Evict *e, Sequence *s, int n) {
    const KvPool *kv = e->kv->pool;
    int part = e->plan.kind == EVICT_SHIFT ? 2 : 4, gone = int_max(1, (n - e->plan.sink) / part);
    int kept = keep_ends(e, n, gone);
    for (int layer = 0; layer < e->m->c.n_layers; layer++)
        for (int head = 0; head < kv->n_kv_heads; head++) close_up(e, s, layer, head, kept);
    close_up_there(e, s, kept);
    turn_sinks(e, s, s->n_gone + gone);
    kvcache_give_up(e->kv, s, gone);
}

static void give_up_light(Evict *e, Sequence *s, int n) {
    int old = n - e->plan.window, gone = int_min(int_max(1, e->plan.window / 8), old);
    assert(n <= e->plan.most); // so turn_heavy has room for the kept ones of `old`
    int kept = keep_looked_at(e, s, old, n, old - gone, false);
    if (s->n_tokens > e->m->c.n_ctx_train) turn_heavy(e, s, kept - (n - old));
    kvcache_give_up(e->kv, s, n - kept);
}

static void compress(Evict *e, Sequence *s, int n) {
    int window = e->plan.window,
        kept = n > e->plan.most ? keep_looked_at(e, s, n - window, n, e->plan.most - window, true) : n;
    kvcache_give_up(e->kv, s, n - kept);
    e->compressed = true;
}

int evict_room(Evict *e, Sequence *s, int n_prompt) {
    int n = sequence_slots(s);
    if (s->n_cached == 0) begin_anew(e);
    if (e->plan.kind == EVICT_SNAPKV && !e->compressed && s->n_cached >= n_prompt) compress(e, s, n);
    if (n >= e->capacity && e->plan.kind == EVICT_H2O) give_up_light(e, s, n);
    if (n >= e->capacity && e->sinks) give_up_middle(e, s, n);
    return e->capacity - sequence_slots(s);
}

Probe *evict_probe(Evict *e, const Sequence *s, int n_prompt, int n) {
    if (!e->probe.mass) return NULL;
    e->probe.first_row = e->plan.kind == EVICT_SNAPKV ? int_max(0, n_prompt - e->plan.window - s->n_cached) : 0;
    bool watching = e->plan.kind == EVICT_H2O || (!e->compressed && e->probe.first_row < n);
    return watching ? &e->probe : NULL;
}

// ---- as a policy ----------------------------------------------------------------------------------------------------

static int make_slots(const Policy *p, Request *r) { return evict_room(p->arg, r->seq, r->n_prompt); }

static void watch(const Policy *p, Scheduler *s, StepRows *rows) {
    (void)s;
    rows->probe = evict_probe(p->arg, rows->seq, rows->request->n_prompt, rows->n_known);
}

Policy evict_policy(Evict *e, const Policy *next) {
    return (Policy){.room = make_slots, .endless = evict_endless(e), .propose = watch, .arg = e, .next = next};
}
