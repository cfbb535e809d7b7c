// answer/call_value.c: see answer/call_value.h.
#define _GNU_SOURCE
#include "answer/call_value.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "answer/call_format.h"
#include "base/jsonio.h"

enum { MOST_DEPTH = 64 };

typedef struct {
    Str s, quote;
    size_t at;
    int depth;
} ValueReader;

// The next byte behind white space and hidden bytes; 0: the end.
static char peek(ValueReader *r) {
    while (r->at < r->s.n && (call_is_hidden(r->s.data[r->at]) || isspace((unsigned char)r->s.data[r->at]))) r->at++;
    return r->at < r->s.n ? r->s.data[r->at] : 0;
}

static bool take(ValueReader *r, Str text) {
    peek(r);
    if (r->s.n - r->at < text.n || memcmp(r->s.data + r->at, text.data, text.n) != 0) return false;
    r->at += text.n;
    return true;
}

static bool take_char(ValueReader *r, char c) { return take(r, (Str){&c, 1}); }

// Text up to the closing quote, without escapes.
static json_t *read_quoted(ValueReader *r) {
    if (r->at < r->s.n && call_is_hidden(r->s.data[r->at])) r->at++; // behind a mark
    const char *begin = r->s.data + r->at, *end = memmem(begin, r->s.n - r->at, r->quote.data, r->quote.n);
    if (!end) return NULL;
    size_t n = (size_t)(end - begin);
    r->at += n + r->quote.n;
    return jsonio_text((Str){begin, n && call_is_hidden(begin[n - 1]) ? n - 1 : n});
}

// A string in single quotes, with \' \" \\ \n \t \r as Python writes them.
static json_t *read_python_string(ValueReader *r) {
    Buf out = {0};
    while (r->at < r->s.n && r->s.data[r->at] != '\'') {
        char c = r->s.data[r->at++];
        if (c == '\\' && r->at < r->s.n) {
            char next = r->s.data[r->at++];
            c = next == 'n' ? '\n' : next == 't' ? '\t' : next == 'r' ? '\r' : next;
            if (!strchr("ntr\\'\"", next)) buf_str(&out, "\\");
        }
        buf_append(&out, &c, 1);
    }
    json_t *j = r->at++ < r->s.n ? jsonio_text(str_of_buf(&out)) : NULL;
    buf_free(&out);
    return j;
}

static json_t *read_any(ValueReader *r);

static json_t *read_list(ValueReader *r) {
    json_t *list = json_array();
    for (bool more = !take_char(r, ']'); more; more = !take_char(r, ']')) {
        json_t *item = json_array_size(list) == 0 || take_char(r, ',') ? read_any(r) : NULL;
        if (item) {
            jsonio_append(list, item);
            continue;
        }
        json_decref(list);
        return NULL;
    }
    return list;
}

// A key: a string, or bare up to its colon.
static json_t *read_key(ValueReader *r) {
    char c = peek(r);
    if (c == '"' || c == '\'' || (r->quote.n && c == r->quote.data[0])) {
        json_t *key = read_any(r);
        if (json_is_string(key)) return key;
        json_decref(key);
        return NULL;
    }
    size_t begin = r->at;
    while (r->at < r->s.n && !strchr(":,{}[]", r->s.data[r->at])) r->at++;
    return r->at > begin ? jsonio_text((Str){r->s.data + begin, r->at - begin}) : NULL;
}

static json_t *read_members(ValueReader *r) {
    json_t *object = json_object();
    for (bool more = !take_char(r, '}'); more; more = !take_char(r, '}')) {
        json_t *key = json_object_size(object) == 0 || take_char(r, ',') ? read_key(r) : NULL;
        json_t *value = key && take_char(r, ':') ? read_any(r) : NULL;
        if (value) jsonio_put(object, json_string_value(key), value);
        json_decref(key);
        if (value) continue;
        json_decref(object);
        return NULL;
    }
    return object;
}

// A number, a JSON string, or a name.
static json_t *read_scalar(ValueReader *r) {
    json_error_t error;
    static const char *const names[] = {"True", "False", "None"};
    for (int i = 0; i < 3; i++)
        if (take(r, str_of(names[i]))) return i == 0 ? json_true() : i == 1 ? json_false() : json_null();
    json_t *j = json_loadb(r->s.data + r->at, r->s.n - r->at, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK,
                           &error);
    if (j) r->at += (size_t)error.position;
    return j;
}

static json_t *read_any(ValueReader *r) {
    json_t *j;
    if (r->depth == MOST_DEPTH) return NULL;
    r->depth++;
    if (r->quote.n > 1 && take(r, r->quote)) j = read_quoted(r);
    else if (take_char(r, '\'')) j = read_python_string(r);
    else if (take_char(r, '[')) j = read_list(r);
    else if (take_char(r, '{')) j = read_members(r);
    else j = read_scalar(r);
    r->depth--;
    return j;
}

size_t call_value_read(Str text, Str quote, json_t **out) {
    ValueReader r = {.s = text, .quote = quote};
    *out = read_any(&r);
    return *out ? r.at : 0;
}
