// base/control.c: see base/control.h.
#include "base/control.h"

int control_length(const char *s) {
    const unsigned char *c = (const unsigned char *)s;
    if (c[0] < 0x20 || c[0] == 0x7f) return 1;
    return c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0 ? 2 : 0;
}

void control_replace(char *s) {
    for (; *s; s++)
        for (int n = control_length(s); n > 0; n--) s[n - 1] = '?';
}
