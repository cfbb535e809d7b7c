// tests/test_pretokenize.c: the pieces into which each pre-tokenizer cuts a text. The expected pieces were made with
// Python's `regex` module from llama.cpp's own patterns and steps.
#include "tests/rig/testing.h"

#include "tokens/pretokenize.h"

#define SAMPLE                                                                                                         \
    "It's HE'LL   12345.67 naïve WörldToo  \n\n  x=y+1;//\n\tфыВА 中文かな한국 $5 «ok»!?\r\n #tag 1٣a\u0301 end "

static const struct {
    const char *names, *pieces; // the pieces of SAMPLE, separated by bars
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
                            "中文かな한국| $|5| «|ok|»!?\r\n| #|tag| |1٣|a\u0301| end| "},
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
    assert_int_equal(n_known, ARRAY_LEN(patterns)); // every pattern must have a row here
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
    pieces_of("llama-bpe", "DON'T we'\xc5\xbf", "DON|'T| we|'\xc5\xbf"); // U+017F (long s) is not an s
    pieces_of("llama-bpe", "1234567", "123|456|7");
    pieces_of("llama-bpe", "a \n \n b", "a| \n \n| b");
    pieces_of("llama-bpe", "x!\n\ny", "x|!\n\n|y");
    pieces_of("llama-bpe", "\xef\xbb\xbfhi", "\xef\xbb\xbfhi"); // a byte order mark is an ordinary character
    pieces_of("qwen2",
              "a\xc2\xa0\xc2\xa0"
              "b",
              "a|\xc2\xa0|\xc2\xa0"
              "b");
    pieces_of("qwen2", "\xe1\xa0\x8e\xe1\xa0\x8e", "\xe1\xa0\x8e\xe1\xa0\x8e"); // U+180E is not a space
    pieces_of("gpt-4o", "helloWorld HTMLPage it's", "hello|World| HTMLPage| it's");
    pieces_of("tekken", "fooBar12", "foo|Bar|1|2");
    pieces_of("deepseek-llm", "a   ", "a|   ");
    pieces_of("deepseek-v3", "foo.bar(x)", "foo|.bar|(x|)");
    pieces_of("falcon", "a+b=1234", "a|+|b|=|123|4");
    pieces_of("afmoe", "1234567", "1|234|567");
    pieces_of("tiny_aya", "1234567 12345a", "1|234|567| |123|45|a");
    pieces_of("tiny_aya", "\xd9\xa2\xd9\xa0\xd9\xa2\xd9\xa4 40\xd9\xa2\xd9\xa3",
              "\xd9\xa2|\xd9\xa0\xd9\xa2\xd9\xa4| |4|0\xd9\xa2\xd9\xa3");
    pieces_of("chameleon", "<sentinel:1>IMGIMGABZ    x", "<|sentinel|:|1|>|IMGIMGABZ|    |x");
    check_pieces("gpt-2", "a\xe6\xad", 3, "a|\xe6\xad"); // an incomplete character
    check_pieces("llama-bpe",
                 "a\xff\xfe"
                 "b c\x80",
                 7, "a|\xff\xfe|b| c|\x80");
    assert_null(pretokenizer_new(str_of("gpt")));
    assert_null(pretokenizer_new(str_of("")));
    assert_null(pretokenizer_new(str_of("phi-2 jina-es")));
}

// A vocabulary's own pattern, whose matches may need many steps.
static void own_pieces(const char *pattern, const char *text, const char *expected) {
    Pretokenizer *p;
    Str one = str_of(pattern);
    Buf got = {0};
    int n;
    assert_ok(pretokenizer_of_patterns(&one, 1, &p));
    const PretokenPiece *all = pretokenizer_split(p, text, (int)strlen(text), &n);
    for (int i = 0; i < n; i++)
        buf_printf(&got, "%s%.*s", i ? "|" : "", all[i].end - all[i].begin, text + all[i].begin);
    assert_string_equal(got.data, expected);
    buf_free(&got);
    pretokenizer_free(p);
}

static void test_own_patterns(void **state) {
    (void)state;
    enum { LONG = 1 << 20 };
    own_pieces("(?:a|a){12}b|a{3}|.", "aaaaaaaaaaaaaaax", "aaa|aaa|aaa|aaa|aaa|x");
    own_pieces("(?:a|a){12}b",
               "xx\xc3\xa9"
               "aaaaaaaaaaaaaaaaby",
               "xx\xc3\xa9"
               "aaaa|aaaaaaaaaaaab|y");
    // A hostile one: 2^22 steps at each place.
    Pretokenizer *p;
    Str hostile = str_of("(?:a|a){22}b|."), blanks = str_of("\\s+(?!\\S)|\\S+|\\s+");
    char *text = mem_alloc(LONG + 1);
    int n;
    double start = clock_now();
    memset(text, 'a', LONG);
    assert_ok(pretokenizer_of_patterns(&hostile, 1, &p));
    const PretokenPiece *all = pretokenizer_split(p, text, 3000, &n);
    assert_int_equal(all[n - 1].end, 3000);
    pretokenizer_free(p);
    if (clock_now() - start > 20) fail_msg("a hostile pattern took %.1f s", clock_now() - start);
    // Cuts between groups of digits, which a look at all digits that follow finds at each place.
    Str groups = str_of("(?=(\\d{3})+(?!\\d))");
    start = clock_now();
    memset(text, '1', LONG);
    assert_ok(pretokenizer_of_patterns(&groups, 1, &p));
    all = pretokenizer_split(p, text, LONG, &n);
    assert_int_equal(all[n - 1].end, LONG);
    all = pretokenizer_split(p, text, 301, &n);
    assert_int_equal(n, 101);
    pretokenizer_free(p);
    if (clock_now() - start > 20) fail_msg("groups of digits took %.1f s", clock_now() - start);
    // A real one reads back in a long run of blanks.
    memset(text, ' ', LONG);
    text[LONG - 1] = 'x';
    assert_ok(pretokenizer_of_patterns(&blanks, 1, &p));
    all = pretokenizer_split(p, text, LONG, &n);
    assert_int_equal(n, 3);
    assert_int_equal(all[0].end, LONG - 2);
    pretokenizer_free(p);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pretokenizer),
        cmocka_unit_test(test_pretokenizer_details),
        cmocka_unit_test(test_own_patterns),
    };
    return cmocka_run_group_tests_name("pretokenize", tests, NULL, NULL);
}
