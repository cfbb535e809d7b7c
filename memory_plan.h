// memory_plan.h: how large the KV cache and the scratch memory of a model in use are: what was asked for, or what fits.
#ifndef QUILL_MEMORY_PLAN_H
#define QUILL_MEMORY_PLAN_H

#include "device_plan.h"
#include "engine_config.h"
#include "kvcache.h"
#include "model.h"

// What a mode needs of an engine, whatever its user has chosen.
typedef struct {
    bool need_tokenizer;
    int n_ctx;      // slots a sequence; 0: by the configuration and the model
    int n_seqs;     // sequences at once; 0: 1
    int max_out;    // rows of logits at once; 0: n_seqs
    int ctx_of_use; // where neither says: the model's context, but no more than this; 0: no limit
    // The sequences share one pool of blocks, and blocks where they begin alike: --kv-mem, or half of the memory that
    // is free, one context at least. Otherwise each has a context of its own.
    bool pooled;
    // K and V of every token are looked at again, as they are saved, sent on, or taken back to an earlier token.
    // Otherwise layers with a window give theirs up as the text goes on.
    bool whole;
} EngineNeeds;

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
