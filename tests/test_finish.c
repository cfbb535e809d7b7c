// tests/test_finish.c: when and why a request ends: its limits, the result of emit, an interrupt, a cancellation.
enum { FAKE_CTX = 64 };
#include "tests/rig/fake_model.h"

#include <math.h>

static int n_emitted;

static Finish count_emits(Request *r, int token, const float *logits) {
    (void)r;
    (void)token;
    (void)logits;
    n_emitted++;
    return RUNNING;
}

static Request run_one(FakeEngine *f, int n_prompt, int max_new) {
    Request r;
    request_new(&r, n_prompt, max_new, 3);
    r.emit = count_emits;
    n_emitted = 0;
    scheduler_add(f->s, &r);
    run_all(f);
    return r;
}

static void test_max_new(void **state) {
    (void)state;
    static FakeEngine f;
    static const struct {
        int n_prompt, max_new, n_new;
        Finish finish;
    } cases[] = {{5, 0, 0, FINISH_LENGTH},
                 {5, 1, 1, FINISH_LENGTH},
                 {5, 7, 7, FINISH_LENGTH},
                 {FAKE_CTX, 0, 0, FINISH_LENGTH},
                 {FAKE_CTX, 1, 1, FINISH_LENGTH},
                 {FAKE_CTX, 5, 1, FINISH_CONTEXT},
                 {FAKE_CTX - 1, -1, 2, FINISH_CONTEXT},
                 {60, 5, 5, FINISH_LENGTH},
                 {60, 6, 5, FINISH_CONTEXT}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fake_open(&f, 8, 0, 16, 4);
        Request r = run_one(&f, cases[i].n_prompt, cases[i].max_new);
        assert_int_equal(r.n_new, cases[i].n_new);
        assert_int_equal(n_emitted, cases[i].n_new);
        assert_int_equal(r.finish, cases[i].finish);
        assert_int_equal(r.seq->n_cached, cases[i].n_new ? r.seq->n_tokens - 1 : r.seq->n_tokens);
        assert_text(&r);
        request_free(&f, &r);
        fake_close(&f);
    }
}

static void test_prompt_past_the_context(void **state) {
    (void)state;
    static FakeEngine f;
    fake_open(&f, 8, 0, 16, 4);
    Request r = run_one(&f, FAKE_CTX + 3, -1);
    assert_int_equal(r.finish, FINISH_CONTEXT);
    assert_int_equal(r.n_new, 0);
    request_free(&f, &r);
    fake_close(&f);
}

typedef struct {
    int stop_after;
    Finish verdict;
    int n;
    uint64_t hash; // of all tokens so far, from which the expected logits follow
} EmitLog;

static Finish emit_until(Request *r, int token, const float *logits) {
    EmitLog *log = r->arg;
    float want[FAKE_VOCAB];
    uint64_t hash = 0;
    assert_int_equal(r->seq->tokens[r->seq->n_tokens - 1], token); // the token was appended before the call
    assert_int_equal(r->n_new, ++log->n);
    for (int i = 0; i < r->seq->n_tokens - 1; i++) hash = mix(hash, (uint64_t)r->seq->tokens[i]);
    logits_of(hash, want);
    assert_memory_equal(logits, want, sizeof want); // the logits must be the unmodified ones of its own row
    return log->n == log->stop_after ? log->verdict : RUNNING;
}

static void test_emit_verdicts(void **state) {
    (void)state;
    static FakeEngine f;
    static const Finish verdicts[] = {FINISH_EOG, FINISH_STOP, FINISH_LENGTH, FINISH_INTERRUPT};
    Request r[4];
    EmitLog log[4];
    fake_open(&f, 8, 0, 16, 4);
    for (int i = 0; i < 4; i++) {
        request_new(&r[i], 5 + i, i == 3 ? 4 : 10, (uint64_t)i);
        log[i] = (EmitLog){.stop_after = 1 + i, .verdict = verdicts[i]};
        r[i].emit = emit_until;
        r[i].arg = &log[i];
        scheduler_add(f.s, &r[i]);
    }
    run_all(&f);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(r[i].finish, verdicts[i]); // the result of emit comes before max_new
        assert_int_equal(r[i].n_new, 1 + i);
        request_free(&f, &r[i]);
    }
    fake_close(&f);
}

static void test_no_finite_logit(void **state) {
    (void)state;
    static FakeEngine f;
    Request r, other;
    Batch *b;
    fake_open(&f, 8, 0, 16, 4);
    request_new(&r, 3, 10, 0);
    request_new(&other, 3, 4, 1);
    scheduler_add(f.s, &r);
    scheduler_add(f.s, &other);
    assert_true(scheduler_next(f.s, &b));
    float *logits = (float *)fake_forward(&f, b);
    for (int i = 0; i < FAKE_VOCAB; i++) logits[i] = NAN;
    scheduler_take(f.s, logits);
    assert_int_equal(r.finish, FINISH_BROKEN);
    assert_int_equal(r.n_new, 0);
    assert_int_equal(r.seq->n_tokens, 3);
    run_all(&f);
    assert_text(&other);
    request_free(&f, &r);
    request_free(&f, &other);
    fake_close(&f);
}

static void test_interrupt(void **state) {
    (void)state;
    static FakeEngine f;
    for (int after = 0; after < 6; after++) {
        Request r[3];
        Batch *b;
        fake_open(&f, 8, 0, 8, 2); // one of three requests waits
        for (int i = 0; i < 3; i++) {
            request_new(&r[i], 12, -1, (uint64_t)i);
            scheduler_add(f.s, &r[i]);
        }
        for (int i = 0; i < after; i++) {
            assert_true(scheduler_next(f.s, &b));
            scheduler_take(f.s, fake_forward(&f, b));
        }
        scheduler_interrupt(f.s);
        assert_false(scheduler_next(f.s, &b));
        for (int i = 0; i < 3; i++) {
            assert_int_equal(r[i].finish, FINISH_INTERRUPT);
            assert_int_equal(r[i].seq->n_tokens, 12 + r[i].n_new); // the finished part stays usable
            request_free(&f, &r[i]);
        }
        Request next;
        request_new(&next, 4, 3, 7); // a chat continues after Ctrl-C
        scheduler_add(f.s, &next);
        run_all(&f);
        assert_text(&next);
        request_free(&f, &next);
        fake_close(&f);
    }
}

static void test_finish_names(void **state) {
    (void)state;
    assert_string_equal(finish_name(FINISH_EOG), "eog");
    assert_string_equal(finish_name(FINISH_STOP), "stop");
    assert_string_equal(finish_name(FINISH_LENGTH), "length");
    assert_string_equal(finish_name(FINISH_CONTEXT), "length");
    assert_string_equal(finish_name(FINISH_INTERRUPT), "interrupt");
    assert_string_equal(finish_name(FINISH_BROKEN), "error");
}

static void test_cancel(void **state) {
    (void)state;
    static FakeEngine f;
    for (int steps = 0; steps < 14; steps++) { // in the last ones the request has ended
        Request r[3];
        Batch *b;
        fake_open(&f, 8, 0, 16, 2);
        for (int i = 0; i < 3; i++) {
            request_new(&r[i], 20, 5, (uint64_t)i);
            scheduler_add(f.s, &r[i]);
        }
        for (int i = 0; i < steps; i++)
            if (scheduler_next(f.s, &b)) scheduler_take(f.s, fake_forward(&f, b));
        Finish before = r[1].finish;
        scheduler_cancel(f.s, &r[1]);
        assert_int_equal(r[1].finish, before == RUNNING ? FINISH_INTERRUPT : before);
        kvcache_release(&f.kv, r[1].seq);
        run_all(&f);
        assert_text(&r[0]);
        assert_text(&r[2]);
        for (int i = 0; i < 3; i++) request_free(&f, &r[i]);
        assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
        fake_close(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_max_new),       cmocka_unit_test(test_prompt_past_the_context),
        cmocka_unit_test(test_emit_verdicts), cmocka_unit_test(test_no_finite_logit),
        cmocka_unit_test(test_interrupt),     cmocka_unit_test(test_finish_names),
        cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
