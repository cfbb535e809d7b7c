// tests/test_draws.c: a device draws the tokens, and the next step begins before they are known.
enum { FAKE_CTX = 64 };
#include "tests/rig/fake_model.h"

static Finish stop_at(Request *r, int token, const float *logits) {
    assert_true(r->blind || logits);
    return token == *(const int *)r->arg ? FINISH_STOP : RUNNING;
}

// Asserts that the text is the usual one, up to the token that ends it.
static void assert_stopped_text(const Request *r, int stop) {
    int want[FAKE_CTX + 1], n = expected_text(r, r->n_prompt, want), end = 0;
    while (end < n && want[end] != stop) end++;
    assert_int_equal(r->n_new, int_min(end + 1, n));
    assert_int_equal(r->finish, end < n ? FINISH_STOP : FINISH_LENGTH);
    assert_memory_equal(r->seq->tokens + r->n_prompt, want, (size_t)r->n_new * sizeof *want);
}

// Random requests in small pools, with steps planned ahead. Each must end at the same token as without that, release
// its blocks at once, and have the text that it has alone. Some requests need logits, or parameters that no device
// supports.
static void test_tokens_ahead(void **state) {
    (void)state;
    static Device d;
    enum { MANY = 40 };
    uint64_t random = 11;
    int n_ahead = 0, n_stopped = 0, n_preempted = 0;
    for (int round = 0; round < 64; round++) {
        static Request r[MANY];
        int block = 1 << test_random(&random) % 4, stop = (int)(test_random(&random) % FAKE_VOCAB), added = 0;
        d = (Device){.sampler = sampler_new(FAKE_VOCAB)};
        fake_open_shared(&d.f, block, (int)(FAKE_CTX + test_random(&random) % 80) / block + 1,
                         1 + (int)(test_random(&random) % 40), 1 + (int)(test_random(&random) % 8), round % 2);
        fake_policy(&d.f, &plain_policy, true);
        for (int i = 0; i < MANY; i++) {
            request_new(&r[i], 1 + (int)(test_random(&random) % 40), 1 + (int)(test_random(&random) % 24),
                        test_random(&random) % 3);
            r[i].sequence_key = (uint64_t)i;
            r[i].emit = stop_at;
            r[i].arg = &stop;
            r[i].blind = round % 4 > 0 || test_random(&random) % 8 > 0;
            if (round % 4 == 2 && test_random(&random) % 8 == 0) r[i].sampling.typical = 0.9f;
        }
        for (bool any = true; any || added < MANY;) {
            if (added < MANY && test_random(&random) % 16 == 0) scheduler_add(d.f.s, &r[added++]);
            any = device_step(&d);
            for (int i = 0; i < added; i++)
                if (r[i].finish != RUNNING) kvcache_release(&d.f.kv, r[i].seq);
            if (d.f.n_steps > 50000) fail_msg("no end");
        }
        assert_int_equal(d.n_told, d.n_drawn);
        n_ahead += d.n_ahead;
        n_preempted += (int)scheduler_preemptions(d.f.s);
        for (int i = 0; i < MANY; i++) {
            assert_stopped_text(&r[i], stop);
            n_stopped += r[i].finish == FINISH_STOP;
            request_free(&d.f, &r[i]);
        }
        assert_int_equal(d.f.kv.n_free, d.f.kv.pool->n_blocks);
        fake_close(&d.f);
        sampler_free(d.sampler);
    }
    assert_true(n_ahead > 1000 && n_stopped > 100 && n_preempted > 10);
}

static void device_open(Device *d) {
    *d = (Device){.sampler = sampler_new(FAKE_VOCAB)};
    fake_open(&d->f, 8, 0, 64, 4);
    fake_policy(&d->f, &plain_policy, true);
}

// Ends and interruptions: a cancellation and an interrupt drop the rows that were begun; with a full context there are
// none.
static void test_ends_while_ahead(void **state) {
    (void)state;
    static Device d;
    Request r[3];
    device_open(&d);
    for (int i = 0; i < 3; i++) request_new(&r[i], 9, i == 2 ? -1 : 20, (uint64_t)i), scheduler_add(d.f.s, &r[i]);
    for (int i = 0; i < 5; i++) assert_true(device_step(&d));
    assert_true(d.begun);
    scheduler_cancel(d.f.s, &r[0]);
    kvcache_release(&d.f.kv, r[0].seq);
    assert_true(device_step(&d));
    assert_null(scheduler_rows(d.f.s, 0)->request);
    assert_int_equal(r[0].n_new, 5);
    assert_int_equal(r[1].n_new, 6);
    while (r[1].finish == RUNNING) device_step(&d);
    while (device_step(&d)) {
    }
    for (int i = 1; i < 3; i++) assert_text(&r[i]);
    assert_int_equal(r[2].finish, FINISH_CONTEXT);
    for (int i = 0; i < 3; i++) request_free(&d.f, &r[i]);
    request_new(&r[0], 9, 20, 7);
    scheduler_add(d.f.s, &r[0]);
    for (int i = 0; i < 3; i++) assert_true(device_step(&d));
    scheduler_interrupt(d.f.s);
    while (device_step(&d)) {
    }
    assert_int_equal(r[0].finish, FINISH_INTERRUPT);
    assert_int_equal(r[0].n_new, 3);
    assert_int_equal(d.n_told, d.n_drawn);
    request_free(&d.f, &r[0]);
    fake_close(&d.f);
    sampler_free(d.sampler);
}

// A request that arrives while a step runs begins in the next step, so that this step may not be planned before.
static void test_a_request_that_waits(void **state) {
    (void)state;
    static Device d;
    Request r[2];
    Batch *b, *ahead;
    device_open(&d);
    for (int i = 0; i < 2; i++) request_new(&r[i], 9, 20, (uint64_t)i);
    scheduler_add(d.f.s, &r[0]);
    assert_true(scheduler_next(d.f.s, &b));
    device_begin(&d, b);
    scheduler_add(d.f.s, &r[1]);
    assert_false(scheduler_ahead(d.f.s, &ahead));
    scheduler_take_tokens(d.f.s, d.tokens[d.n_told++ % 2]);
    assert_true(scheduler_next(d.f.s, &b));
    assert_int_equal(b->n_seqs, 2);
    device_begin(&d, b);
    assert_true(scheduler_ahead(d.f.s, &ahead)); // both decode now
    device_begin(&d, ahead);
    d.begun = true;
    scheduler_take_tokens(d.f.s, d.tokens[d.n_told++ % 2]);
    while (device_step(&d)) {
    }
    for (int i = 0; i < 2; i++) {
        assert_text(&r[i]);
        request_free(&d.f, &r[i]);
    }
    fake_close(&d.f);
    sampler_free(d.sampler);
}

// A step is not abandoned once the next one was planned from it, nor if one of its requests has ended.
static void test_steps_that_run_to_their_end(void **state) {
    (void)state;
    static Device d;
    Request r[2];
    Batch *b, *ahead;
    device_open(&d);
    for (int i = 0; i < 2; i++) request_new(&r[i], 9, 20, (uint64_t)i), scheduler_add(d.f.s, &r[i]);
    assert_true(scheduler_next(d.f.s, &b));
    assert_true(scheduler_may_abandon(d.f.s));
    device_begin(&d, b);
    assert_true(scheduler_ahead(d.f.s, &ahead));
    assert_false(scheduler_may_abandon(d.f.s));
    device_begin(&d, ahead);
    scheduler_take_tokens(d.f.s, d.tokens[0]);
    scheduler_cancel(d.f.s, &r[0]);
    assert_true(scheduler_next(d.f.s, &b));
    assert_false(scheduler_may_abandon(d.f.s));
    scheduler_take_tokens(d.f.s, d.tokens[1]);
    assert_int_equal(r[1].n_new, 2);
    for (int i = 0; i < 2; i++) request_free(&d.f, &r[i]);
    fake_close(&d.f);
    sampler_free(d.sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_ahead),
        cmocka_unit_test(test_ends_while_ahead),
        cmocka_unit_test(test_a_request_that_waits),
        cmocka_unit_test(test_steps_that_run_to_their_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
