// tests/test_blend_cached.c: prompts with chunks of which a part is in the cache already, as after a shared prefix that
// ends inside a chunk: the rest of the chunk is loaded.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include "tests/rig/blend_rig.h"
#include "tests/rig/cpu_rig.h"

enum { COMPUTED = 20 }; // tokens that are computed before, 15 of them in the first chunk

// Computes the first tokens of the prompt alone, then the whole prompt with blending.
static void run_partly(BlendRig *r, const BlendText *t, const char *plan, BlendResult *out) {
    Sequence q = {0};
    Request first = {.seq = &q, .sampling = sampler_defaults()};
    *out = (BlendResult){0};
    assert_ok(plan_parse(plan, &r->context.plan));
    sequence_push(&q, t->tokens, COMPUTED);
    scheduler_add(r->e.sched, &first);
    engine_run(&r->e);
    assert_int_equal(q.n_cached, COMPUTED);
    Blend *b = blend_new(&r->context, t->spans, t->n_spans, r->e.policy);
    Request whole = {.seq = &q, .sampling = sampler_defaults(), .max_new = 1, .emit = blend_keep_logits, .arg = out};
    whole.policy = blend_policy(b);
    sequence_push(&q, t->tokens + COMPUTED, t->n - COMPUTED);
    scheduler_add(r->e.sched, &whole);
    engine_run(&r->e);
    blend_read(&r->e, &q, t->n, out);
    out->stats = blend_stats(b);
    blend_free(b);
    sequence_end(&r->e.kv, &q);
    timeline_free(&first.time);
    timeline_free(&whole.time);
}

// Asserts that the slots [first, end) of n have the same K and V in all layers.
static void assert_slots(const BlendResult *a, const BlendResult *b, int first, int end, int n) {
    size_t slot = a->layer_bytes / (size_t)n / 2;
    for (size_t layer = 0; layer * a->layer_bytes < a->n_bytes; layer++)
        for (int v = 0; v < 2; v++) {
            size_t at = layer * a->layer_bytes + ((size_t)v * (size_t)n + (size_t)first) * slot;
            assert_memory_equal(a->rows + at, b->rows + at, (size_t)(end - first) * slot);
        }
}

static void test_the_rest_of_a_chunk_is_loaded(void **state) {
    (void)state;
    BlendRig r;
    BlendText t;
    BlendResult full, reuse, got;
    assert_true(blend_rig_open(&r, &(BlendSetup){.model = {.n_layers = 4, .seed = 3}, .block = 16, .ubatch = 24}));
    blend_text(&t, 5, (int[]){31, 9, 40}, 3, 2, 13, 7);
    blend_rig_add(&r, &t);
    blend_run(&r.e, t.tokens, t.n, NULL, &full);
    blend_rig_run(&r, &t, "reuse", &reuse);
    run_partly(&r, &t, "reuse", &got);
    assert_slots(&got, &full, 0, COMPUTED, t.n);
    assert_slots(&got, &reuse, COMPUTED, 5 + 31, t.n);
    assert_int_equal(got.stats.n_kept, 80 - 15);
    assert_int_equal(got.stats.n_again, 4); // those between the chunks
    free(got.rows);
    // The first 20 tokens of a chunk are computed again: 15 of the first chunk's are there.
    run_partly(&r, &t, "epic,k=20", &got);
    assert_slots(&got, &full, 0, COMPUTED + 5, t.n);
    assert_int_equal(got.stats.n_again, 5 + 9 + 20 + 4);
    free(got.rows);
    free(full.rows);
    free(reuse.rows);
    blend_rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_rest_of_a_chunk_is_loaded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
