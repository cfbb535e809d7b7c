// tests/test_tails.c: tail pages of sealed KV under many random operations: their owners, the number of free pages, and
// their contents.
//
// K and V depend on the tokens as in a model: an open row is a hash of all tokens up to it, a sealed group a hash of
// all tokens up to its end. Rows are written and read as the cache moves them (kvrows_write, kvrows_read). A group is
// sealed only after its open rows were found in their page. The test counts which blocks have pages, so it knows when a
// page must be refused.
#include "tests/rig/testing.h"

#include "cpu/backend.h"
#include "kv/kvrows.h"
#include "kvcache.h"

enum { MOST_SEQS = 5, MOST_CTX = 160, N_LAYERS = 2, N_HEADS = 2, HEAD_DIM = 5, STEPS = 6000 };
enum { MOST_BYTES = MOST_CTX * N_HEADS * HEAD_DIM * 4 * 2 + MOST_CTX * N_HEADS * 2 * 34 };

typedef struct {
    KvCache kv;
    const Backend *be;
    Sequence seq[MOST_SEQS];
    int reserved[MOST_SEQS]; // slots that the next step computes up to; 0: the sequence has no rows
    uint64_t random;
    bool pending; // operations may happen between reserving and the step that makes the copies
    int n_refused, n_copied, n_matched;
} TailCache;

static int pick(TailCache *k, int n) { return (int)(test_random(&k->random) % (uint64_t)n); }
static int group_of(int slot) { return slot / SEAL * SEAL; }

// ---- expected rows --------------------------------------------------------------------------------------------------

static void chain(const int *tokens, int n, uint64_t *out) {
    uint64_t h = 1;
    for (int i = 0; i < n; i++) {
        h ^= (uint64_t)tokens[i] + 7;
        out[i] = h = test_random(&h);
    }
}

// The expected result of kvrows_read for slots [first, first + n), where n reaches to the last slot.
static size_t expected_rows(const TailCache *k, int seq, int layer, int first, int n, uint8_t *out) {
    uint64_t sums[MOST_CTX];
    const KvPool *pool = k->kv.pool;
    uint8_t *at = out;
    chain(k->seq[seq].tokens, first + n, sums);
    for (int v = 0; v < 2; v++) {
        int type = v ? pool->type_v : pool->type_k;
        for (int slot = first; slot < first + n; slot++) {
            bool sealed = kv_is_sealed(type) && slot < group_of(first + n);
            uint64_t sum = sums[sealed ? group_of(slot) + SEAL - 1 : slot];
            size_t size = kv_is_sealed(type) && !sealed ? HEAD_DIM * sizeof(float) : kv_slot_bytes(type, HEAD_DIM);
            for (int head = 0; head < N_HEADS; head++) {
                uint64_t random = sum ^ (uint64_t)(slot * 64 + layer * 16 + head * 4 + v);
                for (size_t i = 0; i < size; i++) *at++ = (uint8_t)(test_random(&random) & 0x3f);
            }
        }
    }
    return (size_t)(at - out);
}

static void check_rows(const TailCache *k, int seq, int first, int n) {
    static uint8_t want[MOST_BYTES], got[MOST_BYTES];
    const KvPool *pool = k->kv.pool;
    if (n > 0 && (first + n) % SEAL) // the open group must have a page
        assert_in_range(kv_tail(pool, k->seq[seq].blocks, first + n - 1), 0, pool->n_tails - 1);
    for (int layer = 0; n > 0 && layer < N_LAYERS; layer++) {
        size_t bytes = expected_rows(k, seq, layer, first, n, want);
        assert_int_equal(bytes, kvrows_bytes(pool, n));
        kvrows_read(pool, layer, k->seq[seq].blocks, first, n, got);
        if (memcmp(got, want, bytes) != 0)
            fail_msg("sequence %d, layer %d: slots %d to %d are not what was computed", seq, layer, first,
                     first + n - 1);
    }
}

static void write_rows(TailCache *k, int seq, int first, int n) {
    static uint8_t rows[MOST_BYTES];
    for (int layer = 0; layer < N_LAYERS; layer++) {
        expected_rows(k, seq, layer, first, n, rows);
        kvrows_write(k->kv.pool, layer, k->seq[seq].blocks, first, n, rows);
    }
}

// ---- invariants -----------------------------------------------------------------------------------------------------

static void check_counts(const TailCache *k) {
    const KvCache *kv = &k->kv;
    int refs[256] = {0}, page_seen[64] = {0}, n_used = 0, n_unused = 0;
    for (int i = 0; i < MOST_SEQS; i++)
        for (int b = 0; b < k->seq[i].n_blocks; b++) refs[k->seq[i].blocks[b]]++;
    for (int b = 0; b < kv->pool->n_blocks; b++) {
        assert_int_equal(kv->refs[b], refs[b]);
        n_unused += refs[b] == 0;
        if (kv->pool->tail_of[b] < 0) continue;
        n_used++;
        assert_in_range(kv->pool->tail_of[b], 0, kv->pool->n_tails - 1);
        assert_int_equal(page_seen[kv->pool->tail_of[b]]++, 0);             // a page belongs to one block
        if (kv->n_copies == 0 && kv->n_late == 0) assert_true(refs[b] > 0); // and the block to a sequence
    }
    assert_int_equal(kv->n_free, n_unused);
    assert_int_equal(kv->n_free_tails + n_used, kv->pool->n_tails);
    for (int i = 0; i < kv->n_free_tails; i++) assert_int_equal(page_seen[kv->free_tails[i]]++, 0);
    for (int i = 0; i < MOST_SEQS; i++) // every open group must have a page
        if (k->seq[i].n_cached % SEAL) assert_true(kv_tail(kv->pool, k->seq[i].blocks, k->seq[i].n_cached - 1) >= 0);
}

// ---- operations -----------------------------------------------------------------------------------------------------

// Whether the logical block i needs a new page: it is new, will be copied, or has no page.
static int lacks_page(const TailCache *k, const Sequence *s, int i) {
    return i >= s->n_blocks || k->kv.refs[s->blocks[i]] > 1 || k->kv.pool->tail_of[s->blocks[i]] < 0;
}

static bool may_reserve(const TailCache *k, const Sequence *s, int n_slots) {
    int size = k->kv.pool->block, need = (n_slots + size - 1) / size, blocks = int_max(0, need - s->n_blocks);
    int now = group_of(s->n_cached) / size, then = group_of(n_slots) / size, given_back = 0, pages = 0;
    if (n_slots > k->kv.max_slots) return false;
    for (int i = now; i < s->n_blocks && i < need; i++) blocks += k->kv.refs[s->blocks[i]] > 1;
    for (int i = 0; i < now && i < s->n_blocks; i++) given_back += k->kv.pool->tail_of[s->blocks[i]] >= 0;
    // pages that were kept for a pending copy are free after the copy
    for (int b = 0; b < k->kv.pool->n_blocks && k->kv.n_copies == 0; b++)
        given_back += k->kv.refs[b] == 0 && k->kv.pool->tail_of[b] >= 0;
    if (s->n_cached % SEAL) pages += lacks_page(k, s, now);
    if (n_slots % SEAL && !(s->n_cached % SEAL && then == now)) pages += lacks_page(k, s, then);
    return blocks <= k->kv.n_free && pages <= k->kv.n_free_tails + given_back;
}

// only two different tokens, so that many sequences have the same beginning
static void push(TailCache *k, int seq, int n) {
    for (; n > 0 && k->seq[seq].n_tokens < k->kv.max_slots; n--)
        sequence_push(&k->seq[seq], &(int){pick(k, 40) == 0}, 1);
}

static void reserve(TailCache *k, int seq, int n_slots) {
    Sequence *s = &k->seq[seq];
    bool want = may_reserve(k, s, n_slots);
    int n_copies = k->kv.n_copies, n_blocks = s->n_blocks;
    assert_int_equal(kvcache_reserve(&k->kv, s, n_slots), want);
    if (want) k->reserved[seq] = n_slots;
    else {
        k->n_refused++;
        assert_int_equal(s->n_blocks, n_blocks);
        assert_int_equal(k->kv.n_copies, n_copies);
    }
    k->n_copied += k->kv.n_copies - n_copies;
    check_counts(k);
}

// Runs a step: copies first. A group is sealed from rows that must still be where they were stored.
static void compute(TailCache *k) {
    Batch b = {.n_copies = k->kv.n_copies, .copy = k->kv.copies};
    k->be->copy_blocks(NULL, k->kv.pool, &b);
    k->kv.n_copies = 0;
    for (int seq = 0; seq < MOST_SEQS; seq++) {
        Sequence *s = &k->seq[seq];
        int first = group_of(s->n_cached);
        if (k->reserved[seq] > s->n_cached) {
            check_rows(k, seq, first, s->n_cached - first);
            write_rows(k, seq, first, k->reserved[seq] - first);
            s->n_cached = k->reserved[seq];
        }
        k->reserved[seq] = 0;
        kvcache_commit(&k->kv, s, s->n_cached);
    }
    for (int seq = 0; seq < MOST_SEQS; seq++) check_rows(k, seq, 0, k->seq[seq].n_cached);
}

static void restart(TailCache *k, int seq) {
    kvcache_release(&k->kv, &k->seq[seq]);
    k->reserved[seq] = 0;
    sequence_free(&k->seq[seq]);
}

// Truncating into a sealed group continues to the first slot of that group.
static void truncate_to(TailCache *k, int seq, int n) {
    Sequence *s = &k->seq[seq];
    int want = int_min(s->n_cached, n);
    if (group_of(want) < group_of(s->n_cached)) want = group_of(want);
    kvcache_truncate(&k->kv, s, n);
    k->reserved[seq] = 0;
    assert_int_equal(s->n_cached, want);
}

static void change(TailCache *k) {
    int seq = pick(k, MOST_SEQS), other = (seq + 1 + pick(k, MOST_SEQS - 1)) % MOST_SEQS, n = k->seq[seq].n_tokens;
    if (!k->pending && k->kv.n_copies > 0) compute(k);
    switch (pick(k, 10)) {
    case 0: truncate_to(k, seq, pick(k, 2) ? pick(k, n + 1) : int_max(0, n - pick(k, 5))); break;
    case 1:
    case 2:
        if (k->reserved[seq] > 0) break; // the sequence will write into these blocks in the next step
        restart(k, other);
        kvcache_fork(&k->kv, &k->seq[seq], &k->seq[other]);
        push(k, other, 1 + pick(k, 3));
        if (pick(k, 2) && k->seq[other].n_cached < k->seq[other].n_tokens)
            reserve(k, other, k->seq[other].n_cached + 1);
        break;
    case 3: // a preemption: the tokens stay
        kvcache_release(&k->kv, &k->seq[seq]);
        k->reserved[seq] = 0;
        break;
    case 4: pick(k, 3) ? compute(k) : restart(k, seq); break;
    case 5: kvcache_shuffle(&k->kv, test_random(&k->random)); break;
    case 6:
        if (k->reserved[seq] == 0) k->n_matched += kvcache_match_prefix(&k->kv, &k->seq[seq]) > 0;
        break;
    default:
        push(k, seq, 1 + pick(k, pick(k, 3) ? 3 : 60));
        n = k->seq[seq].n_tokens - k->seq[seq].n_cached;
        if (n > 0 && k->reserved[seq] == 0) reserve(k, seq, k->seq[seq].n_cached + 1 + pick(k, n));
    }
    check_counts(k);
}

typedef struct {
    int block, n_blocks, n_seqs; // n_seqs: sequences that have pages, fewer than there are sequences
    int type_k, type_v;
} TailShape;

static const TailShape shapes[] = {{32, 20, 2, TYPE_Q8_0, TYPE_Q4_0}, {64, 12, 3, TYPE_KIVI2, TYPE_KIVI2},
                                   {1, 250, 2, TYPE_FP8, TYPE_F16},   {16, 40, 1, TYPE_Q4_0, TYPE_Q8_0},
                                   {48, 14, 2, TYPE_F32, TYPE_KIVI2}, {7, 90, 4, TYPE_Q8_0, TYPE_Q8_0},
                                   {0, 6, 5, TYPE_Q8_0, TYPE_FP8},    {32, 8, 5, TYPE_BF16, TYPE_Q8_0}};

static void run_book(const TailShape *shape, uint64_t seed, bool pending, TailCache *k) {
    KvShape s = {.n_layers = N_LAYERS,
                 .n_kv_heads = N_HEADS,
                 .head_dim = HEAD_DIM,
                 .type_k = shape->type_k,
                 .type_v = shape->type_v,
                 .block = shape->block,
                 .n_ctx = MOST_CTX,
                 .n_blocks = shape->n_blocks,
                 .n_seqs = shape->n_seqs,
                 .share = shape->block > 0};
    *k = (TailCache){.random = seed, .pending = pending};
    assert_ok(kvcache_new(&k->kv, &s));
    assert_ok(cpu_backend("scalar", &k->be));
    for (int step = 0; step < STEPS; step++) change(k);
    compute(k);
    for (int seq = 0; seq < MOST_SEQS; seq++) restart(k, seq);
    assert_int_equal(k->kv.n_free, k->kv.pool->n_blocks); // all blocks are free again
    assert_int_equal(k->kv.n_free_tails, k->kv.pool->n_tails);
    kvcache_free(&k->kv);
}

static void run_all(bool pending) {
    int n_refused = 0, n_copied = 0, n_matched = 0;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        static TailCache k;
        run_book(&shapes[i], i + 1, pending, &k);
        n_refused += k.n_refused, n_copied += k.n_copied, n_matched += k.n_matched;
    }
    print_message("%zu operations: %d refusals, %d copies, %d prefixes found\n", ARRAY_LEN(shapes) * STEPS, n_refused,
                  n_copied, n_matched);
    assert_true(n_refused > 500 && n_copied > 500 && n_matched > 500); // all kinds of events must have occurred
}

static void test_random_operations(void **state) {
    (void)state;
    run_all(false);
}

// Forks, truncations and releases also happen between reserving and the step that makes the copies: a page with a
// pending copy stays unchanged although no sequence has its block any more.
static void test_random_operations_with_pending_copies(void **state) {
    (void)state;
    run_all(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_operations),
                                       cmocka_unit_test(test_random_operations_with_pending_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
