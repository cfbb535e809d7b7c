// grammar/constraint.h: constrains one answer to a grammar: which tokens may follow the answer's tokens so far.
//
// Every call passes all tokens of the answer, so that drafts, forks and beams need no undo. States of the prefix that
// these tokens have in common with the previous call's are reused.
#ifndef QUILL_CONSTRAINT_H
#define QUILL_CONSTRAINT_H

#include "grammar/grammar.h"
#include "tokenizer.h"

typedef struct Constraint Constraint;

// fresh: the answer begins a text, so that its first token loses the space which encoding inserts there
// (tokenizer_stream_piece). g, v and t must outlive the constraint.
Constraint *constraint_new(Grammar *g, const Vocabulary *v, const Tokenizer *t, bool fresh);
void constraint_free(Constraint *c); // NULL is fine

// Copies the logits after the n tokens of an answer to `out` (n_logits), with -inf for tokens that the grammar forbids.
// left: how many more tokens the answer may have, with this one; -1: no limit. As long as `left` tokens can complete
// the answer, only tokens are allowed after which the rest still can.
void constraint_apply(Constraint *c, const int *tokens, int n, int left, const float *logits, int n_logits, float *out);
const Grammar *constraint_grammar(const Constraint *c);

// The grammar accepts these tokens as an answer, without their last n_cut bytes, which a stop string removed.
bool constraint_complete(Constraint *c, const int *tokens, int n, size_t n_cut);
bool constraint_over(Constraint *c, const int *tokens, int n); // it accepts them, and no byte may follow
// Appends the shortest text that would complete the answer.
void constraint_missing(Constraint *c, const int *tokens, int n, Buf *out);

// Call when the answer's n tokens become part of a prompt: later calls pass only the tokens after them. n_cut: as for
// constraint_complete.
void constraint_continue(Constraint *c, const int *tokens, int n, size_t n_cut);

#endif
