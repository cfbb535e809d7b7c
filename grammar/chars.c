// grammar/chars.c: see grammar/chars.h.
#include "grammar/chars.h"

#include <stdlib.h>

void chars_add(Buf *set, uint32_t first, uint32_t last) {
    buf_append(set, &(CharRange){first, last}, sizeof(CharRange));
}

void chars_append(Buf *set, Buf *other, bool not ) {
    int n = chars_count(other);
    CharRange *ranges = (CharRange *)(void *)other->data;
    if (!not ) {
        buf_append(set, ranges, (size_t)n * sizeof *ranges);
        return;
    }
    n = rules_sort_ranges(ranges, n);
    CharRange *rest = mem_alloc(((size_t)n + 2) * sizeof *rest);
    n = rules_other_ranges(ranges, n, rest);
    buf_append(set, rest, (size_t)n * sizeof *rest);
    free(rest);
}

bool chars_set(char letter, Buf *set) {
    Buf known = {0};
    switch (letter | 0x20) {
    case 'd': chars_add(&known, '0', '9'); break;
    case 'w':
        chars_add(&known, '0', '9');
        chars_add(&known, 'A', 'Z');
        chars_add(&known, '_', '_');
        chars_add(&known, 'a', 'z');
        break;
    case 's':
        chars_add(&known, '\t', '\r');
        chars_add(&known, ' ', ' ');
        break;
    default: return false;
    }
    chars_append(set, &known, !(letter & 0x20));
    buf_free(&known);
    return true;
}

int chars_number(Str text, size_t *at, int most) {
    int64_t value = 0;
    for (; *at < text.n && text.data[*at] >= '0' && text.data[*at] <= '9'; ++*at)
        if (value <= most) value = 10 * value + (text.data[*at] - '0');
    return value <= most ? (int)value : most + 1;
}
