// tests/test_beam.c: beam search over a fake model and over a small real one. Texts and scores must be those of a plain
// search that computes every beam from its first token. With as many beams as there are texts, they must be those of
// trying all texts. Beams must share the blocks that they have in common.
#define _GNU_SOURCE
enum { FAKE_CTX = 160 };
#include "cpu/backend.h"
#include "tests/rig/fake_model.h"
#include "tests/rig/model_rig.h"
#include "tests/rig/plain_beams.h"
#include "tests/rig/tiny_model.h"

// ---- the results ----------------------------------------------------------------------------------------------------

// Ends at an end token, or at a pair of tokens that stands for a stop string.
static Finish toy_ends(void *arg, const int *tokens, int n) {
    const int *n_ends = arg;
    if (tokens[n - 1] < *n_ends) return FINISH_EOG;
    return n > 1 && *n_ends > 1 && (tokens[n - 1] * 7 + tokens[n - 2]) % 19 == 0 ? FINISH_STOP : RUNNING;
}

// Asserts that a request's search has the results of the plain search.
static void assert_found(const BeamSearch *b, const Request *r, const PlainSearch *want, const char *where) {
    const BeamText *texts;
    int n = beam_texts(b, &texts);
    if (n != want->n_kept) fail_msg("%s: %d texts expected, %d found", where, want->n_kept, n);
    for (int i = 0; i < n; i++) {
        const PlainText *t = &want->kept[i];
        int length = t->n - r->n_prompt;
        if (texts[i].n != length || memcmp(texts[i].tokens, t->tokens + r->n_prompt, (size_t)length * sizeof(int)) != 0)
            fail_msg("%s: text %d of %d tokens differs from that of %d", where, i, texts[i].n, length);
        assert_true(fabs(texts[i].sum - t->sum) < 1e-4 && fabs(texts[i].score - t->score) < 1e-4);
    }
    assert_int_equal(r->seq->n_tokens, want->n_kept ? want->kept[0].n : r->n_prompt);
    assert_memory_equal(r->seq->tokens, want->kept[0].tokens, (size_t)r->seq->n_tokens * sizeof(int));
}

// ---- over the fake model --------------------------------------------------------------------------------------------

static void fake_logits(void *arg, const int *tokens, int n, float *out) {
    uint64_t hash = 0;
    (void)arg;
    for (int i = 0; i < n; i++) hash = mix(hash, (uint64_t)tokens[i]);
    logits_of(hash, out);
}
static const PlainModel fake = {.logits = fake_logits, .n_vocab = FAKE_VOCAB};

// Counts the different whole blocks of the sequences of r, and the blocks that they use.
static void count_blocks(const Request *r, int block, int *whole, int *used) {
    *whole = *used = 0;
    for (int i = 0; i <= r->n_more; i++) {
        const Sequence *q = request_sequence(r, i);
        for (int k = 0; k < q->n_blocks; k++) {
            bool is_whole = (k + 1) * block <= q->n_cached, known = false, in_use = false;
            for (int j = 0; j < i; j++) {
                const Sequence *other = request_sequence(r, j);
                bool both = is_whole && (k + 1) * block <= other->n_cached;
                known =
                    known || (both && memcmp(other->tokens, q->tokens, (size_t)((k + 1) * block) * sizeof(int)) == 0);
                in_use = in_use || (k < other->n_blocks && other->blocks[k] == q->blocks[k]);
            }
            *whole += is_whole && !known;
            *used += !in_use;
        }
    }
}

// BS4, BS5: a step copies at most one block for each beam; beams share their common blocks and use one more each.
static void check_blocks(FakeEngine *f, const Request *r, const Batch *b) {
    int whole, used;
    if (r->finish != RUNNING || r->n_more == 0) return;
    count_blocks(r, f->kv.pool->block, &whole, &used);
    assert_int_equal(used, f->kv.pool->n_blocks - f->kv.n_free);
    if (used > whole + 1 + r->n_more) fail_msg("%d whole blocks and %d beams use %d", whole, 1 + r->n_more, used);
    assert_true(b->n_copies <= 1 + r->n_more);
}

static BeamSearch *begin_search(FakeEngine *f, Request *r, BeamConfig c) {
    c.sampler = f->sampler;
    c.next = &plain_policy;
    BeamSearch *b = beam_new(&c);
    beam_request(b, r);
    scheduler_add(f->s, r);
    return b;
}

// Runs one search and compares it with the plain one.
static void one_search(const KvShape *shape, int max_rows, BeamConfig c, int n_prompt, int max_new, uint64_t key,
                       const LogitBias *bias, int n_bias) {
    static FakeEngine f;
    static PlainSearch want;
    Batch *b;
    Request r;
    char where[120];
    fake_open_shape(&f, *shape, max_rows, c.n);
    request_new(&r, n_prompt, max_new, key);
    r.sampling.repeat_penalty = 1;
    r.sampling.bias = bias;
    r.sampling.n_bias = n_bias;
    c.sampler = f.sampler;
    c.next = &plain_policy;
    BeamSearch *search = beam_new(&c);
    beam_request(search, &r);
    int room = FAKE_CTX - n_prompt + 1, most = max_new < 0 ? room : int_min(room, max_new);
    plain_search(&want, &fake, &c, &r.sampling, r.seq->tokens, n_prompt, most);
    scheduler_add(f.s, &r);
    while (scheduler_next(f.s, &b)) {
        scheduler_take(f.s, fake_forward(&f, b));
        check_blocks(&f, &r, b);
    }
    snprintf(where, sizeof where, "key %d, block %d, %d beams, penalty %g, stop %d", (int)key, shape->block, c.n,
             c.length_penalty, (int)c.stop);
    assert_found(search, &r, &want, where);
    if (c.stop == BEAM_STOP_NEVER) assert_true(r.n_new <= want.n_steps);
    else assert_int_equal(r.n_new, want.n_steps);
    assert_int_equal(r.finish, want.kept[0].finish == FINISH_LENGTH && most == room && max_new != room
                                   ? FINISH_CONTEXT
                                   : want.kept[0].finish);
    beam_free(search);
    request_free(&f, &r);
    assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
    assert_int_equal(f.kv.n_free_tails, f.kv.pool->n_tails);
    fake_close(&f);
}

static KvShape shape_of(int block, int n_seqs, bool sealed, bool share, int window) {
    return (KvShape){.type_k = sealed ? TYPE_Q8_0 : TYPE_F16,
                     .type_v = sealed ? TYPE_Q4_0 : TYPE_F16,
                     .block = block,
                     .n_seqs = n_seqs,
                     .share = share,
                     .window = window};
}

// BS3: random shapes, contiguous and paged caches, sealed types, layers with windows.
static void test_random_searches(void **state) {
    (void)state;
    uint64_t random = 1;
    for (int round = 0; round < 240; round++) {
        bool sealed = round % 3 == 0;
        int beams = 1 + (int)(test_random(&random) % 7), n_ends = (int)(test_random(&random) % 4);
        int n_prompt = 1 + (int)(test_random(&random) % 70), max_new = 1 + (int)(test_random(&random) % 40);
        int block = round % 4 == 0 ? 0 : sealed ? 32 << test_random(&random) % 2 : 1 << test_random(&random) % 6;
        int window = block && round % 5 == 0 ? 24 : 0;
        BeamConfig c = {.n = beams,
                        .length_penalty = 0.5 * (double)(test_random(&random) % 6) - 1,
                        .stop = (BeamStop)(test_random(&random) % 3),
                        .n_top = -1,
                        .ends = toy_ends,
                        .arg = &n_ends};
        KvShape shape = shape_of(block, beams, sealed, round % 2, window);
        one_search(&shape, beams + (int)(test_random(&random) % 40), c, n_prompt, max_new, (uint64_t)round, NULL, 0);
    }
}

// Searches in which almost every token ends a text: the tokens that continue a beam may be the last of its row.
static void test_most_tokens_end(void **state) {
    (void)state;
    for (int beams = 1; beams <= 4; beams++)
        for (int key = 0; key < 40; key++) {
            int n_ends = FAKE_VOCAB - 1 - key % 4;
            BeamConfig c = {.n = beams,
                            .length_penalty = 3, // a longer text is better
                            .stop = key % 2 ? BEAM_STOP_NEVER : BEAM_STOP_PRESENT,
                            .n_top = -1,
                            .ends = toy_ends,
                            .arg = &n_ends};
            KvShape shape = shape_of(8, beams, false, true, 0);
            const LogitBias bias[] = {{FAKE_VOCAB - 1, -2}, {3, 0.5f}};
            for (int n = 1; n <= 2; n++) one_search(&shape, 40, c, 9, 6, (uint64_t)key, bias, n);
        }
}

// Searches to the end of the context, with a forbidden token and with a favoured one. A favoured token can make a sum
// grow, so that a search that never stops early goes on.
static void test_limits(void **state) {
    (void)state;
    int n_ends = 0;
    const LogitBias bias[] = {{7, -INFINITY}, {8, 2}, {9, -INFINITY}}, grows[] = {{8, 6}, {9, -1}};
    for (int beams = 1; beams <= 5; beams += 2)
        for (int stop = BEAM_STOP_PRESENT; stop <= BEAM_STOP_NEVER; stop++) {
            BeamConfig c = {.n = beams, .length_penalty = 1, .stop = (BeamStop)stop, .n_top = -1};
            KvShape shape = shape_of(16, beams, false, true, 0);
            c.ends = toy_ends;
            c.arg = &n_ends;
            n_ends = 0;
            one_search(&shape, 40, c, FAKE_CTX - 12, -1, 3, NULL, 0);
            one_search(&shape, 40, c, FAKE_CTX - 1, 5, 4, bias, 3);
            n_ends = 2;
            one_search(&shape, 40, c, 9, 30, 5, bias, 3);
            for (uint64_t key = 0; key < 20; key++) one_search(&shape, 40, c, 9, 20, key, grows, 2);
        }
}

// Penalties that favour repeated tokens can make a sum grow, too: a search that never stops early goes to its limit.
static void test_favoured_repeats(void **state) {
    (void)state;
    static FakeEngine f;
    static const float cases[][3] = {{1, 0, 0}, {0.9f, 0, 0}, {1, -0.1f, 0}, {1, 0, -0.1f}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int n_ends = 2;
        BeamConfig c = {.n = 2, .stop = BEAM_STOP_NEVER, .n_top = -1, .ends = toy_ends, .arg = &n_ends};
        Request r;
        fake_open(&f, 8, 0, 30, 2);
        request_new(&r, 9, 60, 3);
        r.sampling.repeat_penalty = cases[i][0];
        r.sampling.presence_penalty = cases[i][1];
        r.sampling.frequency_penalty = cases[i][2];
        BeamSearch *b = begin_search(&f, &r, c);
        run_all(&f);
        assert_int_equal(r.n_new == 60, i > 0);
        beam_free(b);
        request_free(&f, &r);
        fake_close(&f);
    }
}

// BS1: one beam must give the text of greedy decoding, with penalties and biases.
static void test_one_beam_is_greedy(void **state) {
    (void)state;
    static FakeEngine f;
    const LogitBias bias[] = {{3, 1.5f}, {4, -2}};
    for (uint64_t key = 0; key < 30; key++) {
        Request r, greedy;
        int want[FAKE_CTX + 1];
        fake_open(&f, 8, 0, 20, 2);
        request_new(&r, 1 + (int)key, 40, key);
        r.sampling.greedy = true;
        r.sampling.presence_penalty = 0.3f;
        r.sampling.bias = bias;
        r.sampling.n_bias = 2;
        greedy = r;
        int n = expected_text(&greedy, 1 + (int)key, want);
        BeamSearch *b = beam_new(
            &(BeamConfig){.n = 1, .length_penalty = 1, .n_top = -1, .sampler = f.sampler, .next = &plain_policy});
        beam_request(b, &r);
        scheduler_add(f.s, &r);
        run_all(&f);
        const BeamText *text;
        assert_int_equal(beam_texts(b, &text), 1);
        assert_int_equal(text->n, n);
        assert_memory_equal(text->tokens, want, (size_t)n * sizeof *want);
        beam_free(b);
        request_free(&f, &r);
        fake_close(&f);
    }
}

// ---- all texts ------------------------------------------------------------------------------------------------------

enum { TOY = 3, TOY_LENGTH = 4 }; // at most 3^4 texts

// Tries every text of the tokens 0 (the end), 1 and 2.
static void try_all(PlainSearch *all, PlainText *t, const BeamConfig *c, int n_prompt) {
    float logits[FAKE_VOCAB];
    double sum = 0;
    fake_logits(NULL, t->tokens, t->n, logits);
    for (int k = 0; k < FAKE_VOCAB; k++) sum += exp((double)logits[k]);
    for (int k = 0; k < TOY; k++) {
        PlainText longer = *t;
        longer.tokens[longer.n++] = k;
        longer.sum += (double)logits[k] - log(sum);
        bool full = longer.n - n_prompt == TOY_LENGTH;
        if (k == 0 || full) plain_keep(all, c, &longer, n_prompt, k ? FINISH_LENGTH : FINISH_EOG);
        else try_all(all, &longer, c, n_prompt);
    }
}

// BS2: with at least as many beams as there are unfinished texts, the result must be that of trying all texts.
static void test_exhaustive(void **state) {
    (void)state;
    static FakeEngine f;
    static PlainSearch all;
    LogitBias forbidden[FAKE_VOCAB - TOY];
    int n_ends = 1;
    for (int i = TOY; i < FAKE_VOCAB; i++) forbidden[i - TOY] = (LogitBias){i, -INFINITY};
    for (uint64_t key = 0; key < 40; key++) {
        BeamConfig c = {.n = MOST_BEAMS,
                        .length_penalty = 0.5 * (double)(key % 6) - 1,
                        .stop = key % 2 ? BEAM_STOP_NEVER : BEAM_STOP_PRESENT,
                        .n_top = -1,
                        .ends = toy_ends,
                        .arg = &n_ends};
        KvShape shape = shape_of(8, MOST_BEAMS, false, false, 0);
        Request r;
        PlainText start = {.n = 5};
        shape.n_blocks = 4 * MOST_BEAMS;
        fake_open_shape(&f, shape, 100, MOST_BEAMS);
        request_new(&r, start.n, TOY_LENGTH, key);
        r.sampling.repeat_penalty = 1;
        r.sampling.bias = forbidden;
        r.sampling.n_bias = FAKE_VOCAB - TOY;
        memcpy(start.tokens, r.seq->tokens, (size_t)start.n * sizeof(int));
        all = (PlainSearch){0};
        try_all(&all, &start, &c, start.n);
        assert_int_equal(all.n_kept, 31); // 1 + 2 + 4 texts that end early, and 8 x 3
        BeamSearch *b = begin_search(&f, &r, c);
        run_all(&f);
        assert_found(b, &r, &all, "all texts");
        beam_free(b);
        request_free(&f, &r);
        fake_close(&f);
    }
}

// ---- with other requests --------------------------------------------------------------------------------------------

enum { N_BESIDE = 6 };

// Searches and plain requests with few blocks; returns the number of preemptions.
static int beside_others(KvShape shape, int max_rows, int beams, uint64_t seed) {
    static FakeEngine f;
    static PlainSearch want;
    Request r[N_BESIDE];
    BeamSearch *search[N_BESIDE] = {0};
    int n_ends = seed % 4 ? 0 : 2;
    BeamConfig c = {.n = beams, .length_penalty = 1, .n_top = -1, .ends = toy_ends, .arg = &n_ends};
    fake_open_shape(&f, shape, max_rows, int_min(max_rows, 8));
    c.sampler = f.sampler;
    c.next = &plain_policy;
    for (int i = 0; i < N_BESIDE; i++) {
        // some have common beginnings
        request_new(&r[i], 1 + (int)(mix(seed, (uint64_t)i) % 40), 25, (uint64_t)(i % 2));
        r[i].sequence_key = (uint64_t)i;
        if (i % 2) r[i].sampling.repeat_penalty = 1.1f;
        else r[i].sampling.repeat_penalty = 1, beam_request(search[i] = beam_new(&c), &r[i]);
        scheduler_add(f.s, &r[i]);
    }
    run_and_release(&f, r, N_BESIDE);
    for (int i = 0; i < N_BESIDE; i++) {
        if (i % 2) assert_text(&r[i]);
        else {
            plain_search(&want, &fake, &c, &r[i].sampling, r[i].seq->tokens, r[i].n_prompt, 25);
            assert_found(search[i], &r[i], &want, "beside others");
        }
        beam_free(search[i]);
        request_free(&f, &r[i]);
    }
    assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
    assert_int_equal(f.kv.n_free_tails, f.kv.pool->n_tails);
    int n_preempted = (int)scheduler_preemptions(f.s);
    fake_close(&f);
    return n_preempted;
}

static void test_beside_others(void **state) {
    (void)state;
    int n_preempted = 0, n = 0;
    for (int sealed = 0; sealed < 2; sealed++)
        for (int share = 0; share < 2; share++)
            for (int rows = 5; rows <= 80; rows *= 4)
                for (int beams = 1; beams <= 5; beams += 2, n++) {
                    int block = sealed ? 32 : 8;
                    KvShape shape = shape_of(block, 8, sealed, share, 0);
                    // blocks of the whole search, if it is computed again without sharing
                    int one = (66 + block - 1) / block;
                    shape.n_blocks = share ? one + beams : one * beams;
                    n_preempted += beside_others(shape, rows, beams, (uint64_t)n);
                }
    print_message("%d preemptions\n", n_preempted);
    assert_true(n_preempted > 20);
}

// ---- searches that are cut ------------------------------------------------------------------------------------------

// If a signal, a cancelled job or a lack of blocks ends the search, its result must be the same as if the number of
// steps had been limited.
static bool cut_search(int cut_at, bool cancel, int n_blocks) {
    static FakeEngine f;
    static PlainSearch want;
    Request r;
    Batch *b;
    int n_ends = cut_at ? 2 : 0, n_steps = 0;
    BeamConfig c = {
        .n = 4, .length_penalty = 1, .stop = BEAM_STOP_NEVER, .n_top = -1, .ends = toy_ends, .arg = &n_ends};
    fake_open(&f, 8, n_blocks, 30, 4);
    request_new(&r, 20, -1, 3);
    r.sampling.repeat_penalty = 1;
    BeamSearch *search = begin_search(&f, &r, c);
    while (scheduler_next(f.s, &b)) {
        scheduler_take(f.s, fake_forward(&f, b));
        if (++n_steps != cut_at) continue;
        if (cancel) scheduler_cancel(f.s, &r);
        else scheduler_interrupt(f.s);
    }
    assert_int_equal(r.n_new, n_steps);
    plain_search(&want, &fake, &c, &r.sampling, r.seq->tokens, r.n_prompt, n_steps);
    assert_found(search, &r, &want, "cut");
    assert_int_equal(r.finish, cut_at ? FINISH_INTERRUPT : FINISH_CONTEXT);
    beam_free(search);
    request_free(&f, &r);
    assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
    assert_int_equal(f.kv.n_copies, 0);
    fake_close(&f);
    return n_steps < FAKE_CTX - 20 + 1; // otherwise the blocks reached to the end of the context
}

static void test_cut(void **state) {
    (void)state;
    for (int at = 1; at < 12; at++) {
        cut_search(at, false, 40);
        cut_search(at, true, 40);
    }
    int n_cut = 0;
    for (int n_blocks = 20; n_blocks < 30; n_blocks++) n_cut += cut_search(0, false, n_blocks);
    assert_in_range(n_cut, 1, 9);
    // Cut before the second step, when some beams have got a block and others have not.
    assert_true(cut_search(0, false, 5));
}

// A search has no result before its first row or without tokens to generate. If no logit is finite, it is an error.
static void test_nothing_found(void **state) {
    (void)state;
    static FakeEngine f;
    for (int way = 0; way < 3; way++) {
        Request r;
        Batch *b;
        const BeamText *texts;
        fake_open(&f, 8, 0, 20, 3);
        request_new(&r, 9, way == 1 ? 0 : 9, 1);
        BeamSearch *search = begin_search(&f, &r, (BeamConfig){.n = 3, .length_penalty = 1, .n_top = -1});
        if (way == 0) scheduler_interrupt(f.s);
        while (scheduler_next(f.s, &b)) {
            float *logits = (float *)fake_forward(&f, b);
            for (int i = 0; i < b->n_out * FAKE_VOCAB; i++) logits[i] = NAN;
            scheduler_take(f.s, logits);
        }
        assert_int_equal(beam_texts(search, &texts), 0);
        assert_int_equal(r.finish, way == 0 ? FINISH_INTERRUPT : way == 1 ? FINISH_LENGTH : FINISH_BROKEN);
        assert_int_equal(r.seq->n_tokens, 9);
        beam_free(search);
        request_free(&f, &r);
        fake_close(&f);
    }
}

// With equal logits all texts have one score. The earlier text comes first: the end alone, then a token and the end.
static void test_equal_scores(void **state) {
    (void)state;
    static FakeEngine f;
    int n_ends = 1;
    BeamConfig c = {.n = 2, .length_penalty = 1, .n_top = -1, .ends = toy_ends, .arg = &n_ends};
    Request r;
    const BeamText *texts;
    fake_open(&f, 8, 0, 20, 2);
    request_new(&r, 9, 9, 1);
    BeamSearch *search = begin_search(&f, &r, c);
    for (Batch *b; scheduler_next(f.s, &b); scheduler_take(f.s, f.logits))
        memset((float *)fake_forward(&f, b), 0, sizeof f.logits);
    assert_int_equal(beam_texts(search, &texts), 2);
    assert_true(texts[0].score == texts[1].score && texts[0].n == 1 && texts[1].n == 2);
    assert_int_equal(r.n_new, 2); // a further text could not be better
    beam_free(search);
    request_free(&f, &r);
    fake_close(&f);
}

// ---- log-probabilities and loaded prompts ---------------------------------------------------------------------------

// The log-probabilities of a text's tokens must add up to the text's sum. A token that is also among the likeliest ones
// must have the same value there.
static void test_logprobs(void **state) {
    (void)state;
    static FakeEngine f;
    enum { TOP = 5 };
    for (int n_top = 0; n_top <= TOP; n_top += TOP) {
        Request r;
        int n_ends = 2;
        fake_open(&f, 8, 0, 20, 4);
        request_new(&r, 9, 20, 6);
        r.sampling.repeat_penalty = 1;
        BeamConfig c = {.n = 4, .length_penalty = 1, .n_top = n_top, .ends = toy_ends, .arg = &n_ends};
        BeamSearch *search = begin_search(&f, &r, c);
        run_all(&f);
        const BeamText *texts;
        assert_int_equal(beam_texts(search, &texts), 4);
        for (int t = 0; t < 4; t++) {
            double sum = 0;
            int seen = 0;
            for (int i = 0; i < texts[t].n; i++) {
                const TokenLogprob *top = texts[t].top + i * n_top;
                sum += (double)texts[t].logprobs[i];
                for (int k = 0; k < n_top; k++) {
                    if (k > 0) assert_true(top[k].logprob <= top[k - 1].logprob);
                    if (top[k].id != texts[t].tokens[i]) continue;
                    assert_true(top[k].logprob == texts[t].logprobs[i]);
                    seen++;
                }
            }
            assert_true(fabs(sum - texts[t].sum) < 1e-4);
            assert_true(n_top == 0 || seen > texts[t].n / 2);
        }
        beam_free(search);
        request_free(&f, &r);
        fake_close(&f);
    }
}

// The prompt's K and V are loaded, as with --kv-dir.
static void test_fetched_prompt(void **state) {
    (void)state;
    static FakeEngine f;
    static PlainSearch want;
    Request r;
    fake_open_shared(&f, 8, 60, 20, 4, true);
    Shelf shelf = {.f = &f};
    const Policy fetching = shelf_policy(&shelf);
    BeamConfig c = {.n = 4, .length_penalty = 1, .n_top = -1, .sampler = f.sampler, .next = &fetching};
    request_new(&r, 43, 20, 6);
    r.sampling.repeat_penalty = 1;
    BeamSearch *search = beam_new(&c);
    beam_request(search, &r);
    scheduler_add(f.s, &r);
    run_all(&f);
    assert_int_equal(r.n_reused, 40);
    plain_search(&want, &fake, &c, &r.sampling, r.seq->tokens, r.n_prompt, 20);
    assert_found(search, &r, &want, "fetched");
    beam_free(search);
    request_free(&f, &r);
    fake_close(&f);
}

// A request with K and V to load begins while beams fork in every step, whose blocks are copied.
static void test_fetch_beside_beams(void **state) {
    (void)state;
    static FakeEngine f;
    Request beams, other;
    Batch *b;
    fake_open_shared(&f, 8, 200, 20, 12, true);
    Shelf shelf = {.f = &f};
    const Policy fetching = shelf_policy(&shelf);
    BeamConfig c = {.n = 8, .length_penalty = 1, .n_top = -1, .sampler = f.sampler, .next = &fetching};
    fake_policy(&f, &fetching, false);
    request_new(&beams, 9, 60, 1);
    request_new(&other, 30, 5, 2);
    beams.sampling.repeat_penalty = other.sampling.repeat_penalty = 1;
    BeamSearch *search = beam_new(&c);
    beam_request(search, &beams);
    scheduler_add(f.s, &beams);
    int n_steps = 0, n_waited = 0;
    for (; beams.finish == RUNNING && scheduler_next(f.s, &b); n_steps++) {
        if (n_steps > 10 && other.time.begun == 0) n_waited++;
        scheduler_take(f.s, fake_forward(&f, b));
        if (n_steps == 10) scheduler_add(f.s, &other);
    }
    assert_true(other.time.begun != 0);
    assert_in_range(n_waited, 0, 2); // 16 slots a step
    assert_int_equal(other.n_reused, 24);
    run_all(&f);
    beam_free(search);
    request_free(&f, &beams);
    request_free(&f, &other);
    fake_close(&f);
}

// ---- over a real model ----------------------------------------------------------------------------------------------

// Logits of tokens that are computed alone, from the first token on, in a contiguous cache.
static void real_logits(void *arg, const int *tokens, int n, float *out) {
    Rig *rig = arg;
    Sequence q = {0};
    float *all = mem_alloc((size_t)n * MOST_VOCAB * sizeof *all);
    sequence_push(&q, tokens, n);
    step(rig, &(RowsOfSequence){&q, n, all}, 1);
    memcpy(out, all + (size_t)(n - 1) * MOST_VOCAB, MOST_VOCAB * sizeof *out);
    sequence_end(&rig->kv, &q);
    free(all);
}

static void open_rig(Rig *r, const Gguf *g, const char *isa, KvShape shape) {
    const Backend *be;
    *r = (Rig){0};
    assert_ok(cpu_backend_deterministic(isa, &be));
    assert_ok(model_load(&r->m, g, be));
    r->pool = threads_new(2);
    shape.n_layers = r->m.c.n_layers;
    shape.n_kv_heads = r->m.c.n_kv_heads;
    shape.head_dim = r->m.c.head_dim;
    shape.n_ctx = FAKE_CTX;
    assert_ok(kvcache_new(&r->kv, &shape));
    poison_pools(&r->kv);
    kvcache_shuffle(&r->kv, 7);
    assert_ok(workspace_new(&r->w, &r->m, r->pool, FAKE_CTX, FAKE_CTX, FAKE_CTX));
}

// BS3: logits, texts and scores must be bit for bit those of beams that share nothing.
static void real_search(const Gguf *g, const char *isa, KvShape shape) {
    static PlainSearch want;
    Rig alone, shared;
    Batch *b;
    int prompt[40], n_ends = 12;
    KvShape single = shape;
    single.block = 0;
    single.n_seqs = 1;
    open_rig(&alone, g, isa, single);
    open_rig(&shared, g, isa, shape);
    Sampler *sampler = sampler_new(MOST_VOCAB);
    Scheduler *s =
        scheduler_new(&shared.kv, sampler,
                      (SchedulerShape){.n_vocab = MOST_VOCAB, .max_rows = 20, .max_out = 20, .max_seqs = shape.n_seqs},
                      &plain_policy);
    Sequence seq = {0};
    Request r = {.seq = &seq, .sampling = sampler_defaults(), .max_new = 24};
    BeamConfig c = {.n = 4, .length_penalty = 1, .n_top = -1, .sampler = sampler, .ends = toy_ends, .arg = &n_ends};
    c.next = &plain_policy;
    random_tokens(prompt, 40, MOST_VOCAB, 3);
    sequence_push(&seq, prompt, 37);
    BeamSearch *search = beam_new(&c);
    beam_request(search, &r);
    scheduler_add(s, &r);
    while (scheduler_next(s, &b)) scheduler_take(s, model_forward(&shared.m, &shared.w, shared.kv.pool, b));
    plain_search(&want, &(PlainModel){real_logits, &alone, MOST_VOCAB}, &c, &r.sampling, prompt, 37, 24);
    assert_found(search, &r, &want, isa);
    assert_true(beam_stats(search).n_forks > 5);
    beam_free(search);
    sequence_end(&shared.kv, &seq);
    timeline_free(&r.time);
    scheduler_free(s);
    sampler_free(sampler);
    rig_close(&alone);
    rig_close(&shared);
}

static void test_real_model(void **state) {
    (void)state;
    static const char *const isas[] = {"scalar", "avx2", "avx512", "amx"};
    static const int types[][2] = {{TYPE_F16, TYPE_F16}, {TYPE_Q8_0, TYPE_Q4_0}, {TYPE_KIVI2, TYPE_KIVI2}};
    Gguf *g = tiny_model(&(TinyModel){.type = TYPE_Q8_0, .seed = 5});
    for (size_t i = 0; i < ARRAY_LEN(isas); i++)
        for (size_t t = 0; t < ARRAY_LEN(types) && cpu_has_isa(isas[i]); t++)
            for (int block = 0; block <= 32; block += 16) {
                KvShape shape = {
                    .type_k = types[t][0], .type_v = types[t][1], .block = block, .n_seqs = 4, .share = block == 16};
                real_search(g, isas[i], shape);
            }
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_searches),    cmocka_unit_test(test_limits),
        cmocka_unit_test(test_favoured_repeats),   cmocka_unit_test(test_most_tokens_end),
        cmocka_unit_test(test_one_beam_is_greedy), cmocka_unit_test(test_exhaustive),
        cmocka_unit_test(test_beside_others),      cmocka_unit_test(test_cut),
        cmocka_unit_test(test_nothing_found),      cmocka_unit_test(test_equal_scores),
        cmocka_unit_test(test_logprobs),           cmocka_unit_test(test_fetched_prompt),
        cmocka_unit_test(test_fetch_beside_beams), cmocka_unit_test(test_real_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
