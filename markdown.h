// markdown.h: a stream of Markdown as styled lines: headings, emphasis, code, lists, quotes.
//
//   Markdown m = {.color = true};
//   markdown_text(&m, text, &wrap, &out); ...   markdown_end(&m, &wrap, &out); markdown_free(&m);
//
// Nothing that went out is changed afterwards. What may begin a block waits until it is known which; what may be
// emphasis or code waits for its end, which has to be in the same line and within MARKDOWN_HELD bytes, and is text
// otherwise. Blocks that need a later line (tables, underlined headings) and links stay as they are. The result does
// not depend on how the text was cut. Parsers of whole documents (CommonMark's) cannot begin before the end.
#ifndef QUILL_MARKDOWN_H
#define QUILL_MARKDOWN_H

#include "wrap.h"

enum { MARKDOWN_HELD = 400 };

typedef struct {
    bool color;       // otherwise code is between its backquotes, and styles are those that need no colour
    Buf held;         // of the current line, not written yet
    bool in_line;     // its block is known
    bool in_list;     // so that lines further in are no code
    bool verbatim;    // the line is code
    unsigned block;   // style of the line
    unsigned style;   // what the terminal has now
    char before;      // the byte in front of what is held; '\n' at the beginning of a line
    char fence;       // of the code block that is open, ` or ~; 0: none
    int n_fence;      // its length
    int fence_quotes; // quotes that it is in
    int n_quotes;     // of the current line, so far
} Markdown;

// Whole characters, as wrap_text takes them.
void markdown_text(Markdown *m, Str text, Wrap *w, Buf *out);
void markdown_end(Markdown *m, Wrap *w, Buf *out); // nothing more comes; styles end
void markdown_free(Markdown *m);

#endif
