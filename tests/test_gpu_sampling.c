// tests/test_gpu_sampling.c: the GPU draws the tokens that the host draws.
#include "tests/rig/testing.h"

#include "sampler.h"
#include "tests/rig/gpu_compare.h"

#include <math.h>

enum { N_DRAWS = 6 };

// What the draws advance: tokens become -1, the other numbers grow by one.
static void check_advance(const char *name, const int last[N_DRAWS], const GpuSample plans[N_DRAWS],
                          const GpuAdvance *advance, const GpuSample *there) {
    GpuSample after[N_DRAWS];
    device_read(after, there, sizeof after);
    for (int i = 0; i < N_DRAWS; i++)
        if (after[i].position != plans[i].position + (advance->token != NULL)) fail_msg("%s: a draw's position", name);
    const int *const numbers[] = {advance->token, advance->pos, advance->slot, advance->since};
    for (int k = 0; k < 4 && advance->token; k++) {
        int found[N_DRAWS];
        if (!numbers[k]) continue;
        device_read(found, numbers[k], sizeof found);
        for (int i = 0; i < N_DRAWS; i++) assert_int_equal(found[i], k == 0 ? -1 : last[i] + 1);
    }
}

static void same_draws(const char *name, SamplerParams p, int n_vocab, uint64_t seed) {
    gpu_compare_case = name;
    uint64_t random = seed;
    float *logits = malloc((size_t)N_DRAWS * (size_t)n_vocab * sizeof *logits);
    for (size_t i = 0; i < (size_t)N_DRAWS * (size_t)n_vocab; i++) {
        uint64_t u = test_random(&random);
        logits[i] = 8 * test_uniform(&random);
        if (u % 16 == 0) logits[i] = 4; // equal logits
        else if (u % 101 == 1) logits[i] = NAN;
        else if (u % 101 == 2) logits[i] = -INFINITY;
        else if (u % 101 == 3) logits[i] = u & 1024 ? 0.0f : -0.0f;
    }
    Sampler *s = sampler_new(n_vocab);
    GpuSample plans[N_DRAWS];
    int last[N_DRAWS], expected[N_DRAWS], sampled[N_DRAWS];
    for (int i = 0; i < N_DRAWS; i++) {
        int history[64], n = 30 + i, pending = i % 2; // in every second history the last token is not known to the host
        for (int k = 0; k < 64; k++) history[k] = (int)(test_random(&random) % (uint64_t)n_vocab / 4);
        last[i] = history[n - 1];
        p.seed = seed + (uint64_t)i % 2;
        gpu_sample_plan(&plans[i], &(Draw){&p, (uint64_t)i, history, n - pending, pending});
        plans[i].window = device_new(plans[i].window, (size_t)(plans[i].n_window + 1) * sizeof *history);
        plans[i].bias = p.n_bias ? device_new(p.bias, (size_t)p.n_bias * sizeof *p.bias) : NULL;
        expected[i] = sampler_sample(s, &p, logits + (size_t)i * (size_t)n_vocab, history, n, (uint64_t)i, (uint64_t)n);
    }
    int *out = device_new(last, sizeof last), want = gpu_sample_wants(&plans[0], n_vocab);
    GpuSample *there = device_new(plans, sizeof plans);
    GpuAdvance advance = {0};
    if (want <= GPU_SAMPLE_TOP)
        advance = (GpuAdvance){device_new(last, sizeof last), device_new(last, sizeof last),
                               device_new(last, sizeof last), n_vocab % 2 ? device_new(last, sizeof last) : NULL};
    void *zeros = calloc(1, gpu_sample_bytes(n_vocab, N_DRAWS));
    gpu_sample(out, device_new(logits, (size_t)N_DRAWS * (size_t)n_vocab * sizeof *logits), n_vocab, there, N_DRAWS,
               want, advance, device_new(zeros, gpu_sample_bytes(n_vocab, N_DRAWS)), NULL);
    free(zeros);
    gpu_compare_launched();
    device_read(sampled, out, sizeof sampled);
    for (int i = 0; i < N_DRAWS; i++)
        if (sampled[i] != expected[i]) fail_msg("%s: token %d expected, %d found", name, expected[i], sampled[i]);
    check_advance(name, last, plans, &advance, there);
    sampler_free(s);
    free(logits);
    device_free_all();
}

static void draws(void **state) {
    (void)state;
    SamplerParams p = sampler_defaults();
    assert_true(draw_anywhere(&p));
    same_draws("the defaults", p, 3001, 1);
    p.greedy = true;
    same_draws("greedy", p, 3001, 11);
    p.greedy = false, p.top_k = 64;
    same_draws("top-k 64", p, 5003, 12);
    p.top_k = 65;
    same_draws("top-k 65", p, 5003, 13);
    p.top_k = 7, p.min_p = 0.3f;
    same_draws("few slices, top-k 7", p, 700, 14);
    p.xtc_probability = 1, p.min_p = 0;
    same_draws("few slices, top choices left out", p, 700, 16);
    p = sampler_defaults();
    p.xtc_probability = 0.5f, p.xtc_threshold = 0.03f;
    for (int seed = 17; seed < 21; seed++) same_draws("some draws without their top choices", p, 3001, (uint64_t)seed);
    p.xtc_probability = 1, p.xtc_threshold = 0.001f, p.top_k = 300;
    same_draws("top choices among many", p, 5003, 21);
    p.top_k = 0, p.top_p = 1, p.xtc_threshold = 0;
    same_draws("the least likely of all", p, 5003, 22);
    p = sampler_defaults();
    p.repeat_penalty = 1.3f, p.frequency_penalty = 0.2f, p.presence_penalty = 0.1f, p.repeat_last_n = 7;
    same_draws("penalties", p, 3001, 2);
    p.repeat_last_n = -1;
    same_draws("penalties over all", p, 2048, 3);
    p.repeat_last_n = 1;
    same_draws("the last token's penalty", p, 3001, 10);
    static const LogitBias bias[] = {{5, 20}, {2900, INFINITY}, {5, -0.5f}, {7, -INFINITY}, {99999, 1}};
    p.bias = bias, p.n_bias = ARRAY_LEN(bias);
    same_draws("a bias", p, 3001, 4);
    p = sampler_defaults();
    p.top_k = 0;
    same_draws("all candidates", p, 5003, 5);
    p.top_p = 1, p.min_p = 0, p.temp = 1.7f;
    same_draws("plain softmax", p, 5003, 6);
    p.top_k = 1000, p.top_p = 0.5f;
    same_draws("top-k 1000", p, 5003, 7);
    p.greedy = true;
    same_draws("greedy", p, 5003, 8);
    p.greedy = false, p.top_k = 0, p.top_p = 1, p.temp = 50;
    same_draws("a block of fewer threads than candidates", p, 60, 15);
    p.typical = 0.9f;
    assert_false(draw_anywhere(&p));
    same_draws("one token", sampler_defaults(), 1, 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
