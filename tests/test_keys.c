// tests/test_keys.c: the bytes of a terminal that belong to one key, and the key that a sequence means.
#include "term/keys.h"

#include <string.h>

#include "tests/rig/testing.h"

static void lengths(void **state) {
    (void)state;
    static const struct {
        const char *input;
        int length;
    } cases[] = {
        {"", 0},
        {"ab", 1},
        {"\xc3\xa9x", 2},
        {"\xc3", -1},
        {"\xff", 1},
        {"\r", 1},
        {"\033", -1},
        {"\033b", 2},
        {"\033\r", 2},
        {"\033\xc3", -1},
        {"\033\xc3\xa9", 3},
        {"\033[", -1},
        {"\033[1;", -1},
        {"\033[1;5", -1},
        {"\033[1;5Dx", 6},
        {"\033[[", -1},
        {"\033[[Ax", 4},
        {"\033[<0;1;2M", 9},
        {"\033[5\rx", 3},      // a control character does not belong to a sequence
        {"\033[5\xc3\xa9", 3}, // nor do bytes above 0x7f
        {"\033[5\033[A", 3},
        {"\033O", -1},
        {"\033OPx", 3},
        {"\033\033", -1},
        {"\033\033[", -1},
        {"\033\033[Dx", 4},
        {"\033\033\033", 1},
        {"\033\033x", 1},
        {"\033]0;a", -1},
        {"\033]0;a\ax", 6},
        {"\033]0;a\033\\x", 7},
        {"\033P1$r\033\\", 7},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *exact = mem_copy(cases[i].input, strlen(cases[i].input));
        int n = keys_length((Str){exact, strlen(exact)});
        if (n != cases[i].length) fail_msg("case %zu: %d, expected %d", i, n, cases[i].length);
        free(exact);
    }
    char endless[5000];
    memset(endless, 'a', sizeof endless);
    memcpy(endless, "\033]", 2);
    assert_int_equal(keys_length((Str){endless, 4000}), -1);
    assert_int_equal(keys_length((Str){endless, sizeof endless}), 2); // longer than any reply of a terminal
}

static void texts(void **state) {
    (void)state;
    static const struct {
        const char *sequence, *text; // text NULL: the sequence has none
    } cases[] = {
        {"\033\r", "\n"},        {"\033\n", "\n"},          {"\033b", NULL},
        {"\033[13;2u", "\n"},    {"\033[13;5u", "\n"},      {"\033[13u", "\r"},
        {"\033[27;2;13~", "\n"}, {"\033[27;5;106~", "\n"},  {"\033[97;5u", "\001"},
        {"\033[97;2u", "A"},     {"\033[97;3u", "\033a"},   {"\033[97;7u", "\033\001"},
        {"\033[32;2u", " "},     {"\033[32;5u", NULL},      {"\033[9;2u", NULL},
        {"\033[127;5u", "\027"}, {"\033[233u", "\xc3\xa9"}, {"\033[128512;2u", "\xf0\x9f\x98\x80"},
        {"\033[57441;2u", NULL}, {"\033[0u", NULL},         {"\033[99999999999u", NULL},
        {"\033[u", NULL},        {"\033[;u", NULL},         {"\033[97:65;2u", "A"},
        {"\033[97;2:1u", "A"},   {"\033[5~", NULL},         {"\033[200~", NULL},
        {"\033[55296u", NULL},   {"\033[1;5D", NULL},       {"\033OP", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Buf text = {0};
        bool some = keys_text(str_of(cases[i].sequence), &text);
        if (some != (cases[i].text != NULL)) fail_msg("case %zu", i);
        if (some) assert_string_equal(text.data, cases[i].text);
        buf_free(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lengths), cmocka_unit_test(texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
