// grammar/json_pointer.c: see grammar/json_pointer.h.
#include "grammar/json_pointer.h"

#include <stdlib.h>

#include "base/str.h"

// Reads a character of a pointer: %HH, ~0 and ~1 stand for others. Returns its length.
static size_t read_character(const char *s, char *c) {
    int high = *s == '%' ? str_hex_digit(s[1]) : -1, low = high >= 0 ? str_hex_digit(s[2]) : -1;
    bool tilde = *s == '~' && (s[1] == '0' || s[1] == '1');
    *c = low >= 0 ? (char)(high * 16 + low) : !tilde ? *s : s[1] == '0' ? '~' : '/';
    return low >= 0 ? 3 : tilde ? 2 : 1;
}

const json_t *json_pointer(const json_t *root, const char *reference) {
    const char *s = reference;
    if (s[0] != '#' || (s[1] && s[1] != '/')) return NULL;
    const json_t *at = root;
    for (s++; at && *s;) {
        Buf name = {0};
        for (s++; *s && *s != '/';) {
            char c;
            s += read_character(s, &c);
            buf_append(&name, &c, 1);
        }
        buf_append(&name, "", 0);
        if (json_is_array(at)) at = json_array_get(at, (size_t)strtoul(name.data, NULL, 10));
        else at = json_object_get(at, name.data);
        buf_free(&name);
    }
    return at;
}
