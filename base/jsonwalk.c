// base/jsonwalk.c: see base/jsonwalk.h.
#include "base/jsonwalk.h"

#include <string.h>

#include "base/utf8.h"

JsonWalk jsonwalk_start(Str text) {
    text = text.n ? utf8_without_mark(text) : str_of(""); // an empty file has no mapping
    return (JsonWalk){.at = text.data, .end = text.data + text.n};
}

void jsonwalk_free(JsonWalk *w) { buf_free(&w->key); }

static bool fail(JsonWalk *w, const char *expected) {
    if (!w->error) w->error = expected;
    return false;
}

static void skip_space(JsonWalk *w) {
    while (w->at < w->end && (*w->at == ' ' || *w->at == '\n' || *w->at == '\t' || *w->at == '\r')) w->at++;
}

static bool take(JsonWalk *w, char c) {
    skip_space(w);
    if (w->error || w->at == w->end || *w->at != c) return false;
    w->at++;
    return true;
}

bool jsonwalk_is(JsonWalk *w, char first) {
    skip_space(w);
    return !w->error && w->at < w->end && *w->at == first;
}

bool jsonwalk_enter(JsonWalk *w, char bracket) {
    w->first = true;
    return take(w, bracket) || fail(w, bracket == '{' ? "an object" : "an array");
}

// Skips the comma before the next value, or the bracket that ends the list.
static bool next(JsonWalk *w, char bracket) {
    bool first = w->first;
    w->first = false;
    if (w->error || take(w, bracket)) return false;
    return first || take(w, ',') || fail(w, bracket == '}' ? "\",\" or \"}\"" : "\",\" or \"]\"");
}

bool jsonwalk_element(JsonWalk *w) { return next(w, ']'); }

// ---- strings --------------------------------------------------------------------------------------------------------

static int hex4(const JsonWalk *w, const char *s) {
    int code = 0;
    for (int i = 0; i < 4; i++) {
        int digit = s + i < w->end ? str_hex_digit(s[i]) : -1;
        if (digit < 0) return -1;
        code = code << 4 | digit;
    }
    return code;
}

// The escape after a backslash at `at`.
static bool escape(JsonWalk *w, Buf *out) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = w->at + 1 < w->end ? w->at[1] : 0;
    const char *found = c ? strchr(names, c) : NULL;
    if (found) {
        buf_append(out, &values[found - names], 1);
        w->at += 2;
        return true;
    }
    int code = c == 'u' ? hex4(w, w->at + 2) : -1;
    if (code < 0) return fail(w, "an escape of JSON");
    int used = 6;
    if (code >= 0xd800 && code < 0xdc00 && w->end - w->at > 7 && w->at[6] == '\\' && w->at[7] == 'u') {
        int low = hex4(w, w->at + 8);
        if (low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
            used = 12;
        }
    }
    if (code >= 0xd800 && code < 0xe000) return fail(w, "both halves of a surrogate pair");
    char bytes[4];
    buf_append(out, bytes, (size_t)utf8_write(bytes, (uint32_t)code));
    w->at += used;
    return true;
}

// Reads up to the next quote or backslash.
static bool plain_end(JsonWalk *w, const char **end) {
    const char *s = w->at;
    while (s < w->end && *s != '"' && *s != '\\') {
        int n = (unsigned char)*s < 0x80 ? 1 : utf8_next(s, (size_t)(w->end - s));
        if (n <= 0 || (unsigned char)*s < 0x20) {
            w->at = s;
            return fail(w, n <= 0 ? "UTF-8" : "a string without control characters");
        }
        s += n;
    }
    *end = s;
    return s < w->end || fail(w, "the end of a string");
}

// Reads the string after the opening quote. *out is a view of the text if there are no escapes; otherwise the decoded
// string is appended to `room`.
static bool read_string(JsonWalk *w, Buf *room, Str *out) {
    const char *end, *begin = w->at;
    if (!plain_end(w, &end)) return false;
    if (*end == '"') {
        *out = (Str){begin, (size_t)(end - begin)};
        w->at = end + 1;
        return true;
    }
    size_t start = room->n;
    for (; *end != '"';) {
        buf_append(room, w->at, (size_t)(end - w->at));
        w->at = end;
        if (!escape(w, room) || !plain_end(w, &end)) return false;
    }
    buf_append(room, w->at, (size_t)(end - w->at));
    w->at = end + 1;
    *out = (Str){room->data + start, room->n - start};
    return true;
}

bool jsonwalk_member(JsonWalk *w, Str *key) {
    if (!next(w, '}')) return false;
    if (!take(w, '"')) return fail(w, "a key");
    w->key.n = 0;
    return read_string(w, &w->key, key) && (take(w, ':') || fail(w, "\":\""));
}

bool jsonwalk_string(JsonWalk *w, Buf *out) {
    Str s;
    size_t start = out->n;
    if (!take(w, '"')) return fail(w, "a string");
    if (!read_string(w, out, &s)) return false;
    if (out->n == start) buf_append(out, s.data, s.n);
    return true;
}

// ---- other values ---------------------------------------------------------------------------------------------------

bool jsonwalk_int(JsonWalk *w, int64_t *out) {
    skip_space(w);
    if (w->error) return false;
    const char *s = w->at;
    bool negative = s < w->end && *s == '-';
    s += negative;
    int64_t v = 0;
    int n = 0;
    for (; s < w->end && *s >= '0' && *s <= '9' && n < 18; s++, n++) v = v * 10 + (*s - '0');
    if (n == 0 || (s < w->end && strchr(".eE0123456789", *s))) return fail(w, "a whole number");
    *out = negative ? -v : v;
    w->at = s;
    return true;
}

static bool skip_string(JsonWalk *w) {
    for (w->at++; w->at < w->end && *w->at != '"'; w->at++)
        if (*w->at == '\\' && ++w->at == w->end) break;
    if (w->at >= w->end) return fail(w, "the end of a string");
    w->at++;
    return true;
}

bool jsonwalk_skip(JsonWalk *w, Str *raw) {
    skip_space(w);
    if (w->error) return false;
    const char *begin = w->at;
    int depth = 0;
    do {
        skip_space(w);
        if (w->at == w->end) return fail(w, "a value");
        char c = *w->at;
        if (c == '"') {
            if (!skip_string(w)) return false;
        } else if (c == '{' || c == '[') {
            depth++;
            w->at++;
        } else if (c == '}' || c == ']') {
            if (depth-- == 0) return fail(w, "a value");
            w->at++;
        } else if (c == ',' || c == ':') {
            if (depth == 0) return fail(w, "a value");
            w->at++;
        } else {
            const char *from = w->at;
            while (w->at < w->end && *w->at && !strchr(" \n\t\r\",:{}[]", *w->at)) w->at++;
            if (w->at == from) return fail(w, "a value"); // a NUL
        }
    } while (depth > 0);
    *raw = (Str){begin, (size_t)(w->at - begin)};
    return true;
}

bool jsonwalk_ended(JsonWalk *w) {
    skip_space(w);
    return !w->error && (w->at == w->end || fail(w, "the end"));
}
