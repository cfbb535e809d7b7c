// kv/evict.h: eviction: frees slots of a sequence when its cache is full, so that generation can continue.
//
//   Evict *e; TRY(evict_new(&plan, &model, &kv, &e));
//   int room = evict_room(e, &seq, n_prompt); // slots that the next step may write; frees old ones if none is left
//   ... kvcache_reserve, and a batch of n rows whose slots and positions differ
//   b->probe = evict_probe(e, &seq, n_prompt, n);
//
// Kept slots move to the front of the cache; the positions of new tokens continue. Kept K rows keep their RoPE angles,
// unless the list says that they are rotated. Which slots are kept:
//   sinks    the first `sink` slots and the last `window` slots. The sinks are rotated by the number of evicted slots,
//            as if they stood right before the window: StreamingLLM (Xiao et al. 2023) with positions in the cache.
//   shift    like sinks, with the whole cache as the window; each eviction frees half of it.
//   h2o      per layer and KV head: the `heavy` slots with the most attention so far, and the last `recent` slots
//            (Zhang et al. 2023). Once the text is longer than the trained context, each eviction rotates the keys of
//            heavy slots by the number of slots that go between them and the new tokens, so that no distance exceeds
//            those of training.
//   snapkv   once, after a prompt longer than `cap`: per layer and KV head, the slots with the most attention from the
//            prompt's last `window` queries, and these last slots, `cap` in all (Li et al. 2024). Generation still
//            stops at the end of the context.
// The kept rows were computed while the evicted tokens were visible. A forward pass over the kept tokens alone would
// give other rows. Therefore the sequence is never shared, and removing tokens from it means computing it again.
// Eviction needs dense KV types and blocks that only this sequence uses.
#ifndef QUILL_EVICT_H
#define QUILL_EVICT_H

#include "model.h"
#include "policy/policy.h"

typedef enum { EVICT_SINKS, EVICT_SHIFT, EVICT_H2O, EVICT_SNAPKV } EvictKind;

typedef struct {
    EvictKind kind;
    int sink;   // sinks, shift
    int window; // `window` of sinks and snapkv, `recent` of h2o
    int most;   // slots that are kept: heavy + recent of h2o, cap of snapkv
} EvictPlan;

// "sinks", "sink=4,window=1024", "shift,sink=1", "h2o,heavy=512,recent=512", "snapkv,cap=2048,window=32". QUILL_USAGE.
Status evict_parse(const char *text, EvictPlan *out);

typedef struct Evict Evict;

// QUILL_USAGE: the plan needs more slots than a sequence may use, or a KV type is sealed, or layers differ in
// the shape of K and V or share them (kvcache_check_alike). QUILL_MODEL: the model has recurrent layers, or norms of K
// after RoPE. QUILL_MEMORY: a device has no memory for the attention sums of its layers.
Status evict_new(const EvictPlan *plan, const Model *m, KvCache *kv, Evict **out);
void evict_free(Evict *e);
bool evict_endless(const Evict *e); // false: the prompt must fit, and the context is limited (snapkv)
// True for h2o: its sums of attention include removed tokens. After tokens are removed, compute the sequence again.
bool evict_counts(const Evict *e);
// Call before each step of s, whose first n_prompt tokens are the prompt. Evicts if necessary. Returns how many slots
// the step may write: at least 1 unless the context is full. An Evict serves one sequence at a time; n_cached == 0
// means that a new sequence begins.
int evict_room(Evict *e, Sequence *s, int n_prompt);
// The attention sums that a step of n rows must collect; NULL: none.
Probe *evict_probe(Evict *e, const Sequence *s, int n_prompt, int n);
// evict_room and evict_probe as a policy (policy/policy.h) for requests that run one at a time, on top of `next`.
Policy evict_policy(Evict *e, const Policy *next);

#endif
