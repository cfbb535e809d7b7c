// tests/test_gguf.c: invalid GGUF files, made byte by byte. The numbers in test names are groups of a list of invalid
// inputs: 1 to 12 concern the parser; hyper-parameters concern the model loader.
#include "tests/rig/gguf_bytes.h"
#include "tests/rig/testing.h"

#include "formats/types.h"

// ---- 1, 2: truncation, magic, version -------------------------------------------------------------------------------

static void test_1_truncated(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        Buf good = gguf_bytes_good_file(version);
        for (size_t n = 0; n < good.n; n++) {
            Buf cut = {0};
            buf_append(&cut, good.data, n);
            gguf_bytes_refused(&cut, n ? "expected" : "empty file");
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
        Buf b = gguf_bytes_good_file(versions[i].version);
        gguf_bytes_refused(&b, versions[i].part);
    }
    Buf b = gguf_bytes_good_file(3);
    b.data[0] = 'g';
    gguf_bytes_refused(&b, "67 47 55 46 found");
}

// ---- 3, 4: counts and lengths ---------------------------------------------------------------------------------------

static void test_3_counts(void **state) {
    (void)state;
    static const uint64_t counts[] = {0x7fffffff, 0xffffffff,          1ull << 32, 1ull << 63,
                                      UINT64_MAX, UINT64_MAX / 14 + 2, 5};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        Buf b = {0};
        gguf_bytes_header(&b, 3, counts[i], 0);
        gguf_bytes_zeros(&b, 64);
        gguf_bytes_refused(&b, "tensors found");
        gguf_bytes_header(&b, 3, 0, counts[i]);
        gguf_bytes_zeros(&b, 64);
        gguf_bytes_refused(&b, "keys found");
    }
}

static void test_4_lengths(void **state) {
    (void)state;
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, 1ull << 63, 0x80000000u, 65536, 65535, 200};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        Buf b = {0};
        gguf_bytes_header(&b, 3, 0, 1);
        gguf_bytes_u64(&b, lengths[i]);
        gguf_bytes_zeros(&b, 64);
        gguf_bytes_refused(&b, "key");
        gguf_bytes_header(&b, 3, 0, 1);
        gguf_bytes_key(&b, "name", GGUF_STR);
        gguf_bytes_u64(&b, lengths[i]);
        gguf_bytes_zeros(&b, 64);
        gguf_bytes_refused(&b, "key name: string of at most 64 bytes expected, length ");
        gguf_bytes_header(&b, 3, 0, 1);
        gguf_bytes_key(&b, "names", GGUF_ARRAY);
        gguf_bytes_u32(&b, GGUF_STR);
        gguf_bytes_u64(&b, 2);
        gguf_bytes_str(&b, "first");
        gguf_bytes_u64(&b, lengths[i]);
        gguf_bytes_zeros(&b, 64);
        gguf_bytes_refused(&b, "key names: string of at most 64 bytes");
    }
    Buf b = {0};
    gguf_bytes_header(&b, 3, 0, 1);
    gguf_bytes_key_u32(&b, "", 1);
    gguf_bytes_refused(&b, "length 0 found");
    gguf_bytes_header(&b, 3, 0, 1);
    gguf_bytes_key_u32(&b, "a\nb", 1);
    gguf_bytes_refused(&b, "control byte 10");
    gguf_bytes_header(&b, 3, 0, 1);
    gguf_bytes_u64(&b, 3);
    buf_append(&b, "a\0b", 3);
    gguf_bytes_u32(&b, GGUF_U32);
    gguf_bytes_u32(&b, 1);
    gguf_bytes_refused(&b, "control byte 0");
}

// A string of 16 MiB is accepted, one byte more is refused, even if the file is large enough.
static void test_4_string_cap(void **state) {
    (void)state;
    size_t cap = 16 << 20;
    char *text = malloc(cap + 1);
    memset(text, 'x', cap + 1);
    for (size_t n = cap; n <= cap + 1; n++) {
        Buf b = {0};
        gguf_bytes_header(&b, 3, 0, 1);
        gguf_bytes_key(&b, "long", GGUF_STR);
        gguf_bytes_u64(&b, n);
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
    gguf_bytes_header(b, 3, 0, 1);
    gguf_bytes_key(b, "list", GGUF_ARRAY);
    gguf_bytes_u32(b, elem_type);
    gguf_bytes_u64(b, n);
    gguf_bytes_zeros(b, 64);
}

static void test_5_arrays(void **state) {
    (void)state;
    Buf b = {0};
    static const uint64_t wraps[] = {1ull << 61, (1ull << 61) + 1, 1ull << 62, 1ull << 63, UINT64_MAX, 64 << 20, 17};
    for (size_t i = 0; i < ARRAY_LEN(wraps); i++) {
        array(&b, GGUF_U64, wraps[i]);
        gguf_bytes_refused(&b, "x U64 found, at most 8 expected");
        array(&b, GGUF_U32, wraps[i]);
        gguf_bytes_refused(&b, "x U32 found, at most 16 expected");
        array(&b, GGUF_STR, wraps[i]);
        gguf_bytes_refused(&b, "x STRING found, at most 8 expected");
    }
    array(&b, GGUF_ARRAY, 1);
    gguf_bytes_refused(&b, "array of arrays found");
    array(&b, GGUF_N_TYPES, 1);
    gguf_bytes_refused(&b, "value type 0 to 12 expected, 13 found");
    array(&b, UINT32_MAX, 1);
    gguf_bytes_refused(&b, "4294967295 found");
    gguf_bytes_header(&b, 3, 0, 1);
    gguf_bytes_key(&b, "odd", 13);
    gguf_bytes_zeros(&b, 64);
    gguf_bytes_refused(&b, "key odd: value type 0 to 12 expected, 13 found");
    gguf_bytes_header(&b, 3, 0, 1); // an array that is nested a thousand times
    gguf_bytes_key(&b, "deep", GGUF_ARRAY);
    for (int i = 0; i < 1000; i++) gguf_bytes_u32(&b, GGUF_ARRAY), gguf_bytes_u64(&b, 1);
    gguf_bytes_refused(&b, "array of arrays found");
}

static void named(Buf *b, const char *name, size_t n) {
    gguf_bytes_header(b, 3, 1, 0);
    gguf_bytes_u64(b, n);
    buf_append(b, name, n);
    gguf_bytes_u32(b, 1);
    gguf_bytes_u64(b, 8);
    gguf_bytes_u32(b, TYPE_F32);
    gguf_bytes_u64(b, 0);
    gguf_bytes_pad(b, 32);
    gguf_bytes_zeros(b, 32);
}

static void test_6_names(void **state) {
    (void)state;
    Buf b = {0};
    gguf_bytes_header(&b, 3, 0, 2);
    gguf_bytes_key_u32(&b, "twice", 1);
    gguf_bytes_key_u32(&b, "twice", 2);
    gguf_bytes_refused(&b, "key twice: each key once expected");
    gguf_bytes_header(&b, 3, 2, 0);
    gguf_bytes_vector(&b, "twice", 8, 0);
    gguf_bytes_vector(&b, "twice", 8, 32);
    gguf_bytes_pad(&b, 32);
    gguf_bytes_zeros(&b, 64);
    gguf_bytes_refused(&b, "tensor twice: each tensor once expected");
    char longest[64];
    memset(longest, 'n', sizeof longest);
    named(&b, longest, 64);
    gguf_bytes_refused(&b, "tensor name: 1 to 63 bytes expected, length 64 found");
    named(&b, "", 0);
    gguf_bytes_refused(&b, "tensor name: 1 to 63 bytes expected, length 0 found");
    named(&b, "a\0b", 3);
    gguf_bytes_refused(&b, "control byte 0");
    named(&b, "a/../b", 6);
    gguf_bytes_refused(&b, "\"../\" found");
    named(&b, longest, 63);
    Gguf *g;
    assert_ok(gguf_open_memory("good.gguf", b.data, b.n, &g));
    gguf_close(g);
    buf_free(&b);
}

// ---- 7 to 10: dimensions and types ----------------------------------------------------------------------------------

static void shaped(Buf *b, uint32_t n_dims, const uint64_t *dims, uint32_t type) {
    gguf_bytes_header(b, 3, 1, 0);
    gguf_bytes_tensor(b, "t", n_dims, dims, type, 0);
    gguf_bytes_pad(b, 32);
    gguf_bytes_zeros(b, 256);
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
            gguf_bytes_refused(&b, "tensor t: dimension ");
        }
    }
}

static void test_8_product_wraps(void **state) {
    (void)state;
    Buf b = {0};
    shaped(&b, 4, (uint64_t[]){1 << 16, 1 << 16, 1 << 16, 1 << 16}, TYPE_F32); // 2^64 elements, which is 0 in 64 bits
    gguf_bytes_refused(&b, "tensor t: dimensions whose product fits 64 bits expected");
}

static void test_8_bytes_wrap(void **state) {
    (void)state;
    Buf b = {0};
    shaped(&b, 3, (uint64_t[]){1 << 30, 1 << 30, 4}, TYPE_F32); // 2^62 elements of 4 bytes: 0 bytes in 64 bits
    gguf_bytes_refused(&b, "tensor t: a size in bytes that fits 64 bits expected");
    shaped(&b, 4, (uint64_t[]){256, 1 << 30, 1 << 25, 2}, TYPE_Q6_K); // 2^64 elements
    gguf_bytes_refused(&b, "tensor t: dimensions whose product");
    // 2^63 bytes: fits into 64 bits, but is larger than the file
    shaped(&b, 3, (uint64_t[]){1 << 30, 1 << 30, 4}, TYPE_F16);
    gguf_bytes_refused(&b, "tensor t: 9223372036854775808 bytes at offset 0");
}

static void test_8_padded_sum_wraps(void **state) {
    (void)state;
    Buf b = {0};
    gguf_bytes_header(&b, 3, 3, 0); // 2^63 + 2^63 and padding: a running sum wraps to 0
    gguf_bytes_tensor(&b, "a", 3, (uint64_t[]){1 << 30, 1 << 30, 2}, TYPE_F32, 0);
    gguf_bytes_tensor(&b, "b", 3, (uint64_t[]){1 << 30, 1 << 30, 2}, TYPE_F32, 1ull << 63);
    gguf_bytes_vector(&b, "c", 8, 0);
    gguf_bytes_pad(&b, 32);
    gguf_bytes_zeros(&b, 256);
    gguf_bytes_refused(&b, "tensor a: 9223372036854775808 bytes at offset 0");
    gguf_bytes_header(&b, 3, 1, 0); // offset + size wraps to 0
    gguf_bytes_vector(&b, "t", 8, UINT64_MAX - 31);
    gguf_bytes_pad(&b, 32);
    gguf_bytes_zeros(&b, 256);
    gguf_bytes_refused(&b, "tensor t: 32 bytes at offset 18446744073709551584");
}

static void test_9_n_dims(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 5, 0x7fffffff, 0x80000000, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Buf b = {0};
        shaped(&b, bad[i], (uint64_t[]){1, 1, 1, 1, 1, 1, 1, 1}, TYPE_F32);
        gguf_bytes_refused(&b, "tensor t: 1 to 4 dimensions expected");
    }
}

static void test_10_types(void **state) {
    (void)state;
    static const uint32_t bad[] = {UINT32_MAX, 4, 5, 9, 24, 28, 31, 32, 33, 36, 38, 40, 1000, 0x7fffffff};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Buf b = {0};
        shaped(&b, 1, (uint64_t[]){32}, bad[i]);
        gguf_bytes_refused(&b, "tensor t: one of F32, F16, ");
    }
    Buf b = {0};
    shaped(&b, 1, (uint64_t[]){31}, TYPE_Q4_0);
    gguf_bytes_refused(&b, "rows of whole Q4_0 blocks of 32 expected, rows of 31 found");
    shaped(&b, 2, (uint64_t[]){128, 2}, TYPE_Q4_K); // whole blocks in total, but rows that are not
    gguf_bytes_refused(&b, "rows of whole Q4_K blocks of 256 expected, rows of 128 found");
}

// ---- 11, 12: alignment and places -----------------------------------------------------------------------------------

static void test_11_alignment(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 1, 3, 4, 12, 33, 1 << 30, UINT32_MAX};
    Buf b = {0};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        gguf_bytes_header(&b, 3, 0, 1);
        gguf_bytes_key_u32(&b, "general.alignment", bad[i]);
        gguf_bytes_refused(&b, "key general.alignment: a power of two from 8");
    }
    static const uint32_t types[] = {GGUF_I32, GGUF_F32, GGUF_U64, GGUF_STR};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        gguf_bytes_header(&b, 3, 0, 1);
        gguf_bytes_key(&b, "general.alignment", types[i]);
        gguf_bytes_u64(&b, types[i] == GGUF_STR ? 0 : 32);
        gguf_bytes_refused(&b, "key general.alignment: U32 expected");
    }
    gguf_bytes_header(&b, 3, 0, 1);
    gguf_bytes_key(&b, "general.alignment", GGUF_ARRAY);
    gguf_bytes_u32(&b, GGUF_U32);
    gguf_bytes_u64(&b, 1);
    gguf_bytes_u32(&b, 32);
    gguf_bytes_refused(&b, "key general.alignment: U32 expected, ARRAY found");
    for (uint32_t a = 8; a <= 4096; a *= 2) { // data and offsets use the alignment of the file
        gguf_bytes_header(&b, 3, 2, 1);
        gguf_bytes_key_u32(&b, "general.alignment", a);
        gguf_bytes_vector(&b, "a", 1, 0);
        gguf_bytes_vector(&b, "b", 1, a);
        gguf_bytes_pad(&b, a);
        size_t start = b.n;
        gguf_bytes_zeros(&b, a + 4);
        Gguf *g;
        assert_ok(gguf_open_memory("good.gguf", b.data, b.n, &g));
        assert_ptr_equal(gguf_tensor(g, "b")->data, b.data + start + a);
        gguf_close(g);
        buf_free(&b);
    }
}

static void two(Buf *b, uint64_t offset_a, uint64_t offset_b, size_t n_data) {
    gguf_bytes_header(b, 3, 2, 0);
    gguf_bytes_vector(b, "a", 16, offset_a); // tensors of 64 bytes
    gguf_bytes_vector(b, "b", 16, offset_b);
    gguf_bytes_pad(b, 32);
    gguf_bytes_zeros(b, n_data);
}

static void test_12_places(void **state) {
    (void)state;
    Buf b = {0};
    two(&b, 0, 65, 256);
    gguf_bytes_refused(&b, "tensor b: offset in steps of 32 expected, 65 found");
    two(&b, 0, 32, 256);
    gguf_bytes_refused(&b, "tensor b: data after that of a expected, offset 32 inside");
    two(&b, 64, 64, 256);
    gguf_bytes_refused(&b, "tensor b: data after that of a expected");
    two(&b, 0, 64, 127);
    gguf_bytes_refused(&b, "tensor b: 64 bytes at offset 64 of the data expected, the data section has 127 bytes");
    two(&b, 0, 256, 256);
    gguf_bytes_refused(&b, "tensor b: 64 bytes at offset 256");
    two(&b, 0, 1ull << 40, 256);
    gguf_bytes_refused(&b, "tensor b: 64 bytes at offset 1099511627776");
    two(&b, 0, UINT64_MAX - 63, 256);
    gguf_bytes_refused(&b, "tensor b: 64 bytes at offset 18446744073709551552");
    Gguf *g;
    two(&b, 128, 0, 192); // decreasing offsets with a gap, as some writers make them
    assert_ok(gguf_open_memory("good.gguf", b.data, b.n, &g));
    assert_ptr_equal(gguf_tensor(g, "a")->data, (const char *)gguf_tensor(g, "b")->data + 128);
    gguf_close(g);
    buf_free(&b);
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
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
