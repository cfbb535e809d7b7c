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
     {0.0330182993, 1.67694506, -1.18077051, 1.65662995, 1.06004375, -0.946611193, 0.131134064, -1.31274598}},
    {"qwen2vl",
     {.arch = "qwen2vl", .n_kv_heads = 1},
     {0.0698422814, 0.619881479, 0.0791356278, -0.0177585645, -0.454828988, 0.215380586, -0.415092521, -0.410252492}},
    {"qwen3vl",
     {.arch = "qwen3vl", .n_kv_heads = 1, .tied = true},
     {-1.01102578, 1.81856455, -0.0591141871, 0.344587207, 0.497398022, -0.34602544, -0.416901234, 0.383994674}},
    {"qwen3vlmoe",
     {.arch = "qwen3vlmoe", .n_kv_heads = 1, .n_experts = 6, .n_used = 3},
     {-0.194746328, 0.507614981, -2.04120638, 1.239553, -1.54545483, -0.843619507, 0.207076097, -1.23913583}},
    {"seed_oss",
     {.arch = "seed_oss", .n_kv_heads = 1, .head_dim = 18},
     {0.467045373, 2.31096712, -0.678713127, -0.511865757, -0.858722342, -0.697762526, 1.01676935, -0.992605949}},
    {"ernie4_5",
     {.arch = "ernie4_5", .n_kv_heads = 1, .head_dim = 18, .tied = true},
     {0.360010925, 0.0335286647, -0.361335978, -0.623100113, -0.0368602866, -0.0135407246, 0.631202837, -0.0151140981}},
    {"llama4",
     {.arch = "llama4", .n_kv_heads = 1, .window = 7},
     {0.596755394, -0.0134614906, -0.581538095, 0.978579667, -0.540708897, -0.310923058, 0.318484284, 1.85006235}},
    {"llama4-128",
     {.arch = "llama4", .n_experts = 128, .n_used = 2, .ffn = 24, .n_layers = 5, .tied = true},
     {0.649094827, 0.00366758148, -1.04253133, -1.35876953, -0.0527917514, -2.73908219, -1.2855806, 1.4873126}},
    {"exaone4",
     {.arch = "exaone4", .tied = true},
     {-0.679316923, -0.350731012, 0.759318086, -1.20510896, -0.125484515, -0.540500831, -0.00938326294, -1.59065255}},
    {"exaone4-windows",
     {.arch = "exaone4", .window = 7, .n_layers = 6, .n_kv_heads = 1, .head_dim = 18},
     {0.406776559, -1.10641567, 0.649774768, -1.27317686, 0.239292259, 0.637000994, -1.79533443, 0.244244733}},
    {"hunyuan-dense",
     {.arch = "hunyuan-dense", .n_kv_heads = 1, .head_dim = 18, .tied = true},
     {-0.156595805, 0.945082173, 0.370057011, -1.88068152, 0.274529882, -0.0913136686, 0.555833115, -2.12575}},
    {"apertus",
     {.arch = "apertus", .n_kv_heads = 1, .head_dim = 18},
     {-0.838726618, 1.40760629, 0.32990971, 0.538264906, 1.24920889, 0.563197411, -0.41366169, -0.0961531875}},
    {"arcee",
     {.arch = "arcee", .n_kv_heads = 1},
     {0.457126142, -1.0501831, -1.29077186, -1.0954523, 0.67942864, -0.557509728, -0.019496614, 0.868836397}},
    {"command-r",
     {.arch = "command-r", .n_kv_heads = 1, .tied = true},
     {0.91542981, 1.90145404, -1.76645988, -2.49048961, 2.6019573, 1.20271326, -2.37665012, -2.10788122}},
    {"cohere2",
     {.arch = "cohere2", .window = 7, .n_layers = 5, .tied = true},
     {-0.15137101, 0.764893153, 1.71581425, 1.81415168, -0.0469398155, 1.83703061, 1.51289078, 0.657716057}},
    {"gemma",
     {.arch = "gemma", .n_kv_heads = 1, .head_dim = 18, .tied = true},
     {-0.0162095349, 0.729527983, 0.913127723, -1.35655168, 2.17870048, -0.774650323, -0.0596778827, -0.0772258209}},
    {"muse-glimmer",
     {.arch = "muse-glimmer", .n_kv_heads = 1, .head_dim = 18},
     {-1.10451462, -1.00265363, 0.718712137, -1.01838192, -1.45781011, -1.73871961, -0.497735881, 0.0624177625}},
    {"muse-glimmer-tied",
     {.arch = "muse-glimmer", .tied = true, .window = 7, .dim = 40, .seed = 1},
     {0.431183562, -1.16327122, 0.319087047, -1.4022714, -1.12244914, -1.14873308, -0.770728226, -0.0704975235}},
    {"granitehybrid",
     {.arch = "granitehybrid", .n_layers = 4, .seed = 1},
     {2.39537353, -1.70336881, 1.72902015, -0.700679107, 1.0930207, 0.316508743, -1.37713017, 1.4291193}},
    {"granitehybrid-experts",
     {.arch = "granitehybrid",
      .n_experts = 5,
      .n_rot = 16,
      .key_heads = 1,
      .value_heads = 8,
      .state = 24,
      .tied = true},
     {-1.97356209, 1.67662811, -0.71897977, -1.64056376, 0.587698105, -1.45122991, 1.7682522, -2.88666996}},
    {"nemotron_h",
     {.arch = "nemotron_h", .seed = 2},
     {-1.6655716, -0.735149486, 1.35208806, 2.32064323, -0.512851976, 0.0929293152, -0.759418674, 0.511624657}},
    {"nemotron_h_moe",
     {.arch = "nemotron_h_moe", .key_heads = 1, .value_heads = 8, .seed = 3},
     {2.07216408, 0.419985725, 0.1055064, -0.721338887, 0.449884507, 0.586562117, 0.903514834, 1.51972323}},
    {"olmoe",
     {.arch = "olmoe", .head_dim = 16, .n_kv_heads = 4, .n_experts = 12, .n_used = 5},
     {-2.02645989, 0.430207539, 0.779357151, 0.541437226, -0.704724079, -0.395775128, 0.50564736, 2.35893947}},
    {"granitemoe",
     {.arch = "granitemoe", .n_kv_heads = 1, .ffn_shared = 50},
     {-0.508198419, 0.206029814, 1.87792683, -2.42451615, -0.823808018, -2.05278428, -0.569821808, 0.722343036}},
    {"ernie4_5-moe",
     {.arch = "ernie4_5-moe", .head_dim = 18, .ffn_shared = 256, .tied = true},
     {0.281838477, -0.283600848, -0.185027786, -1.3135286, -0.84149718, 0.317298491, 0.720640956, 1.83391108}},
    {"glm4moe",
     {.arch = "glm4moe", .head_dim = 20, .qkv_bias = true, .n_experts = 12, .n_groups = 4},
     {-0.269570064, -0.336972491, 1.93045175, -1.53154642, -1.65672064, -1.69417365, -0.565539414, 0.278338595}},
    {"glm4moe-normed",
     {.arch = "glm4moe", .qk_norm = true, .softmax = true, .ffn_shared = 256},
     {0.817868652, 0.583012178, 0.419957617, -0.270782003, 0.304337563, 0.477177603, 1.42659279, -0.459957618}},
    {"bailingmoe2",
     {.arch = "bailingmoe2", .n_experts = 16, .n_groups = 4, .n_used = 5},
     {-0.210253897, 0.617852132, 0.641766904, -0.15943131, 0.707909513, -0.814180813, 0.335805214, -0.199884955}},
    {"internlm2",
     {.arch = "internlm2", .n_kv_heads = 1},
     {-0.654971145, -0.201604285, 1.44532846, -2.47918933, 0.718004229, 0.179533833, 0.072649002, -0.356099409}},
    {"exaone",
     {.arch = "exaone", .n_kv_heads = 1, .tied = true},
     {-0.701211349, 0.686298213, -0.371547415, 0.00951453342, 1.11147506, -0.547911767, 0.552968232, 0.503050849}},
    {"minicpm",
     {.arch = "minicpm", .n_kv_heads = 1, .tied = true},
     {-2.15627974, 2.31799565, -1.45370391, -0.212207718, 3.51717714, -2.41732236, 0.0556949603, 1.35848174}},
    {"maincoder",
     {.arch = "maincoder", .n_kv_heads = 1, .head_dim = 18},
     {-0.337036556, -0.168873896, 1.31586472, 0.943554095, -1.03743718, 0.821709553, -0.930224294, 1.65418639}},
    {"hy_v3",
     {.arch = "hy_v3", .n_kv_heads = 1, .head_dim = 18, .ffn_shared = 256},
     {0.95212679, 0.2387627, -0.644194966, -0.410637024, -0.5122515, -0.938452393, -0.378963897, 0.510531765}},
    {"hunyuan-moe",
     {.arch = "hunyuan-moe", .head_dim = 18, .tied = true},
     {-0.649073958, 1.7619016, 0.195438615, -0.658639172, -0.118793171, -1.92333153, 0.685303237, 2.87719631}},
    {"dots1",
     {.arch = "dots1", .head_dim = 18, .n_experts = 12, .n_groups = 4},
     {0.417191745, -0.167993953, -1.63656702, 0.529115793, 0.625496347, 0.557692668, -0.645287495, -0.318109282}},
    {"mellum",
     {.arch = "mellum", .n_kv_heads = 1, .head_dim = 18, .window = 7},
     {0.463352124, 1.9604437, 0.338626507, 0.120194387, -0.654398869, 0.427407575, 0.144962388, -0.474128733}},
    {"mellum-bases",
     {.arch = "mellum", .swa_base = 90, .n_layers = 5, .ffn = 96, .seed = 1},
     {-1.00406599, 0.596611577, -0.26468013, -2.36428271, 0.941016535, 0.785326967, -1.7309334, 1.87254793}},
    {"exaone-moe",
     {.arch = "exaone-moe", .n_kv_heads = 1, .head_dim = 18, .window = 7},
     {-0.889886397, 0.807075018, -0.588700495, -1.73268564, -1.01807104, -0.613532595, -1.40584867, 0.507308161}},
    {"afmoe",
     {.arch = "afmoe", .n_kv_heads = 1, .head_dim = 18, .window = 7, .ffn_shared = 256},
     {0.862910328, 1.26424417, 1.29986366, -0.92309603, -1.35475041, -2.49812067, -2.14999878, -0.65823812}},
    {"minimax-m2",
     {.arch = "minimax-m2", .head_dim = 24, .n_kv_heads = 1},
     {-0.0817325244, -0.717518347, 0.170502894, -0.424555969, 0.56426604, 0.970103079, 2.46277062, -0.308056415}},
    {"lfm2moe",
     {.arch = "lfm2moe", .n_layers = 4, .taps = 4},
     {-0.00774733842, -1.40145142, -0.276251678, 0.0958419046, 0.907909287, -1.59737691, 0.2045653, 0.856617998}},
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
