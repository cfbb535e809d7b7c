// grammar/automaton.h: a lazily built pushdown automaton over a grammar's NFA (grammar/nfa.h), which reads bytes.
//
// Inside one rule the automaton is deterministic: a place is a set of NFA nodes. Calling a rule pushes a frame: the set
// of places where the callers continue, each with the frame of its own rule. A state is a set of (place, frame) pairs.
// Equal places, frames and states have the same number (grammar/intern.h): stacks share their common parts, so that
// an ambiguous grammar does not branch exponentially, and transitions are computed once per state and byte class.
#ifndef QUILL_AUTOMATON_H
#define QUILL_AUTOMATON_H

#include "grammar/intern.h"
#include "grammar/nfa.h"

enum {
    STATE_DEAD = 0,          // no continuation is possible
    STATE_MOST_ITEMS = 4096, // (place, frame) pairs of a state; a state that needs more becomes STATE_DEAD
};

typedef struct {
    int32_t *next; // (n_classes) the next state; -1: not computed yet
    // length of the shortest text that completes the answer; at least NFA_FAR: there is none. Counts bytes; a byte
    // without a token of its own counts NFA_UNSAYABLE
    int distance;
    bool accepts; // the answer may end here
} State;

typedef struct Automaton Automaton;

typedef struct {
    const uint8_t *class_of;
    State *states;
} AutomatonView; // the first member of Automaton, for the inline functions

Automaton *automaton_new(const Nfa *nfa); // nfa must outlive it
void automaton_free(Automaton *a);
void automaton_forget(Automaton *a);        // forgets all states; their numbers become invalid
size_t automaton_bytes(const Automaton *a); // memory of its states, frames and places

int automaton_start(const Automaton *a);
// Valid until the next automaton_step; the array State.next stays valid until automaton_forget.
static inline const State *automaton_state(const Automaton *a, int state) {
    return &((const AutomatonView *)(const void *)a)->states[state];
}
int automaton_find_step(Automaton *a, int state, int class); // computes a transition; called by automaton_step

// The state after reading a byte.
static inline int automaton_step(Automaton *a, int state, uint8_t byte) {
    const AutomatonView *v = (const AutomatonView *)(const void *)a;
    int class = v->class_of[byte], to = v->states[state].next[class];
    return to >= 0 ? to : automaton_find_step(a, state, class);
}

#endif
