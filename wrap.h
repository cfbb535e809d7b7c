// wrap.h: text broken into lines between words, by the columns that it takes on a terminal.
//
//   Wrap w = {.columns = 80};
//   wrap_text(&w, text, &out); ...   wrap_mark(&w, "\033[1m", &out); ...   wrap_end(&w, &out); wrap_free(&w);
//
// A word goes out when what follows it has come, so that it need not be moved. Chinese and Japanese break between
// characters, but not before a closing mark nor after an opening one. A word longer than a line stays in one piece: the
// terminal cuts it, and copies it as one. Widths are utf8proc's; where terminals differ (emoji of several characters)
// the larger one counts, so that a line never runs over.
#ifndef QUILL_WRAP_H
#define QUILL_WRAP_H

#include "util.h"

typedef struct {
    int columns;   // of the terminal; 0: lines stay as they come. It may change at any time
    bool whole;    // lines stay whole (code): the terminal cuts them
    Buf hang;      // what the continued lines of this one begin with; empty again after its end
    int n_hang;    // columns of it
    int column;    // columns that the current line has
    bool begun;    // it has a word
    Buf spaces;    // in front of the word, not written yet
    int n_spaces;  // columns of them
    Buf word;      // not written yet, with its marks
    int n_word;    // columns of it
    bool cut;      // the word is longer than a line, and goes out as it comes
    uint32_t last; // character of the word
} Wrap;

// Appends to `out` what is ready. The text is whole characters of UTF-8 whose only controls are \n and \t.
void wrap_text(Wrap *w, Str text, Buf *out);
void wrap_mark(Wrap *w, const char *sequence, Buf *out); // takes no columns: a colour
void wrap_hang(Wrap *w, const char *hang);               // of the current line
void wrap_end(Wrap *w, Buf *out);                        // appends what was held
void wrap_free(Wrap *w);

int wrap_width(Str text); // columns of a text without controls

#endif
