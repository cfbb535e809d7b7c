// kv/evict.h: eviction: which slots a sequence gives up when its cache is full, so that generation can continue.
//
//   Evict *e; TRY(evict_new(&plan, &model, &kv, &e));
//   int room = evict_room(e, &seq, n_prompt); // slots that the next step may write; gives up old ones if none is left
//   ... kvcache_reserve, and a batch of n rows whose slots and positions differ
//   b->probe = evict_probe(e, &seq, n_prompt, n);
//
// The kept K rows keep their RoPE angles, so that distances between kept tokens stay as they were. Kept slots move to
// the front of the cache; positions of new tokens continue. Which slots are kept:
//   sinks    the first `sink` slots and the last `window` slots. The sinks are rotated by the number of slots given up,
//            as if they stood right before the window: StreamingLLM (Xiao et al. 2023) with positions in the cache.
//   shift    like sinks, with the whole cache as the window; half of it is given up at a time.
//   h2o      per layer and KV head: the `heavy` slots with the most attention so far, and the last `recent` slots
//            (Zhang et al. 2023).
//   snapkv   once, after a prompt longer than `cap`: per layer and KV head, the slots with the most attention from the
//            prompt's last `window` queries, and these last slots, `cap` in all (Li et al. 2024). The context still
//            ends.
// The kept rows were computed with all of the text in view. A forward over the kept tokens would give other rows, so
// the sequence is never shared, and to take tokens back means to compute it again. Needs dense KV in blocks without
// sharers.
#ifndef QUILL_EVICT_H
#define QUILL_EVICT_H

#include "model.h"
#include "policy/policy.h"

typedef enum { EVICT_SINKS, EVICT_SHIFT, EVICT_H2O, EVICT_SNAPKV } EvictKind;

typedef struct {
    EvictKind kind;
    int sink;   // sinks, shift
    int window; // sinks, snapkv; recent of h2o
    int most;   // slots that stay: heavy + recent of h2o, cap of snapkv
} EvictPlan;

// "sinks", "sink=4,window=1024", "shift,sink=1", "h2o,heavy=512,recent=512", "snapkv,cap=2048,window=32". QUILL_USAGE.
Status evict_parse(const char *text, EvictPlan *out);

typedef struct Evict Evict;

// QUILL_USAGE: the plan needs more slots than a sequence has, or KV is sealed.
Status evict_new(const EvictPlan *plan, const Model *m, KvCache *kv, Evict **out);
void evict_free(Evict *e);
bool evict_endless(const Evict *e); // false: the prompt must fit, and the context is limited (snapkv)
bool evict_counts(const Evict *e);  // attention sums cannot be taken back with the tokens: compute again (h2o)
// Before a step of s, whose first n_prompt tokens are the prompt: how many slots the step may write, at least 1 unless
// the context is full. Works for one sequence at a time; an empty cache tells it that another one begins.
int evict_room(Evict *e, Sequence *s, int n_prompt);
// What attention is to report in a step of n rows; NULL: nothing.
Probe *evict_probe(Evict *e, const Sequence *s, int n_prompt, int n);
// evict_room and evict_probe as a policy (policy/policy.h) for requests that run one at a time, on top of `next`.
Policy evict_policy(Evict *e, const Policy *next);

#endif
