// tests/test_families.c: the families. Compares logits with golden ones from outside and, for odd shapes, with the
// formulas in double. Tests the effect of a file's keys, fused matrices, the order of Q's and K's rows, the contexts of
// LongRoPE, and which files are refused.
#include "tests/rig/testing.h"

#include "families.h"
#include "kv/fingerprint.h"
#include "tests/rig/cpu_rig.h"
#include "tests/rig/formulas.h"
#include "tests/rig/tiny_model.h"

#include <math.h>

enum { MOST_TOKENS = N_CTX, VOCAB = 320 };

// ---- golden logits --------------------------------------------------------------------------------------------------

static int golden_tokens(int *out) {
    FILE *f = fopen(test_data("golden/families/tokens.txt"), "r");
    assert_non_null(f);
    int n = 0;
    while (n < MOST_TOKENS && fscanf(f, "%d%*[ ,\n]", &out[n]) == 1) n++;
    fclose(f);
    return n;
}

// Random weights in F32, logits computed in float64 by transformers. n_ctx 0: any.
static const struct {
    const char *file, *logits;
    int n_ctx;
} golden[] = {{"gemma2", "gemma2", 0},
              {"gemma3", "gemma3", 0},
              {"phi3", "phi3", 512},
              {"phi3", "phi3.long", 513},
              {"granite", "granite", 0},
              {"smollm3", "smollm3", 0},
              {"ministral3", "ministral3", 0},
              {"olmo2", "olmo2", 0},
              {"glm4", "glm4", 0},
              {"mixtral", "mixtral", 0},
              {"qwen2moe", "qwen2moe", 0},
              {"qwen3moe", "qwen3moe", 0},
              {"gptoss", "gptoss", 0},
              {"gptoss_mxfp4", "gptoss_mxfp4", 0},
              {"gemma4", "gemma4", 0},
              {"gemma4moe", "gemma4moe", 0},
              {"deepseek3", "deepseek3", 0},
              {"deepseek2lite", "deepseek2lite", 0},
              {"qwen3next", "qwen3next", 0},
              {"qwen35", "qwen35", 0},
              {"qwen35moe", "qwen35moe", 0},
              {"lfm2", "lfm2", 0}};

static bool is_delta(const char *name) { return str_has_prefix(str_of(name), "qwen35") || !strcmp(name, "qwen3next"); }

static void check_golden(const char *name, const Gguf *g, const float *want, int n_ctx) {
    static const Setup setups[] = {{.block = 0}, {.block = 4}, {.block = 4, .n_seqs = 1, .step_rows = 8}};
    static const int chunks[] = {MOST_TOKENS, 8, 1};
    int tokens[MOST_TOKENS], n = golden_tokens(tokens);
    for (int i = 0; isa_name(i); i++)
        for (size_t s = 0; s < ARRAY_LEN(setups) && !isa_is_of_integers(isa_name(i)); s++)
            for (int in_order = 0; in_order < 2; in_order++) {
                Rig r;
                Setup setup = setups[s];
                setup.isa = isa_name(i);
                setup.deterministic = in_order;
                setup.n_ctx = n_ctx;
                if (!rig_open(&r, g, setup)) continue;
                for (size_t c = setup.step_rows > 0; c < ARRAY_LEN(chunks); c++) {
                    float *got = run_tokens(&r, tokens, n, int_min(n, chunks[c]));
                    double d = test_distance(got, want, (size_t)(n * r.m.c.n_vocab));
                    // against MXFP4 the fast paths round activations to int8 or bf16
                    bool rounds = strstr(name, "mxfp4") && strcmp(isa_name(i), "scalar") != 0 &&
                                  strcmp(isa_name(i), "portable") != 0;
                    if (!(d < (rounds ? 8e-2 : is_delta(name) ? 2e-5 : 1e-5)))
                        fail_msg("%s, %s, block %d, chunks of %d: distance %.3g", name, isa_name(i), setup.block,
                                 chunks[c], d);
                    free(got);
                }
                rig_close(&r);
            }
}

static void test_golden_families(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(golden); i++) {
        char name[64];
        int tokens[MOST_TOKENS], n = golden_tokens(tokens);
        FileMap map;
        Gguf *g;
        snprintf(name, sizeof name, "golden/families/%s.gguf", golden[i].file);
        assert_ok(gguf_open(test_data(name), &g));
        snprintf(name, sizeof name, "golden/families/%s.logits.f32", golden[i].logits);
        assert_ok(file_map(test_data(name), &map));
        const float *want = (const float *)(const void *)map.data;
        check_golden(golden[i].logits, g, want, golden[i].n_ctx);
        // the other tests use plain_forward as their reference
        float *plain = plain_forward(g, golden[i].n_ctx, tokens, n);
        double d = test_distance(plain, want, map.n / sizeof *want);
        if (!(d < 1e-6)) fail_msg("%s: the formulas in double: distance %.3g", golden[i].logits, d);
        free(plain);
        gguf_close(g);
        file_unmap(&map);
    }
}

// ---- the formulas over odd shapes -----------------------------------------------------------------------------------

static const struct {
    TinyModel model;
    int n_ctx;
} shapes[] = {
    {{.arch = "phi3",
      .dim = 60,
      .head_dim = 20,
      .n_heads = 3,
      .n_kv_heads = 3,
      .n_rot = 6,
      .ffn = 52,
      .qkv_bias = true},
     64},
    {{.arch = "phi3", .dim = 64, .head_dim = 18, .n_heads = 6, .n_kv_heads = 2, .tied = true, .window = 9}, 65},
    {{.arch = "granite", .dim = 48, .head_dim = 22, .n_heads = 4, .n_kv_heads = 1, .tied = true, .n_rot = 10}, 0},
    {{.arch = "granite", .qkv_bias = true, .rope = "yarn", .n_layers = 3}, 0},
    {{.arch = "smollm3", .dim = 40, .n_heads = 2, .n_layers = 9, .tied = true, .rope = "yarn", .rope_factor = 3}, 0},
    {{.arch = "smollm3", .n_layers = 5, .n_rot = 8, .qkv_bias = true, .rope = "linear"}, 0},
    {{.arch = "mistral3", .head_dim = 26, .n_heads = 2, .n_kv_heads = 1, .ctx_orig = 5, .rope_factor = 9}, 0},
    {{.arch = "mistral3", .tied = true, .n_rot = 12, .freq_base = 300, .ctx_orig = 16}, 0},
    {{.arch = "olmo2", .dim = 44, .head_dim = 30, .n_heads = 3, .n_kv_heads = 1, .ffn = 36}, 0},
    {{.arch = "olmo2", .n_layers = 5, .window = 7, .rope = "yarn", .rope_factor = 5, .qkv_bias = true}, 0},
    {{.arch = "glm4", .dim = 60, .head_dim = 14, .n_heads = 4, .n_rot = 6, .ffn = 36, .tied = true}, 0},
    {{.arch = "glm4", .head_dim = 32, .n_heads = 2, .n_kv_heads = 2, .rope = "yarn", .freq_base = 500}, 0},
    {{.arch = "llama", .head_dim = 18, .n_heads = 3, .n_kv_heads = 1, .n_rot = 8, .rope_freqs = true}, 0},
    {{.arch = "llama", .halves = true, .rope = "linear"}, 0},
    {{.arch = "qwen2", .n_rot = 6, .tied = true}, 0},
    {{.arch = "gemma4", .dim = 48, .n_heads = 6, .n_kv_heads = 3, .head_dim = 20, .ffn = 44, .per = 10}, 0},
    {{.arch = "gemma4", .n_layers = 8, .n_shared = 5, .head_dim = 28, .window = 5}, 0},
    {{.arch = "gemma4", .n_layers = 4, .n_experts = 7, .n_used = 3, .dim = 44, .n_heads = 4, .head_dim = 24, .ffn = 38},
     0},
    {{.arch = "deepseek2", .dim = 52, .n_heads = 3, .head_dim = 22, .kv_rank = 34, .v_dim = 14, .ffn = 30}, 0},
    {{.arch = "deepseek2", .q_rank = 27, .n_heads = 5, .head_dim = 18, .n_experts = 12, .n_groups = 4, .tied = true},
     0},
    {{.arch = "deepseek2", .q_rank = 20, .head_dim = 26, .n_rot = 4, .n_experts = 9, .n_groups = 3, .n_used = 2}, 0},
    {{.arch = "mistral4", .q_rank = 20, .head_dim = 26, .n_rot = 6, .n_experts = 9, .ffn = 30, .n_layers = 3}, 0},
    {{.arch = "qwen3", .head_dim = 24, .rope = "yarn"}, 0},
    {{.arch = "gemma2"}, 0},
    {{.arch = "gemma3", .head_dim = 24}, 0},
    {{.arch = "llama", .n_experts = 5, .n_used = 2, .dim = 44, .n_heads = 2, .head_dim = 18, .ffn = 37}, 0},
    {{.arch = "llama", .n_experts = 1, .n_used = 1, .ffn = 100}, 0},
    {{.arch = "qwen2moe", .n_experts = 7, .n_used = 7, .dim = 60, .n_heads = 3, .n_kv_heads = 1, .ffn = 20}, 0},
    {{.arch = "qwen2moe", .n_experts = 60, .n_used = 4, .ffn = 36, .ffn_shared = 84}, 0},
    {{.arch = "qwen3moe", .n_experts = 33, .n_used = 8, .dim = 52, .n_heads = 2, .head_dim = 20, .ffn = 50}, 0},
    {{.arch = "qwen3moe", .n_experts = 128, .n_used = 1, .ffn = 16, .tied = true}, 0},
    {{.arch = "gpt-oss", .n_experts = 6, .n_used = 4, .dim = 44, .n_heads = 6, .n_kv_heads = 2, .head_dim = 26}, 0},
    {{.arch = "qwen3next", .dim = 44, .n_heads = 3, .n_kv_heads = 1, .head_dim = 20, .state = 13, .n_experts = 4}, 0},
    {{.arch = "qwen3next", .n_layers = 7, .key_heads = 1, .value_heads = 3, .state = 32, .taps = 2, .n_experts = 4}, 0},
    {{.arch = "qwen35", .dim = 60, .key_heads = 3, .value_heads = 6, .state = 24, .taps = 5, .ffn = 36}, 0},
    {{.arch = "qwen35", .n_layers = 1, .key_heads = 2, .value_heads = 2, .state = 40, .tied = true}, 0},
    {{.arch = "qwen35moe", .n_layers = 4, .state = 19, .n_experts = 5, .n_used = 2, .ffn = 24, .ffn_shared = 52}, 0},
    {{.arch = "lfm2", .dim = 52, .n_heads = 2, .n_kv_heads = 1, .taps = 7, .ffn = 36, .tied = true}, 0},
    {{.arch = "lfm2", .n_layers = 8, .taps = 2}, 0},
    {{.arch = "muse-glimmer", .n_heads = 16, .n_kv_heads = 1, .head_dim = 22, .ffn = 52, .window = 5}, 0},
    {{.arch = "muse-glimmer", .n_layers = 9, .dim = 44, .n_heads = 3, .n_kv_heads = 3, .head_dim = 20, .tied = true},
     0},
    {{.arch = "gpt-oss", .n_experts = 32, .n_used = 2, .n_layers = 3, .window = 5, .n_heads = 8, .n_kv_heads = 1}, 0},
};

static void test_formulas(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        TinyModel shape = shapes[i].model;
        char name[64];
        shape.seed = 20 + i;
        snprintf(name, sizeof name, "shape %zu, %s", i, shape.arch);
        Gguf *g = tiny_model(&shape);
        expect_formulas(g, shapes[i].n_ctx, 30 + i, name);
        gguf_close(g);
    }
}

// ---- what keys change -----------------------------------------------------------------------------------------------

static float *scalar_logits(const Gguf *g, int n_ctx, KvHead *head) {
    enum { N = 30 };
    int tokens[N];
    Rig r;
    assert_true(rig_open(&r, g, (Setup){.isa = "scalar", .block = 16, .n_ctx = n_ctx}));
    random_tokens(tokens, N, VOCAB, 6);
    float *got = run_tokens(&r, tokens, N, N);
    if (head) *head = fingerprint(&r.m, r.kv.pool);
    rig_close(&r);
    return got;
}

static double logits_apart(const float *a, const float *b) { return test_distance(a, b, (size_t)30 * VOCAB); }

// Each key changes the logits of the tiny models, and the fingerprint of a KV cache unless it is used only after all K
// and V.
static void test_keys_matter(void **state) {
    (void)state;
    static const struct {
        const char *arch, *key;
        float value;
        bool behind;
    } keys[] = {
        {"granite", "embedding_scale", 1.5f, false},
        {"granite", "residual_scale", 1, false},
        {"granite", "attention.scale", 0.25f, false},
        {"granite", "logit_scale", 1, true},
        {"mistral3", "attention.temperature_scale", 0, false},
        {"mistral3", "rope.scaling.yarn_log_multiplier", 1, false},
        {"mistral3", "rope.scaling.yarn_beta_fast", 1, false},
        {"mistral3", "rope.scaling.yarn_beta_slow", 0.1f, false},
        {"mistral3", "rope.scaling.attn_factor", 1.5f, false},
        {"phi3", "rope.scaling.attn_factor", 1, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        char key[96];
        KvHead head[2];
        Gguf *g = tiny_model(&(TinyModel){.arch = keys[i].arch, .seed = 9});
        float *before = scalar_logits(g, 0, &head[0]);
        snprintf(key, sizeof key, "%s.%s", keys[i].arch, keys[i].key);
        gguf_set_f32(g, key, keys[i].value);
        float *after = scalar_logits(g, 0, &head[1]);
        double d = logits_apart(after, before);
        if (!(d > 1e-2)) fail_msg("%s: a distance above 1e-2 expected, %.3g found", key, d);
        bool same = head[0].model == head[1].model && head[0].rope == head[1].rope;
        if (same != keys[i].behind) fail_msg("%s: %s fingerprint", key, same ? "the same" : "another");
        free(before);
        free(after);
        gguf_close(g);
    }
}

// A key that turns RoPE off; a window that some files of the family have; positions of several parts.
static void test_switches(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "granite", .seed = 9});
    KvHead on, off;
    float *turned = scalar_logits(g, 0, &on);
    gguf_set_bool(g, "granite.rope.scaling.finetuned", false);
    float *still = scalar_logits(g, 0, &off);
    int tokens[30];
    random_tokens(tokens, 30, VOCAB, 6);
    float *plain = plain_forward(g, N_CTX, tokens, 30);
    assert_true(logits_apart(still, turned) > 1e-2);
    assert_true(logits_apart(still, plain) < 1e-5);
    assert_true(on.rope != off.rope);
    free(turned);
    free(still);
    free(plain);
    gguf_close(g);
    for (int sections = 0; sections < 2; sections++) { // files without sections have the rows of Q and K in halves
        TinyModel shape = {.arch = "glm4", .seed = 9, .halves = !sections};
        g = tiny_model(&shape);
        if (sections) gguf_set_ints(g, "glm4.rope.dimension_sections", (int32_t[]){2, 1, 1, 0}, 4);
        float *got = scalar_logits(g, 0, NULL);
        if (sections) assert_true(logits_apart(got, turned = scalar_logits(g, 0, NULL)) == 0);
        else turned = NULL;
        gguf_set_bool(g, "quill.rope.halves", true);
        plain = plain_forward(g, N_CTX, tokens, 30);
        assert_true(logits_apart(got, plain) < 1e-5);
        free(turned);
        free(got);
        free(plain);
        gguf_close(g);
    }
}

// ---- fused matrices -------------------------------------------------------------------------------------------------

// Adds rows [first, first + n) of a matrix and of its bias to another view, as tensors.
static void add_rows(Gguf *to, const Gguf *from, int layer, const char *fused, const char *part, int first, int n) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, fused);
    const GgufTensor *t = gguf_tensor(from, name);
    const TypeInfo *info = type_info(t->type);
    size_t n_in = (size_t)t->dims[0], at = (size_t)first * n_in;
    const float *scales =
        t->scales ? (const void *)((const char *)t->scales + at / (size_t)t->group * sizeof(float)) : NULL;
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    gguf_add_tensor(to, name, t->type, n_in, (size_t)n,
                    (const char *)t->data + at / (size_t)info->block * (size_t)info->bytes, scales, t->group);
    snprintf(name, sizeof name, "blk.%d.%s.bias", layer, fused);
    t = gguf_tensor(from, name);
    if (!t) return;
    snprintf(name, sizeof name, "blk.%d.%s.bias", layer, part);
    gguf_add_tensor(to, name, TYPE_F32, (size_t)n, 0, (const float *)t->data + first, NULL, 0);
}

static Gguf *parted(const Gguf *g, int n_layers, int q, int kv, int ffn) {
    Gguf *out = gguf_new("parted");
    for (int i = 0; i < gguf_n_values(g); i++) gguf_set(out, gguf_value_at(g, i));
    for (int i = 0; i < gguf_n_tensors(g); i++) {
        const GgufTensor *t = gguf_tensor_at(g, i);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.data);
        if (strstr(name, "attn_qkv") || strstr(name, "ffn_up")) continue;
        gguf_add_tensor(out, name, t->type, (size_t)t->dims[0], t->n_dims == 1 ? 0 : (size_t)t->dims[1], t->data,
                        t->scales, t->group);
    }
    for (int i = 0; i < n_layers; i++) {
        add_rows(out, g, i, "attn_qkv", "attn_q", 0, q);
        add_rows(out, g, i, "attn_qkv", "attn_k", q, kv);
        add_rows(out, g, i, "attn_qkv", "attn_v", q + kv, kv);
        add_rows(out, g, i, "ffn_up", "ffn_gate", 0, ffn);
        add_rows(out, g, i, "ffn_up", "ffn_up", ffn, ffn);
    }
    return out;
}

// A file with fused matrices and one with their parts give the same bits, for every type of weights.
static void test_fused_matrices(void **state) {
    (void)state;
    enum { N = 20 };
    for (size_t t = 0; t < TINY_TYPES; t++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = "phi3",
                                          .type = tiny_types[t],
                                          .dim = 256,
                                          .n_heads = 2,
                                          .n_kv_heads = 1,
                                          .head_dim = 128,
                                          .ffn = 256,
                                          .qkv_bias = true,
                                          .seed = 3});
        Gguf *parts = parted(g, 2, 256, 128, 256);
        int tokens[N];
        random_tokens(tokens, N, VOCAB, 6);
        for (int isa = 0; isa_name(isa); isa++)
            for (int chunk = N; chunk > 0; chunk -= N - 1) {
                float *got[2];
                size_t params[2];
                bool opened = true;
                for (int k = 0; k < 2 && opened; k++) {
                    Rig r;
                    opened = rig_open(&r, k ? parts : g, (Setup){.isa = isa_name(isa), .block = 16});
                    if (!opened) break;
                    got[k] = run_tokens(&r, tokens, N, chunk);
                    params[k] = model_n_params(&r.m);
                    rig_close(&r);
                }
                if (!opened) continue;
                assert_int_equal(params[0], params[1]);
                if (memcmp(got[0], got[1], sizeof(float) * N * VOCAB) != 0)
                    fail_msg("%s, %s, chunks of %d: other bits", type_name(tiny_types[t]), isa_name(isa), chunk);
                free(got[0]);
                free(got[1]);
            }
        gguf_close(parts);
        gguf_close(g);
    }
}

// ---- the order of the rows of Q and K -------------------------------------------------------------------------------

// Reorders the rows of each head from pairs (2i, 2i+1) to halves (i, i + n_rot/2).
static void to_halves(Gguf *g, const char *name, int head_dim, int n_rot) {
    GgufTensor *t = tiny_tensor(g, name);
    size_t n_in = t->n_dims == 1 ? 1 : (size_t)t->dims[0],
           rows = t->n_dims == 1 ? (size_t)t->dims[0] : (size_t)t->dims[1];
    float *old = malloc(t->n_bytes), *data = (float *)t->data;
    memcpy(old, data, t->n_bytes);
    for (size_t row = 0; row < rows; row++) {
        size_t i = row % (size_t)head_dim, half = (size_t)n_rot / 2, first = row - i;
        if (i < (size_t)n_rot) i = i < half ? 2 * i : 2 * (i - half) + 1;
        memcpy(data + row * n_in, old + (first + i) * n_in, n_in * sizeof *data);
    }
    free(old);
}

static void test_halves(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "granite", "smollm3", "mistral3", "glm4"};
    for (size_t a = 0; a < ARRAY_LEN(archs); a++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = archs[a], .seed = 9, .qkv_bias = true});
        int n_rot = strcmp(archs[a], "glm4") == 0 ? 8 : 16, n_layers = strcmp(archs[a], "smollm3") == 0 ? 4 : 2;
        KvHead head[2];
        float *pairs = scalar_logits(g, 0, &head[0]);
        for (int i = 0; i < n_layers; i++)
            for (int k = 0; k < 4; k++) {
                char name[64];
                snprintf(name, sizeof name, "blk.%d.attn_%c.%s", i, k % 2 ? 'k' : 'q', k < 2 ? "weight" : "bias");
                to_halves(g, name, 16, n_rot);
            }
        gguf_set_bool(g, "quill.rope.halves", true);
        float *halves = scalar_logits(g, 0, &head[1]);
        if (!(logits_apart(halves, pairs) < 1e-6)) fail_msg("%s: other logits in halves", archs[a]);
        assert_true(head[0].rope != head[1].rope);
        gguf_set_bool(g, "quill.rope.halves", false);
        float *wrong = scalar_logits(g, 0, NULL);
        assert_true(logits_apart(wrong, pairs) > 1e-2);
        free(pairs);
        free(halves);
        free(wrong);
        gguf_close(g);
    }
}

// ---- LongRoPE -------------------------------------------------------------------------------------------------------

// The context of the run chooses LongRoPE's factors; K and V computed with one set of factors differ from those of the
// other.
static void test_contexts(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "phi3", .seed = 9}); // original context 64
    KvHead head[4];
    float *logits[4];
    static const int contexts[] = {40, 64, 65, 200};
    for (int i = 0; i < 4; i++) logits[i] = scalar_logits(g, contexts[i], &head[i]);
    assert_memory_equal(logits[0], logits[1], sizeof(float) * 30 * VOCAB);
    assert_memory_equal(logits[2], logits[3], sizeof(float) * 30 * VOCAB);
    assert_true(logits_apart(logits[1], logits[2]) > 1e-2);
    assert_true(head[0].rope == head[1].rope && head[2].rope == head[3].rope && head[1].rope != head[2].rope);
    assert_true(head[1].model == head[2].model);
    const Backend *be;
    Model m;
    assert_ok(cpu_backend("scalar", &be));
    assert_ok(model_load(&m, g, be));
    assert_string_equal(m.c.rope_scaling, "longrope");
    double first = m.ends.ropes[0].freq[1]; // chosen for the context of training, 256
    model_set_context(&m, 64);
    assert_true(m.ends.ropes[0].freq[1] != first);
    assert_ptr_equal(m.layers[1].rope.freq, m.ends.ropes[0].freq);
    model_set_context(&m, 65);
    assert_true(m.ends.ropes[0].freq[1] == first);
    model_free(&m);
    for (int i = 0; i < 4; i++) free(logits[i]);
    gguf_close(g);
}

// ---- heads that predict further tokens ------------------------------------------------------------------------------

// Adds a layer with such a head after the others. Lists that have one number for each layer get one more.
static void add_head(Gguf *g, const char *arch, int n_layers) {
    static const float zeros[64 * 128];
    static const char *const parts[] = {"attn_norm", "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm"};
    char name[96];
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", n_layers, parts[i]);
        gguf_add_tensor(g, name, TYPE_F32, 64, 0, zeros, NULL, 0);
    }
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", n_layers);
    gguf_add_tensor(g, name, TYPE_F32, 128, 64, zeros, NULL, 0);
    snprintf(name, sizeof name, "%s.block_count", arch);
    gguf_set_u32(g, name, (uint32_t)n_layers + 1);
    snprintf(name, sizeof name, "%s.nextn_predict_layers", arch);
    gguf_set_u32(g, name, 1);
    snprintf(name, sizeof name, "%s.attention.head_count_kv", arch);
    const GgufValue *v = gguf_value(g, name);
    if (!v || v->type != GGUF_ARRAY) return;
    int32_t heads[9];
    assert_ok(gguf_ints(g, v, heads));
    heads[v->n] = heads[v->n - 1];
    gguf_set_ints(g, name, heads, v->n + 1);
}

// Such heads do not change a number: they are not loaded, and K and V stay those of the model without them.
static void test_heads_are_left_out(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "qwen3next", "qwen35", "qwen35moe", "lfm2", "glm4", "deepseek2"};
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = archs[i], .n_layers = 3, .seed = 9});
        KvHead head[2];
        float *without = scalar_logits(g, 0, &head[0]);
        add_head(g, archs[i], 3);
        float *with = scalar_logits(g, 0, &head[1]);
        assert_memory_equal(with, without, sizeof(float) * 30 * VOCAB);
        assert_memory_equal(&head[0], &head[1], sizeof head[0]);
        const Backend *be;
        Model m;
        assert_ok(cpu_backend("scalar", &be));
        assert_ok(model_load(&m, g, be));
        assert_int_equal(m.c.n_layers, 3);
        assert_int_equal(m.c.n_mtp, 1);
        for (int t = 0; t < gguf_n_tensors(g); t++)
            if (str_has_prefix(gguf_tensor_at(g, t)->name, "blk.3.")) assert_false(model_uses(&m, t));
        model_free(&m);
        free(without);
        free(with);
        gguf_close(g);
    }
}

// ---- what is refused ------------------------------------------------------------------------------------------------

static void assert_refused(const Gguf *g, const char *word) {
    const Backend *be;
    Model m;
    assert_ok(cpu_backend("scalar", &be));
    Status st = model_load(&m, g, be);
    model_free(&m);
    if (st.code != QUILL_MODEL || !strstr(st.message, "tiny") || !strstr(st.message, word) || strchr(st.message, '\n'))
        fail_msg("one line about %s expected, code %d found: %s", word, st.code, st.message);
}

static void test_refused_numbers(void **state) {
    (void)state;
    static const struct {
        const char *arch, *key;
        float value;
    } numbers[] = {{"granite", "granite.embedding_scale", -1},
                   {"granite", "granite.residual_scale", NAN},
                   {"granite", "granite.logit_scale", INFINITY},
                   {"granite", "granite.attention.scale", -0.5f},
                   {"phi3", "phi3.rope.scaling.attn_factor", 0},
                   {"mistral3", "mistral3.attention.temperature_scale", -1},
                   {"mistral3", "mistral3.rope.scaling.yarn_log_multiplier", NAN}};
    static const struct {
        const char *arch, *key;
    } counts[] = {{"granite", "granite.expert_count"},
                  {"phi3", "phi3.expert_count"},
                  {"glm4", "glm4.nextn_predict_layers"},
                  {"olmo2", "olmo2.attention.sliding_window"}};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = numbers[i].arch, .seed = 1});
        gguf_set_f32(g, numbers[i].key, numbers[i].value);
        assert_refused(g, numbers[i].key);
        gguf_close(g);
    }
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) { // of heads: a layer without one
        Gguf *g = tiny_model(&(TinyModel){.arch = counts[i].arch, .seed = 1});
        gguf_set_u32(g, counts[i].key, strstr(counts[i].key, "window") ? UINT32_MAX : 1);
        assert_refused(g, counts[i].key);
        gguf_close(g);
    }
    Gguf *g = tiny_model(&(TinyModel){.arch = "smollm3", .seed = 1});
    gguf_set_u32(g, "quill.rope.halves", 1);
    assert_refused(g, "quill.rope.halves");
    gguf_close(g);
    g = tiny_model(&(TinyModel){.arch = "granite", .qk_norm = true, .seed = 1});
    assert_refused(g, "granite.residual_scale");
    gguf_close(g);
    g = tiny_model(&(TinyModel){.arch = "llama", .seed = 1});
    gguf_set_str(g, "llama.rope.scaling.type", "longrope"); // a file without LongRoPE's factors
    assert_refused(g, "rope_factors_short.weight");
    gguf_close(g);
}

// Impossible values are refused, with the name of the key or tensor: heads, shared and compressed K and V, layers
// without experts, groups of experts.
static void test_refused_layers(void **state) {
    (void)state;
    static const struct {
        const char *arch, *key;
        int value;
        const char *word; // the name in the message; NULL: the key
    } keys[] = {{"gemma4", "gemma4.attention.shared_kv_layers", 5, NULL},
                {"gemma4", "gemma4.attention.shared_kv_layers", 6, NULL},
                {"gemma4", "gemma4.attention.shared_kv_layers", 2, "blk.3.attn_k.weight"},
                {"gemma4", "gemma4.attention.key_length_swa", 6, "gemma4.attention.value_length_swa"},
                {"gemma4", "gemma4.rope.dimension_count_swa", 7, NULL},
                {"gemma4", "gemma4.feed_forward_length", 100, "blk.0.ffn_gate.weight"},
                {"gemma4", "gemma4.attention.head_count_kv", 3, NULL},
                {"gemma4", "gemma4.embedding_length_per_layer_input", 31, "per_layer_token_embd.weight"},
                {"deepseek2", "deepseek2.attention.kv_lora_rank", 570, NULL},
                {"deepseek2", "deepseek2.attention.kv_lora_rank", 30, "blk.0.attn_kv_a_mqa.weight"},
                {"deepseek2", "deepseek2.attention.key_length_mla", 8, NULL},
                {"deepseek2", "deepseek2.attention.value_length_mla", 15, "blk.0.attn_v_b.weight"},
                {"deepseek2", "deepseek2.rope.dimension_count", 5, NULL},
                {"deepseek2", "deepseek2.leading_dense_block_count", 2, "blk.1.ffn_gate.weight"},
                {"deepseek2", "deepseek2.leading_dense_block_count", 0, "blk.0.ffn_gate_inp.weight"},
                {"deepseek2", "deepseek2.expert_group_count", 2, "deepseek2.expert_group_used_count"},
                {"deepseek2", "deepseek2.expert_group_count", 3, NULL}};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = keys[i].arch, .seed = 1});
        gguf_set_u32(g, keys[i].key, (uint32_t)keys[i].value);
        assert_refused(g, keys[i].word ? keys[i].word : keys[i].key);
        gguf_close(g);
    }
    static const struct {
        const char *arch, *tensor;
    } tensors[] = {{"gemma4", "blk.2.attn_k_norm.weight"},   {"gemma4", "blk.5.attn_q.weight"},
                   {"gemma4", "per_layer_proj_norm.weight"}, {"gemma4", "blk.1.post_norm.weight"},
                   {"deepseek2", "blk.0.attn_k_b.weight"},   {"deepseek2", "blk.2.attn_kv_a_norm.weight"}};
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        Gguf *whole = tiny_model(&(TinyModel){.arch = tensors[i].arch, .seed = 1});
        Gguf *g = tiny_without(whole, tensors[i].tensor);
        assert_refused(g, tensors[i].tensor);
        gguf_close(g);
        gguf_close(whole);
    }
    int32_t uneven[] = {2, 2, 1, 2, 2, 3};
    Gguf *g = tiny_model(&(TinyModel){.arch = "gemma4", .n_heads = 6, .n_kv_heads = 2, .seed = 1});
    gguf_set_ints(g, "gemma4.attention.head_count_kv", uneven, 6);
    assert_refused(g, "gemma4.attention.head_count_kv");
    gguf_set_ints(g, "gemma4.attention.head_count_kv", uneven, 5);
    assert_refused(g, "gemma4.attention.head_count_kv");
    gguf_close(g);
    g = tiny_model(&(TinyModel){.arch = "deepseek2", .n_groups = 4, .seed = 1});
    gguf_set_u32(g, "deepseek2.expert_group_used_count", 1); // leaves two experts, but each row chooses three
    assert_refused(g, "deepseek2.expert_group_used_count");
    gguf_close(g);
}

static void test_refused_experts(void **state) {
    (void)state;
    static const struct {
        const char *arch, *key;
        int value;
        const char *word; // the name in the message; NULL: the key
    } keys[] = {{"qwen3moe", "qwen3moe.expert_count", 0, NULL},
                {"qwen3moe", "qwen3moe.expert_count", 7, "blk.0.ffn_gate_inp.weight"},
                {"qwen3moe", "qwen3moe.expert_count", 2, "qwen3moe.expert_used_count"},
                {"qwen3moe", "qwen3moe.expert_count", -1, NULL},
                {"qwen3moe", "qwen3moe.expert_used_count", 0, NULL},
                {"qwen3moe", "qwen3moe.expert_used_count", 9, NULL},
                {"qwen3moe", "qwen3moe.expert_feed_forward_length", 0, NULL},
                {"qwen3moe", "qwen3moe.expert_feed_forward_length", 100, "blk.0.ffn_gate_exps.weight"},
                {"qwen2moe", "qwen2moe.expert_group_count", 3, NULL},
                {"qwen2moe", "qwen2moe.expert_group_count", 2, "qwen2moe.expert_group_used_count"},
                {"qwen2moe", "qwen2moe.expert_gating_func", 4, NULL},
                {"qwen2moe", "qwen2moe.expert_shared_feed_forward_length", 5, "blk.0.ffn_gate_shexp.weight"},
                {"gpt-oss", "gpt-oss.expert_used_count", 1 << 20, NULL},
                {"llama", "llama.expert_count", 4, "llama.expert_used_count"}};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = keys[i].arch, .seed = 1});
        gguf_set_u32(g, keys[i].key, (uint32_t)keys[i].value);
        assert_refused(g, keys[i].word ? keys[i].word : keys[i].key);
        gguf_close(g);
    }
    static const char *const tensors[] = {
        "blk.1.ffn_gate_inp.weight",  "blk.1.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight",
        "blk.1.ffn_down_exps.weight", "blk.1.ffn_down_exps.bias",   "blk.0.ffn_gate_exps.bias",
        "blk.0.attn_sinks.weight",    "blk.1.ffn_gate_inp.bias",    "blk.1.post_attention_norm.weight"};
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++)
        for (int dim = 0; dim < 3; dim++) { // each dimension with another size
            Gguf *g = tiny_model(&(TinyModel){.arch = "gpt-oss", .seed = 1});
            GgufTensor *t = tiny_tensor(g, tensors[i]);
            if (dim >= t->n_dims) t->n_dims = dim + 1;
            t->dims[dim] = t->dims[dim] > 1 ? t->dims[dim] - 1 : 2;
            assert_refused(g, tensors[i]);
            gguf_close(g);
        }
    // the groups of I8G have 32 elements
    Gguf *g = tiny_model(&(TinyModel){.arch = "qwen3moe", .type = TYPE_I8G, .seed = 1});
    tiny_tensor(g, "blk.0.ffn_up_exps.weight")->group = 48;
    assert_refused(g, "blk.0.ffn_up_exps.weight");
    gguf_close(g);
}

static void test_refused_tensors(void **state) {
    (void)state;
    static const struct {
        const char *arch, *tensor;
    } tensors[] = {{"phi3", "blk.1.attn_qkv.weight"},      {"phi3", "blk.0.ffn_up.weight"},
                   {"phi3", "rope_factors_short.weight"},  {"phi3", "rope_factors_long.weight"},
                   {"glm4", "blk.1.ffn_up.weight"},        {"olmo2", "blk.0.attn_q_norm.weight"},
                   {"olmo2", "blk.1.attn_k_norm.weight"},  {"olmo2", "blk.1.post_attention_norm.weight"},
                   {"glm4", "blk.0.post_ffw_norm.weight"}, {"phi3", "blk.1.attn_norm.weight"}};
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++)
        for (int kind = 0; kind < 3; kind++) {
            Gguf *whole = tiny_model(&(TinyModel){.arch = tensors[i].arch, .seed = 1}), *g = whole;
            GgufTensor *t = tiny_tensor(g, tensors[i].tensor);
            const char *word = tensors[i].tensor;
            if (kind == 0) t->dims[t->n_dims - 1]--;
            if (kind == 1) t->type = 9; // Q8_1, an unsupported type
            if (kind == 2) g = tiny_without(whole, tensors[i].tensor);
            // without attn_qkv the file should have separate matrices
            if (kind == 2 && strstr(word, "attn_qkv")) word = "attn_q.weight";
            if (kind != 1 && strstr(word, "ffn_up")) word = "ffn_gate.weight";
            assert_refused(g, word);
            if (g != whole) gguf_close(g);
            gguf_close(whole);
        }
    static const char *const factors[] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    const float values[] = {0, -1, NAN, INFINITY};
    for (size_t i = 0; i < 2 * ARRAY_LEN(values); i++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = "phi3", .seed = 1});
        ((float *)tiny_tensor(g, factors[i % 2])->data)[3] = values[i / 2];
        assert_refused(g, factors[i % 2]);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_families),    cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_keys_matter),        cmocka_unit_test(test_switches),
        cmocka_unit_test(test_fused_matrices),     cmocka_unit_test(test_halves),
        cmocka_unit_test(test_contexts),           cmocka_unit_test(test_refused_numbers),
        cmocka_unit_test(test_heads_are_left_out), cmocka_unit_test(test_refused_tensors),
        cmocka_unit_test(test_refused_experts),    cmocka_unit_test(test_refused_layers),
    };
    return cmocka_run_group_tests(tests, isa_print, NULL);
}
