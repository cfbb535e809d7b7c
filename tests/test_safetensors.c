// tests/test_safetensors.c: valid and invalid safetensors files.
#include "tests/rig/testing.h"

#include "hf/safetensors.h"

// A file of a header and n bytes of data, in memory of exactly that size.
static uint8_t *file_of(const char *header, size_t n_data, size_t *n) {
    uint64_t n_header = strlen(header);
    *n = 8 + (size_t)n_header + n_data;
    uint8_t *bytes = malloc(*n);
    memcpy(bytes, &n_header, 8);
    memcpy(bytes + 8, header, (size_t)n_header);
    for (size_t i = 0; i < n_data; i++) bytes[8 + n_header + i] = (uint8_t)i;
    return bytes;
}

static void test_good(void **state) {
    (void)state;
    size_t n;
    uint8_t *bytes = file_of("{\"__metadata__\": {\"format\": \"pt\"}, "
                             "\"b\": {\"dtype\": \"BF16\", \"shape\": [2, 3], \"data_offsets\": [8, 20]}, "
                             "\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, "
                             "\"one\": {\"dtype\": \"F32\", \"shape\": [], \"data_offsets\": [20, 24]}, "
                             "\"none\": {\"dtype\": \"F16\", \"shape\": [0, 4], \"data_offsets\": [24, 24]}, "
                             "\"new\": {\"dtype\": \"F4\", \"shape\": [5], \"data_offsets\": [24, 27]}}   ",
                             27, &n);
    SafeFiles s = {0};
    assert_ok(safetensors_add(&s, "x/f.safetensors", bytes, n));
    assert_int_equal(s.tensors.n, 5);
    const SafeTensor *t = safetensors_find(&s, "b");
    assert_true(t->n_dims == 2 && t->dims[0] == 2 && t->dims[1] == 3 && t->n_bytes == 12 && t->data[0] == 8);
    assert_string_equal(t->dtype, "BF16");
    assert_string_equal(t->file, "x/f.safetensors");
    assert_int_equal(safetensors_find(&s, "one")->n_dims, 0);
    assert_int_equal(safetensors_find(&s, "new")->element, 0);
    assert_null(safetensors_find(&s, "__metadata__"));
    Status st = safetensors_add(&s, "x/g.safetensors", bytes, n); // the same names in another file
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(
        strstr(st.message, "x/g.safetensors: tensor b: each tensor once expected, x/f.safetensors has it too"));
    safetensors_close(&s);
    free(bytes);
}

static void test_refused(void **state) {
    (void)state;
#define TENSOR(rest) "{\"t\": {\"dtype\": \"F32\", " rest "}}"
    static const struct {
        const char *header, *message;
    } cases[] = {
        {"", "the header: "},
        {"[]", "a JSON object expected"},
        {"{\"t\": 1", "the header: "},
        {"{\"t\": 1}", "tensor t: an object with dtype"},
        {"{\"t\": {}}", "tensor t: an object with dtype"},
        {"{\"t\": {\"dtype\": 4}}", "tensor t: an object with dtype"},
        {TENSOR("\"shape\": [2]"), "data_offsets: two whole numbers"},
        {TENSOR("\"shape\": [2], \"data_offsets\": [0]"), "two whole numbers"},
        {TENSOR("\"shape\": [2], \"data_offsets\": [0, 8.0]"), "two whole numbers"},
        {TENSOR("\"shape\": [2], \"data_offsets\": [-8, 0]"),
         "tensor t: data_offsets: a range within the file's 16 bytes"},
        {TENSOR("\"shape\": [2], \"data_offsets\": [8, 0]"), "a range within"},
        {TENSOR("\"shape\": [4], \"data_offsets\": [8, 24]"), "is the file complete?"},
        {TENSOR("\"shape\": [2], \"data_offsets\": [0, 9223372036854775807]"), "a range within"},
        {TENSOR("\"data_offsets\": [0, 8]"), "shape: an array"},
        {TENSOR("\"shape\": [1,1,1,1,1,1,1,1,2], \"data_offsets\": [0, 8]"), "shape: an array of at most 8"},
        {TENSOR("\"shape\": [-2], \"data_offsets\": [0, 8]"), "shape: whole numbers"},
        {TENSOR("\"shape\": [\"2\"], \"data_offsets\": [0, 8]"), "shape: whole numbers"},
        {TENSOR("\"shape\": [3], \"data_offsets\": [0, 8]"), "12 bytes expected by its shape and F32, 8 found"},
        {TENSOR("\"shape\": [4294967296, 4294967296], \"data_offsets\": [0, 8]"), "a product that fits 64 bits"},
        {TENSOR("\"shape\": [4611686018427387904], \"data_offsets\": [0, 8]"), "expected by its shape"},
        {"{\"t\": {\"dtype\": \"U8\", \"shape\": [8], \"data_offsets\": [0, 8]}, "
         "\"u\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [7, 11]}}",
         "tensor u: data_offsets: bytes of its own expected, t has some of them"},
        {"{\"t\": {\"dtype\": \"U8\", \"shape\": [8], \"data_offsets\": [0, 8]}, "
         "\"t\": {\"dtype\": \"U8\", \"shape\": [8], \"data_offsets\": [8, 16]}}",
         "duplicate"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t n;
        uint8_t *bytes = file_of(cases[i].header, 16, &n);
        SafeFiles s = {0};
        Status st = safetensors_add(&s, "f", bytes, n);
        if (st.code != QUILL_MODEL || !strstr(st.message, cases[i].message) || strncmp(st.message, "f: ", 3))
            fail_msg("%s: code %d: %s", cases[i].header, st.code, st.message);
        safetensors_close(&s);
        free(bytes);
    }
}

static void test_header_length(void **state) {
    (void)state;
    static const uint64_t lengths[] = {3, 1000, (uint64_t)100 << 20, UINT64_MAX, (uint64_t)1 << 63};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        uint8_t bytes[10] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
        memcpy(bytes, &lengths[i], 8);
        SafeFiles s = {0};
        Status st = safetensors_add(&s, "f", bytes, sizeof bytes);
        assert_int_equal(st.code, QUILL_MODEL);
        assert_non_null(strstr(st.message, "f: a safetensors header of at most 2 bytes expected"));
        safetensors_close(&s);
    }
    for (size_t n = 0; n < 8; n++) {
        SafeFiles s = {0};
        assert_int_equal(safetensors_add(&s, "f", (const uint8_t *)"\2\0\0\0\0\0\0\0", n).code, QUILL_MODEL);
        safetensors_close(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_header_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
