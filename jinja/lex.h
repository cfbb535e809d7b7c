// jinja/lex.h: splits a template's source into tokens and removes white space with transformers' settings: trim_blocks
// (the newline after a block), lstrip_blocks (blanks before a block that begins a line), {%- -%} {%+ +%}, {% raw %}.
//
// As in Jinja2, line ends become \n, and a final line end of the source is removed. Errors are stored in the heap;
// after an error only LEX_END follows.
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
    LEX_STRING, // the text between the quotes, with its escapes (see lex_unescape)
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
    bool line_starting;     // `at` is at the beginning of a line
    LexKind inside;         // LEX_DATA, LEX_VAR_BEGIN or LEX_BLOCK_BEGIN
    LexKind pending;        // the tag that follows the last LEX_DATA; LEX_END: none
    char open[LEX_NESTING]; // brackets that are open in a tag
    int n_open;
} Lexer;

void lex_start(Lexer *l, Heap *h, Str source);
LexToken lex_next(Lexer *l);
MarkedText lex_unescape(Heap *h, Str literal); // decodes Python's escapes

#endif
