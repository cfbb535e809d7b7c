// term/wrap.h: breaks text into lines between words, by the columns that characters take on a terminal.
//
//   Wrap w = {.columns = 80};
//   wrap_text(&w, text, &out); ...   wrap_mark(&w, "\033[1m", &out); ...   wrap_end(&w, &out); wrap_free(&w);
//
// A word is written when the character after it has arrived, so that nothing on the screen has to be moved. Chinese
// and Japanese text breaks between characters, but not before a closing mark or after an opening one. A word longer
// than a line is not divided: the terminal cuts it, and copies it as one. Widths come from utf8proc. Where terminals
// disagree (emoji of several code points) the larger width is used, so that a line never exceeds the terminal's.
#ifndef QUILL_WRAP_H
#define QUILL_WRAP_H

#include "base/base.h"

typedef struct {
    int columns;   // of the terminal; 0: lines are not broken. The caller may change it at any time
    bool whole;    // do not break lines (code): the terminal cuts them
    Buf hang;      // prefix of the lines that continue the current one; cleared at its end
    int n_hang;    // its width
    int column;    // width of the current line so far
    bool begun;    // the current line has a word
    Buf spaces;    // white space in front of `word`, not written yet
    int n_spaces;  // its width
    Buf word;      // the current word with its marks, not written yet
    int n_word;    // its width
    bool cut;      // the word is longer than a line: its characters are written at once
    uint32_t last; // last character of the word
} Wrap;

// Appends what can be written to `out`. The text consists of whole UTF-8 characters; its only control characters are
// \n and \t.
void wrap_text(Wrap *w, Str text, Buf *out);
void wrap_mark(Wrap *w, const char *sequence, Buf *out); // without width, such as a colour
void wrap_hang(Wrap *w, const char *hang);               // sets the prefix for the current line
void wrap_end(Wrap *w, Buf *out);                        // appends what was held back
void wrap_free(Wrap *w);

int wrap_width(Str text); // width in columns of a text without control characters

#endif
