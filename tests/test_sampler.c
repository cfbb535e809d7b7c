// tests/test_sampler.c: the sampling chain: the tokens that stay, their probabilities, and that a draw depends only on
// its keys.
//
// Expected sets and probabilities are computed by hand or in double. A sampler's probabilities are measured by drawing
// at many positions with a fixed seed; each count must be within five standard deviations.
#include "tests/rig/testing.h"

#include "base/race.h"
#include "sampler.h"
#include "sampling.h"

#include <float.h>
#include <math.h>

enum { N_DRAWS = 20000 };

// All stages off: a draw from softmax(logits).
static SamplerParams plain(void) {
    SamplerParams p = sampler_defaults();
    p.temp = 1;
    p.top_k = 0;
    p.top_p = 1;
    p.min_p = 0;
    p.seed = 42;
    return p;
}

static SamplerParams greedy(void) {
    SamplerParams p = plain();
    p.greedy = true;
    return p;
}

static int draw_at(Sampler *s, const SamplerParams *p, const float *logits, uint64_t position) {
    return sampler_sample(s, p, logits, NULL, 0, 0, position);
}

// want: (n) relative probabilities, 0 for tokens that must never be drawn; they need not sum to 1.
static void assert_odds(const SamplerParams *p, const float *logits, int n, const double *want) {
    Sampler *s = sampler_new(n);
    int *counts = mem_alloc((size_t)n * sizeof *counts);
    double sum = 0;
    for (int i = 0; i < n; i++) sum += want[i];
    for (int k = 0; k < N_DRAWS; k++) {
        int id = draw_at(s, p, logits, (uint64_t)k);
        assert_in_range(id, 0, n - 1);
        counts[id]++;
    }
    for (int i = 0; i < n; i++) {
        double odds = want[i] / sum, deviation = sqrt(N_DRAWS * odds * (1 - odds));
        if (odds == 0 && counts[i]) fail_msg("token %d came %d times and was to be left out", i, counts[i]);
        if (fabs(counts[i] - N_DRAWS * odds) > 5 * deviation + 1e-6)
            fail_msg("token %d: %.0f of %d draws expected, %d found", i, N_DRAWS * odds, N_DRAWS, counts[i]);
    }
    free(counts);
    sampler_free(s);
}

// Five tokens, not sorted by probability.
static const double five[5] = {0.15, 0.4, 0.05, 0.3, 0.1};

static void five_logits(float out[5]) {
    for (int i = 0; i < 5; i++) out[i] = (float)log(five[i]) + 3; // adding a constant to all logits changes nothing
}

// Asserts that only the tokens marked in `keep` can be drawn, with the probabilities in `five`.
static void assert_five(const SamplerParams *p, const char *keep) {
    float logits[5];
    double want[5];
    five_logits(logits);
    for (int i = 0; i < 5; i++) want[i] = keep[i] == '1' ? five[i] : 0;
    assert_odds(p, logits, 5, want);
}

// ---- greedy ---------------------------------------------------------------------------------------------------------

static void test_greedy(void **state) {
    (void)state;
    float logits[] = {1, 7, -3, 7, 7};
    Sampler *s = sampler_new(5);
    SamplerParams p = greedy();
    assert_int_equal(draw_at(s, &p, logits, 0), 1); // the lowest id of three equal logits
    p.greedy = false;
    p.temp = 0;
    assert_int_equal(draw_at(s, &p, logits, 0), 1);
    p.temp = -1;
    assert_int_equal(draw_at(s, &p, logits, 0), 1);
    logits[4] = 7.001f;
    assert_int_equal(draw_at(s, &p, logits, 0), 4);
    float zeros[] = {-0.0f, 0.0f, -1, -1, -1};
    assert_int_equal(draw_at(s, &p, zeros, 0), 0); // +0 and -0 are equal
    sampler_free(s);
}

static void test_nan_and_infinities(void **state) {
    (void)state;
    Sampler *s = sampler_new(4);
    SamplerParams g = greedy(), p = plain();
    float some[] = {NAN, -5, NAN, -INFINITY}, none[] = {NAN, -INFINITY, NAN, -INFINITY};
    for (uint64_t i = 0; i < 200; i++) {
        assert_int_equal(draw_at(s, &g, some, i), 1);
        assert_int_equal(draw_at(s, &p, some, i), 1);
        assert_int_equal(draw_at(s, &g, none, i), -1);
        assert_int_equal(draw_at(s, &p, none, i), -1);
    }
    p.top_k = 2;
    p.top_p = 0.5f;
    p.min_p = 0.1f;
    p.typical = 0.5f;
    p.xtc_probability = 1;
    assert_int_equal(draw_at(s, &p, none, 0), -1);
    assert_int_equal(draw_at(s, &p, some, 0), 1);
    float top[] = {3, INFINITY, 2, -INFINITY};
    for (uint64_t i = 0; i < 200; i++) assert_int_equal(draw_at(s, &p, top, i), 1);
    sampler_free(s);
}

// ---- bias -----------------------------------------------------------------------------------------------------------

static void test_bias(void **state) {
    (void)state;
    float logits[5], before[5];
    five_logits(logits);
    memcpy(before, logits, sizeof logits);
    LogitBias bias[] = {{2, (float)log(8)}, {1, -INFINITY}, {-1, 99}, {5, 99}, {1 << 30, 99}};
    SamplerParams p = plain();
    p.bias = bias;
    p.n_bias = 5;
    double want[] = {0.15, 0, 0.05 * 8, 0.3, 0.1};
    assert_odds(&p, logits, 5, want);
    assert_memory_equal(logits, before, sizeof logits);
    p.greedy = true;
    Sampler *s = sampler_new(5);
    assert_int_equal(draw_at(s, &p, logits, 0), 2);
    sampler_free(s);
}

static void test_infinite_bias(void **state) {
    (void)state;
    float logits[5];
    five_logits(logits);
    LogitBias one[] = {{2, INFINITY}}, two[] = {{2, INFINITY}, {0, INFINITY}}, all[5];
    SamplerParams p = plain();
    p.bias = one;
    p.n_bias = 1;
    for (int chain = 0; chain < 2; chain++) {
        double want[] = {0, 0, 1, 0, 0};
        assert_odds(&p, logits, 5, want);
        p = (SamplerParams){.temp = 0.3f,
                            .top_k = 3,
                            .top_p = 0.9f,
                            .min_p = 0.1f,
                            .typical = 0.9f,
                            .xtc_probability = 1,
                            .xtc_threshold = 0.4f,
                            .repeat_penalty = 1.2f,
                            .repeat_last_n = -1,
                            .bias = one,
                            .n_bias = 1,
                            .seed = 1};
    }
    p = plain();
    p.bias = two;
    p.n_bias = 2;
    assert_odds(&p, logits, 5, (double[]){1, 0, 1, 0, 0});
    for (int i = 0; i < 5; i++) all[i] = (LogitBias){i, -INFINITY};
    p.bias = all;
    p.n_bias = 5;
    Sampler *s = sampler_new(5);
    assert_int_equal(draw_at(s, &p, logits, 0), -1);
    p.greedy = true;
    assert_int_equal(draw_at(s, &p, logits, 0), -1);
    sampler_free(s);
}

// ---- penalties ------------------------------------------------------------------------------------------------------

// Asserts the logit of token 0 after the penalties: greedy decoding prefers token 1 exactly if its logit is larger.
static void assert_penalised(const SamplerParams *p, float logit, const int *history, int n, double want) {
    Sampler *s = sampler_new(3);
    float below[] = {logit, (float)want - 1e-4f, -1e9f}, above[] = {logit, (float)want + 1e-4f, -1e9f};
    int low = sampler_sample(s, p, below, history, n, 0, 0), high = sampler_sample(s, p, above, history, n, 0, 0);
    if (low != 0 || high != 1) fail_msg("logit %g: %g after penalties expected; it is not there", (double)logit, want);
    sampler_free(s);
}

static void test_penalty_formulas(void **state) {
    (void)state;
    static const int history[] = {2, 0, 0, 2, 0};
    SamplerParams p = greedy();
    p.repeat_penalty = 1.25f;
    assert_penalised(&p, 5, history, 5, 5 / 1.25); // applies once for a token that occurs several times
    assert_penalised(&p, -5, history, 5, -5 * 1.25);
    assert_penalised(&p, 0, history, 5, 0);
    p.repeat_penalty = 1;
    p.presence_penalty = 0.5f;
    assert_penalised(&p, 5, history, 5, 4.5);
    p.presence_penalty = 0;
    p.frequency_penalty = 0.5f;
    assert_penalised(&p, 5, history, 5, 5 - 3 * 0.5);
    p.frequency_penalty = -0.5f; // a negative penalty favours tokens
    assert_penalised(&p, 5, history, 5, 5 + 3 * 0.5);
    p = greedy();
    p.repeat_penalty = 2;
    p.presence_penalty = 0.25f;
    p.frequency_penalty = 0.125f;
    assert_penalised(&p, 6, history, 5, 6 / 2.0 - 3 * 0.125 - 0.25);
    assert_penalised(&p, -6, history, 5, -6 * 2.0 - 3 * 0.125 - 0.25);
}

static void test_penalty_window(void **state) {
    (void)state;
    static const int history[] = {0, 0, 2, 2, 2}, strange[] = {-1, 3, 1 << 30, 0};
    SamplerParams p = greedy();
    p.frequency_penalty = 1;
    p.repeat_last_n = 3;
    assert_penalised(&p, 5, history, 5, 5);
    p.repeat_last_n = 4;
    assert_penalised(&p, 5, history, 5, 4);
    p.repeat_last_n = 5;
    assert_penalised(&p, 5, history, 5, 3);
    p.repeat_last_n = 64; // longer than the history
    assert_penalised(&p, 5, history, 5, 3);
    p.repeat_last_n = -1;
    assert_penalised(&p, 5, history, 5, 3);
    p.repeat_last_n = 0;
    assert_penalised(&p, 5, history, 5, 5);
    p.repeat_last_n = -1;
    assert_penalised(&p, 5, NULL, 0, 5);
    assert_penalised(&p, 5, strange, 4, 4); // ids outside the vocabulary have no effect
}

// The counts of one call must not affect the next.
static void test_penalties_leave_nothing_behind(void **state) {
    (void)state;
    static const int history[] = {0, 0, 0, 1, 1};
    float logits[] = {5, 4, 3};
    SamplerParams p = greedy(), off = greedy();
    p.frequency_penalty = 1;
    Sampler *s = sampler_new(3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sampler_sample(s, &p, logits, history, 5, 0, 0), 2); // the last tokens are 2, 2, 3
        assert_int_equal(sampler_sample(s, &p, logits, history, 1, 0, 0), 0); // the last tokens are 4, 4, 3
        assert_int_equal(sampler_sample(s, &off, logits, history, 5, 0, 0), 0);
    }
    sampler_free(s);
}

// ---- which tokens stay ----------------------------------------------------------------------------------------------

static void test_plain_draw(void **state) {
    (void)state;
    SamplerParams p = plain();
    assert_five(&p, "11111");
}

static void test_top_k(void **state) {
    (void)state;
    static const char *const kept[] = {"11111", "01000", "01010", "11010", "11011", "11111", "11111"};
    for (int k = 0; k <= 6; k++) {
        SamplerParams p = plain();
        p.top_k = k;
        assert_five(&p, kept[k]);
    }
}

static void test_top_p(void **state) {
    (void)state;
    static const struct {
        float top_p;
        const char *kept;
    } cases[] = {{0, "01000"},     {0.05f, "01000"}, {0.39f, "01000"}, {0.41f, "01010"},
                 {0.69f, "01010"}, {0.8f, "11010"},  {0.9f, "11011"},  {0.99f, "11111"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        SamplerParams p = plain();
        p.top_p = cases[i].top_p;
        assert_five(&p, cases[i].kept);
    }
}

static void test_min_p(void **state) {
    (void)state;
    static const struct {
        float min_p;
        const char *kept;
    } cases[] = {{0.1f, "11111"}, {0.13f, "11011"}, {0.3f, "11010"}, {0.7f, "01010"}, {0.8f, "01000"}, {1, "01000"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        SamplerParams p = plain();
        p.min_p = cases[i].min_p;
        assert_five(&p, cases[i].kept);
    }
}

// The entropy is 1.392. The distances of the tokens' surprises from it are 0.505, 0.476, 1.603, 0.188, 0.910.
static void test_typical(void **state) {
    (void)state;
    static const struct {
        float mass;
        const char *kept;
    } cases[] = {{0.2f, "00010"}, {0.5f, "01010"}, {0.8f, "11010"}, {0.9f, "11011"}, {0.99f, "11111"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        SamplerParams p = plain();
        p.typical = cases[i].mass;
        assert_five(&p, cases[i].kept);
    }
}

// Of the tokens above the threshold all but the least likely are left out; the tokens below stay.
static void test_xtc(void **state) {
    (void)state;
    static const struct {
        float threshold;
        const char *kept;
    } cases[] = {{0, "00100"},     {0.07f, "00101"}, {0.12f, "10101"}, {0.2f, "10111"},
                 {0.35f, "11111"}, {0.5f, "11111"},  {1, "11111"}};
    SamplerParams p = plain();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        p.xtc_probability = 1;
        p.xtc_threshold = cases[i].threshold;
        assert_five(&p, cases[i].kept);
        p.xtc_probability = 0;
        assert_five(&p, "11111");
    }
    float logits[5], ties[] = {2, 2, -3, -3, 2};
    double want[5];
    five_logits(logits);
    p.xtc_threshold = 0.12f;
    p.xtc_probability = 0.25f; // a quarter of the draws is from 0.15, 0.05 and 0.1, whose sum is 0.3
    for (int i = 0; i < 5; i++) want[i] = 0.75 * five[i] + (i == 1 || i == 3 ? 0 : 0.25 * five[i] / 0.3);
    assert_odds(&p, logits, 5, want);
    p.xtc_threshold = 0.3f; // three tokens of equal logits: the highest id stays
    p.xtc_probability = 1;
    assert_odds(&p, ties, 5, (double[]){0, 0, exp(-3), exp(-3), exp(2)});
}

// Each stage gets the probabilities that the stage before it has left.
static void test_order_of_the_chain(void **state) {
    (void)state;
    SamplerParams p = plain();
    p.top_k = 3;    // the probabilities are now 0.471, 0.353, 0.176
    p.top_p = 0.8f; // keeps two of the three
    assert_five(&p, "01010");
    p = plain();
    p.typical = 0.2f; // only the second most likely
    p.top_p = 0.1f;
    p.min_p = 0.9f;
    assert_five(&p, "00010");
    p = plain();
    p.top_p = 0.75f; // top_p comes before the temperature and keeps three; after a temperature of 4 it would keep four
    p.temp = 4;
    float logits[5];
    double want[5] = {pow(0.15, 0.25), pow(0.4, 0.25), 0, pow(0.3, 0.25), 0};
    five_logits(logits);
    assert_odds(&p, logits, 5, want);
    p = plain();
    p.min_p = 0.3f;
    p.temp = 0.1f; // after this temperature, min_p would remove 0.15 too
    for (int i = 0; i < 5; i++) want[i] = i == 2 || i == 4 ? 0 : pow(five[i], 10);
    assert_odds(&p, logits, 5, want);
    p = plain();
    p.top_k = 3;
    p.xtc_probability = 1;
    p.xtc_threshold = 0.33f; // 0.353 is above it since top_k, which leaves 0.15 and drops 0.1 and 0.05
    assert_five(&p, "10010");
    p.temp = 4; // after this temperature, 0.15 would be above the threshold and alone
    p.xtc_threshold = 0.25f;
    for (int i = 0; i < 5; i++) want[i] = i == 0 || i == 3 ? pow(five[i], 0.25) : 0;
    assert_odds(&p, logits, 5, want);
}

static void test_temperature(void **state) {
    (void)state;
    static const float temps[] = {0.25f, 0.8f, 1, 2, 100};
    float logits[5];
    double want[5];
    five_logits(logits);
    for (size_t t = 0; t < ARRAY_LEN(temps); t++) {
        SamplerParams p = plain();
        p.temp = temps[t];
        for (int i = 0; i < 5; i++) want[i] = pow(five[i], 1 / (double)temps[t]);
        assert_odds(&p, logits, 5, want);
    }
    SamplerParams p = plain();
    p.temp = 1e-6f; // like greedy decoding, without overflow
    assert_odds(&p, logits, 5, (double[]){0, 1, 0, 0, 0});
}

static void test_ties_at_the_edge(void **state) {
    (void)state;
    float logits[] = {1, 2, 1, 1, 2};
    SamplerParams p = plain();
    p.top_k = 3; // both 2s and the lowest id of the logits of 1
    double e = exp(1);
    assert_odds(&p, logits, 5, (double[]){1, e, 0, 0, e});
}

// ---- a large vocabulary ---------------------------------------------------------------------------------------------

enum { LARGE = 5000 };

static int rank_of(const float *logits, int id) {
    int rank = 0;
    for (int i = 0; i < LARGE; i++) rank += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
    return rank;
}

static void test_top_k_of_many(void **state) {
    (void)state;
    static const int ks[] = {1, 2, 3, 40, 41, 1000, LARGE - 1, LARGE, LARGE + 1};
    static float logits[LARGE];
    static TokenLogprob top[LARGE];
    uint64_t random = 21;
    Sampler *s = sampler_new(LARGE);
    for (int i = 0; i < LARGE; i++) logits[i] = floorf(test_uniform(&random) * 1000) / 100 - 5; // some are equal
    for (size_t k = 0; k < ARRAY_LEN(ks); k++) {
        SamplerParams p = plain();
        p.top_k = ks[k];
        p.temp = 50; // nearly uniform, so that unlikely tokens are drawn too
        for (uint64_t i = 0; i < 300; i++) assert_true(rank_of(logits, draw_at(s, &p, logits, i)) < ks[k]);
        int n = ks[k] < LARGE ? ks[k] : LARGE;
        sampler_logprobs(s, logits, 0, top, n);
        for (int i = 0; i < n; i += i < 50 ? 1 : 97) assert_int_equal(rank_of(logits, top[i].id), i);
    }
    sampler_free(s);
}

// Without top-k and top-p nothing is sorted, and the draws are the same.
static void test_draws_without_an_order(void **state) {
    (void)state;
    static float logits[LARGE];
    uint64_t random = 22;
    Sampler *s = sampler_new(LARGE);
    for (int i = 0; i < LARGE; i++)
        logits[i] = i % 7 == 0 ? NAN : i % 5 == 0 ? -INFINITY : test_uniform(&random) * 9 - 5;
    for (int min = 0; min < 3; min++) {
        SamplerParams p = plain(), sorted;
        p.temp = 3;
        p.min_p = (float[]){0, 0.01f, 0.9f}[min];
        sorted = p;
        sorted.top_k = LARGE;
        p.top_k = 0;
        for (uint64_t i = 0; i < 300; i++) assert_int_equal(draw_at(s, &p, logits, i), draw_at(s, &sorted, logits, i));
    }
    for (int i = 0; i < LARGE; i++) logits[i] = -INFINITY;
    SamplerParams p = plain();
    assert_int_equal(draw_at(s, &p, logits, 0), -1);
    sampler_free(s);
}

// The vocabulary is scanned in blocks: the largest logit is found at every place of vocabularies of every length.
static void test_the_largest_at_every_place(void **state) {
    (void)state;
    enum { MOST = 200 };
    static const float others[] = {NAN, -INFINITY, -FLT_MAX, 6.5f};
    float logits[MOST];
    SamplerParams g = greedy(), p = plain();
    p.top_k = 1;
    for (int n = 1; n <= MOST; n++) {
        Sampler *s = sampler_new(n);
        for (int place = 0; place < n; place++) {
            for (int i = 0; i < n; i++) logits[i] = i == place ? 7 : others[(i + n) % 4];
            if (place + 1 < n) logits[n - 1] = 7; // an equal logit with a larger id
            assert_int_equal(draw_at(s, &g, logits, 0), place);
            assert_int_equal(draw_at(s, &p, logits, 0), place);
        }
        sampler_free(s);
    }
}

// ---- the random numbers ---------------------------------------------------------------------------------------------

static void test_draws_are_functions_of_their_keys(void **state) {
    (void)state;
    enum { N = 50 };
    static float logits[1000];
    uint64_t random = 22;
    for (int i = 0; i < 1000; i++) logits[i] = test_uniform(&random);
    Sampler *a = sampler_new(1000), *b = sampler_new(1000);
    SamplerParams p = plain();
    int ids[N], differ_seed = 0, differ_sequence = 0, differ_position = 0;
    for (int i = 0; i < N; i++) ids[i] = sampler_sample(a, &p, logits, NULL, 0, 3, (uint64_t)i);
    // in another order, with another sampler, with draws of other sequences between them
    for (int i = N - 1; i >= 0; i--) {
        SamplerParams other = p;
        other.seed = 43;
        sampler_sample(b, &other, logits, NULL, 0, 9, 9);
        assert_int_equal(sampler_sample(b, &p, logits, NULL, 0, 3, (uint64_t)i), ids[i]);
        differ_seed += sampler_sample(b, &other, logits, NULL, 0, 3, (uint64_t)i) != ids[i];
        differ_sequence += sampler_sample(b, &p, logits, NULL, 0, 4, (uint64_t)i) != ids[i];
        differ_position += sampler_sample(b, &p, logits, NULL, 0, 3, (uint64_t)(i + N)) != ids[i];
    }
    assert_true(differ_seed > N - 5 && differ_sequence > N - 5 && differ_position > N - 5);
    sampler_free(a);
    sampler_free(b);
}

// Two adjacent positions, sequences or seeds must not agree more often than by chance.
static void test_draws_are_independent(void **state) {
    (void)state;
    float logits[4] = {0};
    Sampler *s = sampler_new(4);
    SamplerParams p = plain();
    int pairs[3][16] = {{0}};
    for (uint64_t i = 0; i < 16000; i++) {
        p.seed = i;
        int here = sampler_sample(s, &p, logits, NULL, 0, i, i);
        pairs[0][4 * here + sampler_sample(s, &p, logits, NULL, 0, i, i + 1)]++;
        pairs[1][4 * here + sampler_sample(s, &p, logits, NULL, 0, i + 1, i)]++;
        p.seed = i + 1;
        pairs[2][4 * here + sampler_sample(s, &p, logits, NULL, 0, i, i)]++;
    }
    for (int k = 0; k < 3; k++)
        // five standard deviations of 31
        for (int i = 0; i < 16; i++) assert_in_range(pairs[k][i], 1000 - 155, 1000 + 155);
    sampler_free(s);
}

// ---- log-probabilities ----------------------------------------------------------------------------------------------

static void test_logprobs(void **state) {
    (void)state;
    float logits[5];
    TokenLogprob top[7];
    five_logits(logits);
    Sampler *s = sampler_new(5);
    double sum = 0;
    for (int i = 0; i < 5; i++) {
        float l = sampler_logprobs(s, logits, i, NULL, 0);
        assert_true(fabs((double)l - log(five[i])) < 1e-6);
        sum += exp((double)l);
    }
    assert_true(fabs(sum - 1) < 1e-6);
    assert_true(fabs((double)sampler_logprobs(s, logits, 2, top, 7) - log(0.05)) < 1e-6);
    static const int order[] = {1, 3, 0, 4, 2};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(top[i].id, order[i]);
        assert_true(fabs((double)top[i].logprob - log(five[order[i]])) < 1e-6);
    }
    // fewer candidates than requested
    for (int i = 5; i < 7; i++) assert_true(top[i].id == -1 && isinf(top[i].logprob));
    sampler_free(s);
}

static void test_logprobs_of_extremes(void **state) {
    (void)state;
    float logits[] = {1000, NAN, 1000, -INFINITY, -1000};
    TokenLogprob top[5];
    Sampler *s = sampler_new(5);
    assert_true(fabs((double)sampler_logprobs(s, logits, 0, top, 5) + log(2)) < 1e-6);
    assert_int_equal(top[0].id, 0);
    assert_int_equal(top[1].id, 2);
    assert_int_equal(top[2].id, 4);
    assert_true(fabs((double)top[2].logprob + 2000 + log(2)) < 1e-3);
    assert_int_equal(top[3].id, -1); // NaN and -inf are not candidates
    assert_int_equal(top[4].id, -1);
    sampler_free(s);
}

static void test_defaults(void **state) {
    (void)state;
    SamplerParams p = sampler_defaults();
    assert_true(p.temp == 0.8f && p.top_k == 40 && p.top_p == 0.95f && p.min_p == 0.05f && p.typical == 1);
    assert_true(p.xtc_probability == 0 && p.xtc_threshold == 0.1f);
    assert_true(p.repeat_penalty == 1 && p.repeat_last_n == 64 && p.presence_penalty == 0 && p.frequency_penalty == 0);
    assert_false(p.greedy);
    assert_int_equal(p.n_bias, 0);
    sampler_free(NULL);
}

static void test_exp_is_exact_enough(void **state) {
    (void)state;
    uint64_t random = 11;
    for (int i = 0; i < 20000; i++) {
        double x = ((double)test_uniform(&random) - 1) * (i % 2 ? 1 : 350);
        assert_true(fabs(sample_exp(x) / exp(x) - 1) <= 0x1p-51);
    }
    assert_true(sample_exp(0) == 1);
    assert_true(sample_exp(-INFINITY) == 0 && sample_exp(-1000) == 0);
}

static void test_log_is_exact_enough(void **state) {
    (void)state;
    uint64_t random = 12;
    for (int i = 0; i < 20000; i++) {
        double x = ldexp(1 + fabs((double)test_uniform(&random)), -(i % 53)), want = log(x);
        assert_true(fabs(race_log(x) - want) <= 4 * 0x1p-52 * fabs(want) + 1e-17);
    }
    assert_true(race_log(1) == 0 && race_log(0x1p-53) < -36.7 && race_log(1 - 0x1p-53) < 0);
}

// What is exactly at an edge: top_p ends with the token that reaches it, typical with the one that passes it; min_p and
// xtc include it.
static void test_edges_of_equal_odds(void **state) {
    (void)state;
    float four[4] = {0, 0, 0, 0}, two[3] = {1, 1, -40};
    SamplerParams p = plain();
    p.top_p = 0.5f;
    assert_odds(&p, four, 4, (double[]){1, 1, 0, 0});
    p = plain();
    p.typical = 0.5f;
    assert_odds(&p, four, 4, (double[]){1, 1, 1, 0});
    p = plain();
    p.min_p = 1;
    assert_odds(&p, two, 3, (double[]){1, 1, 0});
    p = plain();
    p.xtc_probability = 1;
    p.xtc_threshold = 0.5f;
    assert_odds(&p, two, 3, (double[]){0, 1, 0});
}

static void test_typical_and_the_rest(void **state) {
    (void)state;
    SamplerParams p = plain();
    p.typical = 0.8f; // keeps 0.3, 0.4 and 0.15, in this order of their distances
    p.min_p = 0.8f;
    assert_five(&p, "01000");
    float six[6];
    five_logits(six);
    six[5] = -300; // its probability is 0
    p = plain();
    p.typical = 0.2f;
    assert_odds(&p, six, 6, (double[]){0, 0, 0, 1, 0, 0});
}

static void test_finite(void **state) {
    (void)state;
    float row[3] = {NAN, INFINITY, -INFINITY};
    assert_false(sampler_any_finite(row, 3));
    Sampler *s = sampler_new(3);
    SamplerParams p = plain();
    TokenLogprob top[3];
    float infinite[3] = {0, INFINITY, 1};
    assert_int_equal(sampler_likeliest(s, &p, infinite, infinite, NULL, 0, top, 3), 0);
    sampler_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp_is_exact_enough),
        cmocka_unit_test(test_log_is_exact_enough),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_nan_and_infinities),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_infinite_bias),
        cmocka_unit_test(test_penalty_formulas),
        cmocka_unit_test(test_penalty_window),
        cmocka_unit_test(test_penalties_leave_nothing_behind),
        cmocka_unit_test(test_plain_draw),
        cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_top_p),
        cmocka_unit_test(test_min_p),
        cmocka_unit_test(test_typical),
        cmocka_unit_test(test_xtc),
        cmocka_unit_test(test_order_of_the_chain),
        cmocka_unit_test(test_edges_of_equal_odds),
        cmocka_unit_test(test_typical_and_the_rest),
        cmocka_unit_test(test_finite),
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_ties_at_the_edge),
        cmocka_unit_test(test_top_k_of_many),
        cmocka_unit_test(test_draws_without_an_order),
        cmocka_unit_test(test_the_largest_at_every_place),
        cmocka_unit_test(test_draws_are_functions_of_their_keys),
        cmocka_unit_test(test_draws_are_independent),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_logprobs_of_extremes),
        cmocka_unit_test(test_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
