// tests/test_utf8.c: UTF-8: every character, incomplete text, repair of invalid bytes, escapes.
#include "tests/rig/testing.h"

static size_t encode(uint32_t c, char out[4]) {
    if (c < 0x80) return out[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

static bool surrogate(uint32_t c) { return c >= 0xd800 && c < 0xe000; }

// Every character, complete and cut at each place.
static void test_utf8_next_every_character(void **state) {
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char s[4];
        size_t n = encode(c, s);
        if (utf8_next(s, n) != (surrogate(c) ? 0 : (int)n)) fail_msg("U+%04X", c);
        for (size_t cut = 1; cut < n; cut++) {
            int want = surrogate(c) && cut > 1 ? 0 : -1; // the second byte shows that it is a surrogate
            if (utf8_next(s, cut) != want) fail_msg("U+%04X after %zu bytes", c, cut);
        }
    }
    assert_int_equal(utf8_next("", 0), 0);
    assert_int_equal(utf8_next("\0", 1), 1);
}

// Every pair of bytes: valid exactly if some character begins with it.
static void test_utf8_next_every_pair(void **state) {
    (void)state;
    static bool begins[256][256], leads[256];
    for (uint32_t c = 0x80; c < 0x110000; c++) {
        char s[4];
        if (surrogate(c)) continue;
        encode(c, s);
        begins[(uint8_t)s[0]][(uint8_t)s[1]] = leads[(uint8_t)s[0]] = true;
    }
    for (int a = 0x80; a < 256; a++) {
        char one = (char)a;
        assert_int_equal(utf8_next(&one, 1), leads[a] ? -1 : 0);
        for (int b = 0; b < 256; b++) {
            char s[2] = {(char)a, (char)b};
            assert_int_equal(utf8_next(s, 2), !begins[a][b] ? 0 : a < 0xe0 ? 2 : -1);
        }
    }
}

static void test_utf8_next_invalid(void **state) {
    (void)state;
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5",
                                      "\xfe",
                                      "\xff",
                                      "\xe2\x82"
                                      "A",
                                      "\xf0\x9f\x98"
                                      "A",
                                      "\xc3"
                                      "A"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) assert_int_equal(utf8_next(bad[i], strlen(bad[i])), 0);
}

// Text in pieces: complete characters come out at once, incomplete ones wait, and nothing is lost.
static void test_utf8_whole_every_split(void **state) {
    (void)state;
    static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\xe6\xad\xa3\xed\x9f\xbf\xf4\x8f\xbf\xbf!";
    bool boundary[sizeof text] = {false};
    size_t n = sizeof text - 1;
    for (size_t i = 0; i < n; i += (size_t)utf8_next(text + i, n - i)) boundary[i] = true;
    boundary[n] = true;
    for (size_t cut = 0; cut <= n; cut++) {
        size_t whole = utf8_whole(text, cut), want = cut;
        while (!boundary[want]) want--;
        assert_int_equal(whole, want);
    }
    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b++) {
            size_t first = utf8_whole(text, a), second = first + utf8_whole(text + first, b - first);
            size_t third = second + utf8_whole(text + second, n - second);
            assert_true(boundary[first] && boundary[second] && third == n);
        }
}

static void test_utf8_whole_invalid(void **state) {
    (void)state;
    assert_int_equal(utf8_whole("", 0), 0);
    assert_int_equal(utf8_whole("a\xff", 2), 2);        // 0xff cannot begin a character, so nothing is incomplete
    assert_int_equal(utf8_whole("a\x80\x80", 3), 3);    // a continuation byte without a beginning
    assert_int_equal(utf8_whole("\xe2\xe2\x82", 3), 1); // the first is invalid, the second incomplete
    assert_int_equal(utf8_whole("\xed\xa0", 2), 2);     // a surrogate is never valid
    assert_int_equal(utf8_whole("\xf0\x9f\x98", 3), 0);
    assert_int_equal(utf8_whole("\xf0\x9f\x98x", 4), 4);
}

static void assert_repaired(const char *bytes, size_t n, const char *want) {
    Buf out = {0};
    utf8_repair(&out, bytes, n);
    assert_string_equal(out.data, want);
    assert_int_equal(out.n, strlen(want));
    buf_free(&out);
}

#define BAD "\xef\xbf\xbd"

static void test_utf8_repair(void **state) {
    (void)state;
    assert_repaired("", 0, "");
    assert_repaired("plain \xc3\xa9", 8, "plain \xc3\xa9");
    assert_repaired("\xff", 1, BAD);
    assert_repaired("a\x80\x80z", 4, "a" BAD BAD "z");
    assert_repaired("\xe2\x82", 2, BAD BAD); // incomplete
    assert_repaired("\xed\xa0\x80", 3, BAD BAD BAD);
    assert_repaired("\xc3\xe2\x82\xac", 4, BAD "\xe2\x82\xac");
}

// The output is always valid UTF-8, and valid text does not change.
static void test_utf8_repair_random_bytes(void **state) {
    (void)state;
    uint64_t random = 3;
    for (int round = 0; round < 20000; round++) {
        char in[16];
        size_t n = test_random(&random) % sizeof in;
        for (size_t i = 0; i < n; i++)
            in[i] = (char)((test_random(&random) & (round & 1 ? 0xff : 0xbf)) | (round & 2 ? 0x80 : 0));
        Buf once = {0}, twice = {0};
        utf8_repair(&once, in, n);
        for (size_t i = 0; i < once.n;) {
            int len = utf8_next(once.data + i, once.n - i);
            assert_true(len > 0);
            i += (size_t)len;
        }
        utf8_repair(&twice, once.data, once.n);
        assert_string_equal(once.data, twice.data);
        buf_free(&once);
        buf_free(&twice);
    }
}

static void assert_escaped(const char *bytes, size_t n, const char *want) {
    Buf out = {0};
    utf8_escape(&out, bytes, n);
    assert_string_equal(out.data, want);
    buf_free(&out);
}

static void test_utf8_escape(void **state) {
    (void)state;
    assert_escaped("", 0, "");
    assert_escaped("a\n\t\r\\b", 6, "a\\n\\t\\r\\\\b");
    assert_escaped("\0\x1b\x7f", 3, "\\x00\\x1b\\x7f");
    assert_escaped("\xc3\xa9\xff\xe2\x82", 5, "\xc3\xa9\\xff\\xe2\\x82");
    Buf all = {0};
    for (int c = 0; c < 256; c++) utf8_escape(&all, &(char){(char)c}, 1);
    // only one printable line
    for (size_t i = 0; i < all.n; i++) assert_true(all.data[i] >= 0x20 && all.data[i] < 0x7f);
    buf_free(&all);
}

// Names from files must not control a terminal: C0, DEL and the two-byte characters of C1 are escaped.
static void test_controls_are_escaped(void **state) {
    (void)state;
    Buf b = {0};
    const char text[] = "a\x1b[2J\xc2\x9b\xc3\xa9\x7f";
    utf8_escape(&b, text, sizeof text - 1);
    assert_string_equal(b.data, "a\\x1b[2J\\xc2\\x9b\xc3\xa9\\x7f");
    buf_free(&b);
    Status st = status_error(QUILL_MODEL, "%s", text);
    assert_string_equal(st.message, "a?[2J??\xc3\xa9?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_next_every_character), cmocka_unit_test(test_utf8_next_every_pair),
        cmocka_unit_test(test_utf8_next_invalid),         cmocka_unit_test(test_utf8_whole_every_split),
        cmocka_unit_test(test_utf8_whole_invalid),        cmocka_unit_test(test_utf8_repair),
        cmocka_unit_test(test_utf8_repair_random_bytes),  cmocka_unit_test(test_utf8_escape),
        cmocka_unit_test(test_controls_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
