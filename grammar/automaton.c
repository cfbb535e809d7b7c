// grammar/automaton.c: see grammar/automaton.h.
#include "grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

enum {
    PLACE_NONE = 0, // no node
    PLACE_OVER = 1, // the root rule has ended: the answer is complete
    FRAME_NONE = 0,
    CHUNK = 1 << 16, // ints
};

// A call at a place: the called rule, and the place where the caller continues.
typedef struct {
    int rule, to;
} Call;

typedef struct {
    int32_t *next; // (n_classes) the next place; -1: not computed yet
    Call *calls;   // (n_calls) owned; n_calls -1: not computed yet
    int n_calls;
    int distance;   // bytes to the end of the rule, as in Nfa.distance
    bool ends;      // the rule may end here
    bool only_ends; // the rule must end here
    bool reads;     // bytes may follow inside the rule
} Place;

typedef struct {
    int place, frame;
} StackItem;

// A set of items that is being built.
typedef struct {
    StackItem *items;
    int n, cap;
    int *slots; // hash table of item + 1
    uint32_t mask;
    bool too_many;
} ItemSet;

typedef struct {
    int32_t **chunks;
    int n, used; // chunks; ints used of the last chunk
} Arena;

struct Automaton {
    AutomatonView view; // must be first: the inline functions read it
    const Nfa *nfa;
    Intern place_sets, frame_sets, state_sets;
    Place *places;
    int cap_places;
    int *frame_distance; // (frames)
    int cap_frames;
    int cap_states;
    Arena rows; // rows of State.next and Place.next
    ItemSet items, tails;
    uint8_t *seen;    // (n_nodes)
    int *stack, *set; // (n_nodes) scratch arrays
    int *callees, n_callees;
    int *called; // (n_rules) the last search that found the rule
    int search;
    int start;
};

// ---- rows of transitions --------------------------------------------------------------------------------------------

static int32_t *new_row(Automaton *a) {
    Arena *r = &a->rows;
    int n = a->nfa->n_classes;
    if (r->n == 0 || r->used + n > CHUNK) {
        r->chunks = mem_resize(r->chunks, (size_t)(r->n + 1) * sizeof *r->chunks);
        r->chunks[r->n++] = mem_alloc(CHUNK * sizeof **r->chunks);
        r->used = 0;
    }
    int32_t *row = r->chunks[r->n - 1] + r->used;
    r->used += n;
    for (int i = 0; i < n; i++) row[i] = -1;
    return row;
}

// ---- places: sets of nodes in one rule ------------------------------------------------------------------------------

static void push_node(Automaton *a, int *top, int node) {
    if (a->seen[node] || a->nfa->distance[node] >= NFA_FAR) return;
    a->seen[node] = 1;
    a->stack[(*top)++] = node;
}

static void describe_place(Automaton *a, int place, const int *nodes, int n) {
    if (place >= a->cap_places) {
        a->cap_places = a->cap_places ? 2 * a->cap_places : 64;
        a->places = mem_resize(a->places, (size_t)a->cap_places * sizeof *a->places);
    }
    Place *p = &a->places[place];
    *p = (Place){.next = new_row(a), .n_calls = -1, .distance = NFA_FAR};
    for (int i = 0; i < n; i++) {
        p->distance = int_min(p->distance, a->nfa->distance[nodes[i]]);
        p->ends |= nodes[i] == NFA_END;
        p->reads |= a->nfa->nodes[nodes[i]].kind == NODE_BYTES;
    }
    p->only_ends = n == 1 && p->ends;
}

// The place that consists of the nodes in `from` and all nodes reachable from them without reading a byte.
static int find_place(Automaton *a, const int *from, int n_from) {
    int top = 0, n = 0, n_seen = 0, *all = a->stack + a->nfa->n_nodes;
    bool fresh;
    for (int i = 0; i < n_from; i++) push_node(a, &top, from[i]);
    while (top > 0) {
        int at = a->stack[--top];
        const NfaNode *node = &a->nfa->nodes[at];
        all[n_seen++] = at;
        if (node->kind == NODE_SPLIT) push_node(a, &top, node->to), push_node(a, &top, node->other);
        else a->set[n++] = at;
        if (node->kind == NODE_CALL && a->nfa->rules[node->other].nullable) push_node(a, &top, node->to);
    }
    for (int i = 0; i < n_seen; i++) a->seen[all[i]] = 0;
    int place = intern_set(&a->place_sets, a->set, n, &fresh);
    if (fresh) describe_place(a, place, a->set, n);
    return place;
}

static int step_place(Automaton *a, int place, int class) {
    int known = a->places[place].next[class];
    if (known >= 0) return known;
    int byte = a->nfa->byte_of[class], n = 0, *to = a->stack + 2 * a->nfa->n_nodes;
    const int *nodes = intern_words(&a->place_sets, place);
    for (int i = 0; i < intern_length(&a->place_sets, place); i++) {
        const NfaNode *node = &a->nfa->nodes[nodes[i]];
        if (node->kind == NODE_BYTES && node->low <= byte && byte <= node->high) to[n++] = node->to;
    }
    int found = n ? find_place(a, to, n) : PLACE_NONE;
    a->places[place].next[class] = found;
    return found;
}

// Computes the calls at a place: one for each called rule, with the place of all nodes after it.
static void find_calls(Automaton *a, int place) {
    int length = intern_length(&a->place_sets, place), n_calls = 0;
    int *nodes = mem_alloc((size_t)length * sizeof *nodes + 1), *to = mem_alloc((size_t)length * sizeof *to + 1);
    Call *calls = mem_alloc((size_t)length * sizeof *calls + 1);
    if (length) memcpy(nodes, intern_words(&a->place_sets, place), (size_t)length * sizeof *nodes);
    for (int i = 0; i < length; i++) {
        if (a->nfa->nodes[nodes[i]].kind != NODE_CALL) continue;
        int rule = a->nfa->nodes[nodes[i]].other, n = 0;
        bool done = false;
        for (int k = 0; k < n_calls; k++) done |= calls[k].rule == rule;
        for (int k = i; k < length && !done; k++)
            if (a->nfa->nodes[nodes[k]].kind == NODE_CALL && a->nfa->nodes[nodes[k]].other == rule)
                to[n++] = a->nfa->nodes[nodes[k]].to;
        if (!done) calls[n_calls++] = (Call){rule, find_place(a, to, n)};
    }
    free(nodes);
    free(to);
    a->places[place].calls = calls;
    a->places[place].n_calls = n_calls;
}

// ---- sets of items --------------------------------------------------------------------------------------------------

static uint32_t item_hash(StackItem i) {
    uint64_t h = ((uint64_t)(uint32_t)i.place << 32 | (uint32_t)i.frame) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32);
}

static void items_clear(ItemSet *s) {
    for (int i = 0; i < s->n; i++) {
        uint32_t at = item_hash(s->items[i]) & s->mask;
        while (s->slots[at]) s->slots[at] = 0, at = (at + 1) & s->mask;
    }
    s->n = 0;
    s->too_many = false;
}

static void items_start(ItemSet *s) {
    *s = (ItemSet){.cap = STATE_MOST_ITEMS, .mask = 4 * STATE_MOST_ITEMS - 1};
    s->items = mem_alloc((size_t)s->cap * sizeof *s->items);
    s->slots = mem_alloc(((size_t)s->mask + 1) * sizeof *s->slots);
}

static void items_free(ItemSet *s) {
    free(s->items);
    free(s->slots);
}

static void items_add(ItemSet *s, StackItem item) {
    uint32_t at = item_hash(item) & s->mask;
    for (; s->slots[at]; at = (at + 1) & s->mask) {
        StackItem other = s->items[s->slots[at] - 1];
        if (other.place == item.place && other.frame == item.frame) return;
    }
    if (s->n == s->cap) {
        s->too_many = true;
        return;
    }
    s->items[s->n++] = item;
    s->slots[at] = s->n;
}

static int compare_items(const void *a, const void *b) {
    const StackItem *x = a, *y = b;
    return x->place != y->place ? (x->place > y->place) - (x->place < y->place)
                                : (x->frame > y->frame) - (x->frame < y->frame);
}

// Sorts the items; the hash table becomes invalid, so items_clear may not be called afterwards
static void items_sort(ItemSet *s) {
    for (int i = 0; i < s->n; i++) {
        uint32_t at = item_hash(s->items[i]) & s->mask;
        while (s->slots[at]) s->slots[at] = 0, at = (at + 1) & s->mask;
    }
    qsort(s->items, (size_t)s->n, sizeof *s->items, compare_items);
}

// ---- frames ---------------------------------------------------------------------------------------------------------

// The frame that consists of the items in a->tails. Clears a->tails.
static int find_frame(Automaton *a) {
    bool fresh;
    ItemSet *s = &a->tails;
    if (s->too_many) a->items.too_many = true;
    items_sort(s);
    int frame = intern_number(&a->frame_sets, (const int *)(const void *)s->items, 2 * s->n, &fresh);
    if (fresh) {
        if (frame >= a->cap_frames) {
            a->cap_frames = a->cap_frames ? 2 * a->cap_frames : 64;
            a->frame_distance = mem_resize(a->frame_distance, (size_t)a->cap_frames * sizeof *a->frame_distance);
        }
        int distance = s->n ? NFA_FAR : 0;
        for (int i = 0; i < s->n; i++)
            distance = int_min(
                distance, nfa_far_sum(a->places[s->items[i].place].distance, a->frame_distance[s->items[i].frame]));
        a->frame_distance[frame] = distance;
    }
    s->n = 0;
    s->too_many = false;
    return frame;
}

static StackItem frame_item(const Automaton *a, int frame, int i) {
    const int *words = intern_words(&a->frame_sets, frame);
    return (StackItem){words[2 * i], words[2 * i + 1]};
}

static int frame_length(const Automaton *a, int frame) { return intern_length(&a->frame_sets, frame) / 2; }

// ---- states ---------------------------------------------------------------------------------------------------------

// Adds the callers' continuations of rules that may end.
static void return_from_rules(Automaton *a) {
    for (int i = 0; i < a->items.n; i++) {
        StackItem item = a->items.items[i];
        if (item.place == PLACE_OVER || !a->places[item.place].ends) continue;
        for (int k = 0; k < frame_length(a, item.frame); k++) items_add(&a->items, frame_item(a, item.frame, k));
    }
}

// Adds the rules that a place calls to a->callees.
static void note_callees(Automaton *a, int place) {
    if (a->places[place].n_calls < 0) find_calls(a, place);
    const Place *p = &a->places[place];
    for (int i = 0; i < p->n_calls; i++) {
        int rule = p->calls[i].rule;
        if (a->called[rule] == a->search) continue;
        a->called[rule] = a->search;
        a->callees[a->n_callees++] = rule;
    }
}

// Removes and returns the rule of a->callees that no other of them can begin with; -1: the list is empty.
static int first_callee(Automaton *a) {
    int best = -1;
    for (int i = 0; i < a->n_callees; i++)
        if (best < 0 || a->nfa->rules[a->callees[i]].order < a->nfa->rules[a->callees[best]].order) best = i;
    if (best < 0) return -1;
    int rule = a->callees[best];
    a->callees[best] = a->callees[--a->n_callees];
    return rule;
}

// Adds the place where a caller continues to a->tails. If nothing is left of the caller, adds its own callers instead
// (tail-call elimination).
static void add_tail(Automaton *a, int to, int frame) {
    if (to == PLACE_OVER || !a->places[to].only_ends) items_add(&a->tails, (StackItem){to, frame});
    else
        for (int i = 0; i < frame_length(a, frame); i++) items_add(&a->tails, frame_item(a, frame, i));
}

static void call_rule(Automaton *a, int rule) {
    for (int i = 0; i < a->items.n; i++) {
        StackItem item = a->items.items[i];
        if (a->places[item.place].n_calls < 0) find_calls(a, item.place);
        for (int k = 0; k < a->places[item.place].n_calls; k++)
            if (a->places[item.place].calls[k].rule == rule) add_tail(a, a->places[item.place].calls[k].to, item.frame);
    }
    int frame = find_frame(a), start = find_place(a, &a->nfa->rules[rule].start, 1);
    items_add(&a->items, (StackItem){start, frame});
    note_callees(a, start);
}

static int add_state(Automaton *a, int state) {
    if (state >= a->cap_states) {
        a->cap_states = a->cap_states ? 2 * a->cap_states : 64;
        a->view.states = mem_resize(a->view.states, (size_t)a->cap_states * sizeof *a->view.states);
    }
    State *s = &a->view.states[state];
    *s = (State){.next = new_row(a), .distance = NFA_FAR};
    for (int i = 0; i < a->items.n; i++) {
        StackItem item = a->items.items[i];
        s->accepts |= item.place == PLACE_OVER;
        s->distance = int_min(s->distance, nfa_far_sum(a->places[item.place].distance, a->frame_distance[item.frame]));
    }
    return state;
}

// Returns the state of a->items and everything that can be reached from them without reading a byte. Clears a->items.
static int find_state(Automaton *a) {
    a->search++;
    a->n_callees = 0;
    return_from_rules(a);
    for (int i = 0; i < a->items.n; i++) note_callees(a, a->items.items[i].place);
    for (int rule; (rule = first_callee(a)) >= 0;) call_rule(a, rule);
    if (a->items.too_many) {
        items_clear(&a->items);
        return STATE_DEAD;
    }
    items_sort(&a->items);
    int kept = 0; // keeps items that read bytes or complete the answer
    for (int i = 0; i < a->items.n; i++) {
        StackItem item = a->items.items[i];
        if (item.place == PLACE_OVER || a->places[item.place].reads) a->items.items[kept++] = item;
    }
    a->items.n = kept;
    bool fresh;
    int state = intern_number(&a->state_sets, (const int *)(const void *)a->items.items, 2 * kept, &fresh);
    if (fresh) add_state(a, state);
    a->items.n = 0;
    return state;
}

int automaton_find_step(Automaton *a, int state, int class) {
    a->items.n = 0;
    a->items.too_many = false;
    int n = intern_length(&a->state_sets, state) / 2;
    for (int i = 0; i < n; i++) {
        const int *words = intern_words(&a->state_sets, state);
        StackItem item = {words[2 * i], words[2 * i + 1]};
        item.place = item.place == PLACE_OVER ? PLACE_NONE : step_place(a, item.place, class);
        if (item.place != PLACE_NONE) items_add(&a->items, item);
    }
    int to = a->items.n ? find_state(a) : STATE_DEAD;
    a->view.states[state].next[class] = to;
    return to;
}

// ---- open, close ----------------------------------------------------------------------------------------------------

static void begin(Automaton *a) {
    intern_start(&a->place_sets);
    intern_start(&a->frame_sets);
    intern_start(&a->state_sets);
    int none = find_place(a, NULL, 0); // PLACE_NONE
    bool fresh;
    int over = intern_number(&a->place_sets, (int[]){-1}, 1, &fresh); // no node has this number
    describe_place(a, over, NULL, 0);
    a->places[over].distance = 0;
    a->places[over].n_calls = a->places[none].n_calls = 0;
    find_frame(a); // FRAME_NONE
    int dead = find_state(a);
    for (int i = 0; i < a->nfa->n_classes; i++) a->view.states[dead].next[i] = STATE_DEAD;
    items_add(&a->tails, (StackItem){PLACE_OVER, FRAME_NONE});
    int end = find_frame(a), start = find_place(a, &a->nfa->rules[0].start, 1);
    items_add(&a->items, (StackItem){start, end});
    a->start = find_state(a);
}

static void end(Automaton *a) {
    for (int i = 0; i < a->place_sets.n; i++) free(a->places[i].calls);
    intern_free(&a->place_sets);
    intern_free(&a->frame_sets);
    intern_free(&a->state_sets);
    for (int i = 0; i < a->rows.n; i++) free(a->rows.chunks[i]);
    free(a->rows.chunks);
    a->rows = (Arena){0};
}

Automaton *automaton_new(const Nfa *nfa) {
    Automaton *a = mem_alloc(sizeof *a);
    *a = (Automaton){.nfa = nfa, .view.class_of = nfa->class_of};
    size_t n = (size_t)nfa->n_nodes;
    a->seen = mem_alloc(n);
    a->stack = mem_alloc(3 * n * sizeof *a->stack);
    a->set = mem_alloc(n * sizeof *a->set);
    a->callees = mem_alloc((size_t)nfa->n_rules * sizeof *a->callees);
    a->called = mem_alloc((size_t)nfa->n_rules * sizeof *a->called);
    items_start(&a->items);
    items_start(&a->tails);
    begin(a);
    return a;
}

void automaton_forget(Automaton *a) {
    end(a);
    begin(a);
}

void automaton_free(Automaton *a) {
    if (!a) return;
    end(a);
    free(a->places);
    free(a->frame_distance);
    free(a->view.states);
    free(a->seen);
    free(a->stack);
    free(a->set);
    free(a->callees);
    free(a->called);
    items_free(&a->items);
    items_free(&a->tails);
    free(a);
}

int automaton_start(const Automaton *a) { return a->start; }

size_t automaton_bytes(const Automaton *a) {
    return (size_t)a->rows.n * CHUNK * sizeof(int32_t) + intern_bytes(&a->place_sets) + intern_bytes(&a->frame_sets) +
           intern_bytes(&a->state_sets) + (size_t)a->cap_places * sizeof(Place) + (size_t)a->cap_states * sizeof(State);
}
