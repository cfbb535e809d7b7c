// load/experts.c: mixtures of experts in a model file: how many there are, how a row chooses, their weights. See
// load/loader.h.
#include "load/loader.h"

#include <stdio.h>

enum { MAX_EXPERTS = 1 << 12, MAX_WIDTH = 1 << 24 };

// Experts in groups, of which a row chooses some first: no family here has them.
static Status refuse_groups(const Loader *l, int n_experts) {
    int n_groups;
    TRY(loader_int(l, "expert_group_count", 0, MAX_EXPERTS, false, 0, &n_groups));
    if (n_groups > 1 && n_experts % n_groups)
        return status_error(QUILL_MODEL, "%s: %s.expert_group_count: a divisor of the %d experts expected, %d found",
                            l->file, l->family->arch, n_experts, n_groups);
    if (n_groups > 1)
        return status_error(QUILL_MODEL, "%s: %s.expert_group_count is %d: groups of experts are not supported",
                            l->file, l->family->arch, n_groups);
    return OK;
}

// 1: softmax over all, then the choice; 3: over the chosen alone. Which of these it is, Routing says.
static Status check_gating(const Loader *l) {
    int gating;
    TRY(loader_int(l, "expert_gating_func", 0, 1 << 30, false, 0, &gating));
    if (gating == 0 || gating == 1 || gating == 3) return OK;
    return status_error(QUILL_MODEL, "%s: %s.expert_gating_func: 1 or 3 (softmax) expected, %d found", l->file,
                        l->family->arch, gating);
}

Status loader_experts_shape(const Loader *l) {
    ModelConfig *c = &l->m->c;
    const Family *f = l->family;
    char key[96];
    snprintf(key, sizeof key, "%s.expert_feed_forward_length", f->arch);
    bool has_width = gguf_value(l->g, key);
    bool always = f->experts == EXPERTS_ALWAYS;
    TRY(loader_int(l, "expert_count", always, MAX_EXPERTS, always, 0, &c->n_experts));
    if (c->n_experts > 0 && f->experts == EXPERTS_NEVER)
        return status_error(QUILL_MODEL, "%s: %s.expert_count is %d: experts are not supported in this family", l->file,
                            f->arch, c->n_experts);
    bool required = c->n_experts == 0 || !has_width;
    TRY(loader_int(l, "feed_forward_length", required ? 1 : 0, MAX_WIDTH, required, 0, &c->ffn));
    if (c->n_experts == 0) return OK;
    TRY(loader_int(l, "expert_used_count", 1, c->n_experts, true, 0, &c->n_used));
    TRY(refuse_groups(l, c->n_experts));
    TRY(check_gating(l));
    int shared = loader_layer_has(l, 0, "ffn_gate_shexp") ? c->ffn : 0;
    TRY(loader_int(l, "expert_shared_feed_forward_length", 0, MAX_WIDTH, false, shared, &c->ffn_shared));
    int usual = always ? int_max(1, c->ffn / c->n_used) : c->ffn;
    return loader_int(l, "expert_feed_forward_length", 1, MAX_WIDTH, false, usual, &c->ffn);
}

// What a layer does with its experts.
static Status describe(const Loader *l, LayerKind *k) {
    const ModelConfig *c = &l->m->c;
    char key[96];
    bool renormalised;
    k->ffn = FFN_EXPERTS;
    k->n_experts = c->n_experts;
    k->n_used = c->n_used;
    snprintf(key, sizeof key, "%s.expert_weights_norm", l->family->arch);
    TRY(gguf_bool(l->g, key, &renormalised, l->family->routing == ROUTE_CHOSEN));
    k->routing = renormalised ? ROUTE_CHOSEN : ROUTE_ALL;
    return loader_scale(l, "expert_weights_scale", 1, &k->route_scale);
}

Status loader_experts(const Loader *l, int i) {
    const ModelConfig *c = &l->m->c;
    Layer *y = &l->m->layers[i];
    TRY(describe(l, &y->kind));
    TRY(loader_layer_matrix(l, i, "ffn_gate_inp", &y->router, c->n_experts, c->dim));
    TRY(loader_layer_stack(l, i, "ffn_gate_exps", &y->w_gate, c->n_experts, c->ffn, c->dim));
    TRY(loader_layer_stack(l, i, "ffn_up_exps", &y->w_up, c->n_experts, c->ffn, c->dim));
    TRY(loader_layer_stack(l, i, "ffn_down_exps", &y->w_down, c->n_experts, c->dim, c->ffn));
    if (c->ffn_shared == 0) return OK;
    TRY(loader_layer_matrix(l, i, "ffn_gate_shexp", &y->shared_gate, c->ffn_shared, c->dim));
    TRY(loader_layer_matrix(l, i, "ffn_up_shexp", &y->shared_up, c->ffn_shared, c->dim));
    TRY(loader_layer_matrix(l, i, "ffn_down_shexp", &y->shared_down, c->dim, c->ffn_shared));
    if (!loader_layer_has(l, i, "ffn_gate_inp_shexp")) return OK;
    return loader_layer_matrix(l, i, "ffn_gate_inp_shexp", &y->shared_route, 1, c->dim);
}
