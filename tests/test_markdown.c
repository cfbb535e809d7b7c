// tests/test_markdown.c: Markdown becomes styled text, whatever tokens it arrives in.
#include "term/markdown.h"

#include <string.h>

#include "tests/rig/testing.h"

// Writes styles as letters, <b>...<>: bold, italic, underlined, dim, code.
static void readable(const Buf *raw, Buf *out) {
    for (size_t i = 0; i < raw->n; i++) {
        if (raw->data[i] != '\033') {
            buf_append(out, raw->data + i, 1);
            continue;
        }
        buf_str(out, "<");
        for (; raw->data[i] != 'm'; i++)
            if (raw->data[i] == ';') {
                char digit = raw->data[i + 1];
                buf_str(out, digit == '1'                              ? "b"
                             : digit == '3' && raw->data[i + 2] == '6' ? "c"
                             : digit == '3'                            ? "i"
                             : digit == '4'                            ? "u"
                                                                       : "d");
            }
        buf_str(out, ">");
    }
    buf_append(out, "", 0);
}

static void shown(const char *text, size_t piece, int columns, bool color, Buf *out) {
    Markdown m = {.color = color};
    Wrap w = {.columns = columns};
    Buf raw = {0};
    size_t all = strlen(text);
    for (size_t at = 0; at < all;) {
        size_t n = piece && all - at > piece ? utf8_whole(text + at, piece) : all - at;
        if (n == 0) n = (size_t)utf8_next(text + at, all - at);
        markdown_text(&m, (Str){text + at, n}, &w, &raw);
        at += n;
    }
    markdown_end(&m, &w, &raw);
    wrap_end(&w, &raw);
    readable(&raw, out);
    buf_free(&raw);
    wrap_free(&w);
    markdown_free(&m);
}

typedef struct {
    const char *text, *wanted;
} MarkdownCase;

static void check(const MarkdownCase *cases, size_t n, int columns, bool color) {
    for (size_t i = 0; i < n; i++)
        for (size_t piece = 0; piece < 6; piece++) {
            Buf out = {0};
            shown(cases[i].text, piece, columns, color, &out);
            if (strcmp(out.data, cases[i].wanted) != 0)
                fail_msg("case %zu (\"%s\"), pieces of %zu: \"%s\", expected \"%s\"", i, cases[i].text, piece, out.data,
                         cases[i].wanted);
            buf_free(&out);
        }
}

static void emphasis(void **state) {
    (void)state;
    static const MarkdownCase cases[] = {
        {"a **bold** word", "a <b>bold<> word"},
        {"an *italic* and an _italic_ word", "an <i>italic<> and an <i>italic<> word"},
        {"***both***, __bold__", "<bi>both<>, <b>bold<>"},
        {"**bold with *italic* in it**", "<b>bold with <bi>italic<b> in it<>"},
        {"*italic with **bold***", "<i>italic with <bi>bold<>"},
        {"**bold with `code` and * a star**", "<b>bold with <bc>code<b> and * a star<>"},
        {"**N**ame, pre**fix**", "<b>N<>ame, pre<b>fix<>"},
        // None of these is Markdown.
        {"2 * 3 * 4, 2*3*4, 2**3 and 3**2 ", "2 * 3 * 4, 2*3*4, 2**3 and 3**2 "},
        {"snake_case_name and __init", "snake_case_name and __init"},
        {"a *star that ends nowhere", "a *star that ends nowhere"},
        {"**bold that ends\nin the next line**", "**bold that ends\nin the next line**"},
        {"\\*not italic\\*, \\`no code\\`", "*not italic*, `no code`"},
        {"\\(x\\) \\\\ C:\\dir", "\\(x\\) \\\\ C:\\dir"},
        {"*a `b* c` d*", "<i>a <ic>b* c<i> d<>"},
        {"****four****", "****four****"},
        {"** a **", "** a **"},
        {"\u4e2d\u6587**\u5f3a\u8c03**\u4e2d\u6587", "\u4e2d\u6587<b>\u5f3a\u8c03<>\u4e2d\u6587"},
        {"\\", "\\"},
        {"*", "*"},
    };
    check(cases, ARRAY_LEN(cases), 0, true);
}

static void code(void **state) {
    (void)state;
    static const MarkdownCase cases[] = {
        {"run `ls -l` now", "run <c>ls -l<> now"},
        {"`` a`b ``", "<c>a`b<>"},
        {"`**not bold**`", "<c>**not bold**<>"},
        {"a ` alone", "a ` alone"},
        {"`open\nclosed`", "`open\nclosed`"},
        {"```c\nint *a = *b;\n\n    return **p;\n```\n**on**",
         "<d>```c<>\n<c>int *a = *b;<>\n\n<c>    return **p;<>\n<d>```<>\n<b>on<>"},
        {"~~~\n```\n~~~~\nx", "<d>~~~<>\n<c>```<>\n<d>~~~~<>\nx"},
        {"````\n```\n````", "<d>````<>\n<c>```<>\n<d>````<>"},
        {"```\nnever closed", "<d>```<>\n<c>never closed<>"},
        {"```\n``` no end\n```  \nx", "<d>```<>\n<c>``` no end<>\n<d>```<>  \nx"},
        {"- x\n  ```sh\n  ls\n  ```\ny", "\u2022 x\n<d>  ```sh<>\n<c>  ls<>\n<d>  ```<>\ny"},
        {"```not `a` fence", "```not <c>a<> fence"},
        {"    indented *code* stays", "    indented *code* stays"},
    };
    check(cases, ARRAY_LEN(cases), 0, true);
    static const MarkdownCase plain[] = {
        {"run `ls -l` and **bold**", "run `ls -l` and <b>bold<>"},
        {"```\ncode\n```", "<d>```<>\ncode\n<d>```<>"},
    };
    check(plain, ARRAY_LEN(plain), 0, false);
}

static void blocks(void **state) {
    (void)state;
    static const MarkdownCase cases[] = {
        {"# One\n## Two\n### Three *it*\nx", "<bu>One<>\n<bu>Two<>\n<b>Three <bi>it<>\nx"},
        {"#hashtag, #! and ####### seven", "#hashtag, #! and ####### seven"},
        {"#", "#"},
        {"# ", "# "},
        {"- one\n* two\n+ three\n", "\u2022 one\n\u2022 two\n\u2022 three\n"},
        {"- one\n  - **inner**\n    more\n- two", "\u2022 one\n  \u2022 <b>inner<>\n    more\n\u2022 two"},
        {"1. one\n2) two\n1999 was\n3.14", "1. one\n2) two\n1999 was\n3.14"},
        {"-5 degrees\n*five* degrees\n-", "-5 degrees\n<i>five<> degrees\n-"},
        {"---\n* * *\n___\n--", "<d>---<>\n<d>* * *<>\n<d>___<>\n--"},
        {"**bold** begins\n__so__", "<b>bold<> begins\n<b>so<>"},
        {"> said *so*\n>> twice\nx", "<d>\u2502 <>said <i>so<>\n<d>\u2502 \u2502 <>twice\nx"},
        {"> ```\n> a * b\n> ```\n> c", "<d>\u2502 ```<>\n<d>\u2502 <c>a * b<>\n<d>\u2502 ```<>\n<d>\u2502 <>c"},
        {"> ```\n> a\nb *c*", "<d>\u2502 ```<>\n<d>\u2502 <c>a<>\nb <i>c<>"},
        {"| a | **b** |\n|---|---|\n", "| a | <b>b<> |\n|---|---|\n"},
        {"[a link](http://x.y/a_b_c)", "[a link](http://x.y/a_b_c)"},
        {"\n\n   \nx\n", "\n\n   \nx\n"},
    };
    check(cases, ARRAY_LEN(cases), 0, true);
}

static void wraps(void **state) {
    (void)state;
    static const MarkdownCase cases[] = {
        {"- aaaa **bbbb cccc** dddd\n- e", "\u2022 aaaa <b>bbbb\n  cccc<> dddd\n\u2022 e"},
        {"12. aaaa bbbb cccc dddd", "12. aaaa\n    bbbb\n    cccc\n    dddd"},
        {"- a\n  - bbbb cccc dddd", "\u2022 a\n  \u2022 bbbb\n    cccc\n    dddd"},
        {"> aaaa bbbb cccc", "<d>\u2502 <>aaaa bbbb\n\u2502 cccc"},
        {"```\naaaa bbbb cccc dddd\n```", "<d>```<>\n<c>aaaa bbbb cccc dddd<>\n<d>```<>"},
        {"### aaaa bbbb cccc", "<b>aaaa bbbb\ncccc<>"},
    };
    check(cases, ARRAY_LEN(cases), 12, true);
}

// Text is held back until its style is known, and not longer.
static void streams(void **state) {
    (void)state;
    static const struct {
        const char *token, *wanted; // wanted: the output after this token
    } steps[] = {
        {"#", ""},
        {" ", ""},
        {"He", "<bu>He"},
        {"ad\n", "<bu>Head<>\n"},
        {"-", "<bu>Head<>\n"},
        {" one", "<bu>Head<>\n\u2022 one"},
    };
    Markdown m = {.color = true};
    Wrap w = {0};
    Buf raw = {0};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        markdown_text(&m, str_of(steps[i].token), &w, &raw);
        Buf out = {0};
        readable(&raw, &out);
        assert_string_equal(out.data, steps[i].wanted);
        buf_free(&out);
    }
    markdown_text(&m, str_of(" *two"), &w, &raw);
    assert_int_equal(m.held.n, 4);
    for (int i = 0; i < MARKDOWN_HELD; i++) markdown_text(&m, str_of("x"), &w, &raw);
    assert_int_equal(m.held.n, 0); // the limit of held text is reached
    buf_free(&raw);
    markdown_free(&m);
    wrap_free(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(emphasis), cmocka_unit_test(code), cmocka_unit_test(blocks),
                                       cmocka_unit_test(wraps), cmocka_unit_test(streams)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
