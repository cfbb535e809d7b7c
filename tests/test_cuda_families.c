// tests/test_cuda_families.c: gemma4, whose layers differ, deepseek2, whose K and V are compressed, muse-glimmer, and
// families with mixtures of experts on the GPU against the scalar reference: shapes, KV types, layers on both devices;
// what 16-bit types round; sequences that are forked, truncated and preempted. No GPU is needed (tests/rig/cuda_rig.h).
#include "tests/rig/testing.h"

#include "gpu/cuda_scratch.h"
#include "tests/rig/cuda_rig.h"
#include "tests/rig/rounded.h"

// As SHORT and LONG of tests/test_cuda.c.
enum { SHORT, LONG };
static const CudaBatching short_runs[] = {{CUDA_PROMPT, CUDA_PROMPT, CUDA_PROMPT, false},
                                          {8, 5, 5, true},
                                          {3, 1, 1, false}},
                          long_runs[] = {
                              {100, 64, 64, false}, {100, 37, 37, false}, {75, 54, 7, true}, {67, 62, 1, false}};

// A shape of a family, how it is set up, which batchings it goes through.
typedef struct {
    const char *name;
    TinyModel m;
    CudaSetup s;
    int lengths;
    double limit;
} ShapeCase;

static void expect_shapes(const char *arch, const ShapeCase *all, size_t n) {
    for (size_t i = 0; i < n; i++) {
        TinyModel shape = all[i].m;
        shape.arch = arch, shape.seed = i;
        Gguf *g = tiny_model(&shape);
        if (all[i].lengths == LONG)
            cuda_rig_expect(g, all[i].s, long_runs, ARRAY_LEN(long_runs), all[i].limit, all[i].name);
        else cuda_rig_expect(g, all[i].s, short_runs, ARRAY_LEN(short_runs), all[i].limit, all[i].name);
        gguf_close(g);
    }
}

// Layers with heads of two sizes, layers that share K and V (of open groups too), V that is K, per-layer embeddings.
static void test_layers_that_differ(void **state) {
    (void)state;
    static const ShapeCase all[] = {
        {"gemma4, blocks of 4",
         {.n_heads = 6, .n_kv_heads = 3, .head_dim = 20, .dim = 48, .ffn = 44, .per = 10},
         {ALL_LAYERS, TYPE_F32, 4, 3, .scarce = true},
         SHORT,
         1e-5},
        {"gemma4, a layer on the CPU",
         {.n_heads = 6, .n_kv_heads = 2, .head_dim = 24},
         {5, TYPE_F32, 7, .shuffle = 5},
         SHORT,
         1e-5},
        {"gemma4, KV kivi2",
         {.n_layers = 4, .n_shared = 1, .head_dim = 24},
         {ALL_LAYERS, TYPE_KIVI2, 7, 2, .scarce = true, .rotate = true},
         LONG,
         1e-5},
        {"gemma4, KV q8_0, tiles", {.head_dim = 64, .dim = 96}, {5, TYPE_Q8_0, 16, 4, .scarce = true}, SHORT, 5e-3},
        {"gemma4 with experts",
         {.n_experts = 7, .n_layers = 3, .dim = 44, .head_dim = 24, .ffn = 38},
         {ALL_LAYERS, TYPE_F32, 4, 9, .scarce = true},
         SHORT,
         1e-5},
        {"gemma4 with experts, KV fp8, layers on both",
         {.n_experts = 7, .n_layers = 3, .head_dim = 24},
         {2, TYPE_FP8, 16, .shuffle = 4},
         SHORT,
         1e-5},
        {"gemma4 with experts on the host",
         {.n_experts = 7, .n_layers = 3, .head_dim = 24},
         {ALL_LAYERS, TYPE_F32, 4, .n_kept = 2},
         SHORT,
         1e-5},
    };
    expect_shapes("gemma4", all, ARRAY_LEN(all));
}

// K and V are compressed; experts that sigmoids choose, in groups. Scales of quantised groups may round the
// other way in f16.
static void test_compressed_kv(void **state) {
    (void)state;
    static const ShapeCase all[] = {
        {"deepseek2, odd sizes",
         {.dim = 52, .n_heads = 3, .head_dim = 22, .kv_rank = 34, .v_dim = 14, .ffn = 30},
         {ALL_LAYERS, TYPE_F32, 4, .shuffle = 3},
         SHORT,
         1e-5},
        {"deepseek2, Q compressed, groups of experts, a layer on the CPU",
         {.q_rank = 27, .n_heads = 5, .head_dim = 18, .n_experts = 12, .n_groups = 4, .tied = true},
         {1, TYPE_F32, 7, .shuffle = 5},
         SHORT,
         1e-5},
        {"deepseek2, groups of experts behind a softmax",
         {.head_dim = 26, .n_rot = 4, .n_experts = 9, .n_groups = 3, .softmax = true, .n_used = 2, .n_layers = 2},
         {ALL_LAYERS, TYPE_F32, 7, .shuffle = 5},
         SHORT,
         1e-5},
        {"deepseek2, KV kivi2",
         {.n_layers = 1, .head_dim = 16, .kv_rank = 40},
         {ALL_LAYERS, TYPE_KIVI2, 7, .shuffle = 2},
         LONG,
         5e-3},
        {"deepseek2, KV q8_0", {.head_dim = 16, .q_rank = 20}, {ALL_LAYERS, TYPE_Q8_0, .shuffle = 3}, SHORT, 5e-3},
        {"deepseek2, rank 256, KV F16",
         {.n_layers = 1, .n_heads = 5, .head_dim = 64, .kv_rank = 256, .n_rot = 32},
         {ALL_LAYERS, TYPE_F16, 16, .shuffle = 7},
         LONG,
         2e-3},
    };
    static const ShapeCase scaled[] = {{"mistral4, Q with a temperature, two layers on the CPU",
                                        {.q_rank = 20, .head_dim = 26, .n_rot = 6, .n_layers = 3},
                                        {1, TYPE_F32, 7, .shuffle = 5},
                                        SHORT,
                                        1e-5}};
    expect_shapes("deepseek2", all, ARRAY_LEN(all));
    expect_shapes("mistral4", scaled, ARRAY_LEN(scaled));
}

// The embedding is normalised, attention has a gate of its own, and layers without a window have no RoPE.
static void test_gates(void **state) {
    (void)state;
    static const ShapeCase all[] = {
        {"muse-glimmer, odd sizes",
         {.n_heads = 6, .n_kv_heads = 2, .head_dim = 22, .dim = 44, .ffn = 52, .window = 5},
         {ALL_LAYERS, TYPE_F32, 4, .shuffle = 3},
         SHORT,
         1e-5},
        {"muse-glimmer, tied, two layers on the CPU",
         {.n_heads = 8, .n_kv_heads = 1, .head_dim = 18, .tied = true},
         {3, TYPE_F32, 7, .shuffle = 5},
         SHORT,
         1e-5},
        {"muse-glimmer, KV q8_0, tiles",
         {.head_dim = 64, .dim = 96},
         {ALL_LAYERS, TYPE_Q8_0, 16, 4, .scarce = true},
         LONG,
         5e-3},
    };
    expect_shapes("muse-glimmer", all, ARRAY_LEN(all));
}

// Experts behind a dense layer, chosen by sigmoids or by a softmax with a bias, with a shared expert, behind norms of
// whole Q and K. lfm2moe: tests/test_cuda_recurrent.c.
static void test_mixtures(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        ShapeCase shape;
    } all[] = {
        {"olmoe", {"olmoe", {.head_dim = 20, .n_experts = 9}, {ALL_LAYERS, TYPE_F32, 7, .shuffle = 3}, SHORT, 1e-5}},
        {"qwen3vlmoe", {"qwen3vlmoe", {.n_experts = 9}, {ALL_LAYERS, TYPE_F32, 7, .shuffle = 3}, SHORT, 1e-5}},
        {"granitemoe", {"granitemoe", {.dim = 48, .ffn = 37}, {1, TYPE_F32, 4, .shuffle = 3}, SHORT, 1e-5}},
        {"ernie4_5-moe",
         {"ernie4_5-moe",
          {.n_experts = 40, .n_used = 6, .ffn = 20},
          {ALL_LAYERS, TYPE_F32, 4, .shuffle = 2},
          SHORT,
          1e-5}},
        {"ernie4_5-moe",
         {"ernie4_5-moe, experts on the host", {.ffn = 36}, {ALL_LAYERS, TYPE_F32, 4, .n_kept = 2}, SHORT, 1e-5}},
        {"glm4moe",
         {"glm4moe",
          {.n_experts = 12, .n_groups = 4, .qk_norm = true, .qkv_bias = true, .ffn_shared = 256},
          {2, TYPE_F32, 7, .shuffle = 5},
          SHORT,
          1e-5}},
        {"bailingmoe2",
         {"bailingmoe2",
          {.n_experts = 36, .n_groups = 6, .ffn = 24},
          {ALL_LAYERS, TYPE_F32, .block = 16},
          SHORT,
          1e-5}},
        {"hy_v3",
         {"hy_v3",
          {.head_dim = 18, .ffn = 30, .ffn_shared = 60},
          {ALL_LAYERS, TYPE_F32, 4, .shuffle = 1},
          SHORT,
          1e-5}},
        {"hunyuan-moe", {"hunyuan-moe", {.head_dim = 20, .ffn = 37}, {1, TYPE_F32, 7, .shuffle = 3}, SHORT, 1e-5}},
        {"dots1", {"dots1", {.n_experts = 12, .n_groups = 4}, {2, TYPE_F32, .block = 16}, SHORT, 1e-5}},
        {"mellum", {"mellum", {.swa_base = 90, .ffn = 36}, {ALL_LAYERS, TYPE_F32, 4, .shuffle = 2}, SHORT, 1e-5}},
        {"exaone-moe", {"exaone-moe", {.window = 5, .ffn = 28}, {3, TYPE_F32, 4, .shuffle = 5}, SHORT, 1e-5}},
        {"afmoe",
         {"afmoe", {.window = 5, .head_dim = 18, .ffn = 30}, {ALL_LAYERS, TYPE_F32, 4, .shuffle = 1}, SHORT, 1e-5}},
        {"afmoe", {"afmoe, experts on the host", {.ffn = 36}, {ALL_LAYERS, TYPE_F32, 4, .n_kept = 3}, SHORT, 1e-5}},
        {"llama4",
         {"llama4", {.window = 5, .head_dim = 18, .ffn = 30}, {ALL_LAYERS, TYPE_F32, 4, .shuffle = 3}, SHORT, 1e-5}},
        {"llama4", {"llama4, experts on the host", {.ffn = 36}, {3, TYPE_F32, 4, .n_kept = 3}, SHORT, 1e-5}},
        {"llama4",
         {"llama4, chunks over tiles",
          {.window = 40, .head_dim = 64, .n_experts = 128, .n_used = 1, .ffn = 16},
          {ALL_LAYERS, TYPE_F16, 16, .shuffle = 7},
          LONG,
          2e-3}},
        {"minimax-m2",
         {"minimax-m2", {.head_dim = 18, .n_rot = 6, .ffn = 30}, {ALL_LAYERS, TYPE_F32, 4, .shuffle = 5}, SHORT, 1e-5}},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) expect_shapes(all[i].arch, &all[i].shape, 1);
}

// ---- rounding -------------------------------------------------------------------------------------------------------

// The distances of a run: from a host that rounds at the same places, from one that does not, and between the two.
typedef struct {
    const float *rounded;
    size_t n_vocab;
    double same, plain, cost;
} Rounded;

static void measure(void *arg, const float *got, const float *want, int n) {
    Rounded *r = arg;
    size_t all = (size_t)n * r->n_vocab;
    r->same = test_distance(got, r->rounded, all);
    r->plain = test_distance(got, want, all);
    r->cost = test_distance(r->rounded, want, all);
}

// A prompt in one step, whose products round their inputs, and a step of few rows: those round with quantised weights
// alone. The GPU must be nearer to the host that rounds at the same places than rounding moves that host. It is not
// equal to it: sums in another order make a number round the other way now and then, and that grows from layer to
// layer. One layer of deepseek2 in BF16 is 1e-7 away, four layers of gemma4 half of the cost.
static const CudaBatching rounding_runs[] = {{CUDA_PROMPT, CUDA_PROMPT, CUDA_PROMPT, false}, {8, 5, 5, false}};

typedef struct {
    TinyModel m;
    CudaSetup s;
    int least_head[2]; // heads whose attention rounds, in each run; 0: none
} RoundedShape;
static const RoundedShape rounding_cases[] = {
    {{.arch = "gemma4", .type = TYPE_BF16, .n_layers = 4, .n_shared = 1, .head_dim = 64, .dim = 64},
     {ALL_LAYERS, TYPE_F16, 16, 7, .scarce = true, .spare = 1 << 24},
     {1, 0}},
    {{.arch = "gemma4",
      .n_layers = 4,
      .n_shared = 1,
      .head_dim = 512,
      .dim = 64,
      .n_heads = 4,
      .n_kv_heads = 2,
      .per = 8},
     {ALL_LAYERS, TYPE_F16, 16, 5, .scarce = true},
     {1, 512}},
    {{.arch = "gemma4", .type = TYPE_Q8_0, .n_layers = 4, .n_shared = 1, .head_dim = 64, .dim = 64, .per = 32},
     {ALL_LAYERS, TYPE_F16, .block = 16},
     {1, 0}},
    {{.arch = "deepseek2", .n_heads = 18, .n_kv_heads = 18, .head_dim = 64, .kv_rank = 512, .n_rot = 32, .n_layers = 1},
     {ALL_LAYERS, TYPE_BF16, 16, .shuffle = 7},
     {1, 1}},
    {{.arch = "deepseek2", .type = TYPE_BF16, .n_layers = 1, .head_dim = 32},
     {ALL_LAYERS, TYPE_F16, .block = 16},
     {0, 0}},
    {{.arch = "deepseek2",
      .type = TYPE_Q8_0,
      .n_layers = 1,
      .head_dim = 64,
      .kv_rank = 64,
      .q_rank = 64,
      .n_rot = 32,
      .v_dim = 32},
     {ALL_LAYERS, TYPE_F16, .block = 16},
     {0, 0}},
};

static void test_rounding(void **state) {
    (void)state;
    gpu_tune((GpuTuning){0}); // without the tensor cores, few rows round the inputs of quantised weights alone
    for (size_t i = 0; i < ARRAY_LEN(rounding_cases); i++) {
        TinyModel shape = rounding_cases[i].m;
        shape.seed = i;
        Gguf *g = tiny_model(&shape);
        for (size_t k = 0; k < ARRAY_LEN(rounding_runs); k++) {
            CudaSetup s = rounding_cases[i].s;
            bool many = k == 0, quantised = type_info(shape.type)->block > 1;
            GpuRounding beside = {rounding_cases[i].least_head[k] ? s.kv_type : TYPE_F32,
                                  rounding_cases[i].least_head[k], 0};
            if (many && shape.type != TYPE_F32) beside.ffn = (int)gguf_tensor(g, "blk.0.ffn_gate.weight")->dims[1];
            s.host = rounded_like_gpu(many ? BF16 : quantised ? INT8 : EXACT, beside);
            float *near = cuda_rig_run_on_host(g, s, rounding_runs[k].n);
            Rounded r = {.rounded = near, .n_vocab = (size_t)gguf_tensor(g, "token_embd.weight")->dims[1]};
            s.host = NULL;
            cuda_rig_compare(g, s, &rounding_runs[k], 1, measure, &r);
            print_message("  %s, %s, %d rows: %.1e from rounded, %.1e from exact, cost %.1e\n", shape.arch,
                          type_name(shape.type), rounding_runs[k].first, r.same, r.plain, r.cost);
            free(near);
            if (!(r.same <= fmax(0.7 * r.cost, 2e-3))) fail_msg("more than the rounding at these places");
        }
        gguf_close(g);
    }
    gpu_tune((GpuTuning){.skinny = true});
}

// ---- expanded K and V -----------------------------------------------------------------------------------------------

// Prompts of sequences that expand K and V, of all slots or after earlier ones, beside rows that do not; all heads at
// once, or one after the other; and a step in which rows end before attention.
static void test_expanded_kv(void **state) {
    (void)state;
    static const CudaBatching runs[] = {{80, 16, 64, false}, {60, 40, 20, true}};
    static const CudaSetup setup = {ALL_LAYERS, TYPE_F16, 16, .shuffle = 7};
    const double limit = 2e-3; // every number is rounded to f16 a few times
    Gguf *g = tiny_model(&(TinyModel){.arch = "deepseek2",
                                      .type = TYPE_F16,
                                      .n_layers = 1,
                                      .n_heads = 3,
                                      .n_kv_heads = 3,
                                      .head_dim = 192,
                                      .n_rot = 64,
                                      .kv_rank = 512,
                                      .v_dim = 128});
    float *want = cuda_rig_run_on_host(g, setup, 80);
    for (int at_once = 3; at_once > 0; at_once -= 2) {
        Rig r;
        cuda_rig_open(&r, g, setup);
        CudaScratch *s = r.w.device;
        if (at_once == 1) s->expansion_bytes = 80 * 512 * 2 + 256 + 80 * (192 + 128) * 2; // vectors, K and V of a head
        for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
            const CudaBatching *b = &runs[i];
            float *got = cuda_rig_run_from(&r, b->n, b->first, b->chunk, b->strangers);
            double d = test_distance(got, want, (size_t)b->n * TEXT_VOCAB);
            assert_true(s->expands[0] == !b->strangers); // in the last step
            print_message("  expanded K and V, steps of %d and %d rows, %d heads at once: %.1e\n", b->first, b->chunk,
                          at_once, d);
            if (!(d <= limit)) fail_msg("distance up to %g expected, %g found", limit, d);
            free(got);
        }
        Sequence ends = {0}, goes_on = {0};
        int tokens[40];
        float *got = malloc(40 * TEXT_VOCAB * sizeof *got);
        random_tokens(tokens, 40, TEXT_VOCAB, 5);
        sequence_push(&ends, tokens, 20);
        sequence_push(&goes_on, tokens, 40);
        step(&r, (RowsOfSequence[]){{&ends, 20, NULL}, {&goes_on, 40, got}}, 2);
        double d = test_distance(got, want, 40 * TEXT_VOCAB);
        if (!(d <= limit)) fail_msg("behind rows that end: distance up to %g expected, %g found", limit, d);
        kvcache_release(&r.kv, &ends);
        kvcache_release(&r.kv, &goes_on);
        sequence_free(&ends);
        sequence_free(&goes_on);
        free(got);
        rig_close(&r);
    }
    free(want);
    gguf_close(g);
}

// ---- sequences ------------------------------------------------------------------------------------------------------

static void test_sequences(void **state) {
    (void)state;
    enum { LENGTH = 46, ALIKE = 37 }; // the second half of a block is copied before it is written to
    static const struct {
        TinyModel m;
        CudaSetup s;
    } all[] = {
        {{.arch = "gemma4", .n_layers = 4, .n_shared = 1, .head_dim = 24}, {ALL_LAYERS, TYPE_F32, 8, .shuffle = 3}},
        {{.arch = "gemma4", .n_layers = 3, .head_dim = 24, .n_experts = 3}, {1, TYPE_F32, 8, .shuffle = 3}},
        {{.arch = "deepseek2", .head_dim = 16, .q_rank = 20, .n_experts = 3}, {ALL_LAYERS, TYPE_F32, 8, .shuffle = 3}},
        {{.arch = "deepseek2", .head_dim = 16}, {1, TYPE_F32, .block = 16}},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        TwoTexts t;
        Sequence s = {0};
        Gguf *g = cuda_rig_open_texts(&t, &all[i].m, all[i].s, LENGTH, ALIKE);
        t.limit = 1e-4; // of a row; a slot of another sequence would be 1
        two_texts_check_fork(&t, 2);
        two_texts_check_preemption(&t, LENGTH);
        sequence_push(&s, t.tokens[0], LENGTH);
        two_texts_finish(&t, &s, 0, LENGTH, "the first text");
        two_texts_return(&t, &s, ALIKE - 4, 1, LENGTH);
        two_texts_drop(&t, &s);
        two_texts_close(&t);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_that_differ),
        cmocka_unit_test(test_compressed_kv),
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_mixtures),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_expanded_kv),
        cmocka_unit_test(test_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
