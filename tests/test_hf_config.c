// tests/test_hf_config.c: config.json of Hugging Face directories: keys, their defaults in transformers, and refused
// values.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include <math.h>

#include "hf/hf.h"
#include "tests/rig/cpu_rig.h"
#include "tests/rig/hf_compare.h"
#include "tests/rig/hf_directory.h"
#include "tests/rig/hf_directory_parts.h"
#include "tests/rig/tiny_model.h"

#define SHAPE "\"hidden_size\": 64, \"num_hidden_layers\": 3, \"intermediate_size\": 96, \"num_attention_heads\": 4"

static const TinyModel small = {.arch = "qwen3", .tied = true};

static void test_tied(void **state) {
    (void)state;
    static const HfDirectory hows[] = {{.head = NULL},
                                       {.head = "copy"},
                                       {.head = "alone"},
                                       {.config = "{\"tie_word_embeddings\": null}"},
                                       {.head = "copy", .config = "{\"tie_word_embeddings\": null}"},
                                       {.head = "alone", .config = "{\"tie_word_embeddings\": null}"},
                                       {.head = "copy", .config = "{\"tie_word_embeddings\": false}"}};
    Gguf *g = tiny_model(&small);
    for (size_t i = 0; i < ARRAY_LEN(hows); i++) {
        char *dir = hf_made_directory("tied");
        hf_directory_write(g, dir, &hows[i]);
        hf_compare(g, dir, "scalar", 0, hows[i].head ? hows[i].head : "no lm_head");
    }
    char *dir = hf_made_directory("tied");
    hf_directory_write(g, dir, &(HfDirectory){.config = "{\"tie_word_embeddings\": false}"});
    Gguf *none;
    Status st = hf_open(dir, &none);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "lm_head.weight: expected"));
    gguf_close(g);
}

// Puts config.json into the text_config of a model with images; `members`: other members of the outer object.
static void wrap_config(const char *dir, const char *members) {
    char path[1200];
    Buf text = {0}, whole = {0};
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_ok(file_read(path, &text));
    buf_printf(&whole, "{\"model_type\": \"a_model_with_images\", %s\"text_config\": %s}", members, text.data);
    hf_directory_text(dir, "config.json", whole.data);
    buf_free(&text);
    buf_free(&whole);
}

// As in transformers 5: an lm_head that differs from the embedding is used, whatever tie_word_embeddings says; without
// lm_head, the head is tied if the text model's key or that of the outer object is true.
static void test_tied_otherwise(void **state) {
    (void)state;
    static const struct {
        bool head; // the directory has an lm_head that differs from the embedding
        const char *inner, *outer;
        bool refused;
    } cases[] = {
        {true, "true", NULL, false},     {true, "true", "false", false},  {true, "false", "true", false},
        {true, "true", "true", false},   {true, "null", "true", false},   {true, "false", "false", false},
        {false, "false", "true", false}, {false, "true", "false", false}, {false, "true", "true", false},
        {false, "false", "null", true},  {false, "false", "false", true}, {false, "null", "true", false},
    };
    Gguf *tied = tiny_model(&small), *untied = tiny_model(&(TinyModel){.arch = "qwen3"}), *none;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *dir = hf_made_directory("tied"), config[80], outer[80];
        const Gguf *g = cases[i].head ? untied : tied;
        snprintf(config, sizeof config, "{\"tie_word_embeddings\": %s}", cases[i].inner);
        hf_directory_write(g, dir, &(HfDirectory){.config = config});
        snprintf(outer, sizeof outer, "\"tie_word_embeddings\": %s, ", cases[i].outer);
        if (cases[i].outer) wrap_config(dir, outer);
        if (!cases[i].refused) hf_compare(g, dir, "scalar", 0, cases[i].outer ? outer : config);
        else assert_int_equal(hf_open(dir, &none).code, QUILL_MODEL);
    }
    gguf_close(tied);
    gguf_close(untied);
}

// LFM2 has another name for this key, which decides if the usual one is there too.
static void test_tied_lfm2(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "lfm2", .tied = true}), *none;
    char *dir = hf_made_directory("tied");
    hf_directory_write(
        g, dir,
        &(HfDirectory){.no_tokenizer = true, .config = "{\"tie_embedding\": true, \"tie_word_embeddings\": false}"});
    hf_compare(g, dir, "scalar", 0, "tie_embedding");
    hf_directory_write(g, dir, &(HfDirectory){.no_tokenizer = true, .config = "{\"tie_embedding\": false}"});
    assert_int_equal(hf_open(dir, &none).code, QUILL_MODEL);
    gguf_close(g);
}

// The layers of LFM2 with attention, if config.json has no layer_types.
static void test_layers_lfm2(void **state) {
    (void)state;
    static const struct {
        const char *key, *layers; // a: attention, c: convolution
    } cases[] = {{"\"full_attn_idxs\": [0, 2]", "acac"},
                 {"\"full_attn_idxs\": []", "cccc"},
                 {"\"full_attn_idxs\": null", "aaaa"},
                 {"\"conv_bias\": false", "aaaa"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *g = gguf_new("d");
        char config[300];
        int32_t heads[4];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"lfm2\", \"hidden_size\": 64, \"num_hidden_layers\": 4, "
                 "\"num_attention_heads\": 4, %s}",
                 cases[i].key);
        assert_ok(hf_config_memory("d", str_of(config), g));
        assert_ok(gguf_ints(g, gguf_value(g, "lfm2.attention.head_count_kv"), heads));
        for (int k = 0; k < 4; k++)
            if ((heads[k] > 0) != (cases[i].layers[k] == 'a')) fail_msg("%s: layer %d: %d heads", config, k, heads[k]);
        gguf_close(g);
    }
}

static void test_layer_types(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "gemma3", .n_layers = 4, .tied = true}), *d;
    char *dir = hf_made_directory("layers");
    hf_directory_write(g, dir,
                       &(HfDirectory){.config = "{\"layer_types\": [\"full_attention\", \"sliding_attention\", "
                                                "\"full_attention\", \"full_attention\"], "
                                                "\"query_pre_attn_scalar\": 64}"});
    assert_ok(hf_open(dir, &d));
    Model m;
    const Backend *be;
    assert_ok(isa_backend("scalar", false, &be));
    assert_ok(model_load(&m, d, be));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(m.layers[i].heads.window, i == 1 ? 12 : 0);
        assert_true(m.layers[i].heads.scale == 0.125f);
        assert_int_equal(m.layers[i].rope.table, i == 1);
    }
    model_free(&m);
    gguf_close(d);
    gguf_close(g);
}

static uint32_t u32(const Gguf *g, const char *key) {
    uint32_t v = 0;
    assert_ok(gguf_u32(g, key, &v, true, 0));
    return v;
}

static float f32(const Gguf *g, const char *key) {
    float v = 0;
    assert_ok(gguf_f32(g, key, &v, true, 0));
    return v;
}

// Defaults of transformers' classes, and the text model inside a vision model.
static void test_defaults(void **state) {
    (void)state;
    Gguf *g = gguf_new("d");
    assert_ok(hf_config_memory("d",
                               str_of("{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\", "
                                      "\"hidden_size\": 2560, \"num_hidden_layers\": 34, \"intermediate_size\": 10240, "
                                      "\"sliding_window\": 1024, \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": "
                                      "\"linear\"}}}"),
                               g));
    assert_int_equal(u32(g, "gemma3.attention.head_count"), 8);
    assert_int_equal(u32(g, "gemma3.attention.head_count_kv"), 4);
    assert_int_equal(u32(g, "gemma3.attention.key_length"), 256);
    assert_int_equal(u32(g, "gemma3.attention.sliding_window"), 1024);
    assert_int_equal(u32(g, "gemma3.context_length"), 131072);
    assert_true(f32(g, "gemma3.rope.freq_base") == 1e6f && f32(g, "gemma3.rope.freq_base_swa") == 1e4f);
    assert_true(f32(g, "gemma3.rope.scaling.factor") == 8 && f32(g, "gemma3.attention.scale") == 0.0625f);
    const GgufValue *windows = gguf_value(g, "gemma3.attention.sliding_window_pattern");
    for (int i = 0; i < 34; i++) assert_int_equal(windows->data[i], (i + 1) % 6 != 0);
    gguf_close(g);
}

// A soft cap that is null is none, although the family has one.
static void test_no_soft_caps(void **state) {
    (void)state;
    Gguf *g = gguf_new("d");
    assert_ok(
        hf_config_memory("d",
                         str_of("{\"model_type\": \"gemma2\", \"num_hidden_layers\": 2, \"intermediate_size\": 64, "
                                "\"attn_logit_softcapping\": null, \"final_logit_softcapping\": null}"),
                         g));
    assert_true(f32(g, "gemma2.attn_logit_softcapping") == 0 && f32(g, "gemma2.final_logit_softcapping") == 0);
    gguf_close(g);
}

// The layers with a window, if config.json has no layer_types: each class has its own rule.
static void test_windows(void **state) {
    (void)state;
    static const struct {
        const char *model_type, *keys, *arch, *windows; // one character for each layer; NULL: no window
    } cases[] = {
        {"qwen3", "\"max_window_layers\": 3", "qwen3", "...www"},
        {"qwen3_moe", "\"max_window_layers\": 3", "qwen3moe", "wwwwww"},
        {"qwen2_moe", "\"max_window_layers\": 3", "qwen2moe", "w.w..."},
        {"qwen2_moe", "\"use_cache\": true", "qwen2moe", "w.w.w."},
        {"smollm3", "\"max_window_layers\": 3", "smollm3", "...w.."},
        {"smollm3", "\"use_sliding_window\": false", "smollm3", NULL},
        {"qwen2_moe", "\"use_sliding_window\": false", "qwen2moe", NULL},
        {"qwen3_moe", "\"use_sliding_window\": false", "qwen3moe", NULL},
        {"muse_glimmer_text", "\"head_dim\": 16", "muse-glimmer", "w.www."}, // counted from the last layer
        {"gemma4_text", "\"hidden_size_per_layer_input\": 0", "gemma4", "wwwww."},
        {"exaone4", "\"use_cache\": true", "exaone4", "www.ww"},
        {"exaone4", "\"sliding_window_pattern\": 2", "exaone4", "w.w.w."},
        {"exaone4", "\"sliding_window_pattern\": \"LLG\"", "exaone4", "ww.ww."},
        {"cohere2", "\"use_cache\": true", "cohere2", "www.ww"},
        {"cohere2", "\"sliding_window_pattern\": 3", "cohere2", "ww.ww."},
        // the last layer of Gemma 4 sees all of the text, whatever the list says
        {"gemma4_text",
         "\"layer_types\": [\"full_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\", "
         "\"sliding_attention\", \"sliding_attention\"]",
         "gemma4", "..w.w."},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *g = gguf_new("d");
        char config[600], key[96];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"%s\", \"hidden_size\": 64, \"num_hidden_layers\": 6, \"intermediate_size\": 96, "
                 "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"sliding_window\": 9, "
                 "\"use_sliding_window\": true, %s}",
                 cases[i].model_type, cases[i].keys);
        assert_ok(hf_config_memory("d", str_of(config), g));
        snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", cases[i].arch);
        const GgufValue *v = gguf_value(g, key);
        if (!v != !cases[i].windows) fail_msg("%s: windows: %s", config, v ? "found" : "none");
        for (int k = 0; v && k < 6; k++)
            if (v->data[k] != (cases[i].windows[k] == 'w')) fail_msg("%s: layer %d: %d", config, k, v->data[k]);
        gguf_close(g);
    }
}

// A window of EXAONE 4 says that the layers without it have no RoPE, also if no layer has it. null: there is none.
static void test_windows_that_no_layer_has(void **state) {
    (void)state;
    static const char *const windows[] = {"9", "null"};
    for (int i = 0; i < 2; i++) {
        Gguf *g = gguf_new("d");
        char config[400];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"exaone4\", " SHAPE ", \"sliding_window\": %s, \"layer_types\": "
                 "[\"full_attention\", \"full_attention\", \"full_attention\"]}",
                 windows[i]);
        assert_ok(hf_config_memory("d", str_of(config), g));
        assert_int_equal(u32(g, "exaone4.attention.sliding_window"), i == 0 ? 9 : 0);
        gguf_close(g);
    }
}

// Vision models: the text model, and the sections of RoPE, which other programs need. Older files of Qwen2-VL have no
// text_config.
static void test_sections(void **state) {
    (void)state;
    static const char *const files[] = {
        "{\"model_type\": \"qwen2_5_vl\", " SHAPE ", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": "
        "[2, 3, 3]}}",
        "{\"model_type\": \"qwen2_vl\", \"text_config\": {\"model_type\": \"qwen2_vl_text\", " SHAPE
        ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e4, \"mrope_section\": [2, 3, 3]}}}"};
    for (int i = 0; i < 2; i++) {
        Gguf *g = gguf_new("d");
        int32_t sections[4];
        assert_ok(hf_config_memory("d", str_of(files[i]), g));
        const GgufValue *v = gguf_value(g, "qwen2vl.rope.dimension_sections");
        assert_true(v && v->n == 4);
        assert_ok(gguf_ints(g, v, sections));
        assert_memory_equal(sections, ((int32_t[]){2, 3, 3, 0}), sizeof sections);
        assert_null(gguf_value(g, "qwen2vl.rope.scaling.type"));
        gguf_close(g);
    }
}

// Hunyuan calls a larger base "dynamic" scaling. Its dense models have keys of mixtures.
static void test_hunyuan(void **state) {
    (void)state;
    Gguf *g = gguf_new("d");
    assert_ok(hf_config_memory("d",
                               str_of("{\"model_type\": \"hunyuan_v1_dense\", " SHAPE ", \"head_dim\": 16, "
                                      "\"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": 1000.0, \"factor\": 1.0}, "
                                      "\"num_experts\": 1, \"moe_intermediate_size\": [96, 96]}"),
                               g));
    assert_true(fabs(f32(g, "hunyuan-dense.rope.freq_base") / (1e4 * pow(1000, 16.0 / 14)) - 1) < 1e-6);
    assert_null(gguf_value(g, "hunyuan-dense.rope.scaling.type"));
    assert_null(gguf_value(g, "hunyuan-dense.expert_count"));
    assert_null(gguf_value(g, "hunyuan-dense.expert_feed_forward_length"));
    gguf_close(g);
}

// Dense Gemma 4 models have keys of experts, which are null.
static void test_no_experts(void **state) {
    (void)state;
    Gguf *g = gguf_new("d");
    assert_ok(hf_config_memory("d",
                               str_of("{\"model_type\": \"gemma4_text\", \"enable_moe_block\": false, "
                                      "\"num_experts\": null, \"top_k_experts\": null, "
                                      "\"moe_intermediate_size\": null}"),
                               g));
    assert_int_equal(u32(g, "gemma4.expert_count"), 0);
    assert_int_equal(u32(g, "gemma4.block_count"), 30);
    gguf_close(g);
}

// A default does not override the number of experts that the file has under another of its names.
static void test_names_of_experts(void **state) {
    (void)state;
    static const struct {
        const char *model_type, *key, *arch;
    } cases[] = {{"qwen3_moe", "num_experts", "qwen3moe"},
                 {"qwen3_moe", "num_local_experts", "qwen3moe"},
                 {"qwen2_moe", "num_local_experts", "qwen2moe"},
                 {"mixtral", "num_experts", "llama"},
                 {"gpt_oss", "num_experts", "gpt-oss"},
                 {"deepseek_v2", "num_experts", "deepseek2"},
                 {"deepseek_v3", "num_local_experts", "deepseek2"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *g = gguf_new("d");
        char config[300], key[64];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"%s\", \"%s\": 6, \"hidden_size\": 64, \"num_hidden_layers\": 2, "
                 "\"intermediate_size\": 96, \"num_attention_heads\": 4}",
                 cases[i].model_type, cases[i].key);
        assert_ok(hf_config_memory("d", str_of(config), g));
        snprintf(key, sizeof key, "%s.expert_count", cases[i].arch);
        assert_int_equal(u32(g, key), 6);
        gguf_close(g);
    }
}

// Replaces the keys of layers without a window by per_layer_config, as transformers 5.24 does. Layers are written as
// "02", as in models of more than ten. every: also layers with a window have an entry.
static void split_layers(const char *dir, bool every) {
    char path[1200], layer[16];
    Buf text = {0};
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_ok(file_read(path, &text));
    json_t *config = json_loads(text.data, 0, NULL), *types = json_object_get(config, "layer_types"), *type;
    json_t *layers = json_object();
    size_t i;
    json_array_foreach(types, i, type) {
        bool full = strcmp(json_string_value(type), "full_attention") == 0;
        json_t *width = json_object_get(config, full ? "global_head_dim" : "head_dim"),
               *n_kv = json_object_get(config, full ? "num_global_key_value_heads" : "num_key_value_heads");
        snprintf(layer, sizeof layer, "%02d", (int)i);
        if (full || every)
            json_object_set_new(layers, layer, json_pack("{s:O, s:O}", "head_dim", width, "num_key_value_heads", n_kv));
    }
    json_object_del(config, "global_head_dim");
    json_object_del(config, "num_global_key_value_heads");
    json_object_set_new(config, "per_layer_config", layers);
    hf_directory_json(dir, "config.json", config);
    buf_free(&text);
}

static void test_per_layer_config(void **state) {
    (void)state;
    // the second model has V of its own, but another number of heads in layers without a window
    static const TinyModel shapes[] = {{.arch = "gemma4", .tied = true, .n_experts = 4, .n_layers = 6},
                                       {.arch = "gemma4", .tied = true, .n_layers = 6}};
    for (size_t i = 0; i < ARRAY_LEN(shapes) * 2; i++) {
        Gguf *g = tiny_model(&shapes[i / 2]);
        char *dir = hf_made_directory("layers");
        hf_directory_write(g, dir, NULL);
        split_layers(dir, i % 2);
        hf_compare(g, dir, "scalar", 0, i % 2 ? "an entry for each layer" : "per_layer_config");
        gguf_close(g);
    }
    Gguf *g = gguf_new("d"); // equal heads everywhere
    assert_ok(hf_config_memory(
        "d", str_of("{\"model_type\": \"gemma4_text\", \"head_dim\": 128, \"per_layer_config\": {}}"), g));
    assert_int_equal(u32(g, "gemma4.attention.key_length"), 128);
    gguf_close(g);
}

// RoPE values of real models, compared with those in GGUF files of the same models.
static void test_rope(void **state) {
    (void)state;
    Gguf *g = gguf_new("d");
    assert_ok(
        hf_config_memory("d",
                         str_of("{\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_hidden_layers\": 32, "
                                "\"intermediate_size\": 14336, \"num_attention_heads\": 32, \"rope_theta\": 500000.0, "
                                "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
                                "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                                "\"original_max_position_embeddings\": 8192}}"),
                         g));
    const GgufTensor *t = gguf_tensor(g, "rope_freqs.weight");
    const float *divisors = t->data;
    assert_int_equal(t->dims[0], 64);
    assert_true(divisors[0] == 1 && divisors[28] == 1 && divisors[63] == 8 && divisors[36] == 8);
    assert_true(divisors[29] > 1 && divisors[29] < divisors[30] && divisors[34] < 8);
    gguf_close(g);
    g = gguf_new("d"); // Llama 4 Scout: nothing lies between long and short wavelengths
    assert_ok(
        hf_config_memory("d",
                         str_of("{\"model_type\": \"llama4\", \"text_config\": {\"rope_scaling\": {\"rope_type\": "
                                "\"llama3\", \"factor\": 16.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": "
                                "1.0, \"original_max_position_embeddings\": 8192}}}"),
                         g));
    divisors = gguf_tensor(g, "rope_freqs.weight")->data;
    for (int i = 0; i < 64; i++) assert_true(divisors[i] == (i < 35 ? 1 : 16));
    gguf_close(g);
    g = gguf_new("d");
    assert_ok(
        hf_config_memory("d",
                         str_of("{\"model_type\": \"qwen2\", \"hidden_size\": 64, \"num_hidden_layers\": 3, "
                                "\"intermediate_size\": 96, \"num_attention_heads\": 4, "
                                "\"use_sliding_window\": true, \"max_window_layers\": 2, \"sliding_window\": 100, "
                                "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"rope_theta\": 1e6, "
                                "\"original_max_position_embeddings\": 32768, \"attention_factor\": 1.0}}"),
                         g));
    assert_true(fabsf(f32(g, "qwen2.rope.scaling.attn_factor") * (1 + 0.1f * logf(4)) - 1) < 1e-6f);
    assert_int_equal(u32(g, "qwen2.attention.sliding_window"), 100);
    assert_memory_equal(gguf_value(g, "qwen2.attention.sliding_window_pattern")->data, "\0\0\1", 3);
    gguf_close(g);
    g = gguf_new("d"); // gpt-oss does not round the limits of the ramp, also by default
    assert_ok(hf_config_memory("d", str_of("{\"model_type\": \"gpt_oss\"}"), g));
    assert_true(f32(g, "gpt-oss.rope.scaling.factor") == 32);
    gguf_close(g);
}

// Classes whose RoPE has other defaults than a base of 10000.
static void test_rope_defaults(void **state) {
    (void)state;
    Gguf *g = gguf_new("d");
    assert_ok(hf_config_memory("d", str_of("{\"model_type\": \"olmo3\", " SHAPE "}"), g));
    assert_true(f32(g, "olmo2.rope.freq_base") == 5e5f);
    gguf_close(g);
    g = gguf_new("d");
    assert_ok(hf_config_memory("d", str_of("{\"model_type\": \"ministral3\", \"rope_parameters\": null}"), g));
    assert_true(f32(g, "mistral3.rope.freq_base") == 1e6f && f32(g, "mistral3.rope.scaling.factor") == 16);
    assert_true(f32(g, "mistral3.attention.temperature_scale") == 0.1f);
    assert_int_equal(u32(g, "mistral3.rope.scaling.original_context_length"), 16384);
    gguf_close(g);
    g = gguf_new("d"); // without scaling, too, Ministral 3 has a temperature
    assert_ok(hf_config_memory("d",
                               str_of("{\"model_type\": \"ministral3\", \"rope_parameters\": {\"rope_type\": "
                                      "\"default\", \"rope_theta\": 100.0, \"llama_4_scaling_beta\": 0.5, "
                                      "\"original_max_position_embeddings\": 300}}"),
                               g));
    assert_true(f32(g, "mistral3.rope.freq_base") == 100 && f32(g, "mistral3.attention.temperature_scale") == 0.5f);
    assert_int_equal(u32(g, "mistral3.rope.scaling.original_context_length"), 300);
    assert_null(gguf_value(g, "mistral3.rope.scaling.type"));
    gguf_close(g);
    for (int i = 0; i < 2; i++) {
        g = gguf_new("d");
        assert_ok(hf_config_memory("d",
                                   str_of(i ? "{\"model_type\": \"gemma4_text\", \"rope_parameters\": "
                                              "{\"full_attention\": {\"rope_type\": \"proportional\", \"factor\": 4.0, "
                                              "\"partial_rotary_factor\": 0.25, \"rope_theta\": 1e6}, "
                                              "\"sliding_attention\": {\"rope_theta\": 1e4}}}"
                                            : "{\"model_type\": \"gemma4_text\"}"),
                                   g));
        const float *divisors = gguf_tensor(g, "rope_freqs.weight")->data;
        assert_true(divisors[0] == (i ? 4 : 1) && divisors[63] == divisors[0] && divisors[64] == 1e30f);
        assert_true(f32(g, "gemma4.rope.freq_base") == 1e6f && f32(g, "gemma4.rope.freq_base_swa") == 1e4f);
        gguf_close(g);
    }
}

// Keys that other classes have are not applied.
static void test_others_keys(void **state) {
    (void)state;
    static const struct {
        const char *config, *key;
    } cases[] = {
        {"{\"model_type\": \"mixtral\", \"norm_topk_prob\": false, " SHAPE "}", "llama.expert_weights_norm"},
        {"{\"model_type\": \"qwen3_5_moe_text\", \"norm_topk_prob\": false, " SHAPE "}",
         "qwen35moe.expert_weights_norm"},
        {"{\"model_type\": \"gemma4_text\", \"query_pre_attn_scalar\": 17}", "gemma4.attention.scale"},
        {"{\"model_type\": \"gemma4_text\", \"attn_logit_softcapping\": 2}", "gemma4.attn_logit_softcapping"},
        {"{\"model_type\": \"gemma3_text\", \"attn_logit_softcapping\": 2}", "gemma3.attn_logit_softcapping"},
        {"{\"model_type\": \"llama\", \"attention_multiplier\": 2, " SHAPE "}", "llama.attention.scale"},
        // V2 has groups only if topk_method says so
        {"{\"model_type\": \"deepseek_v2\", \"n_group\": 4, \"topk_group\": 2, " SHAPE "}",
         "deepseek2.expert_group_count"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *g = gguf_new("d");
        assert_ok(hf_config_memory("d", str_of(cases[i].config), g));
        if (gguf_value(g, cases[i].key)) fail_msg("%s: %s found", cases[i].config, cases[i].key);
        gguf_close(g);
    }
    Gguf *g = gguf_new("d");
    assert_ok(hf_config_memory("d",
                               str_of("{\"model_type\": \"deepseek_v2\", \"topk_method\": \"group_limited_greedy\", "
                                      "\"n_group\": 4, \"topk_group\": 2, " SHAPE "}"),
                               g));
    assert_int_equal(u32(g, "deepseek2.expert_group_count"), 4);
    assert_int_equal(u32(g, "deepseek2.expert_group_used_count"), 2);
    gguf_close(g);
}

// ---- refused input --------------------------------------------------------------------------------------------------

typedef struct {
    const char *config, *message;
} RefusedConfig;

static void check_refused(const RefusedConfig *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        Gguf *g = gguf_new("d");
        Status st = hf_config_memory("d", str_of(cases[i].config), g);
        if (st.code != QUILL_MODEL || !strstr(st.message, cases[i].message) ||
            strncmp(st.message, "d/config.json: ", 15))
            fail_msg("%s: code %d: %s", cases[i].config, st.code, st.message);
        gguf_close(g);
    }
}

static void test_refused_configs(void **state) {
    (void)state;
#define YARN "\"rope_type\": \"yarn\", \"factor\": 32.0, \"original_max_position_embeddings\": 4096"
    static const RefusedConfig cases[] = {
        {"", "line"},
        {"[]", "an object expected"},
        {"{", "line 1"},
        {"{}", "model_type: a supported one expected, nothing found; supported are llama, mistral, qwen2"},
        {"{\"model_type\": \"mamba\"}", "mamba found"},
        {"{\"model_type\": \"llama\"}", "hidden_size: a whole number from 1 on expected, nothing found"},
        {"{\"model_type\": \"llama\", \"hidden_size\": \"big\"}",
         "hidden_size: a whole number from 1 on expected, \"big\""},
        {"{\"model_type\": \"llama\", \"hidden_size\": -4}", "-4 found"},
        {"{\"model_type\": \"llama\", \"hidden_size\": 1e30}", "1e+30 found"},
        {"{\"model_type\": \"llama\", \"hidden_act\": \"relu\"}", "hidden_act: silu expected, relu found"},
        {"{\"model_type\": \"qwen3_vl\", " SHAPE ", \"rope_scaling\": {\"mrope_section\": [2, 3]}}",
         "mrope_section: three whole numbers"},
        {"{\"model_type\": \"arcee\", \"hidden_act\": \"silu\"}", "hidden_act: relu2 expected, silu found"},
        {"{\"model_type\": \"gemma\", \"hidden_act\": \"relu\"}", "hidden_act: gelu_pytorch_tanh expected, relu found"},
        {"{\"model_type\": \"cohere2\", " SHAPE ", \"sliding_window\": null}",
         "sliding_window: a whole number from 1 on expected"},
        {"{\"model_type\": \"hunyuan_v1_dense\", " SHAPE ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
         "rope_type: default, linear, llama3, yarn or longrope expected, dynamic found"},
        {"{\"model_type\": \"hunyuan_v1_dense\", " SHAPE ", \"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": -2}}",
         "alpha: a positive number expected"},
        {"{\"model_type\": \"qwen2\", \"quantization_config\": {\"quant_method\": \"gptq\"}}", "gptq found"},
        {"{\"model_type\": \"llama\", " SHAPE ", \"rms_norm_eps\": 0}", "rms_norm_eps: a positive number"},
        {"{\"model_type\": \"llama\", " SHAPE ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
         "rope_type: default, linear, llama3, yarn or longrope expected, dynamic found"},
        {"{\"model_type\": \"llama\", " SHAPE ", \"rope_scaling\": {\"type\": \"linear\"}}",
         "factor: a positive number"},
        {"{\"model_type\": \"llama\", " SHAPE ", \"rope_theta\": -1}", "rope_theta"},
        {"{\"model_type\": \"llama\", " SHAPE ", \"rope_scaling\": {" YARN ", \"truncate\": false}}",
         "truncate: true expected, false found"},
        {"{\"model_type\": \"gpt_oss\", \"rope_scaling\": {" YARN "}}", "truncate: false expected"},
        {"{\"model_type\": \"llama\", " SHAPE ", \"head_dim\": 3}", "even number of dimensions"},
        {"{\"model_type\": \"phi3\", " SHAPE ", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1]}}",
         "short_factor: 8 numbers expected, 1 found"},
        {"{\"model_type\": \"qwen3\", " SHAPE ", \"layer_types\": [\"full_attention\"]}", "each of the 3 layers"},
        {"{\"model_type\": \"qwen3\", " SHAPE ", \"layer_types\": [1, 2, 3]}", "full_attention or sliding_attention"},
        {"{\"model_type\": \"smollm3\", " SHAPE ", \"no_rope_layers\": [1, 0, 1]}", "no_rope_layers"},
        {"{\"model_type\": \"gemma3_text\", " SHAPE ", \"use_bidirectional_attention\": true}", "bidirectional"},
        {"{\"model_type\": \"gemma4_text\", \"use_bidirectional_attention\": \"all\"}",
         "use_bidirectional_attention: false or vision expected, \"all\" found"},
        {"{\"model_type\": \"gemma2\", " SHAPE ", \"sliding_window\": -2}", "sliding_window"},
        {"{\"model_type\": \"muse_glimmer\", \"text_config\": {\"post_norm_eps\": 1e-6}}",
         "post_norm_eps: 1e-8 expected, 1e-06 found"},
        {"{\"model_type\": \"muse_glimmer_text\", \"num_hidden_layers\": 2, \"layer_rope_theta\": [1e4, 1e4]}",
         "layer_rope_theta: rope_theta's 10000 in layers with a window and 0 in the others expected"},
        {"{\"model_type\": \"muse_glimmer_text\", \"layer_rope_theta\": 1}", "layer_rope_theta"},
        {"{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2000000, \"intermediate_size\": 96, "
         "\"num_attention_heads\": 4}",
         "num_hidden_layers: at most"},
    };
    check_refused(cases, ARRAY_LEN(cases));
}

// Keys that a family lacks, or whose other values quill does not compute.
static void test_refused_keys(void **state) {
    (void)state;
#define GEMMA4 "{\"model_type\": \"gemma4_text\", \"per_layer_config\": "
    static const RefusedConfig cases[] = {
        {"{\"model_type\": \"llama\", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
         "\"pack-quantized\"}}",
         "quantization_config.format: float-quantized expected, pack-quantized found; take the original weights"},
        {"{\"model_type\": \"qwen3_moe\", " SHAPE ", \"mlp_only_layers\": [0, 2]}",
         "mlp_only_layers: an empty list, which gives all layers experts, expected, [0.0,2.0] found"},
        {"{\"model_type\": \"qwen2_moe\", " SHAPE ", \"decoder_sparse_step\": 2}",
         "decoder_sparse_step: 1, which gives all layers experts, expected, 2 found"},
        {"{\"model_type\": \"lfm2\", " SHAPE
         ", \"conv_bias\": true, \"layer_types\": [\"conv\", \"conv\", \"full_attention\"]}",
         "conv_bias: false expected, true found"},
        {"{\"model_type\": \"llama\", " SHAPE ", \"partial_rotary_factor\": 0.5}",
         "RoPE: partial_rotary_factor: 1 in llama models expected, 0.5 found"},
        {"{\"model_type\": \"gemma4_text\", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\", "
         "\"partial_rotary_factor\": 0.5}}}",
         "RoPE: partial_rotary_factor: 1 in gemma4_text models expected, 0.5 found"},
        {"{\"model_type\": \"qwen3\", " SHAPE ", \"rope_parameters\": {\"rope_theta\": 1e6, \"rope_type\": "
         "\"default\"}, \"rope_scaling\": {" YARN "}}",
         "RoPE: rope_scaling: the values of rope_parameters, which is there too, expected, others found"},
        {"{\"model_type\": \"gpt_oss\", " SHAPE ", \"swiglu_alpha\": 1.5}", "swiglu_alpha: 1.702 expected, 1.5 found"},
        {"{\"model_type\": \"deepseek_v2\", " SHAPE ", \"scoring_func\": \"sigmoid\"}",
         "scoring_func: softmax expected, \"sigmoid\" found"},
        {"{\"model_type\": \"deepseek_v3\", " SHAPE ", \"scoring_func\": \"softmax\"}",
         "scoring_func: sigmoid expected, \"softmax\" found"},
        {"{\"model_type\": \"deepseek_v2\", " SHAPE ", \"topk_method\": \"noaux_tc\"}",
         "topk_method: greedy or group_limited_greedy expected"},
        {"{\"model_type\": \"deepseek_v2\", " SHAPE ", \"norm_topk_prob\": true}", "norm_topk_prob: false expected"},
        {GEMMA4 "{\"5\": {\"head_dim\": 64}, \"11\": {\"head_dim\": 32}}}",
         "per_layer_config: the same head_dim and num_key_value_heads in all full_attention layers expected, 4 of 32 "
         "in "
         "layer 11 found, 4 of 64"},
        {GEMMA4 "{\"5\": {\"head_dim\": 64}}}", "4 of 256 in layer 11 found"},
        {GEMMA4 "{\"0\": {\"head_dim\": 64}}}", "in all sliding_attention layers"},
        {GEMMA4 "{\"5\": {\"sliding_window\": 64}}}",
         "per_layer_config, layer 5: only head_dim and num_key_value_heads, from 1 to 32768, expected, "
         "{\"sliding_window\":64.0} found"},
        {GEMMA4 "{\"5\": {\"head_dim\": -4}}}", "layer 5: only head_dim"},
        {GEMMA4 "{\"30\": {\"head_dim\": 64}}}", "layer 30: a number below that of the layers expected"},
        {GEMMA4 "{\"x\": {\"head_dim\": 64}}}", "layer x: a number"},
        {GEMMA4 "{\"5\": 64}}", "layer 5: an object expected, 64.0 found"},
        {GEMMA4 "[1]}", "per_layer_config: an object expected"},
        {"{\"model_type\": \"llama\", " SHAPE ", \"per_layer_config\": {\"1\": {\"sliding_window\": 9}}}",
         "per_layer_config: no key of single layers expected, {\"1\":{\"sliding_window\":9.0}} found"},
    };
    check_refused(cases, ARRAY_LEN(cases));
}

// A key that may be left out must not be taken for absent if its type is wrong.
static void test_refused_types(void **state) {
    (void)state;
    static const RefusedConfig cases[] = {
        {"{\"model_type\": \"llama\", " SHAPE ", \"rope_theta\": \"5e5\"}",
         "rope_theta: a number expected, \"5e5\" found"},
        {"{\"model_type\": \"llama\", " SHAPE ", \"rope_parameters\": {\"rope_theta\": \"5e5\"}}",
         "RoPE: rope_theta: a number expected"},
        {"{\"model_type\": \"olmo3\", " SHAPE ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5e5}, "
         "\"sliding_attention\": {\"rope_theta\": [5e5]}}}",
         "RoPE: rope_theta: a number expected"},
        {"{\"model_type\": \"qwen2\", " SHAPE ", \"use_sliding_window\": 1}",
         "use_sliding_window: true or false expected, 1 found"},
        {"{\"model_type\": \"qwen3_moe\", " SHAPE ", \"norm_topk_prob\": \"true\"}",
         "norm_topk_prob: true or false expected, \"true\" found"},
    };
    check_refused(cases, ARRAY_LEN(cases));
}

static void test_refused_block_sizes(void **state) {
    (void)state;
    static const char *const blocks[] = {"128",      "\"128\"",    "[]",           "[128]",     "[128, 0]",
                                         "[-1, 16]", "[16, 16.5]", "[16, 16, 16]", "[1e12, 1]", "{\"0\": 16}"};
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
        Gguf *g = gguf_new("d");
        char config[200];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"qwen3\", \"quantization_config\": {\"quant_method\": \"fp8\", "
                 "\"weight_block_size\": %s}}",
                 blocks[i]);
        Status st = hf_config_memory("d", str_of(config), g);
        if (st.code != QUILL_MODEL || strchr(st.message, '\n') ||
            !strstr(st.message, " found; download config.json again") ||
            !strstr(st.message, "d/config.json: quantization_config.weight_block_size: two whole numbers from 1 on"))
            fail_msg("%s: code %d: %s", blocks[i], st.code, st.message);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_tied_otherwise),
        cmocka_unit_test(test_tied_lfm2),
        cmocka_unit_test(test_layers_lfm2),
        cmocka_unit_test(test_layer_types),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_no_soft_caps),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_windows_that_no_layer_has),
        cmocka_unit_test(test_hunyuan),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_no_experts),
        cmocka_unit_test(test_names_of_experts),
        cmocka_unit_test(test_per_layer_config),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_rope_defaults),
        cmocka_unit_test(test_others_keys),
        cmocka_unit_test(test_refused_configs),
        cmocka_unit_test(test_refused_keys),
        cmocka_unit_test(test_refused_types),
        cmocka_unit_test(test_refused_block_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
