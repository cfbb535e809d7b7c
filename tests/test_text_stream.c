// tests/test_text_stream.c: the part of an answer that may be shown: stop strings across tokens, complete characters.
#include "tests/rig/testing.h"

#include "answer/text_stream.h"

// Feeds text in pieces of the given lengths (0 ends the list; the rest is one piece) and returns all shown text.
static Buf feed(TextStream *t, const char *text, size_t n, const size_t *cuts) {
    Buf out = {0};
    size_t at = 0;
    while (at < n) {
        size_t len = *cuts ? *cuts++ : n - at;
        if (len > n - at) len = n - at;
        if (text_stream_add(t, text + at, len, &out)) break;
        at += len;
    }
    if (!t->stopped) text_stream_end(t, &out);
    buf_append(&out, "", 0);
    return out;
}

static void test_stop_strings(void **state) {
    (void)state;
    static const struct {
        const char *stops[3], *text, *shown;
        bool stopped;
    } cases[] = {
        {{"END"}, "one two", "one two", false},
        {{"END"}, "one END two", "one ", true},
        {{"END"}, "one EN", "one EN", false}, // held back, then shown because it was no stop string
        {{"END"}, "one ENEND", "one EN", true},
        {{"aab"}, "aaaab", "aa", true},
        {{"abab", "c"}, "ababab", "", true},
        {{"END"}, "END", "", true},
        {{"abcd", "bc"}, "xabcd", "xa", true}, // "bc" is complete first
        {{"abc", "c"}, "xabcd", "x", true},    // both end at the same byte: the longer one counts
        {{"\n\n", "###"}, "a\n##\n\nb", "a\n##", true},
        {{"x"}, "", "", false},
        {{NULL}, "END", "END", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int n_stop = 0;
        while (n_stop < 3 && cases[i].stops[n_stop]) n_stop++;
        for (size_t cut = 1; cut <= 8; cut++) {
            size_t cuts[64];
            for (size_t k = 0; k < 63; k++) cuts[k] = cut;
            cuts[63] = 0;
            TextStream t = {.stop = cases[i].stops, .n_stop = n_stop};
            Buf out = feed(&t, cases[i].text, strlen(cases[i].text), cuts);
            assert_string_equal(out.data, cases[i].shown);
            assert_int_equal(t.stopped, cases[i].stopped);
            buf_free(&out);
            text_stream_free(&t);
        }
    }
}

static void test_holds_no_more_than_needed(void **state) {
    (void)state;
    const char *stops[] = {"STOP"};
    TextStream t = {.stop = stops, .n_stop = 1};
    Buf out = {0};
    assert_false(text_stream_add(&t, "abcS", 4, &out));
    assert_int_equal(out.n, 3);
    assert_false(text_stream_add(&t, "TO", 2, &out));
    assert_int_equal(out.n, 3);
    assert_false(text_stream_add(&t, "S", 1, &out)); // of "STOS" only the last S may begin a stop string
    assert_string_equal(out.data, "abcSTO");
    assert_true(text_stream_add(&t, "TOP and more", 12, &out));
    assert_string_equal(out.data, "abcSTO");
    assert_true(text_stream_add(&t, "more", 4, &out));
    assert_string_equal(out.data, "abcSTO");
    buf_free(&out);
    text_stream_free(&t);
}

static void test_whole_characters(void **state) {
    (void)state;
    const char text[] = "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x8e\x89z"; // characters of 1, 2, 3, 4 and 1 bytes
    TextStream t = {.whole = true}, raw = {0};
    Buf out = {0}, bytes = {0};
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        text_stream_add(&t, text + i, 1, &out);
        text_stream_add(&raw, text + i, 1, &bytes);
        assert_int_equal(utf8_whole(out.data ? out.data : "", out.n), out.n);
        assert_int_equal(bytes.n, i + 1); // in raw mode, bytes are shown at once
    }
    assert_string_equal(out.data, text);
    // The bytes of an incomplete character are shown at the end, and a byte that cannot begin a character at once.
    text_stream_add(&t, "\xe4\xb8", 2, &out);
    assert_string_equal(out.data, text);
    text_stream_end(&t, &out);
    assert_int_equal(out.n, sizeof text - 1 + 2);
    text_stream_add(&t, "\xff", 1, &out);
    assert_int_equal(out.n, sizeof text - 1 + 3);
    buf_free(&out);
    buf_free(&bytes);
    text_stream_free(&t);
    text_stream_free(&raw);
}

// The shown text must not depend on the pieces.
static void test_cuts_do_not_matter(void **state) {
    (void)state;
    uint64_t random = 7;
    const char *stops[] = {"aba", "bb\xc3\xa9", "\xa9\x62"}; // the last one begins inside a character
    const char *letters[] = {"a", "b", "\xc3\xa9", "\xe4\xb8\xad"};
    for (int round = 0; round < 3000; round++) {
        Buf text = {0};
        int n = (int)(test_random(&random) % 24);
        for (int i = 0; i < n; i++) buf_str(&text, letters[test_random(&random) % 4]);
        buf_append(&text, "", 0);
        TextStream whole = {.stop = stops, .n_stop = 3, .whole = round % 2};
        TextStream cut = whole;
        size_t cuts[128], none[] = {0};
        for (size_t i = 0; i < 127; i++) cuts[i] = 1 + test_random(&random) % 4;
        cuts[127] = 0;
        Buf a = feed(&whole, text.data, text.n, none), b = feed(&cut, text.data, text.n, cuts);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.data, b.data, a.n);
        assert_int_equal(whole.stopped, cut.stopped);
        buf_free(&a);
        buf_free(&b);
        buf_free(&text);
        text_stream_free(&whole);
        text_stream_free(&cut);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_holds_no_more_than_needed),
        cmocka_unit_test(test_whole_characters),
        cmocka_unit_test(test_cuts_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
