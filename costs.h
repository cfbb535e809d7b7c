// costs.h: FLOPs and bytes of a forward pass. The formulas are at the head of costs.c.
#ifndef QUILL_COSTS_H
#define QUILL_COSTS_H

#include "kvcache.h"
#include "model.h"

typedef struct {
    double flops, bytes;
} Cost;

// The cost of one step. Reads n_rows, n_out, n_seqs, slot, seq and `ended` of the batch, and counts as computed what
// `ended` says: with it, call this after the forward. ended NULL: reads out_row, and `probe` (NULL or not) and `whole`,
// and counts every row up to the last layer: what Batch.narrow does is not counted then.
Cost costs_batch(const Model *m, const KvPool kv[KV_KINDS], const Batch *b);
// The cost of one step of one sequence: rows at slots [first, first + n_rows), the last n_out of them with logits.
Cost costs_rows(const Model *m, const KvShape *kv, int first, int n_rows, int n_out);

// Bytes that a step of n_rows reads of one matrix. l: its layer, NULL for the embedding and the head. For a stack of
// experts the expected number.
double costs_matrix_bytes(const Layer *l, const Tensor *t, int n_rows);
// Attention alone: all layers and rows, including the K and V that they write.
Cost costs_attention(const Model *m, const KvPool kv[KV_KINDS], const Batch *b);

#endif
