// base/paragraph.c: see base/paragraph.h.
#include "base/paragraph.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

enum { ITEM_COLUMN = 11 };

// Counts characters: bytes that continue a character are skipped.
static int columns_of(const char *s, int n) {
    int columns = 0;
    for (int i = 0; i < n; i++) columns += ((unsigned char)s[i] & 0xc0) != 0x80;
    return columns;
}

// Bytes of the next word; a number and the unit after it are one word.
static int word_length(const char *text) {
    int n = (int)strcspn(text, " ");
    while (n > 0 && isdigit((unsigned char)text[n - 1]) && text[n] == ' ') n += 1 + (int)strcspn(text + n + 1, " ");
    return n;
}

void paragraph_print(FILE *out, const char *text, int at, int indent) {
    bool begun = false; // a word is on this line
    while (*text) {
        int n = word_length(text), columns = columns_of(text, n);
        if (begun && at + 1 + columns > PARAGRAPH_WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (begun) at += fprintf(out, " ");
        fprintf(out, "%.*s", n, text);
        at += columns;
        begun = true;
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

void paragraph_item(const char *label, const char *format, ...) {
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    paragraph_print(stderr, text, fprintf(stderr, "%-*s", ITEM_COLUMN, label), ITEM_COLUMN);
}
