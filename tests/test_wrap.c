// tests/test_wrap.c: lines are broken between words, by the columns that characters take.
#include "term/wrap.h"

#include <string.h>

#include "tests/rig/testing.h"

// Wraps the text given in pieces of n bytes, cut between characters; 0: as a whole.
static void wrapped(const char *text, int columns, size_t piece, Buf *out) {
    Wrap w = {.columns = columns};
    size_t all = strlen(text);
    for (size_t at = 0; at < all;) {
        size_t n = piece && all - at > piece ? utf8_whole(text + at, piece) : all - at;
        if (n == 0) n = (size_t)utf8_next(text + at, all - at);
        wrap_text(&w, (Str){text + at, n}, out);
        at += n;
    }
    wrap_end(&w, out);
    buf_append(out, "", 0);
    wrap_free(&w);
}

static const struct {
    int columns;
    const char *text, *wanted;
} cases[] = {
    {20, "the quick brown fox jumps over", "the quick brown fox\njumps over"},
    {20, "exactly twenty chars", "exactly twenty chars"},
    {20, "exactly twenty chars and more", "exactly twenty chars\nand more"},
    {20, "the spaces at a      break go", "the spaces at a\nbreak go"},
    {20, "one\ntwo\n\nthree", "one\ntwo\n\nthree"},
    {20, "    an indented line stays so", "    an indented line\nstays so"},
    {20, "short https://example.org/long/path and on", "short\nhttps://example.org/long/path and on"},
    {20, "short https://example.org/long/pat and some", "short\nhttps://example.org/long/pat and some"},
    {20, "a\tb\tcd efgh", "a\tb\tcd\nefgh"},
    {0, "no terminal: the quick brown fox jumps over the lazy dog",
     "no terminal: the quick brown fox jumps over the lazy dog"},
    {5, "too narrow to gain anything", "too narrow to gain anything"},
    // Wide characters take two columns; lines may break between them, but not before marks.
    {10, "\u6f22\u5b57\u6f22\u5b57\u6f22\u5b57\u6f22", "\u6f22\u5b57\u6f22\u5b57\u6f22\n\u5b57\u6f22"},
    {10, "\u6f22\u5b57\u6f22\u5b57\u6f22\u3002\u5b57", "\u6f22\u5b57\u6f22\u5b57\n\u6f22\u3002\u5b57"},
    {10, "\u6f22\u5b57\u6f22\u5b57\u300c\u6f22\u300d", "\u6f22\u5b57\u6f22\u5b57\n\u300c\u6f22\u300d"},
    {10, "\u6f22\u5b57\u6f22\u5b57abc def", "\u6f22\u5b57\u6f22\u5b57\nabc def"},
    {10, "\ud55c\uad6d\uc5b4 \ub744\uc5b4\uc4f0\uae30", "\ud55c\uad6d\uc5b4\n\ub744\uc5b4\uc4f0\uae30"},
    // Combining marks take no columns: each word here takes four or five.
    {10, "abcde\u0301 ghi e\u0301", "abcde\u0301 ghi\ne\u0301"},
    {10, "cafe\u0301 cafe\u0301 x", "cafe\u0301 cafe\u0301\nx"},
    // Emoji take two columns, also with U+FE0F.
    {10, "\U0001f600\U0001f600 \U0001f600\U0001f600 x", "\U0001f600\U0001f600 \U0001f600\U0001f600\nx"},
    {10, "aaaaaaa \u2764\ufe0f", "aaaaaaa \u2764\ufe0f"},
    {10, "aaaaaaaa \u2764\ufe0f", "aaaaaaaa\n\u2764\ufe0f"},
    {10, "aaaaaaaa \u2764", "aaaaaaaa \u2764"},
};

static void lines(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t piece = 0; piece < 5; piece++) {
            Buf out = {0};
            wrapped(cases[i].text, cases[i].columns, piece, &out);
            if (strcmp(out.data, cases[i].wanted) != 0)
                fail_msg("case %zu, pieces of %zu: \"%s\", expected \"%s\"", i, piece, out.data, cases[i].wanted);
            buf_free(&out);
        }
}

// Colour codes take no columns, and stay next to their word.
static void marks(void **state) {
    (void)state;
    Wrap w = {.columns = 10};
    Buf out = {0};
    wrap_text(&w, str_of("aaaa "), &out);
    wrap_mark(&w, "\033[1m", &out);
    wrap_text(&w, str_of("bbbbb"), &out);
    wrap_mark(&w, "\033[0m", &out);
    wrap_text(&w, str_of(" c "), &out);
    wrap_mark(&w, "\033[1m", &out);
    wrap_text(&w, str_of(" dddddd"), &out);
    wrap_end(&w, &out);
    assert_string_equal(out.data, "aaaa \033[1mbbbbb\033[0m\nc\033[1m  dddddd");
    buf_free(&out);
    wrap_free(&w);
}

static void hang(void **state) {
    (void)state;
    Wrap w = {.columns = 12};
    Buf out = {0};
    wrap_text(&w, str_of("- "), &out);
    wrap_hang(&w, "  ");
    wrap_text(&w, str_of("aaa bbb ccc ddd eee\nfff ggg hhh iii"), &out);
    wrap_end(&w, &out);
    assert_string_equal(out.data, "- aaa bbb\n  ccc ddd\n  eee\nfff ggg hhh\niii");
    buf_free(&out);
    wrap_free(&w);
}

// A word is written when it is certain that it fits, and not earlier.
static void streams(void **state) {
    (void)state;
    Wrap w = {.columns = 12};
    Buf out = {0};
    wrap_text(&w, str_of("one two"), &out);
    assert_string_equal(out.data, "one");
    wrap_text(&w, str_of(" "), &out);
    assert_string_equal(out.data, "one two");
    w.columns = 10; // the window has become narrower
    wrap_text(&w, str_of("three "), &out);
    assert_string_equal(out.data, "one two\nthree");
    w.whole = true; // code is written at once
    wrap_text(&w, str_of("aaaa bbbb cccc"), &out);
    assert_string_equal(out.data, "one two\nthree aaaa bbbb cccc");
    buf_free(&out);
    wrap_free(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines), cmocka_unit_test(marks), cmocka_unit_test(hang),
                                       cmocka_unit_test(streams)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
