// cpu/seq_rows.h: the rows of one sequence in a batch: builds attention tasks for them, and packs their K and V if
// these have a sealed type (formats/sealed.h).
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

// An attention task for them; the caller sets its KV head, its pairs and its scratch.
AttendTask seq_rows_task(const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const SequenceRows *r);

// Seals the groups of one KV head whose last slot is among the rows.
void seq_rows_seal(const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const SequenceRows *r,
                   int head);

// Copies the rows of the group that is still incomplete after this step to its tail page.
void seq_rows_keep_tail(const Workspace *w, const Layer *l, const KvPool *kv, const SequenceRows *r);

#endif
