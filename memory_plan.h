// memory_plan.h: decides how large the KV cache and the scratch memory of a loaded model are: as requested, or as large
// as fits into memory.
#ifndef QUILL_MEMORY_PLAN_H
#define QUILL_MEMORY_PLAN_H

#include "device_plan.h"
#include "engine_config.h"
#include "kvcache.h"
#include "model.h"
#include "policy/draft_steps.h"

typedef struct {
    // given
    const EngineConfig *config;
    EngineNeeds needs; // n_seqs and max_out at least 1
    const Model *model;
    DevicePlan *devices; // opened; the plan decides its layers
    DraftMemory draft;   // of the draft model, whose cache has as many slots; zeros: there is none
    int n_threads;
    // planned
    KvShape shape;  // n_ctx: slots of one sequence; n_seqs: in a pool it may be fewer than needs.n_seqs
    size_t scratch; // bytes of the workspace in the host's memory
    int max_rows;   // the most rows of a step
    int max_out;    // the most of them with logits
} MemoryPlan;

// Decides the context length: the requested one; without a request the model's own, or as much of it as fits.
// QUILL_MEMORY: the requested context does not fit; the message suggests flags and shows the memory budget.
// QUILL_USAGE: the model or --evict does not allow the types of K and V. The errors of device_plan_make.
Status memory_plan_make(MemoryPlan *p);
// For --mlock. QUILL_MEMORY: a file of file_bytes, the KV cache and the scratch memory exceed the available memory.
Status memory_plan_check_lock(const MemoryPlan *p, size_t file_bytes);

// The fields of a KvShape that follow from the model: layers, heads and window. The caller sets the others.
KvShape memory_plan_kv_shape(const Model *m);
// The cache of one sequence with the default options: what `inspect` shows. step_rows: the most rows of a step.
KvShape memory_plan_default_shape(const Model *m, int n_ctx, int step_rows);
// The largest context (-c) whose KV cache fits into the memory that is available now, with steps of up to `rows` rows.
// kv_mem: as in EngineConfig.
int memory_plan_most_context(const KvShape *s, int rows, size_t kv_mem);
// An error for lack of memory gets the lines of the budget behind its message; others stay.
Status memory_plan_explain(const MemoryPlan *p, Status st);
// Appends the lines of the memory budget: weights, KV cache, scratch, the draft model if there is one, available
// memory.
void memory_plan_budget(const Model *m, const KvShape *s, size_t scratch, const DraftMemory *draft, Buf *out);

#endif
