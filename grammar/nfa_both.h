// grammar/nfa_both.h: the intersection of two expressions as NFA nodes, for example of a pattern and a length.
#ifndef QUILL_NFA_BOTH_H
#define QUILL_NFA_BOTH_H

#include "grammar/nfa_build.h"

// Writes the product automaton of the two, which ends at node `next`, and returns its first node. Sets b->failed if an
// expression uses a recursive rule, or if the product is too large.
int nfa_both(NfaBuild *b, int one, int other, int next);

#endif
