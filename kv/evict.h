// kv/evict.h: a sequence that outgrows its cache: which slots it gives up, so that it can go on without end.
//
//   Evict *e; TRY(evict_new(&plan, &model, &kv, &e));
//   int room = evict_room(e, &seq, n_prompt);   // slots that the next step may write; some are given up where none is
//   ... kv_reserve, a batch whose rows have slot and pos apart, b->probe = evict_probe(e, &seq, n_prompt) ...
//
// K stays as it was turned, so that distances between what is kept stay true; slots are closed up, positions go on.
//   sinks    the first `sink` slots and the last `window`. The sinks are turned on by as much as was given up, as if
//            nothing lay between them and the window: StreamingLLM (Xiao et al. 2023) with positions in the cache.
//   shift    the same with the whole cache for a window, of which half goes at once.
//   h2o      of each layer and KV head the `heavy` slots that queries looked at most, and the `recent` last ones
//            (Zhang et al. 2023).
//   snapkv   once, behind a prompt longer than `cap`: of each layer and KV head those slots that the prompt's last
//            `window` queries look at most, and these last ones, `cap` in all (Li et al. 2024). Not without end.
// What is kept was computed with all of the text in view, so that no forward over the kept tokens gives it: such a
// sequence is never shared, and taking it back begins anew. Dense KV alone; blocks that no one shares.
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
bool evict_endless(const Evict *e); // false: a prompt must fit, and the context ends (snapkv)
bool evict_counts(const Evict *e);  // what queries look at stays counted when tokens are taken back: begin anew (h2o)
// Before a step of s, of whose tokens the first n_prompt are the prompt: how many slots it may write, at least 1 unless
// the context is full. One sequence at a time: another one, or one that begins anew, is noticed by its empty cache.
int evict_room(Evict *e, Sequence *s, int n_prompt);
// What attention is to report in a step of n rows; NULL: nothing.
Probe *evict_probe(Evict *e, const Sequence *s, int n_prompt, int n);
// Both as a policy (policy.h) for requests that run one at a time; `next` does what eviction does not.
Policy evict_policy(Evict *e, const Policy *next);

#endif
