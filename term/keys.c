// term/keys.c: see term/keys.h.
#include "term/keys.h"

#include <utf8proc.h>

enum { ESC = '\033', BELL = '\a', DEL = 0x7f };
enum { REPLY_MAX = 4096 }; // longer than any reply of a terminal; longer input after ESC ] or ESC P is not a reply

static bool is_final(unsigned char c) { return c >= '@' && c < DEL; }

// Length of a control sequence whose parameters begin at `at`: bytes 0x20 to 0x3f, then a final byte. Any other byte
// ends the sequence before it.
static int control_length(Str s, size_t at) {
    if (at < s.n && s.data[at] == '[' && s.data[1] == '[') return at + 1 < s.n ? (int)at + 2 : -1; // Linux's F1 to F5
    for (; at < s.n; at++) {
        unsigned char c = (unsigned char)s.data[at];
        if (is_final(c)) return (int)at + 1;
        if (c < ' ' || c >= DEL) return (int)at;
    }
    return -1;
}

// Length of a terminal's reply: ESC ] or ESC P up to BEL or ESC \.
static int reply_length(Str s) {
    for (size_t at = 2; at < s.n && at < REPLY_MAX; at++) {
        if (s.data[at] == BELL) return (int)at + 1;
        if (s.data[at] == '\\' && s.data[at - 1] == ESC) return (int)at + 1;
    }
    return s.n < REPLY_MAX ? -1 : 2;
}

static int character_length(Str s) {
    int n = utf8_next(s.data, s.n);
    return n == 0 ? 1 : n;
}

int keys_length(Str s) {
    if (s.n == 0) return 0;
    if (s.data[0] != ESC) return character_length(s);
    if (s.n == 1) return -1;
    switch (s.data[1]) {
    case '[':
    case 'O': return control_length(s, 2);
    case ']':
    case 'P': return reply_length(s);
    case ESC: break;
    default: {
        int n = character_length((Str){s.data + 1, s.n - 1});
        return n < 0 ? -1 : n + 1;
    }
    }
    if (s.n == 2) return -1;
    if (s.data[2] != '[' && s.data[2] != 'O') return 1; // the first ESC is the Escape key
    int n = control_length((Str){s.data + 1, s.n - 1}, 2);
    return n < 0 ? -1 : n + 1;
}

// Reads the numbers of a CSI sequence, which are separated by semicolons. Parts of a number after a colon are skipped.
static int parameters(Str s, int out[3]) {
    int n = 0;
    for (size_t at = 2; at + 1 < s.n && n < 3; at++, n++) {
        for (out[n] = 0; at < s.n && s.data[at] >= '0' && s.data[at] <= '9'; at++)
            out[n] = int_min(out[n] * 10 + s.data[at] - '0', 0x110000);
        while (at + 1 < s.n && s.data[at] != ';') at++;
    }
    return n;
}

enum { SHIFT = 1, ALT = 2, CTRL = 4 };

static void put_character(Buf *text, unsigned c) {
    utf8proc_uint8_t s[4];
    buf_append(text, s, (size_t)utf8proc_encode_char((utf8proc_int32_t)c, s));
}

// Appends what a key sends, given its code and modifiers. False: the key sends no character.
static bool put_key(Buf *text, int code, int modifiers) {
    modifiers = modifiers > 0 ? modifiers - 1 : 0;
    if (code == '\r' && modifiers & (SHIFT | ALT | CTRL)) return buf_str(text, "\n"), true;
    if (code == 0 || code >= 0x110000 || (code >= 0xd800 && code < 0xf900))
        return false; // surrogates; the private use area, where kitty has keys without a character
    if (code == '\t' && modifiers & SHIFT) return false;
    if (modifiers & CTRL) {
        if (code == DEL) return buf_str(text, "\027"), true; // Ctrl-Backspace: the same as Ctrl-W
        if (code == ' ') return false;
        if (code < '@' || code > 'z') return false;
        code &= 0x1f;
    } else if (modifiers & SHIFT && code >= 'a' && code <= 'z') code -= 'a' - 'A';
    if (modifiers & ALT) put_character(text, ESC);
    put_character(text, (unsigned)code);
    return true;
}

bool keys_text(Str s, Buf *text) {
    int number[3] = {0};
    if (s.n == 2 && s.data[0] == ESC && (s.data[1] == '\r' || s.data[1] == '\n')) return buf_str(text, "\n"), true;
    if (s.n < 4 || s.data[0] != ESC || s.data[1] != '[') return false;
    char final = s.data[s.n - 1];
    int n = parameters(s, number);
    if (final == 'u' && n >= 1) return put_key(text, number[0], number[1]);
    return final == '~' && n == 3 && number[0] == 27 && put_key(text, number[2], number[1]);
}
