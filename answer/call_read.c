// answer/call_read.c: parses the tool calls in an answer (call_format_read of answer/call_format.h).
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "answer/call_format.h"
#include "answer/call_pattern.h"
#include "answer/call_value.h"
#include "base/jsonio.h"
#include "grammar/schema.h"
#include "grammar/schema_merge.h"

typedef struct {
    const CallFormat *f;
    const Tools *tools;
    Str s;
    size_t at;
    char name[TOOLS_LONGEST_NAME + 1], id[16], key[CALL_LONGEST_KEY + 1];
    json_t *arguments; // of the current call
    json_t *schema;    // of the arguments that are being read, without references at its root; NULL: not known
    json_t *calls;
} CallReader;

// The next byte; -1: the end. Skips the bytes CALL_HIDDEN and CALL_SHOWN.
static int peek(CallReader *c) {
    while (c->at < c->s.n && call_is_hidden(c->s.data[c->at])) c->at++;
    return c->at < c->s.n ? (unsigned char)c->s.data[c->at] : -1;
}

static bool word_letter(const CallFormat *f, int c, char kind) {
    if (c <= 0) return false; // strchr would find a NUL
    if (kind == 'i') return isalnum(c);
    if (kind == 'c') return isdigit(c);
    if (kind == 'k') return !strchr(call_pattern_ends(f), c);
    return isalnum(c) || strchr("_-.", c);
}

static bool read_word(CallReader *c, char kind, char *out, size_t room) {
    size_t n = 0;
    while (n + 1 < room && word_letter(c->f, peek(c), kind)) out[n++] = c->s.data[c->at++];
    out[n] = 0;
    return n > 0;
}

static bool read_object(CallReader *c) {
    json_error_t error;
    peek(c);
    json_t *j = json_loadb(c->s.data + c->at, c->s.n - c->at, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &error);
    if (!json_is_object(j)) {
        json_decref(j);
        return false;
    }
    c->at += (size_t)error.position;
    json_decref(c->arguments);
    c->arguments = j;
    return true;
}

static bool match(CallReader *c, const char *s, size_t n);

// The types that an argument of the current call may have.
static unsigned types_of_argument(const CallReader *c) {
    const Tool *tool = tools_find(c->tools, str_of(c->name));
    const json_t *argument = json_object_get(json_object_get(c->schema, "properties"), c->key);
    return argument ? schema_merge_types(tool->parameters, argument) : SCHEMA_ANY;
}

// Reads the value at c->at that `end` follows. Returns its length; -1: there is no `end`. *j: the value; a string
// stands there without quotes.
static int read_value(CallReader *c, Str end, json_t **j) {
    const char *begin = c->s.data + c->at, *found = memmem(begin, c->s.n - c->at, end.data, end.n);
    unsigned types = types_of_argument(c);
    bool texts = types & SCHEMA_STRING, others = types != SCHEMA_ANY && types & ~SCHEMA_STRING;
    json_error_t error;
    *j = NULL;
    if (!texts || others) { // try JSON first
        *j = json_loadb(begin, c->s.n - c->at, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, &error);
        size_t after = *j ? (size_t)error.position : 0;
        if (*j && after < c->s.n - c->at && call_is_hidden(begin[after])) after++;
        bool whole = *j && c->s.n - c->at - after >= end.n && memcmp(begin + after, end.data, end.n) == 0;
        if (whole && !(texts && (json_is_string(*j) || !(schema_merge_bits(*j) & types)))) return (int)after;
        json_decref(*j);
        *j = NULL;
    }
    if (!found) return -1;
    size_t n = (size_t)(found - begin);
    *j = jsonio_text((Str){begin, n && call_is_hidden(begin[n - 1]) ? n - 1 : n});
    return (int)n;
}

static void put_argument(CallReader *c, json_t *value) {
    json_t *key = jsonio_text(str_of(c->key)); // repaired: a mark written as plain text does not constrain what follows
    jsonio_put(c->arguments, json_string_value(key), value);
    json_decref(key);
}

static bool read_joined_argument(CallReader *c) {
    json_t *value;
    if (json_object_size(c->arguments) && !match(c, c->f->join, strlen(c->f->join))) return false;
    if (!match(c, c->f->param, strlen(c->f->param))) return false;
    size_t n =
        call_value_read((Str){c->s.data + c->at, c->s.n - c->at}, call_pattern_unmarked(str_of(c->f->quote)), &value);
    if (n == 0) return false;
    put_argument(c, value);
    c->at += n;
    return true;
}

static bool read_argument(CallReader *c) {
    if (c->f->join) return read_joined_argument(c);
    bool marked = c->f->end[0] == '\1';
    Str end = call_pattern_unmarked(str_of(c->f->end));
    json_t *value;
    if (!match(c, c->f->param, strlen(c->f->param))) return false;
    while (marked && c->at < c->s.n && call_is_hidden(c->s.data[c->at])) c->at++;
    int n = read_value(c, end, &value);
    if (n < 0) return false;
    put_argument(c, value);
    c->at += (size_t)n + end.n;
    return match(c, "%l", 2);
}

static bool read_arguments(CallReader *c) {
    const Tool *tool = tools_find(c->tools, str_of(c->name));
    json_decref(c->arguments);
    c->arguments = json_object();
    if (tool && tool->parameters && schema_flat(tool->parameters, &c->schema).code)
        json_decref(c->schema), c->schema = NULL;
    for (size_t before = c->at; read_argument(c) || (c->at = before, false); before = c->at) {
    }
    json_decref(c->schema);
    c->schema = NULL;
    return true;
}

static void pass_space(CallReader *c, char letter) {
    int most = letter == 'w' ? 64 : 1;
    for (int i = 0; i < most; i++) {
        int next = peek(c);
        bool passed = letter == 's' ? next == ' ' : letter == 'l' ? next == '\n' : next >= 0 && isspace(next);
        if (!passed) return;
        c->at++;
    }
}

static bool read_placeholder(CallReader *c, char letter) {
    char word[128];
    switch (letter) {
    case 'n': return read_word(c, 'n', c->name, sizeof c->name) && tools_find(c->tools, str_of(c->name));
    case 'k': return read_word(c, 'k', c->key, sizeof c->key);
    case 'a': return read_object(c);
    case 'p': return read_arguments(c);
    case 'i': return read_word(c, 'i', c->id, sizeof c->id);
    case 'c':
    case 'f': return read_word(c, letter, word, sizeof word);
    default: pass_space(c, letter); return true;
    }
}

static bool match(CallReader *c, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\1') continue;
        if (s[i] == '%' && s[i + 1] == '(') {
            size_t before = c->at, length = call_pattern_group(s + i + 2);
            if (!match(c, s + i + 2, length)) c->at = before;
            i += length + 3;
        } else if (s[i] == '%') {
            if (!read_placeholder(c, s[++i])) return false;
        } else if (peek(c) == (unsigned char)s[i]) c->at++;
        else return false;
    }
    return true;
}

static bool match_all(CallReader *c, const char *s) { return match(c, s, strlen(s)); }

// Adds the current call to the list.
static void add_call(CallReader *c) {
    Buf arguments = {0};
    char id[24];
    size_t n = json_array_size(c->calls);
    snprintf(id, sizeof id, "call%05zu", n % 100000); // nine letters and digits, as Mistral's templates want them
    jsonio_print(c->arguments, JSON_COMPACT, &arguments);
    json_t *function = json_object(), *call = json_object();
    jsonio_put(function, "name", json_string(c->name));
    jsonio_put(function, "arguments", jsonio_text(str_of_buf(&arguments)));
    jsonio_put(call, "id", json_string(*c->id ? c->id : id));
    jsonio_put(call, "type", json_string("function"));
    jsonio_put(call, "function", function);
    jsonio_append(c->calls, call);
    buf_free(&arguments);
}

static bool read_call(CallReader *c) {
    c->id[0] = 0;
    if (!match_all(c, c->f->call)) return false;
    add_call(c);
    return true;
}

// Reads a section at c->at. Its end may be missing: the answer may have been cut.
static bool read_section(CallReader *c) {
    if (!match_all(c, c->f->open) || !read_call(c)) return false;
    for (size_t before = c->at; c->f->between; before = c->at)
        if (!match_all(c, c->f->between) || !read_call(c)) {
            c->at = before;
            break;
        }
    size_t before = c->at;
    if (!match_all(c, c->f->close)) c->at = before;
    return true;
}

// Appends text without marks.
static void add_text(Str s, Buf *out) {
    bool hidden = false;
    for (size_t i = 0; i < s.n; i++) {
        if (call_is_hidden(s.data[i])) hidden = (unsigned char)s.data[i] == CALL_HIDDEN;
        else if (!hidden) buf_append(out, s.data + i, 1);
    }
}

json_t *call_format_read(const CallFormat *f, const Tools *tools, Str said, Buf *rest) {
    CallReader c = {.f = f, .tools = tools, .s = said, .calls = json_array()};
    Str trigger = call_pattern_unmarked(call_pattern_trigger(f));
    while (c.at < said.n) {
        size_t from = c.at;
        const char *found =
            f->starts ? from ? NULL : said.data : memmem(said.data + from, said.n - from, trigger.data, trigger.n);
        size_t begin = found ? (size_t)(found - said.data) : said.n;
        c.at = begin;
        bool read = found && read_section(&c);
        if (!read) c.at = found && trigger.n ? begin + trigger.n : said.n;
        size_t end = read ? begin : c.at;
        add_text((Str){said.data + from, end - from}, rest);
    }
    while (rest->n && isspace((unsigned char)rest->data[rest->n - 1])) rest->n--;
    json_decref(c.arguments);
    if (json_array_size(c.calls)) return c.calls;
    json_decref(c.calls);
    return NULL;
}
