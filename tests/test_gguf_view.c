// tests/test_gguf_view.c: valid GGUF files: read, built in memory, saved and read again; typed values; split files;
// size.
#define _GNU_SOURCE // tests/rig/directory.h
#include "tests/rig/testing.h"

#include "files/gguf.h"
#include "formats/types.h"
#include "tests/rig/directory.h"
#include "tests/rig/gguf_bytes.h"
#include "tests/rig/tiny_model.h"

#include <unistd.h>

// ---- good files -----------------------------------------------------------------------------------------------------

static void check_good(const Gguf *g) {
    uint32_t n;
    Str s, list[3];
    assert_ok(gguf_u32(g, "n", &n, true, 0));
    assert_int_equal(n, 7);
    assert_ok(gguf_str(g, "s", &s, true));
    assert_true(str_is(s, "text"));
    const GgufValue *v = gguf_value(g, "list");
    assert_int_equal(v->n, 3);
    assert_ok(gguf_strings(g, v, list));
    assert_true(str_is(list[0], "one") && str_is(list[1], "") && str_is(list[2], "three"));
    assert_int_equal(gguf_n_tensors(g), 2);
    const GgufTensor *a = gguf_tensor(g, "a"), *b = gguf_tensor(g, "b");
    assert_int_equal(a->n_dims, 1);
    assert_int_equal(a->dims[1], 1);
    assert_int_equal(a->n_bytes, 32);
    for (int i = 0; i < 32; i++) assert_int_equal(((const uint8_t *)a->data)[i], i);
    assert_int_equal(b->type, TYPE_Q8_0);
    assert_int_equal(b->dims[0] * 1000 + b->dims[1], 64002);
    assert_int_equal(b->n_bytes, 136);
    assert_null(gguf_tensor(g, "c"));
    assert_null(gguf_value(g, "c"));
}

static void test_versions_and_save(void **state) {
    (void)state;
    char path[1100];
    snprintf(path, sizeof path, "%s", test_tmp("quill_test_saved.gguf"));
    for (uint32_t version = 2; version <= 3; version++) {
        Buf b = gguf_bytes_good_file(version);
        Gguf *g, *again;
        assert_ok(gguf_open_memory("good.gguf", b.data, b.n, &g));
        assert_int_equal(gguf_version(g), version);
        assert_int_equal(gguf_file_bytes(g), b.n);
        check_good(g);
        gguf_set_u32(g, "general.alignment", 64); // the keys of alignment and splitting are not copied
        gguf_set_u32(g, "split.count", 3);
        assert_ok(gguf_save(g, path));
        assert_ok(gguf_open(path, &again));
        check_good(again);
        assert_int_equal(gguf_version(again), 3);
        assert_int_equal(gguf_n_values(again), 3);
        gguf_close(again);
        gguf_close(g);
        buf_free(&b);
    }
    unlink(path);
}

static void test_save_errors(void **state) {
    (void)state;
    Gguf *g = gguf_new("memory");
    Status st = gguf_save(g, test_tmp("no_such_folder/x.gguf"));
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, "no_such_folder/x.gguf: cannot create"));
    static const char data[64];
    gguf_add_tensor(g, "w", TYPE_I8G, 8, 4, data, (const void *)(data + 33), 8);
    st = gguf_save(g, test_tmp("quill_test_i8g.gguf"));
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "tensor w"));
    assert_int_equal(count_entries(test_tmp(""), "quill_test_i8g.gguf"), 0);
    gguf_close(g);
}

static void test_builders(void **state) {
    (void)state;
    Gguf *g = gguf_new("memory"), *again;
    gguf_set_u32(g, "u", 1);
    gguf_set_u32(g, "u", 2); // replaces the value
    gguf_set_f32(g, "f", 0.5f);
    gguf_set_bool(g, "b", true);
    gguf_set_str(g, "s", "");
    gguf_set_floats(g, "floats", (float[]){1, 2.5f}, 2);
    gguf_set_ints(g, "ints", (int32_t[]){-1, 5, 6}, 3);
    gguf_set_strings(g, "none", NULL, 0);
    float *pages = pages_alloc(4096, false);
    for (int i = 0; i < 6; i++) pages[i] = (float)i;
    gguf_own_pages(g, pages, 4096);
    gguf_add_tensor(g, "m", TYPE_F32, 3, 2, pages, NULL, 0);
    gguf_add_tensor(g, "v", TYPE_F32, 3, 0, pages, NULL, 0);
    assert_int_equal(gguf_version(g), 0);
    const char *path = test_tmp("quill_test_built.gguf");
    assert_ok(gguf_save(g, path));
    gguf_close(g);
    assert_ok(gguf_open(path, &again));
    uint32_t u;
    float f, floats[2];
    int32_t ints[3];
    bool b;
    Str s;
    assert_ok(gguf_u32(again, "u", &u, true, 0));
    assert_ok(gguf_f32(again, "f", &f, true, 0));
    assert_ok(gguf_bool(again, "b", &b, false));
    assert_ok(gguf_str(again, "s", &s, true));
    assert_ok(gguf_floats(again, gguf_value(again, "floats"), floats));
    assert_ok(gguf_ints(again, gguf_value(again, "ints"), ints));
    assert_true(u == 2 && f == 0.5f && b && s.n == 0 && s.data && floats[1] == 2.5f && ints[0] == -1 && ints[2] == 6);
    assert_int_equal(gguf_value(again, "none")->n, 0);
    assert_int_equal(gguf_tensor(again, "m")->n_dims, 2);
    assert_int_equal(gguf_tensor(again, "v")->n_dims, 1);
    assert_memory_equal(gguf_tensor(again, "m")->data, ((float[]){0, 1, 2, 3, 4, 5}), 24);
    gguf_close(again);
    unlink(path);
}

static void expect_error(Status st, const char *message) {
    assert_int_equal(st.code, QUILL_MODEL);
    assert_string_equal(st.message, message);
}

static void test_getters(void **state) {
    (void)state;
    Gguf *g = gguf_new("m.gguf");
    uint32_t u;
    float f;
    bool b;
    Str s;
    gguf_set_f32(g, "f", 2);
    gguf_set_str(g, "s", "x");
    gguf_set_ints(g, "list", (int32_t[]){1}, 1);
    gguf_set(g, &(GgufValue){str_of("i8"), GGUF_I8, GGUF_I8, 1, (const uint8_t *)"\xff", 1});
    gguf_set(g, &(GgufValue){str_of("u16"), GGUF_U16, GGUF_U16, 1, (const uint8_t *)"\x01\x02", 2});
    gguf_set(g, &(GgufValue){str_of("u64"), GGUF_U64, GGUF_U64, 1, (const uint8_t *)"\0\0\0\0\x01\0\0\0", 8});
    gguf_set(g, &(GgufValue){str_of("i64"), GGUF_I64, GGUF_I64, 1, (const uint8_t *)"\0\0\0\0\0\0\0\x80", 8});
    gguf_set(g, &(GgufValue){str_of("f64"), GGUF_F64, GGUF_F64, 1, (const uint8_t *)&(double){1e300}, 8});
    gguf_set(g, &(GgufValue){str_of("bool"), GGUF_BOOL, GGUF_BOOL, 1, (const uint8_t *)"\x02", 1});
    assert_ok(gguf_u32(g, "u16", &u, true, 0));
    assert_int_equal(u, 0x201);
    assert_ok(gguf_u32(g, "absent", &u, false, 9));
    assert_int_equal(u, 9);
    assert_ok(gguf_f32(g, "f64", &f, true, 0)); // out of the range of f32: infinity, which the model loader refuses
    assert_true(f > 3.4e38f);
    assert_ok(gguf_str(g, "absent", &s, false));
    assert_null(s.data);
    expect_error(gguf_u32(g, "absent", &u, true, 0), "m.gguf: key absent: an integer expected, none found");
    expect_error(gguf_u32(g, "i8", &u, true, 0), "m.gguf: key i8: 0 to 4294967295 expected, -1 found");
    expect_error(gguf_u32(g, "u64", &u, true, 0), "m.gguf: key u64: 0 to 4294967295 expected, 4294967296 found");
    expect_error(gguf_u32(g, "i64", &u, true, 0),
                 "m.gguf: key i64: 0 to 4294967295 expected, -9223372036854775808 found");
    expect_error(gguf_u32(g, "f", &u, false, 0), "m.gguf: key f: an integer expected, F32 found");
    expect_error(gguf_u32(g, "list", &u, false, 0), "m.gguf: key list: an integer expected, array of I32 found");
    expect_error(gguf_f32(g, "u16", &f, false, 0), "m.gguf: key u16: F32 or F64 expected, U16 found");
    expect_error(gguf_bool(g, "bool", &b, false), "m.gguf: key bool: 0 or 1 expected, 2 found");
    expect_error(gguf_bool(g, "s", &b, false), "m.gguf: key s: BOOL expected, STRING found");
    expect_error(gguf_str(g, "f", &s, false), "m.gguf: key f: STRING expected, F32 found");
    expect_error(gguf_strings(g, gguf_value(g, "list"), &s),
                 "m.gguf: key list: array of STRING expected, array of I32 found");
    expect_error(gguf_floats(g, gguf_value(g, "list"), &f),
                 "m.gguf: key list: array of F32 expected, array of I32 found");
    expect_error(gguf_ints(g, gguf_value(g, "f"), NULL), "m.gguf: key f: array of I32 or U32 expected, F32 found");
    gguf_close(g);
}

// ---- split files ----------------------------------------------------------------------------------------------------

static void write_file(const char *path, const Buf *b) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->n, f), b->n);
    assert_int_equal(fclose(f), 0);
}

static const char *part_path(int no, int count) {
    char name[64];
    snprintf(name, sizeof name, "quill_test-%05d-of-%05d.gguf", no, count);
    return test_tmp(name);
}

// Writes one part with one tensor of eight floats of value `no`.
static void write_part(int no, int said_no, int said_count, const char *tensor_name, int n_tensors) {
    Buf b = {0};
    gguf_bytes_header(&b, 3, 1, 3);
    gguf_bytes_key(&b, "split.no", GGUF_U16);
    buf_append(&b, &(uint16_t){(uint16_t)said_no}, 2);
    gguf_bytes_key(&b, "split.count", GGUF_U16);
    buf_append(&b, &(uint16_t){(uint16_t)said_count}, 2);
    gguf_bytes_key(&b, "split.tensors.count", GGUF_I32);
    gguf_bytes_u32(&b, (uint32_t)n_tensors);
    gguf_bytes_vector(&b, tensor_name, 8, 0);
    gguf_bytes_pad(&b, 32);
    for (int i = 0; i < 8; i++) buf_append(&b, &(float){(float)no}, 4);
    write_file(part_path(no, 3), &b);
    buf_free(&b);
}

static void write_good_parts(void) {
    write_part(1, 0, 3, "a", 3);
    write_part(2, 1, 3, "b", 3);
    write_part(3, 2, 3, "c", 3);
}

static void refused_split(int given, const char *part) {
    Gguf *g;
    Status st = gguf_open(part_path(given, 3), &g);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_null(g);
    if (!strstr(st.message, part)) fail_msg("\"%s\" expected, \"%s\" found", part, st.message);
}

static void test_splits(void **state) {
    (void)state;
    for (int given = 1; given <= 3; given++) {
        Gguf *g;
        write_good_parts();
        assert_ok(gguf_open(part_path(given, 3), &g));
        assert_int_equal(gguf_n_tensors(g), 3);
        for (int i = 0; i < 3; i++)
            assert_true(*(const float *)gguf_tensor(g, (char[2]){(char)('a' + i), 0})->data == (float)(i + 1));
        assert_string_equal(gguf_name(g), part_path(given, 3));
        gguf_close(g);
    }
    write_part(2, 1, 3, "a", 3);
    refused_split(1, "-00002-of-00003.gguf: tensor a: each tensor once expected");
    write_part(2, 1, 4, "b", 3);
    refused_split(1, "-00002-of-00003.gguf: key split.count: 3 expected by the file's name, 4 found");
    write_part(2, 2, 3, "b", 3);
    refused_split(3, "-00002-of-00003.gguf: key split.no: 1 expected by the file's name, 2 found");
    write_good_parts();
    write_part(1, 0, 3, "a", 4);
    refused_split(1, "key split.tensors.count: 4 tensors expected, 3 found in 3 parts");
    write_good_parts();
    unlink(part_path(3, 3));
    refused_split(1, "-00003-of-00003.gguf: cannot open: No such file or directory (part 3 of 3");
    write_good_parts();
    unlink(part_path(1, 3));
    refused_split(2, "-00001-of-00003.gguf: cannot open: No such file or directory (part 1 of 3");
    char alone[1100]; // a part under a name without its number
    snprintf(alone, sizeof alone, "%s", test_tmp("quill_test_alone.gguf"));
    assert_int_equal(rename(part_path(2, 3), alone), 0);
    Gguf *g;
    Status st = gguf_open(alone, &g);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "part 2 of 3 of a split model found"));
    unlink(alone);
    unlink(part_path(3, 3));
}

static void test_missing_file(void **state) {
    (void)state;
    Gguf *g;
    Status st = gguf_open("/no/such/model.gguf", &g);
    expect_error(st, "/no/such/model.gguf: cannot open: No such file or directory");
}

// ---- size -----------------------------------------------------------------------------------------------------------

static void test_many_keys(void **state) {
    (void)state;
    enum { N = 100000 };
    Buf b = {0};
    gguf_bytes_header(&b, 3, N, N);
    char name[32];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "key.%d", i);
        gguf_bytes_key_u32(&b, name, (uint32_t)i);
    }
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "tensor.%d", i);
        gguf_bytes_vector(&b, name, 8, (uint64_t)(N - 1 - i) * 32); // decreasing offsets
    }
    gguf_bytes_pad(&b, 32);
    gguf_bytes_zeros(&b, (size_t)N * 32);
    Gguf *g;
    double start = clock_now();
    assert_ok(gguf_open_memory("many.gguf", b.data, b.n, &g));
    double seconds = clock_now() - start;
    print_message("%d keys and %d tensors: %.1f ms\n", N, N, seconds * 1e3);
    assert_true(seconds < 2); // about 30 ms; a quadratic search would take minutes
    uint32_t v;
    assert_ok(gguf_u32(g, "key.77777", &v, true, 0));
    assert_int_equal(v, 77777);
    gguf_close(g);
    buf_free(&b);
}

static void test_real_files(void **state) {
    (void)state;
    static const char *const files[] = {"tokenizers/ggml-vocab-qwen2.gguf", "tokenizers/ggml-vocab-llama-bpe.gguf",
                                        "tokenizers/ggml-vocab-llama-spm.gguf", "models/stories260K.gguf",
                                        "models/TinyStories-656K.Q4_0.gguf"};
    static const int tokens[] = {151646, 128256, 32000, 512, 2048};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        Gguf *g;
        double start = clock_now();
        assert_ok(gguf_open(test_data(files[i]), &g));
        print_message("%s: %.2f ms\n", files[i], (clock_now() - start) * 1e3);
        assert_int_equal(gguf_value(g, "tokenizer.ggml.tokens")->n, tokens[i]);
        gguf_close(g);
    }
}

// Every weight type, with the tiny models of other tests: saved and read again, the bytes must be the same.
static void test_tiny_models(void **state) {
    (void)state;
    const char *path = test_tmp("quill_test_tiny.gguf");
    for (size_t i = 0; i < TINY_TYPES; i++) {
        if (tiny_types[i] == TYPE_I8G) continue; // no GGUF file has it
        TinyModel shape = {.arch = i % 2 ? "qwen2" : "llama",
                           .type = tiny_types[i],
                           .dim = 256,
                           .ffn = 512,
                           .chat_template = "chatml"};
        Gguf *g = tiny_model(&shape), *again;
        assert_ok(gguf_save(g, path));
        assert_ok(gguf_open(path, &again));
        assert_int_equal(gguf_n_tensors(g), gguf_n_tensors(again));
        assert_int_equal(gguf_n_values(g), gguf_n_values(again));
        const TypeInfo *info = type_info(tiny_types[i]);
        double square = 0;
        for (int t = 0; t < gguf_n_tensors(g); t++) {
            const GgufTensor *a = gguf_tensor_at(g, t), *b = gguf_tensor_at(again, t);
            assert_int_equal(a->n_bytes, b->n_bytes);
            assert_memory_equal(a->data, b->data, a->n_bytes);
        }
        float row[256];
        const GgufTensor *q = gguf_tensor(again, "blk.1.attn_q.weight");
        info->dequantize(q->data, row, 256);
        for (int j = 0; j < 256; j++) square += (double)row[j] * (double)row[j];
        assert_true(square > 0.7 && square < 1.4); // the sum of 256 squares with variance 1 / 256
        gguf_close(g);
        gguf_close(again);
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions_and_save),
        cmocka_unit_test(test_save_errors),
        cmocka_unit_test(test_builders),
        cmocka_unit_test(test_getters),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_missing_file),
        cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_real_files),
        cmocka_unit_test(test_tiny_models),
    };
    return cmocka_run_group_tests_name("gguf_view", tests, NULL, NULL);
}
