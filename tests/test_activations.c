// tests/test_activations.c: compares the sums of squared activations that look/activations.c collects with sums
// computed here and with the inputs of the products.
#include "tests/rig/engine_rig.h"

#include "cpu/backend.h"
#include "files/imatrix.h"
#include "formats/types.h"
#include "look/activations.h"
#include "look/all_logits.h"

#include <math.h>

enum { N = 50 };

typedef struct {
    double squares; // sum over all logits
    int n_vocab;
} LogitSums;

static bool add_logits(void *arg, const float *logits, int first, int n) {
    (void)first;
    LogitSums *s = arg;
    for (size_t i = 0; i < (size_t)n * (size_t)s->n_vocab; i++) s->squares += (double)logits[i] * (double)logits[i];
    return true;
}

static void run(Engine *e, Activations *a, const char *path) {
    int ids[N];
    uint64_t random = 5;
    for (int i = 0; i < N; i++) ids[i] = (int)(test_random(&random) % ENGINE_VOCAB);
    LogitSums sums = {.n_vocab = e->model.c.n_vocab};
    assert_ok(activations_new(a, e));
    Watch watch = activations_watch(a);
    look_all_logits(e, ids, N, &watch, add_logits, &sums);
    assert_ok(activations_save(a, path, "text", 1, N));
    assert_true(sums.squares > 0);
}

static const float *mean_of(const Imatrix *m, const char *weight, int n) {
    int found, n_mat;
    const float *mean = imatrix_of(m, str_of(weight), &found, &n_mat);
    if (!mean) fail_msg("%s: nothing", weight);
    assert_int_equal(found, n);
    return mean;
}

// The input of layer 0 is the normalised embedding: computes its column sums.
static void check_first_layer(const Engine *e, const Imatrix *m) {
    const Model *model = &e->model;
    int dim = model->c.dim;
    double want[512] = {0};
    uint64_t random = 5;
    for (int t = 0; t < N; t++) {
        const float *x = (const float *)model->ends.tok_embd.data + (test_random(&random) % ENGINE_VOCAB) * (size_t)dim;
        double square = 0;
        for (int i = 0; i < dim; i++) square += (double)x[i] * (double)x[i];
        for (int i = 0; i < dim; i++) {
            double v = (double)x[i] / sqrt(square / dim + (double)model->c.eps) * (double)model->layers[0].norm_att[i];
            want[i] += v * v / N;
        }
    }
    const float *got = mean_of(m, "blk.0.attn_q.weight", dim);
    for (int i = 0; i < dim; i++) assert_true(fabs((double)got[i] - want[i]) < 1e-5 * want[i] + 1e-9);
    assert_memory_equal(got, mean_of(m, "blk.0.attn_v.weight", dim), (size_t)dim * sizeof *got);
}

static void check_others(const Engine *e, const Imatrix *m) {
    const ModelConfig *c = &e->model.c;
    char name[64];
    for (int l = 0; l < c->n_layers; l++) {
        const struct {
            const char *weight;
            int n;
        } all[] = {{"attn_k", c->dim},
                   {"attn_output", c->n_heads * c->head_dim},
                   {"ffn_gate", c->dim},
                   {"ffn_up", c->dim},
                   {"ffn_down", c->ffn}};
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, all[i].weight);
            const float *mean = mean_of(m, name, all[i].n);
            for (int k = 0; k < all[i].n; k++) assert_true(mean[k] > 0 && mean[k] < 1e4f);
        }
    }
    mean_of(m, "output.weight", c->dim);
    assert_int_equal(imatrix_count(m), 7 * c->n_layers + 1);
}

static void test_sums(void **state) {
    (void)state;
    for (int chunk = 7; chunk <= 64; chunk += 57) { // rows of a step: 7 and 64
        Engine e;
        Activations a;
        Imatrix *m;
        open_engine(&e, &(EngineSetup){.model = {.type = TYPE_F32, .seed = 3}, .ubatch = chunk});
        run(&e, &a, test_tmp("sums.gguf"));
        assert_ok(imatrix_open(test_tmp("sums.gguf"), &m));
        check_first_layer(&e, m);
        check_others(&e, m);
        imatrix_close(m);
        activations_free(&a);
        engine_close(&e);
    }
}

// Every instruction set must give the sums of the scalar code, within the rounding of its activations.
static void test_instruction_sets_agree(void **state) {
    (void)state;
    const char *isas[] = {"scalar", "portable", "avx2", "avx512", "amx"};
    float want[64];
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        if (!cpu_has_isa(isas[i])) continue;
        Engine e;
        Activations a;
        Imatrix *m;
        open_engine(&e, &(EngineSetup){.model = {.type = TYPE_F16, .seed = 4}, .isa = isas[i]});
        run(&e, &a, test_tmp("isa.gguf"));
        assert_ok(imatrix_open(test_tmp("isa.gguf"), &m));
        const float *got = mean_of(m, "blk.1.ffn_down.weight", e.model.c.ffn);
        if (i == 0) memcpy(want, got, sizeof want);
        assert_true(test_distance(got, want, 64) < 0.02);
        imatrix_close(m);
        activations_free(&a);
        engine_close(&e);
    }
}

// Every row uses n_used experts, so the sums of all experts must be n_used times those of the shared expert. llama4
// multiplies the inputs of experts by sigmoids, which are below 1.
static void check_experts(const char *arch, int ffn_shared) {
    Engine e;
    Activations a;
    Imatrix *m;
    bool weighed = strcmp(arch, "llama4") == 0;
    open_engine(&e,
                &(EngineSetup){.model = {.arch = arch, .ffn = 40, .ffn_shared = ffn_shared, .seed = 3}, .ubatch = 7});
    run(&e, &a, test_tmp("experts.gguf"));
    assert_ok(imatrix_open(test_tmp("experts.gguf"), &m));
    const ModelConfig *c = &e.model.c;
    for (int l = 0; l < c->n_layers; l++) {
        double count = 0;
        if (e.model.layers[l].kind.ffn != FFN_EXPERTS) continue;
        for (int x = 0; x < c->n_experts; x++) count += a.expert_count[l * c->n_experts + x];
        assert_true(count == (double)(N * c->n_used));
        const double *rows = a.sums + (size_t)(l * FEEDS_HEAD + FEEDS_FFN_IN) * (size_t)a.widest;
        for (int i = 0; i < c->dim; i++) {
            double sum = 0;
            for (int x = 0; x < c->n_experts; x++)
                sum += a.expert_sums[0][(size_t)(l * c->n_experts + x) * (size_t)a.widest + (size_t)i];
            if (weighed) assert_true(sum > 0 && sum < 0.999 * c->n_used * rows[i]);
            else assert_true(fabs(sum - c->n_used * rows[i]) <= 1e-9 * sum);
        }
        char name[64];
        static const char *const stacks[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
        for (int k = 0; k < 3; k++) {
            int n, n_mat;
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, stacks[k]);
            const float *mean = imatrix_of(m, str_of(name), &n, &n_mat);
            assert_non_null(mean);
            assert_int_equal(n, k < 2 ? c->dim : c->ffn);
            assert_int_equal(n_mat, c->n_experts);
            for (int x = 0; x < n_mat; x++) { // an expert that was never chosen has equal values
                double chosen = a.expert_count[l * c->n_experts + x];
                double want = a.expert_sums[k == 2][(size_t)(l * c->n_experts + x) * (size_t)a.widest] / chosen;
                assert_true(fabs((double)mean[x * n] - (chosen > 0 ? want : 1)) <= 1e-5 * fabs((double)mean[x * n]));
            }
        }
        snprintf(name, sizeof name, "blk.%d.ffn_down_shexp.weight", l);
        mean_of(m, name, c->ffn_shared);
    }
    imatrix_close(m);
    activations_free(&a);
    engine_close(&e);
}

static void test_experts(void **state) {
    (void)state;
    check_experts("qwen2moe", 72);
    check_experts("llama4", 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums), cmocka_unit_test(test_instruction_sets_agree),
                                       cmocka_unit_test(test_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
