// cpu/recurrent.h: layers with a state of fixed size in place of K and V: MIXER_DELTA and MIXER_CONV (Recurrence of
// kernels.h has what they compute).
//
// A sequence's rows are computed one after the other from the state in front of them, or in chunks by matrix products
// (CpuKernels.delta). States that the batch wants to keep are written as the rows pass. Heads and sequences are tasks.
#ifndef QUILL_CPU_RECURRENT_H
#define QUILL_CPU_RECURRENT_H

#include "kernels.h"

void recurrent_in(Workspace *w, const Layer *l, const Batch *b);  // norm, then the products into w->mix
void recurrent_run(Workspace *w, const Layer *l, const Batch *b); // from there to w->a; b->states takes the states

#endif
