// policy/drafter.h: what speculation needs of a model that drafts: a draft model (policy/draft_model.h) or the model's
// own prediction head (policy/mtp.h). For a text, the tokens of a sequence of the target:
//
//   void *t = NULL;                           // what the drafter keeps of the text
//   d.observe(d.arg, &t, rows)                // after each step of the target with rows of the text
//   if (d.follow(d.arg, &t, text, most))      // t has the text's tokens, without the drafts of before
//       logits = d.step(d.arg, texts, n)      // for n texts, the logits after the last token of each
//   d.push(t, token)                          // appends a draft; the next step continues after it
//   d.leave(d.arg, t, text)                   // the text has ended
//
// A drafter computes on the CPU, with the target's threads, between the target's steps.
#ifndef QUILL_DRAFTER_H
#define QUILL_DRAFTER_H

#include "policy/policy.h"

typedef struct {
    // NULL: the drafter does not need rows->hidden.
    void (*observe)(void *arg, void **t, const StepRows *rows);
    // Prepares drafts after the last token of a text, and reserves slots for `most` of them. False: it cannot draft for
    // this text now, because its cache is full or it lacks a hidden vector.
    bool (*follow)(void *arg, void **t, const Sequence *text, int most);
    // The number of rows that the next step computes besides the draft's. t may be NULL.
    int (*behind)(const void *t, const Sequence *text);
    // Returns the logits after the last tokens of n texts, (n, n_vocab of the target), valid until the next step.
    const float *(*step)(void *arg, void *const *texts, int n);
    void (*push)(void *t, int token);
    const Sequence *(*tokens)(const void *t);                // the text with its drafts
    void (*leave)(void *arg, void *t, const Sequence *text); // t may be NULL
    void *arg;
} Drafter;

#endif
