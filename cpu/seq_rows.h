// cpu/seq_rows.h: the rows of one sequence in a batch: what attention needs of them, and the packing of their K and V
// where these are of a sealed type (formats/sealed.h).
#ifndef QUILL_CPU_SEQ_ROWS_H
#define QUILL_CPU_SEQ_ROWS_H

#include "cpu/cpu.h"

typedef struct {
    const int *table; // the sequence's block table
    int first, n;     // rows of the batch
    int slot;         // of the first row
} SequenceRows;

// The rows of the sequence that row `first` belongs to, from that row on.
SequenceRows seq_rows_at(const Batch *b, const KvPool *kv, int first);

// A task over them; its KV head, its pairs and its scratch are still to be filled in.
AttendTask seq_rows_task(const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const SequenceRows *r);

// Seals the groups of one KV head whose last slot is among the rows.
void seq_rows_seal(const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const SequenceRows *r,
                   int head);

// Keeps the rows of the group that stays open after this step in its tail page.
void seq_rows_keep_tail(const Workspace *w, const Layer *l, const KvPool *kv, const SequenceRows *r);

#endif
