// base/utf8.c: see base/utf8.h.
#include "base/utf8.h"

#include <string.h>

#include "base/control.h"

int utf8_next(const char *s, size_t n) {
    const unsigned char *u = (const unsigned char *)s;
    if (n == 0) return 0;
    if (u[0] < 0x80) return 1;
    int len = u[0] >= 0xc2 && u[0] < 0xe0 ? 2 : u[0] >= 0xe0 && u[0] < 0xf0 ? 3 : u[0] >= 0xf0 && u[0] < 0xf5 ? 4 : 0;
    if (len == 0) return 0;
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n) return -1;
        unsigned char low = 0x80, high = 0xbf; // the second byte's range rules out overlong forms and surrogates
        if (i == 1 && u[0] == 0xe0) low = 0xa0;
        if (i == 1 && u[0] == 0xed) high = 0x9f;
        if (i == 1 && u[0] == 0xf0) low = 0x90;
        if (i == 1 && u[0] == 0xf4) high = 0x8f;
        if (u[i] < low || u[i] > high) return 0;
    }
    return len;
}

int utf8_read(const char *s, size_t n, uint32_t *code) {
    static const uint8_t first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    int len = utf8_next(s, n);
    if (len <= 0) return len;
    uint32_t c = (uint8_t)s[0] & first_bits[len];
    for (int i = 1; i < len; i++) c = c << 6 | ((uint8_t)s[i] & 0x3f);
    *code = c;
    return len;
}

int utf8_write(char out[4], uint32_t code) {
    static const uint8_t head[] = {0, 0, 0xc0, 0xe0, 0xf0};
    int len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(head[len] | code);
    return len;
}

bool utf8_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t utf8_whole(const char *s, size_t n) {
    // Only the last three bytes can begin a character that is cut off.
    for (size_t back = 1; back <= 3 && back <= n; back++)
        if (utf8_next(s + n - back, back) == -1) return n - back;
    return n;
}

Str utf8_without_mark(Str text) {
    size_t n = str_has_prefix(text, "\xef\xbb\xbf") ? 3 : 0;
    return (Str){text.data + n, text.n - n};
}

void utf8_repair(Buf *out, const char *s, size_t n) {
    buf_reserve(out, n);
    for (size_t i = 0; i < n;) {
        int len = utf8_next(s + i, n - i);
        if (len > 0) {
            buf_append(out, s + i, (size_t)len);
            i += (size_t)len;
        } else {
            buf_append(out, "\xef\xbf\xbd", 3);
            i++;
        }
    }
    if (n == 0) buf_append(out, "", 0);
}

void utf8_escape(Buf *out, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        int len = utf8_next(s + i, n - i);
        unsigned char c = (unsigned char)s[i];
        if (c == '\n') buf_str(out, "\\n"), i++;
        else if (c == '\t') buf_str(out, "\\t"), i++;
        else if (c == '\r') buf_str(out, "\\r"), i++;
        else if (c == '\\') buf_str(out, "\\\\"), i++;
        else if (len <= 0 || c < 0x20 || c == 0x7f) buf_printf(out, "\\x%02x", c), i++;
        else if (len == 2 && control_length(s + i) == 2)
            buf_printf(out, "\\xc2\\x%02x", (unsigned char)s[i + 1]), i += 2;
        else buf_append(out, s + i, (size_t)len), i += (size_t)len;
    }
    if (n == 0) buf_append(out, "", 0);
}

// Reads up to `most` digits of the base. Returns how many there were.
static int read_digits(const char *s, int most, int base, char *out) {
    int value = 0, n = 0;
    for (int digit; n < most && (digit = str_hex_digit(s[n])) >= 0 && digit < base; n++) value = value * base + digit;
    *out = (char)value;
    return n;
}

void utf8_unescape(Buf *out, const char *s) {
    static const char from[] = "nrtabfv\\'\"", to[] = "\n\r\t\a\b\f\v\\'\"";
    while (*s) {
        char c = *s;
        int n = 1; // bytes of s that are read
        const char *known = c == '\\' && s[1] ? strchr(from, s[1]) : NULL;
        if (known) {
            c = to[known - from];
            n = 2;
        } else if (c == '\\') {
            bool hex = s[1] == 'x';
            char value;
            int digits = hex ? read_digits(s + 2, 2, 16, &value) : read_digits(s + 1, 3, 8, &value);
            if (digits) {
                c = value;
                n = 1 + hex + digits;
            }
        }
        buf_append(out, &c, 1);
        s += n;
    }
    buf_append(out, "", 0);
}
