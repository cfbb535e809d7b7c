// tests/test_expert_families.c: families with mixtures of experts. Compares the logits of odd shapes with the formulas
// in double. Tests what a file without keys for the choice of experts has, choices that a bias decides, what
// keys of config.json become, and which files and configurations are refused.
#include "tests/rig/testing.h"

#include "hf/hf.h"
#include "tests/rig/formulas.h"
#include "tests/rig/tiny_model.h"

static const TinyModel shapes[] = {
    {.arch = "olmoe", .dim = 60, .n_heads = 3, .n_kv_heads = 3, .n_experts = 12, .n_used = 8, .ffn = 36},
    {.arch = "olmoe", .head_dim = 26, .n_kv_heads = 1, .rope = "yarn", .qkv_bias = true, .tied = true},
    {.arch = "qwen3vlmoe", .dim = 44, .n_heads = 3, .n_kv_heads = 1, .head_dim = 18, .n_experts = 7, .ffn = 30},
    {.arch = "granitemoe", .dim = 44, .n_heads = 2, .head_dim = 18, .n_experts = 5, .ffn = 37, .ffn_shared = 50},
    {.arch = "granitemoe", .n_layers = 3, .n_experts = 40, .n_used = 8, .ffn = 20, .tied = true},
    {.arch = "ernie4_5-moe", .dim = 52, .n_heads = 5, .n_kv_heads = 1, .head_dim = 12, .ffn = 28, .tied = true},
    {.arch = "ernie4_5-moe", .n_experts = 64, .n_used = 6, .ffn = 24, .ffn_shared = 48, .n_layers = 4},
    {.arch = "glm4moe", .dim = 60, .n_heads = 6, .n_kv_heads = 2, .head_dim = 20, .qkv_bias = true, .ffn = 34},
    {.arch = "glm4moe", .n_experts = 12, .n_groups = 4, .n_used = 4, .qk_norm = true, .ffn_shared = 256, .tied = true},
    {.arch = "glm4moe", .n_layers = 2, .head_dim = 12, .n_rot = 12, .softmax = true, .rope = "linear"},
    {.arch = "bailingmoe2", .dim = 48, .n_heads = 4, .n_kv_heads = 1, .head_dim = 22, .ffn = 26},
    {.arch = "bailingmoe2", .n_experts = 32, .n_groups = 8, .n_used = 8, .ffn = 20, .rope = "yarn"},
    {.arch = "minimax-m2", .dim = 44, .n_heads = 6, .n_kv_heads = 2, .head_dim = 18, .n_rot = 6, .ffn = 30},
    {.arch = "minimax-m2", .n_experts = 20, .n_used = 7, .ffn = 24, .head_dim = 24},
    {.arch = "hy_v3", .dim = 44, .n_heads = 6, .n_kv_heads = 2, .head_dim = 18, .ffn = 30, .tied = true},
    {.arch = "hy_v3", .n_experts = 20, .n_used = 7, .ffn = 24, .ffn_shared = 72, .head_dim = 24},
    {.arch = "hunyuan-moe", .dim = 44, .n_heads = 3, .n_kv_heads = 1, .head_dim = 26, .ffn = 30, .ffn_shared = 52},
    {.arch = "dots1", .n_experts = 12, .n_groups = 4, .n_used = 4, .ffn = 36, .ffn_shared = 72, .softmax = true},
    {.arch = "mellum", .dim = 60, .n_heads = 6, .n_kv_heads = 2, .head_dim = 22, .ffn = 34, .window = 5},
    {.arch = "mellum", .n_layers = 9, .swa_base = 70, .n_experts = 5, .n_used = 2, .rope = "linear", .tied = true},
    {.arch = "exaone-moe", .dim = 52, .n_heads = 5, .n_kv_heads = 1, .head_dim = 14, .ffn = 28, .window = 9},
    {.arch = "exaone-moe", .n_layers = 8, .n_experts = 16, .n_groups = 4, .n_used = 5, .rope_freqs = true},
    {.arch = "afmoe", .dim = 44, .n_heads = 3, .n_kv_heads = 1, .head_dim = 18, .ffn = 30, .window = 5},
    {.arch = "afmoe", .n_layers = 9, .n_experts = 20, .n_used = 6, .ffn = 24, .ffn_shared = 48, .tied = true},
    {.arch = "llama4", .dim = 44, .n_heads = 3, .n_kv_heads = 1, .head_dim = 18, .ffn = 30, .window = 5},
    {.arch = "llama4", .n_layers = 9, .n_experts = 20, .n_used = 1, .ffn = 24, .rope_freqs = true, .tied = true},
    {.arch = "llama4", .n_experts = 128, .n_used = 2, .ffn = 16, .window = 8}, // without norms of Q and K
    {.arch = "lfm2moe", .dim = 52, .n_heads = 2, .n_kv_heads = 1, .taps = 5, .ffn = 36, .tied = true},
    {.arch = "lfm2moe", .n_layers = 7, .taps = 2, .n_experts = 16, .n_used = 4, .ffn = 28},
};

static void test_formulas(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        TinyModel shape = shapes[i];
        shape.seed = 20 + i;
        Gguf *g = tiny_model(&shape);
        expect_formulas(g, 0, 30 + i, shape.arch);
        gguf_close(g);
    }
}

// Softmaxes that are nearly 0 or 1: a large bias chooses the experts with the smallest logits, whose weights are their
// share among the chosen ones.
static void test_steep_softmax(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "ernie4_5-moe", .n_layers = 2, .n_used = 2, .seed = 3});
    GgufTensor *router = tiny_tensor(g, "blk.1.ffn_gate_inp.weight");
    float *rows = (float *)router->data, *bias = (float *)tiny_tensor(g, "blk.1.exp_probs_b.bias")->data;
    for (int i = 0; i < 64 * 8; i++) rows[i] *= i < 64 * 2 ? 60 : 1;
    for (int i = 0; i < 8; i++) bias[i] = i < 2 ? 5 : 0;
    expect_formulas(g, 0, 5, "a steep softmax");
    gguf_close(g);
}

// The family decides how a file without the two keys weighs experts.
static void test_absent_keys(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        Routing usual;
    } cases[] = {{"olmoe", ROUTE_ALL},
                 {"granitemoe", ROUTE_CHOSEN},
                 {"ernie4_5-moe", ROUTE_CHOSEN},
                 {"glm4moe", ROUTE_SIGMOID},
                 {"bailingmoe2", ROUTE_SIGMOID},
                 {"minimax-m2", ROUTE_SIGMOID_CHOSEN},
                 {"hunyuan-moe", ROUTE_CHOSEN},
                 {"mellum", ROUTE_CHOSEN},
                 {"hy_v3", ROUTE_SIGMOID},
                 {"dots1", ROUTE_SIGMOID},
                 {"exaone-moe", ROUTE_SIGMOID},
                 {"afmoe", ROUTE_SIGMOID},
                 {"lfm2moe", ROUTE_SIGMOID_CHOSEN},
                 {"llama4", ROUTE_SIGMOID_INPUT}};
    const Backend *be;
    assert_ok(cpu_backend("scalar", &be));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char key[96];
        Model m;
        Gguf *g = tiny_model(&(TinyModel){.arch = cases[i].arch, .seed = 1}), *bare = gguf_new("tiny");
        for (int k = 0; k < gguf_n_values(g); k++) {
            const GgufValue *v = gguf_value_at(g, k);
            snprintf(key, sizeof key, "%.*s", (int)v->key.n, v->key.data);
            if (!strstr(key, "gating_func") && !strstr(key, "weights_norm")) gguf_set(bare, v);
        }
        for (int k = 0; k < gguf_n_tensors(g); k++) {
            const GgufTensor *t = gguf_tensor_at(g, k);
            gguf_add_like(bare, t, t->type);
            snprintf(key, sizeof key, "%.*s", (int)t->name.n, t->name.data);
            tiny_tensor(bare, key)->data = t->data;
        }
        assert_ok(model_load(&m, bare, be));
        const LayerKind *kind = &m.layers[m.c.n_layers - 1].kind;
        if (kind->ffn != FFN_EXPERTS || kind->routing != cases[i].usual)
            fail_msg("%s: routing %d, %d expected", cases[i].arch, kind->routing, cases[i].usual);
        model_free(&m);
        gguf_close(bare);
        gguf_close(g);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *arch, *key;
        int value;
        const char *word; // the name in the message; NULL: the key
    } keys[] = {{"ernie4_5-moe", "ernie4_5-moe.interleave_moe_layer_step", 2, "blk.2.ffn_gate.weight"},
                {"ernie4_5-moe", "ernie4_5-moe.leading_dense_block_count", 4, NULL},
                {"ernie4_5-moe", "ernie4_5-moe.leading_dense_block_count", 2, "blk.1.ffn_gate.weight"},
                {"glm4moe", "glm4moe.expert_count", 0, NULL},
                {"glm4moe", "glm4moe.expert_gating_func", 4, NULL},
                {"glm4moe", "glm4moe.nextn_predict_layers", 1, NULL},
                {"minimax-m2", "minimax-m2.expert_count", 7, "blk.0.ffn_gate_inp.weight"},
                {"lfm2moe", "lfm2moe.shortconv.l_cache", 1, NULL},
                {"granitemoe", "granitemoe.feed_forward_length", 100, "blk.0.ffn_gate_exps.weight"},
                {"exaone-moe", "exaone-moe.attention.sliding_window", 0, NULL},
                {"afmoe", "afmoe.leading_dense_block_count", 0, "blk.0.ffn_gate_inp.weight"},
                {"hy_v3", "hy_v3.expert_shared_feed_forward_length", 60, "blk.1.ffn_gate_shexp.weight"},
                {"olmoe", "olmoe.expert_used_count", 9, NULL},
                {"llama4", "llama4.attention.sliding_window", 0, NULL},
                {"llama4", "llama4.attention.chunk_size", 0, NULL},
                {"llama4", "llama4.attention.sliding_window_pattern", 3, NULL},
                {"llama4", "llama4.expert_count", 0, NULL},
                {"llama4", "llama4.interleave_moe_layer_step", 3, "blk.1.ffn_gate.weight"},
                {"llama4", "llama4.interleave_moe_layer_step", 5, NULL}};
    const Backend *be;
    assert_ok(cpu_backend("scalar", &be));
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        Model m;
        Gguf *g = tiny_model(&(TinyModel){.arch = keys[i].arch, .seed = 1});
        gguf_set_u32(g, keys[i].key, (uint32_t)keys[i].value);
        Status st = model_load(&m, g, be);
        model_free(&m);
        const char *word = keys[i].word ? keys[i].word : keys[i].key;
        if (st.code != QUILL_MODEL || !strstr(st.message, word) || strchr(st.message, '\n'))
            fail_msg("one line about %s expected, code %d found: %s", word, st.code, st.message);
        gguf_close(g);
    }
}

// ---- Hugging Face directories ---------------------------------------------------------------------------------------

#define SHAPE "\"hidden_size\": 64, \"num_hidden_layers\": 3, \"intermediate_size\": 96, \"num_attention_heads\": 4"

static void test_configs(void **state) {
    (void)state;
    static const struct {
        const char *config, *key;
        uint32_t value;
    } cases[] = {
        {"{\"model_type\": \"glm4_moe\", " SHAPE "}", "glm4moe.expert_gating_func", 2},
        {"{\"model_type\": \"glm4_moe\", " SHAPE "}", "glm4moe.leading_dense_block_count", 1},
        {"{\"model_type\": \"glm4_moe\", " SHAPE "}", "glm4moe.rope.dimension_count", 8},
        {"{\"model_type\": \"glm4_moe\", \"first_k_dense_replace\": 0, " SHAPE "}", "glm4moe.leading_dense_block_count",
         0},
        {"{\"model_type\": \"minimax_m2\", \"head_dim\": 32, \"rotary_dim\": 12, " SHAPE "}",
         "minimax-m2.rope.dimension_count", 12},
        {"{\"model_type\": \"minimax_m2\", " SHAPE "}", "minimax-m2.rope.dimension_count", 128},
        {"{\"model_type\": \"minimax_m2\", " SHAPE "}", "minimax-m2.expert_feed_forward_length", 96},
        {"{\"model_type\": \"ernie4_5_moe\", " SHAPE "}", "ernie4_5-moe.expert_shared_feed_forward_length", 3072},
        {"{\"model_type\": \"ernie4_5_moe\", \"moe_num_shared_experts\": 0, " SHAPE "}",
         "ernie4_5-moe.expert_shared_count", 0},
        {"{\"model_type\": \"ernie4_5_moe\", \"moe_layer_end_index\": 2, " SHAPE "}", "ernie4_5-moe.expert_used_count",
         6},
        {"{\"model_type\": \"lfm2_moe\"}", "lfm2moe.feed_forward_length", 7168},
        {"{\"model_type\": \"lfm2_moe\"}", "lfm2moe.leading_dense_block_count", 2},
        {"{\"model_type\": \"hy_v3\"}", "hy_v3.leading_dense_block_count", 1},
        {"{\"model_type\": \"hy_v3\", \"mlp_layer_types\": [\"dense\", \"dense\", \"sparse\"], " SHAPE "}",
         "hy_v3.leading_dense_block_count", 2},
        {"{\"model_type\": \"hy_v3\", \"num_shared_experts\": 3, " SHAPE "}", "hy_v3.expert_shared_feed_forward_length",
         4608},
        {"{\"model_type\": \"afmoe\", \"mup_enabled\": true}", "afmoe.expert_gating_func", 2},
        {"{\"model_type\": \"afmoe\", \"mup_enabled\": true}", "afmoe.expert_shared_feed_forward_length", 2816},
        {"{\"model_type\": \"mellum\"}", "mellum.attention.sliding_window", 0}, // all layers see everything
        {"{\"model_type\": \"dots1\", \"max_window_layers\": 1, \"n_routed_experts\": 8, " SHAPE "}",
         "dots1.attention.sliding_window", 4096},
        {"{\"model_type\": \"granitemoeshared\", \"shared_intermediate_size\": 40, " SHAPE "}",
         "granitemoe.expert_shared_feed_forward_length", 40},
        {"{\"model_type\": \"llama4\", \"text_config\": {\"model_type\": \"llama4_text\"}}",
         "llama4.feed_forward_length", 16384},
        {"{\"model_type\": \"llama4_text\", " SHAPE "}", "llama4.expert_feed_forward_length", 96},
        {"{\"model_type\": \"llama4_text\", \"interleave_moe_layer_step\": 2, \"moe_layers\": [1], " SHAPE "}",
         "llama4.interleave_moe_layer_step", 2},
        {"{\"model_type\": \"llama4_text\", \"no_rope_layers\": []}", "llama4.attention.chunk_size", 8192},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t v = UINT32_MAX;
        Gguf *g = gguf_new("d");
        assert_ok(hf_config_memory("d", str_of(cases[i].config), g));
        assert_ok(gguf_u32(g, cases[i].key, &v, true, 0));
        if (v != cases[i].value) fail_msg("%s: %s is %u", cases[i].config, cases[i].key, v);
        gguf_close(g);
    }
}

static void test_refused_configs(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{\"model_type\": \"ernie4_5_moe\", \"moe_layer_interval\": 2, " SHAPE "}", "moe_layer_interval: 1 expected"},
        {"{\"model_type\": \"ernie4_5_moe\", \"moe_layer_end_index\": 1, " SHAPE "}", "moe_layer_end_index: -1"},
        {"{\"model_type\": \"ernie4_5_moe\", \"moe_norm_min\": 0.1, " SHAPE "}", "moe_norm_min: at most 1e-9"},
        {"{\"model_type\": \"ernie4_5_moe\", \"moe_layer_start_index\": -1, " SHAPE "}", "moe_layer_start_index"},
        {"{\"model_type\": \"ernie4_5_moe\", \"use_bias\": true, " SHAPE "}", "use_bias: false expected"},
        {"{\"model_type\": \"ernie4_5_moe\", \"use_bias\": 1, " SHAPE "}", "use_bias: true or false expected"},
        {"{\"model_type\": \"olmoe\", \"clip_qkv\": 8, " SHAPE "}", "clip_qkv: null expected, 8 found"},
        {"{\"model_type\": \"glm4_moe\", \"scoring_func\": \"softmax\", " SHAPE "}", "scoring_func: sigmoid expected"},
        {"{\"model_type\": \"glm4_moe\", \"hidden_act\": \"gelu\", " SHAPE "}", "hidden_act: silu expected"},
        {"{\"model_type\": \"minimax_m2\", \"rotary_dim\": \"64\", " SHAPE "}", "rotary_dim: a number expected"},
        {"{\"model_type\": \"minimax_m2\", \"rotary_dim\": 256, " SHAPE "}", "partial_rotary_factor"},
        {"{\"model_type\": \"afmoe\"}", "mup_enabled: true expected, false found"},
        {"{\"model_type\": \"afmoe\", \"mup_enabled\": true, \"route_norm\": false}", "route_norm: true expected"},
        {"{\"model_type\": \"hy_v3\", \"num_shared_experts\": 2000000000, " SHAPE "}", "num_shared_experts: a smaller"},
        {"{\"model_type\": \"exaone_moe\", \"mlp_layer_types\": [\"dense\", \"sparse\", \"dense\"], " SHAPE "}",
         "mlp_layer_types: dense for the first layers and sparse for the others expected, dense found for layer 2"},
        {"{\"model_type\": \"mellum\", \"mlp_layer_types\": [\"sparse\", \"sparse\"], " SHAPE "}",
         "another value found for layer 2"},
        {"{\"model_type\": \"minicpm\", \"scale_depth\": 0, " SHAPE "}", "scale_depth: a positive number expected"},
        {"{\"model_type\": \"minicpm\", \"dim_model_base\": null, " SHAPE "}", "dim_model_base: a positive number"},
        {"{\"model_type\": \"lfm2_moe\", \"num_dense_layers\": 1.5}", "num_dense_layers: a whole number"},
        {"{\"model_type\": \"lfm2_moe\", \"conv_bias\": true}", "conv_bias: false expected"},
        {"{\"model_type\": \"granitemoeshared\", \"shared_intermediate_size\": -3, " SHAPE "}",
         "a whole number expected"},
        {"{\"model_type\": \"llama4_text\", \"moe_layers\": [], " SHAPE "}", "moe_layers: one layer of 1"},
        {"{\"model_type\": \"llama4_text\", \"moe_layers\": [0, 2, 1], " SHAPE "}", "moe_layers: one layer of 1"},
        {"{\"model_type\": \"llama4_text\", \"interleave_moe_layer_step\": 0, " SHAPE "}", "interleave_moe_layer_step"},
        {"{\"model_type\": \"llama4_text\", \"attention_chunk_size\": null, " SHAPE "}",
         "attention_chunk_size: a whole"},
        {"{\"model_type\": \"llama4_text\", \"attn_scale\": 0, " SHAPE "}", "attn_scale: a positive number"},
        {"{\"model_type\": \"llama4_text\", \"use_qk_norm\": 1, " SHAPE "}", "use_qk_norm: true or false"},
        {"{\"model_type\": \"llama4_text\", \"no_rope_layers\": [1, 1], " SHAPE "}",
         "no_rope_layers: a number for each"},
        {"{\"model_type\": \"llama4_text\", \"no_rope_layers\": [], \"no_rope_layer_interval\": 2, " SHAPE "}",
         "no_rope_layers: every fourth"},
        {"{\"model_type\": \"llama4_text\", \"no_rope_layers\": [1, 0, 1], " SHAPE "}", "no_rope_layers: every fourth"},
        {"{\"model_type\": \"llama4_text\", \"layer_types\": [\"chunked_attention\", \"full_attention\", "
         "\"chunked_attention\"], " SHAPE "}",
         "layer_types: chunked_attention in all layers but every fourth one expected, full_attention found for layer "
         "1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *g = gguf_new("d");
        Status st = hf_config_memory("d", str_of(cases[i][0]), g);
        if (st.code != QUILL_MODEL || !strstr(st.message, cases[i][1]))
            fail_msg("%s: code %d: %s", cases[i][0], st.code, st.message);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas), cmocka_unit_test(test_steep_softmax), cmocka_unit_test(test_absent_keys),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_configs),       cmocka_unit_test(test_refused_configs),
    };
    return cmocka_run_group_tests(tests, isa_print, NULL);
}
