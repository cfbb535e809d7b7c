// base/jsonio.c: see base/jsonio.h.
#include "base/jsonio.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/control.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/utf8.h"

void jsonio_start(void) { json_set_alloc_funcs(mem_alloc, free); }

static _Noreturn void broken(const char *what) {
    fprintf(stderr, "quill: internal error: JSON: %.200s: a value that JSON can represent expected, another found\n",
            what);
    exit(QUILL_INTERNAL);
}

// ---- writing --------------------------------------------------------------------------------------------------------

void jsonio_put(json_t *object, const char *key, json_t *value) {
    if (!value || json_object_set_new(object, key, value) != 0) broken(key);
}

void jsonio_share(json_t *object, const char *key, json_t *value) { jsonio_put(object, key, json_incref(value)); }

void jsonio_append(json_t *array, json_t *value) {
    if (!value || json_array_append_new(array, value) != 0) broken("an array");
}

json_t *jsonio_text(Str bytes) {
    Buf good = {0};
    utf8_repair(&good, bytes.data, bytes.n);
    json_t *s = json_stringn(good.data, good.n);
    buf_free(&good);
    if (!s) broken("a text");
    return s;
}

void jsonio_put_token(json_t *object, int id, Str piece) {
    json_t *bytes = json_array();
    for (size_t i = 0; i < piece.n; i++) jsonio_append(bytes, json_integer((unsigned char)piece.data[i]));
    jsonio_put(object, "id", json_integer(id));
    jsonio_put(object, "piece", jsonio_text(piece));
    jsonio_put(object, "bytes", bytes);
}

json_t *jsonio_number(double v, int digits) {
    double scale = pow(10, digits), rounded = round(v * scale) / scale;
    return isfinite(rounded) ? json_real(rounded) : json_null();
}

static bool has_real(const json_t *value) {
    const char *key;
    json_t *one;
    size_t i;
    json_object_foreach((json_t *)value, key, one) {
        if (has_real(one)) return true;
    }
    json_array_foreach((json_t *)value, i, one) {
        if (has_real(one)) return true;
    }
    return json_is_real(value);
}

// The output of json_dumps with reals of so many digits; NULL: it is another document.
static char *exact_text(const json_t *value, size_t flags, size_t digits) {
    char *text = json_dumps(value, flags | JSON_REAL_PRECISION(digits));
    json_t *again = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    bool same = again && json_equal(again, value);
    json_decref(again);
    if (same) return text;
    free(text);
    return NULL;
}

void jsonio_print(const json_t *value, size_t flags, Buf *out) {
    char *text = NULL;
    bool exact = value && !(flags & JSON_REAL_PRECISION(31)) && has_real(value);
    for (size_t digits = 15; exact && !text && digits < 17; digits++) text = exact_text(value, flags, digits);
    if (!text && value) text = json_dumps(value, flags);
    if (!text) broken("a document");
    buf_str(out, text);
    free(text);
}

void jsonio_line(json_t *object, Buf *out) {
    Buf text = {0};
    jsonio_print(object, JSON_COMPACT | JSON_REAL_PRECISION(12), &text);
    size_t done = 0;
    for (size_t i = 0; i < text.n; i++) { // jansson escapes ASCII's control characters, but not those of C1
        if (control_length(text.data + i) != 2) continue;
        buf_append(out, text.data + done, i - done);
        buf_printf(out, "\\u00%02x", (unsigned char)text.data[i + 1]);
        done = i + 2;
    }
    buf_append(out, text.data + done, text.n - done);
    buf_str(out, "\n");
    buf_free(&text);
    json_decref(object);
}

// ---- reading --------------------------------------------------------------------------------------------------------

// Python's JSON has integers of any size, jansson's have 64 bits: says so in place of "too big integer near
// '18446744073709551615'". The number is not always in jansson's text.
static void name_overflow(json_error_t *error) {
    const char *number = strstr(error->text, " near '");
    if (json_error_code(error) != json_error_numeric_overflow || strncmp(error->text, "too big", 7) != 0) return;
    int n = number ? (int)strcspn(number + 7, "'") : 0;
    char text[sizeof error->text - 1]; // the last byte is the code
    snprintf(text, sizeof text, "%.*s%san integer beyond 64 bits; write it with .0", n < 40 ? n : 40,
             n ? number + 7 : "", n ? (n < 40 ? ", " : "..., ") : "");
    memcpy(error->text, text, sizeof text);
}

json_t *jsonio_read(Str text, size_t flags, json_error_t *error) {
    text = utf8_without_mark(text);
    json_t *value = json_loadb(text.n ? text.data : "", text.n, flags, error);
    if (!value && error) name_overflow(error);
    return value;
}
