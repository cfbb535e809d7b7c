// tests/test_kv_types.c: compares the table of KV types (formats/kv_types.h) with the ids, the names and the pages in
// docs/.
#include "tests/rig/testing.h"

#include <ctype.h>

#include "formats/sealed.h"

static void test_names(void **state) {
    (void)state;
    for (int i = 0; i < N_KV_TYPES; i++) {
        int type = kv_type_at(i);
        const char *name = kv_type_name(type), *title = type_name(type);
        assert_int_equal(kv_type_find(name), type);
        for (size_t k = 0; k <= strlen(title); k++) assert_int_equal(name[k], tolower((unsigned char)title[k]));
        assert_non_null(strstr(kv_type_list(), title));
        assert_non_null(strstr(KV_TYPE_CHOICES, name));
        assert_int_equal(kv_is_sealed(type), i >= 3); // the dense types come first
        assert_true(kv_slot_bytes(type, 64) > 0);
    }
    assert_string_equal(KV_TYPE_CHOICES, "|f32|f16|bf16|fp8|q8_0|q4_0|kivi2");
    assert_string_equal(kv_type_list(), "F32, F16, BF16, FP8, Q8_0, Q4_0, KIVI2");
    assert_int_equal(kv_type_find("auto"), -1);
    assert_null(kv_type_name(TYPE_Q4_K));
    assert_int_equal(kv_slot_bytes(TYPE_Q4_K, 64), 0);
}

static void assert_says(const char *path, const char *words) {
    Buf text = {0};
    assert_ok(file_read(path, &text));
    buf_append(&text, "", 1);
    if (!strstr(text.data, words)) fail_msg("%s: \"%s\" expected", path, words);
    buf_free(&text);
}

// The pages must name every type: its id in the file format, and a row in the table of measurements.
static void test_documents(void **state) {
    (void)state;
    for (int i = 0; i < N_KV_TYPES; i++) {
        char words[64];
        snprintf(words, sizeof words, " %d %s", kv_type_at(i), type_name(kv_type_at(i)));
        assert_says("docs/kv-format.md", words);
        snprintf(words, sizeof words, "\n| %s |", kv_type_name(kv_type_at(i)));
        assert_says("docs/kv.md", words);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
