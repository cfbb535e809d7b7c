// cpu/attention.h: attention of a batch to a layer's K and V, cut into tasks.
#ifndef QUILL_CPU_ATTENTION_H
#define QUILL_CPU_ATTENTION_H

#include "cpu/cpu.h"

// Backend.attention: w->a = softmax(q K) V; then the tail pages take the rows of groups that are still open.
void attention_run(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b);

// Adds how much the batch's queries looked at each slot to b->probe->mass (Probe in kernels.h). K is read again, since
// attention keeps no scores.
void attention_mass_add(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b);

#endif
