// policy/drafters.c: opens and checks the drafters that --speculate names. See policy/drafters.h.
#include "policy/drafters.h"

#include <string.h>

#include "base/units.h"
#include "bench/roofline.h"
#include "engine_file.h"

// Up to so many sequences can each have the full number of drafts in a step; more sequences share the same rows.
enum { FULL_SEQUENCES = 8 };

int drafters_rows(const EngineConfig *config, int n_seqs) {
    return n_seqs + config->draft_max * int_min(n_seqs, FULL_SEQUENCES);
}

// ---- the draft model ------------------------------------------------------------------------------------------------

static Status check_size(const Model *draft, const DraftTarget *target) {
    char a[24], b[24];
    size_t found = model_weight_bytes(draft), most = model_weight_bytes(target->model);
    if (found <= most) return OK;
    return status_error(
        QUILL_MODEL,
        "%.300s: a draft model no larger than %.300s (%s) expected, one of %s found; the two may be the "
        "wrong way round",
        gguf_name(draft->gguf), gguf_name(target->gguf), units_bytes((double)most, b), units_bytes((double)found, a));
}

static Status check_vocabulary(const Gguf *draft, const DraftTarget *target) {
    Tokenizer *own = NULL, *theirs = NULL;
    Status st = engine_file_tokenizer(draft, &own);
    if (!st.code && !target->tok) st = engine_file_tokenizer(target->gguf, &theirs);
    if (!st.code)
        st = draft_model_check_vocabulary(own, gguf_name(draft), target->tok ? target->tok : theirs,
                                          gguf_name(target->gguf));
    tokenizer_free(own);
    tokenizer_free(theirs);
    return st;
}

// The shape of a cache with as many slots as the target's. A refused draft is removed again, whatever layers there are.
static KvShape draft_kv(const EngineConfig *config, const DraftTarget *target) {
    const KvShape *t = target->kv;
    KvShape kv = {.n_ctx = t->n_ctx,
                  .n_seqs = t->n_seqs,
                  .share = t->share,
                  .block = t->share ? t->block : 0,
                  .n_back = config->draft_max};
    if (t->share) kv.n_blocks = t->n_blocks;
    return kv;
}

static Status open_model(const EngineConfig *config, const char *name, const DraftTarget *target, DraftModel **out) {
    EngineConfig own = {.model = name, .quiet = config->quiet};
    Gguf *g;
    TRY(engine_file_open(&own, &g));
    Status st = check_vocabulary(g, target);
    if (st.code) {
        gguf_close(g);
        return st;
    }
    TRY(draft_model_open(g, target->be, target->model->c.n_vocab, out));
    return check_size(draft_model_weights(*out), target);
}

// ---- open, close ----------------------------------------------------------------------------------------------------

// Weights of at most half the last-level cache stay there from step to step; the rest is for K, V and activations.
static WeightsPlace place_of(const Model *m) {
    if (m->n_device > 0) return WEIGHTS_ON_GPU;
    return model_weight_bytes(m) <= roofline_cache_bytes() / 2 ? WEIGHTS_IN_CACHES : WEIGHTS_IN_MEMORY;
}

// The step costs that `bench --roofline` has measured on the same unit, with weights in memory, or else the built-in
// ones.
static StepCosts costs_for(const Model *m, const char *unit) {
    double bits = 8 * (double)model_weight_bytes(m) / (double)model_n_params(m);
    WeightsPlace place = place_of(m);
    Roofline stored;
    bool there = place == WEIGHTS_IN_MEMORY && roofline_load(&stored) && strcmp(stored.steps_unit, unit) == 0;
    const StepCosts *measured = there ? &stored.steps[bits < 7] : NULL;
    if (measured && measured->at[0] > 0) return *measured;
    return step_costs_of(unit, bits, place);
}

// The time of a step of one row of the draft model, in those of the target, plus a fixed overhead: the ratio of the
// weights that a row reads, or if the target's lie in caches the ratio of the products that it computes.
static double draft_cost(const Model *draft, const Model *target) {
    const double least = 0.01;
    if (place_of(target) == WEIGHTS_IN_CACHES)
        return least + (double)model_active_params(draft) / (double)model_active_params(target);
    return least + (double)model_row_bytes(draft) / (double)model_row_bytes(target);
}

// The same of a prediction head.
static double head_cost(const Mtp *mtp, const Model *target) {
    return (double)mtp_row_bytes(mtp) / (double)model_row_bytes(target);
}

Status drafters_open(const EngineConfig *config, const DraftTarget *target, int n_seqs, Drafters *out) {
    *out = (Drafters){0};
    const char *name = drafters_model(config->speculate);
    if (!name) return OK;
    if (strcmp(name, DRAFTERS_MTP) == 0) {
        TRY(mtp_open(target->model, &out->mtp));
        out->memory = mtp_memory(out->mtp, threads_count(target->pool), n_seqs);
        return OK;
    }
    Status st = open_model(config, name, target, &out->model);
    if (st.code) drafters_close(out);
    else out->memory = draft_model_memory(out->model, threads_count(target->pool), n_seqs, config->draft_max);
    return st;
}

Status drafters_begin(Drafters *d, const EngineConfig *config, const DraftTarget *target) {
    SpeculatePlan plan = {.ngram = drafters_use_ngram(config->speculate),
                          .tok = target->tok,
                          .most = config->draft_max,
                          .least = config->draft_min,
                          .least_p = config->draft_p_min,
                          .costs = costs_for(target->model, target->unit)};
    if (d->model) {
        TRY(draft_model_begin(d->model, target->pool, draft_kv(config, target)));
        plan.drafter = draft_model_drafter(d->model);
        const Model *draft = draft_model_weights(d->model);
        plan.draft_cost = draft_cost(draft, target->model);
        plan.draft_costs = costs_for(draft, target->unit);
    }
    if (d->mtp) {
        TRY(mtp_begin(d->mtp, target->pool, draft_kv(config, target)));
        plan.drafter = mtp_drafter(d->mtp);
        plan.draft_cost = head_cost(d->mtp, target->model);
        plan.draft_costs = plan.costs;
    }
    d->speculate = speculate_new(&plan);
    return OK;
}

void drafters_close(Drafters *d) {
    speculate_free(d->speculate);
    draft_model_free(d->model);
    mtp_free(d->mtp);
    *d = (Drafters){0};
}
