// bench/steps.h: runs steps of a model over sequences of random tokens without the scheduler, so that a benchmark
// chooses the rows of each step.
//
//   steps_push(e, &q, 40, &drawn);            // 40 random tokens
//   TRY(steps_compute(e, &step, &q, 39));     // the first 39 have K and V
//   step_clear(&step);
//   step_add(&step, NULL, &q, 1, true);       // one row: the last token
//   const float *logits = steps_forward(e, &step);
#ifndef QUILL_BENCH_STEPS_H
#define QUILL_BENCH_STEPS_H

#include "engine.h"
#include "step.h"

// Appends n random tokens to q. *drawn: counter of the random numbers, advanced by n.
void steps_push(const Engine *e, Sequence *q, int n, uint64_t *drawn);
// Computes the first n tokens of q and reserves slots for all tokens of q. QUILL_CONTEXT: the cache is full.
Status steps_compute(Engine *e, Step *t, Sequence *q, int n);
// Computes the step. Returns its logits on the host; NULL on a device that samples itself. The caller advances
// Sequence.n_cached.
const float *steps_forward(Engine *e, Step *t);

#endif
