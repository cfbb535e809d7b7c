// tests/test_cuda_tokens.c: the backend on a GPU: tokens that it draws, steps that begin before the last one's tokens
// are known, drafts.
#include "tests/rig/testing.h"

#include "gpu/cuda.h"
#include "gpu/launch.h"
#include "policy/plain.h"
#include "scheduler.h"
#include "tests/rig/cuda_rig.h"
#include "tests/rig/drafting.h"

#include <math.h>

enum { TEXTS = 2, LONGEST = 12 };

// Does the same as engine_step.
static bool generate_step(Rig *r, Scheduler *sched, bool *begun) {
    Batch *b, *next;
    if (!scheduler_next(sched, &b)) return false;
    const float *logits = *begun ? NULL : model_forward(&r->m, &r->w, r->kv.pool, b);
    *begun = b->draw && scheduler_ahead(sched, &next);
    if (*begun) model_forward(&r->m, &r->w, r->kv.pool, next);
    if (b->draw) scheduler_take_tokens(sched, model_drawn(&r->m, &r->w));
    else scheduler_take(sched, logits);
    return true;
}

static Finish until_a_small_one(Request *r, int token, const float *logits) {
    assert_true(r->blind || logits);
    return token < 4 ? FINISH_STOP : RUNNING;
}

// Generates two texts, one after the other, with tokens drawn by the device or by the host.
static void generate(Rig *r, const SamplerParams *how, int shortest, bool device, int texts[TEXTS][LONGEST],
                     int n[TEXTS]) {
    Sampler *sampler = sampler_new(r->m.c.n_vocab);
    Scheduler *sched = scheduler_new(&r->kv, sampler,
                                     (SchedulerShape){.n_vocab = r->m.c.n_vocab,
                                                      .max_rows = CUDA_MOST_ROWS,
                                                      .max_out = TEXTS,
                                                      .max_seqs = TEXTS,
                                                      .draws = device,
                                                      .draws_ahead = device && model_draws_ahead(&r->m)},
                                     &plain_policy);
    Sequence sequences[TEXTS] = {0};
    Request requests[TEXTS] = {0};
    bool begun = false;
    for (int i = 0; i < TEXTS; i++) {
        Request *q = &requests[i];
        q->seq = &sequences[i];
        int prompt[CUDA_CTX];
        random_tokens(prompt, CUDA_CTX, r->m.c.n_vocab, (uint64_t)i);
        sequence_push(q->seq, prompt, shortest * (i + 1));
        q->sampling = *how;
        q->sequence_key = (uint64_t)i;
        q->max_new = LONGEST - 5 * i;
        q->emit = until_a_small_one;
        q->blind = true;
        scheduler_add(sched, q);
        for (int k = 0; k < 4; k++) generate_step(r, sched, &begun);
    }
    while (generate_step(r, sched, &begun)) {
    }
    for (int i = 0; i < TEXTS; i++) {
        Request *q = &requests[i];
        n[i] = q->n_new;
        assert_int_not_equal(q->finish, FINISH_BROKEN);
        memcpy(texts[i], q->seq->tokens + q->n_prompt, (size_t)q->n_new * sizeof(int));
        sequence_end(&r->kv, q->seq);
        timeline_free(&q->time);
    }
    scheduler_free(sched);
    sampler_free(sampler);
}

// The candidates that a draw needs.
static int gpu_top(const SamplerParams *p, int n_vocab) { return p->greedy ? 1 : p->top_k > 0 ? p->top_k : n_vocab; }

static void test_draws_of_the_device(void **state) {
    (void)state;
    static const LogitBias bias[] = {{0, -INFINITY}, {7, 2}};
    SamplerParams p = sampler_defaults();
    SamplerParams all[] = {p, p, p, p, p, p};
    all[0].greedy = true;
    all[2].top_k = 0, all[2].top_p = 1, all[2].min_p = 0, all[2].temp = 1.5f;
    all[3].repeat_penalty = 1.3f, all[3].frequency_penalty = 0.4f, all[3].presence_penalty = 0.2f;
    all[4].repeat_penalty = 1.5f, all[4].repeat_last_n = -1, all[4].greedy = true;
    all[4].xtc_probability = 1; // greedy draws ignore it
    all[1].xtc_probability = 0.5f, all[1].xtc_threshold = 0.02f;
    all[5].bias = bias, all[5].n_bias = ARRAY_LEN(bias), all[5].seed = 5, all[5].top_p = 0.5f;
    for (int k = 0; k < 4; k++) {                         // with a layer on the CPU, draws go through the host
        int n_gpu = 1 + k % 2, shortest = k < 2 ? 3 : 20; // most rows of the longer prompts end before the head
        TinyModel shape = cuda_rig_shape(k < 2 ? "llama" : "gemma2");
        shape.n_layers = 2;
        Gguf *g = tiny_model(&shape);
        Rig r;
        cuda_rig_open(&r, g, (CudaSetup){.n_gpu = n_gpu, .kv_type = TYPE_F32, .block = 8, .scarce = true});
        for (size_t i = 0; i < (n_gpu == 1 ? 1 : ARRAY_LEN(all)); i++) {
            int want[TEXTS][LONGEST], got[TEXTS][LONGEST], n_want[TEXTS], n_got[TEXTS];
            CudaCounts before = cuda_counts();
            generate(&r, &all[i], shortest, false, want, n_want);
            CudaCounts between = cuda_counts();
            generate(&r, &all[i], shortest, true, got, n_got);
            CudaCounts after = cuda_counts();
            assert_int_equal(between.drawn, before.drawn);
            assert_int_equal(after.rows_fetched, between.rows_fetched);
            assert_true(after.drawn > between.drawn);
            assert_int_equal(after.drawn_ahead > between.drawn_ahead, n_gpu == 2);
            // steps that go on send nothing; those whose penalties need the tokens of the text do
            bool fixed = all[i].repeat_penalty == 1 && gpu_top(&all[i], r.m.c.n_vocab) <= GPU_SAMPLE_TOP;
            assert_int_equal(after.unsent > between.unsent, n_gpu == 2 && fixed);
            for (int t = 0; t < TEXTS; t++) {
                assert_int_equal(n_got[t], n_want[t]);
                assert_memory_equal(got[t], want[t], (size_t)n_got[t] * sizeof(int));
            }
        }
        rig_close(&r);
        gguf_close(g);
    }
}

enum { DRAFTED = 24 };

typedef struct {
    int tokens[16 + DRAFTED];
    float *logits; // (DRAFTED, n_vocab)
    size_t n_vocab;
} Drafted;

static Finish keep_logits(Request *r, int token, const float *logits) {
    (void)token;
    Drafted *text = r->arg;
    memcpy(text->logits + (size_t)(r->n_new - 1) * text->n_vocab, logits, text->n_vocab * sizeof *logits);
    return RUNNING;
}

// Generates two texts at the same time; the tokens of the first come only from the policy.
static void generate_with(Rig *r, const Policy *policy, const Drafted *foreseen, Drafted out[TEXTS]) {
    Sampler *sampler = sampler_new(r->m.c.n_vocab);
    SchedulerShape shape = {.n_vocab = r->m.c.n_vocab, .max_rows = 24, .max_out = 24, .max_seqs = TEXTS, .draws = true};
    Scheduler *sched = scheduler_new(&r->kv, sampler, shape, policy);
    Sequence sequences[TEXTS] = {0};
    Request requests[TEXTS] = {0};
    Foreseen known[TEXTS];
    for (int i = 0; i < TEXTS; i++) {
        Request *q = &requests[i];
        q->seq = &sequences[i];
        int n_prompt = 5 + 10 * i, prompt[16];
        random_tokens(prompt, n_prompt, r->m.c.n_vocab, (uint64_t)i);
        sequence_push(q->seq, prompt, n_prompt);
        q->sampling = (SamplerParams){.greedy = true, .repeat_penalty = 1};
        q->max_new = DRAFTED;
        q->emit = keep_logits;
        q->arg = &out[i];
        out[i].n_vocab = (size_t)r->m.c.n_vocab;
        out[i].logits = mem_alloc(DRAFTED * out[i].n_vocab * sizeof(float));
        if (foreseen) known[i] = (Foreseen){(int *)foreseen[i].tokens, n_prompt + DRAFTED};
        q->state = foreseen ? &known[i] : NULL;
        scheduler_add(sched, q);
    }
    for (bool begun = false; generate_step(r, sched, &begun);) {
    }
    for (int i = 0; i < TEXTS; i++) {
        Request *q = &requests[i];
        assert_int_equal(q->finish, FINISH_LENGTH);
        memcpy(out[i].tokens, q->seq->tokens, (size_t)q->seq->n_tokens * sizeof(int));
        sequence_end(&r->kv, q->seq);
        timeline_free(&q->time);
    }
    assert_int_equal(r->kv.n_free, r->kv.pool->n_blocks);
    assert_int_equal(r->kv.n_free_tails, r->kv.pool->n_tails);
    scheduler_free(sched);
    sampler_free(sampler);
}

// Steps of one row and steps of several rows use different kernels, so texts with drafts may differ only where two
// logits are within the margin.
static void test_drafts(void **state) {
    (void)state;
    static const struct {
        int kv_type;
        double distance;
    } types[] = {{TYPE_F32, 1e-5}, {TYPE_F16, 1e-3}, {TYPE_Q8_0, 1e-3}, {TYPE_KIVI2, 1e-3}};
    TinyModel shape = cuda_rig_shape("llama");
    Gguf *g = tiny_model(&shape);
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        for (int n_gpu = 1; n_gpu <= 2; n_gpu++) {
            Rig r;
            Drafted want[TEXTS], got[TEXTS];
            Proposer d = {.random = t, .n_vocab = 320};
            const Policy drafting = proposer_policy(&d, &plain_policy);
            cuda_rig_open(&r, g, (CudaSetup){.n_gpu = n_gpu, .kv_type = types[t].kv_type, .block = 32});
            generate_with(&r, &plain_policy, NULL, want);
            generate_with(&r, &drafting, want, got);
            for (int i = 0; i < TEXTS; i++) {
                int n_prompt = 5 + 10 * i;
                check_margin(want[i].tokens + n_prompt, want[i].logits, got[i].tokens + n_prompt, got[i].logits,
                             DRAFTED, (int)want[i].n_vocab, types[t].distance);
                free(want[i].logits);
                free(got[i].logits);
            }
            assert_true(d.n_kept > 10 && d.n_dropped > 0);
            assert_null(model_failure(&r.m));
            rig_close(&r);
        }
    gguf_close(g);
}

// If no logit is finite, the drawn token is -1, and the step that was queued after it does no harm.
static void test_a_draw_of_nothing(void **state) {
    (void)state;
    TinyModel shape = cuda_rig_shape("llama");
    Gguf *g = tiny_model(&shape);
    Rig r;
    cuda_rig_open(&r, g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F32});
    LogitBias none[1000];
    for (int i = 0; i < 1000; i++) none[i] = (LogitBias){i, -INFINITY};
    Sampler *sampler = sampler_new(r.m.c.n_vocab);
    Scheduler *sched = scheduler_new(&r.kv, sampler,
                                     (SchedulerShape){.n_vocab = r.m.c.n_vocab,
                                                      .max_rows = CUDA_MOST_ROWS,
                                                      .max_out = 1,
                                                      .max_seqs = 1,
                                                      .draws = true,
                                                      .draws_ahead = true},
                                     &plain_policy);
    Sequence seq = {0};
    Request q = {.seq = &seq, .sampling = sampler_defaults(), .max_new = 9};
    q.sampling.bias = none;
    q.sampling.n_bias = ARRAY_LEN(none);
    sequence_push(&seq, (int[]){1, 2, 3}, 3);
    scheduler_add(sched, &q);
    for (bool begun = false; generate_step(&r, sched, &begun);) {
    }
    assert_int_equal(q.finish, FINISH_BROKEN);
    assert_null(model_failure(&r.m));
    sequence_end(&r.kv, &seq);
    timeline_free(&q.time);
    scheduler_free(sched);
    sampler_free(sampler);
    rig_close(&r);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_of_the_device),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_a_draw_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
