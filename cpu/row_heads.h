// cpu/row_heads.h: one head of one row of a batch: its RoPE, and the slot of its K or V.
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

#endif
