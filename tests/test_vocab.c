// tests/test_vocab.c: the vocabulary of a model file: roles of tokens, invalid files, unusual tokens, extreme lengths.
#include "tests/rig/testing.h"

#include "tests/rig/vocabularies.h"
#include "tokenizer.h"

// ---- roles ----------------------------------------------------------------------------------------------------------

static void test_ids_out_of_range_mean_none(void **state) {
    (void)state;
    const uint32_t bad[] = {0xffffffff, 0x80000000, 259, 1u << 30};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        TestVocabulary *b = vocabulary_spm(); // 259 tokens
        Gguf *g = vocabulary_view(b, "llama", NULL);
        const char *keys[] = {"bos", "eos", "eot", "eom", "unknown", "padding", "seperator"};
        for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
            char key[64];
            snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[k]);
            gguf_set_u32(g, key, bad[i]);
        }
        gguf_set_bool(g, "tokenizer.ggml.add_bos_token", true);
        gguf_set_bool(g, "tokenizer.ggml.add_eos_token", true);
        free(b);
        Tokenizer *t = vocabulary_load(g);
        assert_int_equal(tokenizer_bos(t), -1);
        assert_int_equal(tokenizer_eos(t), -1);
        assert_false(tokenizer_add_bos(t));
        assert_false(tokenizer_add_eos(t));
        assert_true(tokenizer_is_eog(t, 2)); // </s> is recognised by its name
        vocabulary_ids_of(t, "A", "35 68");
        tokenizer_free(t);
    }
}

// Tokens that no answer may have; ids that the vocabulary does not have are left out.
static void test_suppressed(void **state) {
    (void)state;
    TestVocabulary *b = vocabulary_spm(); // 259 tokens
    Gguf *g = vocabulary_view(b, "llama", NULL);
    free(b);
    gguf_set_ints(g, "tokenizer.ggml.suppress_tokens", (int32_t[]){258, -1, 259, 7}, 4);
    Tokenizer *t = vocabulary_load(g);
    int ids[4];
    assert_int_equal(tokenizer_suppressed_ids(t, ids, 4), 2);
    assert_true(ids[0] == 258 && ids[1] == 7);
    tokenizer_free(t);
}

// Scores may be integers: "ab" has the higher one.
static void test_whole_scores(void **state) {
    (void)state;
    TestVocabulary *b = vocabulary_spm();
    int32_t scores[MAX_TOKENS] = {0};
    vocabulary_add(b, "a", GGUF_TOKEN_NORMAL, 0);
    vocabulary_add(b, "b", GGUF_TOKEN_NORMAL, 0);
    vocabulary_add(b, "c", GGUF_TOKEN_NORMAL, 0);
    int bc = vocabulary_add(b, "bc", GGUF_TOKEN_NORMAL, 0), ab = vocabulary_add(b, "ab", GGUF_TOKEN_NORMAL, 0);
    scores[bc] = -2;
    scores[ab] = -1;
    Gguf *g = vocabulary_view(b, "llama", NULL);
    gguf_set_ints(g, "tokenizer.ggml.scores", scores, (size_t)b->n);
    gguf_set_bool(g, "tokenizer.ggml.add_space_prefix", false);
    free(b);
    Tokenizer *t = vocabulary_load(g);
    vocabulary_ids_of(t, "abc", "263 261");
    tokenizer_free(t);
}

static void test_bos_and_eog(void **state) {
    (void)state;
    TestVocabulary *b = vocabulary_bpe();
    int call = vocabulary_add(b, "<|call|>", GGUF_TOKEN_CONTROL, 0),
        end = vocabulary_add(b, "<|end|>", GGUF_TOKEN_CONTROL, 0);
    int back = vocabulary_add(b, "<|return|>", GGUF_TOKEN_CONTROL, 0),
        pad = vocabulary_add(b, "<|fim_pad|>", GGUF_TOKEN_NORMAL, 0);
    int file = vocabulary_add(b, "<|file_sep|>", GGUF_TOKEN_NORMAL, 0),
        prefix = vocabulary_add(b, "<fim_prefix>", GGUF_TOKEN_NORMAL, 0);
    int stop = vocabulary_add(b, "stop", GGUF_TOKEN_NORMAL, 0);
    Gguf *g = vocabulary_view(b, "gpt2", "tekken");
    gguf_set_u32(g, "tokenizer.ggml.bos_token_id", 5);
    gguf_set_u32(g, "tokenizer.ggml.eot_token_id", (uint32_t)stop);
    gguf_set_u32(g, "tokenizer.ggml.fim_sep_token_id", 7); // the metadata overrides the name
    free(b);
    Tokenizer *t = vocabulary_load(g);
    assert_true(tokenizer_add_bos(t)); // tekken's default
    assert_int_equal(tokenizer_bos(t), 5);
    assert_int_equal(tokenizer_eos(t), -1);
    assert_true(tokenizer_is_eog(t, call));
    assert_true(tokenizer_is_eog(t, back));
    assert_false(tokenizer_is_eog(t, end)); // if both ids above exist, this token ends a message, not the answer
    assert_true(tokenizer_is_eog(t, pad));
    assert_true(tokenizer_is_eog(t, stop));
    assert_true(tokenizer_is_eog(t, 7));
    assert_false(tokenizer_is_eog(t, file));
    assert_false(tokenizer_is_control(t, file));
    assert_true(tokenizer_is_control(t, prefix));
    assert_false(tokenizer_is_eog(t, prefix));
    tokenizer_free(t);
}

// Gemma's </s> is an HTML tag: neither an end nor a control token. `turn`: the vocabulary has Gemma's <end_of_turn>.
static void test_html_tag(void **state) {
    (void)state;
    static const struct {
        bool turn;
        uint32_t eos;
        bool ends;
    } cases[] = {{true, 1, false}, {true, 2, true}, {false, 1, true}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        TestVocabulary *b = vocabulary_spm();
        int turn = vocabulary_add(b, cases[i].turn ? "<end_of_turn>" : "<turn>", GGUF_TOKEN_CONTROL, 0);
        Gguf *g = vocabulary_view(b, "llama", NULL);
        gguf_set_u32(g, "tokenizer.ggml.eos_token_id", cases[i].eos);
        free(b);
        Tokenizer *t = vocabulary_load(g);
        assert_int_equal(tokenizer_is_eog(t, 2), cases[i].ends);
        assert_int_equal(tokenizer_is_control(t, 2), cases[i].ends);
        assert_int_equal(tokenizer_is_eog(t, turn), cases[i].turn);
        tokenizer_free(t);
    }
}

// ---- hostile files --------------------------------------------------------------------------------------------------

static void test_kinds_and_patterns_refused(void **state) {
    (void)state;
    TestVocabulary *b = vocabulary_bpe();
    vocabulary_refused(vocabulary_view(b, "bert", NULL), "\"bert\"");
    vocabulary_refused(vocabulary_view(b, "t5", NULL), "\"gpt2\"");
    vocabulary_refused(vocabulary_view(b, "gpt2", "no-such"), "\"no-such\"");
    vocabulary_refused(vocabulary_view(b, "gpt2", "no-such"), "viking");
    vocabulary_refused(vocabulary_view(b, "gpt2", "chameleo"), "expected");
    Gguf *g = gguf_new("none.gguf");
    vocabulary_refused(g, "tokenizer.ggml.model");
    g = gguf_new("none.gguf");
    gguf_set_str(g, "tokenizer.ggml.model", "llama");
    vocabulary_refused(g, "no vocabulary");
    g = vocabulary_view(b, "llama", NULL);
    gguf_set_strings(g, "tokenizer.ggml.tokens", NULL, 0);
    vocabulary_refused(g, "tokenizer.ggml.tokens");
    g = vocabulary_view(b, "llama", NULL);
    gguf_set_floats(g, "tokenizer.ggml.tokens", b->scores, 9);
    vocabulary_refused(g, "tokenizer.ggml.tokens");
    g = vocabulary_view(b, "llama", NULL);
    gguf_set_u32(g, "tokenizer.ggml.tokens", 9);
    vocabulary_refused(g, "tokenizer.ggml.tokens");
    g = gguf_new("no-merges.gguf");
    gguf_set_str(g, "tokenizer.ggml.model", "gpt2");
    gguf_set_strings(g, "tokenizer.ggml.tokens", b->tokens, 256);
    vocabulary_refused(g, "tokenizer.ggml.merges");
    free(b);
    Tokenizer *t = vocabulary_load_bpe(vocabulary_bpe(), NULL); // old files without the key
    assert_string_equal(tokenizer_kind(t), "gpt2/default");
    tokenizer_free(t);
}

static void test_arrays_refused(void **state) {
    (void)state;
    TestVocabulary *b = vocabulary_spm();
    size_t n = (size_t)b->n;
    for (int wrong = 0; wrong < 9; wrong++) {
        Gguf *g = vocabulary_view(b, wrong < 8 ? "llama" : "gpt2", NULL);
        const char *scores = "tokenizer.ggml.scores", *types = "tokenizer.ggml.token_type";
        if (wrong == 0) gguf_set_strings(g, scores, b->tokens, n);
        if (wrong == 1) gguf_set_floats(g, scores, b->scores, n - 1);
        if (wrong == 2) gguf_set_floats(g, scores, b->scores, n + 1);
        if (wrong == 3) gguf_set_u32(g, scores, 1);
        if (wrong == 4) gguf_set_floats(g, types, b->scores, n);
        if (wrong == 5) gguf_set_ints(g, types, b->types, n - 1);
        if (wrong == 6) gguf_set_ints(g, types, b->types, 0);
        if (wrong == 7) gguf_set_str(g, types, "x");
        if (wrong == 8) gguf_set_ints(g, "tokenizer.ggml.merges", b->types, n);
        vocabulary_refused(g, wrong < 4 ? scores : wrong < 8 ? types : "tokenizer.ggml.merges");
    }
    Gguf *g = vocabulary_view(b, "llama", NULL);
    gguf_set_str(g, "tokenizer.ggml.bos_token_id", "1");
    vocabulary_refused(g, "tokenizer.ggml.bos_token_id");
    free(b);
}

// Unusual contents of real files: duplicates, empty strings, bytes that are not UTF-8, unknown types, scores that are
// NaN.
static void test_odd_tokens_accepted(void **state) {
    (void)state;
    for (int spm = 0; spm < 2; spm++) {
        TestVocabulary *b = spm ? vocabulary_spm() : vocabulary_bpe();
        int first = vocabulary_add(b, "xy", GGUF_TOKEN_NORMAL, -1);
        vocabulary_add(b, "xy", GGUF_TOKEN_NORMAL, -1);
        int empty = vocabulary_add(b, "", GGUF_TOKEN_NORMAL, 0);
        vocabulary_add(b, "", GGUF_TOKEN_CONTROL, 0);
        vocabulary_add(b, "", GGUF_TOKEN_USER_DEFINED, 0);
        vocabulary_add(b, "\xff\xfe", GGUF_TOKEN_NORMAL, 0);
        vocabulary_add(b, "q", 77, (float)(0.0 / 0.0));
        vocabulary_add(b, "Q", -1, (float)(1.0 / 0.0));
        b->tokens[b->n] = (Str){"n\0l", 3};
        b->types[b->n++] = GGUF_TOKEN_USER_DEFINED;
        int x = vocabulary_add(b, spm ? "x" : "Ġx", GGUF_TOKEN_NORMAL, -9),
            y = vocabulary_add(b, "y", GGUF_TOKEN_NORMAL, -9);
        vocabulary_add_merge(b, "x y");
        (void)x, (void)y;
        Tokenizer *t = spm ? vocabulary_load_spm(b) : vocabulary_load_bpe(b, "llama-bpe");
        char expected[64];
        snprintf(expected, sizeof expected, spm ? "35 %d" : "%d", first);
        vocabulary_ids_of(t, "xy", expected);
        assert_int_equal(tokenizer_piece(t, empty).n, 0);
        vocabulary_check_round_trip(t, "a\0b", 3);
        tokenizer_free(t);
    }
}

static void test_lengths(void **state) {
    (void)state;
    Tokenizer *t = vocabulary_load_spm(vocabulary_small_spm());
    assert_true(tokenizer_encode(t, NULL, SIZE_MAX, NULL, NULL, 0) == SIZE_MAX); // the text is never read
    assert_true(tokenizer_encode(t, NULL, (size_t)1 << 31, NULL, NULL, 0) == SIZE_MAX);
    assert_true(tokenizer_bound(t, SIZE_MAX) == SIZE_MAX);
    assert_int_equal(tokenizer_encode(t, NULL, 0, NULL, NULL, 0), 0);
    Buf text = {0}; // the most tokens per byte: added tokens, with a space after each
    for (int i = 0; i < 100; i++) buf_str(&text, "<tool>\xff");
    vocabulary_check_ids(t, text.data, 7, NULL, "268 259 258");
    assert_true(tokenizer_encode(t, text.data, text.n, NULL, NULL, 0) <= tokenizer_bound(t, text.n));
    buf_free(&text);
    tokenizer_free(t);
    Tokenizer *none = (Tokenizer *)1;
    Gguf *g = gguf_new("x");
    assert_int_equal(tokenizer_load(g, &none).code, QUILL_MODEL);
    assert_null(none);
    gguf_close(g);
    tokenizer_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_out_of_range_mean_none),
        cmocka_unit_test(test_suppressed),
        cmocka_unit_test(test_whole_scores),
        cmocka_unit_test(test_bos_and_eog),
        cmocka_unit_test(test_html_tag),
        cmocka_unit_test(test_kinds_and_patterns_refused),
        cmocka_unit_test(test_arrays_refused),
        cmocka_unit_test(test_odd_tokens_accepted),
        cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests_name("vocab", tests, NULL, NULL);
}
