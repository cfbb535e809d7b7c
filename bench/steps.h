// bench/steps.h: steps of an engine's model over sequences of random tokens, without its scheduler, so that a bench
// decides which rows a step has.
//
//   steps_push(e, &q, 40, &drawn);            // 40 random tokens
//   TRY(steps_compute(e, &step, &q, 39));     // the first 39 have K and V
//   step_clear(&step);
//   step_add(&step, NULL, &q, 1, true);       // a row of the last one
//   const float *logits = steps_forward(e, &step);
#ifndef QUILL_BENCH_STEPS_H
#define QUILL_BENCH_STEPS_H

#include "engine.h"
#include "step.h"

// Appends n tokens to q, those of random numbers *drawn and on.
void steps_push(const Engine *e, Sequence *q, int n, uint64_t *drawn);
// Computes the first n tokens of q; slots are reserved for all of them. QUILL_CONTEXT: the cache is full.
Status steps_compute(Engine *e, Step *t, Sequence *q, int n);
// Fills the step and computes it: its logits on the host, NULL on a device that draws. n_cached stays the caller's.
const float *steps_forward(Engine *e, Step *t);

#endif
