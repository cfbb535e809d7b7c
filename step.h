// step.h: the rows that sequences have in a step, and the batch that they make.
//
// First step_add adds rows for the known tokens of each sequence; then policies may add drafts behind them
// (policy/policy.h); then step_fill writes tokens, positions, slots and block tables, sequence by sequence. Until then
// the batch's n_rows, n_out and n_seqs count the rows that were added.
#ifndef QUILL_STEP_H
#define QUILL_STEP_H

#include "policy/policy.h"

typedef struct {
    Batch batch;
    const KvCache *kv;
    SeqRows *rows; // (max_seqs) of each sequence of the batch
    int *draft;    // (max_rows) the tokens of their drafts
    Draw *draw;    // (max_seqs)
    Narrow narrow; // the rows that end as SeqRows.ends says
    KvArrival arrival;
} Step;

void step_new(Step *t, const KvCache *kv, int max_rows, int max_seqs);
void step_free(Step *t);
void step_clear(Step *t); // removes all rows
// Adds rows for the next n tokens of a sequence of r, whose slots are reserved, with the logits of the last row or
// none.
SeqRows *step_add(Step *t, Request *r, Sequence *q, int n, bool wants_logits);
void step_fill(Step *t);

#endif
