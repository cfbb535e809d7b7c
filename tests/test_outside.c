// tests/test_outside.c: families beside transformers: logits of small random models, which scripts/outside_logits.py
// has computed in float64. test_families.c has the families of the golden files.
//
// test_outside DIR writes these models to DIR, for that script.
#include "tests/rig/testing.h"

#include "tests/rig/formulas.h"
#include "tests/rig/tiny_model.h"

#include <math.h>
#include <stdio.h>

enum { N_TOKENS = 24, STEP = 40, VOCAB = 320, N_VALUES = VOCAB / STEP };

typedef struct {
    const char *name;
    TinyModel model;
    double want[N_VALUES]; // logits of the last row at entries 0, STEP, 2 STEP, ...
} Outside;

static const Outside models[] = {
    {"llama",
     {.arch = "llama", .n_kv_heads = 1},
     {-0.654971513, -0.201604398, 1.44532788, -2.47918921, 0.718004475, 0.179534224, 0.0726488387, -0.35609921}},
    {"mistral4",
     {.arch = "mistral4", .q_rank = 20, .n_layers = 3},
     {0.0330179088, 1.67694509, -1.18077069, 1.65662985, 1.06004397, -0.946611045, 0.131133646, -1.31274572}},
    {"muse-glimmer",
     {.arch = "muse-glimmer", .n_kv_heads = 1, .head_dim = 18},
     {-1.10451462, -1.00265363, 0.718712137, -1.01838192, -1.45781011, -1.73871961, -0.497735881, 0.0624177625}},
    {"muse-glimmer-tied",
     {.arch = "muse-glimmer", .tied = true, .window = 7, .dim = 40, .seed = 1},
     {0.431183562, -1.16327122, 0.319087047, -1.4022714, -1.12244914, -1.14873308, -0.770728226, -0.0704975235}},
};

// The largest difference from the wanted values, divided by the largest of these.
static double distance(const float *logits, const double *want) {
    double most = 0, off = 0;
    for (int i = 0; i < N_VALUES; i++) {
        most = fmax(most, fabs(want[i]));
        off = fmax(off, fabs((double)logits[i * STEP] - want[i]));
    }
    return off / most;
}

// The formulas in double, which are the reference of the kernels, and the kernels.
static void test_outside_models(void **state) {
    (void)state;
    int tokens[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) tokens[i] = (37 * i + 11) % VOCAB;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        Gguf *g = tiny_model(&models[i].model);
        float *logits = plain_forward(g, 0, tokens, N_TOKENS);
        double d = distance(logits + (N_TOKENS - 1) * VOCAB, models[i].want);
        if (!(d < 1e-6)) fail_msg("%s: the formulas in double: distance %.3g", models[i].name, d);
        free(logits);
        expect_formulas(g, 0, i, models[i].name);
        gguf_close(g);
    }
}

static int write_models(const char *dir) {
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s.gguf", dir, models[i].name);
        Status st = tiny_model_file(&models[i].model, path);
        if (st.code) fprintf(stderr, "%s\n", st.message);
        if (st.code) return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return write_models(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_outside_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
