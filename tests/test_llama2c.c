// tests/test_llama2c.c: llama2.c's three formats and its tokenizer.bin, good and hostile (group 21 of the list of
// hostile inputs). Files are made by a writer of the test's own, and compared with a GGUF of the same model where the
// outside test data is there.
#include "tests/rig/testing.h"

#include "files/llama2c.h"
#include "files/model_file.h"
#include "formats/types.h"
#include "tests/rig/tiny_model.h"

#include <sys/stat.h>
#include <unistd.h>

// ---- a writer -------------------------------------------------------------------------------------------------------

typedef struct {
    int version, dim, ffn, n_layers, n_heads, n_kv_heads, vocab, context;
    bool shared;
    int group;
} BinShape;

static const BinShape plain = {0, 8, 12, 2, 2, 1, 5, 6, true, 0};

// The writer's layout: the n-th weight of the file (f32) or of the quantised part has the value n.
typedef struct {
    Buf bytes;
    int next; // value of the next weight
    struct {
        char name[64];
        int first, n;
        bool quantised;
    } tensors[64];
    int n_tensors;
} BinFile;

static void i32(Buf *b, int32_t v) { buf_append(b, &v, 4); }
static void f32(Buf *b, float v) { buf_append(b, &v, 4); }

static void weight(BinFile *f, const BinShape *s, const char *name, int layer, int n, bool matrix) {
    int slot = f->n_tensors++, group = matrix ? s->group : 0;
    if (layer < 0) snprintf(f->tensors[slot].name, 64, "%s.weight", name);
    else snprintf(f->tensors[slot].name, 64, "blk.%d.%s.weight", layer, name);
    f->tensors[slot].first = f->next;
    f->tensors[slot].n = n;
    f->tensors[slot].quantised = group;
    for (int i = 0; i < n; i++, f->next++) {
        if (group) buf_append(&f->bytes, &(int8_t){(int8_t)(f->next % 251 - 125)}, 1);
        else f32(&f->bytes, (float)f->next);
    }
    for (int i = 0; group && i < n / group; i++) f32(&f->bytes, (float)(1 + i));
}

static void weights(BinFile *f, const BinShape *s, const char *name, int n, bool matrix) {
    for (int l = 0; l < s->n_layers; l++) weight(f, s, name, l, n, matrix);
}

static void write_header(Buf *b, const BinShape *s) {
    if (s->version) i32(b, 0x616b3432), i32(b, s->version);
    i32(b, s->dim), i32(b, s->ffn), i32(b, s->n_layers), i32(b, s->n_heads), i32(b, s->n_kv_heads);
    i32(b, s->version || s->shared ? s->vocab : -s->vocab), i32(b, s->context);
    if (!s->version) return;
    buf_append(b, &s->shared, 1);
    if (s->version == 2) i32(b, s->group);
    while (b->n < 256) buf_append(b, "", 1);
}

static BinFile write_model(const BinShape *s) {
    BinFile f = {0};
    int kv = s->dim / s->n_heads * s->n_kv_heads, d = s->dim;
    write_header(&f.bytes, s);
    if (s->version) {
        weights(&f, s, "attn_norm", d, false);
        weights(&f, s, "ffn_norm", d, false);
        weight(&f, s, "output_norm", -1, d, false);
    }
    weight(&f, s, "token_embd", -1, s->vocab * d, true);
    if (!s->version) weights(&f, s, "attn_norm", d, false);
    weights(&f, s, "attn_q", d * d, true);
    weights(&f, s, "attn_k", kv * d, true);
    weights(&f, s, "attn_v", kv * d, true);
    weights(&f, s, "attn_output", d * d, true);
    if (!s->version) weights(&f, s, "ffn_norm", d, false);
    weights(&f, s, "ffn_gate", s->ffn * d, true);
    weights(&f, s, "ffn_down", d * s->ffn, true);
    weights(&f, s, "ffn_up", s->ffn * d, true);
    if (!s->version) {
        weight(&f, s, "output_norm", -1, d, false);
        for (int i = 0; i < s->context * (d / s->n_heads / 2) * 2; i++) f32(&f.bytes, -1);
    }
    if (!s->shared) weight(&f, s, "output", -1, s->vocab * d, true);
    return f;
}

static Buf write_tokenizer(int n) {
    static const char *const pieces[] = {"<unk>", "\n<s>\n", "\n</s>\n", "<0x41>", " a b", "", "\xc3\xa9"};
    Buf b = {0};
    i32(&b, 6);
    for (int i = 0; i < n; i++) {
        f32(&b, (float)-i);
        i32(&b, (int32_t)strlen(pieces[i]));
        buf_str(&b, pieces[i]);
    }
    return b;
}

// ---- good files -----------------------------------------------------------------------------------------------------

static void check_tensor(const GgufTensor *t, int first, int n, int group) {
    assert_non_null(t);
    assert_int_equal(t->dims[0] * t->dims[1], n);
    assert_int_equal(t->type, group ? TYPE_I8G : TYPE_F32);
    assert_int_equal(t->group, group);
    for (int i = 0; i < n; i++) {
        float scale, x;
        if (!group) {
            memcpy(&x, (const char *)t->data + 4 * i, 4);
            assert_true(x == (float)(first + i));
            continue;
        }
        memcpy(&scale, (const char *)t->scales + 4 * (i / group), 4); // unaligned
        assert_int_equal(((const int8_t *)t->data)[i], (first + i) % 251 - 125);
        assert_true(scale == (float)(1 + i / group));
    }
    if (!group) assert_null(t->scales);
}

static void check_keys(const Gguf *g, const BinShape *s) {
    const struct {
        const char *key;
        int value;
    } keys[] = {
        {"llama.vocab_size", s->vocab},
        {"llama.context_length", s->context},
        {"llama.embedding_length", s->dim},
        {"llama.block_count", s->n_layers},
        {"llama.feed_forward_length", s->ffn},
        {"llama.attention.head_count", s->n_heads},
        {"llama.attention.head_count_kv", s->n_kv_heads},
        {"llama.rope.dimension_count", s->dim / s->n_heads},
    };
    Str text;
    float f;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        uint32_t v;
        assert_ok(gguf_u32(g, keys[i].key, &v, true, 0));
        assert_int_equal(v, keys[i].value);
    }
    assert_ok(gguf_str(g, "general.architecture", &text, true));
    assert_true(str_is(text, "llama"));
    assert_ok(gguf_str(g, "general.name", &text, true));
    assert_true(str_is(text, "tiny"));
    assert_ok(gguf_f32(g, "llama.attention.layer_norm_rms_epsilon", &f, true, 0));
    assert_true(f == 1e-5f);
    assert_ok(gguf_f32(g, "llama.rope.freq_base", &f, true, 0));
    assert_true(f == 10000.0f);
}

static void check_model(const BinShape *s) {
    BinFile f = write_model(s);
    Gguf *g;
    assert_ok(llama2c_open_memory("dir/tiny.bin", f.bytes.data, f.bytes.n, NULL, NULL, 0, &g));
    assert_int_equal(gguf_version(g), 0);
    assert_int_equal(gguf_n_tensors(g), f.n_tensors);
    for (int i = 0; i < f.n_tensors; i++)
        check_tensor(gguf_tensor(g, f.tensors[i].name), f.tensors[i].first, f.tensors[i].n,
                     f.tensors[i].quantised ? s->group : 0);
    const GgufTensor *down = gguf_tensor(g, "blk.1.ffn_down.weight"), *norm = gguf_tensor(g, "blk.0.ffn_norm.weight");
    assert_true(down->dims[0] == (uint64_t)s->ffn && down->dims[1] == (uint64_t)s->dim && down->n_dims == 2);
    assert_true(norm->n_dims == 1);
    assert_true((gguf_tensor(g, "output.weight") == NULL) == s->shared);
    check_keys(g, s);
    assert_null(gguf_value(g, "tokenizer.ggml.model"));
    gguf_close(g);
    buf_free(&f.bytes);
}

static void test_good(void **state) {
    (void)state;
    for (int version = 0; version <= 2; version++)
        for (int shared = 0; shared <= 1; shared++) {
            BinShape s = plain;
            s.version = version;
            s.shared = shared;
            s.group = version == 2 ? 8 : 0; // rows of ffn_down have 12 elements, so groups cross the ends of rows
            check_model(&s);
        }
    // Odd sizes: scales are not aligned to four bytes.
    check_model(&(BinShape){2, 6, 5, 3, 3, 1, 3, 4, false, 6});
    check_model(&(BinShape){2, 6, 5, 3, 3, 3, 3, 4, true, 1});
}

static void test_good_tokenizer(void **state) {
    (void)state;
    BinShape s = plain;
    s.vocab = 7;
    BinFile f = write_model(&s);
    Buf t = write_tokenizer(7);
    Gguf *g;
    assert_ok(llama2c_open_memory("tiny.bin", f.bytes.data, f.bytes.n, "tok.bin", t.data, t.n, &g));
    static const char *const expected[] = {"<unk>",
                                           "<s>",
                                           "</s>",
                                           "<0x41>",
                                           "\xe2\x96\x81"
                                           "a\xe2\x96\x81"
                                           "b",
                                           "",
                                           "\xc3\xa9"};
    static const int32_t expected_types[] = {2, 3, 3, 6, 1, 1, 1};
    Str tokens[7];
    float scores[7];
    int32_t types[7];
    const GgufValue *v = gguf_value(g, "tokenizer.ggml.tokens");
    assert_int_equal(v->n, 7);
    assert_ok(gguf_strings(g, v, tokens));
    assert_ok(gguf_floats(g, gguf_value(g, "tokenizer.ggml.scores"), scores));
    assert_ok(gguf_ints(g, gguf_value(g, "tokenizer.ggml.token_type"), types));
    for (int i = 0; i < 7; i++) {
        assert_true(str_is(tokens[i], expected[i]));
        assert_true(scores[i] == (float)-i);
        assert_int_equal(types[i], expected_types[i]);
    }
    uint32_t bos, eos;
    bool add_bos, prefix;
    assert_ok(gguf_u32(g, "tokenizer.ggml.bos_token_id", &bos, true, 0));
    assert_ok(gguf_u32(g, "tokenizer.ggml.eos_token_id", &eos, true, 0));
    assert_ok(gguf_bool(g, "tokenizer.ggml.add_bos_token", &add_bos, false));
    assert_ok(gguf_bool(g, "tokenizer.ggml.add_space_prefix", &prefix, false));
    assert_true(bos == 1 && eos == 2 && add_bos && prefix);
    gguf_close(g);
    buf_free(&t);
    buf_free(&f.bytes);
}

// ---- hostile files --------------------------------------------------------------------------------------------------

// Opens the model and the tokenizer from blocks of exactly their size, and asserts that they are refused with `part` in
// the message.
static void refused(const Buf *model, const Buf *tokenizer, const char *part) {
    Gguf *g = (Gguf *)part;
    size_t n_tokenizer = tokenizer ? tokenizer->n : 0;
    char *m = calloc(1, model->n ? model->n : 1), *t = calloc(1, n_tokenizer ? n_tokenizer : 1);
    if (model->n) memcpy(m, model->data, model->n);
    if (n_tokenizer) memcpy(t, tokenizer->data, n_tokenizer);
    const char *name = tokenizer ? "tok.bin" : NULL;
    Status st = llama2c_open_memory("bad.bin", m, model->n, name, t, n_tokenizer, &g);
    if (st.code != QUILL_MODEL) fail_msg("code 3 expected, %d found; for: %s", st.code, part);
    assert_null(g);
    if (strncmp(st.message, tokenizer ? "tok.bin: " : "bad.bin: ", 9) != 0 || !strstr(st.message, part))
        fail_msg("\"%s\" expected, \"%s\" found", part, st.message);
    free(m);
    free(t);
}

static void test_21_truncated(void **state) {
    (void)state;
    for (int version = 0; version <= 2; version++) {
        BinShape s = plain;
        s.version = version;
        s.group = version == 2 ? 8 : 0;
        BinFile f = write_model(&s);
        for (size_t n = 0; n < f.bytes.n; n++) refused(&(Buf){f.bytes.data, n, 0}, NULL, "expected");
        buf_append(&f.bytes, "x", 1);
        refused(&f.bytes, NULL, "bytes expected by the llama2.c header");
        buf_free(&f.bytes);
    }
}

static void test_21_header(void **state) {
    (void)state;
    static const int32_t bad[] = {0, -1, INT32_MIN, INT32_MAX};
    static const char *const names[] = {"dim",        "hidden_dim", "n_layers", "n_heads",
                                        "n_kv_heads", "vocab_size", "seq_len"};
    for (int version = 0; version <= 2; version++) {
        BinShape s = plain;
        s.version = version;
        s.group = version == 2 ? 8 : 0;
        BinFile f = write_model(&s);
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
            for (size_t j = 0; j < ARRAY_LEN(bad); j++) {
                // with a vocabulary of one token the wrong size cannot be noticed
                if (version == 0 && i == 5 && bad[j] == -1) continue;
                char *field = f.bytes.data + (version ? 8 : 0) + 4 * i;
                int32_t was;
                memcpy(&was, field, 4);
                memcpy(field, &bad[j], 4);
                refused(&f.bytes, NULL, names[i]);
                memcpy(field, &was, 4);
            }
        }
        buf_free(&f.bytes);
    }
}

static void header_refused(const BinShape *s, const char *part) {
    Buf b = {0};
    write_header(&b, s);
    for (int i = 0; i < 64; i++) f32(&b, 0);
    refused(&b, NULL, part);
    buf_free(&b);
}

static void test_21_shapes(void **state) {
    (void)state;
    header_refused(&(BinShape){0, 8, 12, 2, 3, 1, 5, 6, true, 0},
                   "n_heads that divides dim 8 into even head sizes expected, 3");
    header_refused(&(BinShape){0, 8, 12, 2, 8, 1, 5, 6, true, 0},
                   "n_heads that divides dim 8 into even head sizes expected, 8");
    header_refused(&(BinShape){0, 8, 12, 2, 4, 3, 5, 6, true, 0}, "n_kv_heads that divides n_heads 4 expected, 3");
    header_refused(&(BinShape){1, 1 << 20, 1 << 20, 1 << 10, 2, 1, 1 << 22, 6, true, 0},
                   "bytes expected by the llama2.c");
    header_refused(&(BinShape){3, 8, 12, 2, 2, 1, 5, 6, true, 0}, "llama2.c version 1 or 2 expected, 3 found");
    header_refused(&(BinShape){-1, 8, 12, 2, 2, 1, 5, 6, true, 0}, "llama2.c version 1 or 2 expected, -1 found");
    header_refused(&(BinShape){2, 8, 12, 2, 2, 1, 5, 6, true, 0}, "group size of at least 1 expected, 0 found");
    header_refused(&(BinShape){2, 8, 12, 2, 2, 1, 5, 6, true, -64}, "group size of at least 1 expected, -64 found");
    header_refused(&(BinShape){2, 8, 12, 2, 2, 1, 5, 6, true, 7}, "group size that divides every weight expected");
    header_refused(&(BinShape){2, 8, 12, 2, 2, 1, 5, 6, true, INT32_MAX}, "group size that divides every weight");
    BinShape s = plain;
    s.version = 1;
    Buf b = {0};
    write_header(&b, &s);
    b.data[36] = 2;
    refused(&b, NULL, "byte 36: shared classifier 0 or 1 expected, 2 found");
    buf_free(&b);
}

static void test_21_tokenizer(void **state) {
    (void)state;
    BinShape s = plain;
    s.vocab = 7;
    BinFile f = write_model(&s);
    Buf t = write_tokenizer(7);
    for (size_t n = 0; n < t.n; n++) refused(&f.bytes, &(Buf){t.data, n, 0}, "expected");
    static const int32_t lengths[] = {-1, INT32_MIN, INT32_MAX, 1 << 24, 1000};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        memcpy(t.data + 8, &lengths[i], 4); // the length of token 0
        refused(&f.bytes, &t, "byte 8: token 0: length 0 to ");
    }
    buf_free(&t);
    t = write_tokenizer(6);
    refused(&f.bytes, &t, "token 6 of 7 expected, found the end of the file");
    buf_free(&t);
    t = write_tokenizer(7);
    buf_append(&t, "x", 1);
    refused(&f.bytes, &t, "the end after 7 tokens expected, 1 more bytes found");
    t.n--;
    memcpy(t.data + 4, "\0\0\xc0\x7f", 4);
    refused(&f.bytes, &t, "token 0: a score expected, NaN found");
    memcpy(t.data + 4, "\0\0\0", 4);
    memcpy(t.data, "\xff\xff\xff\x7f", 4); // the length of the longest piece: wrong, but not used
    Gguf *g;
    assert_ok(llama2c_open_memory("tiny.bin", f.bytes.data, f.bytes.n, "tok.bin", t.data, t.n, &g));
    gguf_close(g);
    buf_free(&t);
    buf_free(&f.bytes);
}

// ---- files ----------------------------------------------------------------------------------------------------------

static void write_file(const char *path, const void *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void test_open_files(void **state) {
    (void)state;
    char dir[1024], model[1100], tokenizer[1100];
    snprintf(dir, sizeof dir, "%s", test_tmp("quill_test_llama2c"));
    mkdir(dir, 0777);
    snprintf(model, sizeof model, "%s/tiny.bin", dir);
    snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer.bin", dir);
    unlink(tokenizer);
    BinFile f = write_model(&plain);
    Buf t = write_tokenizer(5);
    write_file(model, f.bytes.data, f.bytes.n);
    Gguf *g;
    assert_ok(model_file_open(model, NULL, &g)); // without tokenizer.bin there is no vocabulary
    check_keys(g, &plain);
    assert_null(gguf_value(g, "tokenizer.ggml.tokens"));
    assert_int_equal(gguf_file_bytes(g), f.bytes.n);
    gguf_close(g);
    write_file(tokenizer, t.data, t.n);
    assert_ok(model_file_open(model, NULL, &g)); // tokenizer.bin is found next to the model
    assert_non_null(gguf_value(g, "tokenizer.ggml.tokens"));
    gguf_close(g);
    write_file(tokenizer, "", 0);
    Status st = llama2c_open(model, tokenizer, &g);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "tokenizer.bin: 5 tokens in at least 44 bytes expected, 0 bytes found"));
    unlink(tokenizer);
    st = llama2c_open(model, tokenizer, &g);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "tokenizer.bin: cannot open"));
    unlink(model);
    rmdir(dir);
    buf_free(&t);
    buf_free(&f.bytes);
}

#define TEXT(s) s, sizeof s - 1

static void test_other_formats(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *part;
    } files[] = {
        {TEXT(""), "an empty file"},
        {TEXT("version https://git-lfs.github.com/spec/v1\noid sha256:1"), "a Git LFS pointer"},
        {TEXT("PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), "a zip archive"},
        {TEXT("\x80\x02}q\0(X\x10\0\0\0model.diffusion_model."), "a Python pickle"},
        {TEXT("\x40\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}}"), "a safetensors file"},
        {TEXT("<!DOCTYPE html><html><head><title>404</title>"), "HTML"},
        {TEXT("lmgg.............................."), "an old GGML file"},
        {TEXT("what is this? certainly not a model"), "found neither (35 bytes)"},
        {TEXT("short"), "found neither (5 bytes)"},
        {TEXT("GGU"), "found neither (3 bytes)"},
        {TEXT("GGUF"), "byte 4: version: 4 bytes expected, the file ends after 0"},
    };
    char path[1100];
    snprintf(path, sizeof path, "%s", test_tmp("quill_test_other"));
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        Gguf *g;
        write_file(path, files[i].bytes, files[i].n);
        Status st = model_file_open(path, NULL, &g);
        assert_int_equal(st.code, QUILL_MODEL);
        assert_null(g);
        if (!strstr(st.message, files[i].part) || !strstr(st.message, path))
            fail_msg("\"%s\" expected, \"%s\" found", files[i].part, st.message);
    }
    Gguf *g;
    assert_ok(tiny_model_file(&(TinyModel){0}, path));
    Status st = model_file_open(path, "tokenizer.bin", &g);
    assert_int_equal(st.code, QUILL_USAGE);
    assert_ok(model_file_open(path, NULL, &g));
    gguf_close(g);
    unlink(path);
    st = model_file_open(path, "tokenizer.bin", &g); // a missing file, not a usage error
    assert_int_equal(st.code, QUILL_MODEL);
}

// ---- the same model as GGUF -----------------------------------------------------------------------------------------

static void same_tensors(const Gguf *bin, const Gguf *gguf) {
    for (int i = 0; i < gguf_n_tensors(bin); i++) {
        const GgufTensor *a = gguf_tensor_at(bin, i);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)a->name.n, a->name.data);
        const GgufTensor *b = gguf_tensor(gguf, name);
        assert_non_null(b);
        assert_int_equal(a->type, b->type);
        assert_memory_equal(a->dims, b->dims, sizeof a->dims);
        assert_int_equal(a->n_bytes, b->n_bytes);
        assert_memory_equal(a->data, b->data, a->n_bytes);
    }
}

static void same_vocabulary(const Gguf *bin, const Gguf *gguf) {
    enum { N = 512 };
    Str tokens[2][N];
    float scores[2][N];
    int32_t types[2][N];
    for (int i = 0; i < 2; i++) {
        const Gguf *g = i ? gguf : bin;
        const GgufValue *v = gguf_value(g, "tokenizer.ggml.tokens");
        assert_int_equal(v->n, N);
        assert_ok(gguf_strings(g, v, tokens[i]));
        assert_ok(gguf_floats(g, gguf_value(g, "tokenizer.ggml.scores"), scores[i]));
        assert_ok(gguf_ints(g, gguf_value(g, "tokenizer.ggml.token_type"), types[i]));
    }
    for (int i = 0; i < N; i++) {
        assert_true(str_eq(tokens[0][i], tokens[1][i]));
        assert_true(scores[0][i] == scores[1][i]);
        assert_int_equal(types[0][i], types[1][i]);
    }
}

static void test_same_as_gguf(void **state) {
    (void)state;
    Gguf *gguf, *bin;
    assert_ok(model_file_open(test_data("models/stories260K.gguf"), NULL, &gguf));
    static const char *const files[] = {"models/stories260K.bin", "models/stories260K_v1.bin"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        assert_ok(model_file_open(test_data(files[i]), test_data("models/tok512.bin"), &bin));
        assert_int_equal(gguf_n_tensors(bin), 47); // the GGUF also stores the shared output matrix
        same_tensors(bin, gguf);
        same_vocabulary(bin, gguf);
        gguf_close(bin);
    }
    gguf_close(gguf);
}

static void test_real_files(void **state) {
    (void)state;
    static const char *const files[][2] = {
        {"models/poem_model.bin", "models/poem_tok.bin"},
        {"models/TinyStories-656K.llama2c.bin", "models/TinyStories-656K.tok.bin"},
    };
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        Gguf *g;
        assert_ok(model_file_open(test_data(files[i][0]), test_data(files[i][1]), &g));
        assert_int_equal(gguf_value(g, "tokenizer.ggml.tokens")->n, 2048);
        gguf_close(g);
        Status st = model_file_open(test_data(files[i][0]), test_data("models/tok512.bin"), &g);
        assert_int_equal(st.code, QUILL_MODEL);
        assert_non_null(strstr(st.message, "does it belong to this model?"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),       cmocka_unit_test(test_good_tokenizer), cmocka_unit_test(test_21_truncated),
        cmocka_unit_test(test_21_header),  cmocka_unit_test(test_21_shapes),      cmocka_unit_test(test_21_tokenizer),
        cmocka_unit_test(test_open_files), cmocka_unit_test(test_other_formats),  cmocka_unit_test(test_same_as_gguf),
        cmocka_unit_test(test_real_files),
    };
    return cmocka_run_group_tests_name("llama2c", tests, NULL, NULL);
}
