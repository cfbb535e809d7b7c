// kvcache.c: allocation and sharing of blocks, tail pages and partners. See kvcache.h.
#include "kvcache.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kv/kvplanes.h"
#include "kv/kvrows.h"

int kvcache_most_sequences(const KvCache *kv, int step_rows) {
    int size = kv->pool->block, n = kv->pool[KV_WINDOW].n_blocks;
    if (kv->states.pool.n_layers > 0) return kv->states.pool.n_states;
    if (!kv->partner || n == kv->pool->n_blocks) return INT_MAX;
    return int_max(1, (int)((n - (step_rows + size - 1) / size) / kvshape_partners_of_one(kv->window, size)));
}

// ---- tail pages -----------------------------------------------------------------------------------------------------

// Allocates KvPool.tail_of, the page of each block, which is the same in all layers, and the list of free pages. A
// block and its partner have the same page number.
static void new_tail_tables(KvCache *kv) {
    int n = kv->pool->n_tails;
    if (n == 0) return;
    for (int kind = 0; kind < KV_KINDS; kind++) {
        KvPool *pool = &kv->pool[kind];
        pool->tail_of = mem_alloc((size_t)pool->n_blocks * sizeof *pool->tail_of);
        for (int i = 0; i < pool->n_blocks; i++) pool->tail_of[i] = -1;
    }
    kv->free_tails = mem_alloc((size_t)n * sizeof *kv->free_tails);
    for (int i = 0; i < n; i++) kv->free_tails[i] = n - 1 - i;
    kv->n_free_tails = n;
}

static bool is_sealed(const KvCache *kv) { return kv_any_sealed(kv->pool->type_k, kv->pool->type_v); }

static void set_tail(KvCache *kv, int block, int page) {
    kv->pool[KV_FULL].tail_of[block] = page;
    if (kv->partner && kv->partner[block] >= 0) kv->pool[KV_WINDOW].tail_of[kv->partner[block]] = page;
}

static void take_tail(KvCache *kv, int block) {
    if (kv->pool->tail_of[block] < 0) set_tail(kv, block, kv->free_tails[--kv->n_free_tails]);
}

static void drop_tail(KvCache *kv, int block) {
    int page = kv->pool->tail_of ? kv->pool->tail_of[block] : -1;
    if (page < 0) return;
    kv->free_tails[kv->n_free_tails++] = page;
    set_tail(kv, block, -1);
}

static bool copy_pending(const KvCache *kv, int block) {
    for (int i = 0; i < kv->n_copies; i++)
        if (kv->copies[i][0] == block) return true;
    return false;
}

// Whether a pending copy reads the block; then its page and partner are freed after the step (drop_late).
static bool waits_for_copy(KvCache *kv, int block) {
    if (!copy_pending(kv, block)) return false;
    if (kv->n_late == kv->cap_late) {
        kv->cap_late = int_max(16, 2 * kv->cap_late);
        kv->late = mem_resize(kv->late, (size_t)kv->cap_late * sizeof *kv->late);
    }
    kv->late[kv->n_late++] = block;
    return true;
}

// Gives back the page of a block that no sequence uses.
static void drop_free_tail(KvCache *kv, int block) {
    if (!kv->pool->tail_of || kv->pool->tail_of[block] < 0 || waits_for_copy(kv, block)) return;
    drop_tail(kv, block);
}

// ---- partners -------------------------------------------------------------------------------------------------------

// Rounds a slot down to the first of its group with sealed types. 0 if partners are never freed.
static int slot_of_window(const KvCache *kv, int slot) {
    if (!kv->partner || kv->keep_partners) return 0;
    return is_sealed(kv) ? slot / SEAL * SEAL : slot;
}

// The first slot that layers with a window keep if the next row is at slot n. With chunks these are as many slots as
// without, so that a sequence can return to the chunk before.
static int first_seen(const KvCache *kv, int n) { return slot_of_window(kv, int_max(0, n + 1 - kv->window)); }

// The first slot that the row at slot n reads in layers with a window.
static int first_read(const KvCache *kv, int n) {
    return slot_of_window(kv, heads_oldest(&(Heads){.window = kv->window, .chunked = kv->chunked}, n));
}

static bool has_idle_partner(const KvCache *kv, int block) {
    return kv->partner[block] >= 0 && kv->viewers[block] == 0 && !copy_pending(kv, block);
}

// Whether partners can be found for n blocks.
static bool partners_left(const KvCache *kv, int n) {
    if (!kv->partner) return true;
    n -= kv->n_free_partners;
    for (int i = 0; i < kv->pool->n_blocks && n > 0; i++) n -= has_idle_partner(kv, i);
    return n <= 0;
}

// Takes a partner from a named block whose slots no sequence sees.
static int steal_partner(KvCache *kv) {
    while (!has_idle_partner(kv, kv->hand)) kv->hand = (kv->hand + 1) % kv->pool->n_blocks;
    int found = kv->partner[kv->hand];
    kv->partner[kv->hand] = -1;
    return found;
}

// Finds a partner for a block that was just taken, which one sequence sees.
static void take_partner(KvCache *kv, int block) {
    if (!kv->partner) return;
    kv->viewers[block] = 1;
    if (kv->partner[block] >= 0) return; // the block kept its partner
    kv->partner[block] = kv->n_free_partners > 0 ? kv->free_partners[--kv->n_free_partners] : steal_partner(kv);
    if (kv->pool->tail_of) kv->pool[KV_WINDOW].tail_of[kv->partner[block]] = kv->pool->tail_of[block];
}

// Frees the partner unless a sequence sees it or may find it by the block's name.
static void drop_idle_partner(KvCache *kv, int block) {
    if (kv->viewers[block] > 0 || kv->partner[block] < 0 || kv->names.of_block[block].found) return;
    if (waits_for_copy(kv, block)) return;
    if (kv->pool->tail_of) kv->pool[KV_WINDOW].tail_of[kv->partner[block]] = -1;
    kv->free_partners[kv->n_free_partners++] = kv->partner[block];
    kv->partner[block] = -1;
}

// Records that one sequence fewer sees the block's partner.
static void leave(KvCache *kv, int block) {
    if (!kv->partner) return;
    kv->viewers[block]--;
    drop_idle_partner(kv, block);
}

// Calls `leave` for the blocks that rows of s from slot n on do not see.
static void leave_unseen(KvCache *kv, Sequence *s, int n) {
    int seen = int_min(first_seen(kv, n) / kv->pool->block, s->n_blocks);
    for (; s->n_unseen < seen; s->n_unseen++) leave(kv, s->blocks[s->n_unseen]);
}

// After the step: frees the pages and partners of released blocks that were not taken again.
static void drop_late(KvCache *kv) {
    if (kv->n_copies > 0) return;
    while (kv->n_late > 0) {
        int block = kv->late[--kv->n_late];
        if (kv->refs[block] == 0) drop_tail(kv, block);
        if (kv->partner) drop_idle_partner(kv, block);
    }
}

static void new_partners(KvCache *kv) {
    int n = kv->pool[KV_WINDOW].n_blocks;
    if (kv->pool[KV_WINDOW].n_layers == 0) return;
    kv->partner = mem_alloc((size_t)kv->pool->n_blocks * sizeof *kv->partner);
    kv->viewers = mem_alloc((size_t)kv->pool->n_blocks * sizeof *kv->viewers);
    kv->free_partners = mem_alloc((size_t)n * sizeof *kv->free_partners);
    for (int i = 0; i < kv->pool->n_blocks; i++) kv->partner[i] = -1;
    for (int i = 0; i < n; i++) kv->free_partners[i] = n - 1 - i;
    kv->n_free_partners = n;
}

// ---- pages of open groups -------------------------------------------------------------------------------------------

// The first slot that writing at `slot` may touch: sealing writes the whole group.
static int first_touched(const KvCache *kv, int slot) { return is_sealed(kv) ? slot / SEAL * SEAL : slot; }

// Finds the logical blocks whose groups need pages while slots up to n_slots are written: the block of the group that
// is open now, and of the group that will be open then; -1: none. Frees the pages of groups that have been sealed.
static void open_blocks(KvCache *kv, const Sequence *s, int n_slots, int *now, int *then) {
    int size = kv->pool->block;
    *now = *then = -1;
    if (!is_sealed(kv)) return;
    for (int i = 0; i < s->n_blocks && i < first_touched(kv, sequence_slots(s)) / size; i++)
        drop_tail(kv, s->blocks[i]);
    if (sequence_slots(s) % SEAL) *now = first_touched(kv, sequence_slots(s)) / size;
    if (n_slots % SEAL) *then = first_touched(kv, n_slots) / size;
}

// Whether logical block i of s needs a new page: it has none, or it is shared and will be copied with its page.
static bool lacks_tail(const KvCache *kv, const Sequence *s, int i) {
    if (i < 0) return false;
    return i >= s->n_blocks || kv->pool->tail_of[s->blocks[i]] < 0 || kv->refs[s->blocks[i]] > 1;
}

Status kvcache_new(KvCache *kv, const KvShape *s) {
    *kv =
        (KvCache){.max_slots = s->n_ctx, .window = s->window, .chunked = s->chunked, .keep_partners = s->keep_partners};
    for (int kind = 0; kind < KV_KINDS; kind++) kv->pool[kind] = kvshape_pool(s, kind);
    int n = kv->pool->n_blocks;
    Status st = OK;
    for (int kind = 0; kind < KV_KINDS && !st.code; kind++) st = kvplanes_new(&kv->pool[kind], s);
    if (!st.code) st = kvstates_new(&kv->states, s, n, kv->pool->block);
    if (st.code) {
        kvcache_free(kv);
        return st;
    }
    new_partners(kv);
    new_tail_tables(kv);
    kv->refs = mem_alloc((size_t)n * sizeof *kv->refs);
    kv->ring = mem_alloc(((size_t)n + 1) * sizeof *kv->ring);
    for (int i = 0; i <= n; i++) kv->ring[i] = (KvLinks){.prev = i ? i - 1 : n, .next = i < n ? i + 1 : 0};
    kv->n_free = n;
    // with sealed types a block can only be shared if it is whole groups
    kvnames_new(&kv->names, n, kv->pool->block, s->share && (!is_sealed(kv) || kv->pool->block % SEAL == 0));
    return OK;
}

Status kvcache_check_dense(const KvPool *kv, const char *feature) {
    if (!kv_any_sealed(kv->type_k, kv->type_v)) return OK;
    return status_error(QUILL_USAGE, "%s: dense KV expected, found %s and %s; add -ctk f16 -ctv f16", feature,
                        type_name(kv->type_k), type_name(kv->type_v));
}

Status kvcache_check_alike(const KvPool kv[KV_KINDS], int n_layers, const char *feature) {
    const KvPool *full = &kv[KV_FULL], *window = &kv[KV_WINDOW];
    bool both = full->n_layers > 0 && window->n_layers > 0;
    bool same = !both || (full->n_kv_heads == window->n_kv_heads && full->head_dim == window->head_dim);
    if (same && kv_n_layers(kv) == n_layers && !full->v_in_k && kv_v_dim(full) == full->head_dim) return OK;
    return status_error(QUILL_USAGE,
                        "%s: a model whose layers all have K and V of one shape expected; this one's differ, are "
                        "shared among layers, or are compressed",
                        feature);
}

void kvcache_free(KvCache *kv) {
    for (int kind = 0; kind < KV_KINDS; kind++) {
        kvplanes_free(&kv->pool[kind]);
        free(kv->pool[kind].tail_of);
    }
    kvstates_free(&kv->states);
    kvnames_free(&kv->names);
    free(kv->free_tails);
    free(kv->late);
    free(kv->partner);
    free(kv->viewers);
    free(kv->free_partners);
    free(kv->partner_copies);
    free(kv->refs);
    free(kv->ring);
    free(kv->copies);
    *kv = (KvCache){0};
}

// ---- rows of a sequence ---------------------------------------------------------------------------------------------

void kvcache_table(const KvCache *kv, const Sequence *s, int kind, int *out) {
    if (kind == KV_FULL && s->n_blocks > 0) memcpy(out, s->blocks, (size_t)s->n_blocks * sizeof *out);
    if (kind == KV_FULL || !kv->partner) return;
    for (int i = 0; i < s->n_blocks; i++) out[i] = int_max(0, kv->partner[s->blocks[i]]);
}

// Reads or writes rows [first, first + n) of a sequence. The table of partners is filled only for the blocks of these
// rows, because a long sequence is moved in many pieces.
static void move_rows(const KvCache *kv, const Sequence *s, int layer, int first, int n, void *rows, bool store) {
    int n_full = kv->pool[KV_FULL].n_layers, kind = layer < n_full ? KV_FULL : KV_WINDOW;
    const KvPool *pool = &kv->pool[kind];
    int *partners = NULL;
    if (kind == KV_WINDOW) {
        assert(first >= s->n_unseen * pool->block);
        layer -= n_full;
        partners = mem_alloc((size_t)s->n_blocks * sizeof *partners);
        for (int i = first / pool->block; i * pool->block < first + n; i++) partners[i] = kv->partner[s->blocks[i]];
    }
    const int *table = partners ? partners : s->blocks;
    if (store) kvrows_write((KvPool *)pool, layer, table, first, n, rows);
    else kvrows_read(pool, layer, table, first, n, rows);
    free(partners);
}

void kvcache_load_rows(const KvCache *kv, const Sequence *s, int layer, int first, int n, void *out) {
    move_rows(kv, s, layer, first, n, out, false);
}

void kvcache_store_rows(KvCache *kv, const Sequence *s, int layer, int first, int n, const void *rows) {
    move_rows(kv, s, layer, first, n, (void *)rows, true);
}

// ---- free blocks ----------------------------------------------------------------------------------------------------

// Puts a block into the ring before `next`.
static void link_before(KvCache *kv, int block, int next) {
    int prev = kv->ring[next].prev;
    kv->ring[block].prev = prev;
    kv->ring[block].next = next;
    kv->ring[prev].next = kv->ring[next].prev = block;
}

static void unlink_block(KvCache *kv, int block) {
    const KvLinks *b = &kv->ring[block];
    kv->ring[b->prev].next = b->next;
    kv->ring[b->next].prev = b->prev;
}

static void shuffle(int *order, int n, uint64_t seed) {
    for (int i = n - 1; i >= 0; i--) {
        int j = (int)(rng_bits(seed, 0, (uint64_t)i) % (uint64_t)(i + 1)), chosen = order[j];
        order[j] = order[i];
        order[i] = chosen;
    }
}

void kvcache_shuffle(KvCache *kv, uint64_t seed) {
    int end = kv->pool->n_blocks, n = kv->n_free, *order = mem_alloc((size_t)n * sizeof *order + 1);
    for (int i = 0, b = kv->ring[end].next; i < n; i++, b = kv->ring[b].next) order[i] = b;
    kv->ring[end].prev = kv->ring[end].next = end;
    shuffle(order, n, seed);
    for (int i = n - 1; i >= 0; i--) link_before(kv, order[i], end);
    free(order);
    shuffle(kv->free_partners, kv->n_free_partners, seed + 1);
}

// ---- sequences ------------------------------------------------------------------------------------------------------

void sequence_alter(Sequence *s, int first) {
    s->altered_from = s->altered ? int_min(s->altered_from, first) : first;
    s->altered = true;
}

void sequence_push(Sequence *s, const int *tokens, int n) {
    if (n == 0) return;
    if (s->n_tokens + n > s->cap_tokens) {
        s->cap_tokens = int_max(s->n_tokens + n, s->cap_tokens * 2);
        s->tokens = mem_resize(s->tokens, (size_t)s->cap_tokens * sizeof *s->tokens);
    }
    memcpy(s->tokens + s->n_tokens, tokens, (size_t)n * sizeof *tokens);
    s->n_tokens += n;
}

void sequence_free(Sequence *s) {
    free(s->tokens);
    free(s->blocks);
    free(s->states.list);
    *s = (Sequence){0};
}

static void push_block(Sequence *s, int block) {
    if (s->n_blocks == s->cap_blocks) {
        s->cap_blocks = s->cap_blocks ? 2 * s->cap_blocks : 8;
        s->blocks = mem_resize(s->blocks, (size_t)s->cap_blocks * sizeof *s->blocks);
    }
    s->blocks[s->n_blocks++] = block;
}

// Called before the block's slots are overwritten.
static void forget_name(KvCache *kv, int block) {
    kvnames_forget(&kv->names, block);
    kvstates_forget(&kv->states, block);
}

static int take_block(KvCache *kv) {
    int block = kv->ring[kv->pool->n_blocks].next;
    assert(kv->n_free > 0 && kv->refs[block] == 0);
    unlink_block(kv, block);
    forget_name(kv, block);
    kv->n_free--;
    kv->refs[block] = 1;
    take_partner(kv, block);
    return block;
}

// Adds a reference to a block. seen: the next row of the new sequence sees it.
static void share_block(KvCache *kv, int block, bool seen) {
    if (kv->partner) kv->viewers[block] += seen;
    if (kv->refs[block]++ > 0) return;
    unlink_block(kv, block);
    kv->n_free--;
}

// Releases the last block of s.
static void drop_block(KvCache *kv, Sequence *s) {
    int block = s->blocks[--s->n_blocks];
    assert(kv->refs[block] > 0);
    if (s->n_blocks >= s->n_unseen) leave(kv, block);
    s->n_unseen = int_min(s->n_unseen, s->n_blocks);
    // A pending copy into the block stays in the list: copies are executed in order before any write, so a needless
    // one does no harm, and a later copy may read its result.
    if (--kv->refs[block] > 0) return;
    drop_free_tail(kv, block);
    int end = kv->pool->n_blocks;
    if (!kv->names.of_block[block].found) forget_name(kv, block);
    link_before(kv, block, kv->names.of_block[block].found ? end : kv->ring[end].next);
    kv->n_free++;
}

static void push_copy(KvCache *kv, int from, int to) {
    if (kv->n_copies == kv->cap_copies) {
        kv->cap_copies = int_max(16, 2 * kv->cap_copies);
        kv->copies = mem_resize(kv->copies, (size_t)kv->cap_copies * sizeof *kv->copies);
        if (kv->partner)
            kv->partner_copies = mem_resize(kv->partner_copies, (size_t)kv->cap_copies * sizeof *kv->partner_copies);
    }
    if (kv->partner) {
        kv->partner_copies[kv->n_copies][0] = kv->partner[from];
        kv->partner_copies[kv->n_copies][1] = kv->partner[to];
    }
    kv->copies[kv->n_copies][0] = from;
    kv->copies[kv->n_copies++][1] = to;
}

// ---- states of recurrent layers -------------------------------------------------------------------------------------

void kvcache_advance(KvCache *kv, Sequence *s, int n) {
    s->n_cached += n;
    seqstates_advance(&kv->states, &s->states, s->blocks, s->n_tokens, s->n_cached - n, s->n_cached);
}

void kvcache_put_states(const KvCache *kv, const Sequence *s, int first, int seq, int first_row, Batch *b) {
    b->states = NULL;
    if (kv->states.pool.n_layers == 0) return;
    b->states = (StatePool *)&kv->states.pool;
    b->state_in[seq] = -1;
    int last = first;
    for (int i = 0; i < s->states.n; i++) {
        const SeqState *e = &s->states.list[i];
        if (e->n_tokens == first) b->state_in[seq] = e->state;
        for (; last < e->n_tokens; last++) b->state_out[first_row + last - first] = -1;
        if (e->n_tokens > first) b->state_out[first_row + last - 1 - first] = e->state;
    }
}

int kvcache_state(const Sequence *s, int n_tokens) {
    for (int i = 0; i < s->states.n; i++)
        if (s->states.list[i].n_tokens == n_tokens) return s->states.list[i].state;
    return -1;
}

// ---- slots ----------------------------------------------------------------------------------------------------------

// kvcache_reserve without the states, for slots of the context.
static bool reserve_slots(KvCache *kv, Sequence *s, int n_slots) {
    drop_late(kv);
    leave_unseen(kv, s, sequence_slots(s));
    int size = kv->pool->block, need = (n_slots + size - 1) / size;
    // Blocks that rows up to n_slots write into: shared ones among them are copied first.
    int first_written = first_touched(kv, sequence_slots(s)) / size, n_shared = 0, open_now, open_then;
    for (int i = first_written; i < s->n_blocks && i < need; i++) n_shared += kv->refs[s->blocks[i]] > 1;
    int n_new = n_shared + int_max(0, need - s->n_blocks);
    if (n_new > kv->n_free || !partners_left(kv, n_new)) return false;
    open_blocks(kv, s, n_slots, &open_now, &open_then);
    if (lacks_tail(kv, s, open_now) + (open_then != open_now && lacks_tail(kv, s, open_then)) > kv->n_free_tails)
        return false;

    for (int i = first_written; i < s->n_blocks && i < need; i++) {
        int old = s->blocks[i];
        if (kv->refs[old] == 1) { // a pending copy may still read it: copies are made before any write
            forget_name(kv, old);
            continue;
        }
        s->blocks[i] = take_block(kv);
        if (i * size < sequence_slots(s)) push_copy(kv, old, s->blocks[i]); // it holds slots that stay
        kv->refs[old]--;
        leave(kv, old);
    }
    while (s->n_blocks < need) push_block(s, take_block(kv));
    if (open_now >= 0) take_tail(kv, s->blocks[open_now]);
    if (open_then >= 0) take_tail(kv, s->blocks[open_then]);
    return true;
}

bool kvcache_reserve_drafts(KvCache *kv, Sequence *s, int n_slots, int n_drafts) {
    SeqStates *states = &s->states;
    int had = states->n > 0 ? states->list[states->n - 1].n_tokens : 0;
    if (n_slots > kv->max_slots) return false;
    bool planned = seqstates_plan(&kv->states, states, s->n_cached, s->n_tokens, n_slots, n_drafts);
    if (planned && reserve_slots(kv, s, n_slots)) return true;
    if (planned) seqstates_drop(&kv->states, states, s->n_cached);
    seqstates_plan(&kv->states, states, s->n_cached, s->n_tokens, had, 0); // the previous plan; its states are free
    return false;
}

bool kvcache_reserve_ahead(KvCache *kv, Sequence *s, int n_slots) {
    if (n_slots > kv->max_slots || !seqstates_plan_ahead(&kv->states, &s->states, n_slots)) return false;
    if (reserve_slots(kv, s, n_slots)) return true;
    seqstates_drop(&kv->states, &s->states, n_slots - 1);
    return false;
}

bool kvcache_reserve_loaded(KvCache *kv, Sequence *s, int n_slots) {
    return kvcache_reserve_drafts(kv, s, n_slots, -1);
}

bool kvcache_reserve(KvCache *kv, Sequence *s, int n_slots) { return kvcache_reserve_drafts(kv, s, n_slots, 0); }

// Releases the blocks at the end of s that hold none of its slots.
static void drop_behind(KvCache *kv, Sequence *s) {
    int keep = (sequence_slots(s) + kv->pool->block - 1) / kv->pool->block;
    while (s->n_blocks > keep) drop_block(kv, s);
}

void kvcache_truncate(KvCache *kv, Sequence *s, int n_tokens) {
    assert(n_tokens >= 0);
    s->n_tokens = int_min(s->n_tokens, n_tokens);
    if (n_tokens < s->n_cached && s->n_gone > 0) kvcache_release(kv, s);
    seqstates_drop(&kv->states, &s->states, s->n_cached);
    bool back = n_tokens < s->n_cached;
    bool unseals = first_touched(kv, int_min(s->n_cached, n_tokens)) < first_touched(kv, s->n_cached);
    s->n_cached = int_min(s->n_cached, n_tokens);
    if (unseals) s->n_cached = first_touched(kv, s->n_cached);
    if (back && kv->states.pool.n_layers > 0)
        s->n_cached = seqstates_return(&kv->states, &s->states, s->blocks, s->n_cached, is_sealed(kv) ? SEAL : 1);
    if (first_read(kv, sequence_slots(s)) / kv->pool->block < s->n_unseen) kvcache_release(kv, s);
    s->n_named = int_min(s->n_named, s->n_cached / kv->pool->block);
    if (n_tokens <= s->altered_from) s->altered = false;
    drop_behind(kv, s);
}

void kvcache_give_up(KvCache *kv, Sequence *s, int n) {
    assert(n >= 0 && n <= sequence_slots(s));
    s->n_gone += n;
    if (n > 0) sequence_alter(s, 0);
    drop_behind(kv, s);
}

void kvcache_fork(KvCache *kv, const Sequence *from, Sequence *to) {
    assert(to->n_blocks == 0 && to->n_tokens == 0);
    sequence_push(to, from->tokens, from->n_tokens);
    int n = (sequence_slots(from) + kv->pool->block - 1) / kv->pool->block;
    for (int i = 0; i < n; i++) {
        share_block(kv, from->blocks[i], i >= from->n_unseen);
        push_block(to, from->blocks[i]);
    }
    to->n_unseen = from->n_unseen;
    to->n_cached = from->n_cached;
    to->n_named = from->n_named;
    to->alone = from->alone;
    to->altered = from->altered;
    to->altered_from = from->altered_from;
    to->n_gone = from->n_gone;
    if (kv->states.pool.n_layers > 0 && from->n_cached > 0)
        seqstates_set(&kv->states, &to->states, to->n_cached, from->states.list->state);
}

void kvcache_release(KvCache *kv, Sequence *s) {
    drop_late(kv);
    while (s->n_blocks > 0) drop_block(kv, s);
    seqstates_drop(&kv->states, &s->states, -1);
    s->n_cached = s->n_named = s->n_gone = 0;
    s->altered = false;
}

void sequence_end(KvCache *kv, Sequence *s) {
    kvcache_release(kv, s);
    sequence_free(s);
}

// ---- prefixes -------------------------------------------------------------------------------------------------------

// The parent of the first block of a sequence.
static const ChainHash no_parent;

// The parent of the next block that is named or found.
static const ChainHash *last_name(const KvCache *kv, const Sequence *s) {
    return s->n_named ? &kv->names.of_block[s->blocks[s->n_named - 1]].name : &no_parent;
}

// Finds named blocks that hold the next tokens of s. Returns how many; the caller frees *found.
static int find_prefix(const KvCache *kv, const Sequence *s, int **found) {
    int size = kv->pool->block, n = 0, most = (s->n_tokens - 1 - s->n_cached) / size;
    const ChainHash *parent = last_name(kv, s);
    *found = mem_alloc((size_t)int_max(0, most) * sizeof **found);
    for (; n < most; n++) {
        const int *ids = s->tokens + s->n_cached + n * size;
        ChainHash name = chain_next(parent, ids, size);
        int block = kvnames_find(&kv->names, &name, parent, ids);
        if (block < 0) break;
        (*found)[n] = block;
        parent = &kv->names.of_block[block].name;
    }
    return n;
}

// How many of the n found blocks s can take: the next row after them must have partners for all slots that it sees, and
// with recurrent layers the last block must have a checkpoint.
static int usable(const KvCache *kv, const Sequence *s, const int *found, int n) {
    int size = kv->pool->block, best = 0, run = s->n_unseen; // all blocks from `run` on have partners
    for (int i = 0; i < n; i++) {
        int block = s->n_blocks + i;
        if (kv->partner && kv->partner[found[i]] < 0) run = block + 1;
        bool sees = !kv->partner || run <= first_seen(kv, (block + 1) * size) / size;
        bool has_state = kv->states.pool.n_layers == 0 || kv->states.of_block[found[i]] >= 0;
        if (sees && has_state) best = i + 1;
    }
    return best;
}

int kvcache_match_prefix(KvCache *kv, Sequence *s) {
    int size = kv->pool->block;
    bool at_edge = s->n_cached == s->n_blocks * size && s->n_named == s->n_blocks;
    if (!kvcache_shares(kv) || !sequence_shares(s) || !at_edge) return s->n_cached;
    int *found, n = find_prefix(kv, s, &found);
    n = usable(kv, s, found, n);
    s->n_cached += n * size;
    if (n > 0 && kv->states.pool.n_layers > 0)
        seqstates_set(&kv->states, &s->states, s->n_cached, kvstates_find(&kv->states, found[n - 1]));
    s->n_named += n;
    for (int i = 0; i < n; i++) {
        share_block(kv, found[i], true);
        push_block(s, found[i]);
    }
    leave_unseen(kv, s, s->n_cached);
    free(found);
    return s->n_cached;
}

void kvcache_commit(KvCache *kv, Sequence *s, int n_slots) {
    assert(n_slots <= s->n_cached);
    int size = kv->pool->block;
    if (!kvcache_shares(kv) || !sequence_shares(s)) return;
    for (; (s->n_named + 1) * size <= n_slots; s->n_named++) {
        const ChainHash *parent = last_name(kv, s);
        const int block = s->blocks[s->n_named], *ids = s->tokens + s->n_named * size;
        if (kv->names.of_block[block].named) continue; // a sequence that shares the block has named it
        ChainHash name = chain_next(parent, ids, size);
        kvnames_set(&kv->names, block, &name, parent, ids);
        // The index has an older block with these tokens: its checkpoint is the one that others can find.
        if (!kv->names.of_block[block].found)
            kvstates_move(&kv->states, block, kvnames_find(&kv->names, &name, parent, ids));
    }
}
