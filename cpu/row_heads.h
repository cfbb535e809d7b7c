// cpu/row_heads.h: heads of the rows of a batch: RoPE of one, the slot of its K or V, and another order of all of them.
#ifndef QUILL_CPU_ROW_HEADS_H
#define QUILL_CPU_ROW_HEADS_H

#include "cpu/cpu.h"

// Offset of a row's values in w->rope_cos and w->rope_sin for RoPE table `table`.
size_t row_heads_rope_at(const Workspace *w, int table, int row);

// Rotates a head, or its part with RoPE, by the angles of the row's position.
void row_heads_turn(const CpuKernels *k, const Workspace *w, const Layer *l, float *head, int row);

// Stores x, K or V (`value`) of a KV head, in the row's slot. Does nothing for a sealed plane, which seq_rows_seal
// writes.
void row_heads_store(const CpuKernels *k, const Layer *l, const KvPool *kv, const Batch *b, int row, int head,
                     bool value, const float *x);

// The elements of all heads of some rows in memory.
typedef struct {
    float *at;
    size_t row, head; // floats from one row, from one head to the next
} HeadRows;

// Copies n elements of each head of each row; rows are divided among the threads.
void row_heads_regroup(Workspace *w, int n_rows, int n_heads, int n, HeadRows from, HeadRows to);

#endif
