// policy/ngram.h: an index of texts by their n-grams: which tokens followed the last ones of a text, here or elsewhere.
//
//   int text = ngram_begin(g, tokens, n);                  // a prompt
//   ngram_extend(g, text, token, 1);                       // ... and what comes behind it
//   NgramMatch m = ngram_find(g, text, draft, most);       // m.n tokens that followed the longest match
//
// Prompt lookup (Saxena 2023) with a back-off: the longest match that ends a text is looked for among n-grams of 8,
// then 4, then 2 tokens, in all texts; then, where the text follows another one with changes, a little before and
// behind the place there. Of matches that are equally long, the newest counts. Texts that have ended stay until there
// are NGRAM_TOKENS of them, 28 bytes a token at most; then the older half of them goes.
#ifndef QUILL_NGRAM_H
#define QUILL_NGRAM_H

#include <stdint.h>

enum { NGRAM_TOKENS = 1 << 20, NGRAM_LONGEST = 32 };

typedef struct Ngram Ngram;

typedef struct {
    int n;      // tokens that follow the match; 0: there is none
    int length; // of the match, NGRAM_LONGEST at most; 0: the place where a copy would go on after one other token
} NgramMatch;

Ngram *ngram_new(void);
void ngram_free(Ngram *g);
// A text that begins with these tokens. It goes on with one that has ended, if all of that is its beginning: the next
// turn of a chat. Returns the text's number until ngram_end.
int ngram_begin(Ngram *g, const int *tokens, int n);
void ngram_extend(Ngram *g, int text, const int *tokens, int n); // appends
int ngram_tokens(const Ngram *g, int text);                      // how many it has
void ngram_end(Ngram *g, int text);                              // nothing more comes; it may still be found
// The tokens that followed the longest match of the text's end, `most` at most.
NgramMatch ngram_find(Ngram *g, int text, int *draft, int most);

#endif
