// tests/rig/plain_route.c: see tests/rig/plain_route.h.
#include "tests/rig/plain_route.h"

// The index of the largest of n numbers that is not yet taken.
static int best_left(const double *v, const bool *taken, int n) {
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || v[i] > v[best])) best = i;
    return best;
}

// Experts of groups that are not among the best become -INFINITY: a group is as good as the sum of its n_best best.
static void drop_groups(const Plain *p, double *by, int n, int n_best) {
    int n_groups = (int)number(p, "expert_group_count", 1), used = (int)number(p, "expert_group_used_count", n_groups);
    int size = n / n_groups;
    double score[64];
    bool stays[64] = {false};
    for (int g = 0; g < n_groups; g++) {
        bool taken[512] = {false};
        score[g] = 0;
        for (int k = 0; k < n_best && k < size; k++) {
            int best = best_left(by + g * size, taken, size);
            taken[best] = true;
            score[g] += by[g * size + best];
        }
    }
    for (int k = 0; k < used; k++) stays[best_left(score, stays, n_groups)] = true;
    for (int i = 0; i < n; i++)
        if (!stays[i / size]) by[i] = -INFINITY;
}

void plain_route(const Plain *p, int layer, const double *logits, int n, double *weight) {
    int n_used = (int)number(p, "expert_used_count", 0);
    bool sigmoids = number(p, "expert_gating_func", 0) == 2 || is_apart(p) || is(p, "llama4"), used[512] = {false};
    static const char *const unnormed[] = {"qwen2moe", "deepseek2", "mistral4",   "olmoe", "glm4moe", "bailingmoe2",
                                           "hy_v3",    "dots1",     "exaone-moe", "afmoe", "llama4"};
    bool normed = true;
    for (size_t i = 0; i < ARRAY_LEN(unnormed); i++) normed = normed && !is(p, unnormed[i]);
    const GgufTensor *bias = tensor_of(p, layer, "exp_probs_b", "bias"), *scale;
    if (is(p, "hy_v3")) bias = tensor_of(p, layer, "exp_probs_b", NULL);
    scale = tensor_of(p, layer, "ffn_down_exps", "scale");
    double by[512], part[512], all = 0, sum = 0;
    plain_switch(p, "expert_weights_norm", &normed);
    for (int i = 0; i < n; i++) {
        part[i] = sigmoids ? 1 / (1 + exp(-logits[i])) : exp(logits[i]);
        all += sigmoids ? 0 : part[i];
        weight[i] = 0;
    }
    for (int i = 0; i < n; i++)
        by[i] = part[i] / (sigmoids ? 1 : all) + (bias ? (double)((const float *)bias->data)[i] : 0);
    if (number(p, "expert_group_count", 1) > 1) drop_groups(p, by, n, sigmoids ? 2 : 1);
    for (int k = 0; k < n_used; k++) {
        int best = best_left(by, used, n);
        used[best] = true;
        sum += part[best];
    }
    double divisor = normed ? sum + (sigmoids ? 1e-20 : 0) : sigmoids ? 1 : all;
    for (int i = 0; i < n; i++)
        if (used[i])
            weight[i] = part[i] / divisor * number(p, "expert_weights_scale", 1) *
                        (scale ? (double)((const float *)scale->data)[i] : 1);
}
