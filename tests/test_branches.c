// tests/test_branches.c: requests with branches, which are further answers to one prompt.
enum { FAKE_CTX = 64 };
#include "tests/rig/fake_model.h"

// Several answers to one prompt: the prompt is computed once, and each answer is the same as alone.
static void test_branches(void **state) {
    (void)state;
    static FakeEngine f;
    static const int blocks[] = {1, 8, 16}, seqs[] = {2, 8};
    for (size_t b = 0; b < ARRAY_LEN(blocks); b++)
        for (size_t s = 0; s < ARRAY_LEN(seqs); s++)
            for (int max_new = 1; max_new <= 9; max_new += 4) {
                Request r[5];
                fake_open(&f, blocks[b], 0, 16, seqs[s]);
                for (int i = 0; i < 5; i++) {
                    request_new(&r[i], i == 0 ? 21 : 0, max_new, 2);
                    r[i].sequence_key = 2 + (uint64_t)i; // the text depends on the answer's key only
                    if (i > 0) r[i - 1].next = &r[i];
                }
                r[0].branches = &r[1];
                scheduler_add(f.s, &r[0]);
                run_all(&f);
                assert_int_equal(f.n_rows, 21 + 5 * (max_new - 1));
                for (int i = 0; i < 5; i++) {
                    assert_int_equal(r[i].finish, FINISH_LENGTH);
                    assert_int_equal(r[i].n_prompt, 21);
                    assert_text(&r[i]);
                    request_free(&f, &r[i]);
                }
                assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
                fake_close(&f);
            }
}

// Branches that do not exist yet count as running. A request that has begun besides them gets a row in every step from
// its first token on, even if sequences or rows are scarce.
static void test_branches_crowd_nobody_out(void **state) {
    (void)state;
    static FakeEngine f;
    for (int few_rows = 0; few_rows < 2; few_rows++) {
        Request r[7];
        Batch *b;
        fake_open(&f, 8, 0, few_rows ? 4 : 16, few_rows ? 8 : 4);
        for (int i = 0; i < 7; i++) { // one prompt with four answers, three with one
            request_new(&r[i], i == 0 ? 25 : i < 4 ? 0 : 2, 20, i < 4 ? 0 : (uint64_t)i);
            r[i].sequence_key = (uint64_t)i;
            if (i > 0 && i < 4) r[i - 1].next = &r[i];
        }
        r[0].branches = &r[1];
        for (int i = 0; i < 7; i += i ? 1 : 4) scheduler_add(f.s, &r[i]);
        while (scheduler_next(f.s, &b)) {
            int before[7];
            for (int i = 0; i < 7; i++) before[i] = r[i].n_new;
            scheduler_take(f.s, fake_forward(&f, b));
            for (int i = 0; i < 7; i++)
                if (before[i] > 0 && before[i] < 20) assert_int_equal(r[i].n_new, before[i] + 1);
        }
        for (int i = 0; i < 7; i++) {
            assert_text(&r[i]);
            request_free(&f, &r[i]);
        }
        fake_close(&f);
    }
}

// A request with many branches begins with one free place. Its branches then take the places that become free; requests
// before it get a row in every step, and all steps are full until the last sequences run.
static void test_branches_begin_in_turn(void **state) {
    (void)state;
    static FakeEngine f;
    Request r[10];
    Batch *b;
    fake_open(&f, 8, 0, 16, 4);
    for (int i = 0; i < 10; i++) { // three prompts with one answer, one with six, one more
        request_new(&r[i], i < 4 || i == 9 ? 3 : 0, 10 + i, (uint64_t)(i > 3 && i < 9 ? 3 : i));
        r[i].sequence_key = (uint64_t)i;
        if (i > 3 && i < 9) r[i - 1].next = &r[i];
    }
    r[3].branches = &r[4];
    r[3].next = NULL;
    for (int i = 0; i < 10; i += i == 3 ? 6 : 1) scheduler_add(f.s, &r[i]);
    int n_steps = 0, n_new = 0;
    for (; scheduler_next(f.s, &b); n_steps++) {
        int before[3];
        for (int i = 0; i < 3; i++) before[i] = r[i].n_new;
        scheduler_take(f.s, fake_forward(&f, b));
        for (int i = 0; i < 3 && n_steps > 0; i++)
            assert_int_equal(r[i].n_new, before[i] < 10 + i ? before[i] + 1 : 10 + i);
        if (n_steps == 0) assert_true(r[3].n_new > 0);
    }
    for (int i = 0; i < 10; i++) {
        n_new += r[i].n_new;
        assert_int_equal(r[i].finish, FINISH_LENGTH);
        assert_text(&r[i]);
        request_free(&f, &r[i]);
    }
    assert_true(n_steps <= n_new / 4 + 19);
    fake_close(&f);
}

// If the first request ends before its prompt is computed, its branches end too.
static void test_branches_end_with_their_prompt(void **state) {
    (void)state;
    static FakeEngine f;
    for (int how = 0; how < 3; how++) {
        Request r[2];
        Batch *b;
        fake_open(&f, 8, 0, 8, 4);
        request_new(&r[0], 20, how == 0 ? 0 : 5, 1);
        request_new(&r[1], 0, 5, 1);
        r[0].branches = &r[1];
        scheduler_add(f.s, &r[0]);
        assert_true(scheduler_next(f.s, &b));
        scheduler_take(f.s, fake_forward(&f, b));
        if (how == 1) scheduler_cancel(f.s, &r[0]);
        if (how == 2) scheduler_interrupt(f.s);
        run_all(&f);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(r[i].finish, how == 0 ? FINISH_LENGTH : FINISH_INTERRUPT);
            request_free(&f, &r[i]);
        }
        fake_close(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_branches_crowd_nobody_out),
        cmocka_unit_test(test_branches_begin_in_turn),
        cmocka_unit_test(test_branches_end_with_their_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
