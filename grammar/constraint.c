// grammar/constraint.c: see grammar/constraint.h.
#include "grammar/constraint.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct Constraint {
    Grammar *g;
    const Vocabulary *v;
    const Tokenizer *t;
    bool fresh;
    Buf before;           // the answer's bytes before its tokens (constraint_continue)
    int *tokens, *states; // (n) tokens of earlier calls, and the state after each; `start` is the state before them
    int n, cap, start;
    unsigned generation; // grammar_generation of these states
    uint64_t *first;     // (n_words) the mask of a fresh first token
};

Constraint *constraint_new(Grammar *g, const Vocabulary *v, const Tokenizer *t, bool fresh) {
    Constraint *c = mem_alloc(sizeof *c);
    *c = (Constraint){.g = g, .v = v, .t = t, .fresh = fresh, .start = grammar_start(g)};
    c->generation = grammar_generation(g);
    c->first = mem_alloc((size_t)v->n_words * sizeof *c->first + 1);
    return c;
}

void constraint_free(Constraint *c) {
    if (!c) return;
    buf_free(&c->before);
    free(c->tokens);
    free(c->states);
    free(c->first);
    free(c);
}

const Grammar *constraint_grammar(const Constraint *c) { return c->g; }

static bool is_first(const Constraint *c, int n) { return c->fresh && n == 0; }

// The bytes of token i of the answer; empty: a token that ends the answer.
static Str piece_of(const Constraint *c, int token, int i) {
    if (token < 0 || token >= c->v->n_tokens || c->v->pieces[token].n == 0) return (Str){"", 0};
    Str piece = c->v->pieces[token];
    bool control = (unsigned char)piece.data[0] == VOCABULARY_CONTROL;
    return is_first(c, i) && !control ? tokenizer_stream_piece(c->t, token, true) : piece;
}

// The state after the tokens; STATE_DEAD: the grammar forbids them.
static int state_of(Constraint *c, const int *tokens, int n) {
    if (c->generation != grammar_generation(c->g)) {
        c->n = 0;
        c->generation = grammar_generation(c->g);
        c->start = grammar_step(c->g, grammar_start(c->g), str_of_buf(&c->before));
    }
    int same = 0, state = c->start;
    while (same < n && same < c->n && c->tokens[same] == tokens[same]) state = c->states[same++];
    c->n = same;
    if (n > c->cap) {
        c->cap = 2 * n + 64;
        c->tokens = mem_resize(c->tokens, (size_t)c->cap * sizeof *c->tokens);
        c->states = mem_resize(c->states, (size_t)c->cap * sizeof *c->states);
    }
    for (; c->n < n; c->n++) {
        state = grammar_step(c->g, state, piece_of(c, tokens[c->n], c->n));
        c->tokens[c->n] = tokens[c->n];
        c->states[c->n] = state;
    }
    return state;
}

// Sets the first tokens after which the text can end within `most` tokens. Returns the fewest tokens after any.
static int first_within(Constraint *c, int state, int most) {
    int nearest = INT_MAX;
    memset(c->first, 0, (size_t)c->v->n_words * sizeof *c->first);
    for (int id = 0; id < c->v->n_tokens; id++) {
        Str piece = piece_of(c, id, 0);
        int to = c->v->pieces[id].n ? grammar_step(c->g, state, piece) : STATE_DEAD;
        if (to == STATE_DEAD) continue;
        int distance = grammar_distance(c->g, to);
        nearest = int_min(nearest, distance);
        if (distance <= most) mask_set(c->first, id);
    }
    return nearest;
}

// The mask of a fresh answer's first token, as grammar_mask and grammar_mask_within give it for others. Its piece may
// lack a space that the byte trees contain, so that each token is tried alone.
static const uint64_t *first_mask(Constraint *c, int state, int left) {
    int most = left < 0 ? INT_MAX : left - 1, nearest = first_within(c, state, most);
    bool accepts = grammar_accepts(c->g, state);
    if (!accepts && nearest > most) first_within(c, state, nearest);
    for (int i = 0; accepts && i < c->v->n_words; i++) c->first[i] |= c->v->ends[i];
    return c->first;
}

static const uint64_t *mask_of(Constraint *c, const int *tokens, int n, int left) {
    grammar_tidy(c->g);
    int state = state_of(c, tokens, n);
    if (is_first(c, n)) return first_mask(c, state, left);
    return left < 0 ? grammar_mask(c->g, state) : grammar_mask_within(c->g, state, left);
}

typedef int32_t MaskLanes __attribute__((vector_size(16))); // four logits

// out[i] = logits[i] where the mask has i, else -inf.
static void apply_mask(const uint64_t *mask, const float *logits, int n, float *out) {
    static const MaskLanes keep[16] = {
        {0, 0, 0, 0},   {-1, 0, 0, 0},   {0, -1, 0, 0},   {-1, -1, 0, 0},   {0, 0, -1, 0},  {-1, 0, -1, 0},
        {0, -1, -1, 0}, {-1, -1, -1, 0}, {0, 0, 0, -1},   {-1, 0, 0, -1},   {0, -1, 0, -1}, {-1, -1, 0, -1},
        {0, 0, -1, -1}, {-1, 0, -1, -1}, {0, -1, -1, -1}, {-1, -1, -1, -1},
    };
    static const float minus = -INFINITY;
    int32_t none;
    memcpy(&none, &minus, sizeof none);
    int i = 0;
    for (; i + 64 <= n; i += 64) {
        uint64_t word = mask[i >> 6];
        if (word == 0) {
            for (int k = 0; k < 64; k++) out[i + k] = -INFINITY;
            continue;
        }
        for (int k = 0; k < 64; k += 8, word >>= 8) {
            MaskLanes x[2], low = keep[word & 15], high = keep[word >> 4 & 15];
            memcpy(x, logits + i + k, sizeof x);
            x[0] = (x[0] & low) | (none & ~low);
            x[1] = (x[1] & high) | (none & ~high);
            memcpy(out + i + k, x, sizeof x);
        }
    }
    for (; i < n; i++) out[i] = mask_has(mask, i) ? logits[i] : -INFINITY;
}

void constraint_apply(Constraint *c, const int *tokens, int n, int left, const float *logits, int n_logits,
                      float *out) {
    const uint64_t *mask = mask_of(c, tokens, n, left);
    int known = int_min(n_logits, 64 * c->v->n_words);
    apply_mask(mask, logits, known, out);
    for (int i = known; i < n_logits; i++) out[i] = -INFINITY;
}

// Appends the answer's bytes without the last n_cut; returns the state after them.
static int state_of_bytes(Constraint *c, const int *tokens, int n, size_t n_cut, Buf *out) {
    buf_append(out, c->before.data, c->before.n);
    for (int i = 0; i < n; i++) {
        Str piece = piece_of(c, tokens[i], i);
        buf_append(out, piece.data, piece.n);
    }
    out->n -= n_cut < out->n ? n_cut : out->n;
    return grammar_step(c->g, grammar_start(c->g), str_of_buf(out));
}

bool constraint_complete(Constraint *c, const int *tokens, int n, size_t n_cut) {
    if (n_cut == 0) return grammar_accepts(c->g, state_of(c, tokens, n));
    Buf text = {0};
    int state = state_of_bytes(c, tokens, n, n_cut, &text);
    buf_free(&text);
    return grammar_accepts(c->g, state);
}

bool constraint_over(Constraint *c, const int *tokens, int n) {
    int state = state_of(c, tokens, n);
    return grammar_accepts(c->g, state) && grammar_ends(c->g, state);
}

void constraint_missing(Constraint *c, const int *tokens, int n, Buf *out) {
    grammar_shortest(c->g, state_of(c, tokens, n), out);
}

void constraint_continue(Constraint *c, const int *tokens, int n, size_t n_cut) {
    Buf text = {0};
    c->start = state_of_bytes(c, tokens, n, n_cut, &text);
    c->generation = grammar_generation(c->g);
    buf_free(&c->before);
    c->before = text;
    c->fresh &= n == 0;
    c->n = 0;
}
