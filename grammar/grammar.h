// grammar/grammar.h: compiles a grammar, and computes which tokens may come next in an answer.
//
//   Grammar *g;
//   TRY(grammar_compile((GrammarSource){.kind = GRAMMAR_REGEX, .text = str_of("[a-z]+")}, vocabulary, &g));
//   int state = grammar_start(g);
//   const uint64_t *mask = grammar_mask(g, state);    // bit i: token i may come next
//   state = grammar_step(g, state, piece);            // the bytes of the drawn token
//
// A mask is computed by walking the byte trees of all tokens (grammar/vocabulary.h) through the automaton, and cached
// for its state. States are numbers that stay valid until grammar_tidy. Use a grammar from one thread at a time.
#ifndef QUILL_GRAMMAR_H
#define QUILL_GRAMMAR_H

#include "grammar/automaton.h"
#include "grammar/vocabulary.h"

typedef enum {
    GRAMMAR_REGEX,   // the whole answer matches a regular expression (grammar/regex.h)
    GRAMMAR_CHOICE,  // one of the texts of a list: a,b,c with \, for a comma
    GRAMMAR_GBNF,    // llama.cpp's grammars (grammar/gbnf.h)
    GRAMMAR_SCHEMA,  // JSON that a schema admits (grammar/schema.h)
    GRAMMAR_WRITTEN, // rules made by `write`; the text is their key in caches: equal texts must mean equal rules
} GrammarKind;

typedef struct {
    GrammarKind kind;
    Str text;
    Status (*write)(Rules *r, const void *arg);
    const void *arg;
} GrammarSource;

typedef struct Grammar Grammar;

// Parses the text into rules. QUILL_USAGE: the message says what is wrong, with line and column if the text has lines;
// it does not begin with the name of the source.
Status grammar_rules(GrammarSource source, Rules *r);
// Parses and compiles the text. The vocabulary must outlive the grammar.
Status grammar_compile(GrammarSource source, const Vocabulary *v, Grammar **out);
void grammar_free(Grammar *g); // NULL is fine

int grammar_start(const Grammar *g);
int grammar_step(Grammar *g, int state, Str bytes);     // STATE_DEAD: the grammar forbids these bytes
bool grammar_accepts(const Grammar *g, int state);      // the answer may end here
bool grammar_ends(Grammar *g, int state);               // no byte may follow
int grammar_distance(const Grammar *g, int state);      // State.distance: no more tokens than that are needed to end
void grammar_shortest(Grammar *g, int state, Buf *out); // appends the shortest text that completes the answer

// A bit mask of the tokens that may come next; if the grammar accepts, with the end-of-answer tokens. Valid until the
// next call.
const uint64_t *grammar_mask(Grammar *g, int state);
// The same if at most `left` more tokens may come: only tokens after which fewer than `left` bytes complete the answer.
// If there are none: the tokens that come nearest to its end, since a token may have several bytes.
const uint64_t *grammar_mask_within(Grammar *g, int state, int left);

// Forgets all states if they take much memory. The generation then changes, all state numbers are invalid, and the
// caller must read its answers again from grammar_start.
void grammar_tidy(Grammar *g);
unsigned grammar_generation(const Grammar *g);

#endif
