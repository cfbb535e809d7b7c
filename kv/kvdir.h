// kv/kvdir.h: --kv-dir for a scheduler: loads blocks from the directory when a request begins, and saves full blocks
// there.
#ifndef QUILL_KVDIR_H
#define QUILL_KVDIR_H

#include "kv/kvstore.h"
#include "policy/policy.h"

typedef struct {
    KvStore *store; // NULL: there is no directory, and every call does nothing
    KvCache *kv;
    bool quiet;    // no notes on stderr
    Status noted;  // the last error that was noted
    Policy policy; // Policy.fetch loads blocks; everything else is left to its `next`
} KvDir;

// Takes ownership of the store. The KvDir must not move while its policy is in use. next: the policy that `policy`
// wraps.
void kvdir_init(KvDir *k, KvStore *store, KvCache *kv, const Policy *next, bool quiet);
void kvdir_free(KvDir *k);

// Call after a step over a pool: saves blocks that are now full, at most n_rows slots and one block more, so that
// decoding rows wait little.
void kvdir_step(KvDir *k, const Scheduler *s, const Batch *b);
// Saves the remaining full blocks of a finished sequence.
void kvdir_sequence(KvDir *k, const Sequence *q);

#endif
