// grammar/vocabulary.h: the tokens of a model as byte trees (tries), from which masks are computed (grammar/grammar.h).
//
// Most tokens are plain: they consist of whole characters that need no escape in a JSON string. Plain tokens are in one
// tree for each number of characters, together with a ready mask of the tree's tokens: where a grammar accepts any n
// plain characters, the mask is used without walking the tree. All other tokens are in tree 0. Tokens without bytes are
// in no tree; tokens that end an answer are allowed where the grammar accepts.
#ifndef QUILL_VOCABULARY_H
#define QUILL_VOCABULARY_H

#include "base/base.h"

enum {
    VOCABULARY_CONTROL =
        0xff,              // the first byte of a control token's piece, before its name; UTF-8 text cannot contain it
    VOCABULARY_TREES = 17, // tree 0: tokens that are not plain; tree n: plain tokens of n characters
    VOCABULARY_PLAIN = VOCABULARY_TREES - 1, // the last tree: plain tokens of that many characters or more
};

typedef struct {
    int32_t end;   // the first node after its subtree
    int32_t token; // the token that ends here; -1: none. Vocabulary.same has other tokens with the same bytes
    int16_t depth; // bytes from the root to the node, at least 1
    uint8_t byte;  // the byte that leads to the node
} TokenNode;

// Nodes in depth-first order: the subtree of node i is [i, nodes[i].end).
typedef struct {
    TokenNode *nodes; // (n)
    int n, deepest;
} TokenTree;

typedef struct {
    int n_tokens, n_words; // n_words: 64-bit words of a mask
    Str *pieces;           // (n_tokens) a token's bytes; empty: it is never part of an answer
    TokenTree trees[VOCABULARY_TREES];
    uint64_t *plain[VOCABULARY_TREES]; // (n_words) the tokens of a tree; [0] is NULL
    int32_t *same;                     // (n_tokens) the next token with the same bytes; -1: none
    uint64_t *ends;                    // (n_words) mask of the tokens that end an answer
    bool sayable[256];                 // whether some token consists of this byte alone
} Vocabulary;

// pieces: (n_tokens) the bytes of each token; control tokens: VOCABULARY_CONTROL and the name; empty: never part of an
// answer. They must outlive the vocabulary. n_ids: the model's number of logits, at least n_tokens; ids from n_tokens
// on are in no mask. ends: (n_ends) ids that end an answer.
Vocabulary *vocabulary_new(const Str *pieces, int n_tokens, int n_ids, const int *ends, int n_ends);
void vocabulary_free(Vocabulary *v);

static inline bool mask_has(const uint64_t *mask, int id) { return mask[id >> 6] >> (id & 63) & 1; }
static inline void mask_set(uint64_t *mask, int id) { mask[id >> 6] |= 1ull << (id & 63); }

#endif
