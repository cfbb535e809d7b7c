// tests/test_finish.c: when and why a request ends: its limits, the result of emit, an interrupt, a cancellation. Steps
// that are abandoned for an interrupt.
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

// ---- abandoned steps ------------------------------------------------------------------------------------------------

// Computes a step and then overwrites the slots of its rows: after an abandoned step some layers have K and V there and
// others do not, so that nothing may read them.
static void compute_half(FakeEngine *f, const Batch *b) {
    fake_forward(f, b);
    for (int i = 0; i < b->n_rows; i++) put_token(f, b, b->seq[i], b->slot[i], -1);
}

enum { ABANDONED_NEW = 12 };

// Two answers to one prompt, and one answer to another prompt.
static void add_three(FakeEngine *f, Request *r) {
    for (int i = 0; i < 3; i++) request_new(&r[i], i == 1 ? 0 : 20 + 7 * i, ABANDONED_NEW, (uint64_t)i);
    r[0].branches = &r[1];
    scheduler_add(f->s, &r[0]);
    scheduler_add(f->s, &r[2]);
}

// No slot of the step counts, only blocks with computed slots are used, and only these have names.
static void check_abandoned(FakeEngine *f, const Request *r, const int *n_cached, const int *n_tokens) {
    Sequence same = {0};
    assert_int_equal(f->kv.n_copies, 0);
    for (int i = 0; i < 3; i++) {
        const Sequence *q = r[i].seq;
        assert_int_equal(r[i].finish, RUNNING);
        assert_int_equal(q->n_cached, n_cached[i]);
        assert_int_equal(q->n_tokens, n_tokens[i]);
        assert_int_equal(q->n_blocks, (n_cached[i] + f->kv.pool->block - 1) / f->kv.pool->block);
    }
    sequence_push(&same, r[2].seq->tokens, r[2].seq->n_tokens);
    assert_in_range(kvcache_match_prefix(&f->kv, &same), 0, n_cached[2]);
    sequence_end(&f->kv, &same);
}

// Continues an interrupted answer as a new request over the same sequence. The text must be that of one request.
static void check_continued(FakeEngine *f, Request *r) {
    int want[FAKE_CTX + 1], n_prompt = r->n_prompt;
    assert_int_equal(r->finish, FINISH_INTERRUPT);
    if (r->seq->n_tokens == 0) return; // an answer whose prompt was not computed yet
    r->max_new = ABANDONED_NEW;
    assert_int_equal(expected_text(r, n_prompt, want), ABANDONED_NEW);
    r->max_new -= r->n_new;
    scheduler_add(f->s, r);
    run_all(f);
    assert_int_equal(r->finish, FINISH_LENGTH);
    assert_int_equal(r->seq->n_tokens, n_prompt + ABANDONED_NEW);
    assert_memory_equal(r->seq->tokens + n_prompt, want, ABANDONED_NEW * sizeof *want);
}

static void abandon_a_step(KvShape shape, int at) {
    static FakeEngine f;
    Request r[3];
    Batch *b;
    int n_cached[3], n_tokens[3];
    shape.type_k = shape.type_v = TYPE_F32;
    shape.n_seqs = MOST_REQUESTS;
    fake_open_shape(&f, shape, 16, 4);
    add_three(&f, r);
    for (int i = 0; i < at; i++) {
        assert_true(scheduler_next(f.s, &b));
        scheduler_take(f.s, fake_forward(&f, b));
    }
    for (int i = 0; i < 3; i++) n_cached[i] = r[i].seq->n_cached, n_tokens[i] = r[i].seq->n_tokens;
    assert_true(scheduler_next(f.s, &b));
    assert_true(scheduler_may_abandon(f.s));
    compute_half(&f, b);
    scheduler_abandon(f.s);
    check_abandoned(&f, r, n_cached, n_tokens);
    scheduler_interrupt(f.s);
    assert_false(scheduler_next(f.s, &b));
    for (int i = 0; i < 3; i++) check_continued(&f, &r[i]);
    for (int i = 0; i < 3; i++) request_free(&f, &r[i]);
    assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
    fake_close(&f);
}

static void test_abandoned_steps(void **state) {
    (void)state;
    for (int at = 0; at < 12; at++) {
        abandon_a_step((KvShape){.block = 8}, at);
        abandon_a_step((KvShape){.block = 8, .share = true}, at);
        abandon_a_step((KvShape){.block = 4, .share = true, .window = 10}, at);
    }
}

static int pick_none(const Policy *p, Scheduler *s, StepRows *rows, int most) {
    (void)p;
    (void)s;
    (void)rows;
    (void)most;
    return 0;
}

static void record(const Policy *p, Scheduler *s, StepRows *rows) {
    (void)s;
    rows->probe = p->arg;
}

// Whether the first step of a request with this policy may be abandoned, beside one of plain decoding if `n` is 2.
static bool may_abandon(KvShape shape, const Policy *policy, int n) {
    static FakeEngine f;
    Request r[2];
    Batch *b;
    shape.block = 32;
    shape.n_seqs = 2;
    fake_open_shape(&f, shape, 16, 4);
    for (int i = 0; i < n; i++) {
        request_new(&r[i], 5, 3, (uint64_t)i);
        r[i].policy = i == n - 1 ? policy : NULL;
        scheduler_add(f.s, &r[i]);
    }
    assert_true(scheduler_next(f.s, &b));
    assert_int_equal(b->n_seqs, n);
    bool may = scheduler_may_abandon(f.s);
    scheduler_take(f.s, fake_forward(&f, b));
    for (int i = 0; i < n; i++) request_free(&f, &r[i]);
    fake_close(&f);
    return may;
}

static void test_steps_that_run_to_their_end(void **state) {
    (void)state;
    KvShape dense = {.type_k = TYPE_F16, .type_v = TYPE_F16}, sealed = {.type_k = TYPE_Q8_0, .type_v = TYPE_F16},
            recurrent = dense;
    Probe probe = {0};
    const Policy picks = {.pick = pick_none, .next = &plain_policy};
    const Policy records = {.propose = record, .arg = &probe, .next = &plain_policy};
    recurrent.n_recurrent = 1;
    recurrent.rec = (Recurrence){.channels = 1, .taps = 2};
    for (int n = 1; n <= 2; n++) {
        assert_true(may_abandon(dense, NULL, n));
        assert_false(may_abandon(dense, &picks, n));
        assert_false(may_abandon(sealed, NULL, n));
        assert_false(may_abandon(recurrent, NULL, n));
    }
    assert_false(may_abandon(dense, &records, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_max_new),
        cmocka_unit_test(test_prompt_past_the_context),
        cmocka_unit_test(test_emit_verdicts),
        cmocka_unit_test(test_no_finite_logit),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_finish_names),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_abandoned_steps),
        cmocka_unit_test(test_steps_that_run_to_their_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
