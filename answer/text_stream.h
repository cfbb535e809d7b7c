// answer/text_stream.h: decides which bytes of an answer may be shown: finds stop strings and holds back incomplete
// characters, both of which may span several tokens.
//
//   TextStream t = {.stop = stops, .n_stop = n, .whole = true};
//   Buf out = {0};
//   while (token) { bool stopped = text_stream_add(&t, piece.data, piece.n, &out); ...write out, out.n = 0... }
//   text_stream_end(&t, &out);
//   text_stream_free(&t);
//
// Bytes that may begin a stop string are held back until later bytes decide. The result does not depend on how the text
// is cut into tokens: the text ends at the stop string that is complete first (the longest, if several end there). The
// stop string and the bytes after it are not shown.
#ifndef QUILL_TEXT_STREAM_H
#define QUILL_TEXT_STREAM_H

#include "base/base.h"

typedef struct {
    const char *const *stop; // (n_stop) owned by the caller, none empty
    int n_stop;
    bool whole;   // hold a character back until all of its bytes have arrived (terminals, JSON)
    bool stopped; // a stop string was found
    size_t n_cut; // the bytes of the stop string and of the text that had arrived after it
    Buf held;     // bytes that arrived and are not shown yet
} TextStream;

// Takes the next bytes and appends to `out` what may be shown. True: a stop string ended the text.
bool text_stream_add(TextStream *t, const char *bytes, size_t n, Buf *out);
void text_stream_end(TextStream *t, Buf *out); // end of the text: appends the bytes that were held back
void text_stream_free(TextStream *t);

#endif
