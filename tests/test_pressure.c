// tests/test_pressure.c: random requests with far too little memory: each must get the text that it has alone, and
// every step must make progress.
//
// In some rounds the K and V of the prompts' blocks can be fetched (Policy.fetch). Progress means: the oldest
// unfinished request never loses a slot, and no request begins in a step without a row of the oldest one. So the
// running requests finish, then the oldest one, then the next.
enum { FAKE_CTX = 160 };
#include "tests/rig/fake_model.h"

enum { JOBS = 40, MOST_ANSWERS = 5, MOST = JOBS * MOST_ANSWERS };

typedef struct {
    Device d;
    Request r[MOST]; // in the order of adding; the answers of a job are adjacent
    int first[JOBS + 1];
    bool cancelled[JOBS];
    int n_added; // number of jobs added
    Shelf shelf;
    uint64_t random;
    // events, to know that the test is not empty: preemptions; steps in which the oldest request waits; reused slots
    int n_preempted, n_passed, n_shared;
} Pressure;

static int pick(Pressure *p, int n) { return (int)(test_random(&p->random) % (uint64_t)n); }

// A random prompt of one of a few families, which share beginnings; some prompts are equal.
static void random_prompt(Pressure *p, Request *r, int most) {
    static const int shared[] = {0, 20, 64, 100};
    int family = pick(p, 4), beginning = int_min(shared[family], most),
        n = int_min(beginning + 1 + 9 * pick(p, 5), most);
    uint64_t own = (uint64_t)pick(p, 3);
    for (int i = 0; i < n; i++) {
        uint64_t key = i < beginning ? 100 + (uint64_t)family : own;
        sequence_push(r->seq, &(int){(int)(mix(key, (uint64_t)i) % FAKE_VOCAB)}, 1);
    }
}

static void random_jobs(Pressure *p) {
    int n = 0;
    for (int job = 0; job < JOBS; job++) {
        int n_answers = pick(p, 4) ? 1 : 2 + pick(p, MOST_ANSWERS - 1), max_new = pick(p, 50);
        if (pick(p, 10) == 0) max_new = -1; // until the end of the context
        p->first[job] = n;
        for (int i = 0; i < n_answers; i++, n++) {
            Request *r = &p->r[n];
            request_new(r, 0, max_new, (uint64_t)n);
            r->blind = pick(p, 4) > 0;
            if (i > 0) p->r[n - 1].next = r;
        }
        Request *first = &p->r[p->first[job]];
        random_prompt(p, first, max_new < 0 ? FAKE_CTX : FAKE_CTX + 1 - max_new);
        first->branches = first->next;
    }
    p->first[JOBS] = n;
}

// A cache slightly larger than one context, with tail pages for all running sequences or for fewer.
static KvShape random_shape(Pressure *p, bool sealed, int max_rows, int max_seqs) {
    static const int dense_blocks[] = {1, 4, 16, 32}, sealed_blocks[] = {16, 32, 32, 32, 64};
    static const int types[] = {TYPE_FP8, TYPE_Q8_0, TYPE_Q4_0, TYPE_KIVI2};
    int block = sealed ? sealed_blocks[pick(p, 5)] : dense_blocks[pick(p, 4)];
    KvShape s = {.type_k = sealed ? types[pick(p, 4)] : TYPE_F16,
                 .type_v = sealed && pick(p, 2) ? types[pick(p, 4)] : TYPE_F16,
                 .block = block,
                 .n_blocks = (FAKE_CTX + block - 1) / block + pick(p, 1 + 30 / block),
                 .n_seqs = 1 + pick(p, max_seqs),
                 .n_ctx = FAKE_CTX,
                 .share = pick(p, 4) > 0};
    s.n_recurrent = pick(p, 3) == 0;
    s.n_checkpoints = pick(p, 7);
    if (pick(p, 2)) { // a layer with a window, and partners for at least one sequence
        KvShape one = s;
        s.window = one.window = 1 + pick(p, 2) * 7 + pick(p, 40);
        one.n_seqs = 1;
        s.n_partners = kvshape_partners_needed(&one, max_rows) + pick(p, 10);
    }
    return s;
}

static void release_ended(Pressure *p) {
    for (int i = 0; i < p->first[p->n_added]; i++)
        if (p->r[i].finish != RUNNING) kvcache_release(&p->d.f.kv, p->r[i].seq);
}

static void cancel_one(Pressure *p) {
    int job = pick(p, p->n_added);
    p->cancelled[job] = true;
    for (int i = p->first[job]; i < p->first[job + 1]; i++) scheduler_cancel(p->d.f.s, &p->r[i]);
    release_ended(p);
}

static Request *oldest(Pressure *p) {
    for (int job = 0; job < p->n_added; job++)
        for (int i = p->first[job]; i < p->first[job + 1]; i++)
            if (p->r[i].finish == RUNNING && (i == p->first[job] || p->r[i].n_prompt > 0)) return &p->r[i];
    return NULL;
}

// Whether answer i has blocks, or is one that shares those of its job's first answer when this one has its prompt.
static bool runs(const Pressure *p, int job, int i) {
    return p->r[i].seq->n_blocks > 0 || (i > p->first[job] && p->r[i].n_prompt == 0);
}

// Runs one step and checks the conditions of progress.
static bool step(Pressure *p) {
    bool ran[MOST];
    Request *old = oldest(p);
    int n_cached = old ? old->seq->n_cached : 0, n_tokens = old ? old->seq->n_tokens : 0;
    for (int job = 0; job < p->n_added; job++)
        for (int i = p->first[job]; i < p->first[job + 1]; i++) ran[i] = runs(p, job, i);
    if (!device_step(&p->d)) {
        assert_null(old);
        return false;
    }
    if (!old) return true; // a row of a request that was cancelled during the step
    assert_true(old->finish != RUNNING || old->seq->n_cached >= n_cached);
    if (old->seq->n_tokens > n_tokens || old->seq->n_cached > n_cached) return true;
    p->n_passed++;
    for (int i = 0; i < p->first[p->n_added]; i++)
        if (!ran[i] && p->r[i].seq->n_blocks > 0) fail_msg("request %d begins while an older one waits", i);
    return true;
}

// At the end each partner must be free or belong to a named block.
static void check_partners(const KvCache *kv) {
    int n = kv->n_free_partners;
    for (int i = 0; i < kv->pool->n_blocks && kv->partner; i++) {
        assert_int_equal(kv->viewers[i], 0);
        n += kv->partner[i] >= 0;
        assert_true(kv->partner[i] < 0 || kv->names.of_block[i].found);
    }
    assert_int_equal(n, kv->partner ? kv->pool[KV_WINDOW].n_blocks : 0);
}

static void check_texts(Pressure *p) {
    for (int job = 0; job < JOBS; job++)
        for (int i = p->first[job]; i < p->first[job + 1]; i++) {
            Request *r = &p->r[i];
            int want[FAKE_CTX + 1];
            if (p->cancelled[job] && r->finish == FINISH_INTERRUPT) { // the text up to the cancellation
                expected_text(r, r->n_prompt, want);
                for (int k = 0; k < r->n_new; k++) assert_int_equal(r->seq->tokens[r->n_prompt + k], want[k]);
            } else {
                assert_int_equal(r->finish, r->max_new < 0 ? FINISH_CONTEXT : FINISH_LENGTH);
                assert_text(r);
            }
            p->n_shared += i == p->first[job] ? r->n_reused : 0;
            request_free(&p->d.f, r);
        }
    assert_int_equal(p->d.f.kv.n_free, p->d.f.kv.pool->n_blocks);
    assert_int_equal(p->d.f.kv.n_free_tails, p->d.f.kv.pool->n_tails);
    assert_int_equal(kvstates_left(&p->d.f.kv.states), p->d.f.kv.states.pool.n_states);
    check_partners(&p->d.f.kv);
}

static void one_round(Pressure *p, bool sealed, bool draws) {
    int max_seqs = 1 + pick(p, MOST_REQUESTS), max_rows = 1 + pick(p, 60);
    KvShape shape = random_shape(p, sealed, max_rows, max_seqs);
    bool whole = !sealed || shape.block % SEAL == 0; // the shelf can load whole groups only, and no states
    bool fetches = whole && !shape.n_recurrent && pick(p, 2);
    shape.keep_partners = fetches;
    fake_open_shape(&p->d.f, shape, max_rows, max_seqs);
    p->d.sampler = sampler_new(FAKE_VOCAB);
    p->shelf = (Shelf){&p->d.f, 1 + pick(p, FAKE_VOCAB / 2)};
    const Policy from_shelf = shelf_policy(&p->shelf);
    fake_policy(&p->d.f, fetches ? &from_shelf : &plain_policy, draws);
    random_jobs(p);
    bool burst = pick(p, 2);
    for (bool any = true; any || p->n_added < JOBS;) {
        for (; p->n_added < JOBS && (burst || pick(p, 3) == 0); p->n_added++)
            scheduler_add(p->d.f.s, &p->r[p->first[p->n_added]]);
        if (p->n_added && pick(p, 200) == 0) cancel_one(p);
        any = step(p);
        release_ended(p);
        if (p->d.f.n_steps > 50000) fail_msg("no end after %d steps", p->d.f.n_steps);
    }
    check_texts(p);
    p->n_preempted += (int)scheduler_preemptions(p->d.f.s);
    fake_close(&p->d.f);
    sampler_free(p->d.sampler);
}

static void many_rounds(bool sealed, bool draws) {
    static Pressure p;
    int n_preempted = 0, n_passed = 0, n_shared = 0, n_ahead = 0;
    for (uint64_t round = 100; round < 180; round++) { // in some of these the oldest request waits
        p = (Pressure){.random = 4 * round + 2 * sealed + draws + 1};
        one_round(&p, sealed, draws);
        n_preempted += p.n_preempted;
        n_passed += p.n_passed;
        n_shared += p.n_shared;
        n_ahead += p.d.n_ahead;
    }
    print_message("%d preemptions, %d slots shared, %d steps that the oldest waited through, %d begun ahead\n",
                  n_preempted, n_shared, n_passed, n_ahead);
    assert_true(n_preempted > 100 && n_shared > 1000 && n_passed > 0 && draws == (n_ahead > 100));
}

static void test_dense(void **state) {
    (void)state;
    many_rounds(false, false);
}

static void test_sealed(void **state) {
    (void)state;
    many_rounds(true, false);
}

static void test_dense_ahead(void **state) {
    (void)state;
    many_rounds(false, true);
}

static void test_sealed_ahead(void **state) {
    (void)state;
    many_rounds(true, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_sealed),
        cmocka_unit_test(test_dense_ahead),
        cmocka_unit_test(test_sealed_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
