// batch/feed.h: reads lines from a file or a pipe as they arrive, with limits on the waiting time and the line length.
//
// A line ends with \n or at the end of the input. Blank lines are counted and skipped.
#ifndef QUILL_FEED_H
#define QUILL_FEED_H

#include "base/base.h"

enum { FEED_LONGEST = 16 << 20 }; // the most bytes of a line; longer lines are skipped (FEED_TOO_LONG)

typedef struct {
    const char *name; // for messages; owned by the caller
    int fd;
    Buf held;            // bytes read and not returned yet
    size_t begin, seen;  // in `held`: start of the next line; end of the part that was searched for its \n
    size_t shown;        // in `held`: end of the lines that feed_ahead has returned
    bool ended, passing; // ended: end of the input. passing: skipping the rest of a line that is too long
    int64_t n_lines;     // lines so far, including skipped ones: the number of the newest line
} Feed;

typedef enum {
    FEED_LINE,     // *line is the next line, valid until the next call
    FEED_TOO_LONG, // a line longer than FEED_LONGEST was skipped
    FEED_NOTHING,  // no complete line has arrived yet
    FEED_END,
} FeedResult;

Status feed_open(const char *path, Feed *f); // NULL or "-": stdin. QUILL_IO
// Returns the next line. If none is complete, reads once, waiting at most `wait` seconds for input (0: does not wait)
// or until a signal. QUILL_IO: cannot be read.
Status feed_next(Feed *f, double wait, Str *line, FeedResult *result);
// Returns the next complete line that neither feed_next nor this function has returned, and leaves it to feed_next.
// Reads once, without waiting, if fewer than `most` bytes are held. False: there is none.
bool feed_ahead(Feed *f, size_t most, Str *line);
void feed_close(Feed *f);

#endif
