// memory_plan.c: see memory_plan.h.
#include "memory_plan.h"

#include <limits.h>
#include <stdio.h>

#include "base/note.h"
#include "base/units.h"

// ---- the budget -----------------------------------------------------------------------------------------------------

static size_t n_slots(const KvShape *s) {
    return s->n_blocks ? (size_t)s->n_blocks * (size_t)s->block : (size_t)s->n_seqs * (size_t)s->n_ctx;
}

static size_t draft_bytes(const DraftMemory *d, const KvShape *s) {
    return d->weights + d->scratch + d->states + d->slot * n_slots(s);
}

void memory_plan_budget(const Model *m, const KvShape *s, size_t scratch, const DraftMemory *draft, Buf *out) {
    char a[24], b[24], c[24];
    size_t available = memory_available();
    buf_printf(out, "  weights    %9s  %d layers\n", units_bytes((double)model_weight_bytes(m), a), m->c.n_layers);
    buf_printf(out, "  KV cache   %9s  %d x %d slots of %s (%s, %s)\n", units_bytes((double)kvshape_bytes(s), a),
               s->n_blocks ? s->n_blocks : s->n_seqs, s->n_blocks ? s->block : s->n_ctx,
               units_bytes((double)kvshape_bytes_per_growth(s), b), type_name(s->type_k), type_name(s->type_v));
    if (s->n_recurrent > 0)
        buf_printf(out, "  of it      %9s  %d states of the %d recurrent layers\n",
                   units_bytes((double)kvshape_state_bytes(s), a), kvshape_states(s).n_states, s->n_recurrent);
    if (kvshape_bytes_per_growth(s) < kvshape_bytes_per_slot(s))
        buf_printf(out, "  of it      %9s  %d x %d slots for %d layers with a window of %d\n",
                   units_bytes((double)kvshape_fixed_bytes(s), a), s->n_partners, s->block, s->n_windowed, s->window);
    buf_printf(out, "  scratch    %9s\n", units_bytes((double)scratch, a));
    if (draft->slot)
        buf_printf(out, "  draft      %9s  weights %s, KV cache %s\n", units_bytes((double)draft_bytes(draft, s), a),
                   units_bytes((double)draft->weights, b),
                   units_bytes((double)(draft->states + draft->slot * n_slots(s)), c));
    buf_printf(out, "  available  %9s\n", available == SIZE_MAX ? "unknown" : units_bytes((double)available, a));
}

Status memory_plan_explain(const MemoryPlan *p, Status st) {
    if (st.code != QUILL_MEMORY) return st;
    Buf budget = {0};
    memory_plan_budget(p->model, &p->shape, p->scratch, &p->draft, &budget);
    device_plan_budget(p->devices, &budget);
    status_append(&st, budget.data);
    buf_free(&budget);
    return st;
}

// ---- the context ----------------------------------------------------------------------------------------------------

static size_t less(size_t a, size_t b) { return a > b ? a - b : 0; }

// Sets how many blocks the layers with a window need: enough for the windows of all sequences. 0: as many as the other
// layers.
static void plan_partners(KvShape *s, int rows) {
    s->n_partners = s->n_windowed > 0 && !s->keep_partners ? kvshape_partners_needed(s, rows) : 0;
}

// Checkpoints of recurrent layers' states: as many as take a quarter of the memory of K and V of n_ctx slots, within
// bounds.
static void plan_checkpoints(KvShape *s, size_t n_ctx) {
    enum { LEAST = 8, MOST = 64 };
    size_t one = kvshape_one_state_bytes(s), kv = kvshape_bytes_per_slot(s) * n_ctx;
    if (one == 0) return;
    s->n_checkpoints = kv / 4 / one < LEAST ? LEAST : kv / 4 / one > MOST ? MOST : (int)(kv / 4 / one);
}

// Whether a cache takes at most `limit` bytes of the host's memory and at most --kv-mem bytes in all.
static bool cache_fits(const KvShape *s, size_t limit, size_t kv_mem) {
    return kvshape_host_bytes(s) <= limit && (!kv_mem || kvshape_bytes(s) <= kv_mem);
}

// The largest context whose KV cache fits (cache_fits), with steps of up to `rows` rows. In a pool: the context of one
// sequence. More slots need more memory, so that halving an interval finds it.
static int context_within(const KvShape *s, int rows, size_t limit, size_t kv_mem) {
    const int unit = s->block ? s->block : 1, most = ((1 << 30) - 1) / (s->n_blocks ? 1 : s->n_seqs) / unit;
    int fits = 0, fails = most + 1; // in blocks
    while (fails - fits > 1) {
        KvShape t = *s;
        int middle = fits + (fails - fits) / 2;
        if (t.n_blocks) t.n_blocks = middle;
        else t.n_ctx = middle * unit;
        plan_partners(&t, rows);
        plan_checkpoints(&t, (size_t)middle * (size_t)unit);
        if (cache_fits(&t, limit, kv_mem)) fits = middle;
        else fails = middle;
    }
    return fits * unit;
}

int memory_plan_most_context(const KvShape *s, int rows, size_t kv_mem) {
    return context_within(s, rows, memory_available(), kv_mem);
}

// What makes room for the context besides a shorter one: more --kv-mem, the widest narrower type with which the cache
// fits, or a smaller -ub. Empty: nothing does.
static const char *way_out(const MemoryPlan *p, size_t limit) {
    static const struct {
        int type;
        const char *words;
    } narrower[] = {{TYPE_F16, " or -ctk f16 -ctv f16"},
                    {TYPE_Q8_0, " or -ctk q8_0 -ctv q8_0"},
                    {TYPE_Q4_0, " or -ctk q4_0 -ctv q4_0"}};
    const KvShape *s = &p->shape;
    if (p->config->kv_mem) return " or a larger --kv-mem";
    for (size_t i = 0; i < ARRAY_LEN(narrower); i++) {
        KvShape t = *s;
        t.type_k = t.type_v = narrower[i].type;
        if (p->config->evict && kv_is_sealed(t.type_k)) break; // refused together
        plan_partners(&t, p->max_rows);
        if (kvshape_bytes(&t) < kvshape_bytes(s) && cache_fits(&t, limit, 0)) return narrower[i].words;
    }
    return kvshape_host_bytes(s) <= limit + p->scratch ? " or a smaller -ub" : "";
}

// The error for a requested context that does not fit: flags to try, and the memory budget. Other programs may take
// memory before the user's next try, so that the named context leaves a thirty-second of it free.
static Status too_large(const MemoryPlan *p, size_t limit) {
    char need[24], have[24], smaller[32] = "a shorter -c";
    const KvShape *s = &p->shape;
    size_t sure = limit == p->config->kv_mem ? limit : limit - limit / 32;
    int fits = context_within(s, p->max_rows, sure, p->config->kv_mem);
    const char *other = way_out(p, sure);
    if (p->config->kv_mem && p->config->kv_mem < limit) limit = p->config->kv_mem;
    if (fits > 512) fits = fits / 256 * 256;
    if (fits > 0) snprintf(smaller, sizeof smaller, "-c %d", fits);
    Status st = status_error(QUILL_MEMORY, "-c %d: the KV cache needs %s, only %s are available%s; try %s%s", s->n_ctx,
                             units_bytes((double)kvshape_bytes(s), need), units_bytes((double)limit, have),
                             p->config->kv_mem ? " within --kv-mem" : "", smaller, other);
    return memory_plan_explain(p, st);
}

KvShape memory_plan_kv_shape(const Model *m) {
    KvShape s = {0};
    kvshape_set_layers(&s, m->layers, m->c.n_layers);
    return s;
}

// ---- a pool of blocks -----------------------------------------------------------------------------------------------

// One of the memories that a pool is in, and what of the pool is in it.
typedef struct {
    size_t limit;        // bytes for K and V
    size_t fixed, block; // bytes of all tail pages, states and blocks of windows, and of one more block
    bool shared;         // the pool takes at most half of it, or one context
} PoolMemory;
enum { POOL_MEMORIES = 3 };

// The host's memory, --kv-mem for both, and the GPU's. Without --kv-mem a pool leaves half of the memory: finished
// sequences leave their blocks for later prompts with the same beginning, so that a pool fills up over time.
static void pool_memories(const MemoryPlan *p, const KvShape *s, size_t host, PoolMemory m[POOL_MEMORIES]) {
    size_t asked = p->config->kv_mem, on_host = kvshape_host_bytes_per_growth(s), all = kvshape_bytes_per_growth(s);
    size_t fixed_host = kvshape_host_fixed_bytes(s), fixed = kvshape_fixed_bytes(s), n = (size_t)s->block;
    m[0] = (PoolMemory){host, fixed_host, on_host * n, !asked && host != SIZE_MAX};
    m[1] = (PoolMemory){asked ? asked : SIZE_MAX, fixed, all * n, false};
    m[2] = (PoolMemory){device_plan_kv_room(p->devices), fixed - fixed_host, (all - on_host) * n,
                        !asked && p->devices->gpu};
}

// The shape of the plan with a pool of n blocks.
static KvShape with_blocks(const MemoryPlan *p, size_t n) {
    KvShape s = p->shape;
    size_t n_slots = n * (size_t)s.block;
    s.n_blocks = (int)n;
    plan_partners(&s, p->max_rows);
    plan_checkpoints(&s, n_slots < (size_t)s.n_ctx ? n_slots : (size_t)s.n_ctx);
    return s;
}

// Whether a pool fits into all memories. Its first `one` blocks may take more than half of a shared memory.
static bool pool_fits(const MemoryPlan *p, const KvShape *s, size_t host, size_t one) {
    PoolMemory m[POOL_MEMORIES];
    size_t n = (size_t)s->n_blocks;
    pool_memories(p, s, host, m);
    for (int i = 0; i < POOL_MEMORIES; i++) {
        size_t limit = m[i].shared && n > one ? m[i].limit / 2 : m[i].limit, all;
        if (!size_mul(m[i].block, n, &all) || !size_add(all, m[i].fixed, &all) || all > limit) return false;
    }
    return true;
}

// How many blocks the largest pool has that fits, with at most a context for each sequence; 0: none fits. More blocks
// need more memory in every part, so that halving an interval finds it.
static size_t most_blocks(const MemoryPlan *p, size_t host, size_t one) {
    size_t wished = one * (size_t)p->shape.n_seqs, fits = 0, fails = (wished < INT_MAX ? wished : INT_MAX) + 1;
    while (fails - fits > 1) {
        size_t middle = fits + (fails - fits) / 2;
        KvShape s = with_blocks(p, middle);
        if (pool_fits(p, &s, host, one)) fits = middle;
        else fails = middle;
    }
    return fits;
}

// Makes the pool as large as fits and returns its number of blocks; 0: not even one block fits, and the pool has one.
static size_t enlarge_pool(MemoryPlan *p, size_t host, size_t one) {
    size_t most = most_blocks(p, host, one);
    p->shape = with_blocks(p, most ? most : 1);
    return most;
}

// Whether the planned pool, whose n blocks are the most that fit, suffices for all of its sequences at once. Either
// each has a whole context, or the fixed bytes take at most half of each memory and, if the context was requested, one
// sequence has a whole context.
static bool pool_suffices(const MemoryPlan *p, size_t host, size_t one, size_t n, bool asked) {
    PoolMemory m[POOL_MEMORIES];
    if (n >= one * (size_t)p->shape.n_seqs) return true;
    pool_memories(p, &p->shape, host, m);
    for (int i = 0; i < POOL_MEMORIES; i++)
        if (m[i].fixed > (m[i].shared ? m[i].limit / 4 : m[i].limit / 2)) return false;
    return n >= 1 && (!asked || n >= one);
}

// Says that the context is shorter than `wished`, the one that memory without bounds would give.
static void note_shorter(const MemoryPlan *p, const char *memory, size_t n_ctx, int wished, const char *advice) {
    note_print(!p->config->verbose, "%s has room for %zu tokens of context in place of %d; %s", memory, n_ctx, wished,
               advice);
}

static void note_shorter_cache(const MemoryPlan *p, size_t n_ctx) {
    bool own = p->config->kv_mem;
    note_shorter(p, own ? "--kv-mem" : "memory", n_ctx, p->shape.n_ctx,
                 own ? "a larger one makes it longer" : "-c sets another size");
}

// Decides the number of blocks of a pool: as many as memory allows, at least one context, at most a context for each
// sequence. `host`: bytes of the host's memory for K and V.
static Status plan_pool(MemoryPlan *p, size_t host, bool asked) {
    KvShape *s = &p->shape;
    int wished = s->n_seqs;
    size_t one = (size_t)kvshape_blocks_of_one(s), most = enlarge_pool(p, host, one);
    while (s->n_seqs > 1 && !pool_suffices(p, host, one, most, asked)) {
        s->n_seqs--;
        most = enlarge_pool(p, host, one);
    }
    if (s->n_seqs < wished)
        note_print(!p->config->verbose, "-np %d: memory has room for %d sequences at once", wished, s->n_seqs);
    if (most < one && (asked || most < 1)) {
        s->n_blocks = (int)one;
        return too_large(p, p->config->kv_mem && p->config->kv_mem < host ? p->config->kv_mem : host);
    }
    if (most < one) {
        note_shorter_cache(p, most * (size_t)s->block);
        s->n_ctx = (int)most * s->block;
    }
    return OK;
}

// The bytes of `limit` that a draft model takes: scratch, and a cache with as many slots as the target's. Both caches
// grow together.
static size_t draft_share(const MemoryPlan *p, size_t limit) {
    size_t fixed = p->draft.scratch + p->draft.states;
    double rest = (double)less(limit, fixed), slot = (double)p->draft.slot;
    double all = slot * p->shape.n_ctx * p->shape.n_seqs;
    double part = rest * slot / (slot + (double)kvshape_host_bytes_per_growth(&p->shape));
    return slot > 0 ? fixed + (size_t)(all < part ? all : part) : 0;
}

KvShape memory_plan_default_shape(const Model *m, int n_ctx, int step_rows) {
    enum { BLOCK = 32 };
    KvShape s = memory_plan_kv_shape(m);
    s.type_k = s.type_v = model_kv_type(m);
    s.n_ctx = n_ctx;
    s.n_seqs = 1;
    s.block = s.n_windowed > 0 || s.n_recurrent > 0 ? BLOCK : 0;
    plan_partners(&s, int_min(step_rows, n_ctx));
    plan_checkpoints(&s, (size_t)n_ctx);
    return s;
}

// ---- the plan -------------------------------------------------------------------------------------------------------

// Sets the types of K and V. If V is a part of K, both must have the same type, and K cannot be rotated, since that
// would rotate V too.
static Status plan_types(const MemoryPlan *p, KvShape *s) {
    int k = p->config->type_k, v = p->config->type_v;
    if (s->v_in_k && k == KV_TYPE_AUTO) k = v;
    s->type_k = k == KV_TYPE_AUTO ? model_kv_type(p->model) : k;
    s->type_v = v != KV_TYPE_AUTO ? v : s->v_in_k ? s->type_k : model_kv_type(p->model);
    s->rotate = p->config->kv_rotate;
    if (!s->v_in_k) return OK;
    if (s->type_v != s->type_k)
        return status_error(QUILL_USAGE, "-ctv %s: %s expected, as -ctk has it: V is a part of K in %s",
                            type_name(s->type_v), type_name(s->type_k), p->model->c.arch);
    if (s->rotate)
        return status_error(QUILL_USAGE,
                            "--kv-rotate: a model whose K and V are stored apart expected; V is a part of "
                            "K in %s",
                            p->model->c.arch);
    return OK;
}

// A step has a row for each sequence: no more sequences than rows run at once.
static void bound_sequences(MemoryPlan *p) {
    if (!p->needs.pooled || p->shape.n_seqs <= p->max_rows) return;
    note_print(!p->config->verbose, "-np %d: a step has at most %d rows (-ub), one for each sequence", p->shape.n_seqs,
               p->max_rows);
    p->shape.n_seqs = p->max_rows;
}

// Sets the most rows of a step: no more than all sequences have slots. Then bounds the sequences.
static void plan_rows(MemoryPlan *p) {
    int n_ctx = p->shape.n_ctx, n_seqs = p->needs.n_seqs;
    p->max_rows =
        int_min(device_plan_ubatch(p->devices, p->config), n_ctx > INT_MAX / n_seqs ? INT_MAX : n_ctx * n_seqs);
    p->max_out = int_min(p->needs.max_out, p->max_rows);
    bound_sequences(p);
}

// Sets the shape that the cache gets if memory allows it. If no context was requested (0), that of the model, or as
// much of it as the mode uses.
static Status plan_shape(MemoryPlan *p, int asked) {
    int trained = int_max(1, p->model->c.n_ctx_train);
    int own = p->needs.ctx_of_use ? int_min(p->needs.ctx_of_use, trained) : trained;
    KvShape *s = &p->shape;
    *s = memory_plan_kv_shape(p->model);
    s->keep_partners = p->config->kv_dir || p->config->evict || p->needs.whole;
    TRY(plan_types(p, s));
    bool paged = p->config->paged || p->needs.pooled || (s->n_windowed > 0 && !s->keep_partners);
    s->block = paged || s->n_recurrent > 0 ? p->config->kv_block : 0; // checkpoints are at block ends
    s->n_ctx = asked ? asked : own;
    s->n_seqs = p->needs.n_seqs;
    s->share = p->needs.pooled;
    plan_checkpoints(s, (size_t)s->n_ctx);
    plan_rows(p);
    plan_partners(s, p->max_rows);
    if (p->needs.pooled) s->n_blocks = kvshape_blocks_of_one(s); // the least that plan_pool gives the pool
    return OK;
}

// ---- what the host computes, after the device plan was made ----

static int host_layers(const MemoryPlan *p) {
    return p->model->c.n_layers - (p->devices->gpu ? p->devices->n_layers : 0);
}

// Bytes of the device layers' experts that stay on the host.
static size_t host_experts(const MemoryPlan *p) { return model_kept_bytes(p->model, host_layers(p)); }

static bool host_computes(const MemoryPlan *p) { return host_layers(p) > 0 || host_experts(p) > 0; }

// Bytes of weights that the host reads from mapped files while it computes.
static size_t mapped_weights(const MemoryPlan *p) {
    size_t all = model_weight_bytes(p->model), layer = all / (size_t)p->model->c.n_layers;
    size_t host = layer * (size_t)host_layers(p) + host_experts(p);
    if (p->config->no_mmap) return p->draft.weights;
    return (host < all ? host : all) + p->draft.weights;
}

// Sets the rows of a step and the host's scratch memory for them.
static void plan_scratch(MemoryPlan *p) {
    plan_rows(p);
    p->scratch = host_computes(p) ? workspace_bytes(p->model, p->n_threads, p->max_rows, p->max_out) : 0;
}

// Bytes of the host's memory for K and V: what the scratch memory and a draft model leave. A context that quill chooses
// leaves room for the weights; a requested one may push them out of memory. SIZE_MAX: not known.
static size_t room_on_host(const MemoryPlan *p, bool asked) {
    size_t limit = memory_available();
    if (limit == SIZE_MAX) return limit;
    limit = less(limit, p->scratch);
    limit = less(limit, draft_share(p, limit));
    if (asked) return limit;
    size_t weights = mapped_weights(p);
    return limit - (weights < limit / 2 ? weights : limit / 2);
}

// Decides the context of a cache that is no pool: the one that the shape has, or, if none was requested, as much of it
// as fits. `host`: bytes of the host's memory for K and V.
static Status plan_context(MemoryPlan *p, size_t host, bool asked) {
    KvShape *s = &p->shape;
    size_t kv_mem = p->config->kv_mem;
    bool countable = s->n_ctx < 1 << 30 && (size_t)s->n_ctx * (size_t)s->n_seqs < 1 << 30;
    if (countable && cache_fits(s, host, kv_mem)) return OK;
    int fits = context_within(s, p->max_rows, host, kv_mem);
    if (asked || fits < 1) return too_large(p, host);
    note_shorter_cache(p, (size_t)fits);
    s->n_ctx = int_min(fits, s->n_ctx);
    plan_checkpoints(s, (size_t)s->n_ctx);
    if (host_computes(p)) plan_scratch(p); // a shorter context may need less
    return OK;
}

Status memory_plan_make(MemoryPlan *p) {
    int asked = p->needs.n_ctx ? p->needs.n_ctx : p->config->ctx_size;
    TRY(plan_shape(p, asked));
    int wished = p->shape.n_ctx;
    TRY(device_plan_make(p->devices, p->config, p->model, &p->shape, !asked, p->max_rows, p->max_out));
    if (p->shape.n_ctx < wished)
        note_shorter(p, "the GPU's memory", (size_t)p->shape.n_ctx, wished,
                     "-c sets another size, -ngl 0 uses the CPU");
    plan_checkpoints(&p->shape, (size_t)p->shape.n_ctx); // the device plan may have changed the context
    plan_scratch(p);                                     // and the device's rows of a step
    size_t host = room_on_host(p, asked);
    TRY(p->needs.pooled ? plan_pool(p, host, asked) : plan_context(p, host, asked));
    device_plan_settle(p->devices, &p->shape);
    return OK;
}

// --mlock keeps the whole file in memory.
Status memory_plan_check_lock(const MemoryPlan *p, size_t file_bytes) {
    char need[24], have[24];
    size_t all, available = memory_available();
    bool fits = size_add(file_bytes, kvshape_host_bytes(&p->shape), &all) && size_add(all, p->scratch, &all) &&
                size_add(all, p->draft.slot ? draft_bytes(&p->draft, &p->shape) : 0, &all) && all <= available;
    if (fits) return OK;
    return memory_plan_explain(
        p, status_error(QUILL_MEMORY,
                        "--mlock: the file, the KV cache and scratch need %s of memory, only %s are "
                        "available; leave --mlock out, or try a smaller -c",
                        units_bytes((double)all, need), units_bytes((double)available, have)));
}
