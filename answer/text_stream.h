// answer/text_stream.h: what of an answer may be shown yet: stop strings and characters that lie across token borders.
//
//   TextStream t = {.stop = stops, .n_stop = n, .whole = true};
//   Buf out = {0};
//   while (token) { bool stopped = text_stream_add(&t, piece.data, piece.n, &out); ...write out, out.n = 0... }
//   text_stream_end(&t, &out);
//   text_stream_free(&t);
//
// Bytes that may be the beginning of a stop string are held back until the next token decides. The result does not
// depend on how the text was cut into tokens: the stop string that is complete first ends it (the longest of those that
// end there); it and what follows are not shown.
#ifndef QUILL_TEXT_STREAM_H
#define QUILL_TEXT_STREAM_H

#include "base/base.h"

typedef struct {
    const char *const *stop; // (n_stop) the caller's, none empty
    int n_stop;
    bool whole;   // hold a character back until all of its bytes are there (terminals, JSON)
    bool stopped; // a stop string has come
    Buf held;     // arrived, not shown yet
} TextStream;

// Takes the next bytes and appends to `out` what may be shown. True: a stop string ended the text.
bool text_stream_add(TextStream *t, const char *bytes, size_t n, Buf *out);
void text_stream_end(TextStream *t, Buf *out); // nothing more comes: appends what was held
void text_stream_free(TextStream *t);

#endif
