// blend/errors.c: see blend/errors.h.
#include "blend/errors.h"

#include <math.h>
#include <stdlib.h>

#include "base/signals.h"
#include "kv/kvrows.h"

// K, then V, of n slots of a layer as f32; the caller frees them. layer: counts the layers of both pools in their
// order. *n_values: the number of floats.
static float *load_layer(const KvCache *kv, const Sequence *q, int layer, int first, int n, size_t *n_values) {
    const KvPool *pool = &kv->pool[layer < kv->pool[KV_FULL].n_layers ? KV_FULL : KV_WINDOW];
    size_t each = (size_t)n * (size_t)pool->n_kv_heads * (size_t)pool->head_dim;
    uint8_t *rows = mem_alloc(kvrows_bytes(pool, n));
    float *out = mem_alloc(2 * each * sizeof *out);
    kvcache_load_rows(kv, q, layer, first, n, rows);
    type_info(pool->type_k)->dequantize(rows, out, each);
    const uint8_t *v = rows + (size_t)(n * pool->n_kv_heads) * kv_slot_bytes(pool->type_k, pool->head_dim);
    type_info(pool->type_v)->dequantize(v, out + each, each);
    free(rows);
    *n_values = 2 * each;
    return out;
}

static double distance(const float *a, const float *b, size_t n) {
    double by = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        by += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        all += (double)b[i] * b[i];
    }
    return all > 0 ? sqrt(by / all) : 0;
}

Status blend_errors(Engine *e, const BlenderPrompt *p, Sequence *q, double *out) {
    int n_layers = kv_n_layers(e->kv.pool), first = p->spans[0].first;
    int n = p->spans[p->n_spans - 1].first + p->spans[p->n_spans - 1].n - first;
    float **blended = mem_alloc((size_t)n_layers * sizeof *blended);
    size_t n_values;
    for (int i = 0; i < n_layers; i++) blended[i] = load_layer(&e->kv, q, i, first, n, &n_values);
    kvcache_release(&e->kv, q);
    Sequence whole = {.alone = true};
    Request r = {.seq = &whole, .sampling = sampler_defaults()};
    sequence_push(&whole, p->tokens, p->n);
    scheduler_add(e->sched, &r);
    engine_run(e);
    Status st = engine_fault(e);
    if (!st.code && r.finish == FINISH_INTERRUPT) st = signals_status();
    for (int i = 0; i < n_layers; i++) {
        if (!st.code) { // otherwise `whole` may lack blocks
            float *exact = load_layer(&e->kv, &whole, i, first, n, &n_values);
            out[i] = distance(blended[i], exact, n_values);
            free(exact);
        }
        free(blended[i]);
    }
    sequence_end(&e->kv, &whole);
    timeline_free(&r.time);
    free(blended);
    return st;
}
