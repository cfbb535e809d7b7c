// answer/think.h: splits the output of a reasoning model into thoughts and the answer, by the markers of its family.
//
//   ThinkStream t = think_begin(template, prompt);
//   think_add(&t, piece.data, piece.n, is_control);          ...and think_end(&t) after the last one
//   for (Part p; think_next(&t, &p);) ...p.kind, p.bytes
//   think_free(&t);
//
// The parts joined are the input. They do not depend on how it is cut into tokens: bytes that may begin a marker are
// held back until later bytes decide. A marker may consist of control tokens or of text. The white space in front of it
// and the line ends after it belong to it. A thought can open only before the answer has begun, and a closing marker
// counts only inside a thought, so an answer may mention <think>. (gpt-oss names the channel of everything it writes,
// and Muse Glimmer names the recipient. Thoughts and answers of these two may alternate.)
#ifndef QUILL_THINK_H
#define QUILL_THINK_H

#include "answer/tools.h"
#include "grammar/rules.h"
#include "tokenizer.h"

typedef enum {
    PART_SAID, // the answer
    PART_THOUGHT,
    PART_MARKER,
    PART_HIDDEN, // control tokens that are not a marker
} PartKind;

typedef struct {
    PartKind kind;
    Str bytes; // valid until the next think_add
} Part;

typedef struct {
    const struct ThinkFamily *family; // NULL: everything is the answer
    unsigned state;                   // one of the states in answer/think.c
    bool after_marker, ended;
    Buf held;   // bytes that arrived; think_next has returned the first n_given
    Buf hidden; // (held.n) 1 for the bytes of control tokens
    size_t n_given;
} ThinkStream;

// template: source of the chat template; the markers in it decide the family. prompt: the rendered text; if it ends
// with a marker, the output begins in the state after that marker (in a thought, for example).
ThinkStream think_begin(Str template, Str prompt);
void think_add(ThinkStream *t, const char *bytes, size_t n, bool hidden);
void think_end(ThinkStream *t);             // end of the output: incomplete markers are text
bool think_next(ThinkStream *t, Part *out); // false: no part until more bytes arrive
void think_free(ThinkStream *t);

// Adds rules for an output whose answer part is the expression `said`: with its thoughts and the markers around them.
// begin: the state at the beginning of the output. allowed: new thoughts may be opened. Returns the expression of the
// whole; `said` for a model without a family. tools: those that the answer may call; NULL: none.
int think_rules(const ThinkStream *begin, const Tokenizer *t, const Tools *tools, bool allowed, int said, Rules *r);
// Appends a key that distinguishes the rules that think_rules adds, for a cache.
void think_describe(const ThinkStream *begin, bool allowed, Buf *out);

#endif
