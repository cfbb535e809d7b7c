// blend/blend.h: a prompt whose chunks bring K and V that were computed earlier, each chunk alone (blend/plan.h), as
// the policy of a request.
//
// When the request begins, the chunks' K and V are loaded into its blocks (blend/loader.h), and the tokens to be
// computed again become its rows; all other tokens have none. A row sees K and V of all slots in front of it and none
// behind, since it lies at its own slot. CacheBlend first has every token between the first chunk and the last in the
// first two layers: these K and V are exact, and in the second one V tells which tokens differ. Then the chosen ones
// pass all layers.
//
// K and V of such a sequence are not those of a prefill: it is its sequence's own (Sequence.own) and never shared or
// kept. What stands in front of the first chunk is computed, or found as a prefix.
#ifndef QUILL_BLEND_H
#define QUILL_BLEND_H

#include "blend/chunkstore.h"
#include "blend/plan.h"
#include "model.h"
#include "scheduler.h"

// A chunk in a prompt: n tokens from `first` on.
typedef struct {
    int first, n;
} BlendSpan;

// What the requests of a run share.
typedef struct {
    const Model *m;
    KvCache *kv;
    ChunkStore *store;
    const int *lead; // (n_lead) the tokens in front of every chunk in its file
    int n_lead;
    BlendPlan plan;
    bool quiet;
    // Whether the chunks of a request are computed as far as they will be; false: it waits. NULL: they are.
    bool (*ready)(void *arg, const int *tokens, const BlendSpan *spans, int n_spans);
    void *arg;
} BlendContext;

typedef struct {
    int n_kept;           // tokens whose K and V came from chunks
    int n_again;          // tokens from the first chunk's to the last chunk's that were computed in all layers
    int n_chunks, n_lost; // chunks of the prompt; of them without K and V: they were computed as part of the prompt
    double load_seconds;  // waited for their files
} BlendStats;

typedef struct Blend Blend;

// QUILL_MODEL: the model's keys cannot be moved, with the family's name; QUILL_USAGE: sealed KV.
Status blend_check(const Model *m, const KvPool *kv);

// The policy of a request whose prompt has these spans, ascending, behind it `next`. One that is preempted begins
// again. The context, the model and `next` must outlive it. Free it when the request has finished.
Blend *blend_new(const BlendContext *context, const BlendSpan *spans, int n_spans, const Policy *next);
const Policy *blend_policy(const Blend *b);
BlendStats blend_stats(const Blend *b);
void blend_free(Blend *b); // NULL is fine

#endif
