// blend/blend.h: a request policy for prompts with chunks whose K and V were computed earlier, each chunk alone.
//
// When the request begins, the K and V of its chunks are loaded into its blocks (blend/loader.h). Only the tokens that
// are recomputed (blend/plan.h) become rows. Each row keeps its own slot, so it attends to the K and V of all slots in
// front of it, loaded or computed. CacheBlend first computes all tokens from the first chunk to the end of the last in
// the first two layers. Their K and V are exact there; comparing V of the second layer with the stored V tells which
// tokens to recompute. Then these tokens pass all layers.
//
// K and V of such a sequence differ from those of a prefill. The sequence is therefore marked as Sequence.altered:
// its blocks are never shared or saved. Tokens before the first chunk are computed, or found as a cached prefix.
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

// State that all requests of a run share.
typedef struct {
    const Model *m;
    KvCache *kv;
    ChunkStore *store;
    const int *lead; // (n_lead) tokens before the chunk in every chunk file
    int n_lead;
    BlendPlan plan;
    bool quiet;
    // False: chunks of this request are still being computed, and it waits. NULL: requests never wait.
    bool (*ready)(void *arg, const int *tokens, const BlendSpan *spans, int n_spans);
    void *arg;
} BlendContext;

typedef struct {
    int n_kept;           // tokens with loaded K and V
    int n_again;          // tokens from the first chunk to the end of the last that were computed in all layers
    int n_chunks, n_lost; // chunks of the prompt; chunks without stored K and V, computed as part of the prompt
    double load_seconds;  // time spent waiting for the files
} BlendStats;

typedef struct Blend Blend;

// The tokens of a chunk file: the lead-in, then the chunk `s` of the prompt. The caller frees them.
int *blend_chunk_tokens(const BlendContext *context, const int *tokens, BlendSpan s, int *n);

// QUILL_MODEL: the keys of this model family cannot be moved to other positions; QUILL_USAGE: sealed KV, or
// layers whose K and V differ in shape or are shared (kvcache_check_alike).
Status blend_check(const Model *m, const KvPool kv[KV_KINDS]);

// The policy of one request. spans: the chunks of its prompt, ascending. next: the policy that it calls in turn. A
// preempted request loads its chunks again. context, its model and `next` must outlive it. Free it with blend_free when
// the request has finished.
Blend *blend_new(const BlendContext *context, const BlendSpan *spans, int n_spans, const Policy *next);
const Policy *blend_policy(const Blend *b);
BlendStats blend_stats(const Blend *b);
void blend_free(Blend *b); // NULL is fine

#endif
