// grammar/grammar.h: what an answer may say: a compiled grammar, and which tokens may come next.
//
//   Grammar *g;
//   TRY(grammar_compile((GrammarSource){.kind = GRAMMAR_REGEX, .text = str_of("[a-z]+")}, vocabulary, &g));
//   int state = grammar_start(g);
//   const uint64_t *mask = grammar_mask(g, state);    // bit i: token i may come next
//   state = grammar_step(g, state, piece);            // the bytes of the token that was drawn
//
// A mask is found by walking the tokens as trees of bytes through the automaton, and kept with its state. States are
// numbers that hold until grammar_tidy. One thread at a time.
#ifndef QUILL_GRAMMAR_H
#define QUILL_GRAMMAR_H

#include "grammar/automaton.h"
#include "grammar/vocabulary.h"

typedef enum {
    GRAMMAR_REGEX,   // the whole answer matches a regular expression (grammar/regex.h)
    GRAMMAR_CHOICE,  // one of the texts of a list: a,b,c with \, for a comma
    GRAMMAR_GBNF,    // llama.cpp's grammars (grammar/gbnf.h)
    GRAMMAR_SCHEMA,  // JSON that a schema admits (grammar/schema.h)
    GRAMMAR_WRITTEN, // rules that `write` writes; the text is their name: the same text, the same rules
} GrammarKind;

typedef struct {
    GrammarKind kind;
    Str text;
    bool compact; // of JSON: no space between its parts
    Status (*write)(Rules *r, const void *arg);
    const void *arg;
} GrammarSource;

typedef struct Grammar Grammar;

// Reads the text as rules. QUILL_USAGE: what is wrong with it, with line and column where it has lines; no name in
// front.
Status grammar_rules(GrammarSource source, Rules *r);
// The same, compiled; the vocabulary must outlive the grammar.
Status grammar_compile(GrammarSource source, const Vocabulary *v, Grammar **out);
void grammar_free(Grammar *g); // NULL is fine

int grammar_start(const Grammar *g);
int grammar_step(Grammar *g, int state, Str bytes);     // STATE_DEAD: no answer goes on so
bool grammar_accepts(const Grammar *g, int state);      // the answer may end here
bool grammar_ends(Grammar *g, int state);               // no byte leads on
int grammar_distance(const Grammar *g, int state);      // bytes, and tokens at most, to the nearest end
void grammar_shortest(Grammar *g, int state, Buf *out); // appends the bytes that lead there

// The tokens that may come next, ends of the answer among them where it accepts. Valid until the next call.
const uint64_t *grammar_mask(Grammar *g, int state);
// The same, for at most `left` more tokens: those after which the answer can still be completed.
const uint64_t *grammar_mask_within(Grammar *g, int state, int left);

// Forgets states where they take much memory. All states are void then, the generation is another one, and answers are
// read again from grammar_start.
void grammar_tidy(Grammar *g);
unsigned grammar_generation(const Grammar *g);

#endif
