// policy/draft_steps.h: the cache, the scratch memory and the steps of a model that drafts: of a draft model
// (policy/draft_model.h) or of the model's own prediction head (policy/mtp.h).
//
//   step_clear(&d->step); step_add(&d->step, NULL, q, n, true); ...   // of any sequences, whose slots are reserved
//   const float *logits = draft_steps_run(d);
//   draft_steps_count(d);                                             // unless the rows are to be computed again
#ifndef QUILL_DRAFT_STEPS_H
#define QUILL_DRAFT_STEPS_H

#include "kvcache.h"
#include "model.h"
#include "step.h"

typedef struct {
    const Model *m;
    Workspace work;
    KvCache kv;
    Step step;
} DraftSteps;

// The bytes of the host's memory that a drafting model needs, known before draft_steps_begin.
typedef struct {
    size_t weights, scratch; // bytes
    size_t slot;             // bytes of one slot of its cache
    size_t states;           // bytes of its cache's recurrent states
} DraftMemory;

enum { DRAFT_STEPS_FEW = 8 }; // the most rows of a sequence in a step with others
// The rows of the largest step: `most` of one sequence, or a few of each.
static inline int draft_steps_rows(int most, int n_seqs) { return int_max(most, DRAFT_STEPS_FEW * n_seqs); }

// n_back: KvShape.n_back.
DraftMemory draft_steps_memory(const Model *m, int n_threads, int max_rows, int n_seqs, int n_back);
// Allocates for steps of up to max_rows rows. kv: context, sequences, blocks and n_back of the cache; this function
// sets layers and types. QUILL_MEMORY.
Status draft_steps_begin(DraftSteps *d, const Model *m, ThreadPool *pool, KvShape kv, int max_rows);
void draft_steps_free(DraftSteps *d);
// Computes the rows that were added to the step. Returns the logits of the rows that want them, valid until the next
// run. Before, the caller may set Batch.given, and StepRows.wants_hidden to ask for hidden vectors.
const float *draft_steps_run(DraftSteps *d);
void draft_steps_count(DraftSteps *d); // counts the slots of these rows as computed

#endif
