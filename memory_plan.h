// memory_plan.h: how large the KV cache and the scratch memory of a model in use are: what was asked for, or what fits.
#ifndef QUILL_MEMORY_PLAN_H
#define QUILL_MEMORY_PLAN_H

#include "device_plan.h"
#include "engine_config.h"
#include "kvcache.h"
#include "model.h"

typedef struct {
    // given
    const EngineConfig *config;
    EngineNeeds needs; // n_seqs and max_out at least 1
    const Model *model;
    DevicePlan *devices; // opened; the plan decides its layers
    int n_threads;
    // planned
    KvShape shape;  // n_ctx is what one sequence may use; n_seqs of a pool may be fewer than were needed
    size_t scratch; // bytes of the workspace in the host's memory
    int max_rows;   // of a step
} MemoryPlan;

// Decides the context: what was asked for, or the model's own if that fits, or what fits. QUILL_MEMORY: what was asked
// for does not fit, with flags to try and the budget.
Status memory_plan_make(MemoryPlan *p);
// --mlock: QUILL_MEMORY: a file of so many bytes, the KV cache and the scratch memory are more than can be had.
Status memory_plan_check_lock(const MemoryPlan *p, size_t file_bytes);

// A cache of the model's layers: their number, kinds and sizes; all else is the caller's.
KvShape memory_plan_kv_shape(const Model *m);
// The type that a run's KV cache has where `asked` for (KV_TYPE_AUTO: f16, and f32 for a model in F32).
int memory_plan_kv_type(const Model *m, int asked);
// The largest -c of which memory has room for the KV cache, as things are now. kv_mem: EngineConfig's.
int memory_plan_most_context(const KvShape *s, size_t scratch, size_t kv_mem);
// The four lines of the memory budget: weights, KV, scratch, what is available.
void memory_plan_budget(const Model *m, const KvShape *s, size_t scratch, Buf *out);

#endif
