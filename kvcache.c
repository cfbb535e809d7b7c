// kvcache.c: see kvcache.h.
#include "kvcache.h"

#include "rng.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// ---- sizes ----------------------------------------------------------------------------------------------------------

static int block_slots(const KvShape *s) { return s->block > 0 ? s->block : s->n_ctx; }

static int block_count(const KvShape *s) {
    if (s->n_blocks > 0) return s->n_blocks;
    int block = block_slots(s);
    return (int)(((int64_t)s->n_ctx + block - 1) / block * s->n_seqs);
}

static size_t plane_bytes(const KvShape *s, int n_layers, int type) {
    size_t n = kv_slot_bytes(type, s->head_dim);
    int factors[] = {n_layers, block_count(s), s->n_kv_heads, block_slots(s)};
    for (size_t i = 0; i < ARRAY_LEN(factors); i++)
        if (!size_mul(n, (size_t)factors[i], &n)) return SIZE_MAX;
    return n;
}

// A page a sequence, and a second one for some whose step goes from one group to another.
static int tail_count(const KvShape *s) {
    if (!kv_is_sealed(s->type_k) && !kv_is_sealed(s->type_v)) return 0;
    int n_seqs = int_max(1, s->n_seqs);
    return int_min(block_count(s), n_seqs + int_min(n_seqs, 16));
}

// Of one plane's pages in n_layers layers.
static size_t tail_plane_bytes(const KvShape *s, int n_layers, int type) {
    return kv_is_sealed(type) ? (size_t)tail_count(s) * (size_t)n_layers * (size_t)s->n_kv_heads * SEAL *
                                    (size_t)s->head_dim * sizeof(float)
                              : 0;
}

size_t kv_tail_bytes(const KvShape *s) {
    return tail_plane_bytes(s, s->n_layers, s->type_k) + tail_plane_bytes(s, s->n_layers, s->type_v);
}

size_t kv_bytes(const KvShape *s) {
    size_t n, k = plane_bytes(s, s->n_layers, s->type_k), v = plane_bytes(s, s->n_layers, s->type_v);
    return size_add(k, v, &n) && size_add(n, kv_tail_bytes(s), &n) ? n : SIZE_MAX;
}

size_t kv_host_bytes(const KvShape *s) {
    return kv_bytes(s) == SIZE_MAX ? SIZE_MAX : kv_bytes(s) / (size_t)s->n_layers * (size_t)(s->n_layers - s->n_device);
}

size_t kv_bytes_per_slot(const KvShape *s) {
    return (kv_slot_bytes(s->type_k, s->head_dim) + kv_slot_bytes(s->type_v, s->head_dim)) * (size_t)s->n_layers *
           (size_t)s->n_kv_heads;
}

// ---- tail pages -----------------------------------------------------------------------------------------------------

// The host's pages; false: there is no room for them.
static bool new_tails(KvPool *pool, const KvShape *s) {
    int n_host = s->n_layers - s->n_device;
    size_t k = tail_plane_bytes(s, n_host, s->type_k), v = tail_plane_bytes(s, n_host, s->type_v);
    if (k && !(pool->tail_k = pages_alloc(k, false))) return false;
    return !v || (pool->tail_v = pages_alloc(v, false));
}

// Which block has which page, in all layers.
static void new_tail_table(KvCache *kv) {
    KvPool *pool = &kv->pool;
    if (pool->n_tails == 0) return;
    pool->tail_of = mem_alloc((size_t)pool->n_blocks * sizeof *pool->tail_of);
    kv->free_tails = mem_alloc((size_t)pool->n_tails * sizeof *kv->free_tails);
    for (int i = 0; i < pool->n_blocks; i++) pool->tail_of[i] = -1;
    for (int i = 0; i < pool->n_tails; i++) kv->free_tails[i] = pool->n_tails - 1 - i;
    kv->n_free_tails = pool->n_tails;
}

static void free_tails(KvCache *kv) {
    KvPool *pool = &kv->pool;
    size_t n = kv_tail_index(pool, pool->n_layers - pool->n_device, 0, 0, 0) * sizeof(float);
    pages_free(pool->tail_k, n);
    pages_free(pool->tail_v, n);
    free(pool->tail_of);
    free(kv->free_tails);
    free(kv->late);
}

static void take_tail(KvCache *kv, int block) {
    if (kv->pool.tail_of[block] < 0) kv->pool.tail_of[block] = kv->free_tails[--kv->n_free_tails];
}

static void drop_tail(KvCache *kv, int block) {
    int *page = kv->pool.tail_of ? &kv->pool.tail_of[block] : NULL;
    if (!page || *page < 0) return;
    kv->free_tails[kv->n_free_tails++] = *page;
    *page = -1;
}

static bool copy_pending(const KvCache *kv, int block) {
    for (int i = 0; i < kv->n_copies; i++)
        if (kv->copies[i][0] == block) return true;
    return false;
}

// Of a block that nobody has any more. What a copy is still to read stays until the step has made it.
static void drop_free_tail(KvCache *kv, int block) {
    if (!kv->pool.tail_of || kv->pool.tail_of[block] < 0) return;
    if (!copy_pending(kv, block)) {
        drop_tail(kv, block);
        return;
    }
    if (kv->n_late == kv->cap_late) {
        kv->cap_late = int_max(16, 2 * kv->cap_late);
        kv->late = mem_resize(kv->late, (size_t)kv->cap_late * sizeof *kv->late);
    }
    kv->late[kv->n_late++] = block;
}

// After the step: the pages of those that nobody has taken since.
static void drop_late_tails(KvCache *kv) {
    if (kv->n_copies > 0) return;
    while (kv->n_late > 0) {
        int block = kv->late[--kv->n_late];
        if (kv->refs[block] == 0) drop_tail(kv, block);
    }
}

// The first slot that writing at `slot` may touch: sealing writes the whole group.
static int first_touched(const KvCache *kv, int slot) { return kv->pool.tail_of ? slot / SEAL * SEAL : slot; }

// Finds the logical blocks whose groups need pages while slots up to n_slots are written: that of the group that
// is open now and that of the one open then; -1: no group is. Pages of groups sealed since are given back.
static void open_blocks(KvCache *kv, const Sequence *s, int n_slots, int *now, int *then) {
    int size = kv->pool.block;
    *now = *then = -1;
    if (!kv->pool.tail_of) return;
    for (int i = 0; i < s->n_blocks && i < first_touched(kv, sequence_slots(s)) / size; i++)
        drop_tail(kv, s->blocks[i]);
    if (sequence_slots(s) % SEAL) *now = first_touched(kv, sequence_slots(s)) / size;
    if (n_slots % SEAL) *then = first_touched(kv, n_slots) / size;
}

// Whether that logical block of s has no page, or will be copied, page and all.
static bool lacks_tail(const KvCache *kv, const Sequence *s, int i) {
    if (i < 0) return false;
    return i >= s->n_blocks || kv->pool.tail_of[s->blocks[i]] < 0 || kv->refs[s->blocks[i]] > 1;
}

static void new_index(KvCache *kv) {
    size_t n = (size_t)kv->pool.n_blocks;
    kv->ids = mem_alloc(n * (size_t)kv->pool.block * sizeof *kv->ids);
    for (kv->n_buckets = 1; kv->n_buckets < kv->pool.n_blocks; kv->n_buckets *= 2) {
    }
    kv->buckets = mem_alloc((size_t)kv->n_buckets * sizeof *kv->buckets);
    for (int i = 0; i < kv->n_buckets; i++) kv->buckets[i] = -1;
}

// The host's planes and the device's, each for its layers. After a failure some may be there: kv_free.
static Status new_planes(KvCache *kv, const KvShape *s) {
    KvPool *pool = &kv->pool;
    bool host = s->n_device < s->n_layers, countable = kv_bytes(s) != SIZE_MAX;
    if (host && countable) {
        // Huge pages for small blocks alone: a contiguous block is touched a little in each head's part of each layer,
        // and a huge page for each of these would commit most of a long context at the first token.
        bool huge = s->block > 0;
        pool->k = pages_alloc(pool->bytes_k, huge);
        pool->v = pages_alloc(pool->bytes_v, huge);
    }
    if (!countable || (host && (!pool->k || !pool->v || !new_tails(pool, s))))
        return status_error(QUILL_MEMORY,
                            "KV cache: %zu bytes for %d slots were refused by the system; try a smaller -c",
                            kv_bytes(s), s->n_ctx);
    return s->n_device > 0 ? s->be->memory->kv_new(pool) : OK;
}

Status kv_new(KvCache *kv, const KvShape *s) {
    *kv = (KvCache){.max_slots = s->n_ctx};
    int n = block_count(s), n_host = s->n_layers - s->n_device;
    kv->pool = (KvPool){.n_layers = s->n_layers,
                        .n_blocks = n,
                        .n_kv_heads = s->n_kv_heads,
                        .block = block_slots(s),
                        .head_dim = s->head_dim,
                        .type_k = s->type_k,
                        .type_v = s->type_v,
                        .rotate = s->rotate,
                        .n_tails = tail_count(s),
                        .bytes_k = plane_bytes(s, n_host, s->type_k),
                        .bytes_v = plane_bytes(s, n_host, s->type_v),
                        .n_device = s->n_device,
                        .be = s->be};
    Status st = new_planes(kv, s);
    if (st.code) {
        kv_free(kv);
        return st;
    }
    new_tail_table(kv);
    kv->refs = mem_alloc((size_t)n * sizeof *kv->refs);
    kv->blocks = mem_alloc(((size_t)n + 1) * sizeof *kv->blocks);
    for (int i = 0; i <= n; i++) kv->blocks[i] = (KvBlock){.prev = i ? i - 1 : n, .next = i < n ? i + 1 : 0};
    kv->n_free = n;
    if (s->share && (!kv->pool.tail_of || kv->pool.block % SEAL == 0))
        new_index(kv); // a full block is sealed as a whole
    return OK;
}

Status kv_check_dense(const KvPool *kv, const char *who) {
    if (!kv->tail_of) return OK;
    return status_error(QUILL_USAGE, "%s: dense KV expected, found %s and %s; -ctk f16 -ctv f16 is", who,
                        type_name(kv->type_k), type_name(kv->type_v));
}

void kv_free(KvCache *kv) {
    if (kv->pool.device) kv->pool.be->memory->kv_free(&kv->pool);
    pages_free(kv->pool.k, kv->pool.bytes_k);
    pages_free(kv->pool.v, kv->pool.bytes_v);
    free_tails(kv);
    free(kv->refs);
    free(kv->blocks);
    free(kv->ids);
    free(kv->buckets);
    free(kv->copies);
    *kv = (KvCache){0};
}

// ---- free blocks ----------------------------------------------------------------------------------------------------

// Puts a block into the ring before `next`.
static void link_before(KvCache *kv, int block, int next) {
    int prev = kv->blocks[next].prev;
    kv->blocks[block].prev = prev;
    kv->blocks[block].next = next;
    kv->blocks[prev].next = kv->blocks[next].prev = block;
}

static void unlink_block(KvCache *kv, int block) {
    const KvBlock *b = &kv->blocks[block];
    kv->blocks[b->prev].next = b->next;
    kv->blocks[b->next].prev = b->prev;
}

void kv_shuffle(KvCache *kv, uint64_t seed) {
    int end = kv->pool.n_blocks, n = kv->n_free, *order = mem_alloc((size_t)n * sizeof *order + 1);
    for (int i = 0, b = kv->blocks[end].next; i < n; i++, b = kv->blocks[b].next) order[i] = b;
    kv->blocks[end].prev = kv->blocks[end].next = end;
    for (int i = n - 1; i >= 0; i--) {
        int j = (int)(rng_bits(seed, 0, (uint64_t)i) % (uint64_t)(i + 1)), block = order[j];
        order[j] = order[i];
        link_before(kv, block, end);
    }
    free(order);
}

// ---- names ----------------------------------------------------------------------------------------------------------

static int *ids_of(const KvCache *kv, int block) { return kv->ids + (size_t)block * (size_t)kv->pool.block; }

static int *bucket_of(const KvCache *kv, const ChainHash *name) {
    uint32_t bits; // of a hash that is as good as random
    memcpy(&bits, name->bytes, sizeof bits);
    return &kv->buckets[bits & (uint32_t)(kv->n_buckets - 1)];
}

static bool same_hash(const ChainHash *a, const ChainHash *b) { return memcmp(a, b, sizeof *a) == 0; }

// The block of that name, which must hold those ids after that parent; -1: none.
static int find_block(const KvCache *kv, const ChainHash *name, const ChainHash *parent, const int *ids) {
    for (int i = *bucket_of(kv, name); i >= 0; i = kv->blocks[i].same_bucket) {
        const KvBlock *b = &kv->blocks[i];
        if (same_hash(&b->name, name) && same_hash(&b->parent, parent) &&
            memcmp(ids_of(kv, i), ids, (size_t)kv->pool.block * sizeof *ids) == 0)
            return i;
    }
    return -1;
}

static void name_block(KvCache *kv, int block, const ChainHash *name, const ChainHash *parent, const int *ids) {
    KvBlock *b = &kv->blocks[block];
    b->named = true;
    b->found = find_block(kv, name, parent, ids) < 0;
    b->name = *name;
    b->parent = *parent;
    if (!b->found) return;
    memcpy(ids_of(kv, block), ids, (size_t)kv->pool.block * sizeof *ids);
    int *bucket = bucket_of(kv, name);
    b->same_bucket = *bucket;
    *bucket = block;
}

// Its slots will hold something else.
static void forget_name(KvCache *kv, int block) {
    KvBlock *b = &kv->blocks[block];
    if (b->found) {
        int *at = bucket_of(kv, &b->name);
        while (*at != block) at = &kv->blocks[*at].same_bucket;
        *at = b->same_bucket;
    }
    b->named = b->found = false;
}

// ---- sequences ------------------------------------------------------------------------------------------------------

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
    *s = (Sequence){0};
}

static void push_block(Sequence *s, int block) {
    if (s->n_blocks == s->cap_blocks) {
        s->cap_blocks = s->cap_blocks ? 2 * s->cap_blocks : 8;
        s->blocks = mem_resize(s->blocks, (size_t)s->cap_blocks * sizeof *s->blocks);
    }
    s->blocks[s->n_blocks++] = block;
}

static int take_block(KvCache *kv) {
    int block = kv->blocks[kv->pool.n_blocks].next;
    assert(kv->n_free > 0 && kv->refs[block] == 0);
    unlink_block(kv, block);
    forget_name(kv, block);
    kv->n_free--;
    kv->refs[block] = 1;
    return block;
}

static void share_block(KvCache *kv, int block) {
    if (kv->refs[block]++ > 0) return;
    unlink_block(kv, block);
    kv->n_free--;
}

static void drop_block(KvCache *kv, int block) {
    assert(kv->refs[block] > 0);
    // A pending copy into it stays: copies are made in order and before any write, so that one too many does no harm,
    // and another copy may be waiting to read what it brings.
    if (--kv->refs[block] > 0) return;
    drop_free_tail(kv, block);
    int end = kv->pool.n_blocks;
    if (!kv->blocks[block].found) forget_name(kv, block);
    link_before(kv, block, kv->blocks[block].found ? end : kv->blocks[end].next);
    kv->n_free++;
}

static void push_copy(KvCache *kv, int from, int to) {
    if (kv->n_copies == kv->cap_copies) {
        kv->cap_copies = int_max(16, 2 * kv->cap_copies);
        kv->copies = mem_resize(kv->copies, (size_t)kv->cap_copies * sizeof *kv->copies);
    }
    kv->copies[kv->n_copies][0] = from;
    kv->copies[kv->n_copies++][1] = to;
}

bool kv_reserve(KvCache *kv, Sequence *s, int n_slots) {
    drop_late_tails(kv);
    if (n_slots > kv->max_slots) return false;
    int size = kv->pool.block, need = (n_slots + size - 1) / size;
    // Blocks that rows up to n_slots write into: shared ones among them are copied first.
    int first_written = first_touched(kv, sequence_slots(s)) / size, n_shared = 0, open_now, open_then;
    for (int i = first_written; i < s->n_blocks && i < need; i++) n_shared += kv->refs[s->blocks[i]] > 1;
    if (n_shared + int_max(0, need - s->n_blocks) > kv->n_free) return false;
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
    }
    while (s->n_blocks < need) push_block(s, take_block(kv));
    if (open_now >= 0) take_tail(kv, s->blocks[open_now]);
    if (open_then >= 0) take_tail(kv, s->blocks[open_then]);
    return true;
}

// Drops the blocks that hold no slot of s.
static void drop_behind(KvCache *kv, Sequence *s) {
    int keep = (sequence_slots(s) + kv->pool.block - 1) / kv->pool.block;
    while (s->n_blocks > keep) drop_block(kv, s->blocks[--s->n_blocks]);
}

void kv_truncate(KvCache *kv, Sequence *s, int n_tokens) {
    assert(n_tokens >= 0);
    s->n_tokens = int_min(s->n_tokens, n_tokens);
    if (n_tokens < s->n_cached && s->n_gone > 0) kv_release(kv, s);
    bool unseals = first_touched(kv, int_min(s->n_cached, n_tokens)) < first_touched(kv, s->n_cached);
    s->n_cached = int_min(s->n_cached, n_tokens);
    if (unseals) s->n_cached = first_touched(kv, s->n_cached);
    s->n_named = int_min(s->n_named, s->n_cached / kv->pool.block);
    drop_behind(kv, s);
}

void kv_give_up(KvCache *kv, Sequence *s, int n) {
    assert(n >= 0 && n <= sequence_slots(s));
    s->n_gone += n;
    s->own = true;
    drop_behind(kv, s);
}

void kv_fork(KvCache *kv, const Sequence *from, Sequence *to) {
    assert(to->n_blocks == 0 && to->n_tokens == 0);
    sequence_push(to, from->tokens, from->n_tokens);
    int n = (sequence_slots(from) + kv->pool.block - 1) / kv->pool.block;
    for (int i = 0; i < n; i++) {
        share_block(kv, from->blocks[i]);
        push_block(to, from->blocks[i]);
    }
    to->n_cached = from->n_cached;
    to->n_named = from->n_named;
    to->own = from->own;
    to->n_gone = from->n_gone;
}

void kv_release(KvCache *kv, Sequence *s) {
    drop_late_tails(kv);
    while (s->n_blocks > 0) drop_block(kv, s->blocks[--s->n_blocks]);
    s->n_cached = s->n_named = s->n_gone = 0;
}

// ---- prefixes -------------------------------------------------------------------------------------------------------

static const ChainHash *last_name(const KvCache *kv, const Sequence *s) {
    return s->n_named ? &kv->blocks[s->blocks[s->n_named - 1]].name : &kv->root;
}

int kv_match_prefix(KvCache *kv, Sequence *s) {
    int size = kv->pool.block;
    bool at_edge = s->n_cached == s->n_blocks * size && s->n_named == s->n_blocks;
    if (!kv->ids || s->own || !at_edge) return s->n_cached;
    while (s->n_cached + size < s->n_tokens) {
        const ChainHash *parent = last_name(kv, s);
        ChainHash name = chain_next(parent, s->tokens + s->n_cached, size);
        int block = find_block(kv, &name, parent, s->tokens + s->n_cached);
        if (block < 0) break;
        share_block(kv, block);
        push_block(s, block);
        s->n_cached += size;
        s->n_named++;
    }
    return s->n_cached;
}

void kv_commit(KvCache *kv, Sequence *s, int n_slots) {
    assert(n_slots <= s->n_cached);
    int size = kv->pool.block;
    if (!kv->ids || s->own) return;
    for (; (s->n_named + 1) * size <= n_slots; s->n_named++) {
        const ChainHash *parent = last_name(kv, s);
        const int block = s->blocks[s->n_named], *ids = s->tokens + s->n_named * size;
        if (kv->blocks[block].named) continue; // by a sequence that shares it
        ChainHash name = chain_next(parent, ids, size);
        name_block(kv, block, &name, parent, ids);
    }
}
