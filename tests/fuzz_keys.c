// tests/fuzz_keys.c: libFuzzer over the bytes that a terminal sends. A key must not be longer than the input, a
// complete key must stay the same when more bytes follow, and the text of a sequence must be short and valid UTF-8.
#include "term/keys.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *exact = mem_copy((const char *)data, size);
    Str rest = {exact, size};
    while (rest.n > 0) {
        int n = keys_length(rest);
        if (n == 0 || n < -1 || (n > 0 && (size_t)n > rest.n)) abort();
        if (n < 0) break;
        Buf text = {0};
        if (keys_text((Str){rest.data, (size_t)n}, &text)) {
            if (text.n == 0 || text.n > 8 || utf8_whole(text.data, text.n) != text.n) abort();
        } else if (text.n) abort();
        buf_free(&text);
        rest = (Str){rest.data + n, rest.n - (size_t)n};
    }
    free(exact);
    return 0;
}
