// tests/test_screen.c: an answer on a terminal: thoughts, Markdown, a window that changes its width.
#define _GNU_SOURCE
#include "term/screen.h"

#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/rig/testing.h"

static int master, terminal;

// Sets the width of the window; skips the test if the machine has no pseudo-terminals.
static void resize(int columns) {
    if (terminal < 0) {
        print_message("skipped: this machine gives no pseudo-terminals\n");
        skip();
    }
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    assert_int_equal(ioctl(terminal, TIOCSWINSZ, &size), 0);
}

static int open_terminal(void **state) {
    (void)state;
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    if (openpty(&master, &terminal, NULL, NULL, NULL) != 0) terminal = -1;
    return 0;
}

static int close_terminal(void **state) {
    (void)state;
    return terminal < 0 ? 0 : close(master) | close(terminal);
}

static void thoughts_and_answer(void **state) {
    (void)state;
    resize(20);
    Screen s = screen_open(terminal, "auto", "auto");
    Buf out = {0};
    screen_mark(&s, "\033[2m", &out);
    screen_plain(&s, str_of("a thought that is *not* marked"), &out);
    screen_mark(&s, "\033[0m", &out);
    screen_plain(&s, str_of("\n\n"), &out);
    screen_text(&s, str_of("an answer **that is**, and two lines"), &out);
    screen_end(&s, &out);
    assert_string_equal(out.data, "\033[2ma thought that is\n*not* marked\033[0m\n\n"
                                  "an answer \033[0;1mthat is\033[0m,\nand two lines");
    screen_free(&s);
    buf_free(&out);
}

static void a_window_that_changes(void **state) {
    (void)state;
    resize(40);
    Screen s = screen_open(terminal, "off", "never");
    Buf out = {0};
    screen_text(&s, str_of("aaaa bbbb cccc dddd eeee "), &out);
    resize(20);
    screen_text(&s, str_of("ffff gggg hhhh iiii jjjj "), &out);
    resize(0); // unknown width: the terminal itself breaks lines
    screen_text(&s, str_of("kkkk llll mmmm nnnn oooo pppp"), &out);
    screen_end(&s, &out);
    assert_string_equal(out.data, "aaaa bbbb cccc dddd eeee\nffff gggg hhhh iiii\njjjj "
                                  "kkkk llll mmmm nnnn oooo pppp");
    screen_free(&s);
    buf_free(&out);
}

static void what_is_none(void **state) {
    (void)state;
    static const char text[] = "**as** it `is`\033[2J\r\n and longer than twenty columns\xff";
    resize(20);
    int file[2];
    assert_int_equal(pipe(file), 0);
    for (int dumb = 0; dumb < 2; dumb++) {
        if (dumb) setenv("TERM", "dumb", 1);
        Screen s = screen_open(dumb ? terminal : file[1], "on", "always");
        Buf out = {0};
        screen_text(&s, str_of(text), &out);
        screen_end(&s, &out);
        assert_string_equal(out.data, text);
        screen_free(&s);
        buf_free(&out);
    }
    close(file[0]);
    close(file[1]);
    setenv("TERM", "xterm", 1);
}

static void controls(void **state) {
    (void)state;
    resize(80);
    Screen s = screen_open(terminal, "off", "never");
    Buf out = {0};
    screen_text(&s,
                str_of("a\033[31mb\rc\r\n\td\x7f\a\xc2\x9b"
                       "31m\xc3\xa9\xff"),
                &out);
    screen_end(&s, &out);
    assert_string_equal(out.data, "a^[[31mbc\n\td^?^G^[[31m\xc3\xa9\xef\xbf\xbd");
    screen_free(&s);
    buf_free(&out);
}

static void whole_texts(void **state) {
    (void)state;
    static const char text[] = "a\033[2J\xc2\x9b"
                               "2J, and no line is broken in a text that is longer than twenty columns\n";
    resize(20);
    int file[2];
    assert_int_equal(pipe(file), 0);
    for (int dumb = 0; dumb < 2; dumb++) {
        setenv("TERM", dumb ? "dumb" : "xterm", 1);
        Buf shown = {0}, piped = {0};
        screen_whole(terminal, str_of(text), &shown);
        screen_whole(file[1], str_of(text), &piped);
        assert_string_equal(shown.data,
                            "a^[[2J^[[2J, and no line is broken in a text that is longer than twenty columns\n");
        assert_string_equal(piped.data, text);
        buf_free(&shown);
        buf_free(&piped);
    }
    close(file[0]);
    close(file[1]);
    setenv("TERM", "xterm", 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(thoughts_and_answer), cmocka_unit_test(a_window_that_changes),
                                       cmocka_unit_test(what_is_none), cmocka_unit_test(controls),
                                       cmocka_unit_test(whole_texts)};
    return cmocka_run_group_tests(tests, open_terminal, close_terminal);
}
