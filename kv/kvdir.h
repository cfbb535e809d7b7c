// kv/kvdir.h: --kv-dir for a scheduler: blocks that a directory has are taken when a request begins, and blocks that
// fill are written there.
#ifndef QUILL_KVDIR_H
#define QUILL_KVDIR_H

#include "kv/kvstore.h"
#include "policy/policy.h"

typedef struct {
    KvStore *store; // NULL: there is no directory, and every call does nothing
    KvCache *kv;
    bool quiet;    // no notes on stderr
    int n_fetched; // kvdir_fetched
    Policy policy; // fetches; it takes the place of the policy behind it
} KvDir;

// The KvDir owns the store from here on, and must not move while its policy is used. next: the policy behind.
void kvdir_init(KvDir *k, KvStore *store, KvCache *kv, const Policy *next, bool quiet);
void kvdir_free(KvDir *k);

// Before a request is added: the count of slots that requests had from the directory starts again.
void kvdir_begin(KvDir *k, Request *r);
int kvdir_fetched(const KvDir *k); // slots that requests had from the directory since then
// After a step over a pool: keeps the blocks that its rows have filled, as many slots as the step had rows and a block
// more, so that decoding rows wait little.
void kvdir_step(KvDir *k, const Scheduler *s, const Batch *b);
// Keeps what is left of a sequence that has run.
void kvdir_sequence(KvDir *k, const Sequence *q);

#endif
