// costs.h: FLOPs and bytes of a forward, by exact formulas that stand at the head of costs.c.
#ifndef QUILL_COSTS_H
#define QUILL_COSTS_H

#include "kvcache.h"
#include "model.h"

typedef struct {
    double flops, bytes;
} Cost;

// Of one step. Of the batch n_rows, n_out, slot, seq, out_row and whether there is a probe are read.
Cost costs_batch(const Model *m, const KvPool *kv, const Batch *b);
// The same for one sequence: rows at slots [first, first + n_rows), the last n_out of them with logits, in one step.
Cost costs_rows(const Model *m, const KvShape *kv, int first, int n_rows, int n_out);

// Parts of them. Bytes that n_rows read of a matrix of a layer, or of the ends (l NULL); of experts the average.
double costs_matrix_bytes(const Layer *l, const Tensor *t, int n_rows);
Cost costs_attention(const Model *m, const KvPool *kv, const Batch *b); // of all layers and rows, with what they write

#endif
