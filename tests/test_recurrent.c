// tests/test_recurrent.c: layers with a state in place of K and V. Every instruction set's kernels are compared with
// the scalar ones. After states were kept, shared, restored or saved, the logits must be those of one run from the
// start.
#include "tests/rig/testing.h"

#include "cpu/cpu.h"
#include "kv/kvfile.h"
#include "tests/rig/cpu_rig.h"
#include "tests/rig/tiny_model.h"
#include "tests/rig/two_texts.h"

#include <math.h>

static float *random_floats(size_t n, float scale, uint64_t *random) {
    float *v = malloc(n * sizeof *v);
    for (size_t i = 0; i < n; i++) v[i] = scale * test_uniform(random);
    return v;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

typedef struct {
    DeltaTask t;
    float *rows, *out, *state;
    size_t n_out, n_state;
} DeltaCase;

typedef struct {
    int key_dim, value_dim;
    int n_heads, apart; // heads that one task computes, and the distance between two of them
} DeltaDims;

// Rows of q, k (of length 1), v, beta and decay of all heads side by side, as in a workspace.
static DeltaCase new_case(int n_rows, const DeltaDims *d, float decay, bool plain) {
    uint64_t seed = 7;
    int heads = (d->n_heads - 1) * d->apart + 1, v = 2 * d->key_dim, beta = v + heads * d->value_dim;
    size_t stride = (size_t)(beta + 2 * heads + 3), n = (size_t)n_rows, out_stride = (size_t)(heads * d->value_dim + 5);
    DeltaCase c = {.n_out = n * out_stride, .n_state = (size_t)(heads * d->key_dim * d->value_dim)};
    c.rows = random_floats(n * stride, 1, &seed);
    c.state = random_floats(c.n_state, 0.5f, &seed);
    c.out = calloc(c.n_out, sizeof *c.out);
    for (size_t i = 0; i < n; i++) {
        float *row = c.rows + i * stride;
        for (int part = 0; part < 2; part++) {
            float squares = 1e-6f, *x = row + part * d->key_dim;
            for (int k = 0; k < d->key_dim; k++) squares += x[k] * x[k];
            for (int k = 0; k < d->key_dim; k++) x[k] /= sqrtf(squares);
        }
        for (int h = 0; h < heads; h++) {
            row[beta + h] = 0.5f + 0.5f * row[beta + h];
            row[beta + heads + h] = decay * (row[beta + heads + h] - 1.01f);
        }
    }
    c.t = (DeltaTask){.n_rows = n_rows,
                      .key_dim = d->key_dim,
                      .value_dim = d->value_dim,
                      .n_heads = d->n_heads,
                      .apart = (size_t)d->apart,
                      .plain = plain,
                      .q = c.rows,
                      .k = c.rows + d->key_dim,
                      .v = c.rows + v,
                      .beta = c.rows + beta,
                      .decay = c.rows + beta + heads,
                      .stride = stride,
                      .out = c.out,
                      .out_stride = out_stride,
                      .state = c.state};
    return c;
}

static void free_case(DeltaCase *c) {
    free(c->rows);
    free(c->out);
    free(c->state);
}

// Computes each head in a task of its own; the other heads of the rows keep their outputs and states.
static void compute_heads(const DeltaTask *t) {
    for (int h = 0; h < t->n_heads; h++) {
        DeltaTask one = *t;
        int at = h * (int)t->apart;
        one.n_heads = 1;
        one.v = t->v + at * t->value_dim;
        one.beta = t->beta + at;
        one.decay = t->decay + at;
        one.out = t->out + at * t->value_dim;
        one.state = t->state + at * t->key_dim * t->value_dim;
        cpu_scalar.delta(&one);
    }
}

static void check_delta(const char *isa, const CpuKernels *k, bool in_order, int n_rows, const DeltaDims *dims,
                        float decay, bool plain) {
    DeltaCase want = new_case(n_rows, dims, decay, plain), got = new_case(n_rows, dims, decay, plain);
    got.t.scratch = malloc(k->delta_scratch + 1);
    compute_heads(&want.t);
    (in_order ? k->delta_in_order : k->delta)(&got.t);
    double out = test_distance(got.out, want.out, want.n_out), m = test_distance(got.state, want.state, want.n_state);
    if (!(out < 3e-6 && m < 3e-6))
        fail_msg("%s%s%s: %d rows, %d heads of %d x %d, decay %g: distance %.3g, of the state %.3g", isa,
                 in_order ? " in order" : "", plain ? ", plain" : "", n_rows, dims->n_heads, dims->key_dim,
                 dims->value_dim, (double)decay, out, m);
    free(got.t.scratch);
    free_case(&want);
    free_case(&got);
}

static void test_delta(void **state) {
    (void)state;
    DeltaDims two = {6, 16, 2, 2};
    check_delta("scalar", &cpu_scalar, false, 5, &two, 0.5f, false);
    static const int rows[] = {1, 2, 11, 12, 13, 31, 63, 64, 65, 131};
    static const DeltaDims dims[] = {{8, 16, 1, 1},  {13, 7, 3, 1},  {16, 16, 2, 3}, {5, 32, 4, 1},
                                     {40, 48, 1, 1}, {64, 80, 2, 1}, {17, 33, 2, 2}, {128, 128, 1, 1}};
    static const float decays[] = {0.02f, 0.5f, 20};
    for (int i = 0; i < isa_count(); i++) {
        const Backend *be;
        assert_ok(isa_backend(isa_name(i), false, &be));
        for (size_t r = 0; r < ARRAY_LEN(rows); r++)
            for (size_t d = 0; d < ARRAY_LEN(dims); d++)
                for (size_t e = 0; e < ARRAY_LEN(decays); e++)
                    for (int way = 0; way < 4; way++)
                        check_delta(isa_name(i), cpu_kernels_of(be), way % 2, rows[r], &dims[d], decays[e], way / 2);
    }
}

static void test_convolve(void **state) {
    (void)state;
    static const int shapes[][3] = {{1, 1, 2}, {5, 3, 4}, {2, 17, 16}, {70, 33, 3}, {9, 128, 4}, {4, 129, 5}};
    for (int i = 0; i < isa_count(); i++)
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
            int n_rows = shapes[s][0], n = shapes[s][1], taps = shapes[s][2];
            uint64_t random = s;
            size_t stride = (size_t)n + 3, all = (size_t)n_rows * stride;
            float *rows = random_floats(all, 1, &random), *weights = random_floats((size_t)(n * taps), 1, &random);
            float *before = random_floats((size_t)(n * (taps - 1)), 1, &random), *want = malloc(all * sizeof *want);
            const Backend *be;
            assert_ok(isa_backend(isa_name(i), false, &be));
            memcpy(want, rows, all * sizeof *want);
            ConvolveTask t = {n_rows, n, taps, weights, before, want, stride};
            cpu_scalar.convolve(&t);
            t.rows = rows;
            cpu_kernels_of(be)->convolve(&t);
            double d = test_distance(rows, want, all);
            if (!(d < 1e-6)) fail_msg("%s: shape %zu: distance %.3g", isa_name(i), s, d);
            free(rows);
            free(weights);
            free(before);
            free(want);
        }
}

// ---- states ---------------------------------------------------------------------------------------------------------

static const char *const families[] = {"qwen3next",     "qwen35",  "qwen35moe",     "lfm2",
                                       "granitehybrid", "lfm2moe", "nemotron_h_moe"};

enum { LENGTH = 70, ALIKE = 37 };

static void open_states(TwoTexts *t, const Gguf *g, Setup setup) {
    *t = (TwoTexts){0};
    assert_true(rig_open(&t->r, g, setup));
    two_texts_random(t, LENGTH, ALIKE);
    for (int i = 0; i < 2; i++) t->want[i] = run_tokens(&t->r, t->tokens[i], LENGTH, LENGTH);
}

// Goes back to any place and continues with another text.
static void check_return(TwoTexts *t, int to) {
    Sequence s = {0};
    sequence_push(&s, t->tokens[0], LENGTH);
    two_texts_finish(t, &s, 0, 13, "the first text");
    two_texts_return(t, &s, to, 0, 9);
    two_texts_return(t, &s, int_min(to, ALIKE), 1, 1);
    two_texts_drop(t, &s);
}

// A step of one row ends a block, which leaves no checkpoint, and the next step begins there with several rows: the
// state of the block's end is written over, and must not become its checkpoint.
static void check_return_to_block(TwoTexts *t, int to) {
    Sequence s = {0};
    sequence_push(&s, t->tokens[0], to);
    two_texts_finish(t, &s, 0, 1, "row by row");
    sequence_push(&s, t->tokens[0] + to, 5);
    two_texts_finish(t, &s, 0, 5, "from the end of a block");
    two_texts_return(t, &s, to, 0, 3);
    two_texts_drop(t, &s);
}

static void test_states(void **state) {
    (void)state;
    static const Setup setups[] = {{.block = 8, .n_checkpoints = 8},
                                   {.block = 16, .n_checkpoints = 30, .kv_type = TYPE_Q8_0},
                                   {.block = 0, .n_checkpoints = 3, .threads = 2}};
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = families[f], .n_experts = f == 1 || f == 3 ? 0 : 4, .seed = f});
        for (int i = 0; i < isa_count(); i++)
            for (size_t k = 0; k < ARRAY_LEN(setups); k++) {
                TwoTexts t;
                Setup setup = setups[k];
                setup.isa = isa_name(i);
                setup.deterministic = true;
                if (isa_is_of_integers(isa_name(i))) continue;
                open_states(&t, g, setup);
                for (int to = 1; to < LENGTH; to += 17) check_return(&t, to);
                if (setup.block) check_return_to_block(&t, 2 * setup.block);
                two_texts_check_fork(&t, LENGTH - ALIKE);
                if (setup.n_checkpoints > 6 && !setup.kv_type)
                    for (int kept = 0; kept <= TEXT_DRAFTS; kept += 3) two_texts_check_drafts(&t, kept, 4);
                two_texts_close(&t);
            }
        gguf_close(g);
    }
}

// A shared prefix ends at a checkpoint. There are few shared prefixes, or none, without room for checkpoints.
static void test_shared_beginnings(void **state) {
    (void)state;
    for (int n_checkpoints = 0; n_checkpoints <= 8; n_checkpoints += 8) {
        TwoTexts t;
        Gguf *g = tiny_model(&(TinyModel){.arch = "qwen35"});
        open_states(&t, g, (Setup){.block = 8, .n_checkpoints = n_checkpoints, .deterministic = true, .share = true});
        Sequence a = {0}, b = {0};
        sequence_push(&a, t.tokens[0], LENGTH);
        two_texts_finish(&t, &a, 0, 30, "the first");
        sequence_push(&b, t.tokens[1], LENGTH);
        int n = kvcache_match_prefix(&t.r.kv, &b);
        assert_true(n <= ALIKE && (n > 0 || n_checkpoints == 0));
        two_texts_finish(&t, &b, 1, 30, "one that begins alike");
        two_texts_drop(&t, &a);
        sequence_push(&a, t.tokens[0], LENGTH);
        n = kvcache_match_prefix(&t.r.kv, &a); // of released blocks
        assert_true(n > 0 || n_checkpoints == 0);
        two_texts_finish(&t, &a, 0, 30, "the first again");
        two_texts_drop(&t, &a);
        two_texts_drop(&t, &b);
        two_texts_close(&t);
        gguf_close(g);
    }
}

// ---- files ----------------------------------------------------------------------------------------------------------

static void test_kv_file(void **state) {
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        const char *path = test_tmp("state.kv");
        Engine e;
        EngineConfig config = {.device = "cpu",
                               .isa = "scalar",
                               .threads = 1,
                               .quiet = true,
                               .ctx_size = 128,
                               .kv_block = 16,
                               .type_k = TYPE_F32,
                               .type_v = TYPE_F32};
        assert_ok(engine_open_view(&e, &config, (EngineNeeds){0}, tiny_model(&(TinyModel){.arch = families[f]})));
        Rig r = {.m = e.model, .pool = e.pool, .w = e.work, .kv = e.kv};
        Sequence a = {0}, b = {0};
        int tokens[40];
        float want[TEXT_VOCAB], got[TEXT_VOCAB];
        random_tokens(tokens, 40, TEXT_VOCAB, 9);
        sequence_push(&a, tokens, 40);
        step(&r, &(RowsOfSequence){&a, 39, NULL}, 1);
        e.kv = r.kv;
        assert_ok(kvfile_save(path, &e, &a));
        r.kv = e.kv;
        step(&r, &(RowsOfSequence){&a, 1, want}, 1);
        kvcache_release(&r.kv, &a);
        e.kv = r.kv;
        memset(e.kv.states.pool.data, 0xff,
               e.kv.states.pool.floats * sizeof(float)); // the loaded states must come from the file
        assert_ok(kvfile_load(path, &e, &b));
        assert_int_equal(b.n_cached, 39);
        r.kv = e.kv;
        step(&r, &(RowsOfSequence){&b, 1, got}, 1);
        assert_memory_equal(want, got, sizeof want);
        kvcache_release(&r.kv, &a);
        kvcache_release(&r.kv, &b);
        sequence_free(&a);
        sequence_free(&b);
        e.kv = r.kv;
        engine_close(&e);
    }
}

// Where the last layer is recurrent, rows without logits end behind its state: the others, and later ones, are the
// same.
static void test_rows_that_end(void **state) {
    (void)state;
    enum { SILENT = 30, HEARD = 5 };
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = families[f], .n_layers = 4, .n_experts = f % 2 ? 0 : 4, .seed = f});
        for (int i = 0; i < isa_count(); i++) {
            TwoTexts t;
            Sequence a = {0}, b = {0};
            float logits[HEARD * TEXT_VOCAB];
            if (isa_is_of_integers(isa_name(i))) continue;
            open_states(&t, g, (Setup){.isa = isa_name(i), .deterministic = true, .n_checkpoints = 8});
            assert_int_equal(t.r.m.layers[3].kv_kind, -1);
            assert_int_equal(model_last_rows(&t.r.m, false, SILENT + HEARD, HEARD), HEARD);
            sequence_push(&a, t.tokens[0], LENGTH);
            sequence_push(&b, t.tokens[1], LENGTH);
            step(&t.r, (RowsOfSequence[]){{&a, SILENT, NULL}, {&b, HEARD, logits}}, 2);
            for (int k = 0; k < HEARD; k++)
                two_texts_expect_row(&t, 1, k, logits + (size_t)k * TEXT_VOCAB, "some rows of a step");
            step(&t.r, (RowsOfSequence[]){{&b, 1, NULL}, {&a, HEARD, logits}}, 2);
            for (int k = 0; k < HEARD; k++)
                two_texts_expect_row(&t, 0, SILENT + k, logits + (size_t)k * TEXT_VOCAB, "behind rows that ended");
            two_texts_finish(&t, &a, 0, 7, "the first sequence");
            two_texts_finish(&t, &b, 1, 13, "the second sequence");
            two_texts_drop(&t, &a);
            two_texts_drop(&t, &b);
            two_texts_close(&t);
        }
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delta),   cmocka_unit_test(test_convolve),
        cmocka_unit_test(test_states),  cmocka_unit_test(test_shared_beginnings),
        cmocka_unit_test(test_kv_file), cmocka_unit_test(test_rows_that_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
