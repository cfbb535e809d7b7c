// load/experts.c: loads mixtures of experts from a model file: their number, their routing, their weights. See
// load/loader.h.
#include "load/loader.h"

#include <math.h>
#include <stdio.h>

enum {
    MAX_WIDTH = 1 << 24,
    MAX_USED = 1 << 30, // elements of a row's experts together, which Workspace.ffn counts as an int
};

// Reads the groups of experts (LayerKind.n_groups), which stay 0 if every group is used.
static Status load_groups(const Loader *l, LayerKind *k) {
    const char *arch = l->family->arch;
    int n, used;
    TRY(loader_int(l, "expert_group_count", 0, k->n_experts, false, 0, &n));
    TRY(loader_int(l, "expert_group_used_count", 0, int_max(n, 1), false, 0, &used));
    if (n <= 1) return OK;
    if (k->n_experts % n)
        return status_error(QUILL_MODEL, "%s: %s.expert_group_count: a divisor of the %d experts expected, %d found",
                            l->file, arch, k->n_experts, n);
    if (n > MOST_EXPERT_GROUPS || used < 1 || (int64_t)used * (k->n_experts / n) < k->n_used)
        return status_error(QUILL_MODEL,
                            "%s: %s.expert_group_used_count: of up to %d groups so many expected that %d experts can "
                            "be chosen, %d of %d found",
                            l->file, arch, MOST_EXPERT_GROUPS, k->n_used, used, n);
    if (used == n) return OK; // all groups are used
    k->n_groups = n;
    k->n_groups_used = used;
    return OK;
}

enum { SOFTMAX = 1, SIGMOID = 2, SOFTMAX_CHOSEN = 3 }; // expert_gating_func

// The first files of GLM 4.7 Flash lack expert_gating_func; its experts have sigmoids. llama.cpp knows it by these
// sizes.
static bool is_glm_flash(const Loader *l) {
    const ModelConfig *c = &l->m->c;
    return l->family->latent && (c->n_layers == 47 || c->n_layers == 48) && c->n_vocab == 154880;
}

// Reads how experts are weighted. expert_gating_func 1: softmax over all experts; 3: softmax over the chosen ones; 2:
// sigmoids. expert_weights_norm decides whether the weights are divided by their sum. The family decides what a file
// without these keys has.
static Status load_routing(const Loader *l, Routing *out) {
    int gating;
    char key[96];
    Routing usual = l->family->routing;
    bool renormalised;
    *out = usual;
    if (route_weighs_inputs(usual)) return OK; // Llama 4's files have no such keys
    TRY(loader_int(l, "expert_gating_func", 0, 1 << 30, false, 0, &gating));
    if (gating > SOFTMAX_CHOSEN)
        return status_error(QUILL_MODEL,
                            "%s: %s.expert_gating_func: 1 or 3 (softmax), or 2 (sigmoid) expected, %d found", l->file,
                            l->family->arch, gating);
    snprintf(key, sizeof key, "%s.expert_weights_norm", l->family->arch);
    TRY(gguf_bool(l->g, key, &renormalised, usual == ROUTE_CHOSEN || usual == ROUTE_SIGMOID_CHOSEN));
    bool sigmoids = usual == ROUTE_SIGMOID || usual == ROUTE_SIGMOID_CHOSEN || is_glm_flash(l);
    if (gating == 0 && sigmoids) gating = SIGMOID;
    if (gating == SIGMOID) *out = renormalised ? ROUTE_SIGMOID_CHOSEN : ROUTE_SIGMOID;
    else *out = renormalised || gating == SOFTMAX_CHOSEN ? ROUTE_CHOSEN : ROUTE_ALL;
    return OK;
}

bool loader_has_experts(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    return c->n_experts > 0 && i >= c->n_dense && (i + 1) % c->expert_step == 0;
}

// Reads the width of the shared expert: from its own key, as a multiple of an expert's width, or equal to the
// feed-forward without experts.
static Status load_shared_width(const Loader *l, int dense) {
    ModelConfig *c = &l->m->c;
    int n;
    if (l->family->dense_beside || l->family->shared_expert) {
        c->ffn_shared = l->family->shared_expert ? c->ffn : dense;
        return OK;
    }
    TRY(loader_int(l, "expert_shared_count", 0, MAX_WIDTH / c->ffn, false, 0, &n));
    int first = 0, usual = n * c->ffn;
    while (first < c->n_layers && !loader_has_experts(l, first)) first++;
    if (n == 0) usual = loader_layer_has(l, first, "ffn_gate_shexp") ? dense : 0;
    return loader_int(l, "expert_shared_feed_forward_length", 0, MAX_WIDTH, false, usual, &c->ffn_shared);
}

Status loader_experts_shape(Loader *l) {
    ModelConfig *c = &l->m->c;
    const Family *f = l->family;
    char key[96];
    snprintf(key, sizeof key, "%s.expert_feed_forward_length", f->arch);
    bool has_width = gguf_value(l->g, key);
    bool always = f->experts == EXPERTS_ALWAYS;
    TRY(loader_int(l, "expert_count", always, MOST_EXPERTS, always, 0, &c->n_experts));
    if (c->n_experts > 0 && f->experts == EXPERTS_NEVER)
        return status_error(QUILL_MODEL, "%s: %s.expert_count is %d: experts are not supported in this family", l->file,
                            f->arch, c->n_experts);
    bool required = c->n_experts == 0 || !has_width || f->parts_apart;
    bool all = required && !f->parts_apart; // layers have one
    TRY(loader_layer_ints(l, "feed_forward_length", all ? 1 : 0, MAX_WIDTH, required, 0, &l->ffn));
    for (int i = 0; i < c->n_layers; i++) c->ffn = int_max(c->ffn, l->ffn[i]);
    if (c->n_experts == 0) return OK;
    int dense = c->ffn, usual;
    TRY(loader_int(l, "interleave_moe_layer_step", 1, c->n_layers, false, 1, &c->expert_step));
    TRY(loader_int(l, "leading_dense_block_count", 0, c->n_layers, false, 0, &c->n_dense));
    bool plain = c->n_dense > 0 || c->expert_step > 1; // there are layers without experts
    if (plain) c->ffn_dense = dense;
    if (plain && dense == 0)
        return status_error(QUILL_MODEL,
                            "%s: %s.feed_forward_length: the width of the layers without experts expected, 0 found",
                            l->file, f->arch);
    TRY(loader_int(l, "expert_used_count", 1, c->n_experts, true, 0, &c->n_used));
    usual = always ? int_max(1, dense / c->n_used) : dense;
    TRY(loader_int(l, "expert_feed_forward_length", 1, MAX_WIDTH, false, usual, &c->ffn));
    if ((int64_t)c->ffn * c->n_used > MAX_USED)
        return status_error(QUILL_MODEL, "%s: %s.expert_used_count: at most %d experts of width %d expected, %d found",
                            l->file, f->arch, MAX_USED / c->ffn, c->ffn, c->n_used);
    return load_shared_width(l, dense);
}

// Sets the hyper-parameters of a layer with experts.
static Status describe(const Loader *l, LayerKind *k) {
    const ModelConfig *c = &l->m->c;
    k->ffn = FFN_EXPERTS;
    k->n_experts = c->n_experts;
    k->n_used = c->n_used;
    k->route_scale = 1;
    TRY(load_routing(l, &k->routing));
    if (route_weighs_inputs(k->routing)) return OK; // Llama 4's files have no keys for the rest
    TRY(load_groups(l, k));
    return loader_scale(l, "expert_weights_scale", 1, &k->route_scale);
}

// Loads the plain feed-forward beside the experts (Family.dense_beside) as their shared expert, with norms of its own.
static Status load_dense_beside(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    const float *scale;
    TRY(loader_layer_vector(l, i, "pre_ffw_norm_2", &y->norm_experts, c->dim, true));
    TRY(loader_layer_vector(l, i, "post_ffw_norm_1", &y->norm_shared_out, c->dim, true));
    TRY(loader_layer_vector(l, i, "post_ffw_norm_2", &y->norm_experts_out, c->dim, true));
    TRY(loader_layer_named(l, i, "ffn_gate_inp.scale", &scale, c->dim, false));
    float *norm = loader_own_floats(l->m, (size_t)c->dim), root = sqrtf((float)c->dim);
    for (int k = 0; k < c->dim; k++) norm[k] = (scale ? scale[k] : 1) / root;
    y->norm_router = norm;
    TRY(loader_layer_matrix(l, i, "ffn_gate", &y->shared_gate, c->ffn_shared, c->dim));
    TRY(loader_layer_matrix(l, i, "ffn_up", &y->shared_up, c->ffn_shared, c->dim));
    return loader_layer_matrix(l, i, "ffn_down", &y->shared_down, c->dim, c->ffn_shared);
}

// Loads the stacks of gate and up. They may be one tensor: for each expert the rows of the gate, then those of up.
static Status load_gate_up(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    Tensor both;
    if (l->family->ungated) return loader_layer_stack(l, i, "ffn_up_exps", &y->w_gate, c->n_experts, c->ffn, c->dim);
    if (!loader_layer_has(l, i, "ffn_gate_up_exps")) {
        TRY(loader_layer_stack(l, i, "ffn_gate_exps", &y->w_gate, c->n_experts, c->ffn, c->dim));
        return loader_layer_stack(l, i, "ffn_up_exps", &y->w_up, c->n_experts, c->ffn, c->dim);
    }
    TRY(loader_layer_stack(l, i, "ffn_gate_up_exps", &both, c->n_experts, 2 * c->ffn, c->dim));
    size_t before = (size_t)c->ffn * (size_t)c->dim; // elements of a gate
    if (both.scales && before % (size_t)both.group)
        return status_error(QUILL_MODEL, "%s: tensor blk.%d.ffn_gate_up_exps.weight: groups within its parts expected",
                            l->file, i);
    both.stack_rows = 2 * c->ffn;
    both.n_out = c->ffn;
    y->w_gate = y->w_up = both;
    y->w_up.data = (const char *)both.data + (size_t)c->ffn * both.row_bytes;
    if (both.bias) y->w_up.bias = both.bias + c->ffn;
    if (both.scales) // unaligned
        y->w_up.scales = (const void *)((const char *)both.scales + before / (size_t)both.group * sizeof(float));
    return OK;
}

// Loads what is added to the scores that experts are chosen by. The backends compare the sums, so NaN must not occur.
static Status load_expert_bias(const Loader *l, int i) {
    static const float most = 1e30f; // far above any trained one; two of them and two scores add up to a finite f32
    Layer *y = &l->m->layers[i];
    const char *name = "exp_probs_b.bias";
    TRY(loader_layer_named(l, i, name, &y->expert_bias, l->m->c.n_experts, false));
    if (!y->expert_bias) name = "exp_probs_b"; // in hy_v3
    if (!y->expert_bias) TRY(loader_layer_named(l, i, name, &y->expert_bias, l->m->c.n_experts, false));
    for (int k = 0; y->expert_bias && k < l->m->c.n_experts; k++)
        if (!(fabsf(y->expert_bias[k]) <= most)) // NaN too
            return status_error(QUILL_MODEL,
                                "%s: tensor blk.%d.%s: numbers from %g to %g expected, %g found for expert %d", l->file,
                                i, name, -(double)most, (double)most, (double)y->expert_bias[k], k);
    return OK;
}

Status loader_experts(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    TRY(describe(l, &y->kind));
    TRY(loader_layer_matrix(l, i, "ffn_gate_inp", &y->router, c->n_experts, c->dim));
    TRY(load_gate_up(l, i));
    TRY(loader_layer_stack(l, i, "ffn_down_exps", &y->w_down, c->n_experts, c->dim, c->ffn));
    if (!route_weighs_inputs(y->kind.routing)) {
        TRY(load_expert_bias(l, i));
        TRY(loader_layer_named(l, i, "ffn_down_exps.scale", &y->expert_scale, c->n_experts, false));
    }
    if (l->family->dense_beside) return load_dense_beside(l, i);
    if (c->ffn_shared == 0) return OK;
    Tensor *up = l->family->ungated ? &y->shared_gate : &y->shared_up;
    if (!l->family->ungated) TRY(loader_layer_matrix(l, i, "ffn_gate_shexp", &y->shared_gate, c->ffn_shared, c->dim));
    TRY(loader_layer_matrix(l, i, "ffn_up_shexp", up, c->ffn_shared, c->dim));
    TRY(loader_layer_matrix(l, i, "ffn_down_shexp", &y->shared_down, c->dim, c->ffn_shared));
    if (!loader_layer_has(l, i, "ffn_gate_inp_shexp")) return OK;
    return loader_layer_matrix(l, i, "ffn_gate_inp_shexp", &y->shared_route, 1, c->dim);
}
