// grammar/nfa_both.h: the texts that two expressions have in common, as nodes: a pattern and a length, say.
#ifndef QUILL_NFA_BOTH_H
#define QUILL_NFA_BOTH_H

#include "grammar/nfa_build.h"

// Writes the product of the two and returns its first node. Sets b->failed where an expression calls a rule that calls
// itself, or where the product is too large.
int nfa_both(NfaBuild *b, int one, int other, int next);

#endif
