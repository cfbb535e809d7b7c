// template.c: see template.h.
#define _GNU_SOURCE
#include "template.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 64 };

typedef struct {
    bool skip[MAX_DEPTH]; // (depth) the branch that we are in is not for plain conversations
    bool loop[MAX_DEPTH]; // it is a for or a macro: always taken, or never
    int depth;
    Buf *system;
    char *why;
    bool good;
} Scan;

static bool has(Str text, const char *word) { return text.n > 0 && memmem(text.data, text.n, word, strlen(word)); }

static Str trim(Str s) {
    while (s.n && (isspace((unsigned char)*s.data) || *s.data == '-' || *s.data == '+')) s.data++, s.n--;
    while (s.n && (isspace((unsigned char)s.data[s.n - 1]) || s.data[s.n - 1] == '-')) s.n--;
    return s;
}

static bool skipping(const Scan *s) {
    for (int i = 0; i < s->depth; i++)
        if (s->skip[i]) return true;
    return false;
}

static bool in_branch(const Scan *s) {
    for (int i = 0; i < s->depth; i++)
        if (!s->loop[i]) return true;
    return false;
}

static void refuse(Scan *s, Str text) {
    if (!s->good) return;
    s->good = false;
    Buf line = {0};
    utf8_escape(&line, text.data, text.n < 60 ? text.n : utf8_whole(text.data, 60));
    snprintf(s->why, 80, "%.*s", (int)utf8_whole(line.data, line.n < 72 ? line.n : 72), line.data);
    buf_free(&line);
}

// Words with a space between them, or a heading: text for the model to read, and no mark.
static bool is_prose(Str t) {
    for (size_t i = 1; i + 1 < t.n; i++) {
        unsigned char before = (unsigned char)t.data[i - 1], after = (unsigned char)t.data[i + 1];
        bool word = isalnum(before) || before >= 0x80 || before == '#' || before == ':';
        if (t.data[i] == ' ' && word && (isalnum(after) || after >= 0x80)) return true;
    }
    return false;
}

// What the template would put into a prompt, its escapes read.
static void take_text(Scan *s, Str t) {
    static const char head[] = IM_START "system\n", answer[] = IM_START "assistant\n";
    Str whole = trim(t);
    const char *begun = t.n ? memmem(t.data, t.n, answer, sizeof answer - 1) : NULL;
    if (begun && begun + sizeof answer - 1 < t.data + t.n && !has(t, IM_END)) {
        refuse(s, t); // an answer that the template begins itself, <think> for example
        return;
    }
    size_t n_head = sizeof head - 1, n_end = sizeof IM_END - 1;
    bool framed = whole.n >= n_head + n_end && memcmp(whole.data, head, n_head) == 0 &&
                  memcmp(whole.data + whole.n - n_end, IM_END, n_end) == 0;
    if (!framed && !is_prose(t)) return;
    Str text = framed ? (Str){whole.data + n_head, whole.n - n_head - n_end} : t;
    bool again = framed && s->system->data && !str_eq(text, (Str){s->system->data, s->system->n});
    if (!framed || !in_branch(s) || again || has(text, "<|im_")) {
        refuse(s, text);
        return;
    }
    s->system->n = 0;
    buf_append(s->system, text.data, text.n);
}

// The string literals of an expression.
static void take_literals(Scan *s, Str code) {
    Buf text = {0};
    for (size_t i = 0; i < code.n; i++) {
        char quote = code.data[i];
        if (quote != '\'' && quote != '"') continue;
        text.n = 0;
        buf_append(&text, "", 0);
        for (i++; i < code.n && code.data[i] != quote; i++) {
            char c = code.data[i];
            if (c == '\\' && i + 1 < code.n) {
                c = code.data[++i];
                c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
            }
            buf_append(&text, &c, 1);
        }
        take_text(s, (Str){text.data, text.n});
    }
    buf_free(&text);
}

static bool is_word(Str code, const char *word) {
    size_t n = strlen(word);
    return str_has_prefix(code, word) &&
           (code.n == n || !(isalnum((unsigned char)code.data[n]) || code.data[n] == '_'));
}

// Whether a branch with this condition is taken in plain conversations: its tools are none.
static bool is_left_out(Str condition) {
    return (has(condition, "tool") || has(condition, "enable_thinking")) && !is_word(condition, "not");
}

static void take_statement(Scan *s, Str code) {
    bool opens_if = is_word(code, "if"), opens = opens_if || is_word(code, "for") || is_word(code, "macro");
    Str rest = opens_if ? trim((Str){code.data + 2, code.n - 2}) : code;
    if (opens && s->depth < MAX_DEPTH) {
        s->loop[s->depth] = !opens_if;
        s->skip[s->depth++] = is_word(code, "macro") || is_left_out(rest);
    } else if (opens) refuse(s, str_of("blocks within blocks"));
    else if (s->depth > 0 && is_word(code, "elif"))
        s->skip[s->depth - 1] = is_left_out(trim((Str){code.data + 4, code.n - 4}));
    else if (s->depth > 0 && is_word(code, "else")) s->skip[s->depth - 1] = false;
    else if (s->depth > 0 && (is_word(code, "endif") || is_word(code, "endfor") || is_word(code, "endmacro")))
        s->depth--;
    else if (is_word(code, "set") && !skipping(s)) take_literals(s, code);
}

// Where a block that ends with `end` ends, quotes skipped; the end of the source if it never does.
static const char *block_end(const char *at, const char *stop, const char *end, bool quotes) {
    char quote = 0;
    for (; at + 1 < stop; at++) {
        if (quote) {
            if (*at == '\\') at++;
            else if (*at == quote) quote = 0;
        } else if (quotes && (*at == '\'' || *at == '"')) quote = *at;
        else if (at[0] == end[0] && at[1] == end[1]) return at;
    }
    return stop;
}

bool template_is_chatml(Str source, Buf *system, char why[80]) {
    Scan s = {.system = system, .why = why, .good = true};
    why[0] = 0;
    for (const char *at = source.data, *stop = source.data + source.n; at < stop && s.good;) {
        const char *open = at;
        while (open < stop && !(open + 1 < stop && open[0] == '{' && strchr("{%#", open[1]) && open[1])) open++;
        if (open > at && !skipping(&s)) take_text(&s, (Str){at, (size_t)(open - at)});
        if (open == stop) break;
        char kind = open[1], end[2] = {kind == '{' ? '}' : kind, '}'};
        const char *close = block_end(open + 2, stop, end, kind != '#');
        Str code = trim((Str){open + 2, (size_t)(close - open - 2)});
        if (kind == '%') take_statement(&s, code);
        else if (kind == '{' && !skipping(&s) && !has(code, "raise_exception")) take_literals(&s, code);
        if (kind != '#' && !skipping(&s) && has(code, "strftime_now")) refuse(&s, str_of("the date"));
        at = close + 2 < stop ? close + 2 : stop;
    }
    return s.good && has(source, IM_START) && has(source, IM_END);
}
