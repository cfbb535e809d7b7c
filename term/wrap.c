// term/wrap.c: see term/wrap.h.
#include "term/wrap.h"

#include <string.h>
#include <utf8proc.h>

enum { TAB = 8, LEAST_COLUMNS = 10 }; // narrower terminals break lines themselves
enum { EMOJI_STYLE = 0xfe0f };        // U+FE0F shows the character before it as an emoji, in two columns

static int width_of(uint32_t c, uint32_t before) {
    if (c == EMOJI_STYLE) return before && utf8proc_charwidth((utf8proc_int32_t)before) == 1;
    return utf8proc_charwidth((utf8proc_int32_t)c);
}

// Reads the character at `at` and returns its length; an invalid byte gives U+FFFD.
static size_t next(Str text, size_t at, uint32_t *c) {
    utf8proc_int32_t found;
    size_t rest = text.n - at;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.data + at, (utf8proc_ssize_t)rest, &found);
    *c = n > 0 ? (uint32_t)found : 0xfffd;
    return n > 0 ? (size_t)n : 1;
}

int wrap_width(Str text) {
    int width = 0;
    uint32_t c, last = 0;
    for (size_t at = 0; at < text.n; last = c) {
        at += next(text, at, &c);
        width += width_of(c, last);
    }
    return width;
}

// ---- where a line may break -----------------------------------------------------------------------------------------

// Scripts without spaces between words: Han, Kana, Bopomofo, Yi, and their full-width marks.
static bool is_unspaced(uint32_t c) {
    return (c >= 0x2e80 && c < 0xa4d0) || (c >= 0xf900 && c < 0xfb00) || (c >= 0xfe30 && c < 0xfe50) ||
           (c >= 0xff00 && c < 0xff61) || (c >= 0x20000 && c < 0x40000);
}

static bool is_in(const uint32_t *set, uint32_t c) {
    while (*set && *set != c) set++;
    return *set != 0;
}

// Characters that may not begin a line: closing brackets, stops, small and repeating kana.
static bool is_closing(uint32_t c) {
    static const uint32_t set[] = {'.',    ',',    ';',    ':',    '!',    '?',    ')',    ']',    '}',    '%',
                                   0x2019, 0x201d, 0x2026, 0x3001, 0x3002, 0x3005, 0x3009, 0x300b, 0x300d, 0x300f,
                                   0x3011, 0x3015, 0x3017, 0x301f, 0x3041, 0x3043, 0x3045, 0x3047, 0x3049, 0x3063,
                                   0x3083, 0x3085, 0x3087, 0x309d, 0x309e, 0x30a1, 0x30a3, 0x30a5, 0x30a7, 0x30a9,
                                   0x30c3, 0x30e3, 0x30e5, 0x30e7, 0x30fb, 0x30fc, 0x30fd, 0x30fe, 0xff01, 0xff05,
                                   0xff09, 0xff0c, 0xff0e, 0xff1a, 0xff1b, 0xff1f, 0xff3d, 0xff5d, 0xff60, 0};
    return is_in(set, c);
}

// Characters that may not end a line.
static bool is_opening(uint32_t c) {
    static const uint32_t set[] = {'(',    '[',    '{',    0x2018, 0x201c, 0x3008, 0x300a, 0x300c, 0x300e,
                                   0x3010, 0x3014, 0x3016, 0x301d, 0xff08, 0xff3b, 0xff5b, 0xff5f, 0};
    return is_in(set, c);
}

static bool may_break(uint32_t before, uint32_t c) {
    if (!is_unspaced(before) && !is_unspaced(c)) return false;
    bool attached = utf8proc_charwidth((utf8proc_int32_t)c) == 0; // a combining mark
    return before && !attached && !is_closing(c) && !is_opening(before);
}

// ---- lines ----------------------------------------------------------------------------------------------------------

static void move(Buf *from, Buf *to) {
    buf_append(to, from->data, from->n);
    from->n = 0;
}

// Moves the column by `width`. Past the terminal's last column the terminal continues in the next line by itself.
static void advance(Wrap *w, int width) {
    w->column += width;
    if (w->columns == 0 || w->column <= w->columns) return;
    w->column = int_max((w->column - 1) % w->columns + 1, width <= 2 ? width : 0); // a wide character is not divided
}

static bool breaks(const Wrap *w) { return w->columns >= LEAST_COLUMNS && !w->whole; }

static void put_spaces(Wrap *w, Buf *out) {
    move(&w->spaces, out);
    advance(w, w->n_spaces);
    w->n_spaces = 0;
}

// Writes the held word, on a new line if it does not fit on this one.
static void put_word(Wrap *w, Buf *out) {
    if (w->n_word == 0) { // only sequences without width
        move(&w->word, out);
        return;
    }
    if (breaks(w) && w->begun && !w->cut && w->column + w->n_spaces + w->n_word > w->columns) {
        buf_str(out, "\n");
        buf_append(out, w->hang.data, w->hang.n);
        w->column = w->n_hang;
        w->spaces.n = 0;
        w->n_spaces = 0;
    }
    put_spaces(w, out);
    move(&w->word, out);
    advance(w, w->n_word);
    w->n_word = 0;
    w->begun = true;
}

static void end_word(Wrap *w, Buf *out) {
    put_word(w, out);
    w->cut = false;
    w->last = 0;
}

static void end_line(Wrap *w, Buf *out) {
    end_word(w, out);
    if (!breaks(w)) put_spaces(w, out);
    buf_str(out, "\n");
    w->spaces.n = w->hang.n = 0;
    w->n_spaces = w->n_hang = w->column = 0;
    w->begun = false;
}

static void add_space(Wrap *w, char c, Buf *out) {
    if (w->word.n || w->cut) end_word(w, out);
    int at = w->column + w->n_spaces;
    buf_append(&w->spaces, &c, 1);
    w->n_spaces += c == '\t' ? TAB - at % TAB : 1;
}

static void add_character(Wrap *w, uint32_t c, Str bytes, Buf *out) {
    if (may_break(w->last, c)) end_word(w, out);
    buf_append(&w->word, bytes.data, bytes.n);
    w->n_word += width_of(c, w->last);
    w->last = c;
    bool is_long = breaks(w) && w->n_hang + w->n_word > w->columns;
    if (w->cut || is_long || !breaks(w)) put_word(w, out);
    if (is_long) w->cut = true;
}

void wrap_text(Wrap *w, Str text, Buf *out) {
    for (size_t at = 0; at < text.n;) {
        uint32_t c;
        size_t n = next(text, at, &c);
        if (c == '\n') end_line(w, out);
        else if (c == ' ' || c == '\t') add_space(w, (char)c, out);
        else add_character(w, c, (Str){text.data + at, n}, out);
        at += n;
    }
}

void wrap_mark(Wrap *w, const char *sequence, Buf *out) {
    if (w->word.n) buf_str(&w->word, sequence);
    else if (w->n_spaces) buf_str(&w->word, sequence);
    else buf_str(out, sequence);
}

void wrap_hang(Wrap *w, const char *hang) {
    w->hang.n = 0;
    buf_str(&w->hang, hang);
    w->n_hang = wrap_width(str_of(hang));
}

void wrap_end(Wrap *w, Buf *out) {
    end_word(w, out);
    put_spaces(w, out);
}

void wrap_free(Wrap *w) {
    buf_free(&w->hang);
    buf_free(&w->spaces);
    buf_free(&w->word);
    *w = (Wrap){0};
}
