// grammar/intern.h: a table that numbers sequences of ints: equal sequences get the same number, from 0 on.
//
// The automaton identifies sets of nodes, stacks and states by such numbers.
#ifndef QUILL_INTERN_H
#define QUILL_INTERN_H

#include "base/base.h"
#include "base/hash.h"

typedef struct {
    int *words; // all sequences, concatenated
    size_t n_words, cap_words;
    size_t *at; // (n + 1) where each sequence begins in `words`
    int n, cap;
    int *slots; // hash table of number + 1; 0: free
    uint32_t mask;
    HashKey key;
} Intern;

void intern_start(Intern *t);
void intern_free(Intern *t);
// The number of this sequence; *fresh: it is new. `words` must not point into the table.
int intern_number(Intern *t, const int *words, int n, bool *fresh);
// The number of this set, whatever the order of its elements; sorts `set`.
int intern_set(Intern *t, int *set, int n, bool *fresh);
size_t intern_bytes(const Intern *t);

// Valid until the next call of intern_number.
static inline const int *intern_words(const Intern *t, int number) { return t->words + t->at[number]; }
static inline int intern_length(const Intern *t, int number) { return (int)(t->at[number + 1] - t->at[number]); }

#endif
