// bench/step_costs.c: see bench/step_costs.h.
#include "bench/step_costs.h"

#include <math.h>
#include <stdio.h>

#include "base/stats.h"
#include "bench/shape.h"
#include "bench/steps.h"

#define STEP_SHAPE "dim=2048,layers=6,heads=32,kv_heads=4,ffn=5632,vocab=512"
enum { REPETITIONS = 7, MOST_ROWS = 32 };

// The time of a step with `rows` rows at the beginning of a text, all with logits.
static double step_seconds(Engine *e, Sequence *q, Step *t, int rows, uint64_t *drawn) {
    kvcache_truncate(&e->kv, q, 0);
    steps_push(e, q, rows, drawn);
    kvcache_reserve(&e->kv, q, rows);
    step_clear(t);
    StepRows *r = step_add(t, NULL, q, rows, true);
    r->first_out = 0;
    r->n_out = t->batch.n_out = rows;
    double start = clock_now();
    steps_forward(e, t);
    return clock_now() - start;
}

// The costs are medians of rounds with all numbers of rows in turn, so that another program's burst slows a round and
// not all steps of one number.
static void costs_of(double times[STEP_COSTS][REPETITIONS], StepCosts *out) {
    double one = stats_median(times[0], REPETITIONS), most = 1;
    for (int i = 0; i < STEP_COSTS; i++) out->at[i] = most = fmax(most, stats_median(times[i], REPETITIONS) / one);
}

Status step_costs_measure(const EngineConfig *config, int type, StepCosts *out, char unit[16]) {
    Gguf *g;
    Engine e;
    TRY(shape_model(STEP_SHAPE, type, 1, &g));
    EngineConfig own = {.isa = config->isa, .device = "cpu", .quiet = true, .gpu_layers = -1, .kv_block = 32};
    own.type_k = own.type_v = KV_TYPE_AUTO;
    EngineNeeds needs = {.n_ctx = MOST_ROWS, .n_seqs = 1, .max_out = MOST_ROWS};
    TRY(engine_open_view(&e, &own, needs, g));
    Sequence q = {0};
    Step t;
    step_new(&t, &e.kv, MOST_ROWS, 1);
    double times[STEP_COSTS][REPETITIONS];
    uint64_t drawn = 0;
    for (int round = -1; round < REPETITIONS; round++) // the first one warms up
        for (int i = 0; i < STEP_COSTS; i++) {
            double seconds = step_seconds(&e, &q, &t, step_cost_rows[i], &drawn);
            if (round >= 0) times[i][round] = seconds;
        }
    costs_of(times, out);
    snprintf(unit, 16, "%s", engine_prefill_unit(&e));
    step_free(&t);
    sequence_end(&e.kv, &q);
    engine_close(&e);
    return OK;
}
