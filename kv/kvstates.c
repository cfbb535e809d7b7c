// kv/kvstates.c: see kv/kvstates.h.
#include "kv/kvstates.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

// Checkpoints at regular distances may use 1 / GRID_SHARE of n_checkpoints. The others are for the ends of prompts and
// for the places where other prompts part from them.
enum { GRID_SHARE = 2 };

static size_t host_bytes(const StatePool *p) {
    return (size_t)p->n_states * (size_t)(p->n_layers - p->n_device) * p->floats * sizeof(float);
}

Status kvstates_new(KvStates *s, const KvShape *shape, int n_blocks, int block) {
    *s = (KvStates){.pool = kvshape_states(shape), .back = shape->n_back};
    if (s->pool.n_layers == 0) return OK;
    size_t n = (size_t)s->pool.n_states, bytes = host_bytes(&s->pool);
    bool countable = kvshape_state_bytes(shape) != SIZE_MAX;
    if (countable && bytes > 0) s->pool.data = pages_alloc(bytes, false);
    if (!countable || (bytes > 0 && !s->pool.data))
        return status_error(QUILL_MEMORY,
                            "KV cache: %zu bytes for %d states were refused by the system; try a smaller -c",
                            countable ? bytes : SIZE_MAX, s->pool.n_states);
    if (s->pool.n_device > 0) TRY(s->pool.be->memory->states_new(&s->pool));
    s->refs = mem_alloc(n * sizeof *s->refs);
    s->used = mem_alloc(n * sizeof *s->used);
    s->block_of = mem_alloc(n * sizeof *s->block_of);
    s->of_block = mem_alloc((size_t)n_blocks * sizeof *s->of_block);
    for (size_t i = 0; i < n; i++) s->block_of[i] = -1;
    s->n_left = s->pool.n_states;
    s->n_seqs = int_max(1, shape->n_seqs);
    s->of_one = kvshape_states_of_one(shape);
    for (int i = 0; i < n_blocks; i++) s->of_block[i] = -1;
    s->every = s->block = block;
    int grid = int_max(1, shape->n_checkpoints / GRID_SHARE);
    while (s->every < shape->n_ctx && shape->n_ctx / s->every > grid) s->every *= 2;
    return OK;
}

void kvstates_free(KvStates *s) {
    StatePool *p = &s->pool;
    if (p->data) pages_free(p->data, host_bytes(p));
    if (p->device) p->be->memory->states_free(p);
    free(s->refs);
    free(s->used);
    free(s->block_of);
    free(s->of_block);
    *s = (KvStates){0};
}

static bool on_host(const StatePool *p, int layer) { return layer < p->n_layers - p->n_device; }

void kvstates_load(const KvStates *s, int state, int layer, float *out) {
    const StatePool *p = &s->pool;
    if (on_host(p, layer)) memcpy(out, state_at(p, state, layer), p->floats * sizeof *out);
    else p->be->memory->state_move(p, state, layer, out, false);
}

void kvstates_store(KvStates *s, int state, int layer, const float *values) {
    const StatePool *p = &s->pool;
    if (on_host(p, layer)) memcpy(state_at(p, state, layer), values, p->floats * sizeof *values);
    else p->be->memory->state_move(p, state, layer, (float *)values, true); // only reads them
}

static bool is_idle(const KvStates *s, int i) { return s->refs[i] == 0 || (s->refs[i] == 1 && s->block_of[i] >= 0); }

static void set(KvStates *s, int i, int refs, int block) {
    assert(refs >= 0);
    s->n_left -= is_idle(s, i);
    s->refs[i] = refs;
    s->block_of[i] = block;
    s->n_left += is_idle(s, i);
}

int kvstates_left(const KvStates *s) { return s->n_left; }

int kvstates_reserved(const KvStates *s) { return int_max(0, s->n_seqs - s->n_active) * s->of_one; }

int kvstates_take(KvStates *s) {
    int best = -1;
    for (int i = 0; i < s->pool.n_states; i++) {
        if (!is_idle(s, i)) continue;
        if (s->refs[i] == 0) {
            best = i;
            break;
        }
        if (best < 0 || s->used[i] < s->used[best]) best = i;
    }
    assert(best >= 0);
    if (s->refs[best] > 0) kvstates_forget(s, s->block_of[best]);
    set(s, best, 1, -1);
    return best;
}

void kvstates_share(KvStates *s, int state) { set(s, state, s->refs[state] + 1, s->block_of[state]); }

void kvstates_drop(KvStates *s, int state) { set(s, state, s->refs[state] - 1, s->block_of[state]); }

bool kvstates_is_own(KvStates *s, int state) {
    if (s->refs[state] == 2 && s->block_of[state] >= 0 && kvstates_left(s) == 0) kvstates_forget(s, s->block_of[state]);
    return s->refs[state] == 1;
}

void kvstates_keep(KvStates *s, int block, int state) {
    if (s->of_block[block] >= 0 || s->block_of[state] >= 0) return;
    s->of_block[block] = state;
    set(s, state, s->refs[state] + 1, block);
    s->used[state] = ++s->events;
}

void kvstates_move(KvStates *s, int from, int to) {
    if (s->pool.n_layers == 0 || s->of_block[from] < 0 || s->of_block[to] >= 0) return;
    int state = s->of_block[from];
    s->of_block[from] = -1;
    s->of_block[to] = state;
    s->block_of[state] = to;
}

void kvstates_forget(KvStates *s, int block) {
    if (s->pool.n_layers == 0 || s->of_block[block] < 0) return;
    int state = s->of_block[block];
    s->of_block[block] = -1;
    set(s, state, s->refs[state] - 1, -1);
}

int kvstates_find(KvStates *s, int block) {
    int state = s->of_block[block];
    if (state >= 0) s->used[state] = ++s->events;
    return state;
}
