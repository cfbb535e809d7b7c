// tests/test_mtp.c: drafts by prediction heads. Compares the head's logits with the formulas in double. Texts must be
// those of plain decoding, whatever a head proposes; a head that knows the next token must save steps. What a head
// computed must survive refused drafts, forks, the turns of a chat and preemption.
#include "tests/rig/drafting.h"
#include "tests/rig/engine_rig.h"
#include "tests/rig/model_rig.h"
#include "tests/rig/plain_forward.h"

#include "policy/drafters.h"
#include "policy/mtp.h"
#include "policy/speculate.h"

enum { DRAFTS = 3 };

// A model with its head, and steps of both.
typedef struct {
    Engine e;
    Step step;
    Mtp *h;
} HeadRig;

static void open_rig(HeadRig *r, TinyModel model, int block) {
    *r = (HeadRig){0};
    open_engine(&r->e, &(EngineSetup){.model = model, .block = block, .ubatch = ENGINE_CTX});
    step_new(&r->step, &r->e.kv, ENGINE_CTX, 3);
    assert_ok(mtp_open(&r->e.model, &r->h));
    assert_ok(mtp_begin(r->h, r->e.pool, (KvShape){.n_ctx = ENGINE_CTX, .n_seqs = 3, .block = block}));
}

static void close_rig(HeadRig *r) {
    mtp_free(r->h);
    step_free(&r->step);
    engine_close(&r->e);
}

// The model computes the next n tokens of a text, the last n_drafts of them as drafts; the head gets their hidden
// vectors.
static void compute(HeadRig *r, void **t, Sequence *q, int n, const int *drafts, int n_drafts) {
    Engine *e = &r->e;
    assert_true(kvcache_reserve_drafts(&e->kv, q, q->n_cached + n + n_drafts, n_drafts));
    step_clear(&r->step);
    StepRows *rows = step_add(&r->step, NULL, q, n, false);
    rows->wants_hidden = true;
    rows->draft = (int *)drafts;
    rows->n_draft = n_drafts;
    r->step.batch.n_rows += n_drafts;
    step_fill(&r->step);
    r->step.batch.copy = e->kv.copies;
    r->step.batch.n_copies = e->kv.n_copies;
    model_forward(&e->model, &e->work, e->kv.pool, &r->step.batch);
    e->kv.n_copies = 0;
    rows->hidden = model_last_hidden(&e->model, &e->work, r->step.batch.n_rows);
    mtp_drafter(r->h).observe(r->h, t, rows);
    kvcache_advance(&e->kv, q, n);
    kvcache_truncate(&e->kv, q, q->n_tokens);
}

// The logits of the head after the text, and after each of n further tokens.
static float *draft_logits(HeadRig *r, void *t, const Sequence *text, const int *drafts, int n) {
    const Drafter d = mtp_drafter(r->h);
    float *all = malloc((size_t)(n + 1) * ENGINE_VOCAB * sizeof *all);
    if (!d.follow(d.arg, &t, text, n)) fail_msg("%d tokens: a head that follows expected", text->n_tokens);
    for (int i = 0; i <= n; i++) {
        memcpy(all + i * ENGINE_VOCAB, d.step(d.arg, &t, 1), ENGINE_VOCAB * sizeof *all);
        if (i < n) d.push(t, drafts[i]);
    }
    assert_int_equal(d.tokens(t)->n_tokens, text->n_tokens + n);
    return all;
}

static void free_text(HeadRig *r, void *t, Sequence *q) {
    mtp_drafter(r->h).leave(r->h, t, q);
    sequence_end(&r->e.kv, q);
}

// ---- numbers --------------------------------------------------------------------------------------------------------

static const TinyModel shapes[] = {
    {.arch = "qwen35", .mtp = true, .seed = 3},
    {.arch = "qwen35",
     .mtp = true,
     .own_ends = true,
     .dim = 52,
     .head_dim = 20,
     .n_heads = 3,
     .n_kv_heads = 1,
     .ffn = 44},
    {.arch = "qwen35", .mtp = true, .tied = true, .n_layers = 4},
    {.arch = "qwen35moe", .mtp = true, .seed = 4},
    {.arch = "qwen3next", .mtp = true, .own_ends = true, .seed = 5},
    {.arch = "glm4moe", .mtp = true, .own_ends = true, .qkv_bias = true, .n_groups = 4, .seed = 6},
    {.arch = "hy_v3", .mtp = true, .ffn_shared = 256, .seed = 7},
};

// The head's logits after each length of a text, and after drafts, are those of the formulas. Each draft is refused:
// the next rows must not see it.
static void test_logits(void **state) {
    (void)state;
    enum { N = 34, FIRST = 9 };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int block = 0; block < 9; block += 8) {
            HeadRig r;
            void *t = NULL;
            Sequence q = {0};
            int tokens[N], drafts[DRAFTS], wrong[2] = {7, 8};
            random_tokens(tokens, N, ENGINE_VOCAB, i + 20);
            random_tokens(drafts, DRAFTS, ENGINE_VOCAB, i + 40);
            open_rig(&r, shapes[i], block);
            sequence_push(&q, tokens, FIRST);
            compute(&r, &t, &q, 5, NULL, 0);
            for (int n = FIRST; n <= N; n += 1 + n % 3) {
                sequence_push(&q, tokens + q.n_tokens, n - q.n_tokens);
                compute(&r, &t, &q, n - 1 - q.n_cached, wrong, n % 3);
                float *want = plain_head(r.e.gguf, tokens, n, drafts, DRAFTS);
                float *got = draft_logits(&r, t, &q, drafts, DRAFTS);
                double d = test_distance(got, want + (n - 2) * ENGINE_VOCAB, (DRAFTS + 1) * ENGINE_VOCAB);
                if (!(d < 2e-5)) fail_msg("%s %zu, block %d, %d tokens: distance %.3g", shapes[i].arch, i, block, n, d);
                free(want);
                free(got);
            }
            free_text(&r, t, &q);
            close_rig(&r);
        }
}

// The bits do not depend on the steps of the model, nor on when the head computes its rows.
static void test_steps(void **state) {
    (void)state;
    enum { N = 180 };
    static const int chunks[] = {1, 7, 64, 179};
    int drafts[DRAFTS];
    float *want = NULL;
    random_tokens(drafts, DRAFTS, ENGINE_VOCAB, 2);
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
        HeadRig r;
        void *t = NULL;
        Sequence q = {0};
        open_rig(&r, shapes[0], i % 2 ? 8 : 0);
        push_random(&q, N, 6);
        while (q.n_cached < N - 1) {
            compute(&r, &t, &q, int_min(chunks[i], N - 1 - q.n_cached), NULL, 0);
            assert_in_range(mtp_drafter(r.h).behind(t, &q), 1, MTP_WAITING);
        }
        float *got = draft_logits(&r, t, &q, drafts, DRAFTS);
        if (!want) want = got;
        else {
            assert_memory_equal(got, want, (DRAFTS + 1) * ENGINE_VOCAB * sizeof *got);
            free(got);
        }
        free_text(&r, t, &q);
        close_rig(&r);
    }
    free(want);
}

// A request that was preempted computes its tokens again: the head keeps its rows and takes what is new.
static void test_computed_again(void **state) {
    (void)state;
    int drafts[DRAFTS] = {4, 5, 6};
    float *logits[2];
    for (int again = 0; again < 2; again++) {
        HeadRig r;
        void *t = NULL;
        Sequence q = {0};
        open_rig(&r, shapes[0], 8);
        push_random(&q, 50, 6);
        compute(&r, &t, &q, 30, NULL, 0);
        if (again) kvcache_release(&r.e.kv, &q);
        compute(&r, &t, &q, 45 - q.n_cached, NULL, 0);
        compute(&r, &t, &q, 4, NULL, 0);
        logits[again] = draft_logits(&r, t, &q, drafts, DRAFTS);
        free_text(&r, t, &q);
        close_rig(&r);
    }
    assert_memory_equal(logits[0], logits[1], (DRAFTS + 1) * ENGINE_VOCAB * sizeof **logits);
    free(logits[0]);
    free(logits[1]);
}

// The logits of two texts, of which the first one is preempted while the second one runs, in a head whose cache has
// room for one of them, or for both.
static void two_heads(bool few, float *logits[2]) {
    enum { N = 50 };
    int drafts[DRAFTS] = {4, 5, 6};
    HeadRig r;
    void *a = NULL, *b = NULL;
    Sequence first = {0}, second = {0};
    open_rig(&r, shapes[0], 8);
    mtp_free(r.h);
    assert_ok(mtp_open(&r.e.model, &r.h));
    KvShape kv = {.n_ctx = ENGINE_CTX, .n_seqs = 3, .block = 8, .n_blocks = few ? 9 : 0};
    assert_ok(mtp_begin(r.h, r.e.pool, kv));
    push_random(&first, N, 6);
    push_random(&second, N, 7);
    compute(&r, &a, &first, N - 1, NULL, 0);
    free(draft_logits(&r, a, &first, drafts, DRAFTS));
    kvcache_release(&r.e.kv, &first);
    compute(&r, &b, &second, N - 1, NULL, 0);
    logits[0] = draft_logits(&r, b, &second, drafts, DRAFTS);
    free_text(&r, b, &second);
    compute(&r, &a, &first, N - 1, NULL, 0);
    assert_int_equal(mtp_drafter(r.h).behind(a, &first), few ? N - 1 : 0);
    sequence_push(&first, &(int){9}, 1);
    compute(&r, &a, &first, 1, NULL, 0);
    logits[1] = draft_logits(&r, a, &first, drafts, DRAFTS);
    free_text(&r, a, &first);
    close_rig(&r);
}

// A text that runs takes the head's slots of a preempted one, whose rows come again with its tokens.
static void test_slots_of_preempted(void **state) {
    (void)state;
    float *few[2], *many[2];
    two_heads(true, few);
    two_heads(false, many);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(few[i], many[i], (DRAFTS + 1) * ENGINE_VOCAB * sizeof **few);
        free(few[i]);
        free(many[i]);
    }
}

// ---- texts that continue others -------------------------------------------------------------------------------------

// A text that begins with another one, whose hidden vectors the head does not get again, drafts as if it had got them:
// after the other has ended, and while it goes on; with its last token, and with another one in its place. Then it goes
// its own way. waits: the head has not yet computed the rows of the first text.
static void check_continued(bool ended, bool other_token, bool waits, int block) {
    enum { FIRST = 40, MORE = 25 };
    int drafts[DRAFTS];
    HeadRig r, fresh;
    void *one = NULL, *t = NULL, *whole = NULL;
    Sequence q = {0}, next = {0}, all = {0};
    random_tokens(drafts, DRAFTS, ENGINE_VOCAB, 2);
    open_rig(&r, shapes[0], block);
    push_random(&q, FIRST, 6);
    compute(&r, &one, &q, 20, NULL, 0);
    compute(&r, &one, &q, FIRST - 1 - q.n_cached, NULL, 0);
    if (!waits) free(draft_logits(&r, one, &q, drafts, DRAFTS)); // the drafts are no part of the text
    kvcache_fork(&r.e.kv, &q, &next);
    if (ended) free_text(&r, one, &q);
    if (other_token) next.n_tokens--;
    push_random(&next, MORE, 8);
    compute(&r, &t, &next, 1, NULL, 0);
    compute(&r, &t, &next, next.n_tokens - 1 - next.n_cached, NULL, 0);
    float *got = draft_logits(&r, t, &next, drafts, DRAFTS);
    if (!ended) { // the first text goes on too
        sequence_push(&q, &(int){5}, 1);
        compute(&r, &one, &q, 1, NULL, 0);
        free(draft_logits(&r, one, &q, drafts, DRAFTS));
        free_text(&r, one, &q);
    }
    sequence_push(&all, next.tokens, next.n_tokens);
    free_text(&r, t, &next);
    open_rig(&fresh, shapes[0], 0);
    compute(&fresh, &whole, &all, all.n_tokens - 1, NULL, 0);
    float *want = draft_logits(&fresh, whole, &all, drafts, DRAFTS);
    assert_memory_equal(got, want, (DRAFTS + 1) * ENGINE_VOCAB * sizeof *got);
    free(got);
    free(want);
    free_text(&fresh, whole, &all);
    close_rig(&fresh);
    close_rig(&r);
}

static void test_continued(void **state) {
    (void)state;
    for (int i = 0; i < 16; i++) check_continued(i & 1, i & 2, i & 4, i & 8 ? 8 : 0);
}

// A text whose beginning the head has not seen is drafted from the rest; a step back keeps the rows before it.
static void test_gaps(void **state) {
    (void)state;
    int drafts[DRAFTS] = {1, 2, 3};
    HeadRig r;
    void *t = NULL, *later = NULL, *back = NULL;
    Sequence q = {0}, other = {0};
    open_rig(&r, shapes[0], 8);
    push_random(&q, 60, 6);
    compute(&r, &t, &q, 30, NULL, 0);
    assert_false(mtp_drafter(r.h).follow(r.h, &t, &q, 4)); // the vectors of 29 tokens are missing
    compute(&r, &later, &q, 29, NULL, 0); // another text, which begins where the rows of the first one end
    float *a = draft_logits(&r, later, &q, drafts, DRAFTS);
    kvcache_fork(&r.e.kv, &q, &other);
    kvcache_truncate(&r.e.kv, &other, 48);
    push_random(&other, 10, 9);
    compute(&r, &back, &other, other.n_tokens - 1 - other.n_cached, NULL, 0);
    float *b = draft_logits(&r, back, &other, drafts, DRAFTS);
    for (int i = 0; i < (DRAFTS + 1) * ENGINE_VOCAB; i++) assert_true(isfinite(a[i]) && isfinite(b[i]));
    free(a);
    free(b);
    mtp_drafter(r.h).leave(r.h, t, &q);
    free_text(&r, back, &other);
    free_text(&r, later, &q);
    close_rig(&r);
}

// ---- texts with and without drafts ----------------------------------------------------------------------------------

typedef struct {
    TinyModel model;
    bool forced; // as many drafts as possible; otherwise --speculate decides
    bool with;   // with drafts
    int block, type_k, type_v, n_seqs, ubatch;
    bool pooled;
    size_t kv_mem;
    const char *isa;
} TextSetup;

enum { ANSWERS = 4, NEW = 40, TURNS = 3 };

typedef struct {
    int tokens[ANSWERS][TURNS][NEW], n[ANSWERS][TURNS];
    DraftCounts drafts;
} Texts;

static Finish end_at_small(Request *r, int token, const float *logits) {
    (void)r, (void)logits;
    return token < 3 ? FINISH_EOG : RUNNING;
}

static Request request_of(Sequence *q, int i, const Policy *policy) {
    Request r = {.seq = q, .sampling = sampler_defaults(), .sequence_key = (uint64_t)i / 2, .max_new = NEW};
    r.sampling.temp = i % 2 ? 0 : 0.8f;
    r.sampling.repeat_penalty = i == 2 ? 1.1f : 1;
    r.emit = end_at_small;
    r.policy = policy;
    return r;
}

static void open_texts(const TextSetup *u, Engine *e) {
    EngineConfig o = {.device = "cpu",
                      .isa = u->isa,
                      .quiet = true,
                      .threads = 2,
                      .ubatch = u->ubatch ? u->ubatch : 32,
                      .deterministic = true,
                      .type_k = u->type_k,
                      .type_v = u->type_v,
                      .paged = u->block > 0,
                      .kv_block = u->block ? u->block : 32,
                      .kv_mem = u->kv_mem,
                      .speculate = u->with && !u->forced ? "mtp" : NULL,
                      .draft_max = 6};
    EngineNeeds needs = {.need_tokenizer = true, .n_ctx = 320, .n_seqs = u->n_seqs, .max_out = 32, .pooled = u->pooled};
    assert_ok(engine_open_view(e, &o, needs, tiny_model(&u->model)));
}

// Several answers at once, the last two to the same prompt, each of several turns.
static void run_texts(const TextSetup *u, Texts *out) {
    Engine e;
    Mtp *h = NULL;
    Speculate *x = NULL;
    open_texts(u, &e);
    if (u->with && u->forced) {
        KvShape kv = {.n_ctx = 320, .n_seqs = u->n_seqs, .share = u->pooled, .block = u->pooled ? 16 : 0};
        assert_ok(mtp_open(&e.model, &h));
        assert_ok(mtp_begin(h, e.pool, kv));
        x = speculate_new(&(SpeculatePlan){.drafter = mtp_drafter(h), .most = 6, .fixed = true});
    }
    const Policy forced = x ? speculate_policy(x, e.policy) : (Policy){0};
    Sequence seqs[ANSWERS] = {0};
    *out = (Texts){0};
    for (int turn = 0; turn < TURNS; turn++) {
        Request r[ANSWERS];
        int running = 0, begun = 0;
        // without a pool a text keeps its cache, so there are as many texts as the cache has sequences
        int n = u->pooled ? ANSWERS : int_min(ANSWERS, u->n_seqs);
        for (; begun < n; begun++, running++) {
            push_random(&seqs[begun], turn ? 5 : 30 + 7 * (begun / 2), (uint64_t)(begun / 2 + 10 * turn));
            r[begun] = request_of(&seqs[begun], begun, x ? &forced : NULL);
            scheduler_add(e.sched, &r[begun]);
        }
        for (Batch *b; engine_step(&e, &b);)
            for (int i = 0; i < n && u->pooled; i++)
                if (r[i].finish != RUNNING) kvcache_release(&e.kv, r[i].seq);
        for (int i = 0; i < n; i++) {
            out->n[i][turn] = r[i].n_new;
            memcpy(out->tokens[i][turn], seqs[i].tokens + r[i].n_prompt, (size_t)r[i].n_new * sizeof(int));
            draft_counts_add(&out->drafts, &r[i].drafts);
            assert_null(r[i].state);
            timeline_free(&r[i].time);
            if (turn == 1) kvcache_truncate(&e.kv, &seqs[i], seqs[i].n_tokens - 2); // as a chat does that renders again
        }
    }
    for (int i = 0; i < ANSWERS; i++) sequence_end(&e.kv, &seqs[i]);
    assert_int_equal(e.kv.n_free, e.kv.pool->n_blocks);
    engine_close(&e);
    speculate_free(x);
    mtp_free(h);
}

static void assert_same_texts(const Texts *a, const Texts *b) {
    assert_memory_equal(a->n, b->n, sizeof a->n);
    assert_memory_equal(a->tokens, b->tokens, sizeof a->tokens);
}

static const TextSetup setups[] = {
    {.n_seqs = 1, .type_k = TYPE_F16, .type_v = TYPE_F16, .isa = "auto"},
    {.n_seqs = 2, .type_k = TYPE_Q8_0, .type_v = TYPE_Q4_0, .isa = "auto", .block = 32, .ubatch = 200},
    {.n_seqs = 3, .type_k = TYPE_F32, .type_v = TYPE_F32, .isa = "scalar", .pooled = true, .block = 16},
    {.n_seqs = 4, .type_k = TYPE_Q8_0, .type_v = TYPE_Q8_0, .isa = "auto", .pooled = true, .block = 32},
    // too little memory for all texts at once
    {.n_seqs = 4, .type_k = TYPE_F32, .type_v = TYPE_F32, .isa = "auto", .pooled = true, .block = 16, .kv_mem = 275000},
};

// Heads of random weights, whose drafts are mostly wrong.
static void test_text_stays(void **state) {
    (void)state;
    static const TinyModel models[] = {{.arch = "qwen35", .mtp = true, .type = TYPE_Q8_0, .seed = 5, .ctx = 512},
                                       {.arch = "qwen35moe", .mtp = true, .type = TYPE_F32, .seed = 6, .ctx = 512}};
    for (size_t i = 0; i < ARRAY_LEN(setups); i++)
        for (size_t m = 0; m < ARRAY_LEN(models); m++) {
            static Texts want, got, again;
            TextSetup u = setups[i];
            u.model = models[m];
            run_texts(&u, &want);
            assert_int_equal(want.drafts.n_drafted, 0);
            u.with = true;
            run_texts(&u, &got);
            run_texts(&u, &again);
            assert_same_texts(&want, &got);
            assert_memory_equal(&got.drafts, &again.drafts, sizeof got.drafts);
            u.forced = true;
            run_texts(&u, &got);
            assert_same_texts(&want, &got);
            assert_true(got.drafts.n_drafted > 50);
        }
}

// A head that knows what follows: all of its drafts are right, so that a step has many tokens.
static void test_right_drafts_save_steps(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(setups); i++) {
        static Texts want, got;
        TextSetup u = setups[i];
        u.model = (TinyModel){.arch = "qwen35", .mtp = true, .bigrams = true, .seed = 5, .ctx = 512};
        run_texts(&u, &want);
        u.with = u.forced = true;
        run_texts(&u, &got);
        assert_same_texts(&want, &got);
        const DraftCounts *c = &got.drafts;
        double rate = (double)c->n_accepted / (double)c->n_drafted, tokens = (double)c->n_tokens / (double)c->n_steps;
        print_message("setup %zu: %lld of %lld drafts accepted, %.2f tokens a step\n", i, (long long)c->n_accepted,
                      (long long)c->n_drafted, tokens);
        assert_true(rate > 0.9);                         // the drafts behind an end token are dropped
        assert_true(tokens > (u.n_seqs == 1 ? 4 : 1.4)); // several texts share the states that drafts need
    }
}

// ---- preemption -----------------------------------------------------------------------------------------------------

// More texts than the cache has slots for.
enum { CROWD = 6, CROWD_SLOTS = 256, CROWD_NEW = 90, CROWD_MOST = 160 };

typedef struct {
    int tokens[CROWD][CROWD_MOST], n[CROWD];
    int n_preempted; // decoding texts that lost their blocks
    int n_after;     // their accepted drafts after that
    DraftCounts drafts;
} Crowd;

// The engine's cache again, with few blocks.
static void shrink_cache(Engine *e) {
    e->shape.n_blocks = CROWD_SLOTS / e->shape.block;
    kvcache_free(&e->kv);
    assert_ok(kvcache_new(&e->kv, &e->shape));
    assert_int_equal(e->kv.pool->n_blocks * e->kv.pool->block, CROWD_SLOTS);
}

// The drafters of `--speculate mtp`, as the engine sets them up.
static void open_planned(const Engine *e, Drafters *out) {
    EngineConfig o = e->config;
    DraftTarget target = engine_draft_target(e);
    o.speculate = "mtp";
    assert_ok(drafters_open(&o, &target, CROWD, out));
    assert_ok(drafters_begin(out, &o, &target));
}

// Steps until all texts have ended. A text that has no blocks between two steps was preempted.
static void run_crowd(Engine *e, const Policy *policy, Sequence *seqs, Crowd *out) {
    Request r[CROWD];
    int lost[CROWD]; // accepted drafts when the text lost its blocks; -1: it never did
    *out = (Crowd){0};
    for (int i = 0; i < CROWD; i++) {
        push_random(&seqs[i], 20 + 7 * (i / 2), (uint64_t)(i / 2));
        r[i] = request_of(&seqs[i], i, policy);
        r[i].max_new = CROWD_NEW;
        r[i].emit = NULL;
        lost[i] = -1;
        scheduler_add(e->sched, &r[i]);
    }
    for (Batch *b; engine_step(e, &b);)
        for (int i = 0; i < CROWD; i++) {
            if (r[i].finish != RUNNING) kvcache_release(&e->kv, r[i].seq);
            else if (r[i].n_new > 0 && r[i].seq->n_blocks == 0) lost[i] = r[i].drafts.n_accepted;
        }
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(r[i].finish, FINISH_LENGTH);
        out->n[i] = seqs[i].n_tokens;
        memcpy(out->tokens[i], seqs[i].tokens, (size_t)seqs[i].n_tokens * sizeof(int));
        out->n_preempted += lost[i] >= 0;
        out->n_after += lost[i] >= 0 ? r[i].drafts.n_accepted - lost[i] : 0;
        draft_counts_add(&out->drafts, &r[i].drafts);
        timeline_free(&r[i].time);
    }
}

// What the head holds of each text of the crowd is what a head computes that sees the text for the first time.
static void check_heads(const HeadRig *r, const Sequence *seqs) {
    int drafts[DRAFTS];
    random_tokens(drafts, DRAFTS, ENGINE_VOCAB, 2);
    for (int i = 0; i < CROWD; i++) {
        float *logits[2];
        for (int fresh = 0; fresh < 2; fresh++) {
            void *t = NULL;
            HeadRig with = *r;
            Sequence q = {0};
            KvShape kv = {.n_ctx = 320, .n_seqs = 1};
            if (fresh) assert_ok(mtp_open(&r->e.model, &with.h));
            if (fresh) assert_ok(mtp_begin(with.h, r->e.pool, kv));
            sequence_push(&q, seqs[i].tokens, seqs[i].n_tokens);
            while (q.n_cached < q.n_tokens - 1)
                compute(&with, &t, &q, int_min(16, q.n_tokens - 1 - q.n_cached), NULL, 0);
            if (!fresh)
                assert_in_range(mtp_drafter(with.h).behind(t, &q), 1,
                                20); // the others were computed while the crowd ran
            logits[fresh] = draft_logits(&with, t, &q, drafts, DRAFTS);
            free_text(&with, t, &q);
            if (fresh) mtp_free(with.h);
        }
        assert_memory_equal(logits[0], logits[1], (DRAFTS + 1) * ENGINE_VOCAB * sizeof **logits);
        free(logits[0]);
        free(logits[1]);
    }
}

// Who drafts: nobody; --speculate, which decides how much; as many drafts as possible, by a head whose cache has as
// many slots as the model's, or enough for all texts.
typedef enum { NOBODY, PLANNED, FORCED_FEW_SLOTS, FORCED, WAYS } CrowdWay;

// One run. With FORCED, compares the rows of the head afterwards.
static void crowd_with(const TextSetup *u, CrowdWay way, Crowd *out) {
    HeadRig r = {0};
    Speculate *x = NULL;
    Drafters planned = {0};
    Sequence seqs[CROWD] = {0};
    open_texts(u, &r.e);
    shrink_cache(&r.e);
    if (way == PLANNED) open_planned(&r.e, &planned);
    if (way >= FORCED_FEW_SLOTS) {
        KvShape kv = {.n_ctx = 320, .n_seqs = CROWD, .block = u->block};
        kv.n_blocks = way == FORCED ? 0 : r.e.shape.n_blocks;
        assert_ok(mtp_open(&r.e.model, &r.h));
        assert_ok(mtp_begin(r.h, r.e.pool, kv));
        x = speculate_new(&(SpeculatePlan){.drafter = mtp_drafter(r.h), .most = 6, .fixed = true});
    }
    Policy p = way == NOBODY ? *r.e.policy : speculate_policy(x ? x : planned.speculate, r.e.policy);
    run_crowd(&r.e, &p, seqs, out);
    assert_true(scheduler_preemptions(r.e.sched) >= out->n_preempted);
    step_new(&r.step, &r.e.kv, ENGINE_CTX, 3);
    if (way == FORCED) check_heads(&r, seqs);
    for (int i = 0; i < CROWD; i++) sequence_free(&seqs[i]);
    assert_int_equal(r.e.kv.n_free, r.e.kv.pool->n_blocks);
    speculate_free(x);
    drafters_close(&planned);
    close_rig(&r);
}

static void assert_same_crowd(const Crowd *a, const Crowd *b) {
    assert_memory_equal(a->n, b->n, sizeof a->n);
    assert_memory_equal(a->tokens, b->tokens, sizeof a->tokens);
}

// Texts that lose their blocks, greedy ones and drawn ones, are those without drafts, and the head knows afterwards
// what it knew before: its rows have the same bits, and drafts are accepted again.
static void test_preempted(void **state) {
    (void)state;
    static const TinyModel models[] = {{.arch = "qwen35", .mtp = true, .type = TYPE_Q8_0, .seed = 5, .ctx = 512},
                                       {.arch = "qwen35moe", .mtp = true, .seed = 6, .ctx = 512},
                                       {.arch = "qwen35", .mtp = true, .bigrams = true, .seed = 5, .ctx = 512}};
    static const int types[][4] = {{TYPE_F32, TYPE_F32, 16, 32}, {TYPE_Q8_0, TYPE_Q4_0, 32, 90}};
    for (size_t m = 0; m < ARRAY_LEN(models); m++)
        for (size_t k = 0; k < ARRAY_LEN(types); k++) {
            static Crowd want, got;
            TextSetup u = {.model = models[m], .n_seqs = CROWD, .isa = "auto", .pooled = true};
            u.type_k = types[k][0], u.type_v = types[k][1], u.block = types[k][2], u.ubatch = types[k][3];
            crowd_with(&u, NOBODY, &want);
            assert_true(want.n_preempted > 0);
            for (CrowdWay way = PLANNED; way < WAYS; way++) {
                crowd_with(&u, way, &got);
                assert_same_crowd(&want, &got);
                assert_true(got.n_preempted > 0);
                if (!models[m].bigrams) continue;
                print_message(
                    "types %zu, way %d: %lld of %lld drafts accepted, %d of them in %d texts that had lost their "
                    "blocks\n",
                    k, (int)way, (long long)got.drafts.n_accepted, (long long)got.drafts.n_drafted, got.n_after,
                    got.n_preempted);
                assert_true((double)got.drafts.n_accepted > 0.9 * (double)got.drafts.n_drafted);
                assert_true(way == PLANNED || got.n_after > 0); // whether drafts pay depends on the machine's costs
            }
        }
}

// ---- what is refused ------------------------------------------------------------------------------------------------

static void assert_refused(Gguf *g, const char *word) {
    Engine e;
    EngineConfig o = {.device = "cpu", .quiet = true, .threads = 1, .speculate = "mtp", .draft_max = 4, .kv_block = 32};
    o.type_k = o.type_v = KV_TYPE_AUTO;
    Status st = engine_open_view(&e, &o, (EngineNeeds){.n_ctx = 64}, g);
    if (st.code != QUILL_MODEL || !strstr(st.message, "tiny") || !strstr(st.message, word) || strchr(st.message, '\n'))
        fail_msg("one line about %s expected, code %d found: %s", word, st.code, st.message);
}

static void test_refused(void **state) {
    (void)state;
    static const char *const missing[] = {"nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "attn_norm",
                                          "attn_q",        "attn_k",      "ffn_down",    "post_attention_norm"};
    static const char *const misshaped[] = {"nextn.eh_proj",          "nextn.hnorm",
                                            "nextn.shared_head_norm", "nextn.embed_tokens",
                                            "nextn.shared_head_head", "attn_output"};
    const TinyModel model = {.arch = "qwen35", .mtp = true, .own_ends = true};
    assert_refused(tiny_model(&(TinyModel){.arch = "qwen35"}), "qwen35.nextn_predict_layers");
    assert_refused(tiny_model(&(TinyModel){.seed = 1}), "llama.nextn_predict_layers");
    assert_refused(tiny_model(&(TinyModel){.arch = "glm4", .mtp = true}), "one of glm4 found");
    for (size_t i = 0; i < ARRAY_LEN(missing); i++) {
        char name[64];
        Gguf *g = tiny_model(&model);
        snprintf(name, sizeof name, "blk.3.%s.weight", missing[i]);
        Gguf *copy = tiny_without(g, name);
        assert_refused(copy, name);
        gguf_close(g);
    }
    for (size_t i = 0; i < ARRAY_LEN(misshaped); i++) {
        char name[64];
        Gguf *g = tiny_model(&model);
        snprintf(name, sizeof name, "blk.3.%s.weight", misshaped[i]);
        tiny_tensor(g, name)->dims[0]--;
        assert_refused(g, name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),         cmocka_unit_test(test_steps),
        cmocka_unit_test(test_computed_again), cmocka_unit_test(test_slots_of_preempted),
        cmocka_unit_test(test_continued),      cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_text_stays),     cmocka_unit_test(test_right_drafts_save_steps),
        cmocka_unit_test(test_preempted),      cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
