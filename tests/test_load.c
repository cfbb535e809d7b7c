// tests/test_load.c: what model_load refuses and accepts, --check-tensors, and the sizes of a loaded model.
#include "cpu/backend.h"
#include "tests/rig/testing.h"

#include "families.h"
#include "formats/random_blocks.h"
#include "model.h"
#include "tests/rig/tiny_model.h"

#include <math.h>

// ---- files that model_load refuses ----------------------------------------------------------------------------------

static Status load(const Gguf *g) {
    const Backend *be;
    Model m;
    assert_ok(cpu_backend("scalar", &be));
    Status st = model_load(&m, g, be);
    model_free(&m); // allowed after an error
    return st;
}

// Asserts that the message names the file ("tiny") and the key or tensor.
static void assert_refused(const Gguf *g, const char *name) {
    Status st = load(g);
    if (st.code != QUILL_MODEL) fail_msg("%s: exit code 3 expected, %d found: %s", name, st.code, st.message);
    if (!strstr(st.message, "tiny") || !strstr(st.message, name))
        fail_msg("a message about %s in tiny expected, found: %s", name, st.message);
}

static void test_refused_integers(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
    } cases[] = {{"llama.attention.head_count", 0},
                 {"llama.attention.head_count", 5},
                 {"llama.attention.head_count", UINT32_MAX},
                 {"llama.attention.head_count_kv", 0},
                 {"llama.attention.head_count_kv", 3},
                 {"llama.attention.head_count_kv", 8},
                 {"llama.block_count", 0},
                 {"llama.block_count", 4},
                 {"llama.block_count", 1000000000},
                 {"llama.block_count", UINT32_MAX},
                 {"llama.embedding_length", 0},
                 {"llama.embedding_length", 1u << 31},
                 {"llama.feed_forward_length", 0},
                 {"llama.feed_forward_length", UINT32_MAX},
                 {"llama.context_length", 0},
                 {"llama.context_length", UINT32_MAX},
                 {"llama.expert_count", UINT32_MAX},
                 {"llama.attention.key_length", 0},
                 {"llama.attention.key_length", 1024},
                 {"llama.attention.value_length", 8},
                 {"llama.attention.value_length", 0},
                 {"llama.attention.sliding_window", UINT32_MAX},
                 {"llama.rope.dimension_count", 0},
                 {"llama.rope.dimension_count", 7},
                 {"llama.rope.dimension_count", 18},
                 {"llama.rope.dimension_count", UINT32_MAX},
                 {"llama.rope.scaling.original_context_length", 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *g = tiny_model(&(TinyModel){.seed = 1});
        gguf_set_u32(g, cases[i].key, cases[i].value);
        assert_refused(g, cases[i].key);
        gguf_close(g);
    }
}

static void test_refused_floats(void **state) {
    (void)state;
    static const char *const keys[] = {"llama.attention.layer_norm_rms_epsilon",
                                       "llama.rope.freq_base",
                                       "llama.rope.scaling.factor",
                                       "llama.rope.scale_linear",
                                       "llama.rope.scaling.yarn_beta_fast",
                                       "llama.rope.scaling.attn_factor"};
    const float values[] = {0, -1, NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < ARRAY_LEN(keys); k++)
        for (size_t v = strstr(keys[k], "scaling.factor") || strstr(keys[k], "linear"); v < ARRAY_LEN(values); v++) {
            Gguf *g = tiny_model(&(TinyModel){.seed = 1, .rope = "yarn"}); // these two: 0 means no scaling
            gguf_set_f32(g, keys[k], values[v]);
            assert_refused(g, keys[k]);
            gguf_close(g);
        }
}

// A number where an array is expected, an array where a number is expected, and other types.
static void test_refused_value_types(void **state) {
    (void)state;
    static const char *const integers[] = {"llama.attention.head_count", "llama.block_count", "llama.context_length",
                                           "llama.attention.head_count_kv", "llama.rope.dimension_count"};
    for (size_t i = 0; i < ARRAY_LEN(integers); i++)
        for (int kind = 0; kind < 3; kind++) {
            Gguf *g = tiny_model(&(TinyModel){.seed = 1});
            if (kind == 0) gguf_set_ints(g, integers[i], (int32_t[]){2, 2, 2}, 3);
            if (kind == 1) gguf_set_str(g, integers[i], "4");
            if (kind == 2) gguf_set_f32(g, integers[i], 4);
            assert_refused(g, integers[i]);
            gguf_close(g);
        }
    Gguf *g = tiny_model(&(TinyModel){.seed = 1});
    gguf_set_floats(g, "llama.rope.freq_base", (float[]){1, 2}, 2);
    assert_refused(g, "llama.rope.freq_base");
    gguf_close(g);
    g = tiny_model(&(TinyModel){.seed = 1});
    gguf_set_u32(g, "llama.rope.scaling.type", 1);
    assert_refused(g, "llama.rope.scaling.type");
    gguf_set_str(g, "llama.rope.scaling.type", "ntk");
    assert_refused(g, "llama.rope.scaling.type");
    gguf_close(g);
}

static void test_refused_architectures(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.seed = 1});
    gguf_set_str(g, "general.architecture", "mamba");
    Status st = load(g);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "mamba"));
    assert_non_null(strstr(st.message, families_list()));
    gguf_set_str(g, "general.architecture", "llama2"); // an architecture's name must match completely
    assert_int_equal(load(g).code, QUILL_MODEL);
    gguf_set_str(g, "general.architecture", "");
    assert_int_equal(load(g).code, QUILL_MODEL);
    gguf_set_u32(g, "general.architecture", 1);
    assert_refused(g, "general.architecture");
    gguf_close(g);
    g = gguf_new("tiny");
    assert_refused(g, "general.architecture");
    gguf_close(g);
}

static const char *const layer_tensors[] = {
    "token_embd.weight",       "output_norm.weight",  "blk.1.attn_norm.weight",   "blk.0.attn_q.weight",
    "blk.1.attn_k.weight",     "blk.0.attn_v.weight", "blk.1.attn_output.weight", "blk.0.ffn_norm.weight",
    "blk.1.ffn_gate.weight",   "blk.0.ffn_up.weight", "blk.1.ffn_down.weight",    "blk.0.attn_q_norm.weight",
    "blk.1.attn_k_norm.weight"};

static void test_missing_tensors(void **state) {
    (void)state;
    Gguf *whole = tiny_model(&(TinyModel){.arch = "qwen3", .seed = 1, .n_layers = 3});
    assert_ok(load(whole));
    for (size_t i = 0; i < ARRAY_LEN(layer_tensors); i++) {
        Gguf *g = tiny_without(whole, layer_tensors[i]);
        assert_refused(g, layer_tensors[i]);
        gguf_close(g);
    }
    Gguf *g = tiny_without(whole, "output.weight"); // without it the embedding is the head
    assert_ok(load(g));
    gguf_close(g);
    gguf_close(whole);
}

static void test_wrong_shapes_and_types(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(layer_tensors); i++)
        for (int kind = 0; kind < 7; kind++) {
            Gguf *g = tiny_model(&(TinyModel){.arch = "qwen3", .seed = 1});
            GgufTensor *t = tiny_tensor(g, layer_tensors[i]);
            bool vector = t->n_dims == 1;
            if (kind == 0) t->dims[0]--;
            if (kind == 1) t->dims[0] += 32;
            if (kind == 2) t->n_dims = 3, t->dims[2] = 2;
            if (kind == 3) t->type = 40; // NVFP4
            if (kind == 4) t->type = 26; // I32
            if (kind == 5) t->dims[vector ? 0 : 1] = 1ull << 40;
            if (kind == 6 && vector) t->type = TYPE_Q8_0;
            if (kind == 6 && !vector) t->dims[1]++;
            // One more row of the embedding means a larger vocabulary, for which the head is too small.
            assert_refused(g, kind == 6 && i == 0 ? "output.weight" : layer_tensors[i]);
            gguf_close(g);
        }
}

static void test_refused_rope_freqs(void **state) {
    (void)state;
    const float values[] = {0, -1, NAN, INFINITY};
    for (size_t i = 0; i < ARRAY_LEN(values) + 2; i++) {
        Gguf *g = tiny_model(&(TinyModel){.seed = 1, .rope_freqs = true});
        GgufTensor *t = tiny_tensor(g, "rope_freqs.weight");
        if (i < ARRAY_LEN(values)) ((float *)t->data)[3] = values[i];
        else if (i == ARRAY_LEN(values)) t->dims[0]--;
        else t->type = TYPE_F16;
        assert_refused(g, "rope_freqs.weight");
        gguf_close(g);
    }
}

// What changes the results must not be skipped: a head's bias, the scale of a matrix, another base of RoPE, a mask that
// is not causal.
static void test_refused_arithmetic(void **state) {
    (void)state;
    static const char *const tensors[] = {"output.bias", "blk.1.attn_q.scale", "blk.0.attn_norm.bias",
                                          "blk.0.attn_sinks.weight"};
    static const float ones[64] = {1};
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        Gguf *g = tiny_model(&(TinyModel){.seed = 1});
        gguf_add_tensor(g, tensors[i], TYPE_F32, 1, 0, ones, NULL, 0);
        assert_refused(g, tensors[i]);
        gguf_close(g);
    }
    Gguf *g = tiny_model(&(TinyModel){.seed = 1});
    gguf_add_tensor(g, "blk.2.attn_q.scale", TYPE_F32, 1, 0, ones, NULL, 0);         // behind the layers
    gguf_add_tensor(g, "mm.0.bias", TYPE_F32, 1, 0, ones, NULL, 0);                  // of another model in the file
    gguf_add_tensor(g, "blk.0.attn_rot_embd.weight", TYPE_F32, 1, 0, ones, NULL, 0); // computed instead
    gguf_set_bool(g, "llama.attention.causal", true);
    assert_ok(load(g));
    gguf_set_bool(g, "llama.attention.causal", false);
    assert_refused(g, "llama.attention.causal");
    gguf_close(g);
    static const char *const archs[] = {"gemma2", "gpt-oss"};
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        char base[64], windows[64];
        snprintf(base, sizeof base, "%s.rope.freq_base", archs[i]);
        snprintf(windows, sizeof windows, "%s.rope.freq_base_swa", archs[i]);
        g = tiny_model(&(TinyModel){.arch = archs[i], .window = 5, .seed = 1});
        gguf_set_f32(g, base, 500);
        gguf_set_f32(g, windows, 500);
        assert_ok(load(g));
        gguf_set_f32(g, windows, 100);
        assert_refused(g, windows);
        gguf_close(g);
    }
}

// NaN would be compared, and no expert would be the best one.
static void test_refused_expert_bias(void **state) {
    (void)state;
    const float values[] = {NAN, INFINITY, -INFINITY, 2e30f, -3e38f};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = "deepseek2", .n_groups = 4, .seed = 1});
        float *bias = (float *)tiny_tensor(g, "blk.1.exp_probs_b.bias")->data;
        bias[5] = 1e30f;
        assert_ok(load(g));
        bias[5] = values[i];
        assert_refused(g, "blk.1.exp_probs_b.bias");
        assert_non_null(strstr(load(g).message, "for expert 5"));
        gguf_close(g);
    }
}

// Checkpoints of Gemma 4 have K and V in all layers, also in those that use an earlier layer's.
static void test_spare_shared_kv(void **state) {
    (void)state;
    static const float ones[64] = {1};
    Gguf *g = tiny_model(&(TinyModel){.arch = "gemma4", .n_layers = 6, .n_shared = 2, .window = 5, .seed = 1});
    gguf_add_tensor(g, "blk.5.attn_k.weight", TYPE_F32, 1, 0, ones, NULL, 0);
    gguf_add_tensor(g, "blk.5.attn_v.weight", TYPE_F32, 1, 0, ones, NULL, 0);
    gguf_add_tensor(g, "blk.5.attn_k_norm.weight", TYPE_F32, 1, 0, ones, NULL, 0);
    assert_ok(load(g));
    gguf_add_tensor(g, "blk.5.attn_gate.weight", TYPE_F32, 1, 0, ones, NULL, 0);
    assert_refused(g, "blk.5.attn_gate.weight");
    gguf_close(g);
}

// Layers that have K and V of their own cannot use those of others.
static void test_refused_shared_kv(void **state) {
    (void)state;
    static const char *const archs[] = {"deepseek2", "phi3"};
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        char key[96];
        Gguf *g = tiny_model(&(TinyModel){.arch = archs[i], .seed = 1});
        snprintf(key, sizeof key, "%s.attention.shared_kv_layers", archs[i]);
        gguf_set_u32(g, key, 1);
        assert_refused(g, key);
        gguf_close(g);
    }
}

// The widths of a row's experts add up to an int.
static void test_refused_wide_experts(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "qwen3moe", .seed = 1});
    gguf_set_u32(g, "qwen3moe.expert_count", 4096);
    gguf_set_u32(g, "qwen3moe.expert_used_count", 4096);
    gguf_set_u32(g, "qwen3moe.expert_feed_forward_length", 1 << 24);
    assert_refused(g, "qwen3moe.expert_used_count");
    gguf_close(g);
}

static void test_vocabulary_and_embedding(void **state) {
    (void)state;
    static Str many[400];
    for (int i = 0; i < 400; i++) many[i] = str_of("x");
    Gguf *g = tiny_model(&(TinyModel){.seed = 1}); // 320 rows
    gguf_set_strings(g, "tokenizer.ggml.tokens", many, 321);
    assert_refused(g, "tokenizer.ggml.tokens");
    gguf_set_strings(g, "tokenizer.ggml.tokens", many, 300); // rows beyond the vocabulary are padding
    assert_ok(load(g));
    gguf_close(g);
}

static void test_accepted_oddities(void **state) {
    (void)state;
    static const float floats[320 * 64];
    Gguf *g = tiny_model(&(TinyModel){.seed = 1});
    gguf_add_tensor(g, "blk.7.unheard_of.weight", TYPE_F32, 10, 3, floats, NULL, 0);
    gguf_add_tensor(g, "vision.patch", TYPE_F32, 5, 0, floats, NULL, 0);
    gguf_set_str(g, "unknown.key", "value");
    gguf_set_u32(g, "llama.expert_count", 0);
    gguf_set_u32(g, "llama.expert_used_count", 0);
    tiny_tensor(g, "blk.0.attn_norm.weight")->n_dims = 2; // a last dimension of 1 says nothing
    tiny_tensor(g, "blk.0.attn_q.weight")->n_dims = 3;
    // the metadata says tied, but the file has a head: the head is used
    gguf_set_bool(g, "llama.tie_word_embeddings", true);
    assert_ok(load(g));
    const Backend *be;
    Model m;
    assert_ok(cpu_backend("scalar", &be));
    assert_ok(model_load(&m, g, be));
    assert_false(m.c.tied);
    assert_ptr_equal(m.ends.head.data, gguf_tensor(g, "output.weight")->data);
    model_free(&m);
    gguf_close(g);
}

// Keys that may be absent, and their defaults.
// A copy of the view without these keys; the data still belongs to `whole`.
static Gguf *without_keys(const Gguf *whole, const char *const *keys, size_t n_keys) {
    Gguf *g = gguf_new("tiny");
    for (int i = 0; i < gguf_n_values(whole); i++) {
        bool skipped = false;
        for (size_t k = 0; k < n_keys; k++) skipped |= str_is(gguf_value_at(whole, i)->key, keys[k]);
        if (!skipped) gguf_set(g, gguf_value_at(whole, i));
    }
    for (int i = 0; i < gguf_n_tensors(whole); i++) {
        const GgufTensor *t = gguf_tensor_at(whole, i);
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.data);
        gguf_add_tensor(g, name, t->type, (size_t)t->dims[0], t->n_dims == 1 ? 0 : (size_t)t->dims[1], t->data, NULL,
                        0);
    }
    return g;
}

static void test_absent_keys(void **state) {
    (void)state;
    Gguf *whole = tiny_model(&(TinyModel){.seed = 1, .n_heads = 4, .n_kv_heads = 4});
    static const char *const optional[] = {"llama.attention.head_count_kv", "llama.attention.key_length",
                                           "llama.attention.value_length",  "llama.rope.dimension_count",
                                           "llama.rope.freq_base",          "general.name"};
    Gguf *g = without_keys(whole, optional, ARRAY_LEN(optional));
    const Backend *be;
    Model m;
    assert_ok(cpu_backend("scalar", &be));
    assert_ok(model_load(&m, g, be));
    assert_int_equal(m.c.n_kv_heads, 4);
    assert_int_equal(m.c.head_dim, 16);
    assert_int_equal(m.c.n_rot, 16);
    assert_true(m.c.rope_base == 10000);
    assert_string_equal(m.c.name, "");
    model_free(&m);
    gguf_set_u32(g, "llama.attention.head_count", 3); // 64 elements cannot be divided into three heads
    gguf_set_u32(g, "llama.attention.head_count_kv", 3);
    assert_refused(g, "llama.attention.head_count");
    gguf_close(g);
    gguf_close(whole);
}

// The first files of Gemma 2 lack soft caps and window, which all models of the family have. A cap of 0 is none. A
// Gemma 3 without a window has none.
static void test_absent_keys_of_gemmas(void **state) {
    (void)state;
    static const char *const caps[] = {"gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping",
                                       "gemma2.attention.sliding_window", "gemma3.attention.sliding_window"};
    static const char *const archs[] = {"gemma2", "gemma3"};
    const Backend *be;
    Model m;
    assert_ok(cpu_backend("scalar", &be));
    for (size_t a = 0; a < ARRAY_LEN(archs); a++) {
        Gguf *whole = tiny_model(&(TinyModel){.arch = archs[a], .seed = 1});
        Gguf *g = without_keys(whole, caps, ARRAY_LEN(caps));
        assert_ok(model_load(&m, g, be));
        assert_true(m.layers[0].heads.softcap == (a ? 0 : 50) && m.ends.softcap == (a ? 0 : 30));
        assert_int_equal(m.layers[0].heads.window, a ? 0 : 4096);
        assert_int_equal(m.layers[1].heads.window, 0);
        model_free(&m);
        gguf_set_f32(g, "gemma2.attn_logit_softcapping", 0);
        gguf_set_f32(g, "gemma2.final_logit_softcapping", 0);
        assert_ok(model_load(&m, g, be));
        assert_true(m.layers[0].heads.softcap == 0 && m.ends.softcap == 0);
        model_free(&m);
        gguf_close(g);
        gguf_close(whole);
    }
}

// Experts of files without expert_gating_func have a softmax, but those of GLM 4.7 Flash, known by its sizes, sigmoids.
static void test_absent_gating(void **state) {
    (void)state;
    const Backend *be;
    Model m;
    assert_ok(cpu_backend("scalar", &be));
    for (int flash = 0; flash < 2; flash++) {
        Gguf *g = tiny_model(
            &(TinyModel){.arch = "deepseek2", .n_layers = flash ? 47 : 46, .vocab = 154880, .tied = true, .seed = 1});
        gguf_set_u32(g, "deepseek2.expert_gating_func", 0); // as without the key
        assert_ok(model_load(&m, g, be));
        assert_int_equal(m.layers[1].kind.routing, flash ? ROUTE_SIGMOID : ROUTE_ALL);
        model_free(&m);
        gguf_close(g);
    }
}

// Which layers have a window, as a list of booleans or integers or as the distance between those that have none.
static void test_window_patterns(void **state) {
    (void)state;
    static const char key[] = "gemma3.attention.sliding_window_pattern";
    static const uint8_t flags[] = {1, 0, 1, 0, 1, 0, 1};
    const Backend *be;
    Model m;
    assert_ok(cpu_backend("scalar", &be));
    for (int kind = 0; kind < 4; kind++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = "gemma3", .window = 5, .seed = 1});
        if (kind == 1) gguf_set_u32(g, key, 2);
        if (kind == 2) gguf_set_ints(g, key, (int32_t[]){1, 0, 1, 0, 1, 0, 1}, 7);
        if (kind == 3)
            gguf_set(g, &(GgufValue){.key = str_of(key),
                                     .type = GGUF_ARRAY,
                                     .elem_type = GGUF_BOOL,
                                     .n = 7,
                                     .data = flags,
                                     .n_bytes = 7});
        assert_ok(model_load(&m, g, be));
        assert_int_equal(m.c.n_layers, 7);
        for (int i = 0; i < 7; i++) assert_int_equal(m.layers[i].heads.window, (kind ? i % 2 == 0 : i != 5) ? 5 : 0);
        model_free(&m);
        gguf_set_floats(g, key, (float[]){1, 0, 1, 0, 1, 0, 1}, 7);
        assert_refused(g, key);
        gguf_close(g);
    }
}

// ---- --check-tensors ------------------------------------------------------------------------------------------------

// The offset of an f16 scale in a block; for plain types that of the element itself.
static size_t scale_at(int type) {
    switch (type) {
    case TYPE_Q2_K: return offsetof(BlockQ2_K, dmin);
    case TYPE_Q3_K: return offsetof(BlockQ3_K, d);
    case TYPE_Q6_K: return offsetof(BlockQ6_K, d);
    case TYPE_Q4_1: return offsetof(BlockQ4_1, m);
    case TYPE_Q5_1: return offsetof(BlockQ5_1, m);
    case TYPE_Q4_K: return offsetof(BlockQ4_K, dmin);
    case TYPE_TQ1_0: return offsetof(BlockTQ1_0, d);
    case TYPE_TQ2_0: return offsetof(BlockTQ2_0, d);
    default: return 0;
    }
}

// The scales of I8G are stored apart, and those of MXFP4 are powers of two, which are always finite.
static bool can_be_infinite(int type) { return type != TYPE_I8G && type != TYPE_MXFP4; }

static void poison_last_block(GgufTensor *t, bool nan) {
    const TypeInfo *info = type_info(t->type);
    uint8_t *block = (uint8_t *)t->data + t->n_bytes - (size_t)info->bytes;
    float f = nan ? NAN : -INFINITY;
    uint16_t half = t->type == TYPE_BF16 ? float_bf16(f) : float_half(f);
    if (t->type == TYPE_F32) memcpy(block, &f, 4);
    else if (t->type == TYPE_IQ1_M) random_blocks_put_d(random_blocks_scales(t->type), block, half);
    else memcpy(block + scale_at(t->type), &half, 2);
}

static Status check_tensors(const Gguf *g) {
    const Backend *be;
    Model m;
    assert_ok(cpu_backend("scalar", &be));
    assert_ok(model_load(&m, g, be));
    Status st = model_check_tensors(&m);
    model_free(&m);
    return st;
}

static void test_check_tensors(void **state) {
    (void)state;
    for (size_t i = 0; i < TINY_TYPES; i++)
        for (int nan = 0; nan < 2 && can_be_infinite(tiny_types[i]); nan++) {
            Gguf *g = tiny_model(&(TinyModel){.type = tiny_types[i], .dim = 256, .ffn = 256, .n_heads = 2, .seed = 4});
            assert_ok(check_tensors(g));
            poison_last_block(tiny_tensor(g, "blk.1.ffn_down.weight"), nan);
            Status st = check_tensors(g);
            assert_int_equal(st.code, QUILL_MODEL);
            assert_non_null(strstr(st.message, "tiny"));
            assert_non_null(strstr(st.message, "blk.1.ffn_down.weight"));
            gguf_close(g);
        }
}

static void test_check_tensors_in_vectors(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "qwen2", .seed = 4});
    ((float *)tiny_tensor(g, "blk.0.attn_k.bias")->data)[1] = NAN;
    Status st = check_tensors(g);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "blk.0.attn_k.bias"));
    gguf_close(g);
}

// The scales of llama2.c's int8 groups are checked too.
static void test_check_tensors_int8_scales(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.type = TYPE_I8G, .seed = 4});
    assert_ok(check_tensors(g));
    GgufTensor *t = tiny_tensor(g, "blk.1.ffn_down.weight");
    float nan = NAN;
    memcpy((char *)t->scales + 4 * (size_t)(t->dims[0] * t->dims[1] / (uint64_t)t->group - 1), &nan, sizeof nan);
    Status st = check_tensors(g);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "blk.1.ffn_down.weight"));
    gguf_close(g);
}

// ---- sizes ----------------------------------------------------------------------------------------------------------

static void test_sizes(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = "qwen2", .type = TYPE_Q8_0, .tied = tied, .seed = 4});
        const Backend *be;
        Model m;
        assert_ok(cpu_backend("scalar", &be));
        assert_ok(model_load(&m, g, be));
        // dim 64, 4 heads of 16, 2 KV heads, ffn 128, vocabulary 320, two layers
        size_t matrices = (size_t)(320 * 64 * (2 - tied) + 2 * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128));
        size_t vectors = 64 + 2 * (2 * 64 + 64 + 32 + 32);
        assert_int_equal(model_n_params(&m), matrices + vectors);
        assert_int_equal(model_weight_bytes(&m), matrices / 32 * 34 + vectors * 4);
        assert_int_equal(m.c.tied, tied);
        model_free(&m);
        gguf_close(g);
    }
}

// docs/models.md must name every family of the table.
static void test_page_names_families(void **state) {
    (void)state;
    Buf text = {0};
    assert_ok(file_read("docs/models.md", &text));
    buf_append(&text, "", 1);
    const char *list = strstr(text.data, "**Families**");
    assert_non_null(list);
    for (int i = 0; families_at(i); i++)
        if (!strstr(list, families_at(i)->arch))
            fail_msg("docs/models.md: %s expected among the families", families_at(i)->arch);
    buf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_integers),
        cmocka_unit_test(test_refused_floats),
        cmocka_unit_test(test_refused_value_types),
        cmocka_unit_test(test_refused_architectures),
        cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_wrong_shapes_and_types),
        cmocka_unit_test(test_refused_rope_freqs),
        cmocka_unit_test(test_refused_arithmetic),
        cmocka_unit_test(test_refused_expert_bias),
        cmocka_unit_test(test_refused_shared_kv),
        cmocka_unit_test(test_spare_shared_kv),
        cmocka_unit_test(test_refused_wide_experts),
        cmocka_unit_test(test_vocabulary_and_embedding),
        cmocka_unit_test(test_accepted_oddities),
        cmocka_unit_test(test_absent_keys),
        cmocka_unit_test(test_absent_keys_of_gemmas),
        cmocka_unit_test(test_window_patterns),
        cmocka_unit_test(test_absent_gating),
        cmocka_unit_test(test_check_tensors),
        cmocka_unit_test(test_check_tensors_in_vectors),
        cmocka_unit_test(test_check_tensors_int8_scales),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_page_names_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
