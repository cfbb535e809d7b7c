// tests/test_tokenizer.c: text to tokens and back. Outside reference: llama.cpp's test inputs and ids for four
// vocabularies, found through QUILL_TEST_DATA.
#define _GNU_SOURCE // memmem
#include "tests/rig/testing.h"

#include "tests/rig/vocabularies.h"
#include "tokenizer.h"
#include "tokens/pretokenize.h"

#include <limits.h>
#include <time.h>

// ---- outside reference ----------------------------------------------------------------------------------------------

static const char *const references[] = {"gpt-2", "llama-bpe", "llama-spm", "qwen2"};

static Tokenizer *load_reference(const char *name) {
    char file[128];
    snprintf(file, sizeof file, "tokenizers/ggml-vocab-%s.gguf", name);
    Gguf *g;
    assert_ok(gguf_open(test_data(file), &g));
    double start = clock_now();
    Tokenizer *t = vocabulary_load(g);
    print_message("%s: %d tokens loaded in %.1f ms\n", tokenizer_kind(t), tokenizer_n(t), 1e3 * (clock_now() - start));
    return t;
}

static void read_reference(const char *name, const char *suffix, Buf *out) {
    char file[128];
    snprintf(file, sizeof file, "tokenizers/ggml-vocab-%s.gguf.%s", name, suffix);
    assert_ok(file_read(test_data(file), out));
}

static void compare_with_reference(const char *name) {
    Tokenizer *t = load_reference(name);
    Buf texts = {0}, lines = {0};
    read_reference(name, "inp", &texts);
    read_reference(name, "out", &lines);
    const char *separator = "\n__ggml_vocab_test__\n", *end;
    char *line = lines.data;
    int n_cases = 0;
    for (const char *text = texts.data; (end = strstr(text, separator)); text = end + strlen(separator)) {
        char *line_end = strchr(line, '\n');
        assert_non_null(line_end);
        *line_end = 0;
        while (*line == ' ') line++;
        vocabulary_check_ids(t, text, (size_t)(end - text), NULL, line);
        vocabulary_check_round_trip(t, text, (size_t)(end - text));
        line = line_end + 1;
        n_cases++;
    }
    assert_true(n_cases > 40);
    buf_free(&texts);
    buf_free(&lines);
    tokenizer_free(t);
}

static void test_llama_cpp_ids(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(references); i++) compare_with_reference(references[i]);
}

static void test_reference_roles(void **state) {
    (void)state;
    Tokenizer *t = load_reference("llama-bpe");
    assert_string_equal(tokenizer_kind(t), "gpt2/llama-bpe");
    assert_int_equal(tokenizer_bos(t), 128000);
    assert_int_equal(tokenizer_eos(t), 128009);
    assert_true(tokenizer_add_bos(t));
    assert_false(tokenizer_add_eos(t));
    int ids[8];
    assert_int_equal(tokenizer_eog_ids(t, ids, 8), 3);
    assert_int_equal(ids[0], 128001);
    assert_int_equal(ids[1], 128008);
    assert_int_equal(ids[2], 128009);
    assert_int_equal(tokenizer_eog_ids(t, ids, 1), 3);
    assert_int_equal(tokenizer_find(t, str_of("<|start_header_id|>")), 128006);
    assert_true(tokenizer_is_control(t, 128006));
    assert_false(tokenizer_is_eog(t, 128006));
    vocabulary_trusted_ids_of(t, "<|start_header_id|>user", "128006 882");
    tokenizer_free(t);
    t = load_reference("qwen2");
    assert_int_equal(tokenizer_bos(t), -1); // llama.cpp's default is id 11, which is a comma in this vocabulary
    assert_false(tokenizer_add_bos(t));
    assert_true(tokenizer_is_eog(t, tokenizer_find(t, str_of("<|im_end|>"))));
    tokenizer_free(t);
    t = load_reference("llama-spm");
    assert_string_equal(tokenizer_kind(t), "llama");
    assert_true(tokenizer_add_bos(t));
    vocabulary_trusted_ids_of(t, "<s>Hello", "1 15043");
    vocabulary_ids_of(t, "<s>", "529 29879 29958");
    tokenizer_free(t);
}

// ---- byte-level BPE -------------------------------------------------------------------------------------------------

static void test_bpe_ids(void **state) {
    (void)state;
    TestVocabulary *b = vocabulary_bpe();
    vocabulary_add(b, "he", GGUF_TOKEN_NORMAL, 0);     // 256
    vocabulary_add(b, "ll", GGUF_TOKEN_NORMAL, 0);     // 257
    vocabulary_add(b, "hell", GGUF_TOKEN_NORMAL, 0);   // 258
    vocabulary_add(b, "hello", GGUF_TOKEN_NORMAL, 0);  // 259
    vocabulary_add(b, "Ġhello", GGUF_TOKEN_NORMAL, 0); // 260
    vocabulary_add(b, "Ġh", GGUF_TOKEN_NORMAL, 0);     // 261
    vocabulary_add(b, "lo", GGUF_TOKEN_NORMAL, 0);     // 262
    vocabulary_add(b, "ÐĶ", GGUF_TOKEN_NORMAL, 0);     // 263, U+0414
    vocabulary_add(b, "ĊĊ", GGUF_TOKEN_NORMAL, 0);     // 264
    const char *merges[] = {"h e", "l l", "he ll", "hell o", "Ġ hello", "Ġ h", "l o", "Ð Ķ", "Ċ Ċ"};
    for (size_t i = 0; i < ARRAY_LEN(merges); i++) vocabulary_add_merge(b, merges[i]);
    Tokenizer *t = vocabulary_load_bpe(b, "gpt-2");
    assert_string_equal(tokenizer_kind(t), "gpt2/gpt-2");
    vocabulary_ids_of(t, "", "");
    vocabulary_ids_of(t, "hello", "259");
    vocabulary_ids_of(t, "hello hello", "259 260");
    vocabulary_ids_of(t, " hx", "261 120");
    vocabulary_ids_of(t, "lllo", "257 262"); // the leftmost of equal ranks first, then the rest
    vocabulary_ids_of(t, "loll", "262 257"); // "l l" ranks first, then "l o"
    vocabulary_ids_of(t, "Д\n\n", "263 264");
    vocabulary_check_ids(t, "a\0b", 3, NULL, "97 0 98");
    vocabulary_check_ids(t, "\xe6\xad", 2, NULL, "230 173");
    vocabulary_check_ids(t, "\xef\xbb\xbfhi", 5, NULL, "239 187 191 104 105");
    assert_int_equal(tokenizer_find(t, str_of(" hello")), 260);
    assert_int_equal(tokenizer_find(t, str_of("Ġhello")), -1);
    Str s = tokenizer_piece(t, 263);
    assert_true(str_is(s, "Д"));
    int ids[2] = {-7, -7};
    // returns the full number of tokens, like snprintf
    assert_int_equal(tokenizer_encode(t, "abc", 3, NULL, ids, 2), 3);
    assert_int_equal(ids[1], 'b');
    assert_int_equal(tokenizer_encode(t, "abc", 3, NULL, NULL, 0), 3);
    tokenizer_free(t);
}

// llama-bpe uses a token that equals a whole piece, even if merges do not make it.
static void test_ignored_merges(void **state) {
    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        TestVocabulary *b = vocabulary_bpe();
        vocabulary_add(b, "abc", GGUF_TOKEN_NORMAL, 0);
        vocabulary_add(b, "Ġabc", GGUF_TOKEN_CONTROL, 0); // a control token is never made from text
        Tokenizer *t = vocabulary_load_bpe(b, pass ? "llama-bpe" : "smaug-bpe");
        vocabulary_ids_of(t, "abc", pass ? "256" : "97 98 99");
        vocabulary_ids_of(t, " abc", "32 97 98 99");
        assert_int_equal(tokenizer_add_bos(t), 0); // no BOS id
        tokenizer_free(t);
    }
}

static void test_bpe_broken_merges(void **state) {
    (void)state;
    TestVocabulary *b = vocabulary_bpe();
    vocabulary_add(b, "ab", GGUF_TOKEN_NORMAL, 0); // 256
    vocabulary_add(b, "ba", GGUF_TOKEN_NORMAL, 0); // 257
    vocabulary_add(b, "ab", GGUF_TOKEN_NORMAL, 0); // 258, a duplicate that is never used
    vocabulary_add(b, "aa", GGUF_TOKEN_NORMAL, 0); // 259
    const char *merges[] = {"",    " ",   "ab",  "a",   "a b c", "x y",       "zz b", "b a", "a b",
                            "b a", "a  ", "  a", "a a", "ab ba", "\xff \xfe", "€ a",  "a €"};
    for (size_t i = 0; i < ARRAY_LEN(merges); i++) vocabulary_add_merge(b, merges[i]);
    Tokenizer *t = vocabulary_load_bpe(b, "gpt-2");
    vocabulary_ids_of(t, "abab", "97 257 98"); // the rank of "b a" is that of its first place in the list
    vocabulary_ids_of(t, "ab", "256");
    vocabulary_ids_of(t, "aaa", "259 97");
    tokenizer_free(t);

    b = vocabulary_bpe(); // a list without merges; then one with many invalid merges
    t = vocabulary_load_bpe(b, "default");
    vocabulary_ids_of(t, "ab", "97 98");
    tokenizer_free(t);
    b = vocabulary_bpe();
    size_t n = 300000;
    Str *many = mem_alloc(n * sizeof *many);
    for (size_t i = 0; i < n; i++) many[i] = str_of(i % 2 ? "a b" : "ab ab");
    Gguf *g = vocabulary_view(b, "gpt2", "gpt-2");
    gguf_set_strings(g, "tokenizer.ggml.merges", many, n);
    free(many);
    free(b);
    tokenizer_free(vocabulary_load(g));
}

// ---- SentencePiece --------------------------------------------------------------------------------------------------

static void test_spm_ids(void **state) {
    (void)state;
    Tokenizer *t = vocabulary_load_spm(vocabulary_small_spm());
    vocabulary_ids_of(t, "", "");
    vocabulary_ids_of(t, "ab", "264");
    vocabulary_ids_of(t, "abab", "264 263");
    vocabulary_ids_of(t, "ccc", "259 266 265"); // the leftmost of equal scores first
    vocabulary_ids_of(t, " ", "267");
    vocabulary_ids_of(t, "a a", "262 262");
    vocabulary_ids_of(t,
                      "a\xe2\x96\x81"
                      "a",
                      "262 262"); // a literal U+2581 becomes a space
    vocabulary_ids_of(t, "é\n", "259 198 172 13");
    vocabulary_check_ids(t, "a\0", 2, NULL, "262 3");
    vocabulary_check_ids(t, "\xe6\xad", 2, NULL, "259 233 176");
    vocabulary_check_ids(t, "\xf0 a", 3, NULL, "259 243 262"); // an invalid byte must not absorb the next characters
    vocabulary_ids_of(t, "ab<tool>ab", "264 268 264");
    vocabulary_ids_of(t, "<tool>", "268");
    vocabulary_trusted_ids_of(t, "<s>ab</s>ab", "1 264 2 264");
    vocabulary_ids_of(t, "<s>", "259 63 118 65"); // bytes, because the characters have no tokens
    assert_true(str_is(tokenizer_piece(t, 264), " ab"));
    assert_true(str_is(tokenizer_stream_piece(t, 264, true), "ab"));
    assert_true(str_is(tokenizer_stream_piece(t, 264, false), " ab"));
    assert_true(str_is(tokenizer_piece(t, 13), "\n"));
    assert_true(str_is(tokenizer_piece(t, 1), "<s>"));
    assert_int_equal(tokenizer_find(t, str_of("<s>")), 1);
    Buf out = {0};
    tokenizer_decode(t, (int[]){1, 264, 263, 2, 264}, 5, false, &out);
    assert_string_equal(out.data, "abab ab");
    out.n = 0;
    tokenizer_decode(t, (int[]){1, 264, 2}, 3, true, &out);
    assert_string_equal(out.data, "<s>ab</s>");
    buf_free(&out);
    tokenizer_free(t);

    TestVocabulary *b = vocabulary_small_spm();
    Gguf *g = vocabulary_view(b, "llama", "default");
    gguf_set_bool(g, "tokenizer.ggml.add_space_prefix", false);
    free(b);
    t = vocabulary_load(g);
    vocabulary_ids_of(t, "ab ab<tool>ab", "263 264 268 263");
    assert_true(str_is(tokenizer_stream_piece(t, 264, true), " ab"));
    tokenizer_free(t);
}

// Bytes without a token become the unknown token, once for each character, or nothing if there is no unknown token.
// Tokens whose names only resemble bytes are not bytes.
static void test_text_that_goes_on(void **state) {
    (void)state;
    Tokenizer *t = vocabulary_load_spm(vocabulary_small_spm());
    // The last token: text, an added token, a row that the model has beyond the vocabulary.
    const int last[] = {264, 2, 268, tokenizer_n(t), INT_MAX}, expected[] = {263, 264, 264, 263, 263};
    for (size_t i = 0; i < ARRAY_LEN(last); i++) {
        int ids[4];
        assert_int_equal(tokenizer_encode_after(t, last[i], "ab", 2, NULL, ids, 4), 1);
        assert_int_equal(ids[0], expected[i]);
    }
    tokenizer_free(t);
}

// Phi-3's added tokens absorb the white space after them, except those that begin and end a document.
static void test_stripped_text(void **state) {
    (void)state;
    for (int phi = 0; phi < 2; phi++) {
        TestVocabulary *b = vocabulary_spm();
        int user = vocabulary_add(b, "<|user|>", GGUF_TOKEN_CONTROL, 0), ids[8]; // 259
        vocabulary_add(b, "<|endoftext|>", GGUF_TOKEN_CONTROL, 0);               // 260
        Gguf *g = vocabulary_view(b, "llama", NULL);
        gguf_set_str(g, "general.architecture", phi ? "phi3" : "llama");
        free(b);
        Tokenizer *t = vocabulary_load(g);
        vocabulary_trusted_ids_of(t, "<|user|>\n A<|endoftext|> A",
                                  phi ? "259 35 68 260 35 35 68" : "259 35 13 35 68 260 35 35 68");
        vocabulary_trusted_ids_of(t, "<|user|> \t\n\v\f\r<|user|>\n",
                                  phi ? "259 259" : "259 35 35 12 13 14 15 16 259 35 13");
        assert_int_equal(tokenizer_encode_after(t, user, "\nA", 2, NULL, ids, 8), phi ? 2 : 3);
        assert_int_equal(ids[1], phi ? 68 : 13);
        assert_int_equal(tokenizer_encode_after(t, user, " ", 1, NULL, ids, 8), phi ? 0 : 2);
        assert_int_equal(tokenizer_encode_after(t, 68, "\nA", 2, NULL, ids, 8), 2); // after text
        tokenizer_free(t);
    }
}

static void test_spm_missing_bytes(void **state) {
    (void)state;
    for (int unknown = 0; unknown < 2; unknown++) {
        TestVocabulary *b = mem_alloc(sizeof *b);
        vocabulary_add(b, "<unk>", GGUF_TOKEN_UNKNOWN, 0);
        vocabulary_add(b, "▁", GGUF_TOKEN_NORMAL, -1);
        vocabulary_add(b, "a", GGUF_TOKEN_NORMAL, -2);
        vocabulary_add(b, "<0x-1>", GGUF_TOKEN_BYTE, 0);
        vocabulary_add(b, "<0xZZ>", GGUF_TOKEN_BYTE, 0);
        vocabulary_add(b, "<0x41", GGUF_TOKEN_BYTE, 0);
        vocabulary_add(b, "<0x42>", GGUF_TOKEN_NORMAL, 0); // 6: a byte token by its name
        Gguf *g = vocabulary_view(b, "llama", NULL);
        if (!unknown) gguf_set_u32(g, "tokenizer.ggml.unknown_token_id", 0xffffffff);
        free(b);
        Tokenizer *t = vocabulary_load(g);
        vocabulary_ids_of(t, "aBé\n", unknown ? "1 2 6 0 0" : "1 2 6");
        assert_true(str_is(tokenizer_piece(t, 6), "B"));
        assert_true(str_is(tokenizer_piece(t, 4), "<0xZZ>"));
        tokenizer_free(t);
    }
}

// Without types and scores: control tokens are found by their roles, bytes by their names, and the leftmost pair merges
// first.
static void test_spm_bare(void **state) {
    (void)state;
    Gguf *g = gguf_new("bare.gguf");
    gguf_set_str(g, "tokenizer.ggml.model", "llama");
    Str tokens[] = {str_of("<unk>"), str_of("<s>"), str_of("</s>"),  str_of("▁"),
                    str_of("a"),     str_of("aa"),  str_of("<0x62>")};
    gguf_set_strings(g, "tokenizer.ggml.tokens", tokens, ARRAY_LEN(tokens));
    Tokenizer *t = vocabulary_load(g);
    vocabulary_ids_of(t, "aaab<s>", "3 5 4 6 0 0 0");
    vocabulary_trusted_ids_of(t, "a<s>", "3 4 1");
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    assert_true(tokenizer_is_eog(t, 2));
    assert_true(tokenizer_is_control(t, 0));
    tokenizer_free(t);
}

// ---- trust ----------------------------------------------------------------------------------------------------------

// gemma4: SentencePiece text merged by ranks, never across the end of a line, without a space in front. A run of
// newlines that is a token stays whole. A character without a token becomes bytes.
static void test_gemma4_ids(void **state) {
    (void)state;
    enum { BYTES = 4, FIRST = BYTES + 256 };
    static const char *const pieces[] = {"\xe2\x96\x81",
                                         "a",
                                         "b",
                                         "\n",
                                         "\n\n",
                                         "\n\n\n",
                                         "a\xe2\x96\x81",
                                         "ab",
                                         "\xe2\x96\x81"
                                         "ab",
                                         "b\n"};
    Str tokens[FIRST + ARRAY_LEN(pieces)];
    int32_t types[ARRAY_LEN(tokens)];
    static char bytes[256][8];
    const char *const special[] = {"<pad>", "<eos>", "<bos>", "<unk>"};
    for (int i = 0; i < BYTES; i++) tokens[i] = str_of(special[i]), types[i] = GGUF_TOKEN_CONTROL;
    for (int i = 0; i < 256; i++) {
        snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", i);
        tokens[BYTES + i] = str_of(bytes[i]), types[BYTES + i] = GGUF_TOKEN_BYTE;
    }
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
        tokens[FIRST + i] = str_of(pieces[i]), types[FIRST + i] = GGUF_TOKEN_NORMAL;
    const Str merges[] = {str_of("a b"), str_of("b \n"), str_of("a \xe2\x96\x81"), str_of("\xe2\x96\x81 ab"),
                          str_of("\n \n")};
    Gguf *g = gguf_new("gemma4");
    gguf_set_str(g, "tokenizer.ggml.model", "gemma4");
    gguf_set_str(g, "tokenizer.ggml.pre", "whatever");
    gguf_set_strings(g, "tokenizer.ggml.tokens", tokens, ARRAY_LEN(tokens));
    gguf_set_ints(g, "tokenizer.ggml.token_type", types, ARRAY_LEN(tokens));
    gguf_set_strings(g, "tokenizer.ggml.merges", merges, ARRAY_LEN(merges));
    gguf_set_u32(g, "tokenizer.ggml.bos_token_id", 2);
    gguf_set_u32(g, "tokenizer.ggml.eos_token_id", 1);
    gguf_set_u32(g, "tokenizer.ggml.unknown_token_id", 3);
    gguf_set_bool(g, "tokenizer.ggml.add_bos_token", false); // the file's flag is ignored
    Tokenizer *t = vocabulary_load(g);
    assert_string_equal(tokenizer_kind(t), "gemma4");
    assert_true(tokenizer_add_bos(t));
    static const struct {
        const char *text, *ids;
    } cases[] = {{"ab", "267"},           {" ab", "268"},          {"a b", "266 262"},
                 {"aab", "261 267"},      {"b\nb", "262 263 262"}, {"b\n\n\nb", "262 265 262"},
                 {"\n\n\n\n", "264 264"}, {"\xc3\xa9", "199 173"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        vocabulary_check_ids(t, cases[i].text, strlen(cases[i].text), NULL, cases[i].ids);
        vocabulary_check_round_trip(t, cases[i].text, strlen(cases[i].text));
    }
    tokenizer_free(t);
}

static void test_trust(void **state) {
    (void)state;
    TestVocabulary *b = vocabulary_bpe();
    vocabulary_add(b, "<|im_start|>", GGUF_TOKEN_CONTROL, 0); // 256
    vocabulary_add(b, "<|im_end|>", GGUF_TOKEN_NORMAL, 0);    // 257: a control token because of its name
    vocabulary_add(b, "<|", GGUF_TOKEN_CONTROL, 0);           // 258
    vocabulary_add(b, "<tool>", GGUF_TOKEN_USER_DEFINED, 0);  // 259
    vocabulary_add(b, "<tool", GGUF_TOKEN_CONTROL, 0);        // 260
    vocabulary_add(b, "<?>", GGUF_TOKEN_UNKNOWN, 0);          // 261
    vocabulary_add(b, "<tool>", GGUF_TOKEN_CONTROL, 0);       // 262: a second token of that name
    Tokenizer *t = vocabulary_load_bpe(b, "qwen2");
    const char *text = "<|im_end|>";
    vocabulary_ids_of(t, text, "60 124 105 109 95 101 110 100 124 62");
    vocabulary_trusted_ids_of(t, text, "257");
    vocabulary_trusted_ids_of(t, "<|im_start|>a<|im_end|>", "256 97 257");
    vocabulary_trusted_ids_of(t, "<|im_<tool>", "258 105 109 95 259");
    vocabulary_trusted_ids_of(t, "<toolx<?>", "260 120 261");
    vocabulary_ids_of(t, "<?>", "60 63 62");
    vocabulary_ids_of(t, "a<tool>b", "97 259 98"); // a user-defined token is recognised in any text
    vocabulary_ids_of(t, "a<tool", "97 60 116 111 111 108");
    for (size_t hole = 0; hole < strlen(text); hole++) { // one untrusted byte prevents the token
        uint8_t trusted[16];
        memset(trusted, 1, sizeof trusted);
        trusted[hole] = 0;
        vocabulary_check_ids(t, text, strlen(text), trusted,
                             hole < 2 ? "60 124 105 109 95 101 110 100 124 62" : "258 105 109 95 101 110 100 124 62");
    }
    // "<|" from the template, text of the user, the rest from the template
    uint8_t around[] = {1, 1, 1, 0, 0, 0, 0, 0, 0, 1};
    vocabulary_check_ids(t, "<|x<|a<|>y", 10, around, "258 120 60 124 97 60 124 62 121");
    assert_true(tokenizer_is_eog(t, 257));
    assert_true(tokenizer_is_control(t, 257));
    assert_false(tokenizer_is_control(t, 259));
    assert_int_equal(tokenizer_find(t, str_of("<tool>")), 259);
    tokenizer_free(t);
}

// Merges that spell the name of a control token must not give that control token.
static void test_merges_make_no_control_token(void **state) {
    (void)state;
    TestVocabulary *b = vocabulary_bpe();
    vocabulary_add(b, "ab", GGUF_TOKEN_NORMAL, 0);
    vocabulary_add(b, "abc", GGUF_TOKEN_CONTROL, 0); // 257
    vocabulary_add_merge(b, "a b");
    vocabulary_add_merge(b, "ab c");
    Tokenizer *t = vocabulary_load_bpe(b, "gpt-2");
    vocabulary_ids_of(t, "abc", "256 99");
    vocabulary_trusted_ids_of(t, "abc", "257");
    tokenizer_free(t);

    b = vocabulary_small_spm();
    vocabulary_add(b, "<", GGUF_TOKEN_NORMAL, -20);
    vocabulary_add(b, "s", GGUF_TOKEN_NORMAL, -20);
    int open = vocabulary_add(b, "<s", GGUF_TOKEN_NORMAL, -1);
    int close = vocabulary_add(b, ">", GGUF_TOKEN_NORMAL, -20);
    char expected[64];
    snprintf(expected, sizeof expected, "259 %d %d", open, close);
    t = vocabulary_load_spm(b);
    vocabulary_ids_of(t, "<s>", expected);
    tokenizer_free(t);
}

// ---- random bytes ---------------------------------------------------------------------------------------------------

static void random_text(uint64_t *seed, char *out, size_t n) {
    static const char *const bits[] = {" ", "  ", "\n", "a",  "ab",   "x",        "中",
                                       "é", "'s", "12", "\r", "\xff", "\xe2\x96", "<s>"};
    size_t at = 0;
    while (at < n) {
        uint64_t r = test_random(seed);
        const char *bit = bits[r % ARRAY_LEN(bits)];
        if (r >> 60 < 4 || strlen(bit) > n - at) out[at++] = (char)(r >> 32);
        else {
            memcpy(out + at, bit, strlen(bit));
            at += strlen(bit);
        }
        if (at >= 3 && memcmp(out + at - 3, "\xe2\x96\x81", 3) == 0) out[at - 1] = '.'; // a space in SentencePiece
    }
}

static void test_random_bytes_round_trip(void **state) {
    (void)state;
    uint64_t seed = 20240611;
    char text[200];
    Tokenizer *spm = vocabulary_load_spm(vocabulary_small_spm());
    for (int i = 0; i < 3000; i++) {
        size_t n = test_random(&seed) % sizeof text;
        random_text(&seed, text, n);
        for (size_t k = 0; k + 5 < n; k++)
            if (memcmp(text + k, "<tool>", 6) == 0) text[k] = '-';
        if (n < 3 || !memmem(text, n, "\xe2\x96\x81", 3)) vocabulary_check_round_trip(spm, text, n);
    }
    tokenizer_free(spm);
    Buf names = {0}; // one pattern for each row
    pretokenizer_names(&names);
    for (char *name = strtok(names.data, " "); name; name = strtok(NULL, " ")) {
        TestVocabulary *b = vocabulary_bpe();
        vocabulary_add(b, "ab", GGUF_TOKEN_NORMAL, 0);
        vocabulary_add(b, "ĠĠ", GGUF_TOKEN_NORMAL, 0);
        vocabulary_add(b, "Ġab", GGUF_TOKEN_NORMAL, 0);
        vocabulary_add_merge(b, "a b");
        vocabulary_add_merge(b, "Ġ Ġ");
        vocabulary_add_merge(b, "Ġ ab");
        Tokenizer *t = vocabulary_load_bpe(b, name);
        for (int i = 0; i < 200; i++) {
            size_t n = test_random(&seed) % sizeof text;
            random_text(&seed, text, n);
            vocabulary_check_round_trip(t, text, n);
        }
        tokenizer_free(t);
    }
    buf_free(&names);
}

// ---- long runs ------------------------------------------------------------------------------------------------------

static double encode_time(const Tokenizer *t, const char *unit, const char *last) {
    size_t n = 1 << 20, n_unit = strlen(unit);
    char *text = mem_alloc(n);
    for (size_t i = 0; i < n; i++) text[i] = unit[i % n_unit];
    memcpy(text + n - strlen(last), last, strlen(last));
    int *ids = mem_alloc(tokenizer_bound(t, n) * sizeof *ids);
    clock_t start = clock(); // CPU time, so that other load has no effect
    size_t n_ids = tokenizer_encode(t, text, n, NULL, ids, tokenizer_bound(t, n));
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    assert_true(n_ids > 0 && n_ids <= tokenizer_bound(t, n));
    assert_true(seconds < 20); // n log n; quadratic time would take hours
    free(text);
    free(ids);
    return seconds;
}

static void check_long_runs(const Tokenizer *t) {
    static const struct {
        const char *name, *unit, *last;
    } runs[] = {{"A", "A", ""},
                {"spaces", " ", ""},
                {"spaces, 1", " ", "1"},
                {"line ends", "\n", ""},
                {"Chinese", "中文说", ""},
                {"digits", "7", ""},
                {"digits, a", "7", "a"},
                {"'aB ", "'aB ", ""},
                {"marks", "ा", ""},
                {"space, newline", " \n", "x"},
                {"bytes", "\xff", ""}};
    double worst = 0;
    const char *slowest = "";
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
        double seconds = encode_time(t, runs[i].unit, runs[i].last);
        if (seconds > worst) worst = seconds, slowest = runs[i].name;
    }
    print_message("%s: 1 MiB in at most %.0f ms (%s)\n", tokenizer_kind(t), 1e3 * worst, slowest);
}

static void test_long_runs(void **state) {
    (void)state;
    static const char *const merges[] = {"A A", "AA AA", "Ġ Ġ", "ĠĠ ĠĠ", "Ċ Ċ", "7 7", "77 77"};
    Buf names = {0};
    pretokenizer_names(&names);
    for (char *name = strtok(names.data, " "); name; name = strtok(NULL, " ")) {
        TestVocabulary *b = vocabulary_bpe();
        const char *tokens[] = {"AA", "AAAA", "ĠĠ", "ĠĠĠĠ", "ĊĊ", "77", "7777"};
        for (size_t i = 0; i < ARRAY_LEN(tokens); i++)
            vocabulary_add(b, tokens[i], GGUF_TOKEN_NORMAL, 0), vocabulary_add_merge(b, merges[i]);
        Tokenizer *t = vocabulary_load_bpe(b, name);
        check_long_runs(t);
        tokenizer_free(t);
    }
    buf_free(&names);
    Tokenizer *t = vocabulary_load_spm(vocabulary_small_spm());
    check_long_runs(t);
    tokenizer_free(t);
}

static void test_long_runs_of_references(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(references); i++) {
        Tokenizer *t = load_reference(references[i]);
        check_long_runs(t);
        tokenizer_free(t);
    }
}

// A thousand added tokens with the same beginning, and a text made of that beginning.
static void test_many_added_tokens(void **state) {
    (void)state;
    TestVocabulary *b = vocabulary_spm();
    static char names[700][32];
    for (int i = 0; i < 700; i++) {
        snprintf(names[i], sizeof names[i], "<|reserved_%d|>", i);
        vocabulary_add(b, names[i], GGUF_TOKEN_USER_DEFINED, 0);
    }
    Tokenizer *t = vocabulary_load_spm(b);
    vocabulary_ids_of(t, "<|reserved_69|><|reserved_699|>", "328 958");
    double first = encode_time(t, "<", ""), second = encode_time(t, "<|reserved_69", "");
    print_message("1 MiB against 700 added tokens: %.0f ms, %.0f ms\n", 1e3 * first, 1e3 * second);
    tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_cpp_ids),
        cmocka_unit_test(test_reference_roles),
        cmocka_unit_test(test_bpe_ids),
        cmocka_unit_test(test_ignored_merges),
        cmocka_unit_test(test_bpe_broken_merges),
        cmocka_unit_test(test_spm_ids),
        cmocka_unit_test(test_text_that_goes_on),
        cmocka_unit_test(test_stripped_text),
        cmocka_unit_test(test_spm_missing_bytes),
        cmocka_unit_test(test_spm_bare),
        cmocka_unit_test(test_gemma4_ids),
        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_merges_make_no_control_token),
        cmocka_unit_test(test_random_bytes_round_trip),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_long_runs_of_references),
        cmocka_unit_test(test_many_added_tokens),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
