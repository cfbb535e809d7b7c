// policy/ngram.h: an index of texts by their n-grams. It finds earlier occurrences of a text's last tokens, in the same
// or another text, and the tokens that followed there.
//
//   int text = ngram_begin(g, tokens, n);                  // a prompt
//   ngram_extend(g, text, &token, 1);                      // ... and the tokens generated after it
//   NgramMatch m = ngram_find(g, text, draft, most);       // m.n tokens that followed the longest match
//
// This is prompt lookup (Saxena 2023) with a back-off: the longest match with the end of a text is looked up among
// n-grams of 8, then 4, then 2 tokens, in all texts, at the 24 newest places of each. Among equally long matches the
// newest is taken. If the text copies another one with changes, positions around the current one in that text are tried
// too, and taken if their match is at most one token shorter. Ended texts stay in the index until all texts have
// NGRAM_TOKENS tokens, where each text counts as 4 tokens more; then the older half is removed. An ended text takes 28
// bytes per token, and the heads of the chains 24 to 48: NGRAM_TOKENS tokens take at most 55 MB, besides what malloc
// adds to the two arrays of each text.
#ifndef QUILL_NGRAM_H
#define QUILL_NGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { NGRAM_TOKENS = 1 << 20, NGRAM_LONGEST = 32, NGRAM_RECENT = 64 };

typedef struct Ngram Ngram;

typedef struct {
    int n;      // number of tokens that follow the match; 0: there is no match
    int length; // of the match, at most NGRAM_LONGEST; 0: the text copies another one and its last token differs
} NgramMatch;

Ngram *ngram_new(void);
void ngram_free(Ngram *g);
// Adds a text that begins with these tokens. If one of the NGRAM_RECENT texts that ended last is a prefix of them, that
// text is continued: the next turn of a chat. Returns the text's number, valid until ngram_end.
int ngram_begin(Ngram *g, const int *tokens, int n);
void ngram_extend(Ngram *g, int text, const int *tokens, int n); // appends tokens
int ngram_tokens(const Ngram *g, int text);                      // the number of its tokens
void ngram_end(Ngram *g, int text);                              // the text is complete; it can still be found
// Writes to `draft` up to `most` tokens that followed the longest match with the end of the text.
NgramMatch ngram_find(Ngram *g, int text, int *draft, int most);
size_t ngram_bytes(const Ngram *g); // memory of the index, for the tests

#endif
