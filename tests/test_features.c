// tests/test_features.c: every hyper-parameter, optional tensor and file format of a family must change the result in
// the right way.
#include "tests/rig/testing.h"

#include "tests/rig/cpu_rig.h"
#include "tests/rig/tiny_model.h"

#include <math.h>

enum { PROMPT = 40 };

// ---- int8 groups of llama2.c ----------------------------------------------------------------------------------------

// The same model with every int8 matrix converted to floats: q times the scale of its group.
static Gguf *float_twin(const Gguf *g) {
    Gguf *twin = gguf_new("twin");
    for (int i = 0; i < gguf_n_values(g); i++) gguf_set(twin, gguf_value_at(g, i));
    for (int i = 0; i < gguf_n_tensors(g); i++) {
        const GgufTensor *t = gguf_tensor_at(g, i);
        size_t n = (size_t)(t->dims[0] * t->dims[1]);
        float *values = pages_alloc(n * sizeof *values, false);
        gguf_own_pages(twin, values, n * sizeof *values);
        for (size_t k = 0; k < n; k++) {
            float scale = 1;
            if (t->type == TYPE_I8G) memcpy(&scale, (const char *)t->scales + k / (size_t)t->group * 4, 4); // unaligned
            values[k] = t->type == TYPE_F32 ? ((const float *)t->data)[k] : scale * (float)((const int8_t *)t->data)[k];
        }
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.data);
        gguf_add_tensor(twin, name, TYPE_F32, (size_t)t->dims[0], t->n_dims > 1 ? (size_t)t->dims[1] : 0, values, NULL,
                        0);
    }
    return twin;
}

// llama2.c's int8 files against the same weights in f32: bit for bit with the scalar kernels, which multiply the same
// numbers, and within rounding with the others. Rows of 172 elements cross the borders of groups of 32.
static void test_int8_groups_are_their_floats(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.type = TYPE_I8G, .ffn = 172, .seed = 8}), *twin = float_twin(g);
    for (int isa = 0; isa_name(isa); isa++) {
        Rig a, b;
        if (!rig_open(&a, g, (Setup){.isa = isa_name(isa)})) continue;
        assert_true(rig_open(&b, twin, (Setup){.isa = isa_name(isa)}));
        int tokens[PROMPT];
        random_tokens(tokens, PROMPT, a.m.c.n_vocab, 15);
        size_t n = (size_t)PROMPT * (size_t)a.m.c.n_vocab;
        float *ints = run_tokens(&a, tokens, PROMPT, PROMPT), *floats = run_tokens(&b, tokens, PROMPT, PROMPT);
        if (isa == 0) assert_memory_equal(ints, floats, n * sizeof *ints);
        if (!(test_distance(ints, floats, n) <= (strcmp(isa_name(isa), "amx") == 0 ? 3e-2 : 1e-5)))
            fail_msg("%s: too far", isa_name(isa));
        free(ints);
        free(floats);
        rig_close(&a);
        rig_close(&b);
    }
    gguf_close(twin);
    gguf_close(g);
}

// ---- every feature is used ------------------------------------------------------------------------------------------

static float *logits_of(const Gguf *g) {
    Rig r;
    int tokens[PROMPT];
    assert_true(rig_open(&r, g, (Setup){.block = 16}));
    random_tokens(tokens, PROMPT, 200, 5); // the prompt contains only ids below 200
    float *logits = run_tokens(&r, tokens, PROMPT, PROMPT);
    rig_close(&r);
    return logits;
}

// The distance of the logits from `before`, which the caller frees.
static double changed(const Gguf *g, const float *before) {
    float *after = logits_of(g);
    double d = test_distance(after, before, PROMPT * 320);
    free(after);
    return d;
}

// A wrong value in one element of each tensor must reach the logits.
static void test_planted_values(void **state) {
    (void)state;
    static const struct {
        const char *arch, *tensor;
    } cases[] = {{"qwen3", "blk.1.attn_q_norm.weight"}, {"qwen3", "blk.0.attn_k_norm.weight"},
                 {"qwen2", "blk.0.attn_q.bias"},        {"qwen2", "blk.1.attn_k.bias"},
                 {"qwen2", "blk.1.attn_v.bias"},        {"llama", "blk.1.attn_norm.weight"},
                 {"llama", "blk.0.ffn_norm.weight"},    {"llama", "output_norm.weight"},
                 {"llama", "rope_freqs.weight"},        {"qwen2", "rope_freqs.weight"},
                 {"llama", "blk.1.attn_q.weight"},      {"llama", "blk.1.attn_k.weight"},
                 {"llama", "blk.1.attn_v.weight"},      {"llama", "blk.1.attn_output.weight"},
                 {"llama", "blk.1.ffn_gate.weight"},    {"llama", "blk.1.ffn_up.weight"},
                 {"llama", "blk.1.ffn_down.weight"},    {"llama", "output.weight"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = cases[i].arch, .seed = 8, .rope_freqs = true});
        float *before = logits_of(g);
        assert_true(changed(g, before) == 0);
        ((float *)tiny_tensor(g, cases[i].tensor)->data)[2] += 3;
        if (!(changed(g, before) > 1e-4)) fail_msg("%s %s is not used", cases[i].arch, cases[i].tensor);
        free(before);
        gguf_close(g);
    }
}

// Biases and QK norms that a family does not require must have an effect if a file has them.
static void test_optional_tensors(void **state) {
    (void)state;
    static float values[128];
    static const char *const biases[] = {"blk.1.attn_output.bias", "blk.0.ffn_gate.bias", "blk.1.ffn_up.bias",
                                         "blk.1.ffn_down.bias"};
    for (int i = 0; i < 128; i++) values[i] = (float)(i % 7) / 7;
    for (size_t i = 0; i < ARRAY_LEN(biases); i++) {
        Gguf *g = tiny_model(&(TinyModel){.seed = 8});
        float *before = logits_of(g);
        bool wide = strstr(biases[i], "gate") || strstr(biases[i], "up");
        gguf_add_tensor(g, biases[i], TYPE_F32, wide ? 128 : 64, 0, values, NULL, 0);
        if (!(changed(g, before) > 1e-4)) fail_msg("%s is not used", biases[i]);
        free(before);
        gguf_close(g);
    }
    Gguf *plain = tiny_model(&(TinyModel){.seed = 8}), *normed = tiny_without(plain, "");
    float *before = logits_of(plain);
    gguf_add_tensor(normed, "blk.0.attn_q_norm.weight", TYPE_F32, 16, 0, values + 1, NULL, 0);
    assert_true(changed(normed, before) > 1e-4);
    free(before);
    gguf_close(normed);
    gguf_close(plain);
}

static void test_tied_head(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        Gguf *g = tiny_model(&(TinyModel){.seed = 8, .tied = tied});
        float *before = logits_of(g);
        // changes the embedding of a token that the prompt does not have
        ((float *)tiny_tensor(g, "token_embd.weight")->data)[300 * 64] += 3;
        float *after = logits_of(g);
        for (int row = 0; row < PROMPT; row++)
            for (int id = 0; id < 320; id++) {
                bool same = before[row * 320 + id] == after[row * 320 + id];
                assert_int_equal(same, !(tied && id == 300));
            }
        free(before);
        free(after);
        gguf_close(g);
    }
}

static void test_rope_settings(void **state) {
    (void)state;
    static const struct {
        const char *key;
        float value;
    } cases[] = {{"llama.rope.freq_base", 500000},
                 {"llama.rope.scaling.factor", 8},
                 {"llama.rope.scaling.attn_factor", 1.5f},
                 {"llama.rope.scaling.yarn_beta_slow", 0.1f}};
    Gguf *plain = tiny_model(&(TinyModel){.seed = 8}), *linear = tiny_model(&(TinyModel){.seed = 8, .rope = "linear"});
    Gguf *yarn = tiny_model(&(TinyModel){.seed = 8, .rope = "yarn"});
    float *a = logits_of(plain), *b = logits_of(linear), *c = logits_of(yarn);
    assert_true(test_distance(a, b, PROMPT * 320) > 1e-3);
    assert_true(test_distance(a, c, PROMPT * 320) > 1e-3);
    assert_true(test_distance(b, c, PROMPT * 320) > 1e-3);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *g = tiny_without(yarn, "");
        gguf_set_f32(g, cases[i].key, cases[i].value);
        if (!(changed(g, c) > 1e-5)) fail_msg("%s is not used", cases[i].key);
        gguf_close(g);
    }
    gguf_set_str(plain, "llama.rope.scaling.type", "none");
    gguf_set_f32(plain, "llama.rope.scaling.factor", 8); // a factor without a scaling type must have no effect
    assert_true(changed(plain, a) == 0);
    gguf_set_u32(plain, "llama.rope.dimension_count", 8); // half of the head is rotated
    assert_true(changed(plain, a) > 1e-3);
    free(a);
    free(b);
    free(c);
    gguf_close(plain);
    gguf_close(linear);
    gguf_close(yarn);
}

// A linear factor divides positions: factor 1 must change nothing, and the old key must mean the same. So must a factor
// without rope.scaling.type, whose default is "linear" in llama.cpp.
static void test_linear_by_either_key(void **state) {
    (void)state;
    Gguf *one = tiny_model(&(TinyModel){.seed = 8}), *two = tiny_model(&(TinyModel){.seed = 8, .rope = "linear"});
    Gguf *neutral = tiny_model(&(TinyModel){.seed = 8, .rope = "linear", .rope_factor = 1});
    float *plain = logits_of(one), *linear = logits_of(two);
    assert_true(changed(neutral, plain) == 0);
    gguf_set_f32(one, "llama.rope.scale_linear", 4);
    assert_true(changed(one, linear) == 0);
    Gguf *untyped = tiny_model(&(TinyModel){.seed = 8});
    gguf_set_f32(untyped, "llama.rope.scaling.factor", 4);
    assert_true(changed(untyped, linear) == 0);
    free(plain);
    free(linear);
    gguf_close(one);
    gguf_close(two);
    gguf_close(neutral);
    gguf_close(untyped);
}

// With a window, a row's logits must not depend on tokens that are further back than all layers together reach.
static void test_window(void **state) {
    (void)state;
    enum { WINDOW = 5 };
    for (int isa = 0; isa_name(isa); isa++) {
        Gguf *g = tiny_model(&(TinyModel){.seed = 8});
        Rig r;
        int tokens[PROMPT];
        gguf_set_u32(g, "llama.attention.sliding_window", WINDOW);
        if (rig_open(&r, g, (Setup){.isa = isa_name(isa), .block = 16})) {
            random_tokens(tokens, PROMPT, 320, 5);
            float *a = run_tokens(&r, tokens, PROMPT, PROMPT), *one = run_tokens(&r, tokens, PROMPT, 1);
            assert_true(test_distance(one, a, PROMPT * 320) < 1e-4);
            tokens[10] = (tokens[10] + 1) % 320;
            float *b = run_tokens(&r, tokens, PROMPT, PROMPT);
            for (int row = 0; row < PROMPT; row++) { // two layers reach back twice WINDOW - 1 slots
                double d = test_distance(b + row * 320, a + row * 320, 320);
                assert_int_equal(d > 0, row >= 10 && row <= 10 + 2 * (WINDOW - 1));
            }
            free(a);
            free(b);
            free(one);
            rig_close(&r);
        }
        gguf_close(g);
    }
}

// Slots and positions are independent: rows at large positions in the first slots of the cache.
static void test_positions_apart_from_slots(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.seed = 8});
    Rig r;
    float *out[2];
    assert_true(rig_open(&r, g, (Setup){.block = 16}));
    for (int shift = 0; shift < 2; shift++) {
        int token[] = {5, 9, 3, 7}, pos[4], slot[] = {0, 1, 2, 3}, seq[4] = {0}, last = 3;
        Sequence s = {0};
        sequence_push(&s, token, 4);
        assert_true(kvcache_reserve(&r.kv, &s, 4));
        for (int i = 0; i < 4; i++) pos[i] = slot[i] + 100 * shift;
        Batch b = {.n_rows = 4,
                   .n_out = 1,
                   .n_seqs = 1,
                   .max_blocks = 1,
                   .token = token,
                   .pos = pos,
                   .slot = slot,
                   .seq = seq,
                   .out_row = &last,
                   .block_table = s.blocks};
        out[shift] = malloc(320 * sizeof(float));
        memcpy(out[shift], model_forward(&r.m, &r.w, r.kv.pool, &b), 320 * sizeof(float));
        sequence_end(&r.kv, &s);
    }
    double d = test_distance(out[1], out[0], 320); // RoPE depends on distances only, up to rounding
    assert_true(d > 0 && d < 1e-4);
    free(out[0]);
    free(out[1]);
    rig_close(&r);
    gguf_close(g);
}

// In the last layer, rows without logits end after their K and V are stored. This must change neither the logits of the
// other rows, at any index of the batch, nor the K and V that the next step reads.
static void test_rows_without_logits(void **state) {
    (void)state;
    enum { EACH = 40, ROWS = 2 * EACH, WANTED = 4 };
    static const int want[WANTED] = {0, 17, EACH - 1, ROWS - 1};
    static const int kv_types[] = {TYPE_F32, TYPE_F16, TYPE_Q8_0};
    Gguf *g = tiny_model(&(TinyModel){.seed = 9, .type = TYPE_Q8_0, .n_layers = 3});
    for (size_t type = 0; type < ARRAY_LEN(kv_types); type++)
        for (int few = 0; few < 2; few++) {
            static float all[ROWS][320], next[2][2][320];
            Rig r;
            if (!rig_open(&r, g, (Setup){.isa = "amx", .deterministic = true, .block = 64, .kv_type = kv_types[type]}))
                assert_true(rig_open(
                    &r, g, (Setup){.isa = "portable", .deterministic = true, .block = 64, .kv_type = kv_types[type]}));
            Sequence seq[2] = {{0}, {0}};
            int token[ROWS], pos[ROWS], slot[ROWS], of[ROWS], every[ROWS], blocks[2];
            random_tokens(token, ROWS, 320, 3);
            for (int i = 0; i < 2; i++) {
                sequence_push(&seq[i], token + i * EACH, EACH);
                sequence_push(&seq[i], token, 1);
                assert_true(kvcache_reserve(&r.kv, &seq[i], EACH + 1));
                blocks[i] = seq[i].blocks[0];
            }
            for (int i = 0; i < ROWS; i++) every[i] = i, of[i] = i / EACH, pos[i] = slot[i] = i % EACH;
            Batch b = {.n_rows = ROWS,
                       .n_out = few ? WANTED : ROWS,
                       .n_seqs = 2,
                       .max_blocks = 1,
                       .token = token,
                       .pos = pos,
                       .slot = slot,
                       .seq = of,
                       .out_row = few ? (int *)want : every,
                       .block_table = blocks};
            const float *logits = model_forward(&r.m, &r.w, r.kv.pool, &b);
            if (!few) memcpy(all, logits, sizeof all);
            for (int i = 0; few && i < WANTED; i++) assert_memory_equal(logits + i * 320, all[want[i]], sizeof all[0]);
            b.n_rows = b.n_out = 2, b.out_row = every; // the next step
            for (int i = 0; i < 2; i++) pos[i] = slot[i] = EACH, of[i] = i;
            memcpy(next[few], model_forward(&r.m, &r.w, r.kv.pool, &b), sizeof next[few]);
            if (few) assert_memory_equal(next[1], next[0], sizeof next[0]);
            for (int i = 0; i < 2; i++) sequence_end(&r.kv, &seq[i]);
            rig_close(&r);
        }
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int8_groups_are_their_floats),
        cmocka_unit_test(test_planted_values),
        cmocka_unit_test(test_optional_tensors),
        cmocka_unit_test(test_tied_head),
        cmocka_unit_test(test_rope_settings),
        cmocka_unit_test(test_linear_by_either_key),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_positions_apart_from_slots),
        cmocka_unit_test(test_rows_without_logits),
    };
    return cmocka_run_group_tests(tests, isa_print, NULL);
}
