// tests/test_partners.c: layers with a window: partners of blocks are freed behind the window, stay for prefixes that
// other sequences share, and limit the number of sequences.
#include "tests/rig/small_kv.h"

enum { WINDOW = 10, WINDOW_BLOCK = 4, PARTNERS = 40 };

// The number of blocks of a sequence that have partners, which must be its last ones.
static int n_with_partners(const KvCache *kv, const Sequence *s) {
    int n = 0;
    for (int i = 0; i < s->n_blocks; i++) {
        bool has = kv->partner[s->blocks[i]] >= 0;
        assert_true(has || n == 0);
        n += has;
    }
    return n;
}

static KvCache windowed(bool keep, bool share) {
    KvShape shape = small_kv_shape(WINDOW_BLOCK, 200, 0, 2);
    KvCache kv;
    shape.n_windowed = 1;
    shape.window = WINDOW;
    shape.keep_partners = keep;
    shape.share = share;
    shape.n_partners = kvshape_partners_needed(&shape, 8);
    assert_true(shape.n_partners < PARTNERS);
    assert_ok(kvcache_new(&kv, &shape));
    return kv;
}

// A sequence holds partners for one window and for a step, however long it is, or for all its blocks if they are kept.
static void test_windows_are_given_up(void **state) {
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        KvCache kv = windowed(keep, false);
        Sequence s = {0};
        for (int i = 0; i < 180; i++) sequence_push(&s, &i, 1);
        for (int n = 20; n <= 180; n += 20) {
            small_kv_compute(&kv, &s, n, 8);
            int most = (WINDOW + 8 + WINDOW_BLOCK - 1) / WINDOW_BLOCK + 1, held = n_with_partners(&kv, &s);
            if (keep) assert_int_equal(held, s.n_blocks);
            else assert_in_range(held, WINDOW / WINDOW_BLOCK, most);
        }
        kvcache_release(&kv, &s);
        assert_int_equal(kv.n_free_partners, kv.pool[KV_WINDOW].n_blocks);
        sequence_free(&s);
        kvcache_free(&kv);
    }
}

// Truncating drafts keeps the window. Truncating further loses partners, and all tokens are computed again.
static void test_truncating_behind_a_window(void **state) {
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        KvCache kv = windowed(keep, false);
        Sequence s = {0};
        for (int i = 0; i < 100; i++) sequence_push(&s, &i, 1);
        small_kv_compute(&kv, &s, 80, 8);
        assert_true(kvcache_reserve(&kv, &s, 87)); // rows of tokens that may be dropped
        s.n_cached = 87;
        kvcache_truncate(&kv, &s, 81);
        assert_int_equal(s.n_cached, 81);
        assert_true(n_with_partners(&kv, &s) * WINDOW_BLOCK >= WINDOW);
        kvcache_truncate(&kv, &s, 40);
        assert_int_equal(s.n_tokens, 40);
        assert_int_equal(s.n_cached, keep ? 40 : 0);
        assert_int_equal(s.n_blocks, keep ? 10 : 0);
        small_kv_compute(&kv, &s, 40, 8);
        kvcache_truncate(&kv, &s, 0);
        assert_int_equal(kv.n_free_partners, kv.pool[KV_WINDOW].n_blocks);
        sequence_free(&s);
        kvcache_free(&kv);
    }
}

// Slots 80 to 88 are in one chunk. A return to slot 82 needs only those from 80 on, which are there; with a window
// those from 73 on, which are not.
static void test_truncating_in_a_chunk(void **state) {
    (void)state;
    for (int chunked = 0; chunked < 2; chunked++) {
        KvCache kv = windowed(false, false);
        Sequence s = {0};
        kv.chunked = chunked;
        for (int i = 0; i < 100; i++) sequence_push(&s, &i, 1);
        small_kv_compute(&kv, &s, 88, 1);
        small_kv_compute(&kv, &s, 89, 1);
        kvcache_truncate(&kv, &s, 82);
        assert_int_equal(s.n_cached, chunked ? 82 : 0);
        kvcache_truncate(&kv, &s, 75);
        assert_int_equal(s.n_cached, 0);
        sequence_free(&s);
        kvcache_free(&kv);
    }
}

// A prefix is shared only as far as the partners of its last window exist.
static void test_prefix_with_a_window(void **state) {
    (void)state;
    KvCache kv = windowed(false, true);
    Sequence a = {0}, b = {0}, other = {0};
    for (int i = 0; i < 120; i++) sequence_push(&a, &i, 1);
    sequence_push(&b, a.tokens, 101);
    small_kv_compute(&kv, &a, 100, 8);
    assert_int_equal(kvcache_match_prefix(&kv, &b), 100); // a still sees the last window of these tokens
    assert_int_equal(b.n_unseen, (100 + 1 - WINDOW) / WINDOW_BLOCK);
    kvcache_release(&kv, &b);
    small_kv_compute(&kv, &a, 120, 8);
    kvcache_release(&kv, &a);
    for (int i = 0; i < 190; i++) sequence_push(&other, &(int){1000 + i}, 1);
    small_kv_compute(&kv, &other, 190, 8); // takes partners of unused named blocks
    int n = kvcache_match_prefix(&kv, &b), first = (n + 1 - WINDOW) / WINDOW_BLOCK;
    assert_true(n < 100);
    for (int i = int_max(0, first); i < b.n_blocks; i++) assert_true(kv.partner[b.blocks[i]] >= 0);
    Sequence *all[] = {&a, &b, &other};
    for (int i = 0; i < 3; i++) sequence_end(&kv, all[i]);
    kvcache_free(&kv);
}

// The blocks of a sequence that was released keep their partners for the next one that begins with the same tokens.
static void test_prefix_of_a_released_window(void **state) {
    (void)state;
    KvCache kv = windowed(false, true);
    Sequence a = {0}, b = {0};
    for (int i = 0; i < 101; i++) sequence_push(&a, &i, 1);
    sequence_push(&b, a.tokens, 101);
    small_kv_compute(&kv, &a, 100, 8);
    kvcache_release(&kv, &a);
    assert_int_equal(kvcache_match_prefix(&kv, &b), 100);
    kvcache_release(&kv, &b);
    sequence_free(&a);
    sequence_free(&b);
    kvcache_free(&kv);
}

// Forks of blocks behind the window see no more partners than their origin.
static void test_forks_with_a_window(void **state) {
    (void)state;
    KvCache kv = windowed(false, false);
    Sequence a = {0}, b = {0};
    for (int i = 0; i < 101; i++) sequence_push(&a, &i, 1);
    small_kv_compute(&kv, &a, 100, 8);
    kvcache_fork(&kv, &a, &b);
    kvcache_release(&kv, &a);
    kvcache_release(&kv, &b);
    assert_int_equal(kv.n_free_partners, kv.pool[KV_WINDOW].n_blocks);
    for (int i = 0; i < kv.pool->n_blocks; i++) assert_int_equal(kv.viewers[i], 0);
    sequence_free(&a);
    sequence_free(&b);
    kvcache_free(&kv);
}

static void test_given_up(void **state) {
    (void)state;
    KvShape shape = small_kv_shape(4, 64, 32, 2);
    KvCache kv;
    assert_ok(kvcache_new(&kv, &shape));
    Sequence a = {0};
    for (int i = 0; i < 20; i++) sequence_push(&a, &i, 1);
    small_kv_compute(&kv, &a, 20, 8);
    kvcache_give_up(&kv, &a, 6);
    kvcache_truncate(&kv, &a, 12);
    assert_int_equal(a.n_cached, 0);
    assert_int_equal(a.n_gone, 0);
    sequence_end(&kv, &a);
    kvcache_free(&kv);
}

static void test_most_sequences(void **state) {
    (void)state;
    KvShape shape = small_kv_shape(WINDOW_BLOCK, 200, 0, 2);
    KvCache kv;
    shape.n_windowed = 1;
    shape.window = WINDOW;
    shape.n_partners = 2 * (int)kvshape_partners_of_one(WINDOW, WINDOW_BLOCK) + 1;
    assert_ok(kvcache_new(&kv, &shape));
    assert_int_equal(kvcache_most_sequences(&kv, 4), 2);
    assert_int_equal(kvcache_most_sequences(&kv, 5), 1); // rows of two blocks
    kvcache_free(&kv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_are_given_up),
        cmocka_unit_test(test_truncating_behind_a_window),
        cmocka_unit_test(test_truncating_in_a_chunk),
        cmocka_unit_test(test_prefix_with_a_window),
        cmocka_unit_test(test_prefix_of_a_released_window),
        cmocka_unit_test(test_forks_with_a_window),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_most_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
