// tests/test_builtin.c: the model in the binary: it is used if no model is named, and read from the mapping of the
// executable.
#define _GNU_SOURCE // getline
#include "tests/rig/testing.h"

#include <inttypes.h>
#include <unistd.h>

#include "files/builtin.h"
#include "engine.h"
#include "engine_file.h"

static void needs_builtin(void) {
    if (builtin_there()) return;
    print_message("skipped: built with NO_MODEL=1\n");
    skip();
}

static void test_no_other_named(void **state) {
    (void)state;
    needs_builtin();
    const char *words[] = {NULL, "builtin"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        Gguf *g;
        assert_ok(engine_file_open(&(EngineConfig){.model = words[i]}, &g));
        assert_string_equal(gguf_name(g), builtin_name());
        assert_non_null(strstr(gguf_name(g), "built into the binary"));
        assert_true(gguf_version(g) > 0 && gguf_file_bytes(g) > 0);
        gguf_close(g);
    }
    Gguf *g; // a path opens a file
    assert_int_equal(engine_file_open(&(EngineConfig){.model = "./builtin"}, &g).code, QUILL_MODEL);
}

static void test_computes(void **state) {
    (void)state;
    needs_builtin();
    Engine e;
    EngineConfig o = {.mlock = true,
                      .check_tensors = true,
                      .ubatch = 8,
                      .device = "cpu", // isa NULL: auto
                      .quiet = true,
                      .type_k = KV_TYPE_AUTO,
                      .type_v = KV_TYPE_AUTO,
                      .threads = 1};
    assert_ok(engine_open(&e, &o, (EngineNeeds){.need_tokenizer = true, .n_ctx = 16}));
    assert_true(tokenizer_n(e.tok) > 0);
    engine_close(&e);
}

static void test_refused(void **state) {
    (void)state;
    const EngineConfig cases[] = {{.no_mmap = true}, {.tokenizer = "tok.bin", .model = "builtin"}};
    const char *says[] = {"--no-mmap", "--tokenizer"};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *g;
        Status st = engine_file_open(&cases[i], &g);
        assert_int_equal(st.code, QUILL_USAGE);
        assert_non_null(strstr(st.message, says[i]));
        assert_null(g);
    }
}

static void test_none(void **state) {
    (void)state;
    if (builtin_there()) {
        print_message("skipped: there is a model in this binary; NO_MODEL=1 leaves it out\n");
        skip();
    }
    Gguf *g;
    Status st = builtin_open(&g);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "NO_MODEL=1"));
    assert_null(g);
    assert_string_equal(builtin_name(), "none");
}

// True if [from, to) is inside read-only mappings of this executable; mlock may have split a mapping.
static bool in_executable(uintptr_t from, uintptr_t to) {
    char exe[4096] = "", *line = NULL, perms[5] = "";
    size_t cap = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps || readlink("/proc/self/exe", exe, sizeof exe - 1) < 0) {
        print_message("skipped: no /proc to look into\n");
        skip();
    }
    while (from < to && getline(&line, &cap, maps) > 0) {
        uintptr_t start, end;
        const char *path = strchr(line, '/');
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &start, &end, perms) != 3) continue;
        if (path && strcmp(path, exe) == 0 && strncmp(perms, "r-", 2) == 0 && start <= from && from < end) from = end;
    }
    fclose(maps);
    free(line);
    return from >= to;
}

// Nothing is copied: the first key and every weight are in the mapping, which begins on its own page.
static void test_lies_in_the_executable(void **state) {
    (void)state;
    needs_builtin();
    enum { KEY_AT = 32 }; // after the header and the first key's length
    Gguf *g;
    assert_ok(builtin_open(&g));
    uintptr_t first = (uintptr_t)gguf_value_at(g, 0)->key.data - KEY_AT;
    assert_memory_equal((const void *)first, "GGUF", 4);
    assert_int_equal(first % 4096, 0);
    assert_true(in_executable(first, first + gguf_file_bytes(g)));
    for (int i = 0; i < gguf_n_tensors(g); i++) {
        const GgufTensor *t = gguf_tensor_at(g, i);
        uintptr_t data = (uintptr_t)t->data;
        assert_true(data > first && data + t->n_bytes <= first + gguf_file_bytes(g));
    }
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_other_named),
        cmocka_unit_test(test_computes),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_lies_in_the_executable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
