// grammar/automaton.h: a network of rules (grammar/nfa.h) read byte by byte, as states that are found when they are
// first reached.
//
// Inside one rule the automaton is deterministic: a place is a set of nodes. A call puts a frame on a stack: the set of
// places where its callers go on, each with the frame of its own rule. A state is a set of places with their frames.
// Places, frames and states that are equal are the same number (grammar/intern.h), so that stacks share their ends and
// a grammar cannot branch exponentially; what is known of a state is found again when it comes back.
#ifndef QUILL_AUTOMATON_H
#define QUILL_AUTOMATON_H

#include "grammar/intern.h"
#include "grammar/nfa.h"

enum {
    STATE_DEAD = 0,          // no text goes on from there
    STATE_MOST_ITEMS = 4096, // of a state; a grammar that is more ambiguous than that goes on nowhere
};

typedef struct {
    int32_t *next; // (n_classes) a state; -1: not known yet
    int distance;  // bytes of the shortest text that ends the answer; NFA_FAR and more: none
    bool accepts;  // the answer may end here
} State;

typedef struct Automaton Automaton;

typedef struct {
    const uint8_t *class_of;
    State *states;
} AutomatonView; // of an automaton, the first member of it

Automaton *automaton_new(const Nfa *nfa); // which must outlive it
void automaton_free(Automaton *a);
void automaton_forget(Automaton *a); // all states: their numbers are void
size_t automaton_bytes(const Automaton *a);

int automaton_start(const Automaton *a);
static inline const State *automaton_state(const Automaton *a, int state) { // valid until a step; `next` stays longer
    return &((const AutomatonView *)(const void *)a)->states[state];
}
int automaton_n_states(const Automaton *a);
int automaton_find_step(Automaton *a, int state, int class); // what automaton_step does where it is not known yet

// The state behind a byte.
static inline int automaton_step(Automaton *a, int state, uint8_t byte) {
    const AutomatonView *v = (const AutomatonView *)(const void *)a;
    int class = v->class_of[byte], to = v->states[state].next[class];
    return to >= 0 ? to : automaton_find_step(a, state, class);
}

#endif
