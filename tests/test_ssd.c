// tests/test_ssd.c: families with Mamba-2 layers (MIXER_SSD): odd shapes against the formulas in double, parts that a
// file may leave out, what is refused. test_recurrent.c tests their kernels and their states.
#include "tests/rig/testing.h"

#include "tests/rig/formulas.h"
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_no_bias),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
