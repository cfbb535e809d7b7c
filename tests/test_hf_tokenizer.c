// tests/test_hf_tokenizer.c: tokenizer.json and related files: the ids must be those of the tokenizers library; each
// supported part is tested, and errors must name each unsupported one. Also tests the reader of large JSON files.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include "base/jsonio.h"
#include "base/jsonwalk.h"
#include "hf/hf.h"
#include "hf/regex.h"
#include "tests/rig/directory.h"
#include "tests/rig/hf_directory.h"
#include "tests/rig/tiny_model.h"
#include "tokenizer.h"
#include "tokens/normalize.h"
#include "tokens/pretokenize.h"

#include <sys/stat.h>

enum { MOST_IDS = 4096 };

// Encodes with all of the text trusted, as the library does.
static int encode(const Tokenizer *t, Str text, int *ids) {
    uint8_t *trusted = malloc(text.n + 1);
    memset(trusted, 1, text.n + 1);
    size_t n = tokenizer_encode(t, text.data, text.n, trusted, ids, MOST_IDS);
    assert_true(n <= MOST_IDS && n <= tokenizer_bound(t, text.n));
    free(trusted);
    return (int)n;
}

static void check_ids(const Tokenizer *t, const char *text, const int *want, size_t n_want) {
    int ids[MOST_IDS], n = encode(t, str_of(text), ids);
    bool same = (size_t)n == n_want && (n == 0 || memcmp(ids, want, n_want * sizeof *ids) == 0);
    if (same) return;
    fprintf(stderr, "\"%s\":", text);
    for (int i = 0; i < n; i++) fprintf(stderr, " %d", ids[i]);
    fail_msg(" found, %zu ids expected", n_want);
}
#define CHECK_IDS(t, text, ...) check_ids(t, text, (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / 4)

// ---- reference ------------------------------------------------------------------------------------------------------

static int json_ids(const json_t *list, int *out) {
    for (size_t i = 0; i < json_array_size(list); i++) out[i] = (int)json_integer_value(json_array_get(list, i));
    return (int)json_array_size(list);
}

static void check_case(const Tokenizer *t, const char *name, Str text, const json_t *of, size_t i) {
    int ids[MOST_IDS + 1], want[MOST_IDS], n = encode(t, text, ids + 1);
    int n_want = json_ids(json_array_get(json_object_get(of, "ids"), i), want);
    if (n != n_want || (n && memcmp(ids + 1, want, (size_t)n * sizeof *want)))
        fail_msg("%s: other ids for text %zu: %.*s", name, i, (int)text.n, text.data);
    const json_t *decoded = json_array_get(json_object_get(of, "decoded"), i);
    Buf back = {0};
    buf_str(&back, "");
    tokenizer_decode(t, ids + 1, (size_t)n, true, &back);
    // After a leading special token the library shows the space that encoding added; the text had none.
    Str shown = {back.data, back.n};
    if (!str_is(shown, json_string_value(decoded)) && !str_eq(shown, text))
        fail_msg("%s: text %zu: \"%s\" expected, \"%s\" decoded", name, i, json_string_value(decoded), back.data);
    buf_free(&back);
    ids[0] = tokenizer_bos(t);
    int first = tokenizer_add_bos(t) ? 0 : 1;
    n_want = json_ids(json_array_get(json_object_get(of, "ids_with_special_tokens"), i), want);
    assert_int_equal(n + 1 - first, n_want);
    assert_true(n_want == 0 || memcmp(ids + first, want, (size_t)n_want * sizeof *want) == 0);
}

static void test_golden(void **state) {
    (void)state;
    static const char *const names[] = {"qwen3", "llama", "gemma3"};
    json_t *all = json_load_file(test_data("golden/hf/tokenizers.json"), 0, NULL),
           *texts = json_object_get(all, "texts");
    assert_int_equal(json_array_size(texts), 40);
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        char dir[64];
        Gguf *g;
        Tokenizer *t;
        snprintf(dir, sizeof dir, "golden/hf/%s", names[k]);
        assert_ok(hf_open(test_data(dir), &g));
        assert_ok(tokenizer_load(g, &t));
        for (size_t i = 0; i < 40; i++) {
            const json_t *text = json_array_get(texts, i);
            check_case(t, names[k], (Str){json_string_value(text), json_string_length(text)},
                       json_object_get(all, names[k]), i);
        }
        tokenizer_free(t);
        gguf_close(g);
    }
    json_decref(all);
}

// A real vocabulary of 151,000 tokens, written as tokenizer.json by the rig, must give the ids of its GGUF file.
static void test_real_vocabulary(void **state) {
    (void)state;
    static const char *const files[] = {"qwen2"};
    for (size_t k = 0; k < ARRAY_LEN(files); k++) {
        char file[64], dir[1024];
        Gguf *vocab, *model, *g;
        Tokenizer *want, *got;
        snprintf(file, sizeof file, "tokenizers/ggml-vocab-%s.gguf", files[k]);
        assert_ok(gguf_open(test_data(file), &vocab)); // first: it may skip the test
        model = tiny_model(&(TinyModel){.arch = "qwen3"});
        for (int i = 0; i < gguf_n_values(vocab); i++) {
            const GgufValue *v = gguf_value_at(vocab, i);
            if (str_has_prefix(v->key, "tokenizer.")) gguf_set(model, v);
        }
        snprintf(dir, sizeof dir, "%s", test_tmp("real"));
        remove_directory(dir);
        hf_directory_write(model, dir, &(HfDirectory){.merges_as_text = k});
        assert_ok(hf_open(dir, &g));
        assert_ok(tokenizer_load(model, &want));
        assert_ok(tokenizer_load(g, &got));
        Buf text = {0};
        snprintf(file, sizeof file, "tokenizers/ggml-vocab-%s.gguf.inp", files[k]);
        assert_ok(file_read(test_data(file), &text));
        int ids[MOST_IDS], n = encode(want, str_of_buf(&text), ids);
        check_ids(got, text.data, ids, (size_t)n);
        buf_free(&text);
        tokenizer_free(want);
        tokenizer_free(got);
        gguf_close(vocab);
        gguf_close(model);
        gguf_close(g);
        remove_directory(dir);
    }
}

// ---- parts ----------------------------------------------------------------------------------------------------------

// A tokenizer with a vocabulary of a few letters. `parts`: additional members of tokenizer.json; `model`: additional
// members of its object "model". \xc4\xa0 is the space in byte-level vocabularies.
static Tokenizer *tokenizer_of(const char *parts, const char *model, const char *vocab, const char *config) {
    Buf text = {0};
    buf_printf(&text, "{%s, \"model\": {\"type\": \"BPE\"%s, \"vocab\": {%s}}}", parts, model, vocab);
    Gguf *g = gguf_new("t");
    Tokenizer *t;
    assert_ok(hf_tokenizer_memory("t", str_of_buf(&text), config, g));
    assert_ok(tokenizer_load(g, &t));
    gguf_close(g);
    buf_free(&text);
    return t;
}

#define BYTES "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}"
#define LETTERS "\"a\": 0, \"b\": 1, \"c\": 2, \"\\u0120\": 3, \"ab\": 4, \"\\u0120a\": 5, \"abc\": 6"
#define MERGES ", \"merges\": [\"a b\", [\"\\u0120\", \"a\"], \"ab c\"]"

static void test_merges(void **state) {
    (void)state;
    Tokenizer *t = tokenizer_of(BYTES, MERGES, LETTERS, NULL);
    CHECK_IDS(t, "abc ab a", 6, 3, 4, 5);
    tokenizer_free(t);
    t = tokenizer_of(BYTES, ", \"merges\": [], \"ignore_merges\": true", LETTERS, NULL);
    CHECK_IDS(t, "abc abab", 6, 3, 0, 1, 0, 1);
    tokenizer_free(t);
    t = tokenizer_of(BYTES, ", \"merges\": [\"a b\", \"b c\", \"a b\"]", LETTERS ", \"bc\": 7", NULL);
    CHECK_IDS(t, "abc", 0, 7); // of equal merges the last one counts
    tokenizer_free(t);
    t = tokenizer_of(BYTES, MERGES, LETTERS, NULL);
    CHECK_IDS(t, "axb x c", 4, 3, 3, 2); // a byte without a token is left out: its neighbours merge
    CHECK_IDS(t, "xx");
    tokenizer_free(t);
    t = tokenizer_of(BYTES, MERGES ", \"unk_token\": \"<u>\"", LETTERS ", \"<u>\": 7", NULL);
    CHECK_IDS(t, "axxb", 0, 7, 7, 1);
    tokenizer_free(t);
}

static void test_added_tokens(void **state) {
    (void)state;
    Tokenizer *t = tokenizer_of(BYTES ", \"added_tokens\": ["
                                      "{\"id\": 7, \"content\": \"<x>\", \"special\": true}, "
                                      "{\"id\": 8, \"content\": \"<y>\", \"special\": false}, "
                                      "{\"id\": 9, \"content\": \"<r>\", \"special\": true, \"rstrip\": true}, "
                                      "{\"id\": 12, \"content\": \"<l>\", \"special\": true, \"lstrip\": true}]",
                                MERGES, LETTERS, NULL);
    assert_int_equal(tokenizer_n(t), 13); // ids 10 and 11 have no text
    CHECK_IDS(t, "a<x>b<y>c", 0, 7, 1, 8, 2);
    CHECK_IDS(t, "a<r> \n\xe3\x80\x80 b<r>", 0, 9, 1, 9);
    CHECK_IDS(t, "a \xc2\xa0 <l> b", 0, 12, 3, 1);
    CHECK_IDS(t, " <l><l>", 12, 12);
    int ids[16];
    assert_int_equal(tokenizer_encode_after(t, 9, " \n b", 4, NULL, ids, 16), 1);
    assert_int_equal(ids[0], 1);
    assert_int_equal(tokenizer_encode(t, "<x><y>", 6, NULL, ids, 16),
                     1); // untrusted text is not the token <x>, and this vocabulary has no letters < x >
    assert_int_equal(ids[0], 8);
    assert_true(tokenizer_is_control(t, 7) && !tokenizer_is_control(t, 8));
    tokenizer_free(t);
}

// A letter that the file marks as special is text, unless it ends an answer: it has no other token.
static void test_special_letters(void **state) {
    (void)state;
#define SPECIAL_LETTERS                                                                                                \
    BYTES ", \"added_tokens\": [{\"id\": 0, \"content\": \"a\", \"special\": true}, "                                  \
          "{\"id\": 2, \"content\": \"c\", \"special\": true}]"
    int ids[16];
    Tokenizer *t = tokenizer_of(SPECIAL_LETTERS, MERGES, LETTERS, "{\"eos_token\": \"c\", \"pad_token\": \"a\"}");
    assert_int_equal(tokenizer_encode(t, "bab a", 5, NULL, ids, 16), 5);
    assert_memory_equal(ids, ((const int[]){1, 0, 1, 3, 0}), 5 * sizeof *ids);
    assert_true(!tokenizer_is_control(t, 0) && tokenizer_is_control(t, 2));
    tokenizer_free(t);
}

// An added token </s> that is not special is text, as in Gemma's vocabulary, unless it ends an answer.
static void test_html_tags(void **state) {
    (void)state;
#define TAGS                                                                                                           \
    BYTES ", \"added_tokens\": [{\"id\": 7, \"content\": \"<s>\", \"special\": false}, "                               \
          "{\"id\": 8, \"content\": \"</s>\", \"special\": false}, "                                                   \
          "{\"id\": 9, \"content\": \"<eos>\", \"special\": true}]"
    int ids[16];
    Tokenizer *t = tokenizer_of(TAGS, MERGES, LETTERS, "{\"eos_token\": \"<eos>\"}");
    CHECK_IDS(t, "<s>a</s>b", 7, 0, 8, 1);
    assert_int_equal(tokenizer_encode(t, "a</s>", 5, NULL, ids, 16), 2);
    assert_int_equal(ids[1], 8);
    assert_true(!tokenizer_is_eog(t, 8) && !tokenizer_is_control(t, 8) && tokenizer_is_eog(t, 9));
    tokenizer_free(t);
    t = tokenizer_of(TAGS, MERGES, LETTERS, "{\"eos_token\": \"</s>\"}");
    CHECK_IDS(t, "a</s>", 0, 8);
    assert_true(tokenizer_is_eog(t, 8) && tokenizer_is_control(t, 8));
    tokenizer_free(t);
}

#define MARK "\xe2\x96\x81"
#define SPACES "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" MARK "\"}"
#define META(scheme, split)                                                                                            \
    "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"" MARK "\", \"prepend_scheme\": \"" scheme        \
    "\", \"split\": " split "}, \"added_tokens\": [{\"id\": 0, \"content\": \"<u>\", \"special\": true}]"
#define SPM_LETTERS                                                                                                    \
    "\"<u>\": 0, \"a\": 1, \"b\": 2, \"" MARK "\": 3, \"" MARK "a\": 4, \"a" MARK "\": 5, \"<0xC3>\": 6, \"<0xA9>\": " \
    "7"
#define SPM_MERGES ", \"merges\": [[\"a\", \"" MARK "\"], [\"" MARK "\", \"a\"]], \"unk_token\": \"<u>\""

static void test_spaces(void **state) {
    (void)state;
    Tokenizer *t = tokenizer_of(SPACES, SPM_MERGES ", \"byte_fallback\": true, \"fuse_unk\": true", SPM_LETTERS, NULL);
    CHECK_IDS(t, "a a", 5, 1);
    CHECK_IDS(t, "\xc3\xa9", 6, 7);
    CHECK_IDS(t, "xyza\xe4\xbd\xa0", 0, 1, 0); // unknown characters that follow each other become one token
    tokenizer_free(t);
    t = tokenizer_of(META("always", "true"), SPM_MERGES, SPM_LETTERS, NULL); // pieces begin with the space mark
    CHECK_IDS(t, "a a", 4, 4);
    CHECK_IDS(t, " a<u>a", 4, 0, 4);
    CHECK_IDS(t, "xx", 3, 0, 0);
    tokenizer_free(t);
    t = tokenizer_of(META("first", "false"), SPM_MERGES, SPM_LETTERS, NULL);
    CHECK_IDS(t, "a<u>a", 4, 0, 1);
    CHECK_IDS(t, "<u>a", 0, 1);
    tokenizer_free(t);
    t = tokenizer_of(META("never", "false"), SPM_MERGES, SPM_LETTERS, NULL);
    CHECK_IDS(t, "a b", 5, 2);
    tokenizer_free(t);
    // without an unknown token other characters are left out; no text gives a token with a space
    t = tokenizer_of(META("always", "true"), ", \"merges\": [[\"" MARK "\", \"a\"]]",
                     "\" \": 1, \"a\": 2, \" a\": 3, \"" MARK "\": 4, \"" MARK "a\": 5", NULL);
    CHECK_IDS(t, "xa  a", 5, 4, 5);
    CHECK_IDS(t, "x", 4);
    tokenizer_free(t);
    t = tokenizer_of("\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"" MARK "\"}, " META("always", "true"),
                     SPM_MERGES, SPM_LETTERS, NULL);
    CHECK_IDS(t, " a", 3, 4); // Prepend comes first, whatever the text begins with
    tokenizer_free(t);
}

static void test_patterns(void **state) {
    (void)state;
#define SPLIT(pattern)                                                                                                 \
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {" pattern     \
    "}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "       \
    "\"use_regex\": false}]}"
    Tokenizer *t = tokenizer_of(SPLIT("\"Regex\": \"b\""), MERGES, LETTERS, NULL);
    CHECK_IDS(t, "abc a", 0, 1, 2, 5);
    assert_string_equal(tokenizer_kind(t), "gpt2/regex");
    tokenizer_free(t);
    t = tokenizer_of(SPLIT("\"String\": \" \""), MERGES, LETTERS, NULL);
    CHECK_IDS(t, "abc a", 6, 3, 0);
    tokenizer_free(t);
    t = tokenizer_of(SPLIT("\"Regex\": \"\\\\s+(?!\\\\S)|[^\\\\s]+\""), MERGES, LETTERS,
                     NULL); // \s inside and outside of a set
    CHECK_IDS(t, "ab  a", 4, 3, 3, 0);
    tokenizer_free(t);
    // the script's own characters: U+3001 is shared by several; \v is one character
    t = tokenizer_of(SPLIT("\"Regex\": \"\\\\p{Han}+|[\\\\p{^Latin}]b|\\\\v|\\\\w+\""), MERGES, LETTERS, NULL);
    tokenizer_free(t);
    // takes exponential time; the limit of PCRE2 stops it
    t = tokenizer_of(SPLIT("\"Regex\": \"(a+)+$\""), MERGES, LETTERS, NULL);
    char slow[64];
    memset(slow, 'a', 60);
    strcpy(slow + 60, "bab");
    int ids[MOST_IDS];
    assert_int_equal(encode(t, str_of(slow), ids), 61);
    tokenizer_free(t);
}

// Patterns that match the empty string: the pieces are those of the tokenizers library, version 0.23.3.
static void test_empty_matches(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *text, *pieces;
    } cases[] = {
        {"(?=(\\d{3})+(?!\\d))", "1234567", "1|234|567"},
        {"(?=(\\d{3})+(?!\\d))", "4 1234 12", "4 1|234 12"},
        {"(?<=\\d)(?=(?:\\d{3})+$)", "12345678", "12|345|678"},
        {"^\\s*", "  x\n  y", "  |x\n|  |y"},
        {"x*", "abxxc", "a|b|xx|c"},
        {"a*|b", "aab", "aa|b"},
        {"b|(?=c)", "bcb", "b|c|b"},
        {"b|(?=c)", "abxxc", "a|b|xx|c"},
        {"\303\251*", "\303\251a\303\251\303\251", "\303\251|a|\303\251\303\251"},
        {"$", "aa\n\n", "aa|\n|\n"},
        {"", "a\303\251", "a|\303\251"},
        {"\\b", "a-\303\251 b", "a|-|\303\251| |b"},
        {"\\B", "  x y", " | x y"},
        {"\\bab|c", "cabc ab", "c|ab|c| |ab"},
        // characters of words: U+00BD only outside of a set, U+24B6 and U+2160, but not U+2460
        {"\\w+", "-a\302\275\342\222\266\342\205\240\342\221\240-",
         "-|a\302\275\342\222\266\342\205\240|\342\221\240-"},
        {"[\\w]+", "-a\302\275\342\222\266\342\205\240-", "-|a|\302\275|\342\222\266\342\205\240|-"},
        {"[[:punct:]]+", "a+\302\251\302\253b", "a|+\302\251\302\253|b"},
        {"[[:alpha:]_]+", "1\340\244\225\340\244\277_2", "1|\340\244\225\340\244\277_|2"},
        {"[[:space:]]+", "a \302\205\341\240\216b", "a| \302\205|\341\240\216b"},
        {"\\d{,2}", "1234a", "12|34|a"},
        {"(?i)A|b", "cab", "c|a|b"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Buf pattern = {0}, found = {0};
        Pretokenizer *p;
        int n;
        buf_str(&pattern, "");
        buf_str(&found, "");
        assert_ok(hf_regex("t", cases[i].pattern, &pattern));
        assert_ok(pretokenizer_of_patterns(&(Str){pattern.data, pattern.n}, 1, &p));
        const PretokenPiece *piece = pretokenizer_split(p, cases[i].text, (int)strlen(cases[i].text), &n);
        for (int k = 0; k < n; k++) {
            buf_str(&found, k ? "|" : "");
            buf_append(&found, cases[i].text + piece[k].begin, (size_t)(piece[k].end - piece[k].begin));
        }
        assert_string_equal(found.data, cases[i].pieces);
        pretokenizer_free(p);
        buf_free(&pattern);
        buf_free(&found);
    }
    // one token for each number below a thousand; the groups of digits are counted from the right
    Tokenizer *t = tokenizer_of(SPLIT("\"Regex\": \"(?=(\\\\d{3})+(?!\\\\d))\""), ", \"merges\": [\"1 2\", \"2 3\"]",
                                "\"1\": 0, \"2\": 1, \"3\": 2, \"12\": 3, \"23\": 4", NULL);
    CHECK_IDS(t, "1231", 0, 4, 0);
    CHECK_IDS(t, "123123", 3, 2, 3, 2);
    tokenizer_free(t);
}

static void test_forms(void **state) {
    (void)state;
    static const struct {
        NormalForm form;
        const char *in, *out;
    } cases[] = {
        {NORMALIZE_NFC, "plain", "plain"},
        {NORMALIZE_NFC, "e\xcc\x81", "\xc3\xa9"},
        {NORMALIZE_NFD, "\xc3\xa9!", "e\xcc\x81!"},
        {NORMALIZE_NFC, "\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"}, // a character that becomes longer
        {NORMALIZE_NFKC, "\xef\xac\x81", "fi"},
        {NORMALIZE_NFC,
         "\xff"
         "e\xcc\x81\xcc",
         "\xff\xc3\xa9\xcc"}, // invalid bytes do not change
        {NORMALIZE_NFC, "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"},
        {NORMALIZE_NFC, "a\xcc\x96\xcc\x81", "\xc3\xa1\xcc\x96"}, // combining marks are sorted
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Buf out = {0};
        normalize_append(&out, cases[i].form, str_of(cases[i].in));
        assert_string_equal(out.data, cases[i].out);
        assert_true(out.n <= strlen(cases[i].in) * normalize_growth(cases[i].form));
        buf_free(&out);
    }
    Buf marks = {0}, out = {0}; // a sort in quadratic time would take minutes
    for (int i = 0; i < 100000; i++) buf_str(&marks, i % 2 ? "\xcc\x81" : "\xcc\x96");
    normalize_append(&out, NORMALIZE_NFC, str_of_buf(&marks));
    assert_int_equal(out.n, marks.n);
    buf_free(&marks);
    buf_free(&out);
}

// ---- roles and templates --------------------------------------------------------------------------------------------

static void test_roles(void **state) {
    (void)state;
#define SPECIAL                                                                                                        \
    BYTES ", \"added_tokens\": [{\"id\": 7, \"content\": \"<x>\", \"special\": true}, {\"id\": 8, \"content\": "       \
          "\"<y>\", "                                                                                                  \
          "\"special\": true}]"
    Tokenizer *t = tokenizer_of(SPECIAL, MERGES, LETTERS,
                                "{\"bos_token\": {\"content\": \"<x>\"}, \"eos_token\": \"<y>\", "
                                "\"add_bos_token\": true, \"model_max_length\": 1e30}");
    assert_true(tokenizer_bos(t) == 7 && tokenizer_eos(t) == 8 && tokenizer_add_bos(t) && !tokenizer_add_eos(t));
    assert_true(tokenizer_is_eog(t, 8) && !tokenizer_is_eog(t, 7));
    tokenizer_free(t);
    t = tokenizer_of(SPECIAL
                     ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
                     "{\"id\": \"<y>\"}}, {\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": {\"<y>\": {\"ids\": "
                     "[8]}}}",
                     MERGES, LETTERS, "{\"bos_token\": null}");
    assert_true(tokenizer_bos(t) == 8 && tokenizer_add_bos(t));
    tokenizer_free(t);
    // the template's last token, which is not EOS
    t = tokenizer_of(SPECIAL
                     ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": "
                     "\"A\"}}, {\"SpecialToken\": {\"id\": \"<y>\"}}], \"special_tokens\": {\"<y>\": {\"ids\": [8]}}}",
                     MERGES, LETTERS, "{\"eos_token\": \"<x>\"}");
    assert_true(tokenizer_add_eos(t) && tokenizer_eos(t) == 7 && tokenizer_last(t) == 8);
    assert_true(tokenizer_is_eog(t, 7) && !tokenizer_is_eog(t, 8));
    tokenizer_free(t);
    t = tokenizer_of(SPECIAL ", \"post_processor\": {\"type\": \"ByteLevel\", \"trim_offsets\": false}", MERGES,
                     LETTERS, "{\"eos_token\": \"<x>\", \"add_eos_token\": true}");
    assert_true(tokenizer_add_eos(t) && tokenizer_last(t) == 7);
    tokenizer_free(t);
    t = tokenizer_of(SPECIAL, MERGES, LETTERS, "{\"bos_token\": null}");
    assert_true(tokenizer_bos(t) == -1 && !tokenizer_add_bos(t));
    tokenizer_free(t);
}

static char *get_str(const Gguf *g, const char *key) {
    static char text[200];
    Str s;
    assert_ok(gguf_str(g, key, &s, false));
    snprintf(text, sizeof text, "%.*s", (int)s.n, s.data ? s.data : "");
    return text;
}

// additional_chat_templates/tool_use.jinja overrides the template of that name. dir: room for 60 more bytes
static void check_tools_template(char *dir) {
    Gguf *g;
    snprintf(dir + strlen(dir), 40, "/additional_chat_templates");
    mkdir(dir, 0755);
    hf_directory_text(dir, "tool_use.jinja", "tools of a file");
    *strrchr(dir, '/') = 0;
    assert_ok(hf_open(dir, &g));
    assert_string_equal(get_str(g, "tokenizer.chat_template"), "usual");
    assert_string_equal(get_str(g, "tokenizer.chat_template.tool_use"), "tools of a file");
    gguf_close(g);
    snprintf(dir + strlen(dir), 60, "/additional_chat_templates/tool_use.jinja");
    unlink(dir);
    *strrchr(dir, '/') = 0, *strrchr(dir, '/') = 0;
}

static void test_directory(void **state) {
    (void)state;
    Gguf *model = tiny_model(&(TinyModel){.arch = "qwen2", .chat_template = "from the model"}), *g;
    Tokenizer *t;
    char dir[1024];
    snprintf(dir, sizeof dir, "%s", test_tmp("roles"));
    remove_directory(dir);
    hf_directory_write(model, dir, &(HfDirectory){.config = "{\"eos_token_id\": [1, 2]}"});
    assert_ok(hf_open(dir, &g));
    assert_string_equal(get_str(g, "tokenizer.chat_template"), "from the model");
    assert_string_equal(gguf_format(g), "safetensors in 1 file");
    assert_ok(tokenizer_load(g, &t));
    assert_true(tokenizer_is_eog(t, 1) && tokenizer_is_eog(t, 2) && tokenizer_is_eog(t, tokenizer_eos(t)));
    tokenizer_free(t);
    gguf_close(g);
    hf_directory_text(dir, "chat_template.jinja", "from a file");
    hf_directory_text(dir, "generation_config.json",
                      "{\"eos_token_id\": [5, 6, 7, 8, 9], \"suppress_tokens\": [3, 4]}");
    assert_ok(hf_open(dir, &g));
    assert_string_equal(get_str(g, "tokenizer.chat_template"), "from a file");
    assert_ok(tokenizer_load(g, &t));
    assert_true(tokenizer_is_eog(t, 9) && !tokenizer_is_eog(t, 1));
    assert_int_equal(tokenizer_suppressed_ids(t, NULL, 0), 2);
    tokenizer_free(t);
    gguf_close(g);
    snprintf(dir + strlen(dir), 32, "/chat_template.jinja");
    unlink(dir);
    *strrchr(dir, '/') = 0;
    hf_directory_text(dir, "tokenizer_config.json",
                      "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"tools\"}, {\"name\": \"default\", "
                      "\"template\": \"usual\"}]}");
    assert_ok(hf_open(dir, &g));
    assert_string_equal(get_str(g, "tokenizer.chat_template"), "usual");
    assert_string_equal(get_str(g, "tokenizer.chat_template.tool_use"), "tools");
    gguf_close(g);
    check_tools_template(dir);
    hf_directory_text(dir, "tokenizer_config.json", "{}");
    hf_directory_text(dir, "chat_template.json", "{\"chat_template\": \"of a processor\"}");
    assert_ok(hf_open(dir, &g));
    assert_string_equal(get_str(g, "tokenizer.chat_template"), "of a processor");
    gguf_close(g);
    hf_directory_text(dir, "tokenizer.json", "");
    assert_int_equal(hf_open(dir, &g).code, QUILL_MODEL);
    strcat(dir, "/tokenizer.json");
    unlink(dir);
    *strrchr(dir, '/') = 0;
    assert_ok(hf_open(dir, &g)); // modes that need no vocabulary work without it
    assert_null(gguf_value(g, "tokenizer.ggml.model"));
    gguf_close(g);
    gguf_close(model);
}

// ---- refused input --------------------------------------------------------------------------------------------------

static void test_refused(void **state) {
    (void)state;
#define VOCAB "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}"
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "byte 0: an object expected"},
        {"{\"model\": {\"vocab\": {\"a\": 0.5}}}", "a whole number expected"},
        {"{\"model\": {\"vocab\": {\"a\": 99999999}}}", "an id from 0 to"},
        {"{\"model\": {\"vocab\": {\"a\": -1}}}", "an id from 0 to"},
        {"{\"model\": {\"vocab\": {\"\\ud800\": 0}}}", "surrogate"},
        {"{\"model\": {\"vocab\": {\"\xff\": 0}}}", "UTF-8"},
        {"{\"model\": {\"merges\": [[\"a\"]]}}", "two texts to merge"},
        {"{\"model\": {\"merges\": [1]}}", "a string expected"},
        {"{\"model\": {\"vocab\": {\"a\": 0}}} x", "the end expected"},
        {"{\"model\": {\"vocab\": {\"a\": 0", "expected"},
        {"{\"model\": {\"vocab\": {}}}", "tokens expected, none found"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 0.5]]}}", "model.type: BPE expected, Unigram found"},
        {"{\"normalizer\": nothing, " VOCAB "}", "normalizer: line 1"},
        {"{" VOCAB "}", "ByteLevel, or parts that put U+2581"},
        {"{" BYTES ", \"normalizer\": {\"type\": \"Lowercase\"}, " VOCAB "}", "normalizer: Lowercase is not supported"},
        {"{" BYTES ", \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": "
         "\"Precompiled\"}]}, " VOCAB "}",
         "normalizer: Precompiled is not supported"},
        {"{\"pre_tokenizer\": {\"type\": \"Whitespace\"}, " VOCAB "}", "pre_tokenizer: Whitespace is not supported"},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true}, " VOCAB "}",
         "with add_prefix_space"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Removed\"}, " VOCAB
         "}",
         "with another behavior than Isolated"},
        {"{" BYTES ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
         "\"a\"}}, {\"SpecialToken\": {\"id\": \"a\"}}, {\"Sequence\": {\"id\": \"A\"}}]}, " VOCAB "}",
         "with more than one token on a side"},
        {"{" BYTES ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": "
         "\"A\"}}, {\"Sequence\": {\"id\": \"A\"}}]}, " VOCAB "}",
         "without one text"},
        {"{" BYTES ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
         "\"a\"}}, {\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": {\"a\": {\"ids\": [0, 0]}}}, " VOCAB "}",
         "whose token has several ids"},
        {"{" BYTES
         ", \"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, {\"type\": "
         "\"BertProcessing\"}]}, " VOCAB "}",
         "post_processor: BertProcessing is not supported"},
        {"{" BYTES ", \"added_tokens\": [{\"id\": 1e9, \"content\": \"x\"}], " VOCAB "}", "added_tokens: number 0"},
        {"{" BYTES ", \"added_tokens\": [{\"id\": 1, \"content\": \"x\", \"single_word\": true}], " VOCAB "}",
         "single_word"},
        {"{" BYTES ", \"model\": {\"vocab\": {\"a\": 0}, \"merges\": [], \"end_of_word_suffix\": \"</w>\"}}",
         "model.end_of_word_suffix is not supported"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Gguf *g = gguf_new("t");
        Status st = hf_tokenizer_memory("tokenizer.json", str_of(cases[i].text), NULL, g);
        if (st.code != QUILL_MODEL || !strstr(st.message, cases[i].message) ||
            strncmp(st.message, "tokenizer.json: ", 16))
            fail_msg("%s: code %d: %s", cases[i].text, st.code, st.message);
        gguf_close(g);
    }
}

// Patterns of which PCRE2 would understand a part differently.
static void test_refused_patterns(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *message;
    } cases[] = {
        {"[a&&b]", "without && inside of [...] expected, found [a&&b]"},
        {"[a[b]]", "a set inside of a set"},
        {"\\h+", "\\h"},
        {"(?m:.)", "(?m)"},
        {"\\p{N}{1,3}+", "+ behind {m,n}"},
        {"\\p{N}{3}?", "? behind {n}"},
        {"\\pL+", "\\p that no { follows"},
        {"\\V", "\\V"},
        {"\\N{U+61}", "\\N{"},
        {"a(?i)b|c", "(?i) behind another part"},
        {"[[:^digit:]]", "[:^...:]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Buf pattern = {0};
        Status st = hf_regex("t", cases[i].pattern, &pattern);
        assert_int_equal(st.code, QUILL_MODEL);
        if (!strstr(st.message, cases[i].message)) fail_msg("%s: %s", cases[i].pattern, st.message);
        buf_free(&pattern);
    }
}

static void test_refused_later(void **state) {
    (void)state;
    Gguf *g = gguf_new("t"); // a file whose end was never written
    Status st = hf_tokenizer_memory("tokenizer.json", (Str){"{\"added_tokens\": [\0\0\0\0", 22}, NULL, g);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "a value expected"));
    gguf_close(g);
    g = gguf_new("t"); // an invalid pattern is an error when the tokenizer is made
    Tokenizer *t;
    assert_ok(hf_tokenizer_memory("t", str_of("{" SPLIT("\"Regex\": \"(a\"") ", " VOCAB "}"), NULL, g));
    st = tokenizer_load(g, &t);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "pre-tokenizer pattern: missing closing parenthesis: (a"));
    gguf_close(g);
}

// ---- the reader of JSON ---------------------------------------------------------------------------------------------

static void test_walk(void **state) {
    (void)state;
    JsonWalk w = jsonwalk_start(
        str_of(" {\"a\\u00e9\" : [1, -2,[], {}], \"b\": {\"x\": [true, \"]\\\"\"]}, \"c\": \"\\ud83d\\ude42\\n\"} "));
    Str key, raw;
    int64_t v;
    Buf text = {0};
    assert_true(jsonwalk_enter(&w, '{') && jsonwalk_member(&w, &key) && str_is(key, "a\xc3\xa9"));
    assert_true(jsonwalk_enter(&w, '[') && jsonwalk_element(&w) && jsonwalk_int(&w, &v) && v == 1);
    assert_true(jsonwalk_element(&w) && jsonwalk_int(&w, &v) && v == -2);
    assert_true(jsonwalk_element(&w) && jsonwalk_enter(&w, '[') && !jsonwalk_element(&w));
    assert_true(jsonwalk_element(&w) && jsonwalk_enter(&w, '{') && !jsonwalk_member(&w, &key));
    assert_true(!jsonwalk_element(&w) && jsonwalk_member(&w, &key) && str_is(key, "b"));
    assert_true(jsonwalk_skip(&w, &raw) && str_is(raw, "{\"x\": [true, \"]\\\"\"]}"));
    assert_true(jsonwalk_member(&w, &key) && jsonwalk_is(&w, '"') && jsonwalk_string(&w, &text));
    assert_string_equal(text.data, "\xf0\x9f\x99\x82\n");
    assert_true(!jsonwalk_member(&w, &key) && jsonwalk_ended(&w) && !w.error);
    buf_free(&text);
    jsonwalk_free(&w);
    static const char *const broken[] = {"{\"a\" 1}",      "{\"a\": }",        "{\"a\": 1,}",
                                         "{1: 2}",         "{\"a\": \"\\x\"}", "{\"a\": 12345678901234567890}",
                                         "{\"a\": [1 2]}", "{\"a\": \"\n\"}",  "{\"a\"",
                                         "{\"a\": \"\\u12"};
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        w = jsonwalk_start(str_of(broken[i]));
        if (jsonwalk_enter(&w, '{'))
            while (jsonwalk_member(&w, &key)) {
                if (jsonwalk_is(&w, '"')) jsonwalk_string(&w, &text);
                else if (!jsonwalk_is(&w, '[')) jsonwalk_int(&w, &v);
                else if (jsonwalk_enter(&w, '['))
                    while (jsonwalk_element(&w)) jsonwalk_int(&w, &v);
            }
        if (!w.error) fail_msg("an error expected: %s", broken[i]);
        jsonwalk_free(&w);
    }
    buf_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),          cmocka_unit_test(test_real_vocabulary),
        cmocka_unit_test(test_merges),          cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_special_letters), cmocka_unit_test(test_html_tags),
        cmocka_unit_test(test_spaces),          cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_empty_matches),   cmocka_unit_test(test_forms),
        cmocka_unit_test(test_roles),           cmocka_unit_test(test_directory),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_refused_patterns),
        cmocka_unit_test(test_refused_later),   cmocka_unit_test(test_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
