// term/markdown.h: a stream of Markdown as styled lines: headings, emphasis, code, lists, quotes.
//
//   Markdown m = {.color = true};
//   markdown_text(&m, text, &wrap, &out); ...   markdown_end(&m, &wrap, &out); markdown_free(&m);
//
// Text that has been written is never changed. The beginning of a line is held back until its block is known. Text
// after a mark of emphasis or code is held back until the closing mark; that must come in the same line, within
// MARKDOWN_HELD bytes, otherwise the mark is shown as text. Links, and blocks that depend on a later line (tables,
// underlined headings), are shown as they are. The result does not depend on how the text was cut into pieces.
// A CommonMark parser such as md4c is not used because it needs the whole document before it gives any output.
#ifndef QUILL_MARKDOWN_H
#define QUILL_MARKDOWN_H

#include "term/wrap.h"

enum { MARKDOWN_HELD = 400 };

typedef struct {
    bool color;       // false: only bold, italic, underlined and dim; code keeps its backquotes
    Buf held;         // part of the current line that is not written yet
    bool in_line;     // the block of the current line is known
    bool in_list;     // an indented line belongs to a list item and is not code
    bool verbatim;    // the current line is code
    unsigned block;   // style of the current line
    unsigned style;   // the style that the terminal has now
    char before;      // the byte before `held`; '\n' at the beginning of a line
    char fence;       // the character of the open code block's fence, ` or ~; 0: no block is open
    int n_fence;      // length of that fence
    int fence_quotes; // number of quotes around that block
    int n_quotes;     // number of quote marks that the current line has had
} Markdown;

// The text is as wrap_text takes it.
void markdown_text(Markdown *m, Str text, Wrap *w, Buf *out);
void markdown_end(Markdown *m, Wrap *w, Buf *out); // end of the text: writes what was held back and resets the style
void markdown_free(Markdown *m);

#endif
