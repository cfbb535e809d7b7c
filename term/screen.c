// term/screen.c: see term/screen.h.
#include "term/screen.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/control.h"
#include "term/terminal.h"

Screen screen_none(void) { return (Screen){.fd = -1}; }

Screen screen_open(int fd, const char *markdown, const char *color) {
    if (!fd_is_capable_terminal(fd)) return screen_none();
    bool colored = terminal_color(color, fd);
    bool on = strcmp(markdown, "auto") == 0 ? colored : strcmp(markdown, "on") == 0;
    return (Screen){.fd = fd, .markdown = on, .md = {.color = colored}};
}

// Control characters of a model could move the cursor or reprogram the terminal: they are shown as ^X, and bytes that
// are not UTF-8 as U+FFFD. \r is left out.
static void add_clean(Str text, Buf *out) {
    for (size_t i = 0; i < text.n;) {
        unsigned char c = (unsigned char)text.data[i];
        int n = utf8_next(text.data + i, text.n - i);
        bool second = n == 2 && control_length(text.data + i) == 2; // C1: ESC and a letter
        if (n <= 0) buf_str(out, "\xef\xbf\xbd");
        else if (second) buf_printf(out, "^[%c", (unsigned char)text.data[i + 1] - 0x40);
        else if ((c < ' ' && c != '\n' && c != '\t' && c != '\r') || c == 0x7f) buf_printf(out, "^%c", c ^ 0x40);
        else if (c != '\r') buf_append(out, text.data + i, (size_t)n);
        i += (size_t)int_max(1, n);
    }
}

static Str without_controls(Screen *s, Str text) {
    s->clean.n = 0;
    add_clean(text, &s->clean);
    return str_of_buf(&s->clean);
}

void screen_plain(Screen *s, Str text, Buf *out) {
    if (s->fd < 0) {
        buf_append(out, text.data, text.n);
        return;
    }
    s->wrap.columns = terminal_columns(s->fd);
    if (s->markdown) markdown_end(&s->md, &s->wrap, out);
    wrap_text(&s->wrap, without_controls(s, text), out);
}

void screen_text(Screen *s, Str text, Buf *out) {
    if (s->fd < 0 || !s->markdown) {
        screen_plain(s, text, out);
        return;
    }
    s->wrap.columns = terminal_columns(s->fd);
    markdown_text(&s->md, without_controls(s, text), &s->wrap, out);
}

void screen_mark(Screen *s, const char *sequence, Buf *out) { wrap_mark(&s->wrap, sequence, out); }

void screen_end(Screen *s, Buf *out) {
    if (s->markdown) markdown_end(&s->md, &s->wrap, out);
    wrap_end(&s->wrap, out);
}

void screen_whole(int fd, Str text, Buf *out) {
    if (isatty(fd)) add_clean(text, out);
    else buf_append(out, text.data, text.n);
}

void screen_note(const char *format, ...) {
    char text[2048];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    Wrap w = {.columns = terminal_columns(STDERR_FILENO)};
    Buf out = {0}, clean = {0};
    add_clean((Str){text, n < 0 ? 0 : strlen(text)}, &clean);
    wrap_text(&w, str_of_buf(&clean), &out);
    wrap_text(&w, str_of("\n"), &out);
    fwrite(out.data, 1, out.n, stderr);
    buf_free(&out);
    buf_free(&clean);
    wrap_free(&w);
}

void screen_free(Screen *s) {
    markdown_free(&s->md);
    wrap_free(&s->wrap);
    buf_free(&s->clean);
    *s = screen_none();
}
