// tests/test_ssd.c: families with Mamba-2 layers (MIXER_SSD): odd shapes against the formulas in double, parts that a
// file may leave out, what is refused. test_recurrent.c tests their kernels and their states.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include "base/file.h"
#include "tests/rig/formulas.h"
#include "tests/rig/hf_compare.h"
#include "tests/rig/hf_directory.h"
#include "tests/rig/tiny_model.h"

static void test_shapes(void **state) {
    (void)state;
    static const TinyModel shapes[] = {
        {.arch = "granitehybrid"},
        {.arch = "granitehybrid",
         .dim = 60,
         .n_heads = 3,
         .key_heads = 3,
         .value_heads = 6,
         .state = 13,
         .taps = 5,
         .ffn = 36},
        {.arch = "granitehybrid",
         .key_heads = 1,
         .value_heads = 8,
         .state = 32,
         .taps = 2,
         .tied = true,
         .n_layers = 7},
        {.arch = "granitehybrid", .dim = 44, .value_heads = 22, .state = 40, .head_dim = 22, .n_rot = 10},
        {.arch = "granitehybrid", .n_layers = 1, .key_heads = 4, .value_heads = 4, .state = 7},
        {.arch = "granitehybrid", .n_experts = 7, .n_used = 3, .ffn = 20, .ffn_shared = 52, .n_layers = 4},
        {.arch = "nemotron_h"},
        {.arch = "nemotron_h", .dim = 44, .head_dim = 26, .ffn = 36, .value_heads = 22, .state = 9, .tied = true},
        {.arch = "nemotron_h", .n_layers = 5, .key_heads = 4, .value_heads = 8, .taps = 3},
        {.arch = "nemotron_h", .n_layers = 9},
        {.arch = "nemotron_h_moe"},
        {.arch = "nemotron_h_moe",
         .dim = 52,
         .head_dim = 18,
         .n_experts = 12,
         .n_used = 5,
         .ffn = 22,
         .ffn_shared = 46},
        {.arch = "nemotron_h_moe", .n_experts = 33, .n_used = 2, .ffn = 16, .n_layers = 8, .key_heads = 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        TinyModel shape = shapes[i];
        char what[32];
        snprintf(what, sizeof what, "shape %zu", i);
        shape.seed = 40 + i;
        Gguf *g = tiny_model(&shape);
        expect_formulas(g, 0, 50 + i, what);
        gguf_close(g);
    }
}

// A convolution without a bias.
static void test_no_bias(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "granitehybrid", .seed = 3});
    Gguf *less = tiny_without(g, "blk.0.ssm_conv1d.bias");
    expect_formulas(less, 0, 5, "no bias");
    gguf_close(less);
    gguf_close(g);
}

static void expect_refused(const Gguf *g, const char *word) {
    Model m;
    const Backend *be;
    assert_ok(isa_backend("scalar", false, &be));
    Status st = model_load(&m, g, be);
    if (st.code != QUILL_MODEL || !strstr(st.message, word)) fail_msg("%s expected, %s found", word, st.message);
}

static void test_refused(void **state) {
    (void)state;
    static const char *const required[] = {"ssm_in.weight", "ssm_conv1d.weight", "ssm_a",          "ssm_d",
                                           "ssm_dt.bias",   "ssm_norm.weight",   "ssm_out.weight", "ffn_norm.weight"};
    Gguf *g = tiny_model(&(TinyModel){.arch = "granitehybrid", .seed = 3});
    for (size_t i = 0; i < ARRAY_LEN(required); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.1.%s", required[i]);
        Gguf *less = tiny_without(g, name);
        expect_refused(less, name);
        gguf_close(less);
    }
    gguf_set_u32(g, "granitehybrid.ssm.group_count", 3);
    expect_refused(g, "granitehybrid.ssm.time_step_rank");
    gguf_set_u32(g, "granitehybrid.ssm.group_count", 1);
    expect_refused(g, "ssm_in.weight"); // B and C of another width
    gguf_close(g);
}

// ---- directories ----------------------------------------------------------------------------------------------------

// Directories with experts, whose tensors test_hf.c does not see for granitehybrid. config.json has a bare Infinity, as
// Python writes it.
static void test_directories(void **state) {
    (void)state;
    static const TinyModel models[] = {{.arch = "granitehybrid", .n_experts = 4, .n_rot = 16},
                                       {.arch = "nemotron_h", .tied = true},
                                       {.arch = "nemotron_h_moe", .key_heads = 4}};
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        Gguf *g = tiny_model(&models[i]);
        char *dir = hf_made_directory("ssd"), path[1200];
        Buf text = {0}, more = {0};
        hf_directory_write(g, dir, &(HfDirectory){.no_tokenizer = true});
        snprintf(path, sizeof path, "%s/config.json", dir);
        assert_ok(file_read(path, &text));
        buf_printf(&more, "{\"time_step_limit\": [0.0, Infinity], \"x\": \"\\\"Infinity\", %s", text.data + 1);
        hf_directory_text(dir, "config.json", more.data);
        hf_compare(g, dir, "scalar", 1e-6, models[i].arch);
        buf_free(&text);
        buf_free(&more);
        gguf_close(g);
    }
}

// Which family a configuration belongs to; NULL: `word` is in the message that refuses it.
static void test_configs(void **state) {
    (void)state;
#define GRANITE "{\"model_type\": \"granitemoehybrid\", \"num_hidden_layers\": 2, "
#define NEMOTRON "{\"model_type\": \"nemotron_h\", "
    static const struct {
        const char *config, *arch, *word;
    } cases[] = {
        {GRANITE "\"num_local_experts\": 0}", "granitehybrid", NULL},
        {GRANITE "\"num_local_experts\": 0, \"layer_types\": [\"attention\", \"full_attention\"]}", "granite", NULL},
        {GRANITE "\"layer_types\": [\"attention\", \"full_attention\"]}", "granitehybrid", NULL},
        {GRANITE "\"layers_block_type\": [\"mamba\", \"full_attention\"]}", "granitehybrid", NULL},
        {GRANITE "\"time_step_limit\": [0.0, {\"__float__\": \"Infinity\"}]}", "granitehybrid", NULL},
        {GRANITE "\"time_step_limit\": [0.001, 0.1]}", NULL, "time_step_limit: 0 and Infinity expected"},
        {GRANITE "\"position_embedding_type\": \"alibi\"}", NULL, "position_embedding_type: rope, nope or null"},
        {GRANITE "\"mamba_d_head\": 7}", NULL, "mamba_d_head: mamba_expand * hidden_size / mamba_n_heads"},
        {GRANITE "\"mamba_n_groups\": 3}", NULL, "mamba_n_groups: a divisor of mamba_n_heads"},
        {NEMOTRON "\"hybrid_override_pattern\": \"M-*M\"}", "nemotron_h", NULL},
        {NEMOTRON "\"hybrid_override_pattern\": \"ME*\"}", "nemotron_h_moe", NULL},
        {NEMOTRON "\"layers_block_type\": [\"mamba\", \"moe\"]}", "nemotron_h_moe", NULL},
        {NEMOTRON "\"hybrid_override_pattern\": \"M-E\"}", NULL, "layer_types: for each layer linear_attention"},
        {NEMOTRON "\"hybrid_override_pattern\": \"MX\"}", NULL, "layer_types: for each layer linear_attention"},
        {NEMOTRON "\"hybrid_override_pattern\": \"M\u00fc\"}", NULL, "layer_types: for each layer linear_attention"},
        {NEMOTRON "\"hidden_size\": 64}", NULL, "layer_types: for each layer linear_attention"},
        {NEMOTRON "\"hybrid_override_pattern\": \"ME\", \"moe_latent_size\": 64}", NULL, "moe_latent_size: null"},
        {NEMOTRON "\"hybrid_override_pattern\": \"M-\", \"mlp_hidden_act\": \"silu\"}", NULL, "relu2 expected"},
        {NEMOTRON "\"hybrid_override_pattern\": \"M-\", \"n_groups\": 3}", NULL, "n_groups: a divisor"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *g = gguf_new("d");
        Str arch = {0};
        Status st = hf_config_memory("d", str_of(cases[i].config), g);
        if (cases[i].arch) assert_ok(st);
        else if (st.code != QUILL_MODEL || !strstr(st.message, cases[i].word))
            fail_msg("%s: code %d: %s", cases[i].config, st.code, st.message);
        gguf_str(g, "general.architecture", &arch, false);
        if (cases[i].arch && !str_is(arch, cases[i].arch))
            fail_msg("%s: %.*s", cases[i].config, (int)arch.n, arch.data);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),      cmocka_unit_test(test_no_bias), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_directories), cmocka_unit_test(test_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
