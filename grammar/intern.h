// grammar/intern.h: sequences of ints as small numbers: equal sequences get the same number.
//
// An automaton names sets of nodes, stacks and states by such numbers, so that what it knows of one is found again.
#ifndef QUILL_INTERN_H
#define QUILL_INTERN_H

#include "base/base.h"
#include "base/hash.h"

typedef struct {
    int *words; // of all sequences, one behind the other
    size_t n_words, cap_words;
    size_t *at; // (n + 1) where each begins
    int n, cap;
    int *slots; // number + 1; 0: free
    uint32_t mask;
    HashKey key;
} Intern;

void intern_start(Intern *t);
void intern_free(Intern *t);
// The number of this sequence; *fresh: it is new. `words` must not point into the table.
int intern_number(Intern *t, const int *words, int n, bool *fresh);
size_t intern_bytes(const Intern *t);

// Valid until the next call of intern_number.
static inline const int *intern_words(const Intern *t, int number) { return t->words + t->at[number]; }
static inline int intern_length(const Intern *t, int number) { return (int)(t->at[number + 1] - t->at[number]); }

#endif
