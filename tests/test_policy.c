// tests/test_policy.c: policies that propose tokens and make several sequences of a request, over a fake model. Texts,
// blocks and counts must be those of plain decoding, whatever is proposed and dropped.
#define _GNU_SOURCE
enum { FAKE_CTX = 160 };
#include "tests/rig/drafting.h"
#include "tests/rig/fake_model.h"

#include <math.h>

// ---- over the fake model --------------------------------------------------------------------------------------------

static uint64_t hash_of(const int *tokens, int n, uint64_t hash) {
    for (int i = 0; i < n; i++) hash = mix(hash, (uint64_t)tokens[i]);
    return hash;
}

// The cache must hold the sequence's own tokens in all computed slots, in sealed and in open groups.
static void check_cache(FakeEngine *f, const Sequence *q) {
    bool sealed = f->kv.pool->tail_of != NULL;
    int whole = sealed ? q->n_cached / SEAL * SEAL : q->n_cached;
    for (int i = 0; i < q->n_cached; i++) {
        int found = i < whole ? *cell(f, q->blocks, i) : page_of(f, q->blocks, i)[i % SEAL];
        if (found != q->tokens[i]) fail_msg("slot %d: token %d expected, %d found", i, q->tokens[i], found);
    }
}

// Each row of logits must be that of its own token, also for drafts.
static void look_at_logits(void *arg, Scheduler *s, const StepRows *rows) {
    (void)arg;
    (void)s;
    float want[FAKE_VOCAB];
    for (int i = 0; i < rows->n_out; i++) {
        int row = rows->first_out + i, n_draft = int_max(0, row + 1 - rows->n_known);
        uint64_t hash = hash_of(rows->seq->tokens, rows->first + row + 1 - n_draft, 0);
        logits_of(hash_of(rows->draft, n_draft, hash), want);
        assert_memory_equal(rows->logits + i * FAKE_VOCAB, want, sizeof want);
    }
}

// Computes the whole text of a request with the prompt of another one.
static void foresee(Foreseen *text, const Request *r, Sequence *prompt) {
    Request with_prompt = *r;
    with_prompt.seq = prompt;
    int answer[FAKE_CTX + 1], n_prompt = prompt->n_tokens, n = expected_text(&with_prompt, n_prompt, answer);
    *text = (Foreseen){mem_alloc((size_t)(n_prompt + n) * sizeof(int)), n_prompt + n};
    memcpy(text->tokens, prompt->tokens, (size_t)n_prompt * sizeof(int));
    memcpy(text->tokens + n_prompt, answer, (size_t)n * sizeof(int));
}

enum { MANY = 24 };

typedef struct {
    FakeEngine f;
    Proposer d;
    Request r[MANY];
    Foreseen text[MANY];
    uint64_t random;
} Round;

static int pick(Round *t, int n) { return (int)(test_random(&t->random) % (uint64_t)n); }

// In each group of four requests, the second one is another answer to the prompt of the first.
static bool is_branch(int i) { return i % 4 == 1; }

static void random_requests(Round *t) {
    for (int i = 0; i < MANY; i++) {
        Request *r = &t->r[i], *first = is_branch(i) ? r - 1 : r;
        int n = 1 + pick(t, 60), family = pick(t, 3), max_new = pick(t, 12) ? pick(t, 60) : -1;
        // a request and its branch need at least one token
        if (max_new == 0 && (is_branch(i) || is_branch(i + 1))) max_new = 1;
        request_new(r, 0, max_new, (uint64_t)i);
        for (int k = 0; k < n && r == first; k++)
            sequence_push(r->seq, &(int){(int)(mix((uint64_t)family, (uint64_t)k) % FAKE_VOCAB)}, 1);
        if (r != first) first->branches = r;
        foresee(&t->text[i], r, first->seq);
        r->state = &t->text[i];
    }
}

static KvShape random_shape(Round *t, bool sealed, int max_seqs) {
    int block = sealed ? 16 << pick(t, 3) : 1 << pick(t, 6);
    return (KvShape){.type_k = sealed ? TYPE_Q8_0 : TYPE_F16,
                     .type_v = TYPE_F16,
                     .block = block,
                     .n_blocks = (FAKE_CTX + block - 1) / block + pick(t, 1 + 90 / block),
                     .n_seqs = max_seqs,
                     .share = pick(t, 2)};
}

static void check_step(Round *t, int n_added) {
    for (int i = 0; i < n_added; i++) {
        check_cache(&t->f, t->r[i].seq);
        if (t->r[i].finish != RUNNING) kvcache_release(&t->f.kv, t->r[i].seq);
    }
}

static void one_round(Round *t, bool sealed) {
    int max_seqs = 1 + pick(t, MOST_REQUESTS), max_rows = 1 + pick(t, 50), added = 0;
    Batch *b;
    fake_open_shape(&t->f, random_shape(t, sealed, max_seqs), max_rows, max_seqs);
    t->d = (Proposer){.random = t->random, .n_vocab = FAKE_VOCAB, .jumps = true, .look = look_at_logits};
    const Policy drafting = proposer_policy(&t->d, &plain_policy);
    fake_policy(&t->f, &drafting, false);
    random_requests(t);
    for (bool any = true; any || added < MANY; check_step(t, added)) {
        for (int i = added; added < MANY && pick(t, 3) == 0; i = added) {
            scheduler_add(t->f.s, &t->r[i]);
            added += 1 + is_branch(i + 1);
        }
        any = scheduler_next(t->f.s, &b);
        if (any) scheduler_take(t->f.s, fake_forward(&t->f, b));
        if (t->f.n_steps > 50000) fail_msg("no end");
    }
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(t->r[i].finish, t->r[i].max_new < 0 ? FINISH_CONTEXT : FINISH_LENGTH);
        assert_text(&t->r[i]);
        request_free(&t->f, &t->r[i]);
        free(t->text[i].tokens);
    }
    assert_int_equal(t->f.kv.n_free, t->f.kv.pool->n_blocks);
    assert_int_equal(t->f.kv.n_free_tails, t->f.kv.pool->n_tails);
}

static void many_rounds(bool sealed) {
    static Round t;
    int n_drafts = 0, n_kept = 0, n_dropped = 0, n_preempted = 0;
    for (uint64_t round = 0; round < 100; round++) {
        t = (Round){.random = 2 * round + sealed};
        one_round(&t, sealed);
        n_drafts += t.d.n_drafts, n_kept += t.d.n_kept, n_dropped += t.d.n_dropped;
        n_preempted += (int)scheduler_preemptions(t.f.s);
        fake_close(&t.f);
    }
    print_message("%d drafts, %d came out, %d steps taken back, %d preemptions\n", n_drafts, n_kept, n_dropped,
                  n_preempted);
    assert_true(n_drafts > 10000 && n_kept > 1000 && n_dropped > 500 && n_preempted > 100);
}

static void test_random_drafts(void **state) {
    (void)state;
    many_rounds(false);
}

static void test_random_drafts_of_sealed_types(void **state) {
    (void)state;
    many_rounds(true);
}

static Finish stop_behind(Request *r, int token, const float *logits) {
    (void)token;
    assert_non_null(logits);
    return r->n_new == *(int *)r->arg ? FINISH_STOP : RUNNING;
}

// With right drafts only, every step gives one token more than it has drafts, and a stop token among them is the last
// token.
static void test_several_tokens_a_step(void **state) {
    (void)state;
    static FakeEngine f;
    Batch *b;
    for (int stop = 1; stop <= 30; stop++) {
        Request r;
        Foreseen text;
        Proposer d = {.n_vocab = FAKE_VOCAB, .whole = true};
        const Policy drafting = proposer_policy(&d, &plain_policy);
        fake_open(&f, 8, 0, 7, 2);
        fake_policy(&f, &drafting, false);
        request_new(&r, 4, 30, 1);
        foresee(&text, &r, r.seq);
        r.state = &text;
        r.emit = stop_behind;
        r.arg = &stop;
        scheduler_add(f.s, &r);
        int n_steps = 0;
        for (; scheduler_next(f.s, &b); n_steps++) { // 4 known rows and 3 drafts, then 1 and 6
            assert_int_equal(b->n_rows, int_min(7, (n_steps ? 1 : 4) + 30 - r.n_new - 1));
            scheduler_take(f.s, fake_forward(&f, b));
            assert_int_equal(r.n_new, int_min(stop, 4 + 7 * n_steps));
            assert_int_equal(r.seq->n_cached, r.seq->n_tokens - 1);
            assert_int_equal(r.seq->n_blocks, (r.seq->n_cached + 7) / 8);
        }
        assert_int_equal(n_steps, 1 + (stop - 4 + 6) / 7 * (stop > 4));
        assert_int_equal(r.finish, FINISH_STOP);
        assert_int_equal(r.time.n_gaps, stop - 1);
        assert_memory_equal(r.seq->tokens, text.tokens, (size_t)(4 + stop) * sizeof(int));
        request_free(&f, &r);
        free(text.tokens);
        fake_close(&f);
    }
}

// Drafts get only the rows, the rows of logits and the blocks that the known tokens of all requests leave.
static void test_drafts_come_last(void **state) {
    (void)state;
    static FakeEngine f;
    Request r[3];
    Batch *b;
    Proposer d = {.n_vocab = FAKE_VOCAB, .whole = true};
    const Policy drafting = proposer_policy(&d, &plain_policy);
    fake_open(&f, 4, 12, 12, 4); // 48 slots
    f.shape.max_out = 6;
    fake_policy(&f, &drafting, false);
    for (int i = 0; i < 3; i++) request_new(&r[i], i < 2 ? 3 : 20, 100, (uint64_t)i);
    scheduler_add(f.s, &r[0]);
    scheduler_add(f.s, &r[1]);
    assert_true(scheduler_next(f.s, &b));
    assert_int_equal(b->n_rows, 3 + 2 + 3 + 2); // 6 rows of logits: the remaining 4 are divided equally
    assert_int_equal(b->n_out, 6);
    scheduler_take(f.s, fake_forward(&f, b));
    scheduler_add(f.s, &r[2]);
    assert_true(scheduler_next(f.s, &b));
    assert_int_equal(b->n_rows, 12); // one row for each decoding sequence, the rest for the prompt
    assert_int_equal(b->n_out, 2);
    scheduler_take(f.s, fake_forward(&f, b));
    assert_true(scheduler_next(f.s, &b));
    assert_int_equal(b->n_rows, 12); // drafts get 2 rows, then the last 10 rows of the prompt come, then no drafts
    assert_int_equal(b->n_out, 3);
    scheduler_take(f.s, fake_forward(&f, b));
    for (int i = 0; i < 3; i++) { // blocks run out: running requests continue without drafts
        while (r[i].finish == RUNNING && scheduler_next(f.s, &b)) scheduler_take(f.s, fake_forward(&f, b));
        assert_int_equal(r[i].finish, FINISH_CONTEXT);
        assert_int_equal(r[i].seq->n_tokens, 49); // every slot of the cache is used
        kvcache_release(&f.kv, r[i].seq);
    }
    assert_true(scheduler_preemptions(f.s) > 0);
    for (int i = 0; i < 3; i++) request_free(&f, &r[i]);
    fake_close(&f);
}

// A device draws only for plain requests, and no step is planned ahead for a request that may propose drafts.
static void test_no_draws_for_drafts(void **state) {
    (void)state;
    static Device dev;
    Batch *b, *ahead;
    Proposer d = {.n_vocab = FAKE_VOCAB, .whole = true};
    const Policy drafting = proposer_policy(&d, &plain_policy);
    for (int n_drafting = 0; n_drafting <= 2; n_drafting++) {
        Request r[2];
        dev = (Device){.sampler = sampler_new(FAKE_VOCAB)};
        fake_open(&dev.f, 8, 0, 2 + 3 * (n_drafting == 2), 2); // the first of these has no room for drafts
        fake_policy(&dev.f, &plain_policy, true);
        for (int i = 0; i < 2; i++) {
            request_new(&r[i], 1, 9, (uint64_t)i);
            r[i].blind = true;
            r[i].policy = i < n_drafting ? &drafting : NULL;
            scheduler_add(dev.f.s, &r[i]);
        }
        assert_true(scheduler_next(dev.f.s, &b));
        assert_int_equal(b->draw != NULL, n_drafting < 2);
        assert_int_equal(b->draw && scheduler_ahead(dev.f.s, &ahead), n_drafting == 0);
        scheduler_interrupt(dev.f.s);
        device_begin(&dev, b);
        if (n_drafting == 0) device_begin(&dev, ahead);
        if (b->draw) scheduler_take_tokens(dev.f.s, dev.tokens[0]);
        else scheduler_take(dev.f.s, dev.f.logits);
        while (scheduler_next(dev.f.s, &b)) scheduler_take_tokens(dev.f.s, dev.tokens[1]);
        for (int i = 0; i < 2; i++) request_free(&dev.f, &r[i]);
        fake_close(&dev.f);
        sampler_free(dev.sampler);
    }
}

// ---- several sequences ----------------------------------------------------------------------------------------------

// The expected sequences, computed without a scheduler: tokens drawn from the logits of their own tokens.
typedef struct {
    FakeEngine *f;
    int n_steps;
} ForkLook;

static void look_at_forks(void *arg, Scheduler *s, Request *r) {
    ForkLook *look = arg;
    (void)s;
    look->n_steps++;
    for (int i = 0; i <= r->n_more; i++) {
        const Sequence *q = request_sequence(r, i);
        check_cache(look->f, q);
        assert_int_equal(q->n_cached, q->n_tokens);
        assert_int_equal(q->n_tokens, r->seq->n_tokens); // the sequences have the same length
    }
}

// The result of n independent sequences with the forker's choices; returns the text of the last.
static void expected_forks(const Forker *how, const Request *r, int *out) {
    Sampler *sampler = sampler_new(FAKE_VOCAB);
    static int text[MOST_FORKS][FAKE_CTX + 1];
    Forker f = *how;
    int n = r->n_prompt;
    for (int i = 0; i < f.n; i++) memcpy(text[i], r->seq->tokens, (size_t)n * sizeof(int));
    for (int end = n + r->max_new; n < end;) {
        for (int i = 0; i < f.n; i++) {
            float logits[FAKE_VOCAB];
            logits_of(hash_of(text[i], n, 0), logits);
            text[i][n] = sampler_sample(sampler, &r->sampling, logits, text[i], n, (uint64_t)i, (uint64_t)n);
        }
        if (++n == end || f.n < 2 || test_random(&f.random) % 3 > 0) continue;
        int child = (int)(test_random(&f.random) % (uint64_t)f.n);
        int parent = (child + 1 + (int)(test_random(&f.random) % (uint64_t)(f.n - 1))) % f.n;
        memcpy(text[child], text[parent], sizeof text[child]);
    }
    memcpy(out, text[f.n - 1] + r->n_prompt, (size_t)r->max_new * sizeof(int));
    sampler_free(sampler);
}

// Runs three requests of several sequences together with three plain ones; returns the number of preemptions.
static int forks_beside_others(KvShape shape, int max_rows, int n_forks, uint64_t seed) {
    static FakeEngine f;
    enum { N = 6 };
    Request r[N];
    Forker forker[N];
    Policy policy[N];
    ForkLook look = {.f = &f};
    fake_open_shape(&f, shape, max_rows, int_min(max_rows, 8));
    for (int i = 0; i < N; i++) {
        int n_prompt = 1 + (int)(mix(seed, (uint64_t)i) % 40);
        request_new(&r[i], n_prompt, 25, 1); // with the same beginning
        r[i].sequence_key = (uint64_t)i;
        forker[i] = (Forker){.n = n_forks, .random = seed + (uint64_t)i, .sampler = f.sampler};
        forker[i].look = look_at_forks;
        forker[i].arg = &look;
        policy[i] = forker_policy(&forker[i], &plain_policy);
        if (i % 2) continue;
        r[i].policy = &policy[i];
        r[i].width = n_forks;
    }
    Forker before[N];
    memcpy(before, forker, sizeof before);
    for (int i = 0; i < N; i++) scheduler_add(f.s, &r[i]);
    run_and_release(&f, r, N);
    for (int i = 0; i < N; i++) {
        int want[FAKE_CTX];
        assert_int_equal(r[i].finish, FINISH_LENGTH);
        if (i % 2) assert_text(&r[i]);
        else {
            expected_forks(&before[i], &r[i], want);
            assert_int_equal(r[i].n_new, 25);
            assert_memory_equal(r[i].seq->tokens + r[i].n_prompt, want, 25 * sizeof *want);
        }
        assert_int_equal(r[i].n_more, 0);
        request_free(&f, &r[i]);
    }
    assert_int_equal(look.n_steps, 3 * 25);
    assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
    assert_int_equal(f.kv.n_free_tails, f.kv.pool->n_tails);
    int n_preempted = (int)scheduler_preemptions(f.s);
    fake_close(&f);
    return n_preempted;
}

static void test_forks(void **state) {
    (void)state;
    int n_preempted = 0, n = 0;
    for (int sealed = 0; sealed < 2; sealed++)
        for (int share = 0; share < 2; share++)
            for (int rows = 5; rows <= 80; rows *= 4)
                for (int n_forks = 1; n_forks <= MOST_FORKS; n_forks++, n++) {
                    int block = sealed ? 32 : 8;
                    int one = (66 + block - 1) / block * n_forks; // the blocks of one request without sharing
                    n_preempted += forks_beside_others((KvShape){.type_k = sealed ? TYPE_Q4_0 : TYPE_F16,
                                                                 .type_v = TYPE_F16,
                                                                 .block = block,
                                                                 .n_blocks = one + 2 * (n % 2),
                                                                 .n_seqs = 8,
                                                                 .share = share},
                                                       rows, n_forks, (uint64_t)n);
                }
    assert_true(n_preempted > 20);
}

// Sequences that will be forked later count as running: a request that decodes at the same time must get a token in
// every step.
static void test_forks_crowd_nobody_out(void **state) {
    (void)state;
    static FakeEngine f;
    enum { N = 6, FORKS = 4 };
    Request r[N];
    Batch *b;
    fake_open(&f, 8, 0, 40, 6);
    Forker forker = {.n = FORKS, .random = 3, .sampler = f.sampler};
    const Policy policy = forker_policy(&forker, &plain_policy);
    for (int i = 0; i < N; i++) {
        request_new(&r[i], i == 1 ? 30 : 5, 40, (uint64_t)i);
        if (i % 2) r[i].policy = &policy, r[i].width = FORKS;
        scheduler_add(f.s, &r[i]);
    }
    while (scheduler_next(f.s, &b)) {
        int before[N];
        for (int i = 0; i < N; i++) before[i] = r[i].seq->n_tokens;
        scheduler_take(f.s, fake_forward(&f, b));
        for (int i = 0; i < N; i++)
            if (before[i] > r[i].n_prompt && r[i].finish == RUNNING)
                assert_int_equal(r[i].seq->n_tokens, before[i] + 1);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(r[i].n_new, 40);
        request_free(&f, &r[i]);
    }
    fake_close(&f);
}

// A preempted request must release the blocks of all its sequences, so that an older one can have the whole cache. When
// it begins again, its sequences must share their common blocks, because they would not fit otherwise.
static void test_forks_give_way(void **state) {
    (void)state;
    static FakeEngine f;
    Request r[2];
    fake_open_shared(&f, 8, FAKE_CTX / 8, 40, 6, true);
    Forker forker = {.n = 4, .random = 3, .sampler = f.sampler};
    const Policy policy = forker_policy(&forker, &plain_policy);
    for (int i = 0; i < 2; i++) request_new(&r[i], i ? 32 : 80, i ? 20 : -1, (uint64_t)i);
    r[1].policy = &policy;
    r[1].width = 4;
    scheduler_add(f.s, &r[0]);
    scheduler_add(f.s, &r[1]);
    run_and_release(&f, r, 2);
    assert_int_equal(r[0].seq->n_tokens, FAKE_CTX + 1);
    assert_int_equal(r[1].n_new, 20);
    assert_int_equal(scheduler_preemptions(f.s), 1);
    assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
    for (int i = 0; i < 2; i++) request_free(&f, &r[i]);
    fake_close(&f);
}

// A cancelled request must release the blocks of all its sequences.
static void test_cancelled_forks(void **state) {
    (void)state;
    static FakeEngine f;
    for (int steps = 1; steps < 12; steps++) {
        Request r;
        Batch *b;
        fake_open(&f, 4, 0, 16, 4);
        Forker forker = {.n = 3, .random = (uint64_t)steps, .sampler = f.sampler};
        const Policy policy = forker_policy(&forker, &plain_policy);
        request_new(&r, 20, 30, 1);
        r.policy = &policy;
        r.width = 3;
        scheduler_add(f.s, &r);
        for (int i = 0; i < steps; i++) {
            assert_true(scheduler_next(f.s, &b));
            scheduler_take(f.s, fake_forward(&f, b));
        }
        assert_int_equal(r.n_more, steps > 1 ? 2 : 0);
        scheduler_cancel(f.s, &r);
        assert_int_equal(r.finish, FINISH_INTERRUPT);
        assert_false(scheduler_next(f.s, &b));
        request_free(&f, &r);
        assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
        fake_close(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_drafts),          cmocka_unit_test(test_random_drafts_of_sealed_types),
        cmocka_unit_test(test_several_tokens_a_step),  cmocka_unit_test(test_drafts_come_last),
        cmocka_unit_test(test_no_draws_for_drafts),    cmocka_unit_test(test_forks),
        cmocka_unit_test(test_forks_crowd_nobody_out), cmocka_unit_test(test_forks_give_way),
        cmocka_unit_test(test_cancelled_forks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
