// tests/test_hf.c: Hugging Face directories: the logits of reference directories and of directories that the rig writes
// from GGUF models, FP8, and missing or wrong files and tensors.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include "families.h"
#include "files/model_file.h"
#include "hf/fp8.h"
#include "hf/hf.h"
#include "tests/rig/cpu_rig.h"
#include "tests/rig/hf_compare.h"
#include "tests/rig/hf_directory.h"
#include "tests/rig/tiny_model.h"

enum { MOST_TOKENS = N_CTX };

static const TinyModel small = {.arch = "qwen3", .tied = true};

// ---- logits ---------------------------------------------------------------------------------------------------------

static int read_tokens(const char *path, int *out) {
    FILE *f = fopen(path, "r");
    int n = 0;
    assert_non_null(f);
    while (n < MOST_TOKENS && fscanf(f, "%d%*[ ,\n]", &out[n]) == 1) n++;
    fclose(f);
    return n;
}

static float *read_floats(const char *path, size_t n) {
    FILE *f = fopen(path, "rb");
    float *out = malloc(n * sizeof *out);
    assert_non_null(f);
    assert_int_equal(fread(out, sizeof *out, n, f), n);
    fclose(f);
    return out;
}

static void check_golden(const char *dir, const char *want_path, const int *tokens, int n, double fast) {
    Gguf *g;
    float *want = NULL;
    assert_ok(model_file_open(dir, NULL, &g));
    for (int i = 0; isa_name(i); i++) {
        size_t n_logits;
        float *got = hf_logits(g, isa_name(i), tokens, n, &n_logits);
        if (!got) continue;
        if (!want) want = read_floats(want_path, n_logits);
        double d = test_distance(got, want, n_logits), limit = i == 0 ? 1e-5 : fast;
        if (!(d < limit)) fail_msg("%s, %s: distance %.3g, at most %.3g expected", dir, isa_name(i), d, limit);
        free(got);
    }
    free(want);
    gguf_close(g);
}

static void test_golden(void **state) {
    (void)state;
    static const char *const names[] = {"qwen3", "llama", "gemma3"};
    char dir[1200], want[1200], from[1300], other[1024];
    const char *folder = test_data("golden/hf");
    int tokens[MOST_TOKENS], n;
    snprintf(dir, sizeof dir, "%s/tokens.txt", folder);
    n = read_tokens(dir, tokens);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(dir, sizeof dir, "%s/%s", folder, names[i]);
        snprintf(want, sizeof want, "%s/%s.logits.f32", folder, names[i]);
        check_golden(dir, want, tokens, n, i == 1 ? 1e-3 : 2e-2);
        snprintf(from, sizeof from, "%s/config.v5.json", dir); // the same configuration as transformers 5 writes it
        Buf config = {0};
        if (access(from, F_OK) != 0) continue;
        assert_ok(file_read(from, &config));
        snprintf(other, sizeof other, "%s", hf_made_directory("v5"));
        static const char *const files[] = {"model.safetensors", "model-00001-of-00002.safetensors",
                                            "model-00002-of-00002.safetensors", "model.safetensors.index.json"};
        for (size_t k = 0; k < ARRAY_LEN(files); k++) {
            char to[1200];
            snprintf(from, sizeof from, "%s/%s", dir, files[k]);
            snprintf(to, sizeof to, "%s/%s", other, files[k]);
            if (access(from, F_OK) == 0) assert_int_equal(symlink(from, to), 0);
        }
        hf_directory_text(other, "config.json", config.data);
        buf_free(&config);
        check_golden(other, want, tokens, n, i == 1 ? 1e-3 : 2e-2);
    }
}

static void test_families(void **state) {
    (void)state;
    static const int types[] = {TYPE_F32, TYPE_BF16, TYPE_F16};
    static const HfDirectory hows[] = {{0}, {.v5 = true, .n_shards = 3}, {.shift = 1}};
    for (int f = 0; families_at(f); f++) {
        const char *arch = families_at(f)->arch;
        static const char no_directories[] = "bailingmoe2 internlm2 maincoder hunyuan-moe";
        if (strstr(no_directories, arch)) continue;
        bool permuted = hf_directory_permutes(arch);
        for (size_t t = 0; t < ARRAY_LEN(types); t++) {
            TinyModel shape = {.arch = arch, .type = types[t], .tied = strncmp(arch, "gemma", 5) == 0};
            if (strcmp(arch, "gemma3") == 0) shape.n_layers = 7;
            // config.json has two numbers of KV heads only if V is K
            if (strcmp(arch, "gemma4") == 0) shape.n_kv_heads = 1;
            Gguf *g = tiny_model(&shape);
            char *dir = hf_made_directory("family");
            HfDirectory how = hows[t];
            how.no_tokenizer = true;
            hf_directory_write(g, dir, &how);
            // decay values are converted by a logarithm, which rounds
            bool decays = families_at(f)->recurrent == MIXER_DELTA || families_at(f)->recurrent == MIXER_SSD;
            hf_compare(g, dir, "scalar", permuted || decays ? 1e-6 : 0, arch);
            gguf_close(g);
        }
    }
}

// Qwen3-VL's class takes fused experts transposed, as test_families has them, and in its own order, as here.
static void test_straight_experts(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "qwen3moe", .n_experts = 5, .n_used = 2, .ffn = 24, .seed = 1});
    char *dir = hf_made_directory("straight");
    hf_directory_write(
        g, dir, &(HfDirectory){.v5 = true, .no_tokenizer = true, .config = "{\"model_type\": \"qwen3_vl_moe_text\"}"});
    hf_compare(g, dir, "scalar", 0, "experts in the order of the class");
    gguf_close(g);
}

// Every family of golden/families that this program supports, read from a directory.
static void test_golden_families(void **state) {
    (void)state;
    static const struct {
        const char *file, *arch;
    } models[] = {{"gemma2", "gemma2"},
                  {"gemma3", "gemma3"},
                  {"phi3", "phi3"},
                  {"granite", "granite"},
                  {"smollm3", "smollm3"},
                  {"ministral3", "mistral3"},
                  {"olmo2", "olmo2"},
                  {"glm4", "glm4"},
                  {"mixtral", "llama"},
                  {"qwen2moe", "qwen2moe"},
                  {"qwen3moe", "qwen3moe"},
                  {"gptoss", "gpt-oss"},
                  {"gptoss_mxfp4", "gpt-oss"},
                  {"gemma4", "gemma4"},
                  {"gemma4moe", "gemma4"},
                  {"deepseek3", "deepseek2"},
                  {"deepseek2lite", "deepseek2"},
                  {"qwen3next", "qwen3next"},
                  {"qwen35", "qwen35"},
                  {"qwen35moe", "qwen35moe"},
                  {"lfm2", "lfm2"}};
    const char *folder = test_data("golden/families");
    char path[1200], dir[1024];
    int tokens[MOST_TOKENS], n;
    snprintf(path, sizeof path, "%s/tokens.txt", folder);
    n = read_tokens(path, tokens);
    for (size_t i = 0; i < ARRAY_LEN(models) * 2; i++) {
        const char *file = models[i / 2].file;
        Gguf *g;
        if (!family_find(str_of(models[i / 2].arch))) continue;
        snprintf(path, sizeof path, "%s/%s.gguf", folder, file);
        assert_ok(gguf_open(path, &g));
        snprintf(dir, sizeof dir, "%s", hf_made_directory("golden_family"));
        hf_directory_write(g, dir, &(HfDirectory){.v5 = i % 2, .no_tokenizer = true});
        snprintf(path, sizeof path, "%s/%s.logits.f32", folder, file);
        check_golden(dir, path, tokens, n, strstr(file, "mxfp4") ? 8e-2 : 1e-3);
        gguf_close(g);
    }
}

static void test_tinystories(void **state) {
    (void)state;
    char dir[1024], file[1024];
    snprintf(dir, sizeof dir, "%s", test_data("models/TinyStories-656K"));
    snprintf(file, sizeof file, "%s", test_data("models/TinyStories-656K.F32.gguf"));
    Gguf *g;
    assert_ok(gguf_open(file, &g));
    hf_compare(g, dir, "scalar", 1e-6, "TinyStories-656K");
    gguf_close(g);
}

// ---- FP8 ------------------------------------------------------------------------------------------------------------

static void test_fp8_values(void **state) {
    (void)state;
    static const struct {
        uint8_t bits;
        float value;
    } cases[] = {{0x00, 0},    {0x80, -0.0f}, {0x01, 0x1p-9f}, {0x07, 7 * 0x1p-9f}, {0x08, 0x1p-6f}, {0x38, 1},
                 {0x3c, 1.5f}, {0xb8, -1},    {0x7e, 448},     {0xfe, -448},        {0x77, 240.0f}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) assert_true(fp8_e4m3(cases[i].bits) == cases[i].value);
    assert_true(isnan(fp8_e4m3(0x7f)) && isnan(fp8_e4m3(0xff)));
}

// Compares a tensor that the rig wrote in FP8: values of E4M3 times powers of two are exact in BF16.
static void check_fp8(const GgufTensor *got, const Gguf *g) {
    char name[80];
    snprintf(name, sizeof name, "%.*s", (int)got->name.n, got->name.data);
    const GgufTensor *want = gguf_tensor(g, name);
    if (got->n_dims < 2 || !strstr(name, "blk.")) return;
    assert_int_equal(got->type, TYPE_BF16);
    assert_int_equal(got->n_dims, want->n_dims);
    assert_int_equal(got->n_bytes * 2, want->n_bytes);
    for (size_t k = 0; k < got->n_bytes / 2; k++) {
        float w = ((const float *)want->data)[k], v = bf16_float(((const uint16_t *)got->data)[k]);
        if (!(fabsf(v - w) <= fabsf(w) / 16 + 0x1p-13f)) fail_msg("%s, element %zu: %g, expected %g", name, k, v, w);
    }
}

#define FP8_CONFIG(block) "{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": " block "}}"

static void check_fp8_directory(const Gguf *g, int block, bool v5, const char *config) {
    Gguf *d;
    char *dir = hf_made_directory("fp8");
    hf_directory_write(g, dir, &(HfDirectory){.fp8 = block, .v5 = v5, .config = config});
    assert_ok(hf_open(dir, &d));
    for (int k = 0; k < gguf_n_tensors(d); k++) check_fp8(gguf_tensor_at(d, k), g);
    gguf_close(d);
}

// The last, incomplete block of a matrix has its own scale. Experts are one tensor each, or fused; a block of fused
// ones may contain rows of gate and of up. config.json states the block, or does not.
static void test_fp8_blocks(void **state) {
    (void)state;
    static const TinyModel models[] = {
        {.arch = "qwen3", .dim = 48, .head_dim = 24, .n_heads = 3, .n_kv_heads = 1, .ffn = 80},
        {.arch = "qwen3moe", .n_experts = 5, .n_used = 2, .dim = 96, .head_dim = 24, .n_heads = 4, .ffn = 72},
        {.arch = "llama", .n_experts = 3, .n_used = 2, .ffn = 80}, // Mixtral's names
    };
    char config[160];
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        Gguf *g = tiny_model(&models[i]);
        for (int block = 16; block <= 128; block *= 2)
            for (int v5 = 0; v5 < 2; v5++) {
                check_fp8_directory(g, block, v5, NULL);
                snprintf(config, sizeof config, FP8_CONFIG("[%d, %d]"), block, block);
                check_fp8_directory(g, block, v5, config);
            }
        gguf_close(g);
    }
}

// In the header of a directory's weights, replaces the first `from` behind `part` by a text of the same length.
static void change_header(const char *dir, const char *part, const char *from, const char *to) {
    char path[1200];
    Buf all = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_ok(file_read(path, &all));
    char *at = memmem(all.data, all.n, part, strlen(part));
    assert_non_null(at);
    at = memmem(at, 200, from, strlen(from));
    if (!at || strlen(from) != strlen(to)) fail_msg("%s: no %s", part, from);
    memcpy(at, to, strlen(to));
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(all.data, 1, all.n, f), all.n);
    assert_int_equal(fclose(f), 0);
    buf_free(&all);
}

// Experts whose type, shape or scales do not fit: the error names the tensor, in one line.
static void test_refused_experts(void **state) {
    (void)state;
    static const TinyModel models[] = {
        {.arch = "qwen3moe", .n_experts = 4, .n_used = 2, .dim = 64, .ffn = 32},
        {.arch = "gpt-oss", .expert_type = TYPE_MXFP4, .n_experts = 4, .n_used = 2, .dim = 64, .ffn = 32}};
    Gguf *d;
    static const struct {
        bool oss, v5;
        const char *part, *from, *to, *message; // the first text behind `part` is replaced
    } cases[] = {
        {false, false, "experts.1.up_proj.weight\"", "F8_E4M3", "F8_E5M2", "F32, F16, BF16 or F8_E4M3 of 2 dimensions"},
        {false, false, "experts.1.up_proj.weight\"", "[32,64]", "[64,32]", "shape of the layer's other experts"},
        {false, false, "experts.1.up_proj.weight_scale_inv\"", "F32", "I32", "scales of F32, F16 or BF16 expected"},
        {false, true, "experts.gate_up_proj\"", "[4,64,64]", "[8,32,64]",
         "scales for each matrix of the stack expected"},
        {false, true, "experts.gate_up_proj_scale_inv\"", "[4,4,4]", "[2,8,4]",
         "scales for each matrix of the stack expected"},
        {false, true, "experts.down_proj\"", "F8_E4M3", "F8_E5M2", "of 3 dimensions"},
        {true, false, "experts.gate_up_proj_blocks\"", "U8", "I8", "U8 of 4 dimensions, the last one 16"},
        {true, false, "experts.gate_up_proj_scales\"", "U8", "I8", "U8 of 4 dimensions, the last one 16"},
        {true, false, "experts.down_proj_scales\"", "[4,", "[2,", "experts.down_proj_scales"},
        // two names of one tensor, and numbers that are written in another way
        {false, false, "experts.1.up_proj.weight\"", "experts.1.up_proj.weight\"", "experts.0.w3.weight\"     ",
         "another one is expert 0 of this layer"},
        {false, false, "experts.1.up_proj.weight\"", "experts.1.up_proj.weight\"", "experts.01.w3.weight\"    ",
         "no part of a qwen3_moe model"},
        {false, false, "experts.1.up_proj.weight\"", "experts.1.up_proj.weight\"", "experts.+1.w3.weight\"    ",
         "no part of a qwen3_moe model"},
        {false, false, "layers.1.mlp.experts.1.up_proj.weight\"", "layers.1.mlp.experts.1.up_proj.weight\"",
         "layers.01.mlp.experts.1.w3.weight\"    ", "no part of a qwen3_moe model"},
        {true, false, "mlp.experts.gate_up_proj_bias\"", "mlp.experts.gate_up_proj_bias\"",
         "experts.down_proj_bias\"       ", "another one is blk."},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *dir = hf_made_directory("fp8");
        Gguf *g = tiny_model(&models[cases[i].oss]);
        hf_directory_write(g, dir,
                           &(HfDirectory){.fp8 = cases[i].oss ? 0 : 16, .v5 = cases[i].v5, .no_tokenizer = true});
        gguf_close(g);
        change_header(dir, cases[i].part, cases[i].from, cases[i].to);
        Status st = hf_open(dir, &d);
        if (st.code != QUILL_MODEL || strchr(st.message, '\n') || !strstr(st.message, "experts.") ||
            !strstr(st.message, cases[i].message))
            fail_msg("%s %s: code %d: %s", cases[i].part, cases[i].to, st.code, st.message);
    }
}

// Scales that do not fit their matrix, or not the block in config.json (NULL: none): one line with the file, the
// tensor, and what was expected and found. Blocks are of 16 x 16; a text in the weights' header is replaced.
static void test_refused_scales(void **state) {
    (void)state;
    static const TinyModel models[] = {{.arch = "qwen3", .dim = 48, .head_dim = 24, .n_heads = 3, .ffn = 80},
                                       {.arch = "qwen3moe", .n_experts = 4, .n_used = 2, .dim = 64, .ffn = 32}};
    static const struct {
        bool experts, v5;
        const char *block, *part, *from, *to, *message;
    } cases[] = {
        {false, false, NULL, "0.self_attn.q_proj.weight_scale_inv\"", "[5,3]", "[3,5]",
         "scales of [5, 3] expected, F32 of [3, 5] found, for weights of [72, 48]"},
        {false, false, "[16, 16]", "0.self_attn.q_proj.weight_scale_inv\"", "[5,3]", "[3,5]",
         "scales of [5, 3] (config.json's weight_block_size is [16, 16]) expected, F32 of [3, 5] found"},
        {false, true, "[16, 16]", "0.mlp.down_proj.weight_scale_inv\"", "[3,5]", "[15] ", "F32 of [15] found"},
        {false, false, "[32, 16]", "layers", "layers", "layers",
         "(config.json's weight_block_size is [32, 16]) expected, F32 of ["},
        {false, false, "[16, 16]", "0.self_attn.q_proj.weight_scale_inv", "weight_scale_inv", "activation_scale",
         "0.self_attn.q_proj.weight_scale_inv: scales of [5, 3] (config.json's"},
        {true, false, NULL, "experts.1.up_proj.weight_scale_inv\"", "[2,4]", "[4,2]",
         "scales of [2, 4] expected, F32 of [4, 2] found, for weights of [32, 64]"},
        {true, false, "[16, 16]", "experts.1.up_proj.weight_scale_inv\"", "[2,4]", "[4,2]", "F32 of [4, 2] found"},
        {true, true, NULL, "experts.down_proj_scale_inv\"", "[4,4,2]", "[4,2,4]",
         "scales of [4, 2] expected, F32 of [2, 4] found, for weights of [64, 32]"},
        {true, true, "[16, 16]", "experts.down_proj_scale_inv\"", "[4,4,2]", "[4,2,4]", "F32 of [2, 4] found"},
        {true, true, "[16, 16]", "experts.down_proj_scale_inv\"", "[4,4,2]", "[4,1,8]", "F32 of [1, 8] found"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *dir = hf_made_directory("fp8"), config[160];
        snprintf(config, sizeof config, FP8_CONFIG("%s"), cases[i].block ? cases[i].block : "null");
        Gguf *g = tiny_model(&models[cases[i].experts]), *d;
        hf_directory_write(g, dir,
                           &(HfDirectory){.fp8 = 16, .v5 = cases[i].v5, .no_tokenizer = true, .config = config});
        gguf_close(g);
        change_header(dir, cases[i].part, cases[i].from, cases[i].to);
        Status st = hf_open(dir, &d);
        if (st.code != QUILL_MODEL || strchr(st.message, '\n') || !strstr(st.message, cases[i].message) ||
            !strstr(st.message, "/model.safetensors: tensor model.layers.") || !strstr(st.message, "; download "))
            fail_msg("%s %s: code %d: %s", cases[i].part, cases[i].to, st.code, st.message);
    }
}

// One scale for each row, or one block of a matrix smaller than it.
static void test_accepted_scales(void **state) {
    (void)state;
    static const uint8_t weights[4 * 8] = {0x38, 0x38}; // two ones
    static const float two[] = {2, 3, 4, 5, 6, 7, 8, 9};
    static const struct {
        int n_dims;
        uint64_t dims[2];
        size_t block;
        int code;
    } cases[] = {{0, {0}, 0, 0},    {1, {1}, 0, 0},    {2, {1, 1}, 0, 0},        {1, {4}, 0, 0},
                 {2, {4, 1}, 0, 0}, {2, {1, 2}, 0, 0}, {2, {2, 4}, 0, 0},        {2, {1, 4}, 0, QUILL_MODEL},
                 {0, {0}, 16, 0},   {1, {1}, 16, 0},   {2, {1, 1}, 16, 0},       {2, {4, 1}, 16, QUILL_MODEL},
                 {2, {1, 2}, 4, 0}, {2, {2, 4}, 2, 0}, {1, {8}, 2, QUILL_MODEL}, {2, {2, 1}, 4, QUILL_MODEL}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        SafeTensor t = {str_of("w"), "F8_E4M3", 1, 2, {4, 8}, weights, sizeof weights, "f"};
        SafeTensor s = {str_of("s"),
                        "F32",
                        4,
                        cases[i].n_dims,
                        {cases[i].dims[0], cases[i].dims[1]},
                        (const uint8_t *)(const void *)two,
                        sizeof two,
                        "f"};
        uint16_t out[4 * 8];
        size_t n = 1;
        for (int k = 0; k < cases[i].n_dims; k++) n *= (size_t)cases[i].dims[k];
        s.n_bytes = 4 * n;
        Status st = fp8_dequantize(&t, &s, (Fp8Block){cases[i].block, cases[i].block}, out);
        if (st.code != cases[i].code) fail_msg("case %zu: code %d: %s", i, st.code, st.message);
        if (!st.code) assert_true(bf16_float(out[0]) == 2 && bf16_float(out[1]) == 2 && bf16_float(out[2]) == 0);
    }
}

// ---- refused input --------------------------------------------------------------------------------------------------

static void test_refused_directories(void **state) {
    (void)state;
    Gguf *g = tiny_model(&small), *d;
    char dir[1024], message[2048];
    snprintf(dir, sizeof dir, "%s", hf_made_directory("refused"));
    Status st = model_file_open(dir, NULL, &d);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "without config.json"));
    hf_directory_write(g, dir, &(HfDirectory){.n_shards = 2});
    assert_int_equal(model_file_open(dir, "tokenizer.bin", &d).code, QUILL_USAGE);
    static const struct {
        const char *file, *text, *message; // NULL: the file is removed
    } steps[] = {
        {"model-00002-of-00002.safetensors", NULL, "the file model-00002-of-00002.safetensors expected, it is missing"},
        {"model-00002-of-00002.safetensors", "\x02\0\0\0\0\0\0\0{}", "model-00002-of-00002.safetensors: "},
        {"model.safetensors.index.json", "{\"weight_map\": {\"x\": \"../x\"}}",
         "a file of the directory expected, found ../x"},
        {"model.safetensors.index.json", "{\"weight_map\": {}}", "weight_map"},
        {"model.safetensors.index.json", "{", "index.json: line 1"},
        {"model.safetensors.index.json", NULL, "neither is there"},
        {"tokenizer_config.json", "[]", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        snprintf(message, sizeof message, "%s/%s", dir, steps[i].file);
        if (!steps[i].text) unlink(message);
        else hf_directory_text(dir, steps[i].file, steps[i].text);
        st = hf_open(dir, &d);
        assert_int_equal(st.code, QUILL_MODEL);
        if (steps[i].message && !strstr(st.message, steps[i].message)) fail_msg("%s: %s", steps[i].file, st.message);
    }
    gguf_close(g);
}

// Tensors that are missing, have a wrong shape, or do not belong to the family.
static void test_refused_tensors(void **state) {
    (void)state;
    Gguf *g = tiny_model(&small), *d, *less;
    Model m;
    const Backend *be;
    assert_ok(isa_backend("scalar", false, &be));
    char *dir = hf_made_directory("tensors");
    less = tiny_without(g, "blk.1.ffn_up.weight");
    hf_directory_write(less, dir, NULL);
    assert_ok(hf_open(dir, &d));
    assert_int_equal(model_load(&m, d, be).code, QUILL_MODEL);
    gguf_close(d);
    gguf_close(less);
    hf_directory_write(g, dir, &(HfDirectory){.config = "{\"intermediate_size\": 64}"});
    assert_ok(hf_open(dir, &d));
    assert_int_equal(model_load(&m, d, be).code, QUILL_MODEL);
    gguf_close(d);
    hf_directory_write(g, dir, &(HfDirectory){.config = "{\"model_type\": \"gemma3_text\"}"});
    Status st = hf_open(dir, &d); // the reader accepts the names, and the model loader refuses the file
    if (!st.code) {
        assert_int_equal(model_load(&m, d, be).code, QUILL_MODEL);
        gguf_close(d);
    }
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_straight_experts),
        cmocka_unit_test(test_golden_families),
        cmocka_unit_test(test_tinystories),
        cmocka_unit_test(test_fp8_values),
        cmocka_unit_test(test_fp8_blocks),
        cmocka_unit_test(test_refused_experts),
        cmocka_unit_test(test_refused_scales),
        cmocka_unit_test(test_accepted_scales),
        cmocka_unit_test(test_refused_directories),
        cmocka_unit_test(test_refused_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
