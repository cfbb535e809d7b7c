// tests/test_families_dense.c: families without experts or states: the logits of odd shapes against the formulas in
// double, which layers have RoPE, norms of K behind RoPE, a feed-forward without a gate, and what is refused.
#include "tests/rig/testing.h"

#include "kv/evict.h"
#include "tests/rig/formulas.h"
#include "tests/rig/tiny_model.h"

static const TinyModel shapes[] = {
    {.arch = "qwen2vl", .dim = 44, .n_heads = 3, .n_kv_heads = 1, .head_dim = 18, .tied = true},
    {.arch = "qwen3vl", .dim = 52, .n_heads = 4, .n_kv_heads = 1, .head_dim = 26},
    {.arch = "seed_oss"},
    {.arch = "seed_oss", .dim = 44, .n_heads = 6, .n_kv_heads = 2, .head_dim = 18, .ffn = 52, .tied = true},
    {.arch = "ernie4_5", .tied = true},
    {.arch = "ernie4_5", .dim = 60, .n_heads = 3, .n_kv_heads = 1, .head_dim = 22, .n_rot = 10, .qkv_bias = true},
    {.arch = "exaone4"},
    {.arch = "exaone4", .rope_freqs = true, .dim = 52, .n_heads = 2, .head_dim = 26, .ffn = 36, .tied = true},
    {.arch = "exaone4", .window = 7, .n_layers = 9, .dim = 40, .n_heads = 6, .n_kv_heads = 3, .head_dim = 14},
    {.arch = "hunyuan-dense", .tied = true},
    {.arch = "hunyuan-dense", .dim = 44, .n_heads = 3, .n_kv_heads = 1, .head_dim = 26, .n_rot = 12, .rope = "yarn"},
    {.arch = "internlm2"},
    {.arch = "internlm2", .dim = 60, .n_heads = 3, .n_kv_heads = 1, .head_dim = 22, .rope_freqs = true, .tied = true},
    {.arch = "exaone", .rope_freqs = true},
    {.arch = "exaone", .dim = 44, .n_heads = 3, .n_kv_heads = 1, .head_dim = 18, .n_rot = 10, .tied = true},
    {.arch = "minicpm", .tied = true},
    {.arch = "minicpm", .dim = 52, .n_heads = 4, .n_kv_heads = 1, .head_dim = 14, .rope = "yarn"},
    {.arch = "maincoder"},
    {.arch = "maincoder", .dim = 44, .n_heads = 3, .n_kv_heads = 1, .head_dim = 26, .ffn = 60, .tied = true},
    {.arch = "apertus"},
    {.arch = "apertus", .dim = 60, .n_heads = 4, .n_kv_heads = 1, .head_dim = 18, .ffn = 101, .rope_freqs = true},
    {.arch = "arcee"},
    {.arch = "arcee", .dim = 60, .n_heads = 4, .n_kv_heads = 1, .head_dim = 18, .ffn = 100, .rope_freqs = true},
    {.arch = "command-r", .tied = true},
    {.arch = "command-r", .dim = 60, .n_heads = 3, .n_kv_heads = 1, .head_dim = 20, .ffn = 52, .qkv_bias = true},
    {.arch = "cohere2", .tied = true},
    {.arch = "cohere2", .dim = 40, .n_heads = 5, .n_kv_heads = 1, .head_dim = 8, .ffn = 36, .n_layers = 9, .window = 5},
    {.arch = "gemma", .tied = true},
    {.arch = "gemma", .dim = 48, .n_heads = 3, .n_kv_heads = 1, .head_dim = 40, .ffn = 84, .tied = true},
};

static void test_formulas(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        TinyModel shape = shapes[i];
        char name[64];
        shape.seed = 60 + i;
        snprintf(name, sizeof name, "shape %zu, %s", i, shape.arch);
        Gguf *g = tiny_model(&shape);
        expect_formulas(g, 0, 90 + i, name);
        gguf_close(g);
    }
}

static Status load(const Gguf *g, Model *m) {
    const Backend *be;
    assert_ok(cpu_backend("scalar", &be));
    return model_load(m, g, be);
}

// In EXAONE 4 a window means that only the layers that have it have RoPE. Without a window all layers have it.
static void test_rope_of_windows(void **state) {
    (void)state;
    for (int window = 0; window < 10; window += 9) {
        Gguf *g = tiny_model(&(TinyModel){.arch = "exaone4", .window = window, .n_layers = 8});
        Model m;
        assert_ok(load(g, &m));
        for (int i = 0; i < 8; i++) {
            bool slides = window > 0 && i % 4 < 3;
            assert_int_equal(m.layers[i].heads.window, slides ? window : 0);
            assert_int_equal(m.layers[i].rope.n_rot, slides || window == 0 ? m.c.head_dim : 0);
        }
        model_free(&m);
        gguf_close(g);
    }
}

// The weights of a norm behind RoPE are those of a position's elements, so that a stored K cannot be rotated.
static void test_turned_norms_stay(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "hunyuan-dense"});
    Rig r;
    EvictPlan plan;
    Evict *evict;
    assert_true(rig_open(&r, g, (Setup){.isa = "scalar"}));
    assert_ok(evict_parse("sinks,sink=2,window=8", &plan));
    Status st = evict_new(&plan, &r.m, &r.kv, &evict);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "hunyuan-dense"));
    assert_null(evict);
    rig_close(&r);
    gguf_close(g);
}

// Tensors that are missing, and a gate that the family does not have.
static void test_refused_tensors(void **state) {
    (void)state;
    static const struct {
        const char *arch, *tensor;
    } cases[] = {{"seed_oss", "blk.1.post_attention_norm.weight"},
                 {"exaone4", "blk.3.post_attention_norm.weight"},
                 {"exaone4", "blk.0.attn_k_norm.weight"},
                 {"hunyuan-dense", "blk.1.attn_q_norm.weight"},
                 {"maincoder", "blk.1.attn_k_norm.weight"},
                 {"arcee", "blk.0.ffn_up.weight"},
                 {"gemma", "blk.1.ffn_gate.weight"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *whole = tiny_model(&(TinyModel){.arch = cases[i].arch}), *g = tiny_without(whole, cases[i].tensor);
        Model m;
        Status st = load(g, &m);
        if (st.code != QUILL_MODEL || !strstr(st.message, cases[i].tensor))
            fail_msg("%s: code %d: %s", cases[i].tensor, st.code, st.message);
        model_free(&m);
        gguf_close(g);
        gguf_close(whole);
    }
}

// Lists of another length, numbers that no trained model has, and one number for all layers.
static void test_xielu(void **state) {
    (void)state;
    static const struct {
        const char *key;
        float values[3];
        size_t n; // of a list; 0: one number
        const char *message;
    } cases[] = {
        {"xielu.alpha_p", {0.5f, 0.5f, 0.5f}, 3, "xielu.alpha_p: one for each of the 2 layers expected, 3 found"},
        {"xielu.alpha_n",
         {0.5f, NAN},
         2,
         "xielu.alpha_n: numbers from -10000 to 10000 expected, nan found for layer 1"},
        {"xielu.eps", {-0.1f, -0.1f}, 2, "xielu.eps: numbers from -1e-05 to 0 expected, -0.1 found for layer 0"},
        {"xielu.beta", {0.25f}, 0, NULL}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = "apertus"});
        Model m;
        if (cases[i].n) gguf_set_floats(g, cases[i].key, cases[i].values, cases[i].n);
        else gguf_set_f32(g, cases[i].key, cases[i].values[0]);
        Status st = load(g, &m);
        if (!cases[i].message) {
            assert_ok(st);
            assert_true(m.layers[0].kind.xielu.b == 0.25f && m.layers[1].kind.xielu.b == 0.25f);
        } else if (st.code != QUILL_MODEL || !strstr(st.message, cases[i].message))
            fail_msg("%s: code %d: %s", cases[i].key, st.code, st.message);
        model_free(&m);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_rope_of_windows),
        cmocka_unit_test(test_turned_norms_stay),
        cmocka_unit_test(test_refused_tensors),
        cmocka_unit_test(test_xielu),
    };
    return cmocka_run_group_tests(tests, isa_print, NULL);
}
