// grammar/constraint.h: an answer that a grammar constrains, as a function of its tokens so far.
//
// Nothing has to be taken back: every call names the answer's tokens, and what is known of their common beginning with
// those of the call before is used again. So drafts, forks and beams ask for whatever sequence they stand at.
#ifndef QUILL_CONSTRAINT_H
#define QUILL_CONSTRAINT_H

#include "grammar/grammar.h"
#include "tokenizer.h"

typedef struct Constraint Constraint;

// fresh: the answer's first token loses the space that encoding puts in front of a text (tokenizer_stream_piece).
Constraint *constraint_new(Grammar *g, const Vocabulary *v, const Tokenizer *t, bool fresh); // which must outlive it
void constraint_free(Constraint *c);                                                         // NULL is fine

// Writes the logits behind the n tokens of an answer, those of refused tokens as -inf: (n_logits), of which the caller
// keeps `out`. left: how many tokens may still come, this one too; -1: no limit. While they suffice, only tokens are
// allowed behind which the answer can be completed.
void constraint_apply(Constraint *c, const int *tokens, int n, int left, const float *logits, int n_logits, float *out);
const Grammar *constraint_grammar(const Constraint *c);

bool constraint_complete(Constraint *c, const int *tokens, int n); // these tokens are a whole answer
bool constraint_over(Constraint *c, const int *tokens, int n);     // and no byte may follow
// Appends the shortest text that would complete the answer.
void constraint_missing(Constraint *c, const int *tokens, int n, Buf *out);

// What comes from here on continues these tokens, and is counted from 0: they have become part of a prompt.
void constraint_continue(Constraint *c, const int *tokens, int n);

#endif
