// answer/think.h: what of an answer is thought and what is said, by the markers of the model's family.
//
//   ThinkStream t = think_begin(template, prompt);
//   think_add(&t, piece.data, piece.n, is_control);          ...and think_end(&t) after the last one
//   for (Part p; think_next(&t, &p);) ...p.kind, p.bytes
//   think_free(&t);
//
// The parts joined are the input, and do not depend on how it was cut into tokens: bytes that may be the beginning of a
// marker wait for what follows. A marker counts whether it came as control tokens or as text, and has the white space
// in front of it and the line ends after it. A thought opens only before anything is said, and only a thought closes:
// an answer that speaks of <think> is an answer. (gpt-oss names the channel of everything it writes; there they
// alternate.)
#ifndef QUILL_THINK_H
#define QUILL_THINK_H

#include "grammar/rules.h"
#include "tokenizer.h"

typedef enum {
    PART_SAID,
    PART_THOUGHT,
    PART_MARKER,
    PART_HIDDEN, // control tokens that are no marker
} PartKind;

typedef struct {
    PartKind kind;
    Str bytes; // valid until the next think_add
} Part;

typedef struct {
    const struct ThinkFamily *family; // NULL: everything is said
    unsigned state;                   // of answer/think.c
    bool after_marker, ended;
    Buf held;   // arrived; the first n_given bytes were given out
    Buf hidden; // (held.n) 1 for the bytes of control tokens
    size_t n_given;
} ThinkStream;

// The family is the one whose markers the chat template's source has; the end of the rendered prompt says whether the
// template has opened the block already.
ThinkStream think_begin(Str template, Str prompt);
void think_add(ThinkStream *t, const char *bytes, size_t n, bool hidden);
void think_end(ThinkStream *t);             // nothing more comes: what is held is no marker
bool think_next(ThinkStream *t, Part *out); // false: what is left has to wait
void think_free(ThinkStream *t);

// What an answer may be that begins here and whose said part is `said`, an expression: its thoughts (`allowed`: new
// ones may be opened) and the marks around it. Returns `said` where the family has no marks for that.
int think_rules(const ThinkStream *begin, const Tokenizer *t, bool allowed, int said, Rules *r);
// Appends a name of what think_rules writes around an answer.
void think_describe(const ThinkStream *begin, bool allowed, Buf *out);

#endif
