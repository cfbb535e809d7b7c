// tests/test_sharing.c: blocks that sequences with the same beginning share: names, look-ups, and the order in which
// blocks are reused.
//
// A naive cache runs next to the real one. It stores all tokens up to the end of each block, and finds a prefix by
// comparing them with those of every block. After every operation both must have the same blocks in the same sequences
// and the same order of free blocks. K and V depend on the tokens as in a model: a slot holds a hash of all tokens up
// to it, so that a wrong block shows.
#include "tests/rig/testing.h"

#include "cpu/backend.h"
#include "kvcache.h"

enum { MOST_SEQS = 5, MOST_CTX = 48, MOST_BLOCKS = 64, STEPS = 12500 };

// A block of the naive cache.
typedef struct {
    int refs;
    bool found, twin;     // found: it has a name and is found by it; twin: it has a name that finds another block
    int n, ids[MOST_CTX]; // the number of tokens up to its end, and these tokens, if it has a name
} Known;

typedef struct {
    KvCache kv;
    const Backend *be;
    Sequence seq[MOST_SEQS];
    int reserved[MOST_SEQS];
    uint64_t random;
    int n_ctx;
    Known known[MOST_BLOCKS];
    int free[MOST_BLOCKS], n_free; // in the order of allocation
    // blocks of each sequence; their number; the number of those with a known name
    int tables[MOST_SEQS][MOST_CTX], n[MOST_SEQS], named[MOST_SEQS];
    long n_hits, n_evicted, n_twins;
} SharedCache;

static int pick(SharedCache *p, int n) { return (int)(test_random(&p->random) % (uint64_t)n); }

// ---- the naive cache ------------------------------------------------------------------------------------------------

static void naive_remove_free(SharedCache *p, int block) {
    int at = 0;
    while (p->free[at] != block) at++;
    memmove(p->free + at, p->free + at + 1, (size_t)(--p->n_free - at) * sizeof(int));
}

static void naive_insert_free(SharedCache *p, int block, int at) {
    memmove(p->free + at + 1, p->free + at, (size_t)(p->n_free++ - at) * sizeof(int));
    p->free[at] = block;
}

static int naive_take(SharedCache *p) {
    int block = p->free[0];
    naive_remove_free(p, block);
    p->n_evicted += p->known[block].found;
    p->known[block] = (Known){.refs = 1};
    return block;
}

static void naive_share(SharedCache *p, int block) {
    if (p->known[block].refs++ == 0) naive_remove_free(p, block);
}

static void naive_drop(SharedCache *p, int block) {
    if (--p->known[block].refs > 0) return;
    p->known[block].twin = false;
    naive_insert_free(p, block, p->known[block].found ? p->n_free : 0);
}

static bool naive_reserve(SharedCache *p, int seq, int n_slots) {
    const Sequence *s = &p->seq[seq];
    int size = p->kv.pool->block, first = s->n_cached / size, need = (n_slots + size - 1) / size, wanted = 0;
    if (n_slots > p->n_ctx) return false;
    for (int i = first; i < need; i++) wanted += i >= p->n[seq] || p->known[p->tables[seq][i]].refs > 1;
    if (wanted > p->n_free) return false;
    for (int i = first; i < need; i++) {
        int old = i < p->n[seq] ? p->tables[seq][i] : -1;
        if (old >= 0 && p->known[old].refs == 1) {
            p->known[old] = (Known){.refs = 1};
            continue;
        }
        p->tables[seq][i] = naive_take(p);
        if (old >= 0) p->known[old].refs--;
    }
    p->n[seq] = int_max(p->n[seq], need);
    return true;
}

static void naive_cut(SharedCache *p, int seq, int n_cached) {
    int size = p->kv.pool->block;
    while (p->n[seq] > (n_cached + size - 1) / size) naive_drop(p, p->tables[seq][--p->n[seq]]);
    p->named[seq] = int_min(p->named[seq], n_cached / size);
}

// The named block whose tokens up to its end are these.
static int naive_find(const SharedCache *p, const int *ids, int n) {
    for (int b = 0; b < p->kv.pool->n_blocks; b++)
        if (p->known[b].found && p->known[b].n == n && memcmp(p->known[b].ids, ids, (size_t)n * sizeof(int)) == 0)
            return b;
    return -1;
}

// Returns the number of cached slots afterwards.
static int naive_match(SharedCache *p, int seq) {
    const Sequence *s = &p->seq[seq];
    int size = p->kv.pool->block, n = s->n_cached;
    if (s->alone || p->n[seq] * size != n || p->named[seq] != p->n[seq]) return n;
    for (; n + size < s->n_tokens; n += size) {
        int block = naive_find(p, s->tokens, n + size);
        if (block < 0) break;
        p->n_hits++;
        naive_share(p, block);
        p->tables[seq][p->n[seq]++] = block;
        p->named[seq]++;
    }
    return n;
}

static void naive_commit(SharedCache *p, int seq, int n_slots) {
    const Sequence *s = &p->seq[seq];
    int size = p->kv.pool->block;
    for (; !s->alone && (p->named[seq] + 1) * size <= n_slots; p->named[seq]++) {
        int n = (p->named[seq] + 1) * size;
        Known *k = &p->known[p->tables[seq][p->named[seq]]];
        if (k->found || k->twin) continue;
        k->twin = naive_find(p, s->tokens, n) >= 0;
        k->found = !k->twin;
        p->n_twins += k->twin;
        k->n = n;
        memcpy(k->ids, s->tokens, (size_t)n * sizeof(int));
    }
}

// ---- both -----------------------------------------------------------------------------------------------------------

static void check_index(const SharedCache *p) {
    const KvCache *kv = &p->kv;
    int n_found = 0, n_linked = 0;
    for (int b = 0; b < kv->pool->n_blocks; b++) {
        assert_int_equal(kv->names.of_block[b].found, p->known[b].found);
        assert_int_equal(kv->names.of_block[b].named, p->known[b].found || p->known[b].twin);
        n_found += kv->names.of_block[b].found;
        if (kv->names.of_block[b].found) {
            const int *last = p->known[b].ids + p->known[b].n - kv->pool->block;
            assert_memory_equal(kv->names.ids + b * kv->pool->block, last, (size_t)kv->pool->block * sizeof(int));
        }
    }
    for (int i = 0; i < kv->names.n_buckets; i++)
        for (int b = kv->names.buckets[i]; b >= 0; b = kv->names.of_block[b].same_bucket, n_linked++)
            assert_true(kv->names.of_block[b].found);
    assert_int_equal(n_linked, n_found);
}

static void check_pair(const SharedCache *p) {
    const KvCache *kv = &p->kv;
    int end = kv->pool->n_blocks, n_refs = 0, n_tables = 0;
    for (int b = 0; b < end; b++) {
        assert_int_equal(kv->refs[b], p->known[b].refs);
        n_refs += kv->refs[b];
    }
    assert_int_equal(kv->n_free, p->n_free);
    for (int i = 0, b = end; i < p->n_free; i++) {
        b = kv->ring[b].next;
        assert_int_equal(b, p->free[i]);
    }
    for (int seq = 0; seq < MOST_SEQS; seq++) {
        assert_int_equal(p->seq[seq].n_blocks, p->n[seq]);
        assert_int_equal(p->seq[seq].n_named, p->named[seq]);
        if (p->n[seq]) assert_memory_equal(p->seq[seq].blocks, p->tables[seq], (size_t)p->n[seq] * sizeof(int));
        n_tables += p->n[seq];
    }
    assert_int_equal(n_refs, n_tables);
    check_index(p);
}

// The value of K in a slot: a hash of the tokens up to the slot.
static float value_at(const int *tokens, int slot) {
    uint64_t h = 1;
    for (int i = 0; i <= slot; i++) {
        h ^= (uint64_t)tokens[i] + 7;
        h = test_random(&h);
    }
    return (float)(h >> 41);
}

static float *cell(const SharedCache *p, int seq, int slot, bool v) {
    const KvPool *pool = p->kv.pool;
    float *plane = (float *)(void *)(v ? pool->v : pool->k);
    return plane + kv_index(pool, 0, p->seq[seq].blocks[slot / pool->block], 0, slot % pool->block);
}

static void check_contents(const SharedCache *p) {
    for (int seq = 0; seq < MOST_SEQS; seq++)
        for (int slot = 0; slot < p->seq[seq].n_cached; slot++) {
            float want = value_at(p->seq[seq].tokens, slot);
            if (*cell(p, seq, slot, false) != want || *cell(p, seq, slot, true) != -want)
                fail_msg("sequence %d slot %d: %g expected, %g found", seq, slot, (double)want,
                         (double)*cell(p, seq, slot, false));
        }
}

static void pair_open(SharedCache *p, int block, int n_ctx, int n_blocks, uint64_t seed) {
    memset(p, 0, sizeof *p);
    p->random = seed;
    p->n_ctx = n_ctx;
    KvShape s = {.n_layers = 1,
                 .n_kv_heads = 1,
                 .head_dim = 1,
                 .type_k = TYPE_F32,
                 .type_v = TYPE_F32,
                 .block = block,
                 .n_ctx = n_ctx,
                 .n_blocks = n_blocks,
                 .n_seqs = MOST_SEQS,
                 .share = true};
    assert_true(n_ctx <= MOST_CTX && n_blocks <= MOST_BLOCKS);
    assert_ok(kvcache_new(&p->kv, &s));
    assert_ok(cpu_backend("scalar", &p->be));
    memset(p->kv.pool->k, 0xff, p->kv.pool->bytes_k); // NaN
    memset(p->kv.pool->v, 0xff, p->kv.pool->bytes_v);
    for (int b = 0; b < n_blocks; b++) p->free[p->n_free++] = b;
}

// ---- operations on both ---------------------------------------------------------------------------------------------

static void release(SharedCache *p, int seq) {
    kvcache_release(&p->kv, &p->seq[seq]);
    naive_cut(p, seq, 0);
    p->reserved[seq] = 0;
}

static void restart(SharedCache *p, int seq) {
    release(p, seq);
    sequence_free(&p->seq[seq]);
}

static void pair_close(SharedCache *p) {
    for (int seq = 0; seq < MOST_SEQS; seq++) restart(p, seq);
    check_pair(p);
    assert_int_equal(p->kv.n_free, p->kv.pool->n_blocks); // all blocks are free again
    kvcache_free(&p->kv);
}

// only two different tokens, so that many sequences have the same beginning
static void push(SharedCache *p, int seq, int n) {
    for (; n > 0 && p->seq[seq].n_tokens < p->n_ctx; n--) sequence_push(&p->seq[seq], &(int){pick(p, 9) == 0}, 1);
}

static void match(SharedCache *p, int seq) {
    int want = naive_match(p, seq);
    assert_int_equal(kvcache_match_prefix(&p->kv, &p->seq[seq]), want);
    assert_int_equal(p->seq[seq].n_cached, want);
    assert_true(want == 0 || want < p->seq[seq].n_tokens || p->seq[seq].n_tokens == p->seq[seq].n_cached);
}

static void reserve(SharedCache *p, int seq, int n_slots) {
    bool want = naive_reserve(p, seq, n_slots);
    assert_int_equal(kvcache_reserve(&p->kv, &p->seq[seq], n_slots), want);
    if (want) p->reserved[seq] = n_slots;
}

static void fork(SharedCache *p, int from, int to) {
    restart(p, to);
    kvcache_fork(&p->kv, &p->seq[from], &p->seq[to]);
    int n = (p->seq[from].n_cached + p->kv.pool->block - 1) / p->kv.pool->block;
    for (int i = 0; i < n; i++) naive_share(p, p->tables[to][i] = p->tables[from][i]);
    p->n[to] = n;
    p->named[to] = p->named[from];
}

static void truncate_to(SharedCache *p, int seq, int n) {
    kvcache_truncate(&p->kv, &p->seq[seq], n);
    naive_cut(p, seq, p->seq[seq].n_cached);
    p->reserved[seq] = 0;
}

static void shuffle(SharedCache *p) {
    kvcache_shuffle(&p->kv, test_random(&p->random));
    for (int i = 0, b = p->kv.pool->n_blocks; i < p->n_free; i++) p->free[i] = b = p->kv.ring[b].next;
}

// Runs a step: copies, then the rows of all sequences that have reserved slots, then names.
static void compute(SharedCache *p) {
    Batch b = {.n_copies = p->kv.n_copies, .copy = p->kv.copies};
    p->be->copy_blocks(NULL, p->kv.pool, &b);
    p->kv.n_copies = 0;
    for (int seq = 0; seq < MOST_SEQS; seq++) {
        Sequence *s = &p->seq[seq];
        for (int slot = s->n_cached; slot < p->reserved[seq]; slot++) {
            *cell(p, seq, slot, false) = value_at(s->tokens, slot);
            *cell(p, seq, slot, true) = -value_at(s->tokens, slot);
        }
        s->n_cached = int_max(s->n_cached, p->reserved[seq]);
        p->reserved[seq] = 0;
        int n = pick(p, 4) ? s->n_cached : s->n_cached / 2; // names all slots or half of them
        naive_commit(p, seq, n);
        kvcache_commit(&p->kv, s, n);
    }
    check_contents(p);
}

static void change(SharedCache *p) {
    int seq = pick(p, MOST_SEQS), n = p->seq[seq].n_tokens, other = (seq + 1 + pick(p, MOST_SEQS - 1)) % MOST_SEQS;
    switch (pick(p, 12)) {
    case 0: truncate_to(p, seq, pick(p, n + 1)); break;
    case 1: fork(p, seq, other); break;
    case 2: release(p, seq); break; // a preemption: the tokens stay
    case 3:
        if (pick(p, 10) == 0) shuffle(p);
        break;
    case 4:
        if (p->n[seq] == 0) p->seq[seq].alone = pick(p, 4) == 0;
        break;
    case 5: restart(p, seq); break;
    case 6:
    case 7: compute(p); break;
    case 8:
    case 9:
        if (p->reserved[seq] == 0) match(p, seq);
        break;
    default:
        push(p, seq, pick(p, 12));
        if (p->n[seq] == 0) match(p, seq);
        n = p->seq[seq].n_tokens - p->seq[seq].n_cached;
        if (n > 0 && p->reserved[seq] == 0) reserve(p, seq, p->seq[seq].n_cached + 1 + pick(p, n));
    }
}

static void test_random_operations(void **state) {
    (void)state;
    static const struct {
        int block, n_ctx, n_blocks;
    } shapes[] = {{1, 12, 40}, {4, 40, 30}, {4, 40, 16}, {4, 40, 11},
                  {3, 48, 64}, {8, 48, 20}, {16, 48, 9}, {48, 48, 6}};
    long n_hits = 0, n_evicted = 0, n_twins = 0;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        static SharedCache p;
        pair_open(&p, shapes[i].block, shapes[i].n_ctx, shapes[i].n_blocks, i + 1);
        for (int step = 0; step < STEPS; step++) {
            change(&p);
            check_pair(&p);
        }
        n_hits += p.n_hits;
        n_evicted += p.n_evicted;
        n_twins += p.n_twins;
        pair_close(&p);
    }
    print_message("%zu operations: %ld blocks found, %ld given to others, %ld computed twice\n",
                  ARRAY_LEN(shapes) * STEPS, n_hits, n_evicted, n_twins);
    assert_true(n_hits > 1000 && n_evicted > 1000 && n_twins > 100); // all kinds of events must have occurred
}

// ---- values computed by hand ----------------------------------------------------------------------------------------

static void give(SharedCache *p, int seq, const char *text) {
    for (; *text; text++) sequence_push(&p->seq[seq], &(int){*text}, 1);
}

// Computes and commits all tokens.
static void finish(SharedCache *p, int seq) {
    Sequence *s = &p->seq[seq];
    reserve(p, seq, s->n_tokens);
    for (int slot = s->n_cached; slot < s->n_tokens; slot++) {
        *cell(p, seq, slot, false) = value_at(s->tokens, slot);
        *cell(p, seq, slot, true) = -value_at(s->tokens, slot);
    }
    s->n_cached = s->n_tokens;
    p->reserved[seq] = 0;
    naive_commit(p, seq, s->n_cached);
    kvcache_commit(&p->kv, s, s->n_cached);
    check_pair(p);
    check_contents(p);
}

static void begin(SharedCache *p, const char *text) {
    pair_open(p, 4, 40, 12, 1);
    give(p, 0, text);
    finish(p, 0);
}

// A match always leaves at least one token to compute.
static void test_edges(void **state) {
    (void)state;
    static const struct {
        const char *second;
        int cached;
    } cases[] = {{"abcdefghijk", 8},
                 {"abcdefghijkl", 8},
                 {"abcdefghijklm", 12},
                 {"abcdefghijkX", 8},
                 {"abcd", 0},
                 {"abcde", 4},
                 {"Xbcdefgh", 0},
                 {"abcdXfghijkl", 4},
                 {"", 0},
                 {"a", 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        SharedCache p;
        begin(&p, "abcdefghijkl");
        give(&p, 1, cases[i].second);
        match(&p, 1);
        assert_int_equal(p.seq[1].n_cached, cases[i].cached);
        if (p.seq[1].n_tokens) finish(&p, 1);
        pair_close(&p);
    }
}

// Equal tokens after different ones are a different block.
static void test_same_block_elsewhere(void **state) {
    (void)state;
    SharedCache p;
    begin(&p, "abcdabcdabcd");
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(&p.kv.names.of_block[p.seq[0].blocks[i]].name,
                                    &p.kv.names.of_block[p.seq[0].blocks[j]].name, sizeof(ChainHash));
    give(&p, 1, "abcdX");
    match(&p, 1);
    assert_int_equal(p.seq[1].n_cached, 4);
    finish(&p, 1);
    give(&p, 2, "efghabcdX");
    match(&p, 2);
    assert_int_equal(p.seq[2].n_cached, 0);
    finish(&p, 2);
    pair_close(&p);
}

// Two sequences compute the same block in one step: both keep their own, and a third one uses the first one's block.
// When that is gone, a fourth one computes it again.
static void test_computed_twice(void **state) {
    (void)state;
    SharedCache p;
    pair_open(&p, 4, 40, 12, 1);
    give(&p, 0, "abcde");
    give(&p, 1, "abcdf");
    match(&p, 0);
    match(&p, 1);
    finish(&p, 0);
    finish(&p, 1);
    assert_int_not_equal(p.seq[0].blocks[0], p.seq[1].blocks[0]);
    give(&p, 2, "abcdg");
    match(&p, 2);
    assert_int_equal(p.seq[2].blocks[0], p.seq[0].blocks[0]);
    finish(&p, 2);
    pair_close(&p);
}

// A waiting sequence gets blocks as another one computes them.
static void test_waiting(void **state) {
    (void)state;
    SharedCache p;
    begin(&p, "abcdefgh");
    give(&p, 1, "abcdefghijklmnop");
    match(&p, 1);
    assert_int_equal(p.seq[1].n_cached, 8);
    give(&p, 0, "ijklmn");
    finish(&p, 0);
    match(&p, 1);
    assert_int_equal(p.seq[1].n_cached, 12);
    finish(&p, 1);
    pair_close(&p);
}

// Blocks without a name are reused first, then the least recently used ones, and of one sequence the last blocks first.
static void test_what_goes_first(void **state) {
    (void)state;
    SharedCache p;
    begin(&p, "abcdefghijkl");
    give(&p, 1, "ABCDEFGH");
    finish(&p, 1);
    int a[3], b[2];
    memcpy(a, p.seq[0].blocks, sizeof a);
    memcpy(b, p.seq[1].blocks, sizeof b);
    restart(&p, 1);
    restart(&p, 0);
    check_pair(&p);
    const int want[] = {b[1], b[0], a[2], a[1], a[0]};
    assert_memory_equal(p.free + p.n_free - 5, want, sizeof want);
    give(&p, 2, "abcdX"); // using it makes it the most recent one
    match(&p, 2);
    restart(&p, 2);
    assert_int_equal(p.free[p.n_free - 1], a[0]);
    give(&p, 2, "0123456789012345678901234567890123456789"); // 10 of 12 blocks: all except the two most recent ones
    finish(&p, 2);
    give(&p, 3, "abcdefghijklm");
    match(&p, 3);
    assert_int_equal(p.seq[3].n_cached, 8);
    pair_close(&p);
}

// A rewritten block is no longer found by its old name; sequences that share the old block keep it.
static void test_writing_again(void **state) {
    (void)state;
    SharedCache p;
    begin(&p, "abcdefgh");
    truncate_to(&p, 0, 6);
    give(&p, 0, "XY");
    give(&p, 1, "abcdefghi");
    finish(&p, 0);
    match(&p, 1);
    assert_int_equal(p.seq[1].n_cached, 4);
    finish(&p, 1);
    fork(&p, 1, 2);
    truncate_to(&p, 2, 5);
    give(&p, 2, "Z");
    reserve(&p, 2, 6);
    assert_int_equal(p.kv.n_copies, 1);
    compute(&p);
    give(&p, 3, "abcdefghi");
    match(&p, 3);
    assert_int_equal(p.seq[3].n_cached, 8);
    pair_close(&p);
}

// A sequence with evicted slots, or one that must not be shared, does not take part in sharing.
static void test_no_sharing(void **state) {
    (void)state;
    SharedCache p;
    pair_open(&p, 4, 40, 12, 1);
    p.seq[0].alone = true;
    give(&p, 0, "abcdefgh");
    finish(&p, 0);
    give(&p, 1, "abcdefgh");
    match(&p, 1);
    assert_int_equal(p.seq[1].n_cached, 0);
    finish(&p, 1);
    p.seq[2].alone = true;
    give(&p, 2, "abcdefgh");
    match(&p, 2);
    assert_int_equal(p.seq[2].n_cached, 0);
    pair_close(&p);

    KvShape s = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 1, .block = 4, .n_ctx = 40, .n_seqs = 2};
    KvCache kv;
    assert_ok(kvcache_new(&kv, &s));
    Sequence a = {0}, b = {0};
    for (int i = 0; i < 9; i++) sequence_push(&a, &i, 1), sequence_push(&b, &i, 1);
    assert_true(kvcache_reserve(&kv, &a, 9));
    a.n_cached = 9;
    kvcache_commit(&kv, &a, 9);
    assert_int_equal(kvcache_match_prefix(&kv, &b), 0);
    sequence_end(&kv, &a);
    sequence_free(&b);
    kvcache_free(&kv);
}

// ---- names ----------------------------------------------------------------------------------------------------------

static void hex(const ChainHash *h, char out[65]) {
    for (size_t i = 0; i < sizeof h->bytes; i++) snprintf(out + 2 * i, 3, "%02x", h->bytes[i]);
}

// Compared with sha256sum: of `printf abc`, and of that hash in bytes followed by the ids 1, 2, 3 as 32-bit numbers.
static void test_names(void **state) {
    (void)state;
    char text[65];
    ChainHash root = chain_root("abc", 3), next = chain_next(&root, (const int[]){1, 2, 3}, 3);
    hex(&root, text);
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hex(&next, text);
    assert_string_equal(text, "c2d9a05c520beb0a26dc5fd9897796ec1f07a8ade8cca417e39b6d6f2ad82384");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_same_block_elsewhere),
        cmocka_unit_test(test_computed_twice),
        cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_what_goes_first),
        cmocka_unit_test(test_writing_again),
        cmocka_unit_test(test_no_sharing),
        cmocka_unit_test(test_random_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
