// grammar/vocabulary.h: the tokens of a model as trees of bytes, for masks (grammar/grammar.h).
//
// Most tokens are plain: whole characters that a JSON string holds as they are. Those lie in one tree for each number
// of characters, with the set of all of them ready: where a grammar takes any text of so many plain characters, the
// whole set is allowed without a walk. All other tokens lie in tree 0. Tokens without bytes lie in none; the ends of an
// answer are allowed where the grammar accepts.
#ifndef QUILL_VOCABULARY_H
#define QUILL_VOCABULARY_H

#include "base/base.h"

enum {
    VOCABULARY_CONTROL =
        0xff,              // the byte that the piece of a control token begins with, before its name: no text has it
    VOCABULARY_TREES = 17, // 0: tokens that are not plain; n: plain with n characters
    VOCABULARY_PLAIN = VOCABULARY_TREES - 1, // the last one has all that have as many characters or more
};

typedef struct {
    int32_t end;   // the first node behind its subtree
    int32_t token; // that ends here; -1: none does. Vocabulary.same has the others
    int16_t depth; // bytes from the root to it, 1 at least
    uint8_t byte;  // that leads to the node
} TokenNode;

// Nodes in the order of a walk that goes down first: the children of node i lie behind it.
typedef struct {
    TokenNode *nodes; // (n)
    int n, deepest;
} TokenTree;

typedef struct {
    int n_tokens, n_words; // words of a mask
    Str *pieces;           // (n_tokens) a token's bytes; empty: it is never part of an answer
    TokenTree trees[VOCABULARY_TREES];
    uint64_t *plain[VOCABULARY_TREES]; // (n_words) the tokens of a tree; [0] is NULL
    int32_t *same;                     // (n_tokens) the next token with the same bytes; -1: none
    uint64_t *ends;                    // (n_words) tokens that end an answer
    int n_ends;
    bool sayable[256]; // whether some token is this byte alone
} Vocabulary;

// pieces: (n_tokens) the bytes of each token, VOCABULARY_CONTROL and the name of control tokens, empty for tokens that
// are never part of an answer; they must outlive the vocabulary. n_ids: of the
// model, n_tokens at least; the ids behind the tokens are in no mask. ends: (n_ends) ids that end an answer.
Vocabulary *vocabulary_new(const Str *pieces, int n_tokens, int n_ids, const int *ends, int n_ends);
void vocabulary_free(Vocabulary *v);

static inline bool mask_has(const uint64_t *mask, int id) { return mask[id >> 6] >> (id & 63) & 1; }
static inline void mask_set(uint64_t *mask, int id) { mask[id >> 6] |= 1ull << (id & 63); }

#endif
