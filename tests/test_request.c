// tests/test_request.c: what one request tells the scheduler: how many blocks and sequences it needs, and whether
// another request can share what it computes.
#include "tests/rig/testing.h"

#include "request.h"

enum { N_CTX = 64 };

static KvShape shape_of(int block, bool share) {
    KvShape shape = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 1, .n_ctx = N_CTX, .n_seqs = 4};
    shape.type_k = shape.type_v = TYPE_F32;
    shape.block = block;
    shape.share = share;
    return shape;
}

static void open_cache(KvCache *kv, int block, bool share) {
    KvShape shape = shape_of(block, share);
    assert_ok(kvcache_new(kv, &shape));
}

// With a recurrent layer, whose regular checkpoints are 16 slots apart if there are eight.
static void open_recurrent(KvCache *kv, int n_checkpoints) {
    KvShape shape = shape_of(4, true);
    shape.n_recurrent = 1;
    shape.rec = (Recurrence){.channels = 1, .taps = 2};
    shape.n_checkpoints = n_checkpoints;
    assert_ok(kvcache_new(kv, &shape));
    if (n_checkpoints == 8) assert_int_equal(kv->states.every, 16);
}

// Tokens 0, 1, 2, ...
static void push(Sequence *s, int n) {
    for (int i = 0; i < n; i++) sequence_push(s, &(int){s->n_tokens}, 1);
}

// Computes a request's next slots.
static void compute(KvCache *kv, Sequence *s, int n) {
    assert_true(kvcache_reserve(kv, s, s->n_cached + n));
    kvcache_advance(kv, s, n);
}

static void close_all(KvCache *kv, Sequence *a, Sequence *b) {
    kvcache_release(kv, a);
    kvcache_release(kv, b);
    sequence_free(a);
    sequence_free(b);
    kvcache_free(kv);
}

// A request needs blocks for its tokens and the next one, but not for more than it can ever have.
static void test_blocks_to_begin(void **state) {
    (void)state;
    static const struct {
        int n_prompt, max_new, n_blocks; // blocks of 8 slots
    } cases[] = {{15, 10, 2}, {16, 10, 3}, {16, 0, 2}, {16, -1, 3}, {N_CTX, 10, N_CTX / 8}, {N_CTX, -1, N_CTX / 8}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        KvCache kv;
        Sequence s = {0}, none = {0};
        Request r = {.seq = &s, .n_prompt = cases[i].n_prompt, .max_new = cases[i].max_new};
        open_cache(&kv, 8, true);
        push(&s, cases[i].n_prompt);
        assert_int_equal(request_blocks_to_begin(&r, &kv), cases[i].n_blocks);
        compute(&kv, &s, 8);
        assert_int_equal(request_blocks_to_begin(&r, &kv), cases[i].n_blocks - 1);
        close_all(&kv, &s, &none);
    }
}

// If sequences can share blocks, those that begin like the first one count once. The block of a sequence's last token
// is its own, since that token is computed.
static void test_shared_blocks_count_once(void **state) {
    (void)state;
    static const int n_tokens[] = {20, 17, 16}, own[] = {1, 1, 2};
    for (int share = 0; share < 2; share++)
        for (size_t i = 0; i < ARRAY_LEN(own); i++) {
            KvCache kv;
            Sequence s = {0}, more = {0};
            Request r = {.seq = &s, .more = &more, .n_more = 1, .n_prompt = 10, .max_new = 30};
            open_cache(&kv, 8, share);
            push(&s, n_tokens[i]);
            push(&more, n_tokens[i]);
            assert_int_equal(request_blocks_to_begin(&r, &kv), share ? 3 + own[i] : 3 + 3);
            close_all(&kv, &s, &more);
        }
}

static void test_growing(void **state) {
    (void)state;
    static const int max_new[] = {6, 7, -1}, growing[] = {0, 1, 1};
    for (size_t i = 0; i < ARRAY_LEN(growing); i++) {
        KvCache kv;
        Sequence s = {0}, more = {0};
        Request r = {.seq = &s, .more = &more, .n_prompt = 10, .max_new = max_new[i]};
        open_cache(&kv, 8, false);
        push(&s, 12);
        push(&more, 12);
        compute(&kv, &s, 11);
        compute(&kv, &more, 11);
        for (r.n_more = 0; r.n_more < 2; r.n_more++) // each sequence has 16 slots
            assert_int_equal(request_n_growing(&r, &kv), growing[i] * request_n_sequences(&r));
        close_all(&kv, &s, &more);
    }
}

static void test_coming(void **state) {
    (void)state;
    Sequence s = {0};
    Request branches[2] = {{.next = &branches[1]}, {0}}, r = {.seq = &s};
    assert_int_equal(request_n_coming(&r), 0);
    r.width = 4;
    assert_int_equal(request_n_coming(&r), 3);
    r.n_more = 3;
    assert_int_equal(request_n_coming(&r), 0);
    r = (Request){.seq = &s, .branches = branches};
    assert_int_equal(request_n_coming(&r), 2);
}

// A later request waits for blocks that are being computed, if it may have them.
static void test_computing_for(void **state) {
    (void)state;
    KvCache kv;
    Sequence s = {0}, later = {0};
    Request r = {.seq = &s, .n_prompt = 20, .max_new = 10}, other = {.seq = &later};
    open_cache(&kv, 8, true);
    push(&s, 20);
    push(&later, 20);
    assert_false(request_is_computing_for(&r, &other, &kv)); // it has not begun
    compute(&kv, &s, 8);
    assert_true(request_is_computing_for(&r, &other, &kv));
    later.n_tokens = 16; // its second block has its last token
    assert_false(request_is_computing_for(&r, &other, &kv));
    later.n_tokens = 17;
    assert_true(request_is_computing_for(&r, &other, &kv));
    s.alone = true;
    assert_false(request_is_computing_for(&r, &other, &kv));
    s.alone = false;
    compute(&kv, &s, 8);
    assert_false(request_is_computing_for(&r, &other, &kv)); // these blocks are there
    close_all(&kv, &s, &later);
}

// With recurrent layers, blocks are shared only up to a checkpoint. A later request waits if it begins with the tokens
// up to the next one; where it parts from the prompt, a checkpoint can be asked for.
static void test_computing_for_recurrent(void **state) {
    (void)state;
    static const struct {
        int common, n_cached; // tokens that the prompts begin with, and computed ones of the first prompt
        bool coming, wanted;  // whether the second waits: without a wanted checkpoint, and with one
        int at;               // the wanted checkpoint
    } cases[] = {{3, 0, false, false, 0},  {7, 4, false, false, 0},  {8, 0, false, true, 8},
                 {15, 4, false, true, 12}, {16, 0, true, true, 16},  {19, 16, false, false, 0},
                 {20, 16, true, true, 20}, {22, 12, true, true, 20}, {22, 20, false, false, 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        KvCache kv;
        Sequence s = {0}, later = {0}, running = {0}, alien = {0};
        Request other = {.seq = &later, .max_new = 10}, foreign = {.seq = &alien, .next = &other};
        Request begun = {.seq = &running, .next = &foreign}, r = {.seq = &s, .n_prompt = 22, .next = &begun};
        open_recurrent(&kv, 8);
        push(&running, 22);
        compute(&kv, &running, 1);
        for (int t = 0; t < 22; t++) sequence_push(&alien, &(int){99}, 1);
        push(&s, 22);
        push(&later, 24);
        if (cases[i].common < 22) later.tokens[cases[i].common] = 99;
        compute(&kv, &s, int_max(1, cases[i].n_cached));
        assert_int_equal(request_is_computing_for(&r, &other, &kv), cases[i].coming);
        request_want_checkpoints(&r, &kv);
        assert_int_equal(s.states.wanted[0], cases[i].at);
        assert_int_equal(s.states.wanted[1], cases[i].at);
        assert_int_equal(request_is_computing_for(&r, &other, &kv), cases[i].wanted);
        compute(&kv, &s, 22 - s.n_cached);
        kvcache_commit(&kv, &s, 22);
        if (cases[i].wanted) assert_int_equal(kvcache_match_prefix(&kv, &later), cases[i].at);
        kvcache_release(&kv, &running);
        sequence_free(&running);
        sequence_free(&alien);
        close_all(&kv, &s, &later);
    }
}

// Two checkpoints are wanted: where the next prompt parts, and where the first difference is.
static void test_two_wanted(void **state) {
    (void)state;
    KvCache kv;
    Sequence s[4] = {{0}};
    Request r[4];
    open_recurrent(&kv, 8);
    static const int common[4] = {22, 13, 20, 6};
    for (int i = 3; i >= 0; i--) {
        r[i] = (Request){.seq = &s[i], .next = i < 3 ? &r[i + 1] : NULL};
        push(&s[i], 24);
        s[i].tokens[common[i]] = 99 + i;
    }
    request_want_checkpoints(&r[0], &kv);
    assert_int_equal(s[0].states.wanted[0], 12);
    assert_int_equal(s[0].states.wanted[1], 4);
    compute(&kv, &s[0], 22);
    kvcache_commit(&kv, &s[0], 22);
    for (int i = 1; i < 4; i++) assert_int_equal(kvcache_match_prefix(&kv, &s[i]), i == 1 ? 12 : i == 2 ? 20 : 4);
    r[0].next = NULL;
    request_want_checkpoints(&r[0], &kv);
    assert_int_equal(s[0].states.wanted[0], 0);
    kvcache_release(&kv, &s[2]);
    kvcache_release(&kv, &s[3]);
    sequence_free(&s[2]);
    sequence_free(&s[3]);
    close_all(&kv, &s[0], &s[1]);
}

// Checkpoints leave a state to every sequence that has none yet.
static void test_checkpoints_leave_states(void **state) {
    (void)state;
    KvCache kv;
    Sequence s[4] = {{0}};
    open_recurrent(&kv, 2);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 4; i++) {
            sequence_push(&s[i], &(int){100 + i}, 1);
            push(&s[i], 22);
            s[i].states.wanted[0] = 8;
            assert_true(kvcache_reserve(&kv, &s[i], 22));
        }
        assert_int_equal(kvstates_left(&kv.states), 0); // four sequences and two checkpoints
        for (int i = 0; i < 4; i++) kvcache_advance(&kv, &s[i], 22);
        assert_int_equal(kvstates_left(&kv.states), 2);
        for (int i = 0; i < 4; i++) {
            kvcache_release(&kv, &s[i]);
            sequence_free(&s[i]);
            s[i] = (Sequence){0};
        }
        assert_int_equal(kvstates_left(&kv.states), 6);
        assert_int_equal(kv.states.n_active, 0);
    }
    kvcache_free(&kv);
}

// A checkpoint of tokens that an older block has, too, is found by that block's name.
static void test_checkpoint_of_known_block(void **state) {
    (void)state;
    KvCache kv;
    Sequence s[3] = {{0}};
    open_recurrent(&kv, 8);
    for (int i = 0; i < 3; i++) push(&s[i], 24);
    s[2].tokens[9] = 99;
    compute(&kv, &s[0], 12); // no checkpoint: 16 and 20 would be
    kvcache_commit(&kv, &s[0], 12);
    s[1].states.wanted[0] = 8;
    compute(&kv, &s[1], 12);
    kvcache_commit(&kv, &s[1], 12);
    assert_int_equal(kvcache_match_prefix(&kv, &s[2]), 8);
    kvcache_release(&kv, &s[2]);
    sequence_free(&s[2]);
    close_all(&kv, &s[0], &s[1]);
}

// A decoding request computes one token a step: nobody waits for it.
static void test_decoding_for(void **state) {
    (void)state;
    KvCache kv;
    Sequence s = {0}, later = {0};
    Request r = {.seq = &s, .n_prompt = 20, .max_new = 10}, other = {.seq = &later};
    open_cache(&kv, 1, true);
    push(&s, 21);
    push(&later, 30);
    compute(&kv, &s, 19);
    assert_false(request_is_decoding(&r));
    assert_true(request_is_computing_for(&r, &other, &kv));
    compute(&kv, &s, 1);
    assert_true(request_is_decoding(&r));
    assert_false(request_is_computing_for(&r, &other, &kv));
    close_all(&kv, &s, &later);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_to_begin),
        cmocka_unit_test(test_shared_blocks_count_once),
        cmocka_unit_test(test_growing),
        cmocka_unit_test(test_coming),
        cmocka_unit_test(test_computing_for),
        cmocka_unit_test(test_computing_for_recurrent),
        cmocka_unit_test(test_two_wanted),
        cmocka_unit_test(test_checkpoint_of_known_block),
        cmocka_unit_test(test_checkpoints_leave_states),
        cmocka_unit_test(test_decoding_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
