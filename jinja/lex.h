// jinja/lex.h: a template's source as tokens, white space trimmed as transformers sets it: trim_blocks (the newline
// after a block goes), lstrip_blocks (so do the blanks before one that stands alone), {%- -%} {%+ +%}, {% raw %}.
//
// Line ends become \n, and the last one of the source goes, as in Jinja2. Errors stick to the heap; then there are
// only LEX_END left.
#ifndef QUILL_JINJA_LEX_H
#define QUILL_JINJA_LEX_H

#include "jinja/value.h"

typedef enum {
    LEX_END,
    LEX_DATA,      // text between the tags
    LEX_VAR_BEGIN, // {{
    LEX_VAR_END,
    LEX_BLOCK_BEGIN, // {%
    LEX_BLOCK_END,
    LEX_NAME,
    LEX_STRING, // text: what stands between the quotes, its escapes not read yet (lex_unescape)
    LEX_INTEGER,
    LEX_FLOAT,
    LEX_OPERATOR,
} LexKind;

typedef struct {
    LexKind kind;
    Str text;
    int line;
} LexToken;

enum { LEX_NESTING = 200 };

typedef struct {
    Heap *h;
    Str source;
    size_t at;
    int line;
    bool line_starting;     // the last tag took the end of its line with it
    LexKind inside;         // LEX_DATA, LEX_VAR_BEGIN or LEX_BLOCK_BEGIN
    LexKind pending;        // the tag that begins after the data that was given; LEX_END: none
    char open[LEX_NESTING]; // brackets that are open in a tag
    int n_open;
} Lexer;

void lex_start(Lexer *l, Heap *h, Str source);
LexToken lex_next(Lexer *l);
MarkedText lex_unescape(Heap *h, Str literal); // Python's escapes

#endif
