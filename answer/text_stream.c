// answer/text_stream.c: see answer/text_stream.h.
#include "answer/text_stream.h"

#include <string.h>

// Finds the stop string that is complete first in the held bytes. Returns its start, or -1. Earlier calls have searched
// the first `fresh` bytes, so only stop strings that end after them are searched.
static ptrdiff_t find_stop(const TextStream *t, size_t fresh) {
    for (size_t end = fresh + 1; end <= t->held.n; end++) {
        size_t longest = 0;
        for (int i = 0; i < t->n_stop; i++) {
            size_t n = strlen(t->stop[i]);
            if (n > longest && n <= end && memcmp(t->held.data + end - n, t->stop[i], n) == 0) longest = n;
        }
        if (longest) return (ptrdiff_t)(end - longest);
    }
    return -1;
}

// The number of last bytes that may be the beginning of a stop string.
static size_t maybe_stop(const TextStream *t) {
    size_t most = 0;
    for (int i = 0; i < t->n_stop; i++) {
        size_t n = strlen(t->stop[i]) - 1;
        if (n > t->held.n) n = t->held.n;
        for (; n > most; n--)
            if (memcmp(t->held.data + t->held.n - n, t->stop[i], n) == 0) most = n;
    }
    return most;
}

static void show(TextStream *t, size_t n, Buf *out) {
    if (n == 0) return;
    buf_append(out, t->held.data, n);
    memmove(t->held.data, t->held.data + n, t->held.n - n);
    t->held.n -= n;
}

bool text_stream_add(TextStream *t, const char *bytes, size_t n, Buf *out) {
    if (t->stopped) return true;
    size_t fresh = t->held.n;
    buf_append(&t->held, bytes, n);
    ptrdiff_t at = find_stop(t, fresh);
    if (at >= 0) {
        t->stopped = true;
        show(t, (size_t)at, out);
        t->n_cut = t->held.n;
        t->held.n = 0;
        return true;
    }
    size_t ready = t->held.n - maybe_stop(t);
    if (t->whole) ready = utf8_whole(t->held.data, ready);
    show(t, ready, out);
    return false;
}

void text_stream_end(TextStream *t, Buf *out) { show(t, t->held.n, out); }

void text_stream_free(TextStream *t) { buf_free(&t->held); }
