// tests/test_kvcache.c: blocks, their reference counts and their contents, under many random operations.
//
// The test keeps a second, simple record: the tag of every computed slot of each sequence. Tags are written to the real
// pool and copied by the real copy_blocks. After every step each sequence must still read its own tags.
#include "tests/rig/small_kv.h"

#include "cpu/backend.h"

enum { MOST_SEQS = 6, MOST_CTX = 64, MOST_COPIES = 256 };

typedef struct {
    KvCache kv;
    Workspace *none; // unused: copy_blocks needs no workspace
    const Backend *be;
    Sequence seq[MOST_SEQS];
    float tags[MOST_SEQS][MOST_CTX]; // of slots [0, n_cached)
    int reserved[MOST_SEQS];         // slots that the next step computes up to; 0: the sequence has no rows
    uint64_t random;
    float next_tag;
    int n_ctx;
    bool pending; // operations may happen between reserving and the step that makes the copies
} TaggedCache;

static int pick(TaggedCache *k, int n) { return (int)(test_random(&k->random) % (uint64_t)n); }

static void book_open(TaggedCache *k, int block, int n_ctx, int n_blocks, uint64_t seed) {
    *k = (TaggedCache){.random = seed, .n_ctx = n_ctx};
    KvShape s = small_kv_shape(block, n_ctx, n_blocks, MOST_SEQS);
    assert_ok(kvcache_new(&k->kv, &s));
    assert_ok(cpu_backend("scalar", &k->be));
}

static void book_close(TaggedCache *k) {
    for (int i = 0; i < MOST_SEQS; i++) sequence_end(&k->kv, &k->seq[i]);
    assert_int_equal(k->kv.n_free, k->kv.pool->n_blocks); // all blocks are free again
    kvcache_free(&k->kv);
}

// ---- invariants -----------------------------------------------------------------------------------------------------

static void check_counts(const TaggedCache *k) {
    const KvCache *kv = &k->kv;
    int n = kv->pool->n_blocks, refs[256] = {0}, n_unused = 0;
    bool free_seen[256] = {false};
    for (int i = 0; i < MOST_SEQS; i++) {
        const Sequence *s = &k->seq[i];
        assert_true(s->n_cached <= s->n_tokens && s->n_cached <= s->n_blocks * kv->pool->block);
        for (int b = 0; b < s->n_blocks; b++) {
            assert_in_range(s->blocks[b], 0, n - 1);
            refs[s->blocks[b]]++;
        }
    }
    for (int b = 0; b < n; b++) {
        assert_int_equal(kv->refs[b], refs[b]);
        n_unused += refs[b] == 0;
    }
    assert_int_equal(kv->n_free, n_unused);
    for (int i = 0, b = n; i < kv->n_free; i++) {
        b = kv->ring[b].next;
        assert_in_range(b, 0, n - 1);
        assert_false(free_seen[b]);
        assert_int_equal(refs[b], 0);
        free_seen[b] = true;
    }
    int last = kv->ring[n].prev;
    assert_int_equal(kv->ring[last].next, n);
    // The destination of a copy may have been released meanwhile: check_contents shows that this does no harm.
    assert_true(kv->n_copies <= MOST_COPIES);
    for (int i = 0; i < kv->n_copies; i++) {
        assert_in_range(kv->copies[i][0], 0, n - 1);
        assert_in_range(kv->copies[i][1], 0, n - 1);
    }
}

static void tag_at(const TaggedCache *k, int seq, int slot, int layer, int head, float **key, uint16_t **value) {
    const KvPool *p = k->kv.pool;
    size_t at = kv_index(p, layer, k->seq[seq].blocks[slot / p->block], head, slot % p->block);
    *key = (float *)(void *)p->k + at;
    *value = (uint16_t *)(void *)p->v + at;
}

static void write_tag(TaggedCache *k, int seq, int slot, float tag) {
    for (int layer = 0; layer < N_LAYERS; layer++)
        for (int head = 0; head < N_HEADS; head++)
            for (int i = 0; i < HEAD_DIM; i++) {
                float *key;
                uint16_t *value;
                tag_at(k, seq, slot, layer, head, &key, &value);
                key[i] = tag + (float)(layer * 16 + head * 4 + i) / 64;
                value[i] = (uint16_t)((int)tag * 64 + layer * 16 + head * 4 + i);
            }
    k->tags[seq][slot] = tag;
}

static void check_contents(const TaggedCache *k) {
    for (int seq = 0; seq < MOST_SEQS; seq++)
        for (int slot = 0; slot < k->seq[seq].n_cached; slot++)
            for (int layer = 0; layer < N_LAYERS; layer++)
                for (int head = 0; head < N_HEADS; head++)
                    for (int i = 0; i < HEAD_DIM; i++) {
                        float *key, tag = k->tags[seq][slot];
                        uint16_t *value;
                        tag_at(k, seq, slot, layer, head, &key, &value);
                        int part = layer * 16 + head * 4 + i;
                        if (key[i] != tag + (float)part / 64 || value[i] != (uint16_t)((int)tag * 64 + part))
                            fail_msg("sequence %d slot %d layer %d head %d: tag %g expected, %g found", seq, slot,
                                     layer, head, (double)tag, (double)(key[i] - (float)part / 64));
                    }
}

// ---- operations -----------------------------------------------------------------------------------------------------

static void push_tokens(TaggedCache *k, int seq, int n) {
    for (int i = 0; i < n; i++) sequence_push(&k->seq[seq], &(int){pick(k, 1000)}, 1);
}

// The number of blocks that reserving takes, by the rules in the header.
static int blocks_needed(const TaggedCache *k, const Sequence *s, int n_slots) {
    int size = k->kv.pool->block, need = (n_slots + size - 1) / size, n = need > s->n_blocks ? need - s->n_blocks : 0;
    for (int i = s->n_cached / size; i < s->n_blocks && i < need; i++) n += k->kv.refs[s->blocks[i]] > 1;
    return n;
}

typedef struct {
    int refs[256], next[256], blocks[256], copies[MOST_COPIES][2];
    int n_free, n_copies, n_blocks, n_cached, n_tokens;
} Snapshot;

static Snapshot snapshot(const TaggedCache *k, const Sequence *s) {
    Snapshot c = {.n_free = k->kv.n_free,
                  .n_copies = k->kv.n_copies,
                  .n_blocks = s->n_blocks,
                  .n_cached = s->n_cached,
                  .n_tokens = s->n_tokens};
    size_t n = (size_t)k->kv.pool->n_blocks * sizeof(int);
    memcpy(c.refs, k->kv.refs, n);
    for (int b = 0; b <= k->kv.pool->n_blocks; b++) c.next[b] = k->kv.ring[b].next;
    if (c.n_copies) memcpy(c.copies, k->kv.copies, (size_t)c.n_copies * sizeof c.copies[0]);
    if (s->n_blocks) memcpy(c.blocks, s->blocks, (size_t)s->n_blocks * sizeof(int));
    return c;
}

static void reserve(TaggedCache *k, int seq, int n_slots) {
    Sequence *s = &k->seq[seq];
    Snapshot before = snapshot(k, s);
    bool want = n_slots <= k->n_ctx && blocks_needed(k, s, n_slots) <= k->kv.n_free;
    assert_int_equal(kvcache_reserve(&k->kv, s, n_slots), want);
    if (!want) {
        Snapshot after = snapshot(k, s);
        assert_memory_equal(&before, &after, sizeof before);
        return;
    }
    k->reserved[seq] = n_slots;
    assert_true(s->n_blocks * k->kv.pool->block >= n_slots);
    for (int i = s->n_cached / k->kv.pool->block; i < (n_slots + k->kv.pool->block - 1) / k->kv.pool->block; i++)
        assert_int_equal(k->kv.refs[s->blocks[i]], 1); // no other sequence uses the block that will be written
}

// Like a forward: first copies, then the rows' slots.
static void compute(TaggedCache *k) {
    Batch b = {.n_copies = k->kv.n_copies, .copy = k->kv.copies};
    k->be->copy_blocks(k->none, k->kv.pool, &b);
    k->kv.n_copies = 0;
    for (int seq = 0; seq < MOST_SEQS; seq++) {
        for (int slot = k->seq[seq].n_cached; slot < k->reserved[seq]; slot++) {
            write_tag(k, seq, slot, k->next_tag);
            k->next_tag = k->next_tag >= 1000 ? 1 : k->next_tag + 1;
        }
        if (k->reserved[seq]) k->seq[seq].n_cached = k->reserved[seq];
        k->reserved[seq] = 0;
    }
}

static void fork(TaggedCache *k, int from, int to) {
    Sequence *a = &k->seq[from], *b = &k->seq[to];
    kvcache_fork(&k->kv, a, b);
    assert_int_equal(b->n_cached, a->n_cached);
    assert_int_equal(b->n_tokens, a->n_tokens);
    if (a->n_tokens) assert_memory_equal(b->tokens, a->tokens, (size_t)a->n_tokens * sizeof(int));
    memcpy(k->tags[to], k->tags[from], sizeof k->tags[to]);
}

static void truncate_to(TaggedCache *k, int seq, int n) {
    Sequence *s = &k->seq[seq];
    int tokens = int_min(s->n_tokens, n), cached = int_min(s->n_cached, n), size = k->kv.pool->block;
    kvcache_truncate(&k->kv, s, n);
    k->reserved[seq] = 0;
    assert_int_equal(s->n_tokens, tokens);
    assert_int_equal(s->n_cached, cached);
    assert_int_equal(s->n_blocks, (cached + size - 1) / size);
}

static void release(TaggedCache *k, int seq) {
    int tokens = k->seq[seq].n_tokens;
    kvcache_release(&k->kv, &k->seq[seq]);
    k->reserved[seq] = 0;
    assert_int_equal(k->seq[seq].n_blocks, 0);
    assert_int_equal(k->seq[seq].n_cached, 0);
    assert_int_equal(k->seq[seq].n_tokens, tokens);
    if (pick(k, 4)) sequence_free(&k->seq[seq]); // empty, so that it can be forked into
}

// A sequence with computed slots, if one of a few random choices has them.
static int pick_computed(TaggedCache *k) {
    int seq = pick(k, MOST_SEQS);
    for (int i = 0; i < 8 && k->seq[seq].n_cached == 0; i++) seq = pick(k, MOST_SEQS);
    return seq;
}

// The fork replaces a random other sequence and writes at once into the block that both share.
static void fork_and_reserve(TaggedCache *k, int from) {
    int to = (from + 1 + pick(k, MOST_SEQS - 1)) % MOST_SEQS;
    release(k, to);
    sequence_free(&k->seq[to]);
    fork(k, from, to);
    check_counts(k);
    push_tokens(k, to, 1 + pick(k, 3));
    reserve(k, to, k->seq[to].n_cached + 1);
    if (!k->pending) compute(k);
}

// A random operation that changes the use of blocks.
static void change(TaggedCache *k) {
    int seq = pick(k, MOST_SEQS), n = k->seq[seq].n_tokens;
    switch (pick(k, 6)) {
    case 0: push_tokens(k, seq, pick(k, 8)); break;
    case 1: truncate_to(k, seq, pick(k, 3) ? int_max(0, n + 2 - pick(k, 6)) : pick(k, n + 1)); break;
    case 2:
        if (pick(k, 2)) release(k, seq);
        break;
    case 3: kvcache_shuffle(&k->kv, test_random(&k->random)); break;
    default: fork_and_reserve(k, pick_computed(k));
    }
    check_counts(k);
}

// Several sequences reserve slots: for their tokens, for more, or beyond the context.
static void reserve_some(TaggedCache *k) {
    for (int n = pick(k, MOST_SEQS); n >= 0; n--) {
        int seq = pick(k, MOST_SEQS);
        Sequence *s = &k->seq[seq];
        if (s->n_tokens == s->n_cached) push_tokens(k, seq, 1 + pick(k, 6));
        int slots = s->n_cached + 1 + pick(k, s->n_tokens - s->n_cached);
        if (k->reserved[seq] == 0) reserve(k, seq, pick(k, 20) ? slots : k->n_ctx + 1);
        check_counts(k);
    }
}

static void run_book(int block, int n_ctx, int n_blocks, uint64_t seed, bool pending) {
    TaggedCache k;
    book_open(&k, block, n_ctx, n_blocks, seed);
    k.pending = pending;
    for (int step = 0; step < 400; step++) {
        for (int n = pick(&k, 4); n > 0; n--) change(&k);
        reserve_some(&k);
        for (int n = pending ? pick(&k, 5) : 0; n > 0; n--) {
            change(&k);
            reserve_some(&k);
        }
        compute(&k);
        check_counts(&k);
        check_contents(&k);
    }
    book_close(&k);
}

static const struct {
    int block, n_ctx, n_blocks;
} shapes[] = {{1, 20, 40}, {4, 40, 30}, {4, 30, 9}, {16, 64, 12}, {16, 50, 0}, {0, 30, 0}, {0, 30, 3}, {7, 64, 20}};

static void test_random_steps(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (uint64_t seed = 1; seed <= 12; seed++)
            run_book(shapes[i].block, shapes[i].n_ctx, shapes[i].n_blocks, seed * 100 + i, false);
}

// Forks, truncations and releases also happen between reserving and the step that makes the copies.
static void test_random_steps_with_pending_copies(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (uint64_t seed = 1; seed <= 12; seed++)
            run_book(shapes[i].block, shapes[i].n_ctx, shapes[i].n_blocks, seed * 100 + i, true);
}

// ---- values computed by hand ----------------------------------------------------------------------------------------

// Computes the tokens of `seq` up to n_slots.
static void step_to(TaggedCache *k, int seq, int n_slots) {
    if (k->seq[seq].n_tokens < n_slots) push_tokens(k, seq, n_slots - k->seq[seq].n_tokens);
    reserve(k, seq, n_slots);
    compute(k);
    check_counts(k);
    check_contents(k);
}

static void test_copy_on_write(void **state) {
    (void)state;
    TaggedCache k;
    book_open(&k, 4, 40, 20, 1);
    step_to(&k, 0, 10); // blocks of 4, 4 and 2 slots
    fork(&k, 0, 1);
    assert_int_equal(k.kv.n_free, 17); // all blocks are shared
    push_tokens(&k, 1, 1);
    reserve(&k, 1, 11);
    assert_int_equal(k.kv.n_copies, 1); // a copy of the block that is half full; the full ones stay shared
    assert_int_equal(k.kv.copies[0][0], k.seq[0].blocks[2]);
    assert_int_equal(k.kv.copies[0][1], k.seq[1].blocks[2]);
    assert_int_equal(k.seq[0].blocks[1], k.seq[1].blocks[1]);
    compute(&k);
    check_contents(&k);
    step_to(&k, 0, 12); // the block belongs to this sequence alone: no copy
    assert_int_equal(k.kv.n_free, 16);
    release(&k, 0);
    check_counts(&k);
    check_contents(&k); // the other sequence keeps the shared blocks
    book_close(&k);
}

// A fork at the end of a block shares all blocks and copies nothing.
static void test_fork_at_an_edge(void **state) {
    (void)state;
    TaggedCache k;
    book_open(&k, 4, 40, 20, 1);
    step_to(&k, 0, 8);
    fork(&k, 0, 1);
    push_tokens(&k, 1, 1);
    reserve(&k, 1, 9);
    assert_int_equal(k.kv.n_copies, 0);
    compute(&k);
    check_contents(&k);
    truncate_to(&k, 1, 6); // truncates into a shared block: the next write copies it
    push_tokens(&k, 1, 1);
    reserve(&k, 1, 7);
    assert_int_equal(k.kv.n_copies, 1);
    compute(&k);
    check_contents(&k);
    book_close(&k);
}

// K and V count as altered until the altered slots are gone; `alone` stays. Only a sequence with neither is shared.
static void test_altered_slots(void **state) {
    (void)state;
    TaggedCache k;
    book_open(&k, 4, 40, 20, 1);
    Sequence *s = &k.seq[0];
    step_to(&k, 0, 12);
    assert_true(sequence_shares(s));
    sequence_alter(s, 8);
    sequence_alter(s, 5); // the first one counts
    sequence_alter(s, 9);
    assert_false(sequence_shares(s));
    fork(&k, 0, 1);
    assert_false(sequence_shares(&k.seq[1]));
    truncate_to(&k, 0, 6);
    assert_false(sequence_shares(s));
    truncate_to(&k, 0, 5);
    assert_true(sequence_shares(s) && k.seq[1].altered);
    release(&k, 1);
    assert_true(sequence_shares(&k.seq[1]));
    kvcache_give_up(&k.kv, s, 0);
    assert_true(sequence_shares(s));
    kvcache_give_up(&k.kv, s, 2);
    assert_false(sequence_shares(s));
    s->alone = true;
    kvcache_truncate(&k.kv, s, 2); // returns to the beginning, since slots are gone
    assert_true(s->n_cached == 0 && !s->altered && !sequence_shares(s));
    s->alone = false;
    book_close(&k);
}

// Sequence 1 has a pending copy A -> B. Sequence 2 is forked from it and writes too: B -> C. Then sequence 1 may be
// released before the step, and C must still get the content that B was to get. A cache may also refuse the fork.
static void fork_of_a_pending_copy(bool release_middle) {
    TaggedCache k;
    book_open(&k, 4, 40, 20, 1);
    step_to(&k, 0, 6);
    fork(&k, 0, 1);
    push_tokens(&k, 1, 1);
    reserve(&k, 1, 7);
    fork(&k, 1, 2);
    push_tokens(&k, 2, 2);
    reserve(&k, 2, 8);
    if (release_middle) release(&k, 1);
    compute(&k);
    check_counts(&k);
    check_contents(&k);
    book_close(&k);
}

static void test_fork_of_a_pending_copy(void **state) {
    (void)state;
    fork_of_a_pending_copy(false);
}

static void test_release_of_a_pending_copy(void **state) {
    (void)state;
    fork_of_a_pending_copy(true);
}

static void test_full_pool_changes_nothing(void **state) {
    (void)state;
    TaggedCache k;
    book_open(&k, 4, 40, 5, 1);
    step_to(&k, 0, 16);
    fork(&k, 0, 1);
    push_tokens(&k, 1, 10);
    reserve(&k, 1, 20); // one block is left, one is needed
    compute(&k);
    check_contents(&k);
    reserve(&k, 1, 21);     // reserve expects that this is refused
    truncate_to(&k, 0, 14); // truncates into a shared block
    push_tokens(&k, 0, 1);
    reserve(&k, 0, 15); // needs a copy, but no block is free
    assert_int_equal(k.reserved[0], 0);
    release(&k, 1);
    reserve(&k, 0, 15);
    assert_int_equal(k.reserved[0], 15);
    compute(&k);
    check_counts(&k);
    check_contents(&k);
    book_close(&k);
}

// ---- sizes ----------------------------------------------------------------------------------------------------------

static void test_sizes(void **state) {
    (void)state;
    KvShape s = small_kv_shape(16, 100, 0, 3); // 7 blocks for each sequence
    KvCache kv;
    assert_int_equal(kvshape_bytes(&s), (size_t)N_LAYERS * 21 * N_HEADS * 16 * HEAD_DIM * (4 + 2));
    assert_int_equal(kvshape_bytes_per_slot(&s), N_LAYERS * N_HEADS * HEAD_DIM * 6);
    assert_ok(kvcache_new(&kv, &s));
    assert_int_equal(kv.pool->n_blocks, 21);
    assert_int_equal(kv.pool->bytes_k + kv.pool->bytes_v, kvshape_bytes(&s));
    assert_int_equal(kv.n_free, 21);
    assert_int_equal(kv.max_slots, 100);
    kvcache_free(&kv);
    s.block = 0;
    assert_ok(kvcache_new(&kv, &s));
    assert_int_equal(kv.pool->n_blocks, 3);
    assert_int_equal(kv.pool->block, 100);
    kvcache_free(&kv);
    s.n_blocks = 2;
    s.block = 8;
    assert_int_equal(kvshape_bytes(&s), (size_t)N_LAYERS * 2 * N_HEADS * 8 * HEAD_DIM * 6);
}

// One more block for every sequence must take kvshape_bytes_per_growth bytes, on whichever devices the layers are.
static void test_growth(void **state) {
    (void)state;
    for (int n_device = 0; n_device <= 8; n_device++)
        for (int keep = 0; keep < 2; keep++) {
            KvShape s = {.n_layers = 8, .n_windowed = 6, .window = 24, .n_kv_heads = 2, .head_dim = 8, .block = 16};
            s.type_k = TYPE_F32, s.type_v = TYPE_F16, s.n_ctx = 4096, s.n_seqs = 1;
            s.keep_partners = keep;
            s.n_device = n_device;
            s.n_windowed_device = int_min(n_device, 6); // the first two layers have no window
            s.n_partners = kvshape_partners_needed(&s, 16);
            KvShape longer = s;
            longer.n_ctx += 16;
            assert_int_equal(kvshape_bytes(&longer) - kvshape_bytes(&s), 16 * kvshape_bytes_per_growth(&s));
            assert_int_equal(kvshape_host_bytes(&longer) - kvshape_host_bytes(&s),
                             16 * kvshape_host_bytes_per_growth(&s));
        }
}

static void test_refused_sizes(void **state) {
    (void)state;
    KvShape huge = {.n_layers = 1 << 20,
                    .n_kv_heads = 1 << 16,
                    .head_dim = 512,
                    .type_k = TYPE_F32,
                    .type_v = TYPE_F32,
                    .n_ctx = 1 << 30,
                    .n_seqs = 4};
    KvCache kv;
    assert_true(kvshape_bytes(&huge) == SIZE_MAX); // does not fit 64 bits
    Status st = kvcache_new(&kv, &huge);
    assert_int_equal(st.code, QUILL_MEMORY);
    kvcache_free(&kv); // allowed after an error
    huge.n_layers = 128;
    huge.n_kv_heads = 1024;
    assert_true(kvshape_bytes(&huge) < SIZE_MAX); // fits into 64 bits, but not into any machine
    st = kvcache_new(&kv, &huge);
    assert_int_equal(st.code, QUILL_MEMORY);
    assert_non_null(strstr(st.message, "KV cache"));
    kvcache_free(&kv);
}

static void test_sequences(void **state) {
    (void)state;
    Sequence s = {0};
    int tokens[100];
    for (int i = 0; i < 100; i++) tokens[i] = i;
    sequence_push(&s, tokens, 3);
    sequence_push(&s, tokens, 0);
    for (int i = 0; i < 50; i++) sequence_push(&s, tokens + i, 1);
    sequence_push(&s, tokens, 100);
    assert_int_equal(s.n_tokens, 153);
    assert_int_equal(s.n_cached, 0);
    assert_memory_equal(s.tokens, tokens, 3 * sizeof(int));
    assert_memory_equal(s.tokens + 3, tokens, 50 * sizeof(int));
    assert_memory_equal(s.tokens + 53, tokens, sizeof tokens);
    sequence_free(&s);
    assert_null(s.tokens);
    sequence_free(&s);
}

// A reservation that finds no block also leaves the states of recurrent layers, whatever was reserved before.
static void test_full_pool_leaves_states(void **state) {
    (void)state;
    for (int had = 1; had <= 4; had++)
        for (int n_drafts = 0; n_drafts < 4; n_drafts++) {
            KvCache kv;
            KvShape shape = small_kv_shape(4, 16, 5, 2);
            Sequence a = {0}, b = {0};
            shape.n_recurrent = 1;
            shape.rec = (Recurrence){.channels = 1, .taps = 2};
            shape.n_checkpoints = 8;
            assert_ok(kvcache_new(&kv, &shape));
            for (int i = 0; i < 16; i++) sequence_push(&a, &i, 1), sequence_push(&b, &i, 1);
            assert_true(kvcache_reserve(&kv, &b, 16)); // four blocks of five
            assert_true(kvcache_reserve(&kv, &a, 1));
            kvcache_advance(&kv, &a, 1);
            assert_true(had == 1 || kvcache_reserve(&kv, &a, had)); // in the last block
            int n_left = kvstates_left(&kv.states), n = a.states.n;
            assert_false(kvcache_reserve_drafts(&kv, &a, 6, n_drafts));
            if (had == 4) assert_false(kvcache_reserve_ahead(&kv, &a, 5));
            assert_int_equal(kvstates_left(&kv.states), n_left);
            assert_int_equal(a.states.n, n);
            assert_int_equal(a.states.list[n - 1].n_tokens, had);
            kvcache_release(&kv, &a);
            kvcache_release(&kv, &b);
            sequence_free(&a);
            sequence_free(&b);
            kvcache_free(&kv);
        }
}

static void test_shuffle_is_a_permutation(void **state) {
    (void)state;
    TaggedCache k;
    int moved = 0;
    book_open(&k, 1, 40, 40, 1);
    step_to(&k, 0, 5);
    Snapshot before = snapshot(&k, &k.seq[0]);
    kvcache_shuffle(&k.kv, 7);
    check_counts(&k);
    for (int b = 0; b < 40; b++) moved += k.kv.refs[b] == 0 && before.next[b] != k.kv.ring[b].next;
    assert_true(moved > 20);
    check_contents(&k);
    book_close(&k);
}

// Sequences that begin with the tokens of blended K and V, or of a fork of it, compute their own.
static void test_altered_is_not_shared(void **state) {
    (void)state;
    KvShape shape = small_kv_shape(4, 64, 32, 2);
    shape.share = true;
    KvCache kv;
    assert_ok(kvcache_new(&kv, &shape));
    Sequence a = {.alone = true}, b = {0}, c = {0};
    for (int i = 0; i < 20; i++) sequence_push(&a, &i, 1);
    small_kv_compute(&kv, &a, 19, 8);
    kvcache_fork(&kv, &a, &b);
    kvcache_commit(&kv, &b, b.n_cached);
    sequence_push(&c, a.tokens, 20);
    assert_int_equal(kvcache_match_prefix(&kv, &c), 0);
    Sequence *all[] = {&a, &b, &c};
    for (int i = 0; i < 3; i++) sequence_end(&kv, all[i]);
    kvcache_free(&kv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_refused_sizes),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_copy_on_write),
        cmocka_unit_test(test_fork_at_an_edge),
        cmocka_unit_test(test_altered_slots),
        cmocka_unit_test(test_altered_is_not_shared),
        cmocka_unit_test(test_fork_of_a_pending_copy),
        cmocka_unit_test(test_release_of_a_pending_copy),
        cmocka_unit_test(test_full_pool_changes_nothing),
        cmocka_unit_test(test_full_pool_leaves_states),
        cmocka_unit_test(test_shuffle_is_a_permutation),
        cmocka_unit_test(test_random_steps),
        cmocka_unit_test(test_random_steps_with_pending_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
