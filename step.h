// step.h: builds the batch of a step from the rows of each sequence.
//
// First step_add adds rows for the known tokens of each sequence. Then policies may add drafts after them
// (policy/policy.h). Then step_fill writes tokens, positions, slots and block tables, sequence by sequence. Before
// step_fill only n_rows, n_out and n_seqs of the batch are valid; they count the rows added so far.
#ifndef QUILL_STEP_H
#define QUILL_STEP_H

#include "policy/policy.h"

typedef struct {
    Batch batch;
    const KvCache *kv;
    StepRows *rows; // (max_seqs) the rows of each sequence of the batch
    int *draft;     // (max_rows) the tokens of their drafts
    Draw *draw;     // (max_seqs)
    Narrow narrow;  // combines StepRows.ends of all sequences
    KvArrival arrival;
} Step;

void step_new(Step *t, const KvCache *kv, int max_rows, int max_seqs);
void step_free(Step *t);
void step_clear(Step *t); // removes all rows
// Adds rows for the next n tokens of a sequence of r, whose slots are reserved. wants_logits: of the last row.
StepRows *step_add(Step *t, Request *r, Sequence *q, int n, bool wants_logits);
void step_fill(Step *t);

#endif
