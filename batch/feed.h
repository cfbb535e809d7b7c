// batch/feed.h: the lines of a file or a pipe as they come: nobody waits longer than told, and no line is longer than
// that.
//
// A line is what ends in \n or at the end of the input; lines of white space alone are counted and left out.
#ifndef QUILL_FEED_H
#define QUILL_FEED_H

#include "base/base.h"

enum { FEED_LONGEST = 16 << 20 }; // bytes of a line; of a longer one the rest is read past

typedef struct {
    const char *name; // for messages, the caller's
    int fd;
    Buf held;            // read, not given out yet
    size_t begin, seen;  // of held: where the next line begins; up to where it has been searched for its end
    bool ended, passing; // nothing more comes; the rest of a line that is too long is read past
    int64_t n_lines;     // given out, passed over or left out: the number of the newest line
} Feed;

typedef enum {
    FEED_LINE,     // *line is the next, valid until the next call
    FEED_TOO_LONG, // there was one that is longer than FEED_LONGEST
    FEED_NOTHING,  // no whole line is there yet
    FEED_END,
} FeedResult;

Status feed_open(const char *path, Feed *f); // NULL or "-": stdin. QUILL_IO
// Takes the next line. Where none is there, reads once: with `wait` seconds for something to come (0: only what is
// there), or until a signal. QUILL_IO: cannot be read.
Status feed_next(Feed *f, double wait, Str *line, FeedResult *result);
void feed_close(Feed *f);

#endif
