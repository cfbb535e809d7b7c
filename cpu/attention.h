// cpu/attention.h: attention of a batch in one layer on the CPU, divided into tasks for the threads.
#ifndef QUILL_CPU_ATTENTION_H
#define QUILL_CPU_ATTENTION_H

#include "cpu/cpu.h"

// Attention of layers with K and V of their own: w->a = softmax(q K) V. Then copies the K and V of still open groups
// (sealed types) to tail pages.
void attention_run(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b);

// Runs a kernel for at most `most` pairs of the task at a time.
static inline void attention_by_pairs(const AttendTask *t, int most, void (*run)(const AttendTask *t)) {
    AttendTask part = *t;
    for (; part.first < t->last; part.first = part.last) {
        part.last = int_min(part.first + most, t->last);
        run(&part);
    }
}

// The kernel for the rows of a layer.
const AttendKernel *attention_kernel(const Layer *l);

// Adds the attention of the batch's queries to each slot to b->probe->mass (Probe in kernels.h). Computes the scores
// again, since attention does not keep them.
void attention_mass_add(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b);

#endif
