// tests/rig/vocabularies.h: small vocabularies built in memory, and checks of the tokens of a text.
#ifndef QUILL_VOCABULARIES_H
#define QUILL_VOCABULARIES_H

#include "tokenizer.h"

enum { MAX_TOKENS = 1024, MAX_MERGES = 64 };

typedef struct {
    Str tokens[MAX_TOKENS];
    float scores[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    int n;
    Str merges[MAX_MERGES];
    int n_merges;
    char names[256][8];
} TestVocabulary;

int vocabulary_add(TestVocabulary *b, const char *text, int type, float score); // returns its id
void vocabulary_add_merge(TestVocabulary *b, const char *merge);
TestVocabulary *vocabulary_bpe(void); // byte-level BPE: token b is byte b
TestVocabulary *vocabulary_spm(void); // SentencePiece: token 3 + b is byte b
TestVocabulary *vocabulary_small_spm(void);
// The metadata of a model file; `pre` names the pre-tokenizer, or is NULL.
Gguf *vocabulary_view(const TestVocabulary *b, const char *model, const char *pre);

Tokenizer *vocabulary_load(Gguf *g);                                // closes the view: a tokenizer does not need it
Tokenizer *vocabulary_load_bpe(TestVocabulary *b, const char *pre); // frees b
Tokenizer *vocabulary_load_spm(TestVocabulary *b);                  // frees b
void vocabulary_refused(Gguf *g, const char *word); // asserts QUILL_MODEL and `word` in the message; closes the view

// Asserts the ids of a text; `expected` has them as numbers separated by spaces. trusted (n), NULL: no byte is trusted.
void vocabulary_check_ids(const Tokenizer *t, const char *text, size_t n, const uint8_t *trusted, const char *expected);
void vocabulary_ids_of(const Tokenizer *t, const char *text, const char *expected);
void vocabulary_trusted_ids_of(const Tokenizer *t, const char *text, const char *expected); // every byte is trusted
void vocabulary_check_round_trip(const Tokenizer *t, const char *text, size_t n);

#endif
