// tests/test_policy.c: policies that propose tokens and make several sequences of a request: texts, K and V, blocks and
// counts are those of plain decoding, whatever is proposed and forgotten.
#define _GNU_SOURCE
enum { N_CTX = 160 };
#include "cpu/backend.h"
#include "engine.h"
#include "tests/rig/directory.h"
#include "tests/rig/drafting.h"
#include "tests/rig/fake_model.h"
#include "tests/rig/model_rig.h"
#include "tests/rig/tiny_model.h"

#include <math.h>

// ---- over the fake model --------------------------------------------------------------------------------------------

static uint64_t hash_of(const int *tokens, int n, uint64_t hash) {
    for (int i = 0; i < n; i++) hash = mix(hash, (uint64_t)tokens[i]);
    return hash;
}

// The cache holds a sequence's own tokens in all slots that count as computed, sealed or open.
static void check_cache(Bench *f, const Sequence *q) {
    bool sealed = f->kv.pool->tail_of != NULL;
    int whole = sealed ? q->n_cached / SEAL * SEAL : q->n_cached;
    for (int i = 0; i < q->n_cached; i++) {
        int found = i < whole ? *cell(f, q->blocks, i) : page_of(f, q->blocks, i)[i % SEAL];
        if (found != q->tokens[i]) fail_msg("slot %d: token %d expected, %d found", i, q->tokens[i], found);
    }
}

// Each row of logits is that of its own row's tokens, drafts among them.
static void look_at_logits(void *arg, Scheduler *s, const SeqRows *rows) {
    (void)arg;
    (void)s;
    float want[VOCAB];
    for (int i = 0; i < rows->n_out; i++) {
        int row = rows->first_out + i, n_draft = int_max(0, row + 1 - rows->n_known);
        uint64_t hash = hash_of(rows->seq->tokens, rows->first + row + 1 - n_draft, 0);
        logits_of(hash_of(rows->draft, n_draft, hash), want);
        assert_memory_equal(rows->logits + i * VOCAB, want, sizeof want);
    }
}

// The whole text of a request whose prompt is that of another one.
static void foresee(Foreseen *text, const Request *r, const Sequence *prompt) {
    Request with_prompt = *r;
    with_prompt.seq = *prompt;
    int answer[N_CTX + 1], n_prompt = prompt->n_tokens, n = expected_text(&with_prompt, n_prompt, answer);
    *text = (Foreseen){mem_alloc((size_t)(n_prompt + n) * sizeof(int)), n_prompt + n};
    memcpy(text->tokens, prompt->tokens, (size_t)n_prompt * sizeof(int));
    memcpy(text->tokens + n_prompt, answer, (size_t)n * sizeof(int));
}

enum { MANY = 24 };

typedef struct {
    Bench f;
    Drafter d;
    Request r[MANY];
    Foreseen text[MANY];
    uint64_t random;
} Round;

static int pick(Round *t, int n) { return (int)(test_random(&t->random) % (uint64_t)n); }

// Of four requests the first has another answer to the same prompt.
static bool is_branch(int i) { return i % 4 == 1; }

static void random_requests(Round *t) {
    for (int i = 0; i < MANY; i++) {
        Request *r = &t->r[i], *first = is_branch(i) ? r - 1 : r;
        int n = 1 + pick(t, 60), family = pick(t, 3), max_new = pick(t, 12) ? pick(t, 60) : -1;
        if (max_new == 0 && (is_branch(i) || is_branch(i + 1))) max_new = 1; // a branch begins with a token
        request_new(r, 0, max_new, (uint64_t)i);
        for (int k = 0; k < n && r == first; k++)
            sequence_push(&r->seq, &(int){(int)(mix((uint64_t)family, (uint64_t)k) % VOCAB)}, 1);
        if (r != first) first->branches = r;
        foresee(&t->text[i], r, &first->seq);
        r->state = &t->text[i];
    }
}

static KvShape random_shape(Round *t, bool sealed, int max_seqs) {
    int block = sealed ? 16 << pick(t, 3) : 1 << pick(t, 6);
    return (KvShape){.type_k = sealed ? TYPE_Q8_0 : TYPE_F16,
                     .type_v = TYPE_F16,
                     .block = block,
                     .n_blocks = (N_CTX + block - 1) / block + pick(t, 1 + 90 / block),
                     .n_seqs = max_seqs,
                     .share = pick(t, 2)};
}

static void check_step(Round *t, int n_added) {
    for (int i = 0; i < n_added; i++) {
        check_cache(&t->f, &t->r[i].seq);
        if (t->r[i].finish != RUNNING) kvcache_release(&t->f.kv, &t->r[i].seq);
    }
}

static void one_round(Round *t, bool sealed) {
    int max_seqs = 1 + pick(t, MOST_REQUESTS), max_rows = 1 + pick(t, 50), added = 0;
    Batch *b;
    bench_open_shape(&t->f, random_shape(t, sealed, max_seqs), max_rows, max_seqs);
    t->d = (Drafter){.random = t->random, .n_vocab = VOCAB, .jumps = true, .look = look_at_logits};
    const Policy drafting = drafter_policy(&t->d, &plain_policy);
    bench_policy(&t->f, &drafting, false);
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
        bench_close(&t.f);
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

// Right drafts: every step gives one token more than it has drafts, and a stop among them is the last token.
static void test_several_tokens_a_step(void **state) {
    (void)state;
    static Bench f;
    Batch *b;
    for (int stop = 1; stop <= 30; stop++) {
        Request r;
        Foreseen text;
        Drafter d = {.n_vocab = VOCAB, .whole = true};
        const Policy drafting = drafter_policy(&d, &plain_policy);
        bench_open(&f, 8, 0, 7, 2);
        bench_policy(&f, &drafting, false);
        request_new(&r, 4, 30, 1);
        foresee(&text, &r, &r.seq);
        r.state = &text;
        r.emit = stop_behind;
        r.arg = &stop;
        scheduler_add(f.s, &r);
        int n_steps = 0;
        for (; scheduler_next(f.s, &b); n_steps++) { // 4 known rows and 3 drafts, then 1 and 6
            assert_int_equal(b->n_rows, int_min(7, (n_steps ? 1 : 4) + 30 - r.n_new - 1));
            scheduler_take(f.s, fake_forward(&f, b));
            assert_int_equal(r.n_new, int_min(stop, 4 + 7 * n_steps));
            assert_int_equal(r.seq.n_cached, r.seq.n_tokens - 1);
            assert_int_equal(r.seq.n_blocks, (r.seq.n_cached + 7) / 8);
        }
        assert_int_equal(n_steps, 1 + (stop - 4 + 6) / 7 * (stop > 4));
        assert_int_equal(r.finish, stop < 30 ? FINISH_STOP : FINISH_STOP);
        assert_int_equal(r.time.n_gaps, stop - 1);
        assert_memory_equal(r.seq.tokens, text.tokens, (size_t)(4 + stop) * sizeof(int));
        request_free(&f, &r);
        free(text.tokens);
        bench_close(&f);
    }
}

// Drafts have what the known tokens of all requests leave: of the rows, of the rows of logits, of the blocks.
static void test_drafts_come_last(void **state) {
    (void)state;
    static Bench f;
    Request r[3];
    Batch *b;
    Drafter d = {.n_vocab = VOCAB, .whole = true};
    const Policy drafting = drafter_policy(&d, &plain_policy);
    bench_open(&f, 4, 12, 12, 4); // 48 slots
    f.shape.max_out = 6;
    bench_policy(&f, &drafting, false);
    for (int i = 0; i < 3; i++) request_new(&r[i], i < 2 ? 3 : 20, 100, (uint64_t)i);
    scheduler_add(f.s, &r[0]);
    scheduler_add(f.s, &r[1]);
    assert_true(scheduler_next(f.s, &b));
    assert_int_equal(b->n_rows, 3 + 2 + 3 + 2); // 6 rows of logits, equal parts of the 4 that are left
    assert_int_equal(b->n_out, 6);
    scheduler_take(f.s, fake_forward(&f, b));
    scheduler_add(f.s, &r[2]);
    assert_true(scheduler_next(f.s, &b));
    assert_int_equal(b->n_rows, 12); // a row each, and the rest for the prompt
    assert_int_equal(b->n_out, 2);
    scheduler_take(f.s, fake_forward(&f, b));
    assert_true(scheduler_next(f.s, &b));
    assert_int_equal(b->n_rows, 12); // 2, the 10 that are left of the prompt, and none
    assert_int_equal(b->n_out, 3);
    scheduler_take(f.s, fake_forward(&f, b));
    for (int i = 0; i < 3; i++) { // blocks run out: who has them goes on without drafts
        while (r[i].finish == RUNNING && scheduler_next(f.s, &b)) scheduler_take(f.s, fake_forward(&f, b));
        assert_int_equal(r[i].finish, FINISH_CONTEXT);
        assert_int_equal(r[i].seq.n_tokens, 49); // every slot of the cache, one after the other
        kvcache_release(&f.kv, &r[i].seq);
    }
    assert_true(scheduler_preemptions(f.s) > 0);
    for (int i = 0; i < 3; i++) request_free(&f, &r[i]);
    bench_close(&f);
}

// A device draws for plain requests alone, and nothing is begun ahead of a request that may propose.
static void test_no_draws_for_drafts(void **state) {
    (void)state;
    static Device dev;
    Batch *b, *ahead;
    Drafter d = {.n_vocab = VOCAB, .whole = true};
    const Policy drafting = drafter_policy(&d, &plain_policy);
    for (int n_drafting = 0; n_drafting <= 2; n_drafting++) {
        Request r[2];
        dev = (Device){.sampler = sampler_new(VOCAB)};
        bench_open(&dev.f, 8, 0, 2 + 3 * (n_drafting == 2), 2); // no room for drafts in the first of these
        bench_policy(&dev.f, &plain_policy, true);
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
        bench_close(&dev.f);
        sampler_free(dev.sampler);
    }
}

// ---- several sequences ----------------------------------------------------------------------------------------------

// Each sequence's twin, without a scheduler: tokens drawn from the logits of its own tokens.
typedef struct {
    Bench *f;
    int n_steps;
} ForkLook;

static void look_at_forks(void *arg, Scheduler *s, Request *r) {
    ForkLook *look = arg;
    (void)s;
    look->n_steps++;
    for (int i = 0; i <= r->n_more; i++) {
        const Sequence *q = fork_of(r, i);
        check_cache(look->f, q);
        assert_int_equal(q->n_cached, q->n_tokens);
        assert_int_equal(q->n_tokens, r->seq.n_tokens); // they go on together
    }
}

// What n independent sequences with the forker's choices give; returns the text of the last.
static void expected_forks(const Forker *how, const Request *r, int *out) {
    Sampler *sampler = sampler_new(VOCAB);
    static int text[MOST_FORKS][N_CTX + 1];
    Forker f = *how;
    int n = r->n_prompt;
    for (int i = 0; i < f.n; i++) memcpy(text[i], r->seq.tokens, (size_t)n * sizeof(int));
    for (int end = n + r->max_new; n < end;) {
        for (int i = 0; i < f.n; i++) {
            float logits[VOCAB];
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

static void run_and_release(Bench *f, Request *r, int n) {
    for (Batch *b; scheduler_next(f->s, &b);) {
        scheduler_take(f->s, fake_forward(f, b));
        for (int i = 0; i < n; i++)
            if (r[i].finish != RUNNING) kvcache_release(&f->kv, &r[i].seq);
        if (f->n_steps > 5000) fail_msg("no end");
    }
}

// Three requests of several sequences beside three plain ones; returns how often one was preempted.
static int forks_beside_others(KvShape shape, int max_rows, int n_forks, uint64_t seed) {
    static Bench f;
    enum { N = 6 };
    Request r[N];
    Forker forker[N];
    Policy policy[N];
    ForkLook look = {.f = &f};
    bench_open_shape(&f, shape, max_rows, int_min(max_rows, 8));
    for (int i = 0; i < N; i++) {
        int n_prompt = 1 + (int)(mix(seed, (uint64_t)i) % 40);
        request_new(&r[i], n_prompt, 25, 1); // one beginning
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
        int want[N_CTX];
        assert_int_equal(r[i].finish, FINISH_LENGTH);
        if (i % 2) assert_text(&r[i]);
        else {
            expected_forks(&before[i], &r[i], want);
            assert_int_equal(r[i].n_new, 25);
            assert_memory_equal(r[i].seq.tokens + r[i].n_prompt, want, 25 * sizeof *want);
        }
        assert_int_equal(r[i].n_more, 0);
        request_free(&f, &r[i]);
    }
    assert_int_equal(look.n_steps, 3 * 25);
    assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
    assert_int_equal(f.kv.n_free_tails, f.kv.pool->n_tails);
    int n_preempted = (int)scheduler_preemptions(f.s);
    bench_close(&f);
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
                    int one = (66 + block - 1) / block * n_forks; // all of one request where nothing is shared
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

// Sequences that are still to be forked count as running: what decodes beside them has a token in every step.
static void test_forks_crowd_nobody_out(void **state) {
    (void)state;
    static Bench f;
    enum { N = 6, FORKS = 4 };
    Request r[N];
    Batch *b;
    bench_open(&f, 8, 0, 40, 6);
    Forker forker = {.n = FORKS, .random = 3, .sampler = f.sampler};
    const Policy policy = forker_policy(&forker, &plain_policy);
    for (int i = 0; i < N; i++) {
        request_new(&r[i], i == 1 ? 30 : 5, 40, (uint64_t)i);
        if (i % 2) r[i].policy = &policy, r[i].width = FORKS;
        scheduler_add(f.s, &r[i]);
    }
    while (scheduler_next(f.s, &b)) {
        int before[N];
        for (int i = 0; i < N; i++) before[i] = r[i].seq.n_tokens;
        scheduler_take(f.s, fake_forward(&f, b));
        for (int i = 0; i < N; i++)
            if (before[i] > r[i].n_prompt && r[i].finish == RUNNING) assert_int_equal(r[i].seq.n_tokens, before[i] + 1);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(r[i].n_new, 40);
        request_free(&f, &r[i]);
    }
    bench_close(&f);
}

// A preempted request gives the blocks of all its sequences back: an older one has the whole cache if it needs it. What
// its sequences have in common is shared again, or it would not fit.
static void test_forks_give_way(void **state) {
    (void)state;
    static Bench f;
    Request r[2];
    bench_open_shared(&f, 8, N_CTX / 8, 40, 6, true);
    Forker forker = {.n = 4, .random = 3, .sampler = f.sampler};
    const Policy policy = forker_policy(&forker, &plain_policy);
    for (int i = 0; i < 2; i++) request_new(&r[i], i ? 32 : 80, i ? 20 : -1, (uint64_t)i);
    r[1].policy = &policy;
    r[1].width = 4;
    scheduler_add(f.s, &r[0]);
    scheduler_add(f.s, &r[1]);
    run_and_release(&f, r, 2);
    assert_int_equal(r[0].seq.n_tokens, N_CTX + 1);
    assert_int_equal(r[1].n_new, 20);
    assert_int_equal(scheduler_preemptions(f.s), 1);
    assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
    for (int i = 0; i < 2; i++) request_free(&f, &r[i]);
    bench_close(&f);
}

// A request that ends from outside gives the blocks of all its sequences back.
static void test_cancelled_forks(void **state) {
    (void)state;
    static Bench f;
    for (int steps = 1; steps < 12; steps++) {
        Request r;
        Batch *b;
        bench_open(&f, 4, 0, 16, 4);
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
        bench_close(&f);
    }
}

// ---- over a real model ----------------------------------------------------------------------------------------------

enum { TEXTS = 5, N_NEW = 40 };

typedef struct {
    const char *isa;
    bool exact; // the deterministic backend
    int type_k, type_v, block, n_blocks, n_seqs, max_rows;
    bool share, greedy;
} Plan;

// What a run gives of each text.
typedef struct {
    int tokens[N_CTX + 1], n_prompt, n_tokens, n_cached, n_blocks;
    uint8_t *rows; // (n_layers) K and V of the slots, as kvrows_read has them
    size_t n_bytes;
    float *logits; // (N_NEW, n_vocab) that tokens were drawn from
} Text;

static void open_plan(Rig *r, const Gguf *g, const Plan *p) {
    const Backend *be;
    *r = (Rig){0};
    assert_ok((p->exact ? cpu_backend_deterministic : cpu_backend)(p->isa, &be));
    assert_ok(model_load(&r->m, g, be));
    r->pool = threads_new(2);
    KvShape shape = {.n_layers = r->m.c.n_layers,
                     .n_kv_heads = r->m.c.n_kv_heads,
                     .head_dim = r->m.c.head_dim,
                     .type_k = p->type_k,
                     .type_v = p->type_v,
                     .block = p->block,
                     .n_blocks = p->n_blocks,
                     .n_ctx = N_CTX,
                     .n_seqs = p->n_seqs,
                     .share = p->share};
    assert_ok(kvcache_new(&r->kv, &shape));
    memset(r->kv.pool->k, 0xff, r->kv.pool->bytes_k); // what is read and was never written shows
    memset(r->kv.pool->v, 0xff, r->kv.pool->bytes_v);
    kvcache_shuffle(&r->kv, 7);
    assert_ok(workspace_new(&r->w, &r->m, r->pool, p->max_rows, p->max_rows, N_CTX));
}

static uint8_t *read_kv(const Rig *r, const Sequence *q, int n, size_t *n_bytes) {
    size_t one = kvrows_bytes(r->kv.pool, n), layers = (size_t)r->m.c.n_layers;
    uint8_t *rows = mem_alloc(layers * one + 1);
    for (size_t layer = 0; layer < layers; layer++)
        kvrows_read(r->kv.pool, (int)layer, q->blocks, 0, n, rows + layer * one);
    *n_bytes = layers * one;
    return rows;
}

static void keep_text(const Rig *r, const Request *q, Text *out) {
    out->n_prompt = q->n_prompt;
    out->n_tokens = q->seq.n_tokens;
    out->n_cached = q->seq.n_cached;
    out->n_blocks = q->seq.n_blocks;
    memcpy(out->tokens, q->seq.tokens, (size_t)q->seq.n_tokens * sizeof(int));
    out->rows = read_kv(r, &q->seq, q->seq.n_cached, &out->n_bytes);
}

static void free_texts(Text *texts) {
    for (int i = 0; i < TEXTS; i++) {
        free(texts[i].rows);
        free(texts[i].logits);
    }
}

static Finish keep_logits(Request *q, int token, const float *logits) {
    Text *text = q->arg;
    size_t n_vocab = 320;
    memcpy(text->logits + (size_t)(q->n_new - 1) * n_vocab, logits, n_vocab * sizeof *logits);
    return token < 2 ? FINISH_EOG : RUNNING;
}

static void real_request(Request *q, const Plan *p, int i, Text *out) {
    static const int prompts[] = {3, 40, 66, 17, 31};
    int prompt[80];
    *q = (Request){.sampling = sampler_defaults(), .sequence_key = (uint64_t)i, .max_new = N_NEW - i, .arg = out};
    q->sampling.greedy = p->greedy;
    q->sampling.repeat_penalty = 1.1f;
    q->emit = keep_logits;
    out->logits = mem_alloc((size_t)N_NEW * 320 * sizeof(float));
    random_tokens(prompt, prompts[i], 320, i == 2 ? 1 : (uint64_t)i); // two begin alike
    sequence_push(&q->seq, prompt, prompts[i]);
}

// Runs the texts, some of them a few steps later than the others; returns how often one was preempted.
static int run_texts(Rig *r, const Plan *p, const Policy *policy, const Text *foreseen, Text *texts) {
    Sampler *sampler = sampler_new(r->m.c.n_vocab);
    SchedulerShape shape = {
        .n_vocab = r->m.c.n_vocab, .max_rows = p->max_rows, .max_out = p->max_rows, .max_seqs = p->n_seqs};
    Scheduler *s = scheduler_new(&r->kv, sampler, shape, policy);
    Request q[TEXTS];
    Foreseen known[TEXTS];
    memset(texts, 0, TEXTS * sizeof *texts);
    int added = 0;
    for (bool any = true; any || added < TEXTS;) {
        if (added < TEXTS) {
            real_request(&q[added], p, added, &texts[added]);
            if (foreseen) known[added] = (Foreseen){(int *)foreseen[added].tokens, foreseen[added].n_tokens};
            q[added].state = foreseen ? &known[added] : NULL;
            scheduler_add(s, &q[added++]);
        }
        Batch *b;
        any = scheduler_next(s, &b);
        if (any) scheduler_take(s, model_forward(&r->m, &r->w, r->kv.pool, b));
        for (int i = 0; i < added; i++) {
            if (q[i].finish == RUNNING || texts[i].rows) continue;
            keep_text(r, &q[i], &texts[i]);
            kvcache_release(&r->kv, &q[i].seq);
        }
    }
    for (int i = 0; i < TEXTS; i++) {
        assert_true(q[i].finish == FINISH_LENGTH || q[i].finish == FINISH_EOG);
        assert_int_equal(q[i].time.n_gaps, q[i].n_new - 1);
        sequence_free(&q[i].seq);
        timeline_free(&q[i].time);
    }
    assert_int_equal(r->kv.n_free, r->kv.pool->n_blocks);
    assert_int_equal(r->kv.n_free_tails, r->kv.pool->n_tails);
    int n_preempted = (int)scheduler_preemptions(s);
    scheduler_free(s);
    sampler_free(sampler);
    return n_preempted;
}

static void assert_same_texts(const Text *a, const Text *b, bool same_blocks) {
    for (int i = 0; i < TEXTS; i++) {
        assert_int_equal(a[i].n_tokens, b[i].n_tokens);
        assert_memory_equal(a[i].tokens, b[i].tokens, (size_t)a[i].n_tokens * sizeof(int));
        assert_int_equal(a[i].n_cached, b[i].n_cached);
        if (same_blocks) assert_int_equal(a[i].n_blocks, b[i].n_blocks);
        assert_int_equal(a[i].n_bytes, b[i].n_bytes);
        if (memcmp(a[i].rows, b[i].rows, a[i].n_bytes) != 0) fail_msg("text %d: other K and V", i);
    }
}

// Plain decoding in a contiguous cache against drafts in all layouts. Under kernels whose numbers do not depend on the
// batch all bits are the same: of sealed types those of every group that is sealed, too. Returns how often one was
// preempted.
static int same_bits(const Gguf *g, const char *isa, int type_k, int type_v) {
    static const Plan plans[] = {{.block = 0, .n_seqs = 3, .max_rows = 64},
                                 {.block = 0, .n_seqs = 3, .max_rows = 7},
                                 {.block = 16, .n_seqs = 4, .max_rows = 64, .share = true},
                                 {.block = 32, .n_seqs = 5, .max_rows = 20, .share = true},
                                 {.block = 64, .n_seqs = 5, .max_rows = 64},
                                 {.block = 32, .n_blocks = 6, .n_seqs = 5, .max_rows = 30, .share = true},
                                 {.block = 16, .n_blocks = 10, .n_seqs = 5, .max_rows = 64}};
    Rig r;
    Text want[TEXTS], got[TEXTS], plain[TEXTS];
    int n_kept = 0, n_preempted = 0;
    const Plan first = {.isa = isa, .exact = true, .type_k = type_k, .type_v = type_v, .n_seqs = 1, .max_rows = 128};
    open_plan(&r, g, &first);
    run_texts(&r, &first, &plain_policy, NULL, want);
    rig_close(&r);
    for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
        Plan p = plans[i];
        p.isa = isa, p.exact = true, p.type_k = type_k, p.type_v = type_v;
        Drafter d = {.random = i, .n_vocab = 320};
        const Policy drafting = drafter_policy(&d, &plain_policy);
        open_plan(&r, g, &p);
        run_texts(&r, &p, &plain_policy, NULL, plain);
        rig_close(&r);
        open_plan(&r, g, &p);
        n_preempted += run_texts(&r, &p, &drafting, want, got);
        rig_close(&r);
        assert_same_texts(want, got, false);
        assert_same_texts(plain, got, true);
        n_kept += d.n_kept;
        free_texts(got);
        free_texts(plain);
    }
    assert_true(n_kept > 100);
    free_texts(want);
    return n_preempted;
}

static const int kv_types[][2] = {{TYPE_F32, TYPE_F32},   {TYPE_F16, TYPE_F16},   {TYPE_FP8, TYPE_FP8},
                                  {TYPE_Q8_0, TYPE_Q8_0}, {TYPE_Q4_0, TYPE_Q4_0}, {TYPE_KIVI2, TYPE_KIVI2}};

static const char *const isas[] = {"scalar", "portable", "avx2", "avx512", "amx"};

static void test_same_bits(void **state) {
    (void)state;
    static const int types[] = {TYPE_F32, TYPE_Q8_0};
    int n_preempted = 0;
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        Gguf *g = tiny_model(&(TinyModel){.type = types[t], .seed = 5});
        for (size_t i = 0; i < ARRAY_LEN(isas); i++)
            for (size_t k = 0; k < (t ? ARRAY_LEN(kv_types) : 2) && cpu_has_isa(isas[i]); k++) // F32: dense KV alone
                n_preempted += same_bits(g, isas[i], kv_types[k][0], kv_types[k][1]);
        gguf_close(g);
    }
    assert_true(n_preempted > 20);
}

// The fast paths, where a row's numbers depend on how many rows there are.
static void near_texts(const Gguf *g, const char *isa, int type_k, int type_v, double distance) {
    Plan p = {.isa = isa, .type_k = type_k, .type_v = type_v, .block = 32, .n_seqs = 3, .max_rows = 64, .greedy = true};
    Rig r;
    Text want[TEXTS], got[TEXTS];
    open_plan(&r, g, &p);
    run_texts(&r, &p, &plain_policy, NULL, want);
    rig_close(&r);
    Drafter d = {.random = 3, .n_vocab = 320};
    const Policy drafting = drafter_policy(&d, &plain_policy);
    open_plan(&r, g, &p);
    run_texts(&r, &p, &drafting, want, got);
    rig_close(&r);
    for (int i = 0; i < TEXTS; i++)
        check_margin(want[i].tokens + want[i].n_prompt, want[i].logits, got[i].tokens + got[i].n_prompt, got[i].logits,
                     int_min(want[i].n_tokens, got[i].n_tokens) - want[i].n_prompt, 320, distance);
    assert_true(d.n_kept > 10);
    free_texts(want);
    free_texts(got);
}

static void test_near_texts(void **state) {
    (void)state;
    static const struct {
        int type;
        double dense, sealed;
    } weights[] = {{TYPE_F32, 1e-3, 0.05}, {TYPE_Q8_0, 0.05, 0.2}}; // Q8_0: decoding rounds activations to int8
    for (size_t t = 0; t < ARRAY_LEN(weights); t++) {
        Gguf *g = tiny_model(&(TinyModel){.type = weights[t].type, .seed = 5});
        for (size_t i = 0; i < ARRAY_LEN(isas); i++)
            for (size_t k = 0; k < ARRAY_LEN(kv_types) && cpu_has_isa(isas[i]); k++)
                near_texts(g, isas[i], kv_types[k][0], kv_types[k][1], k < 2 ? weights[t].dense : weights[t].sealed);
        gguf_close(g);
    }
}

// At the end of a request with several sequences: each has the K and V, and the logits behind them, of a sequence that
// is computed alone.
typedef struct {
    Rig *alone;
    int n;
} Alone;

static void as_computed_alone(void *arg, Scheduler *s, Request *r) {
    Alone *a = arg;
    Rig *rig = a->alone;
    Rig of_scheduler = {.m = rig->m, .kv = *scheduler_kv(s)};
    for (int i = 0; i <= r->n_more; i++, a->n++) {
        const Sequence *q = fork_of(r, i);
        Sequence alone = {0};
        size_t n_got, n_want;
        assert_int_equal(q->n_cached, q->n_tokens - 1);
        sequence_push(&alone, q->tokens, q->n_cached);
        while (alone.n_cached < alone.n_tokens)
            step(rig, &(Part){&alone, int_min(50, alone.n_tokens - alone.n_cached), NULL}, 1);
        uint8_t *got = read_kv(&of_scheduler, q, q->n_cached, &n_got);
        uint8_t *want = read_kv(rig, &alone, q->n_cached, &n_want);
        assert_int_equal(n_got, n_want);
        if (memcmp(got, want, n_got) != 0) fail_msg("sequence %d: other K and V", i);
        free(got);
        free(want);
        kvcache_release(&rig->kv, &alone);
        sequence_free(&alone);
    }
}

static void real_forks(const Gguf *g, const char *isa, int type_k, int type_v, bool share) {
    Plan p = {.isa = isa,
              .exact = true,
              .type_k = type_k,
              .type_v = type_v,
              .block = 32,
              .n_seqs = 6,
              .max_rows = 64,
              .share = share};
    Plan contiguous = {.isa = isa, .exact = true, .type_k = type_k, .type_v = type_v, .n_seqs = 1, .max_rows = 64};
    Rig r, alone;
    open_plan(&r, g, &p);
    open_plan(&alone, g, &contiguous);
    Alone look = {.alone = &alone};
    Sampler *sampler = sampler_new(r.m.c.n_vocab);
    Forker forker = {.n = 4, .random = 5, .sampler = sampler, .last = as_computed_alone, .arg = &look};
    const Policy policy = forker_policy(&forker, &plain_policy);
    SchedulerShape shape = {.n_vocab = r.m.c.n_vocab, .max_rows = 64, .max_out = 64, .max_seqs = 6};
    Scheduler *s = scheduler_new(&r.kv, sampler, shape, &plain_policy);
    Request q[2] = {0};
    for (int i = 0; i < 2; i++) {
        int prompt[45];
        random_tokens(prompt, 45, 320, (uint64_t)i);
        q[i] = (Request){.sampling = sampler_defaults(), .max_new = 30, .policy = i ? NULL : &policy};
        q[i].width = i ? 0 : 4;
        sequence_push(&q[i].seq, prompt, 45);
        scheduler_add(s, &q[i]);
    }
    for (Batch *b; scheduler_next(s, &b);) scheduler_take(s, model_forward(&r.m, &r.w, r.kv.pool, b));
    assert_true(look.n == 4 && forker.n_parents > 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(q[i].n_new, 30);
        kvcache_release(&r.kv, &q[i].seq);
        sequence_free(&q[i].seq);
        timeline_free(&q[i].time);
    }
    assert_int_equal(r.kv.n_free, r.kv.pool->n_blocks);
    assert_int_equal(r.kv.n_free_tails, r.kv.pool->n_tails);
    scheduler_free(s);
    sampler_free(sampler);
    rig_close(&alone);
    rig_close(&r);
}

static void test_forks_as_alone(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.type = TYPE_Q8_0, .seed = 5});
    for (size_t i = 0; i < ARRAY_LEN(isas); i++)
        for (size_t k = 0; k < ARRAY_LEN(kv_types) && cpu_has_isa(isas[i]); k++)
            real_forks(g, isas[i], kv_types[k][0], kv_types[k][1], k % 2);
    gguf_close(g);
}

// ---- through the engine ---------------------------------------------------------------------------------------------

typedef struct {
    int tokens[2][N_CTX + 1], n_new[2], n_reused[2];
    double flops[2]; // of the prompts, and behind them
    uint64_t files;  // a hash of what the directory has
    int n_files;
} Kept;

static void hash_files(const char *dir, Kept *out) {
    DIR *d = opendir(dir);
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[2048];
        Buf bytes = {0};
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        assert_ok(file_read(path, &bytes));
        uint64_t hash = 0;
        for (const char *at = entry->d_name; *at; at++) hash = mix(hash, (uint64_t)*at);
        for (size_t i = 0; i < bytes.n; i++) hash = mix(hash, (uint8_t)bytes.data[i]);
        out->files += hash; // in any order
        out->n_files++;
        buf_free(&bytes);
    }
    closedir(d);
}

// Two requests that begin alike, with a directory for their blocks; drafter NULL: plain decoding.
static void run_engine(Drafter *d, Foreseen *foreseen, Kept *out) {
    Engine e;
    const char *dir = test_tmp("policy_kv");
    Options o = {.device = "cpu",
                 .isa = "scalar",
                 .quiet = true,
                 .threads = 1,
                 .ubatch = 32,
                 .type_k = TYPE_F32,
                 .type_v = TYPE_F32,
                 .kv_block = 16,
                 .kv_dir = dir,
                 .kv_dir_size = 1 << 26};
    *out = (Kept){0};
    remove_directory(dir);
    assert_ok(engine_open_view(&e, &o, (EngineNeeds){.n_ctx = N_CTX, .n_seqs = 2, .max_out = 32, .pooled = true},
                               tiny_model(&(TinyModel){.seed = 5})));
    const Policy drafting = d ? drafter_policy(d, e.policy) : (Policy){0};
    for (int i = 0; i < 2; i++) {
        int prompt[50];
        Request r = {.sampling = sampler_defaults(), .max_new = 60, .policy = d ? &drafting : NULL};
        r.state = d ? &foreseen[i] : NULL;
        random_tokens(prompt, 50, 320, 1);
        sequence_push(&r.seq, prompt, 50 - i);
        engine_add(&e, &r);
        engine_run(&e);
        engine_keep(&e, &r.seq);
        memcpy(out->tokens[i], r.seq.tokens, (size_t)r.seq.n_tokens * sizeof(int));
        out->n_new[i] = r.n_new;
        out->n_reused[i] = r.n_reused;
        out->flops[0] += r.time.prefill_flops;
        out->flops[1] += r.time.decode_flops;
        kvcache_release(&e.kv, &r.seq);
        sequence_free(&r.seq);
        timeline_free(&r.time);
    }
    engine_close(&e);
    hash_files(dir, out);
    remove_directory(dir);
}

// What is saved, counted and found again is that of plain decoding; what drafts cost is no prompt's.
static void test_nothing_of_drafts_is_kept(void **state) {
    (void)state;
    static Kept want, got;
    run_engine(NULL, NULL, &want);
    Foreseen text[2] = {{want.tokens[0], 110}, {want.tokens[1], 109}};
    Drafter d = {.random = 7, .n_vocab = 320};
    run_engine(&d, text, &got);
    assert_true(d.n_kept > 10 && d.n_drafts > 2 * d.n_kept);
    assert_memory_equal(want.tokens, got.tokens, sizeof want.tokens);
    assert_memory_equal(want.n_new, got.n_new, sizeof want.n_new);
    assert_memory_equal(want.n_reused, got.n_reused, sizeof want.n_reused);
    assert_int_equal(want.n_reused[1], 48);
    assert_int_equal(want.n_files, 6 + 6 - 3); // of 16 slots each, three of them shared
    assert_int_equal(want.n_files, got.n_files);
    assert_true(want.files == got.files);
    assert_true(got.flops[0] < 1.5 * want.flops[0] && got.flops[1] > 1.5 * want.flops[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_drafts),
        cmocka_unit_test(test_random_drafts_of_sealed_types),
        cmocka_unit_test(test_several_tokens_a_step),
        cmocka_unit_test(test_drafts_come_last),
        cmocka_unit_test(test_no_draws_for_drafts),
        cmocka_unit_test(test_forks),
        cmocka_unit_test(test_forks_crowd_nobody_out),
        cmocka_unit_test(test_forks_give_way),
        cmocka_unit_test(test_cancelled_forks),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_near_texts),
        cmocka_unit_test(test_forks_as_alone),
        cmocka_unit_test(test_nothing_of_drafts_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
