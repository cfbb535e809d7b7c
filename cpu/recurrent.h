// cpu/recurrent.h: layers with a state of fixed size in place of K and V, MIXER_DELTA, MIXER_CONV and MIXER_SSD, on the
// CPU (their equations: Recurrence in layer.h).
//
// The rows of a sequence are computed in order from the state before them, one by one or in chunks by matrix products
// (CpuKernels.delta). States that the batch wants to keep are written on the way. A task is one head of one sequence.
#ifndef QUILL_CPU_RECURRENT_H
#define QUILL_CPU_RECURRENT_H

#include "kernels.h"

void recurrent_in(Workspace *w, const Layer *l, const Batch *b);  // norm, then the input products into w->mix
void recurrent_run(Workspace *w, const Layer *l, const Batch *b); // w->mix to w->a; updates the states in b->states

#endif
