// tests/rig/two_texts.h: two texts with the same beginning, in sequences that are forked, truncated, released and
// drafted. However the rows of a sequence were computed, their logits must be those of one run from the start.
#ifndef QUILL_TWO_TEXTS_H
#define QUILL_TWO_TEXTS_H

#include "tests/rig/model_rig.h"

enum { TEXT_MOST = 80, TEXT_VOCAB = 320 };

typedef struct {
    Rig r;
    int n, alike;             // tokens of each text; of their common beginning
    int tokens[2][TEXT_MOST]; //
    float *want[2];           // (n, TEXT_VOCAB) their logits; the caller computes them
    double limit;             // largest distance of a row's logits; 0: equal bits
} TwoTexts;

void two_texts_random(TwoTexts *t, int n, int alike);
// Also checks that every state of a recurrent layer was given back.
void two_texts_close(TwoTexts *t);

void two_texts_expect_row(const TwoTexts *t, int text, int at, const float *row, const char *what);
void two_texts_drop(TwoTexts *t, Sequence *s); // releases and frees
// Computes the remaining tokens of a sequence in chunks, and compares its rows with those of the text.
void two_texts_finish(TwoTexts *t, Sequence *s, int text, int chunk, const char *what);
// Truncates a sequence to `to` tokens and computes the text from there on.
void two_texts_return(TwoTexts *t, Sequence *s, int to, int text, int chunk);

// Two sequences that share a beginning continue separately, in n_steps steps.
void two_texts_check_fork(TwoTexts *t, int n_steps);
// A sequence whose blocks are taken from it, and used by the other text, is computed again.
void two_texts_check_preemption(TwoTexts *t, int chunk);

// Computes n rows of a sequence whose slots, from `first` on, are reserved.
void two_texts_forward(TwoTexts *t, const Sequence *s, int first, const int *token, int n);
enum { TEXT_KNOWN = 20, TEXT_DRAFTS = 6 };
// TEXT_DRAFTS drafts after TEXT_KNOWN + 1 tokens, of which `kept` are the text's: the state is that of the last kept
// one.
void two_texts_check_drafts(TwoTexts *t, int kept, int chunk);

#endif
