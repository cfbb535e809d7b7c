// tests/test_speculate.c: speculation over a fake model and over random models. The text must be that of plain
// decoding, whatever the drafts are; correct drafts must save steps.
#define _GNU_SOURCE
enum { FAKE_CTX = 160 };
#include "cpu/backend.h"
#include "engine.h"
#include "policy/draft_model.h"
#include "policy/speculate.h"
#include "tests/rig/drafting.h"
#include "tests/rig/engine_rig.h"
#include "tests/rig/fake_model.h"

// ---- n-grams over the fake model ------------------------------------------------------------------------------------

enum { MANY = 20 };

// Fills r with requests. Some are repeated, so that n-grams can predict their answers; others are unique.
static void repeated_requests(Request *r, int n, int max_new) {
    for (int i = 0; i < n; i++) {
        int family = i % 3; // 2: a request of its own
        request_new(&r[i], 0, max_new, family < 2 ? (uint64_t)family : (uint64_t)i);
        for (int k = 0; k < 20 + 3 * family; k++)
            sequence_push(r[i].seq, &(int){(int)(mix((uint64_t)(family < 2 ? family : i), (uint64_t)k) % FAKE_VOCAB)},
                          1);
    }
}

static void check_text(const Request *r) {
    int want[FAKE_CTX + 1], n = expected_text(r, r->n_prompt, want);
    assert_int_equal(r->n_new, n);
    assert_memory_equal(r->seq->tokens + r->n_prompt, want, (size_t)n * sizeof(int));
}

typedef struct {
    int n_seqs, max_rows, block, n_blocks;
    bool sealed, share, fixed;
    int most;
} FakePlan;

// Runs the requests, a few at a time; returns the sum of their counts.
static DraftCounts run_fake(const FakePlan *plan) {
    static FakeEngine f;
    Request r[MANY];
    DraftCounts sum = {0};
    KvShape shape = {.type_k = plan->sealed ? TYPE_Q8_0 : TYPE_F16,
                     .type_v = TYPE_F16,
                     .block = plan->block,
                     .n_blocks = plan->n_blocks,
                     .n_seqs = plan->n_seqs,
                     .share = plan->share};
    fake_open_shape(&f, shape, plan->max_rows, plan->n_seqs);
    Speculate *x = speculate_new(&(SpeculatePlan){.ngram = true,
                                                  .most = plan->most,
                                                  .fixed = plan->fixed,
                                                  .costs = step_costs_of("amx", 8.5, WEIGHTS_IN_MEMORY)});
    const Policy policy = speculate_policy(x, &plain_policy);
    fake_policy(&f, &policy, false);
    repeated_requests(r, MANY, 50);
    for (int i = 0; i < MANY; i++) scheduler_add(f.s, &r[i]);
    run_and_release(&f, r, MANY);
    for (int i = 0; i < MANY; i++) {
        check_text(&r[i]);
        assert_null(r[i].state);
        assert_true(r[i].drafts.n_accepted <= r[i].drafts.n_drafted);
        assert_in_range(r[i].n_new - r[i].drafts.n_tokens, 0, 1); // the prompt's step may draw the first token
        draft_counts_add(&sum, &r[i].drafts);
        request_free(&f, &r[i]);
    }
    assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
    assert_int_equal(f.kv.n_free_tails, f.kv.pool->n_tails);
    fake_close(&f);
    speculate_free(x);
    return sum;
}

static void test_ngrams_keep_the_text(void **state) {
    (void)state;
    static const FakePlan plans[] = {
        {.n_seqs = 1, .max_rows = 40, .most = 8},
        {.n_seqs = 1, .max_rows = 40, .most = 8, .fixed = true},
        {.n_seqs = 4, .max_rows = 24, .block = 4, .n_blocks = 60, .most = 16},
        {.n_seqs = 4, .max_rows = 24, .block = 4, .n_blocks = 60, .most = 16, .fixed = true, .share = true},
        {.n_seqs = 3, .max_rows = 12, .block = 32, .n_blocks = 9, .most = 16, .sealed = true, .fixed = true},
        {.n_seqs = 6, .max_rows = 20, .block = 16, .n_blocks = 24, .most = 4, .sealed = true, .share = true},
    };
    for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
        DraftCounts c = run_fake(&plans[i]), again = run_fake(&plans[i]);
        assert_memory_equal(&c, &again, sizeof c); // drafts must not depend on a clock
        assert_true(c.n_drafted > 100 && c.n_accepted > 50);
    }
}

// The cost of a step is that of all its rows, relative to the step without drafts, whether drafts are accepted or not.
static void test_rejected_drafts_cost_time(void **state) {
    (void)state;
    static FakeEngine f;
    Request r[6];
    DraftCounts sum = {0};
    double cost = 0;
    StepCosts costs = step_costs_of("amx", 8.5, WEIGHTS_IN_MEMORY);
    fake_open_shape(&f, (KvShape){.type_k = TYPE_F16, .type_v = TYPE_F16, .n_seqs = 1}, 40, 1);
    Speculate *x = speculate_new(&(SpeculatePlan){.ngram = true, .most = 8, .fixed = true, .costs = costs});
    const Policy policy = speculate_policy(x, &plain_policy);
    fake_policy(&f, &policy, false);
    repeated_requests(r, 6, 50);
    for (int i = 0; i < 6; i++) scheduler_add(f.s, &r[i]);
    for (Batch *b; scheduler_next(f.s, &b);) {
        const StepRows *rows = scheduler_rows(f.s, 0);
        if (rows->n_draft > 0 || rows->seq->n_tokens > rows->request->n_prompt)
            cost += step_costs_at(&costs, b->n_rows) / step_costs_at(&costs, rows->n_known);
        scheduler_take(f.s, fake_forward(&f, b));
        for (int i = 0; i < 6; i++)
            if (r[i].finish != RUNNING) kvcache_release(&f.kv, r[i].seq);
    }
    for (int i = 0; i < 6; i++) {
        draft_counts_add(&sum, &r[i].drafts);
        request_free(&f, &r[i]);
    }
    assert_true(sum.n_accepted > 0 && sum.n_accepted < sum.n_drafted);
    assert_true(cost > (double)sum.n_steps && fabs(sum.cost - cost) < 1e-9);
    fake_close(&f);
    speculate_free(x);
}

// ---- forced drafts: oracle, adversary, chance -----------------------------------------------------------------------

typedef enum { RIGHT, WRONG, ANY } DraftKind;

typedef struct {
    DraftKind kind;
    int k;
    uint64_t random;
    const int *text; // (FAKE_CTX) prompt and answer without drafts
    int n_text;
} Forced;

static void forced_propose(const Policy *p, Scheduler *s, StepRows *rows) {
    Forced *f = p->arg;
    (void)s;
    if (rows->n_out == 0) return;
    rows->n_draft = int_min(f->k, rows->room);
    for (int i = 0; i < rows->n_draft; i++) {
        int at = rows->first + rows->n_known + i, right = at < f->n_text ? f->text[at] : 0;
        int any = (int)(test_random(&f->random) % FAKE_VOCAB);
        rows->draft[i] = f->kind == RIGHT ? right : f->kind == WRONG ? (right + 1) % FAKE_VOCAB : any;
    }
    rows->n_out += rows->n_draft;
}

static void run_forced(DraftKind kind, int k, bool sealed) {
    static FakeEngine f;
    Request r;
    enum { NEW = 63, PROMPT = 17 };
    KvShape shape = {.type_k = sealed ? TYPE_Q8_0 : TYPE_F16, .type_v = TYPE_F16, .n_seqs = 1};
    fake_open_shape(&f, shape, 40, 1);
    request_new(&r, PROMPT, NEW, 5);
    int text[FAKE_CTX + 1];
    memcpy(text, r.seq->tokens, PROMPT * sizeof(int));
    expected_text(&r, PROMPT, text + PROMPT);
    Forced forced = {kind, k, 3, text, PROMPT + NEW};
    const Policy policy = {.propose = forced_propose, .arg = &forced, .next = &plain_policy};
    fake_policy(&f, &policy, false);
    scheduler_add(f.s, &r);
    run_all(&f);
    check_text(&r);
    assert_int_equal(r.seq->n_cached, PROMPT + NEW - 1); // as if nothing had been drafted
    for (int i = 0; i < r.seq->n_cached && !sealed; i++) assert_int_equal(*cell(&f, r.seq->blocks, i), text[i]);
    if (kind == RIGHT && !sealed) { // k + 1 tokens per step
        assert_int_equal(r.drafts.n_steps, (NEW + k) / (k + 1));
        assert_int_equal(r.drafts.n_accepted, r.drafts.n_drafted);
    }
    if (kind == RIGHT && sealed) assert_true(r.drafts.n_steps <= NEW / (k + 1) + 2 * (NEW / SEAL + 2));
    if (kind == WRONG) assert_true(r.drafts.n_accepted == 0 && r.drafts.n_tokens == NEW && r.drafts.n_steps == NEW);
    request_free(&f, &r);
    fake_close(&f);
}

static void test_oracle_and_adversary(void **state) {
    (void)state;
    for (int k = 1; k <= 16; k += 5)
        for (int kind = RIGHT; kind <= ANY; kind++)
            for (int sealed = 0; sealed < 2; sealed++) run_forced((DraftKind)kind, k, sealed);
}

// ---- an end inside a draft ------------------------------------------------------------------------------------------

static Finish end_at(Request *r, int token, const float *logits) {
    (void)token;
    assert_non_null(logits); // each token comes with the logits from which it was drawn
    return r->n_new == *(int *)r->arg ? FINISH_EOG : RUNNING;
}

static void test_end_inside_a_draft(void **state) {
    (void)state;
    for (int end = 1; end < 14; end++) {
        static FakeEngine f;
        Request r;
        int text[FAKE_CTX + 1];
        fake_open(&f, 0, 0, 40, 1);
        request_new(&r, 10, 60, 2);
        memcpy(text, r.seq->tokens, 10 * sizeof(int));
        expected_text(&r, 10, text + 10);
        Forced forced = {RIGHT, 7, 3, text, 70};
        const Policy policy = {.propose = forced_propose, .arg = &forced, .next = &plain_policy};
        fake_policy(&f, &policy, false);
        r.emit = end_at;
        r.arg = &end;
        scheduler_add(f.s, &r);
        run_all(&f);
        assert_true(r.finish == FINISH_EOG && r.n_new == end && r.seq->n_tokens == 10 + end);
        assert_memory_equal(r.seq->tokens, text, (size_t)(10 + end) * sizeof(int));
        assert_int_equal(r.seq->n_cached, 10 + end - 1);
        request_free(&f, &r);
        fake_close(&f);
    }
}

// ---- the distribution -----------------------------------------------------------------------------------------------

enum { V = 8 };

// Logits over 8 tokens: each token is followed by its own distribution.
static void toy_logits(int before, float *out) {
    for (int i = 0; i < V; i++) out[i] = 2 * test_uniform(&(uint64_t){mix((uint64_t)before + 9, (uint64_t)i)});
}

static void toy_p(int before, double *p) {
    float logits[V];
    double sum = 0;
    toy_logits(before, logits);
    for (int i = 0; i < V; i++) sum += p[i] = exp((double)logits[i]);
    for (int i = 0; i < V; i++) p[i] /= sum;
}

static const SamplerParams toy_sampling = {.temp = 1, .top_p = 1, .typical = 1, .repeat_penalty = 1, .seed = 4};

static int toy_draw(Sampler *s, const float *logits, uint64_t key, int position) {
    return sampler_sample(s, &toy_sampling, logits, NULL, 0, key, (uint64_t)position);
}

// Draws three tokens by sample-and-match: a step has a known row and two drafts of a random drafter.
static void draw_three(Sampler *s, uint64_t key, uint64_t *random, int *out) {
    for (int n = 0; n < 3;) {
        int rows[3] = {n ? out[n - 1] : 0, (int)(test_random(random) % V), (int)(test_random(random) % V)};
        for (int i = 0; i < 3 && n < 3; i++) {
            float logits[V];
            toy_logits(rows[i], logits);
            out[n] = toy_draw(s, logits, key, n);
            n++;
            if (i < 2 && out[n - 1] != rows[i + 1]) break;
        }
    }
}

// The 99.99% quantile of chi-square with n degrees of freedom, by Wilson and Hilferty.
static double chi_limit(double n) {
    double z = 3.719, a = 2 / (9 * n), b = 1 - a + z * sqrt(a);
    return n * b * b * b;
}

static void test_distribution(void **state) {
    (void)state;
    enum { ONE = 1000000, JOINT = 300000 };
    Sampler *s = sampler_new(V);
    static int counts[V * V * V];
    double p[V], q[V], r[V], chi = 0;
    float logits[V];
    toy_logits(0, logits);
    toy_p(0, p);
    for (int i = 0; i < ONE; i++) counts[toy_draw(s, logits, 1, i)]++;
    for (int i = 0; i < V; i++) chi += (counts[i] - ONE * p[i]) * (counts[i] - ONE * p[i]) / (ONE * p[i]);
    assert_true(chi < chi_limit(V - 1));
    memset(counts, 0, sizeof counts);
    uint64_t random = 7;
    for (int i = 0; i < JOINT; i++) {
        int t[3];
        draw_three(s, (uint64_t)i + 10, &random, t);
        counts[(t[0] * V + t[1]) * V + t[2]]++;
    }
    chi = 0;
    for (int a = 0; a < V; a++)
        for (int b = 0; b < V; b++) {
            toy_p(a, q);
            toy_p(b, r);
            for (int c = 0; c < V; c++) {
                double want = JOINT * p[a] * q[b] * r[c], off = counts[(a * V + b) * V + c] - want;
                chi += off * off / want;
            }
        }
    assert_true(chi < chi_limit(V * V * V - 1));
    sampler_free(s);
}

// A draft drawn with the target's random numbers must always be right if both distributions are equal, and never if
// they have no token in common. Otherwise it must be right as often as a race promises: (1 - TV) / (1 + TV), with TV
// the total variation.
static void test_drafts_with_the_same_number(void **state) {
    (void)state;
    Sampler *s = sampler_new(V);
    int same = 0, disjoint = 0, shared = 0;
    double promised = 0;
    for (int i = 0; i < 20000; i++) {
        float p[V], q[V], left[V], right[V];
        toy_logits(i % 50, p);
        toy_logits(i % 50, q);
        for (int k = 0; k < V; k++) {
            q[k] += 0.3f * test_uniform(&(uint64_t){mix((uint64_t)i % 50, (uint64_t)k + 99)});
            left[k] = k < V / 2 ? p[k] : -INFINITY;
            right[k] = k < V / 2 ? -INFINITY : p[k];
        }
        double sum_p = 0, sum_q = 0, apart = 0;
        for (int k = 0; k < V; k++) sum_p += exp((double)p[k]), sum_q += exp((double)q[k]);
        for (int k = 0; k < V; k++) apart += fabs(exp((double)p[k]) / sum_p - exp((double)q[k]) / sum_q) / 2;
        promised += (1 - apart) / (1 + apart);
        int drawn = toy_draw(s, p, 1, i);
        same += toy_draw(s, p, 1, i) == drawn;
        disjoint += toy_draw(s, left, 1, i) == toy_draw(s, right, 1, i);
        shared += toy_draw(s, q, 1, i) == drawn;
    }
    assert_true(same == 20000 && disjoint == 0 && shared > promised - 4 * sqrt(20000) / 2);
    sampler_free(s);
}

// ---- draft models ---------------------------------------------------------------------------------------------------

typedef struct {
    const char *speculate, *isa;
    const TinyModel *draft; // makes as many drafts as possible, whatever they cost; NULL: the drafters are `speculate`
    bool ngram;             // n-grams in addition to `draft`
    int block, type_k, type_v, n_seqs;
    bool pooled;
} DraftSetup;

enum { ANSWERS = 4, NEW = 40 };

typedef struct {
    int tokens[ANSWERS][NEW], n[ANSWERS];
    DraftCounts drafts;
} Answers;

static Finish end_at_small(Request *r, int token, const float *logits) {
    (void)r, (void)logits;
    return token < 3 ? FINISH_EOG : RUNNING;
}

// Makes the drafters of a setup that has a draft model.
static Speculate *forced_drafters(Engine *e, const DraftSetup *u, DraftModel **model) {
    KvShape kv = {.n_ctx = 160, .n_seqs = u->n_seqs, .share = u->pooled, .block = u->pooled ? 16 : 0};
    assert_ok(draft_model_open(tiny_model(u->draft), e->be, e->model.c.n_vocab, model));
    assert_ok(draft_model_begin(*model, e->pool, kv));
    return speculate_new(
        &(SpeculatePlan){.ngram = u->ngram, .drafter = draft_model_drafter(*model), .most = 6, .fixed = true});
}

static void answer_all(const DraftSetup *u, Answers *out) {
    Engine e;
    EngineConfig o = {.device = "cpu",
                      .isa = u->isa,
                      .quiet = true,
                      .threads = 2,
                      .ubatch = 32,
                      .deterministic = true,
                      .type_k = u->type_k,
                      .type_v = u->type_v,
                      .paged = u->block > 0,
                      .kv_block = u->block,
                      .speculate = u->speculate,
                      .draft_max = 6};
    EngineNeeds needs = {.need_tokenizer = true, .n_ctx = 160, .n_seqs = u->n_seqs, .max_out = 32, .pooled = u->pooled};
    assert_ok(engine_open_view(&e, &o, needs, tiny_model(&(TinyModel){.type = TYPE_Q8_0, .seed = 5})));
    Request r[ANSWERS];
    Sequence seqs[ANSWERS] = {0};
    DraftModel *model = NULL;
    Speculate *x = u->draft ? forced_drafters(&e, u, &model) : NULL;
    const Policy forced = x ? speculate_policy(x, e.policy) : (Policy){0};
    *out = (Answers){0};
    for (int i = 0; i < ANSWERS; i++) {
        r[i] =
            (Request){.seq = &seqs[i], .sampling = sampler_defaults(), .sequence_key = (uint64_t)i / 2, .max_new = NEW};
        r[i].sampling.repeat_penalty = 1.1f;
        r[i].sampling.temp = i == 3 ? 0 : 0.8f;
        r[i].emit = end_at_small;
        r[i].policy = x ? &forced : NULL;
        push_random(r[i].seq, 30 + 7 * (i / 2), (uint64_t)i / 2);
        scheduler_add(e.sched, &r[i]);
    }
    for (Batch *b; engine_step(&e, &b);)
        for (int i = 0; i < ANSWERS; i++)
            if (r[i].finish != RUNNING) kvcache_release(&e.kv, r[i].seq);
    for (int i = 0; i < ANSWERS; i++) {
        out->n[i] = r[i].n_new;
        memcpy(out->tokens[i], seqs[i].tokens + r[i].n_prompt, (size_t)r[i].n_new * sizeof(int));
        out->drafts.n_drafted += r[i].drafts.n_drafted;
        out->drafts.n_accepted += r[i].drafts.n_accepted;
        out->drafts.n_steps += r[i].drafts.n_steps;
        out->drafts.n_tokens += r[i].drafts.n_tokens;
        sequence_free(&seqs[i]);
        timeline_free(&r[i].time);
    }
    assert_int_equal(e.kv.n_free, e.kv.pool->n_blocks);
    engine_close(&e);
    speculate_free(x);
    draft_model_free(model);
}

static void assert_same_answers(const Answers *a, const Answers *b) {
    assert_memory_equal(a->tokens, b->tokens, sizeof a->tokens);
    assert_memory_equal(a->n, b->n, sizeof a->n);
}

// The text must be the same bit for bit with a draft model equal to the target, with a draft model of random weights,
// with n-grams, and with both; with one sequence and with several; in each layout, dense and sealed.
static void test_draft_models_keep_the_text(void **state) {
    (void)state;
    char same[1024], other[1024], both[1100];
    snprintf(same, sizeof same, "%s", test_tmp("draft_same.gguf"));
    snprintf(other, sizeof other, "%s", test_tmp("draft_other.gguf"));
    snprintf(both, sizeof both, "ngram,%s", other);
    assert_ok(tiny_model_file(&(TinyModel){.type = TYPE_Q8_0, .seed = 5}, same));
    assert_ok(tiny_model_file(&(TinyModel){.type = TYPE_Q8_0, .seed = 6, .n_layers = 1}, other));
    static const TinyModel drafts[] = {{.type = TYPE_Q8_0, .seed = 5}, {.type = TYPE_F32, .seed = 9, .vocab = 300}};
    const char *drafters[] = {same, other, "ngram", both};
    static const DraftSetup setups[] = {
        {.n_seqs = 1, .type_k = TYPE_F16, .type_v = TYPE_F16, .isa = "auto"},
        {.n_seqs = 1, .type_k = TYPE_Q8_0, .type_v = TYPE_Q4_0, .isa = "auto", .block = 32},
        {.n_seqs = 3, .type_k = TYPE_F32, .type_v = TYPE_F32, .isa = "scalar", .pooled = true, .block = 16},
        {.n_seqs = 4, .type_k = TYPE_Q8_0, .type_v = TYPE_Q8_0, .isa = "auto", .pooled = true, .block = 16},
    };
    for (size_t i = 0; i < ARRAY_LEN(setups); i++) {
        static Answers want, got, again;
        DraftSetup u = setups[i];
        answer_all(&u, &want);
        assert_int_equal(want.drafts.n_drafted, 0);
        for (size_t k = 0; k < ARRAY_LEN(drafters); k++) {
            u.speculate = drafters[k];
            answer_all(&u, &got);
            answer_all(&u, &again);
            assert_same_answers(&want, &got);
            assert_memory_equal(&got.drafts, &again.drafts, sizeof got.drafts);
            // A draft as dear as its target can never pay where a step has the rows of one sequence.
            if (k == 0 && u.n_seqs == 1) assert_int_equal(got.drafts.n_drafted, 0);
        }
        u.speculate = NULL;
        for (size_t k = 0; k < ARRAY_LEN(drafts); k++) {
            u.draft = &drafts[k];
            u.ngram = i % 2;
            answer_all(&u, &got);
            assert_same_answers(&want, &got);
            assert_true(got.drafts.n_drafted > 100);
            if (k > 0 || i > 0) continue;              // K and V of another type are rounded differently
            int n = got.drafts.n_tokens, most = 6 + 1; // all drafts are right, and there are as many as possible
            assert_int_equal(got.drafts.n_accepted, got.drafts.n_drafted);
            assert_true(got.drafts.n_steps < (n + most - 1) / most + 3 * ANSWERS);
        }
    }
}

// A draft model that knows nothing is given up after some drafts; the tries that follow cost at most 2% of the steps.
// Text without repeats costs n-grams nothing.
static void test_useless_drafts_cost_little(void **state) {
    (void)state;
    enum { LONG = 600 };
    EngineConfig o = {.device = "cpu", .isa = "auto", .quiet = true, .threads = 1, .ubatch = 32, .gpu_layers = -1};
    o.type_k = o.type_v = KV_TYPE_AUTO;
    for (int with_model = 0; with_model < 2; with_model++) {
        Engine e;
        EngineNeeds needs = {.need_tokenizer = true, .n_ctx = 700, .n_seqs = 1, .max_out = 32};
        assert_ok(engine_open_view(&e, &o, needs, tiny_model(&(TinyModel){.type = TYPE_Q8_0, .seed = 5, .ctx = 700})));
        DraftModel *model = NULL;
        if (with_model) {
            assert_ok(draft_model_open(tiny_model(&(TinyModel){.type = TYPE_Q8_0, .seed = 6, .ctx = 700}), e.be,
                                       e.model.c.n_vocab, &model));
            assert_ok(draft_model_begin(model, e.pool, (KvShape){.n_ctx = 700, .n_seqs = 1}));
        }
        StepCosts costs = step_costs_of("vnni", 8.5, WEIGHTS_IN_MEMORY);
        Speculate *x = speculate_new(&(SpeculatePlan){.ngram = !with_model,
                                                      .drafter = with_model ? draft_model_drafter(model) : (Drafter){0},
                                                      .most = 16,
                                                      .costs = costs,
                                                      .draft_cost = 0.1,
                                                      .draft_costs = costs});
        Policy policy = speculate_policy(x, e.policy);
        Sequence q = {0};
        Request r = {.seq = &q, .sampling = sampler_defaults(), .max_new = LONG, .policy = &policy};
        r.sampling.temp = with_model ? 0.15f : 4; // two models seldom agree; nothing repeats
        r.sampling.top_k = 0;
        r.sampling.top_p = 1;
        r.sampling.min_p = 0;
        push_random(&q, 30, 3);
        scheduler_add(e.sched, &r);
        for (Batch *b; engine_step(&e, &b);) continue;
        double lost = r.drafts.cost / (double)r.drafts.n_tokens - 1;
        assert_int_equal(r.n_new, LONG);
        print_message("%lld tokens, %lld drafts, %lld accepted, %.2f%% lost\n", (long long)r.drafts.n_tokens,
                      (long long)r.drafts.n_drafted, (long long)r.drafts.n_accepted, 100 * lost);
        assert_true(with_model ? r.drafts.n_drafted > 4 : true);
        assert_true(lost < 0.02);
        sequence_end(&e.kv, &q);
        timeline_free(&r.time);
        engine_close(&e);
        speculate_free(x);
        draft_model_free(model);
    }
}

// A draft model removes refused drafts again, with recurrent layers too: it computes the accepted ones and the next
// token alone, and its logits are those of a model that has seen nothing else.
static void test_refused_drafts_are_removed(void **state) {
    (void)state;
    enum { DRAFTS = 4, ROUNDS = 12, START = 40 };
    static const char *const archs[] = {"qwen3", "qwen35", "lfm2", "granitehybrid"};
    const Backend *be;
    assert_ok(cpu_backend("scalar", &be));
    for (size_t a = 0; a < 2 * ARRAY_LEN(archs); a++) {
        TinyModel shape = {.arch = archs[a / 2], .seed = 7};
        KvShape kv = {.n_ctx = 160, .n_seqs = 1, .share = a % 2, .block = a % 2 ? 16 : 0, .n_back = DRAFTS};
        DraftModel *drafts, *fresh;
        ThreadPool *pool = threads_new(1);
        assert_ok(draft_model_open(tiny_model(&shape), be, 320, &drafts));
        assert_ok(draft_model_begin(drafts, pool, kv));
        Drafter d = draft_model_drafter(drafts);
        Sequence text = {0};
        void *t = NULL;
        push_random(&text, START, a);
        for (int round = 0; round < ROUNDS; round++) {
            int n_right = round % (DRAFTS + 1), next[DRAFTS + 1];
            void *other = NULL;
            assert_ok(draft_model_open(tiny_model(&shape), be, 320, &fresh));
            assert_ok(draft_model_begin(fresh, pool, kv));
            Drafter f = draft_model_drafter(fresh);
            assert_true(d.follow(d.arg, &t, &text, DRAFTS) && f.follow(f.arg, &other, &text, DRAFTS));
            if (round > 0 && d.behind(t, &text) > (round - 1) % (DRAFTS + 1) + 1)
                fail_msg("%s: %d rows to compute in round %d", shape.arch, d.behind(t, &text), round);
            for (int i = 0; i <= DRAFTS; i++) next[i] = 3 + (37 * (round * 8 + i) + 11) % 300;
            for (int i = 0; i < DRAFTS; i++) {
                const float *got = d.step(d.arg, &t, 1), *want = f.step(f.arg, &other, 1);
                double off = test_distance(got, want, 320);
                if (!(off < 1e-6)) fail_msg("%s, round %d, draft %d: distance %.3g", shape.arch, round, i, off);
                int token = i < n_right ? next[i] : 3;
                d.push(t, token);
                f.push(other, token);
            }
            sequence_push(&text, next, n_right + 1);
            f.leave(f.arg, other, &text);
            draft_model_free(fresh);
        }
        d.leave(d.arg, t, &text);
        draft_model_free(drafts);
        sequence_free(&text);
        threads_free(pool);
    }
}

// What cannot draft is refused with the piece, or the size, that is wrong.
static void test_refused(void **state) {
    (void)state;
    Engine e;
    char path[1024];
    snprintf(path, sizeof path, "%s", test_tmp("draft_refused.gguf"));
    static const struct {
        TinyModel draft;
        const char *says;
    } cases[] = {
        {{.vocab = 300}, "320 tokens"},
        {{.tokens = "gpt2"}, "token 0 is "},
        {{.n_layers = 4}, "no larger than"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_ok(tiny_model_file(&cases[i].draft, path));
        EngineConfig o = {.device = "cpu", .quiet = true, .threads = 1, .speculate = path, .draft_max = 4};
        o.type_k = o.type_v = KV_TYPE_AUTO;
        Status st = engine_open_view(&e, &o, (EngineNeeds){.n_ctx = 64}, tiny_model(&(TinyModel){.seed = 1}));
        assert_int_equal(st.code, QUILL_MODEL);
        if (!strstr(st.message, cases[i].says)) fail_msg("\"%s\" expected: %s", cases[i].says, st.message);
    }
}

// A batch adds the counts of all its answers: in a long run there are more than an int holds.
static void test_counts_of_long_runs(void **state) {
    (void)state;
    const DraftCounts one = {.n_steps = 1 << 30, .n_tokens = INT32_MAX, .n_drafted = INT32_MAX, .n_accepted = 1 << 30};
    DraftCounts sum = {0};
    for (int i = 0; i < 4; i++) draft_counts_add(&sum, &one);
    assert_true(sum.n_steps == INT64_C(4) << 30 && sum.n_tokens == INT64_C(4) * INT32_MAX);
    assert_true(sum.n_drafted == INT64_C(4) * INT32_MAX && sum.n_accepted == INT64_C(4) << 30);
    assert_true(fabs(draft_counts_per_step(&sum) - 2) < 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ngrams_keep_the_text),
        cmocka_unit_test(test_rejected_drafts_cost_time),
        cmocka_unit_test(test_oracle_and_adversary),
        cmocka_unit_test(test_end_inside_a_draft),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_drafts_with_the_same_number),
        cmocka_unit_test(test_draft_models_keep_the_text),
        cmocka_unit_test(test_refused_drafts_are_removed),
        cmocka_unit_test(test_useless_drafts_cost_little),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_counts_of_long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
