// kv/kvdir.h: --kv-dir for a scheduler: blocks that a directory has are taken when a request begins, and blocks that
// fill are written there.
#ifndef QUILL_KVKEEP_H
#define QUILL_KVKEEP_H

#include "kv/kvstore.h"
#include "policy/policy.h"

typedef struct {
    KvStore *store; // NULL: there is no directory, and every call does nothing
    KvCache *kv;
    bool quiet;    // no notes on stderr
    int n_fetched; // slots that requests had from there since one was added
    Policy policy; // fetches; it takes the place of the policy behind it
} KvKeeper;

// The keeper owns the store from here on, and stays where it is while its policy is used. next: the policy behind.
void kvkeep_init(KvKeeper *k, KvStore *store, KvCache *kv, const Policy *next, bool quiet);
void kvkeep_free(KvKeeper *k);

// After a step over a pool: keeps the blocks that its rows have filled, as many slots as the step had rows and a block
// more, so that decoding rows wait little.
void kvkeep_step(KvKeeper *k, const Scheduler *s, const Batch *b);
// Keeps what is left of a sequence that has run.
void kvkeep_sequence(KvKeeper *k, const Sequence *q);

#endif
