// tests/test_gguf.c: hostile and good GGUF files, byte by byte. The numbers in test names are the groups of the list of
// hostile inputs (docs, security.md): 1 to 12 are the parser's; hyper-parameters are the model loader's.
#define _GNU_SOURCE // directory.h
#include "tests/rig/testing.h"

#include "files/gguf.h"
#include "formats/types.h"
#include "tests/rig/directory.h"
#include "tests/rig/tiny_model.h"

#include <unistd.h>

// ---- a raw writer, knowing nothing of the code under test -----------------------------------------------------------

static void u32(Buf *b, uint32_t v) { buf_append(b, &v, 4); }
static void u64(Buf *b, uint64_t v) { buf_append(b, &v, 8); }

static void str(Buf *b, const char *s) {
    u64(b, strlen(s));
    buf_str(b, s);
}

static void header(Buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys) {
    buf_str(b, "GGUF");
    u32(b, version);
    u64(b, n_tensors);
    u64(b, n_keys);
}

static void key(Buf *b, const char *name, uint32_t type) {
    str(b, name);
    u32(b, type);
}

static void key_u32(Buf *b, const char *name, uint32_t v) {
    key(b, name, GGUF_U32);
    u32(b, v);
}

static void tensor(Buf *b, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset) {
    str(b, name);
    u32(b, n_dims);
    for (uint32_t d = 0; d < n_dims && d < 8; d++) u64(b, dims[d]);
    u32(b, type);
    u64(b, offset);
}

static void vector(Buf *b, const char *name, uint64_t n, uint64_t offset) { // F32
    tensor(b, name, 1, &n, TYPE_F32, offset);
}

static void zeros(Buf *b, size_t n) {
    for (size_t i = 0; i < n; i++) buf_append(b, "", 1);
}

static void pad(Buf *b, size_t alignment) { zeros(b, round_up(b->n, alignment) - b->n); }

// Two tensors (a: 8 x F32 at 0, b: 64 x 2 of Q8_0 at 32), an integer, a string, an array of strings.
static Buf good_file(uint32_t version) {
    Buf b = {0};
    header(&b, version, 2, 3);
    key_u32(&b, "n", 7);
    key(&b, "s", GGUF_STR);
    str(&b, "text");
    key(&b, "list", GGUF_ARRAY);
    u32(&b, GGUF_STR);
    u64(&b, 3);
    str(&b, "one");
    str(&b, "");
    str(&b, "three");
    vector(&b, "a", 8, 0);
    tensor(&b, "b", 2, (uint64_t[]){64, 2}, TYPE_Q8_0, 32);
    pad(&b, 32);
    for (int i = 0; i < 32; i++) buf_append(&b, &(char){(char)i}, 1);
    zeros(&b, 4 * 34);
    return b;
}

// The bytes in a block of exactly their size, so that a sanitizer sees a read past them.
static Status open_exact(const void *bytes, size_t n, Gguf **out, void **block) {
    *block = malloc(n ? n : 1);
    assert_non_null(*block);
    if (n) memcpy(*block, bytes, n);
    return gguf_open_memory("bad.gguf", *block, n, out);
}

// Refused with the file's name, a place, and `part` in the message; frees b.
static void refused(Buf *b, const char *part) {
    Gguf *g = (Gguf *)b;
    void *block;
    Status st = open_exact(b->data, b->n, &g, &block);
    if (st.code != QUILL_MODEL) fail_msg("code 3 expected, %d found; for: %s", st.code, part);
    assert_null(g);
    if (strncmp(st.message, "bad.gguf: byte ", 15) != 0 || !strstr(st.message, part) || strchr(st.message, '\n'))
        fail_msg("\"bad.gguf: byte ...%s...\" expected, \"%s\" found", part, st.message);
    free(block);
    buf_free(b);
}

// ---- 1, 2: truncation, magic, version -------------------------------------------------------------------------------

static void test_1_truncated(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        Buf good = good_file(version);
        for (size_t n = 0; n < good.n; n++) {
            Buf cut = {0};
            buf_append(&cut, good.data, n);
            refused(&cut, n ? "expected" : "empty file");
        }
        Gguf *g;
        assert_ok(gguf_open_memory("good.gguf", good.data, good.n, &g));
        gguf_close(g);
        buf_free(&good);
    }
}

static void test_2_magic_version(void **state) {
    (void)state;
    static const struct {
        uint32_t version;
        const char *part;
    } versions[] = {{0, "version 0"},
                    {1, "version 1 found"},
                    {4, "version 4 found"},
                    {99, "version 99 found"},
                    {0x03000000, "big-endian"},
                    {0x02000000, "big-endian"},
                    {UINT32_MAX, "version 4294967295"}};
    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        Buf b = good_file(versions[i].version);
        refused(&b, versions[i].part);
    }
    Buf b = good_file(3);
    b.data[0] = 'g';
    refused(&b, "67 47 55 46 found");
}

// ---- 3, 4: counts and lengths ---------------------------------------------------------------------------------------

static void test_3_counts(void **state) {
    (void)state;
    static const uint64_t counts[] = {0x7fffffff, 0xffffffff,          1ull << 32, 1ull << 63,
                                      UINT64_MAX, UINT64_MAX / 14 + 2, 5};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        Buf b = {0};
        header(&b, 3, counts[i], 0);
        zeros(&b, 64);
        refused(&b, "tensors found");
        header(&b, 3, 0, counts[i]);
        zeros(&b, 64);
        refused(&b, "keys found");
    }
}

static void test_4_lengths(void **state) {
    (void)state;
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, 1ull << 63, 0x80000000u, 65536, 65535, 200};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        Buf b = {0};
        header(&b, 3, 0, 1);
        u64(&b, lengths[i]);
        zeros(&b, 64);
        refused(&b, "key");
        header(&b, 3, 0, 1);
        key(&b, "name", GGUF_STR);
        u64(&b, lengths[i]);
        zeros(&b, 64);
        refused(&b, "key name: string of at most 64 bytes expected, length ");
        header(&b, 3, 0, 1);
        key(&b, "names", GGUF_ARRAY);
        u32(&b, GGUF_STR);
        u64(&b, 2);
        str(&b, "first");
        u64(&b, lengths[i]);
        zeros(&b, 64);
        refused(&b, "key names: string of at most 64 bytes");
    }
    Buf b = {0};
    header(&b, 3, 0, 1);
    key_u32(&b, "", 1);
    refused(&b, "length 0 found");
    header(&b, 3, 0, 1);
    key_u32(&b, "a\nb", 1);
    refused(&b, "control byte 10");
    header(&b, 3, 0, 1);
    u64(&b, 3);
    buf_append(&b, "a\0b", 3);
    u32(&b, GGUF_U32);
    u32(&b, 1);
    refused(&b, "control byte 0");
}

// A string of 16 MiB is read, one byte more is not, whatever the file has.
static void test_4_string_cap(void **state) {
    (void)state;
    size_t cap = 16 << 20;
    char *text = malloc(cap + 1);
    memset(text, 'x', cap + 1);
    for (size_t n = cap; n <= cap + 1; n++) {
        Buf b = {0};
        header(&b, 3, 0, 1);
        key(&b, "long", GGUF_STR);
        u64(&b, n);
        buf_append(&b, text, n);
        Gguf *g;
        Status st = gguf_open_memory("long.gguf", b.data, b.n, &g);
        assert_int_equal(st.code, n == cap ? QUILL_OK : QUILL_MODEL);
        gguf_close(g);
        buf_free(&b);
    }
    free(text);
}

// ---- 5, 6: arrays, names --------------------------------------------------------------------------------------------

static void array(Buf *b, uint32_t elem_type, uint64_t n) {
    header(b, 3, 0, 1);
    key(b, "list", GGUF_ARRAY);
    u32(b, elem_type);
    u64(b, n);
    zeros(b, 64);
}

static void test_5_arrays(void **state) {
    (void)state;
    Buf b = {0};
    static const uint64_t wraps[] = {1ull << 61, (1ull << 61) + 1, 1ull << 62, 1ull << 63, UINT64_MAX, 64 << 20, 17};
    for (size_t i = 0; i < ARRAY_LEN(wraps); i++) {
        array(&b, GGUF_U64, wraps[i]);
        refused(&b, "x U64 found, at most 8 expected");
        array(&b, GGUF_U32, wraps[i]);
        refused(&b, "x U32 found, at most 16 expected");
        array(&b, GGUF_STR, wraps[i]);
        refused(&b, "x STRING found, at most 8 expected");
    }
    array(&b, GGUF_ARRAY, 1);
    refused(&b, "array of arrays found");
    array(&b, GGUF_N_TYPES, 1);
    refused(&b, "value type 0 to 12 expected, 13 found");
    array(&b, UINT32_MAX, 1);
    refused(&b, "4294967295 found");
    header(&b, 3, 0, 1);
    key(&b, "odd", 13);
    zeros(&b, 64);
    refused(&b, "key odd: value type 0 to 12 expected, 13 found");
    header(&b, 3, 0, 1); // an array nested a thousand deep
    key(&b, "deep", GGUF_ARRAY);
    for (int i = 0; i < 1000; i++) u32(&b, GGUF_ARRAY), u64(&b, 1);
    refused(&b, "array of arrays found");
}

static void named(Buf *b, const char *name, size_t n) {
    header(b, 3, 1, 0);
    u64(b, n);
    buf_append(b, name, n);
    u32(b, 1);
    u64(b, 8);
    u32(b, TYPE_F32);
    u64(b, 0);
    pad(b, 32);
    zeros(b, 32);
}

static void test_6_names(void **state) {
    (void)state;
    Buf b = {0};
    header(&b, 3, 0, 2);
    key_u32(&b, "twice", 1);
    key_u32(&b, "twice", 2);
    refused(&b, "key twice: each key once expected");
    header(&b, 3, 2, 0);
    vector(&b, "twice", 8, 0);
    vector(&b, "twice", 8, 32);
    pad(&b, 32);
    zeros(&b, 64);
    refused(&b, "tensor twice: each tensor once expected");
    char longest[64];
    memset(longest, 'n', sizeof longest);
    named(&b, longest, 64);
    refused(&b, "tensor name: 1 to 63 bytes expected, length 64 found");
    named(&b, "", 0);
    refused(&b, "tensor name: 1 to 63 bytes expected, length 0 found");
    named(&b, "a\0b", 3);
    refused(&b, "control byte 0");
    named(&b, "a/../b", 6);
    refused(&b, "\"../\" found");
    named(&b, longest, 63);
    Gguf *g;
    assert_ok(gguf_open_memory("good.gguf", b.data, b.n, &g));
    gguf_close(g);
    buf_free(&b);
}

// ---- 7 to 10: dimensions and types ----------------------------------------------------------------------------------

static void shaped(Buf *b, uint32_t n_dims, const uint64_t *dims, uint32_t type) {
    header(b, 3, 1, 0);
    tensor(b, "t", n_dims, dims, type, 0);
    pad(b, 32);
    zeros(b, 256);
}

static void test_7_8_dims(void **state) {
    (void)state;
    static const uint64_t bad[] = {0, 1ull << 31, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        for (uint32_t d = 0; d < 4; d++) {
            uint64_t dims[4] = {1, 1, 1, 1};
            dims[d] = bad[i];
            Buf b = {0};
            shaped(&b, 4, dims, TYPE_F32);
            refused(&b, "tensor t: dimension ");
        }
    }
}

static void test_8_product_wraps(void **state) {
    (void)state;
    Buf b = {0};
    shaped(&b, 4, (uint64_t[]){1 << 16, 1 << 16, 1 << 16, 1 << 16}, TYPE_F32); // 2^64 elements are 0
    refused(&b, "tensor t: dimensions whose product fits 64 bits expected");
}

static void test_8_bytes_wrap(void **state) {
    (void)state;
    Buf b = {0};
    shaped(&b, 3, (uint64_t[]){1 << 30, 1 << 30, 4}, TYPE_F32); // 2^62 elements of 4 bytes are 0
    refused(&b, "tensor t: a size in bytes that fits 64 bits expected");
    shaped(&b, 4, (uint64_t[]){256, 1 << 30, 1 << 25, 2}, TYPE_Q6_K); // 2^64 elements
    refused(&b, "tensor t: dimensions whose product");
    shaped(&b, 3, (uint64_t[]){1 << 30, 1 << 30, 4}, TYPE_F16); // 2^63 bytes: representable, and not there
    refused(&b, "tensor t: 9223372036854775808 bytes at offset 0");
}

static void test_8_padded_sum_wraps(void **state) {
    (void)state;
    Buf b = {0};
    header(&b, 3, 3, 0); // 2^63 + 2^63 and padding: a running sum is back at 0
    tensor(&b, "a", 3, (uint64_t[]){1 << 30, 1 << 30, 2}, TYPE_F32, 0);
    tensor(&b, "b", 3, (uint64_t[]){1 << 30, 1 << 30, 2}, TYPE_F32, 1ull << 63);
    vector(&b, "c", 8, 0);
    pad(&b, 32);
    zeros(&b, 256);
    refused(&b, "tensor a: 9223372036854775808 bytes at offset 0");
    header(&b, 3, 1, 0); // offset + size wraps to 0
    vector(&b, "t", 8, UINT64_MAX - 31);
    pad(&b, 32);
    zeros(&b, 256);
    refused(&b, "tensor t: 32 bytes at offset 18446744073709551584");
}

static void test_9_n_dims(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 5, 0x7fffffff, 0x80000000, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Buf b = {0};
        shaped(&b, bad[i], (uint64_t[]){1, 1, 1, 1, 1, 1, 1, 1}, TYPE_F32);
        refused(&b, "tensor t: 1 to 4 dimensions expected");
    }
}

static void test_10_types(void **state) {
    (void)state;
    static const uint32_t bad[] = {UINT32_MAX, 4, 5, 9, 16, 24, 28, 31, 32, 33, 34, 39, 40, 1000, 0x7fffffff};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Buf b = {0};
        shaped(&b, 1, (uint64_t[]){32}, bad[i]);
        refused(&b, "tensor t: one of F32, F16, ");
    }
    Buf b = {0};
    shaped(&b, 1, (uint64_t[]){31}, TYPE_Q4_0);
    refused(&b, "rows of whole Q4_0 blocks of 32 expected, rows of 31 found");
    shaped(&b, 2, (uint64_t[]){128, 2}, TYPE_Q4_K); // whole blocks in all, but not a row
    refused(&b, "rows of whole Q4_K blocks of 256 expected, rows of 128 found");
}

// ---- 11, 12: alignment and places -----------------------------------------------------------------------------------

static void test_11_alignment(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 1, 3, 4, 12, 33, 1 << 30, UINT32_MAX};
    Buf b = {0};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        header(&b, 3, 0, 1);
        key_u32(&b, "general.alignment", bad[i]);
        refused(&b, "key general.alignment: a power of two from 8");
    }
    static const uint32_t types[] = {GGUF_I32, GGUF_F32, GGUF_U64, GGUF_STR};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        header(&b, 3, 0, 1);
        key(&b, "general.alignment", types[i]);
        u64(&b, types[i] == GGUF_STR ? 0 : 32);
        refused(&b, "key general.alignment: U32 expected");
    }
    header(&b, 3, 0, 1);
    key(&b, "general.alignment", GGUF_ARRAY);
    u32(&b, GGUF_U32);
    u64(&b, 1);
    u32(&b, 32);
    refused(&b, "key general.alignment: U32 expected, ARRAY found");
    for (uint32_t a = 8; a <= 4096; a *= 2) { // data and offsets follow the file's own alignment
        header(&b, 3, 2, 1);
        key_u32(&b, "general.alignment", a);
        vector(&b, "a", 1, 0);
        vector(&b, "b", 1, a);
        pad(&b, a);
        size_t start = b.n;
        zeros(&b, a + 4);
        Gguf *g;
        assert_ok(gguf_open_memory("good.gguf", b.data, b.n, &g));
        assert_ptr_equal(gguf_tensor(g, "b")->data, b.data + start + a);
        gguf_close(g);
        buf_free(&b);
    }
}

static void two(Buf *b, uint64_t offset_a, uint64_t offset_b, size_t n_data) {
    header(b, 3, 2, 0);
    vector(b, "a", 16, offset_a); // 64 bytes each
    vector(b, "b", 16, offset_b);
    pad(b, 32);
    zeros(b, n_data);
}

static void test_12_places(void **state) {
    (void)state;
    Buf b = {0};
    two(&b, 0, 65, 256);
    refused(&b, "tensor b: offset in steps of 32 expected, 65 found");
    two(&b, 0, 32, 256);
    refused(&b, "tensor b: data after that of a expected, offset 32 inside");
    two(&b, 64, 64, 256);
    refused(&b, "tensor b: data after that of a expected");
    two(&b, 0, 64, 127);
    refused(&b, "tensor b: 64 bytes at offset 64 of the data expected, the data section has 127 bytes");
    two(&b, 0, 256, 256);
    refused(&b, "tensor b: 64 bytes at offset 256");
    two(&b, 0, 1ull << 40, 256);
    refused(&b, "tensor b: 64 bytes at offset 1099511627776");
    two(&b, 0, UINT64_MAX - 63, 256);
    refused(&b, "tensor b: 64 bytes at offset 18446744073709551552");
    Gguf *g;
    two(&b, 128, 0, 192); // decreasing, with a gap: some writers do that
    assert_ok(gguf_open_memory("good.gguf", b.data, b.n, &g));
    assert_ptr_equal(gguf_tensor(g, "a")->data, (const char *)gguf_tensor(g, "b")->data + 128);
    gguf_close(g);
    buf_free(&b);
}

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
        Buf b = good_file(version);
        Gguf *g, *again;
        assert_ok(gguf_open_memory("good.gguf", b.data, b.n, &g));
        assert_int_equal(gguf_version(g), version);
        assert_int_equal(gguf_file_bytes(g), b.n);
        check_good(g);
        gguf_set_u32(g, "general.alignment", 64); // of the source: dropped, as the split keys are
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
    assert_non_null(strstr(st.message, "no_such_folder/x.gguf.quill-"));
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
    gguf_set_u32(g, "u", 2); // replaces
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
    assert_ok(gguf_f32(g, "f64", &f, true, 0)); // out of range: infinity, which the model loader refuses
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

// One part with one tensor of eight floats that hold `no`.
static void write_part(int no, int said_no, int said_count, const char *tensor_name, int n_tensors) {
    Buf b = {0};
    header(&b, 3, 1, 3);
    key(&b, "split.no", GGUF_U16);
    buf_append(&b, &(uint16_t){(uint16_t)said_no}, 2);
    key(&b, "split.count", GGUF_U16);
    buf_append(&b, &(uint16_t){(uint16_t)said_count}, 2);
    key(&b, "split.tensors.count", GGUF_I32);
    u32(&b, (uint32_t)n_tensors);
    vector(&b, tensor_name, 8, 0);
    pad(&b, 32);
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
    char alone[1100]; // a part under a name that hides it
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
    header(&b, 3, N, N);
    char name[32];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "key.%d", i);
        key_u32(&b, name, (uint32_t)i);
    }
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "tensor.%d", i);
        vector(&b, name, 8, (uint64_t)(N - 1 - i) * 32); // decreasing offsets
    }
    pad(&b, 32);
    zeros(&b, (size_t)N * 32);
    Gguf *g;
    double start = clock_now();
    assert_ok(gguf_open_memory("many.gguf", b.data, b.n, &g));
    double seconds = clock_now() - start;
    print_message("%d keys and %d tensors: %.1f ms\n", N, N, seconds * 1e3);
    assert_true(seconds < 2); // about 30 ms; a quadratic search takes minutes
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

// Every weight type through the tiny models that other tests use: saved, read again, the same bytes.
static void test_tiny_models(void **state) {
    (void)state;
    static const int types[] = {TYPE_F32,  TYPE_F16,  TYPE_BF16, TYPE_Q4_0,   TYPE_Q4_1,
                                TYPE_Q5_0, TYPE_Q5_1, TYPE_Q8_0, TYPE_Q2_K,   TYPE_Q3_K,
                                TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_NL, TYPE_IQ4_XS};
    const char *path = test_tmp("quill_test_tiny.gguf");
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        TinyModel shape = {
            .arch = i % 2 ? "qwen2" : "llama", .type = types[i], .dim = 256, .ffn = 512, .chat_template = "chatml"};
        Gguf *g = tiny_model(&shape), *again;
        assert_ok(gguf_save(g, path));
        assert_ok(gguf_open(path, &again));
        assert_int_equal(gguf_n_tensors(g), gguf_n_tensors(again));
        assert_int_equal(gguf_n_values(g), gguf_n_values(again));
        const TypeInfo *info = type_info(types[i]);
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
        assert_true(square > 0.7 && square < 1.4); // 256 weights of variance 1 / 256
        gguf_close(g);
        gguf_close(again);
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1_truncated),
        cmocka_unit_test(test_2_magic_version),
        cmocka_unit_test(test_3_counts),
        cmocka_unit_test(test_4_lengths),
        cmocka_unit_test(test_4_string_cap),
        cmocka_unit_test(test_5_arrays),
        cmocka_unit_test(test_6_names),
        cmocka_unit_test(test_7_8_dims),
        cmocka_unit_test(test_8_product_wraps),
        cmocka_unit_test(test_8_bytes_wrap),
        cmocka_unit_test(test_8_padded_sum_wraps),
        cmocka_unit_test(test_9_n_dims),
        cmocka_unit_test(test_10_types),
        cmocka_unit_test(test_11_alignment),
        cmocka_unit_test(test_12_places),
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
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
