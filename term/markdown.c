// term/markdown.c: see term/markdown.h.
#include "term/markdown.h"

#include <string.h>

// ---- styles ---------------------------------------------------------------------------------------------------------

enum { BOLD = 1, ITALIC = 2, UNDERLINE = 4, DIM = 8, CODE = 16 };

typedef struct {
    Markdown *m;
    Wrap *w;
    Buf *out;
} To;

static void set_style(To to, unsigned style) {
    if (!to.m->color) style &= ~(unsigned)CODE;
    if (style == to.m->style) return;
    static const char *const codes[] = {";1", ";3", ";4", ";2", ";36"};
    Buf sequence = {0};
    buf_str(&sequence, "\033[0");
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (style & 1u << i) buf_str(&sequence, codes[i]);
    buf_str(&sequence, "m");
    wrap_mark(to.w, sequence.data, to.out);
    buf_free(&sequence);
    to.m->style = style;
}

static void put(To to, Str text, unsigned style) {
    if (text.n == 0) return;
    set_style(to, style);
    wrap_text(to.w, text, to.out);
}

static Str part(Str s, size_t from, size_t to) { return (Str){s.data + from, to - from}; }

// ---- within a line --------------------------------------------------------------------------------------------------

// Result of a search in a text that may continue.
typedef enum { FOUND, MISSING, UNKNOWN } Search;

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c, bool any) {
    bool ascii = is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return ascii || (any && (unsigned char)c >= 0x80);
}

static size_t run_of(Str s, size_t at) {
    size_t n = 1;
    while (at + n < s.n && s.data[at + n] == s.data[at]) n++;
    return n;
}

// The part of the line in which the end of emphasis or code is searched: up to MARKDOWN_HELD bytes from `at`. *open:
// the text continues after it. Returns what it means if nothing is found: UNKNOWN while more may come.
static Search window(Str s, size_t at, bool whole, Str *out, bool *open) {
    bool cut = s.n - at > MARKDOWN_HELD;
    *out = (Str){s.data, cut ? at + MARKDOWN_HELD : s.n};
    *open = cut || !whole;
    return !cut && !whole ? UNKNOWN : MISSING;
}

// Finds the end of the code that begins with the run of backquotes at `at`.
static Search find_code(Str s, size_t at, bool open, size_t *end) {
    size_t n = run_of(s, at);
    for (size_t i = at + n; i < s.n;) {
        size_t run = run_of(s, i);
        if (s.data[i] == '`' && i + run == s.n && open) break;
        if (s.data[i] == '`' && run == n) return *end = i, FOUND;
        i += run;
    }
    return MISSING;
}

// Whether a run of n marks between the characters `before` and `next` can begin or end emphasis. Unlike in CommonMark,
// a single * inside a word cannot: 2*3*4 is seldom meant as emphasis.
static bool can_open(char mark, size_t n, char before, char next) {
    bool power = is_word(before, false) && (is_digit(before) || is_digit(next)); // 2**3 is a power, not emphasis
    bool inside = mark == '_' ? is_word(before, true) : n == 1 ? is_word(before, false) : power;
    return !is_space(next) && !inside;
}
static bool can_close(char mark, size_t n, char before, char next) {
    bool inside = mark == '_' ? is_word(next, true) : n == 1 && is_word(next, false);
    return !is_space(before) && !inside;
}

// Finds the end of the emphasis that begins with the run of n marks at `at`. Skips code and nested emphasis.
static Search find_close(Str s, size_t at, size_t n, bool open, size_t *end) {
    char mark = s.data[at];
    size_t inner[4], depth = 0;
    for (size_t i = at + n; i < s.n;) {
        char c = s.data[i];
        size_t run = c == mark || c == '`' ? run_of(s, i) : 1, code;
        if (c == '\\') i += 2;
        else if (c == '`') {
            Search found = find_code(s, i, open, &code);
            if (found == MISSING && open) return MISSING; // the code may continue to the end of the text
            i = found == FOUND ? code + run : i + run;
        } else if (c == mark) {
            if (i + run == s.n && open) return MISSING;
            char before = s.data[i - 1], next = i + run < s.n ? s.data[i + run] : '\n';
            bool closes = can_close(mark, run, before, next);
            if (closes && depth == 0 && run == n) return *end = i, FOUND;
            if (closes && depth == 1 && run == n + inner[0]) return *end = i + inner[0], FOUND;
            if (closes && depth > 0 && run == inner[depth - 1]) depth--;
            else if (can_open(mark, run, before, next) && depth < ARRAY_LEN(inner)) inner[depth++] = run;
            i += run;
        } else i++;
    }
    return MISSING;
}

static size_t put_inline(To to, Str s, bool whole, unsigned style, int depth);

// Writes code in a line. One space at both ends is removed: it separates the mark from a backquote in the code.
static void put_code(To to, Str code, Str marks, unsigned style) {
    if (code.n > 2 && code.data[0] == ' ' && code.data[code.n - 1] == ' ') code = part(code, 1, code.n - 1);
    if (!to.m->color) put(to, marks, style);
    put(to, code, style | CODE);
    if (!to.m->color) put(to, marks, style);
}

// Writes what begins with the run of `, * or _ at `at`. Returns how many bytes were written; 0: more input is needed.
static size_t put_run(To to, Str s, size_t at, char before, bool whole, unsigned style, int depth) {
    static const unsigned styles[] = {0, ITALIC, BOLD, BOLD | ITALIC};
    size_t n = run_of(s, at), end = 0;
    if (at + n == s.n && !whole) return 0;
    char mark = s.data[at], next = at + n < s.n ? s.data[at + n] : '\n';
    bool code = mark == '`', emphasis = !code && n <= 3 && depth < 4 && can_open(mark, n, before, next);
    Str seen;
    bool open;
    Search missing = window(s, at, whole, &seen, &open), found = MISSING;
    if (code) found = find_code(seen, at, open, &end);
    else if (emphasis) found = find_close(seen, at, n, open, &end);
    if (found == FOUND) {
        Str inside = part(s, at + n, end);
        if (code) put_code(to, inside, part(s, at, at + n), style);
        else put_inline(to, inside, true, style | styles[n], depth + 1);
        return end + n - at;
    }
    if ((code || emphasis) && missing == UNKNOWN) return 0;
    put(to, part(s, at, at + n), style);
    return n;
}

// Writes the part of the text whose style is certain. `whole`: the line ends with the text. Returns the bytes written.
static size_t put_inline(To to, Str s, bool whole, unsigned style, int depth) {
    size_t at = 0;
    while (at < s.n) {
        size_t plain = at;
        while (plain < s.n && !strchr("\\`*_", s.data[plain])) plain++;
        put(to, part(s, at, plain), style);
        at = plain;
        if (at == s.n) break;
        if (s.data[at] == '\\') {
            if (at + 1 == s.n && !whole) break;
            bool escapes = at + 1 < s.n && strchr("*_`#+-.>", s.data[at + 1]); // \( and \\ are left for LaTeX
            put(to, part(s, at + escapes, at + escapes + 1), style);
            at += 1 + escapes;
        } else {
            char before = at > 0 ? s.data[at - 1] : depth > 0 ? '*' : to.m->before;
            size_t n = put_run(to, s, at, before, whole, style, depth);
            if (n == 0) break;
            at += n;
        }
    }
    if (depth == 0 && at > 0) to.m->before = s.data[at - 1];
    return at;
}

// ---- the beginning of a line ----------------------------------------------------------------------------------------

enum { WAIT = -1 };

static size_t indent_of(Str s) {
    size_t n = 0;
    while (n < s.n && s.data[n] == ' ') n++;
    return n;
}

static Str rest_of(Str s, size_t from) { return part(s, from, s.n); }

// Shows the rest of the line unchanged and unbroken: the terminal wraps it.
static void begin_code(To to, unsigned style) {
    to.m->verbatim = to.w->whole = true;
    to.m->block = style;
}

// Writes a whole line dimmed: one that begins or ends a code block, or a rule.
static int fence_line(To to, Str line) {
    to.w->whole = true;
    put(to, line, DIM);
    return (int)line.n;
}

// Handles a line inside a code block: the closing fence, or code.
static int in_fence(To to, Str s, bool whole) {
    size_t from = indent_of(s), n = from < s.n && s.data[from] == to.m->fence ? run_of(s, from) : 0;
    bool blank = true;
    for (size_t i = from + n; i < s.n; i++) blank = blank && is_space(s.data[i]);
    bool ends = n >= (size_t)to.m->n_fence, may_end = blank && s.n <= MARKDOWN_HELD && (ends || from + n == s.n);
    if (may_end && !whole) return WAIT;
    if (may_end && ends) {
        to.m->fence = 0;
        return fence_line(to, s);
    }
    begin_code(to, CODE);
    return 0;
}

// The beginning of a code block: ``` or ~~~ and the language. Returns as begin_line does; 0: this is not a code block.
static int try_fence(To to, Str s, size_t from, bool whole) {
    char c = s.data[from];
    size_t n = run_of(s, from);
    if ((c != '`' && c != '~') || (n < 3 && from + n < s.n)) return 0;
    if (c == '`' && memchr(s.data + from + n, '`', s.n - from - n)) return 0;
    if (s.n - from > MARKDOWN_HELD) return 0;
    if (!whole) return WAIT;
    if (n < 3) return 0;
    to.m->fence = c;
    to.m->n_fence = (int)n;
    to.m->fence_quotes = to.m->n_quotes;
    return fence_line(to, s);
}

// # to ###### and a space. The first two levels are underlined.
static int try_heading(To to, Str s, size_t from, bool whole) {
    size_t n = s.data[from] == '#' ? run_of(s, from) : 0;
    if (n == 0 || n > 6) return 0;
    if (from + n == s.n) return whole ? 0 : WAIT;
    if (s.data[from + n] != ' ') return 0;
    size_t text = from + n + indent_of(rest_of(s, from + n));
    if (text == s.n) return whole ? 0 : WAIT;
    to.m->block = n <= 2 ? BOLD | UNDERLINE : BOLD;
    to.m->in_list = false;
    return (int)text;
}

// Three or more of - * _ and nothing else.
static int try_rule(To to, Str s, size_t from, bool whole) {
    char c = s.data[from];
    int n = 0;
    if (!strchr("-*_", c) || s.n - from > MARKDOWN_HELD) return 0;
    for (size_t i = from; i < s.n; i++) {
        if (s.data[i] != c && s.data[i] != ' ') return 0;
        n += s.data[i] == c;
    }
    if (!whole) return WAIT;
    return n < 3 ? 0 : fence_line(to, s);
}

// Writes the mark of a list item. Its continued lines are indented to its text.
static void begin_item(To to, Str s, size_t from, Str marker) {
    Buf hang = {0};
    put(to, part(s, 0, from), to.m->block);
    put(to, marker, to.m->block);
    put(to, str_of(" "), to.m->block);
    buf_append(&hang, to.w->hang.data, to.w->hang.n);
    int n = (int)from + wrap_width(marker) + 1;
    for (int i = 0; i < n; i++) buf_str(&hang, " ");
    wrap_hang(to.w, hang.data);
    buf_free(&hang);
    to.m->in_list = true;
}

// - * + or a number with . or ), and a space.
static int try_item(To to, Str s, size_t from, bool whole) {
    size_t n = 0;
    while (n < 9 && from + n < s.n && is_digit(s.data[from + n])) n++;
    bool numbered = n > 0;
    if (from + n == s.n) return whole || !numbered ? 0 : WAIT;
    if (!strchr(numbered ? ".)" : "-*+", s.data[from + n])) return 0;
    n++;
    if (from + n == s.n) return whole ? 0 : WAIT;
    if (s.data[from + n] != ' ') return 0;
    begin_item(to, s, from, numbered ? part(s, from, from + n) : str_of("\xe2\x80\xa2"));
    return (int)(from + n) + 1;
}

// The mark of a quote: > and a space. A line may have several.
static int try_quote(To to, Str s, size_t from, bool whole) {
    if (s.data[from] != '>') return 0;
    if (from + 1 == s.n && !whole) return WAIT;
    Buf hang = {0};
    buf_append(&hang, to.w->hang.data, to.w->hang.n);
    buf_str(&hang, "\xe2\x94\x82 ");
    wrap_hang(to.w, hang.data);
    buf_free(&hang);
    put(to, str_of("\xe2\x94\x82 "), DIM);
    to.m->n_quotes++;
    bool space = from + 1 < s.n && s.data[from + 1] == ' ';
    return (int)from + 1 + space;
}

// Finds out what the line begins with and writes its mark. Returns the number of bytes that it has dealt with, or WAIT
// if more input is needed. Sets in_line when the rest of the line is text.
static int begin_line(To to, Str s, bool whole) {
    Markdown *m = to.m;
    size_t from = indent_of(s);
    if (from == s.n && !whole && from <= MARKDOWN_HELD) return WAIT;
    bool blank = from == s.n, code = from > MARKDOWN_HELD || (from >= 4 && !m->in_list);
    if (!blank && m->fence && m->n_quotes < m->fence_quotes && s.data[from] != '>')
        m->fence = 0; // the quote that contains the code block has ended, and so has the block
    bool in_code = m->fence && m->n_quotes >= m->fence_quotes;
    int n = 0;
    if (!in_code && !blank && !code) n = try_quote(to, s, from, whole);
    if (n) return n;
    if (in_code) n = in_fence(to, s, whole);
    else if (code && !blank) begin_code(to, 0);
    else if (!blank) {
        static int (*const tries[])(To, Str, size_t, bool) = {try_fence, try_heading, try_rule, try_item};
        for (size_t i = 0; i < ARRAY_LEN(tries) && n == 0; i++) n = tries[i](to, s, from, whole);
        if (n == 0 && from == 0) m->in_list = false;
    }
    m->in_line = n != WAIT;
    return n;
}

// Writes the part of the line that is certain. Returns how many bytes it has dealt with: all if the line is whole.
static size_t put_line(To to, Str line, bool whole) {
    Markdown *m = to.m;
    size_t done = 0;
    while (!m->in_line) {
        int n = begin_line(to, rest_of(line, done), whole);
        if (n == WAIT) return done;
        done += (size_t)n;
    }
    if (!m->verbatim) return done + put_inline(to, rest_of(line, done), whole, m->block, 0);
    put(to, rest_of(line, done), m->block);
    return line.n;
}

static void end_line(To to) {
    Markdown *m = to.m;
    m->in_line = m->verbatim = to.w->whole = false;
    m->block = 0;
    m->n_quotes = 0;
    m->before = '\n';
}

void markdown_text(Markdown *m, Str text, Wrap *w, Buf *out) {
    To to = {m, w, out};
    if (!m->before) m->before = '\n';
    for (size_t at = 0; at < text.n;) {
        const char *end = memchr(text.data + at, '\n', text.n - at);
        size_t n = end ? (size_t)(end - text.data) - at : text.n - at;
        buf_append(&m->held, text.data + at, n);
        size_t done = put_line(to, str_of_buf(&m->held), end != NULL);
        buf_drop(&m->held, done);
        if (end) put(to, str_of("\n"), 0), end_line(to);
        at += n + (end != NULL);
    }
}

void markdown_end(Markdown *m, Wrap *w, Buf *out) {
    To to = {m, w, out};
    if (m->held.n) put_line(to, str_of_buf(&m->held), true);
    set_style(to, 0);
    end_line(to);
    m->held.n = 0;
    m->fence = 0;
}

void markdown_free(Markdown *m) {
    buf_free(&m->held);
    *m = (Markdown){0};
}
