// Tests of tokenizer.c, pretokenize.c and vocab.c. Outside reference: llama.cpp's test inputs and ids for four
// vocabularies, found through QUILL_TEST_DATA. The expected pieces of pretokenizer_split were made with Python's
// `regex` module from llama.cpp's own patterns and steps.
#define _GNU_SOURCE // memmem
#include "tests/rig/testing.h"

#include "tokens/pretokenize.h"
#include "tokenizer.h"

#include <limits.h>
#include <time.h>

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

// ---- vocabularies built in memory -----------------------------------------------------------------------------------

enum { MAX_TOKENS = 1024, MAX_MERGES = 64 };

typedef struct {
    Str tokens[MAX_TOKENS];
    float scores[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    int n;
    Str merges[MAX_MERGES];
    int n_merges;
    char names[256][8];
} Build;

static int add(Build *b, const char *text, int type, float score) {
    b->tokens[b->n] = str_of(text);
    b->types[b->n] = type;
    b->scores[b->n] = score;
    return b->n++;
}

static void add_merge(Build *b, const char *merge) { b->merges[b->n_merges++] = str_of(merge); }

// The byte's character in GPT-2's alphabet.
static void alphabet(int byte, char *out) {
    int c = byte;
    if (byte <= 0x20) c = 0x100 + byte;
    else if (byte >= 0x7f && byte <= 0xa0) c = 0x121 + byte - 0x7f;
    else if (byte == 0xad) c = 0x143;
    if (c < 0x80) snprintf(out, 8, "%c", c);
    else snprintf(out, 8, "%c%c", 0xc0 | c >> 6, 0x80 | (c & 0x3f));
}

// Token b is byte b.
static Build *new_bpe(void) {
    Build *b = mem_alloc(sizeof *b);
    for (int i = 0; i < 256; i++) {
        alphabet(i, b->names[i]);
        add(b, b->names[i], NORMAL, 0);
    }
    return b;
}

enum { SPM_BYTES = 3 }; // token 3 + b is byte b
static Build *new_spm(void) {
    Build *b = mem_alloc(sizeof *b);
    add(b, "<unk>", UNKNOWN, 0);
    add(b, "<s>", CONTROL, 0);
    add(b, "</s>", CONTROL, 0);
    for (int i = 0; i < 256; i++) {
        snprintf(b->names[i], 8, "<0x%02X>", i);
        add(b, b->names[i], BYTE, 0);
    }
    return b;
}

static Gguf *view(const Build *b, const char *model, const char *pre) {
    Gguf *g = gguf_new("made.gguf");
    gguf_set_str(g, "tokenizer.ggml.model", model);
    if (pre) gguf_set_str(g, "tokenizer.ggml.pre", pre);
    gguf_set_strings(g, "tokenizer.ggml.tokens", b->tokens, (size_t)b->n);
    gguf_set_ints(g, "tokenizer.ggml.token_type", b->types, (size_t)b->n);
    gguf_set_floats(g, "tokenizer.ggml.scores", b->scores, (size_t)b->n);
    if (strcmp(model, "gpt2") == 0) gguf_set_strings(g, "tokenizer.ggml.merges", b->merges, (size_t)b->n_merges);
    return g;
}

// Loads, and closes the view: a tokenizer stands alone.
static Tokenizer *load(Gguf *g) {
    Tokenizer *t;
    assert_ok(tokenizer_load(g, &t));
    gguf_close(g);
    return t;
}

static Tokenizer *load_bpe(Build *b, const char *pre) { // frees b
    Tokenizer *t = load(view(b, "gpt2", pre));
    free(b);
    return t;
}

static Tokenizer *load_spm(Build *b) {
    Tokenizer *t = load(view(b, "llama", NULL));
    free(b);
    return t;
}

static void refused(Gguf *g, const char *word) {
    Tokenizer *t;
    Status st = tokenizer_load(g, &t);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_null(t);
    assert_non_null(strstr(st.message, gguf_name(g)));
    if (!strstr(st.message, word)) fail_msg("\"%s\" expected in: %s", word, st.message);
    gguf_close(g);
}

// ---- comparing ------------------------------------------------------------------------------------------------------

// `expected` as numbers separated by spaces.
static void check_ids(const Tokenizer *t, const char *text, size_t n, const uint8_t *trusted, const char *expected) {
    int *ids = mem_alloc((tokenizer_bound(t, n) + 1) * sizeof *ids);
    size_t n_ids = tokenizer_encode(t, text, n, trusted, ids, tokenizer_bound(t, n));
    assert_true(n_ids <= tokenizer_bound(t, n));
    Buf got = {0};
    buf_str(&got, "");
    for (size_t i = 0; i < n_ids; i++) buf_printf(&got, "%s%d", i ? " " : "", ids[i]);
    if (strcmp(got.data, expected) != 0) fail_msg("\"%s\": %s expected, %s found", text, expected, got.data);
    buf_free(&got);
    free(ids);
}

static void ids_of(const Tokenizer *t, const char *text, const char *expected) {
    check_ids(t, text, strlen(text), NULL, expected);
}

static void trusted_ids_of(const Tokenizer *t, const char *text, const char *expected) {
    uint8_t trusted[256];
    memset(trusted, 1, sizeof trusted);
    check_ids(t, text, strlen(text), trusted, expected);
}

static void check_round_trip(const Tokenizer *t, const char *text, size_t n) {
    size_t max = tokenizer_bound(t, n);
    int *ids = mem_alloc((max + 1) * sizeof *ids);
    size_t n_ids = tokenizer_encode(t, text, n, NULL, ids, max);
    assert_true(n_ids <= max);
    Buf joined = {0}, whole = {0};
    for (size_t i = 0; i < n_ids; i++) {
        assert_in_range(ids[i], 0, tokenizer_n(t) - 1);
        Str s = tokenizer_stream_piece(t, ids[i], i == 0);
        buf_append(&joined, s.data, s.n);
    }
    tokenizer_decode(t, ids, n_ids, false, &whole);
    assert_int_equal(whole.n, n);
    if (n) assert_memory_equal(whole.data, text, n);
    assert_int_equal(joined.n, n);
    if (n) assert_memory_equal(joined.data, text, n);
    buf_free(&joined);
    buf_free(&whole);
    free(ids);
}

// ---- outside reference ----------------------------------------------------------------------------------------------

static const char *const references[] = {"gpt-2", "llama-bpe", "llama-spm", "qwen2"};

static Tokenizer *load_reference(const char *name) {
    char file[128];
    snprintf(file, sizeof file, "tokenizers/ggml-vocab-%s.gguf", name);
    Gguf *g;
    assert_ok(gguf_open(test_data(file), &g));
    double start = clock_now();
    Tokenizer *t = load(g);
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
        check_ids(t, text, (size_t)(end - text), NULL, line);
        check_round_trip(t, text, (size_t)(end - text));
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
    assert_int_equal(tokenizer_find(t, "<|start_header_id|>"), 128006);
    assert_true(tokenizer_is_control(t, 128006));
    assert_false(tokenizer_is_eog(t, 128006));
    trusted_ids_of(t, "<|start_header_id|>user", "128006 882");
    tokenizer_free(t);
    t = load_reference("qwen2");
    assert_int_equal(tokenizer_bos(t), -1); // 11, llama.cpp's default, is a comma here
    assert_false(tokenizer_add_bos(t));
    assert_true(tokenizer_is_eog(t, tokenizer_find(t, "<|im_end|>")));
    tokenizer_free(t);
    t = load_reference("llama-spm");
    assert_string_equal(tokenizer_kind(t), "llama");
    assert_true(tokenizer_add_bos(t));
    trusted_ids_of(t, "<s>Hello", "1 15043");
    ids_of(t, "<s>", "529 29879 29958");
    tokenizer_free(t);
}

// ---- pre-tokenizers -------------------------------------------------------------------------------------------------

#define SAMPLE                                                                                                         \
    "It's HE'LL   12345.67 naïve WörldToo  \n\n  x=y+1;//\n\tфыВА 中文かな한국 $5 «ok»!?\r\n #tag 1٣a\u0301 end "

static const struct {
    const char *names, *pieces; // of SAMPLE, with a bar in front of each but the first
} patterns[] = {
    {"default", "It|'|s| HE|'|LL|  | |123|45|.|67| naïve| WörldToo|  \n\n | x|=|y|+|1|;//|\n|\t|фыВА| 中文かな한국| "
                "|$|5| |«|ok|»!?|\r\n |#|tag| |1٣|a|\u0301| end| "},
    {"gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code gigachat a.x-4.0 mellum modern-bert "
     "roberta-bpe exaone4 mpt olmo jais trillion granite-docling",
     "It|'s| HE|'|LL|  | 12345|.|67| naïve| WörldToo|  \n\n | x|=|y|+|1|;//|\n|\t|фыВА| 中文かな한국| $|5| "
     "«|ok|»!?|\r\n| #|tag| 1٣|a|\u0301| end| "},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
     "It|'s| HE|'|LL|   |1|2|3|4|5|.|6|7| naïve| WörldToo|  \n\n | x|=|y|+|1|;//|\n|\t|фыВА| 中文かな한국| $|5| "
     "«|ok|»!?|\r\n| #|tag| |1|٣|a|\u0301| end| "},
    {"falcon", "It|'|s| HE|'|LL|  | |123|45|.|67| naïve| WörldToo|  \n\n | x|=|y|+|1|;//|\n|\t|фыВА| 中文かな한국| "
               "|$|5| |«|ok|»!?|\r\n |#|tag| 1٣|a|\u0301| end| "},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     "It|'s| HE|'LL|  | |123|45|.|67| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| 中文かな한국| $|5| "
     "«|ok|»!?\r\n| #|tag| |1٣|a|\u0301| end| "},
    {"smaug-bpe dbrx glm4 chatglm-bpe",
     "It|'s| HE|'LL|  | |123|45|.|67| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| 中文かな한국| $|5| "
     "«|ok|»!?\r\n| #|tag| |1٣|a|\u0301| end| "},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
     "It|'s| HE|'LL|  | |1|2|3|4|5|.|6|7| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| 中文かな한국| $|5| "
     "«|ok|»!?\r\n| #|tag| |1|٣|a|\u0301| end| "},
    {"qwen35", "It|'s| HE|'LL|  | |1|2|3|4|5|.|6|7| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| 中文かな한국| "
               "$|5| «|ok|»!?\r\n| #|tag| |1|٣|a\u0301| end| "},
    {"gpt-4o llama4 kanana2 talkie minimax-m2",
     "It's| HE'LL|  | |123|45|.|67| naïve| Wörld|Too|  \n\n| | x|=y|+|1|;//\n|\tфыВА| 中文かな한국| $|5| «|ok|»!?\r\n| "
     "#|tag| |1٣|a|\u0301| end| "},
    {"granite-embed-multi-97m", "It's| HE'LL|  | |123|45|.|67| naïve| Wörld|Too|  \n\n| | x|=y|+|1|;//\n|\tфыВА| "
                                "中文かな한국| $|5| «|ok|»!?\r\n| #|tag| |1٣|a\u0301| end| "},
    {"tekken", "It|'s| HE|'LL|  | |1|2|3|4|5|.|6|7| naïve| Wörld|Too|  \n\n| | x|=y|+|1|;//\n|\tфыВА| 中文かな한국| "
               "$|5| «|ok|»!?\r\n| #|tag| |1|٣|a|\u0301| end| "},
    {"deepseek-llm", "It|'|s| HE|'|LL|   |12345|.|67| na|ï|ve| W|ö|rldToo|  |\n|\n| | x|=|y|+|1|;//|\n|\tфыВА| "
                     "|中文かな한국| $|5| «|ok|»|!?|\r|\n| #|tag| |1٣|a|\u0301| end| "},
    {"deepseek-coder", "It|'|s| HE|'|LL|   |1|2|3|4|5|.|6|7| naïve| WörldToo|  |\n|\n| | x|=|y|+|1|;//|\n|\tфыВА| "
                       "|中文かな한국| $|5| «|ok|»!?|\r|\n| #|tag| |1|٣|a|\u0301| end| "},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     "It|'s| HE|'LL|   |123|45|.|67| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| |中文かな|한국| $|5| "
     "«|ok|»!?\r\n| #|tag| |1٣|a\u0301| end| "},
    {"spark2_5", "It|'s| HE|'LL|   |1|2|3|4|5|.|6|7| naïve| WörldToo|  \n\n | x|=y|+|1|;//|\n|\tфыВА| |中文かな|한국| "
                 "$|5| «|ok|»!?|\r|\n| #|tag| |1|٣|a\u0301| end| "},
    {"kimi-k2", "It's| HE'LL|  | |123|45|.|67| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| |中文|かな한국| $|5| "
                "«|ok|»!?\r\n| #|tag| |1٣|a|\u0301| end| "},
    {"minicpm5", "It|'s| HE|'LL|   |123|45|.|67| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| 中文かな한국| $|5| "
                 "«|ok|»!?\r\n| #|tag| |1٣|a|\u0301| end| "},
    {"laguna", "It|'s| HE|'LL|  | |1|2|3|4|5|.|6|7| naïve| WörldToo|  |\n\n| | x|=y|+|1|;//|\n|\tфыВА| 中文かな한국| "
               "$|5| «|ok|»!?\r|\n| #|tag| |1|٣|a|\u0301| end| "},
    {"ufakzeka", "It|'s| HE|'LL|  | |1|2|3|4|5|.|6|7| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| 中文かな한국| "
                 "$|5| «|ok|»!?\r\n| #|tag| |1|٣|a|\u0301| end| "},
    {"seed-coder", "It|'s| HE|'LL|  | |1|2|3|4|5|.|6|7| naïve| WörldToo|  \n\n| | x|=y|+|1|;//|\n|\tфыВА| "
                   "中文かな한국| $|5| «|ok|»!?|\r\n| #|tag| |1|٣|a|\u0301| end| "},
    {"bailingmoe bailingmoe2 llada-moe",
     "It|'s| HE|'LL|  | |1|2|3|4|5|.|6|7| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| 中文かな한국| $|5| "
     "«|ok|»!?\r\n| #|tag| |1|٣|a|\u0301| end| "},
    {"exaone-moe", "It|'s| HE|'LL|  | |1|2|3|4|5|.|6|7| naïve WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА 中文かな한국| "
                   "$|5| «|ok|»!?\r|\n| #|tag| |1|٣|a\u0301 end| "},
    {"jais-2", "It|'s| HE|'LL|  | |123|45|.|67| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| 中文かな한국| $|5| "
               "«|ok|»!?\r\n| #|tag| |1٣|a|\u0301| end| "},
    {"youtu", "It's| HE'LL|  | |1|2|3|4|5|.|6|7| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| |中文かな|한국| $|5| "
              "«|ok|»!?\r\n| #|tag| |1|٣|a\u0301| end| "},
    {"tiny_aya cohere2moe", "It's| HE'LL|   |12|345|.|67| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| "
                            "中文かな한국| $|5| «|ok|»!?\r\n| #|tag| |1|٣|a\u0301| end| "},
    {"afmoe", "It|'s| HE|'LL|  | |12|345|.|67| naïve| WörldToo|  \n\n| | x|=y|+|1|;//\n|\tфыВА| |中文かな한국| $|5| "
              "«|ok|»!?\r\n| #|tag| |1٣|a\u0301| end| "},
    {"bloom poro-chat gpt3-finnish", "It's| HE'LL|  | 12345|.|67| naïve| WörldToo|  \n\n | x=y+1;//|\n\t|фыВА| "
                                     "中文かな한국| $5| «ok»|!?\r\n| #tag| 1٣a\u0301| end| "},
    {"viking", "It's| HE'LL|  | |1|2|3|4|5|.|6|7| naïve| WörldToo|  \n\n | x=y+|1|;//|\n\t|фыВА| 中文かな한국| $|5| "
               "«ok»|!?\r\n| #tag| |1|٣|a\u0301| end| "},
    {"chameleon", "It|'|s| HE|'|LL|  | |1|2|3|4|5|.|6|7| naïve| WörldToo|  |\n|\n|  |x|=|y|+|1|;|/|/|\n|\t|фыВА| "
                  "中文かな한국| |$|5| |«|ok|»|!|?|\r|\n| |#|tag| |1|٣|a|\u0301| end| "},
};

static void check_pieces(const char *name, const char *text, size_t n, const char *expected) {
    Pretokenizer *p = pretokenizer_new(str_of(name));
    if (!p) fail_msg("%s is not known", name);
    int n_pieces, at = 0;
    const PretokenPiece *pieces = pretokenizer_split(p, text, (int)n, &n_pieces);
    Buf got = {0};
    buf_str(&got, "");
    for (int i = 0; i < n_pieces; i++) {
        assert_int_equal(pieces[i].begin, at);
        assert_true(pieces[i].end > at);
        at = pieces[i].end;
        if (i) buf_str(&got, "|");
        buf_append(&got, text + pieces[i].begin, (size_t)(pieces[i].end - pieces[i].begin));
    }
    assert_int_equal(at, n);
    if (strcmp(got.data, expected) != 0) fail_msg("%s:\n%s expected,\n%s found", name, expected, got.data);
    buf_free(&got);
    pretokenizer_free(p);
}

static void test_every_pretokenizer(void **state) {
    (void)state;
    int n_names = 0;
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        char *names = mem_copy(patterns[i].names, strlen(patterns[i].names));
        for (char *name = strtok(names, " "); name; name = strtok(NULL, " "), n_names++)
            check_pieces(name, SAMPLE, strlen(SAMPLE), patterns[i].pieces);
        free(names);
    }
    Buf known = {0};
    pretokenizer_names(&known);
    int n_known = 1;
    for (size_t i = 0; i < known.n; i++) n_known += known.data[i] == ' ';
    assert_int_equal(n_known, ARRAY_LEN(patterns)); // no pattern without a row here
    print_message("%d names of %d pre-tokenizers\n", n_names, n_known);
    buf_free(&known);
}

static void pieces_of(const char *name, const char *text, const char *expected) {
    check_pieces(name, text, strlen(text), expected);
}

static void test_pretokenizer_details(void **state) {
    (void)state;
    pieces_of("gpt-2", "", "");
    pieces_of("gpt-2", "a  b\n\nc", "a| | b|\n|\n|c");
    pieces_of("gpt-2", "don't DON'T we'll", "don|'t| DON|'|T| we|'ll");
    pieces_of("llama-bpe", "DON'T we'\xc5\xbf", "DON|'T| we|'\xc5\xbf"); // a long s is no s
    pieces_of("llama-bpe", "1234567", "123|456|7");
    pieces_of("llama-bpe", "a \n \n b", "a| \n \n| b");
    pieces_of("llama-bpe", "x!\n\ny", "x|!\n\n|y");
    pieces_of("llama-bpe", "\xef\xbb\xbfhi", "\xef\xbb\xbfhi"); // a byte order mark is a character like others
    pieces_of("qwen2",
              "a\xc2\xa0\xc2\xa0"
              "b",
              "a|\xc2\xa0|\xc2\xa0"
              "b");
    pieces_of("qwen2", "\xe1\xa0\x8e\xe1\xa0\x8e", "\xe1\xa0\x8e\xe1\xa0\x8e"); // U+180E is no space
    pieces_of("gpt-4o", "helloWorld HTMLPage it's", "hello|World| HTMLPage| it's");
    pieces_of("tekken", "fooBar12", "foo|Bar|1|2");
    pieces_of("deepseek-llm", "a   ", "a|   ");
    pieces_of("deepseek-v3", "foo.bar(x)", "foo|.bar|(x|)");
    pieces_of("falcon", "a+b=1234", "a|+|b|=|123|4");
    pieces_of("afmoe", "1234567", "1|234|567");
    pieces_of("tiny_aya", "1234567 12345a", "1|234|567| |123|45|a");
    pieces_of("chameleon", "<sentinel:1>IMGIMGABZ    x", "<|sentinel|:|1|>|IMGIMGABZ|    |x");
    check_pieces("gpt-2", "a\xe6\xad", 3, "a|\xe6\xad"); // a cut character
    check_pieces("llama-bpe",
                 "a\xff\xfe"
                 "b c\x80",
                 7, "a|\xff\xfe|b| c|\x80");
    assert_null(pretokenizer_new(str_of("gpt")));
    assert_null(pretokenizer_new(str_of("")));
    assert_null(pretokenizer_new(str_of("phi-2 jina-es")));
}

// ---- byte-level BPE -------------------------------------------------------------------------------------------------

static void test_bpe_ids(void **state) {
    (void)state;
    Build *b = new_bpe();
    add(b, "he", NORMAL, 0);     // 256
    add(b, "ll", NORMAL, 0);     // 257
    add(b, "hell", NORMAL, 0);   // 258
    add(b, "hello", NORMAL, 0);  // 259
    add(b, "Ġhello", NORMAL, 0); // 260
    add(b, "Ġh", NORMAL, 0);     // 261
    add(b, "lo", NORMAL, 0);     // 262
    add(b, "ÐĶ", NORMAL, 0);     // 263, U+0414
    add(b, "ĊĊ", NORMAL, 0);     // 264
    const char *merges[] = {"h e", "l l", "he ll", "hell o", "Ġ hello", "Ġ h", "l o", "Ð Ķ", "Ċ Ċ"};
    for (size_t i = 0; i < ARRAY_LEN(merges); i++) add_merge(b, merges[i]);
    Tokenizer *t = load_bpe(b, "gpt-2");
    assert_string_equal(tokenizer_kind(t), "gpt2/gpt-2");
    ids_of(t, "", "");
    ids_of(t, "hello", "259");
    ids_of(t, "hello hello", "259 260");
    ids_of(t, " hx", "261 120");
    ids_of(t, "lllo", "257 262"); // leftmost of equal ranks, then what is left
    ids_of(t, "loll", "262 257"); // "l l" ranks first, "l o" after it
    ids_of(t, "Д\n\n", "263 264");
    check_ids(t, "a\0b", 3, NULL, "97 0 98");
    check_ids(t, "\xe6\xad", 2, NULL, "230 173");
    check_ids(t, "\xef\xbb\xbfhi", 5, NULL, "239 187 191 104 105");
    assert_int_equal(tokenizer_find(t, " hello"), 260);
    assert_int_equal(tokenizer_find(t, "Ġhello"), -1);
    Str s = tokenizer_piece(t, 263);
    assert_true(str_is(s, "Д"));
    int ids[2] = {-7, -7};
    assert_int_equal(tokenizer_encode(t, "abc", 3, NULL, ids, 2), 3); // as snprintf
    assert_int_equal(ids[1], 'b');
    assert_int_equal(tokenizer_encode(t, "abc", 3, NULL, NULL, 0), 3);
    tokenizer_free(t);
}

// llama-bpe takes a whole piece that is a token, even one that no merges make.
static void test_ignored_merges(void **state) {
    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        Build *b = new_bpe();
        add(b, "abc", NORMAL, 0);
        add(b, "Ġabc", CONTROL, 0); // never from text, whatever it looks like
        Tokenizer *t = load_bpe(b, pass ? "llama-bpe" : "smaug-bpe");
        ids_of(t, "abc", pass ? "256" : "97 98 99");
        ids_of(t, " abc", "32 97 98 99");
        assert_int_equal(tokenizer_add_bos(t), 0); // no BOS id
        tokenizer_free(t);
    }
}

static void test_bpe_broken_merges(void **state) {
    (void)state;
    Build *b = new_bpe();
    add(b, "ab", NORMAL, 0); // 256
    add(b, "ba", NORMAL, 0); // 257
    add(b, "ab", NORMAL, 0); // 258, never used
    add(b, "aa", NORMAL, 0); // 259
    const char *merges[] = {"",    " ",   "ab",  "a",   "a b c", "x y",       "zz b", "b a", "a b",
                            "b a", "a  ", "  a", "a a", "ab ba", "\xff \xfe", "€ a",  "a €"};
    for (size_t i = 0; i < ARRAY_LEN(merges); i++) add_merge(b, merges[i]);
    Tokenizer *t = load_bpe(b, "gpt-2");
    ids_of(t, "abab", "97 257 98"); // "b a" comes first in the list, though it stands there twice
    ids_of(t, "ab", "256");
    ids_of(t, "aaa", "259 97");
    tokenizer_free(t);

    b = new_bpe(); // no merges at all, but the list is there; many that mean nothing
    t = load_bpe(b, "default");
    ids_of(t, "ab", "97 98");
    tokenizer_free(t);
    b = new_bpe();
    size_t n = 300000;
    Str *many = mem_alloc(n * sizeof *many);
    for (size_t i = 0; i < n; i++) many[i] = str_of(i % 2 ? "a b" : "ab ab");
    Gguf *g = view(b, "gpt2", "gpt-2");
    gguf_set_strings(g, "tokenizer.ggml.merges", many, n);
    free(many);
    free(b);
    tokenizer_free(load(g));
}

// ---- SentencePiece --------------------------------------------------------------------------------------------------

static Build *new_small_spm(void) {
    Build *b = new_spm();
    add(b, "▁", NORMAL, -10);          // 259
    add(b, "a", NORMAL, -11);          // 260
    add(b, "b", NORMAL, -12);          // 261
    add(b, "▁a", NORMAL, -1);          // 262
    add(b, "ab", NORMAL, -2);          // 263
    add(b, "▁ab", NORMAL, -3);         // 264
    add(b, "c", NORMAL, -13);          // 265
    add(b, "cc", NORMAL, -5);          // 266
    add(b, "▁▁", NORMAL, -4);          // 267
    add(b, "<tool>", USER_DEFINED, 0); // 268
    return b;
}

static void test_spm_ids(void **state) {
    (void)state;
    Tokenizer *t = load_spm(new_small_spm());
    ids_of(t, "", "");
    ids_of(t, "ab", "264");
    ids_of(t, "abab", "264 263");
    ids_of(t, "ccc", "259 266 265"); // the leftmost of equal scores
    ids_of(t, " ", "267");
    ids_of(t, "a a", "262 262");
    ids_of(t,
           "a\xe2\x96\x81"
           "a",
           "262 262"); // U+2581 is what a space looks like
    ids_of(t, "é\n", "259 198 172 13");
    check_ids(t, "a\0", 2, NULL, "262 3");
    check_ids(t, "\xe6\xad", 2, NULL, "259 233 176");
    check_ids(t, "\xf0 a", 3, NULL, "259 243 262"); // a broken character swallows nothing
    ids_of(t, "ab<tool>ab", "264 268 264");
    ids_of(t, "<tool>", "268");
    trusted_ids_of(t, "<s>ab</s>ab", "1 264 2 264");
    ids_of(t, "<s>", "259 63 118 65"); // bytes: none of its characters is a token
    assert_true(str_is(tokenizer_piece(t, 264), " ab"));
    assert_true(str_is(tokenizer_stream_piece(t, 264, true), "ab"));
    assert_true(str_is(tokenizer_stream_piece(t, 264, false), " ab"));
    assert_true(str_is(tokenizer_piece(t, 13), "\n"));
    assert_true(str_is(tokenizer_piece(t, 1), "<s>"));
    assert_int_equal(tokenizer_find(t, "<s>"), 1);
    Buf out = {0};
    tokenizer_decode(t, (int[]){1, 264, 263, 2, 264}, 5, false, &out);
    assert_string_equal(out.data, "abab ab");
    out.n = 0;
    tokenizer_decode(t, (int[]){1, 264, 2}, 3, true, &out);
    assert_string_equal(out.data, "<s>ab</s>");
    buf_free(&out);
    tokenizer_free(t);

    Build *b = new_small_spm();
    Gguf *g = view(b, "llama", "default");
    gguf_set_bool(g, "tokenizer.ggml.add_space_prefix", false);
    free(b);
    t = load(g);
    ids_of(t, "ab ab<tool>ab", "263 264 268 263");
    assert_true(str_is(tokenizer_stream_piece(t, 264, true), " ab"));
    tokenizer_free(t);
}

// Bytes without a token: unknown, once a character; nothing where there is no such token either. Names that are no
// bytes.
static void test_text_that_goes_on(void **state) {
    (void)state;
    Tokenizer *t = load_spm(new_small_spm());
    // behind text, behind added tokens, behind rows that a model has beyond the vocabulary
    const int last[] = {264, 2, 268, tokenizer_n(t), INT_MAX}, expected[] = {263, 264, 264, 263, 263};
    for (size_t i = 0; i < ARRAY_LEN(last); i++) {
        int ids[4];
        assert_int_equal(tokenizer_encode_after(t, last[i], "ab", 2, NULL, ids, 4), 1);
        assert_int_equal(ids[0], expected[i]);
    }
    tokenizer_free(t);
}

static void test_spm_missing_bytes(void **state) {
    (void)state;
    for (int unknown = 0; unknown < 2; unknown++) {
        Build *b = mem_alloc(sizeof *b);
        add(b, "<unk>", UNKNOWN, 0);
        add(b, "▁", NORMAL, -1);
        add(b, "a", NORMAL, -2);
        add(b, "<0x-1>", BYTE, 0);
        add(b, "<0xZZ>", BYTE, 0);
        add(b, "<0x41", BYTE, 0);
        add(b, "<0x42>", NORMAL, 0); // 6: by its name
        Gguf *g = view(b, "llama", NULL);
        if (!unknown) gguf_set_u32(g, "tokenizer.ggml.unknown_token_id", 0xffffffff);
        free(b);
        Tokenizer *t = load(g);
        ids_of(t, "aBé\n", unknown ? "1 2 6 0 0" : "1 2 6");
        assert_true(str_is(tokenizer_piece(t, 6), "B"));
        assert_true(str_is(tokenizer_piece(t, 4), "<0xZZ>"));
        tokenizer_free(t);
    }
}

// Without types and scores: roles tell the control tokens, names the bytes, and the leftmost pair merges first.
static void test_spm_bare(void **state) {
    (void)state;
    Gguf *g = gguf_new("bare.gguf");
    gguf_set_str(g, "tokenizer.ggml.model", "llama");
    Str tokens[] = {str_of("<unk>"), str_of("<s>"), str_of("</s>"),  str_of("▁"),
                    str_of("a"),     str_of("aa"),  str_of("<0x62>")};
    gguf_set_strings(g, "tokenizer.ggml.tokens", tokens, ARRAY_LEN(tokens));
    Tokenizer *t = load(g);
    ids_of(t, "aaab<s>", "3 5 4 6 0 0 0");
    trusted_ids_of(t, "a<s>", "3 4 1");
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    assert_true(tokenizer_is_eog(t, 2));
    assert_true(tokenizer_is_control(t, 0));
    tokenizer_free(t);
}

// ---- trust ----------------------------------------------------------------------------------------------------------

static void test_trust(void **state) {
    (void)state;
    Build *b = new_bpe();
    add(b, "<|im_start|>", CONTROL, 0); // 256
    add(b, "<|im_end|>", NORMAL, 0);    // 257: a control token by its name
    add(b, "<|", CONTROL, 0);           // 258
    add(b, "<tool>", USER_DEFINED, 0);  // 259
    add(b, "<tool", CONTROL, 0);        // 260
    add(b, "<?>", UNKNOWN, 0);          // 261
    add(b, "<tool>", CONTROL, 0);       // 262: a second one of that name
    Tokenizer *t = load_bpe(b, "qwen2");
    const char *text = "<|im_end|>";
    ids_of(t, text, "60 124 105 109 95 101 110 100 124 62");
    trusted_ids_of(t, text, "257");
    trusted_ids_of(t, "<|im_start|>a<|im_end|>", "256 97 257");
    trusted_ids_of(t, "<|im_<tool>", "258 105 109 95 259");
    trusted_ids_of(t, "<toolx<?>", "260 120 261");
    ids_of(t, "<?>", "60 63 62");
    ids_of(t, "a<tool>b", "97 259 98"); // a user-defined token is one in any text
    ids_of(t, "a<tool", "97 60 116 111 111 108");
    for (size_t hole = 0; hole < strlen(text); hole++) { // one untrusted byte is enough
        uint8_t trusted[16];
        memset(trusted, 1, sizeof trusted);
        trusted[hole] = 0;
        check_ids(t, text, strlen(text), trusted,
                  hole < 2 ? "60 124 105 109 95 101 110 100 124 62" : "258 105 109 95 101 110 100 124 62");
    }
    uint8_t around[] = {1, 1, 1, 0, 0, 0, 0, 0, 0, 1}; // template <|, user text, template
    check_ids(t, "<|x<|a<|>y", 10, around, "258 120 60 124 97 60 124 62 121");
    assert_true(tokenizer_is_eog(t, 257));
    assert_true(tokenizer_is_control(t, 257));
    assert_false(tokenizer_is_control(t, 259));
    assert_int_equal(tokenizer_find(t, "<tool>"), 259);
    tokenizer_free(t);
}

// Merges that spell a control token give no control token.
static void test_merges_make_no_control_token(void **state) {
    (void)state;
    Build *b = new_bpe();
    add(b, "ab", NORMAL, 0);
    add(b, "abc", CONTROL, 0); // 257
    add_merge(b, "a b");
    add_merge(b, "ab c");
    Tokenizer *t = load_bpe(b, "gpt-2");
    ids_of(t, "abc", "256 99");
    trusted_ids_of(t, "abc", "257");
    tokenizer_free(t);

    b = new_small_spm();
    add(b, "<", NORMAL, -20);
    add(b, "s", NORMAL, -20);
    int open = add(b, "<s", NORMAL, -1);
    int close = add(b, ">", NORMAL, -20);
    char expected[64];
    snprintf(expected, sizeof expected, "259 %d %d", open, close);
    t = load_spm(b);
    ids_of(t, "<s>", expected);
    tokenizer_free(t);
}

// ---- roles ----------------------------------------------------------------------------------------------------------

static void test_ids_out_of_range_mean_none(void **state) {
    (void)state;
    const uint32_t bad[] = {0xffffffff, 0x80000000, 259, 1u << 30};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Build *b = new_spm(); // 259 tokens
        Gguf *g = view(b, "llama", NULL);
        const char *keys[] = {"bos", "eos", "eot", "eom", "unknown", "padding", "seperator"};
        for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
            char key[64];
            snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[k]);
            gguf_set_u32(g, key, bad[i]);
        }
        gguf_set_bool(g, "tokenizer.ggml.add_bos_token", true);
        gguf_set_bool(g, "tokenizer.ggml.add_eos_token", true);
        free(b);
        Tokenizer *t = load(g);
        assert_int_equal(tokenizer_bos(t), -1);
        assert_int_equal(tokenizer_eos(t), -1);
        assert_false(tokenizer_add_bos(t));
        assert_false(tokenizer_add_eos(t));
        assert_true(tokenizer_is_eog(t, 2)); // </s>, by its name
        ids_of(t, "A", "35 68");
        tokenizer_free(t);
    }
}

static void test_bos_and_eog(void **state) {
    (void)state;
    Build *b = new_bpe();
    int call = add(b, "<|call|>", CONTROL, 0), end = add(b, "<|end|>", CONTROL, 0);
    int back = add(b, "<|return|>", CONTROL, 0), pad = add(b, "<|fim_pad|>", NORMAL, 0);
    int file = add(b, "<|file_sep|>", NORMAL, 0), prefix = add(b, "<fim_prefix>", NORMAL, 0);
    int stop = add(b, "stop", NORMAL, 0);
    Gguf *g = view(b, "gpt2", "tekken");
    gguf_set_u32(g, "tokenizer.ggml.bos_token_id", 5);
    gguf_set_u32(g, "tokenizer.ggml.eot_token_id", (uint32_t)stop);
    gguf_set_u32(g, "tokenizer.ggml.fim_sep_token_id", 7); // then the name says nothing
    free(b);
    Tokenizer *t = load(g);
    assert_true(tokenizer_add_bos(t)); // tekken's default
    assert_int_equal(tokenizer_bos(t), 5);
    assert_int_equal(tokenizer_eos(t), -1);
    assert_true(tokenizer_is_eog(t, call));
    assert_true(tokenizer_is_eog(t, back));
    assert_false(tokenizer_is_eog(t, end)); // with the two above it ends a message, not the answer
    assert_true(tokenizer_is_eog(t, pad));
    assert_true(tokenizer_is_eog(t, stop));
    assert_true(tokenizer_is_eog(t, 7));
    assert_false(tokenizer_is_eog(t, file));
    assert_false(tokenizer_is_control(t, file));
    assert_true(tokenizer_is_control(t, prefix));
    assert_false(tokenizer_is_eog(t, prefix));
    tokenizer_free(t);
}

// ---- hostile files --------------------------------------------------------------------------------------------------

static void test_kinds_and_patterns_refused(void **state) {
    (void)state;
    Build *b = new_bpe();
    refused(view(b, "bert", NULL), "\"bert\"");
    refused(view(b, "t5", NULL), "\"gpt2\"");
    refused(view(b, "gpt2", "no-such"), "\"no-such\"");
    refused(view(b, "gpt2", "no-such"), "viking");
    refused(view(b, "gpt2", "chameleo"), "expected");
    Gguf *g = gguf_new("none.gguf");
    refused(g, "tokenizer.ggml.model");
    g = gguf_new("none.gguf");
    gguf_set_str(g, "tokenizer.ggml.model", "llama");
    refused(g, "no vocabulary");
    g = view(b, "llama", NULL);
    gguf_set_strings(g, "tokenizer.ggml.tokens", NULL, 0);
    refused(g, "tokenizer.ggml.tokens");
    g = view(b, "llama", NULL);
    gguf_set_floats(g, "tokenizer.ggml.tokens", b->scores, 9);
    refused(g, "tokenizer.ggml.tokens");
    g = view(b, "llama", NULL);
    gguf_set_u32(g, "tokenizer.ggml.tokens", 9);
    refused(g, "tokenizer.ggml.tokens");
    g = gguf_new("no-merges.gguf");
    gguf_set_str(g, "tokenizer.ggml.model", "gpt2");
    gguf_set_strings(g, "tokenizer.ggml.tokens", b->tokens, 256);
    refused(g, "tokenizer.ggml.merges");
    free(b);
    Tokenizer *t = load_bpe(new_bpe(), NULL); // files from before there was a name
    assert_string_equal(tokenizer_kind(t), "gpt2/default");
    tokenizer_free(t);
}

static void test_arrays_refused(void **state) {
    (void)state;
    Build *b = new_spm();
    size_t n = (size_t)b->n;
    for (int wrong = 0; wrong < 9; wrong++) {
        Gguf *g = view(b, wrong < 8 ? "llama" : "gpt2", NULL);
        const char *scores = "tokenizer.ggml.scores", *types = "tokenizer.ggml.token_type";
        if (wrong == 0) gguf_set_ints(g, scores, b->types, n);
        if (wrong == 1) gguf_set_floats(g, scores, b->scores, n - 1);
        if (wrong == 2) gguf_set_floats(g, scores, b->scores, n + 1);
        if (wrong == 3) gguf_set_u32(g, scores, 1);
        if (wrong == 4) gguf_set_floats(g, types, b->scores, n);
        if (wrong == 5) gguf_set_ints(g, types, b->types, n - 1);
        if (wrong == 6) gguf_set_ints(g, types, b->types, 0);
        if (wrong == 7) gguf_set_str(g, types, "x");
        if (wrong == 8) gguf_set_ints(g, "tokenizer.ggml.merges", b->types, n);
        refused(g, wrong < 4 ? scores : wrong < 8 ? types : "tokenizer.ggml.merges");
    }
    Gguf *g = view(b, "llama", NULL);
    gguf_set_str(g, "tokenizer.ggml.bos_token_id", "1");
    refused(g, "tokenizer.ggml.bos_token_id");
    free(b);
}

// What real files carry: duplicates, empty strings, bytes that are no UTF-8, unknown types, scores that are no numbers.
static void test_odd_tokens_accepted(void **state) {
    (void)state;
    for (int spm = 0; spm < 2; spm++) {
        Build *b = spm ? new_spm() : new_bpe();
        int first = add(b, "xy", NORMAL, -1);
        add(b, "xy", NORMAL, -1);
        int empty = add(b, "", NORMAL, 0);
        add(b, "", CONTROL, 0);
        add(b, "", USER_DEFINED, 0);
        add(b, "\xff\xfe", NORMAL, 0);
        add(b, "q", 77, (float)(0.0 / 0.0));
        add(b, "Q", -1, (float)(1.0 / 0.0));
        b->tokens[b->n] = (Str){"n\0l", 3};
        b->types[b->n++] = USER_DEFINED;
        int x = add(b, spm ? "x" : "Ġx", NORMAL, -9), y = add(b, "y", NORMAL, -9);
        add_merge(b, "x y");
        (void)x, (void)y;
        Tokenizer *t = spm ? load_spm(b) : load_bpe(b, "llama-bpe");
        char expected[64];
        snprintf(expected, sizeof expected, spm ? "35 %d" : "%d", first);
        ids_of(t, "xy", expected);
        assert_int_equal(tokenizer_piece(t, empty).n, 0);
        check_round_trip(t, "a\0b", 3);
        tokenizer_free(t);
    }
}

static void test_lengths(void **state) {
    (void)state;
    Tokenizer *t = load_spm(new_small_spm());
    assert_true(tokenizer_encode(t, NULL, SIZE_MAX, NULL, NULL, 0) == SIZE_MAX); // never read
    assert_true(tokenizer_encode(t, NULL, (size_t)1 << 31, NULL, NULL, 0) == SIZE_MAX);
    assert_true(tokenizer_bound(t, SIZE_MAX) == SIZE_MAX);
    assert_int_equal(tokenizer_encode(t, NULL, 0, NULL, NULL, 0), 0);
    Buf text = {0}; // the most tokens for a byte: added ones with a space after each
    for (int i = 0; i < 100; i++) buf_str(&text, "<tool>\xff");
    check_ids(t, text.data, 7, NULL, "268 259 258");
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
        if (at >= 3 && memcmp(out + at - 3, "\xe2\x96\x81", 3) == 0)
            out[at - 1] = '.'; // means a space to SentencePiece
    }
}

static void test_random_bytes_round_trip(void **state) {
    (void)state;
    uint64_t seed = 20240611;
    char text[200];
    Tokenizer *spm = load_spm(new_small_spm());
    for (int i = 0; i < 3000; i++) {
        size_t n = test_random(&seed) % sizeof text;
        random_text(&seed, text, n);
        for (size_t k = 0; k + 5 < n; k++)
            if (memcmp(text + k, "<tool>", 6) == 0) text[k] = '-';
        if (n < 3 || !memmem(text, n, "\xe2\x96\x81", 3)) check_round_trip(spm, text, n);
    }
    tokenizer_free(spm);
    for (size_t p = 0; p < ARRAY_LEN(patterns); p++) {
        Build *b = new_bpe();
        add(b, "ab", NORMAL, 0);
        add(b, "ĠĠ", NORMAL, 0);
        add(b, "Ġab", NORMAL, 0);
        add_merge(b, "a b");
        add_merge(b, "Ġ Ġ");
        add_merge(b, "Ġ ab");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(patterns[p].names, " "), patterns[p].names);
        Tokenizer *t = load_bpe(b, name);
        for (int i = 0; i < 200; i++) {
            size_t n = test_random(&seed) % sizeof text;
            random_text(&seed, text, n);
            check_round_trip(t, text, n);
        }
        tokenizer_free(t);
    }
}

// ---- long runs ------------------------------------------------------------------------------------------------------

static double encode_time(const Tokenizer *t, const char *unit, const char *last) {
    size_t n = 1 << 20, n_unit = strlen(unit);
    char *text = mem_alloc(n);
    for (size_t i = 0; i < n; i++) text[i] = unit[i % n_unit];
    memcpy(text + n - strlen(last), last, strlen(last));
    int *ids = mem_alloc(tokenizer_bound(t, n) * sizeof *ids);
    clock_t start = clock(); // of the processor: others may keep it busy
    size_t n_ids = tokenizer_encode(t, text, n, NULL, ids, tokenizer_bound(t, n));
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    assert_true(n_ids > 0 && n_ids <= tokenizer_bound(t, n));
    assert_true(seconds < 20); // linear but for a logarithm: squared it would be hours; under emulation, too
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
    for (size_t p = 0; p < ARRAY_LEN(patterns); p++) {
        Build *b = new_bpe();
        const char *tokens[] = {"AA", "AAAA", "ĠĠ", "ĠĠĠĠ", "ĊĊ", "77", "7777"};
        for (size_t i = 0; i < ARRAY_LEN(tokens); i++) add(b, tokens[i], NORMAL, 0), add_merge(b, merges[i]);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(patterns[p].names, " "), patterns[p].names);
        Tokenizer *t = load_bpe(b, name);
        check_long_runs(t);
        tokenizer_free(t);
    }
    Tokenizer *t = load_spm(new_small_spm());
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

// A thousand added tokens that share a beginning, and a text made of it.
static void test_many_added_tokens(void **state) {
    (void)state;
    Build *b = new_spm();
    static char names[700][32];
    for (int i = 0; i < 700; i++) {
        snprintf(names[i], sizeof names[i], "<|reserved_%d|>", i);
        add(b, names[i], USER_DEFINED, 0);
    }
    Tokenizer *t = load_spm(b);
    ids_of(t, "<|reserved_69|><|reserved_699|>", "328 958");
    double first = encode_time(t, "<", ""), second = encode_time(t, "<|reserved_69", "");
    print_message("1 MiB against 700 added tokens: %.0f ms, %.0f ms\n", 1e3 * first, 1e3 * second);
    tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_cpp_ids),
        cmocka_unit_test(test_reference_roles),
        cmocka_unit_test(test_every_pretokenizer),
        cmocka_unit_test(test_pretokenizer_details),
        cmocka_unit_test(test_bpe_ids),
        cmocka_unit_test(test_ignored_merges),
        cmocka_unit_test(test_bpe_broken_merges),
        cmocka_unit_test(test_spm_ids),
        cmocka_unit_test(test_text_that_goes_on),
        cmocka_unit_test(test_spm_missing_bytes),
        cmocka_unit_test(test_spm_bare),
        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_merges_make_no_control_token),
        cmocka_unit_test(test_ids_out_of_range_mean_none),
        cmocka_unit_test(test_bos_and_eog),
        cmocka_unit_test(test_kinds_and_patterns_refused),
        cmocka_unit_test(test_arrays_refused),
        cmocka_unit_test(test_odd_tokens_accepted),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_random_bytes_round_trip),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_long_runs_of_references),
        cmocka_unit_test(test_many_added_tokens),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
