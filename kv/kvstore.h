// kv/kvstore.h: blocks of KV cache in a directory, so that what one run has computed the next one need not (--kv-dir).
//
//   kvstore_load(s, &kv, &seq, INT_MAX); // before a prompt is computed: its first blocks, as many as are there
//   kvstore_save(s, &kv, &seq);          // when it is: the full blocks that the directory lacks
//
// A file holds one block of `block` slots, whatever the cache's own layout is, and is named by the block's name
// (chain.h), whose root stands for the format, the model and everything else that decides the numbers (fingerprint.h).
// So one directory serves any number of models and processes: nobody writes another block under a name, a file appears
// whole or not at all, and a reader looks at all of what it takes (fingerprints, the block before, the ids, a checksum
// a frame) and removes what is damaged. Whoever can write into the directory can change what is answered from it: the
// checksums are against damage, not against forgery. Files that are not ours by their name are left alone. The format:
// docs/kv-format.md.
//
// When the files together grow past `most_bytes`, those go first that were not used for longest, and of one sequence
// the last before the first, without which they are of no use, until a sixteenth is free. A store looks at them all
// when it has written half of what was free at its last look, so that several at once stay about within that size.
#ifndef QUILL_KVSTORE_H
#define QUILL_KVSTORE_H

#include "kvcache.h"
#include "kv/kvframes.h"

typedef struct KvStore KvStore;

// What the calls since kvstore_open came to.
typedef struct {
    int n_loaded, n_saved; // slots
    size_t saved_bytes;
    int n_removed; // files, for others' room
    double load_seconds, save_seconds;
} KvStoreStats;

// Makes the directory, for its owner alone, where it is missing. `like` is the cache's fingerprint(), `kernels` what
// computes ("cpu amx", place_kernels): kernels differ in their last bits, and an answer does not depend on who was
// there before. QUILL_IO: the directory cannot be made, or is none. QUILL_USAGE: a block that is no whole groups of a
// sealed type.
Status kvstore_open(const char *dir, size_t most_bytes, int block, const KvHead *like, const char *kernels,
                    KvStore **out);
void kvstore_close(KvStore *s);

// Appends to the cached slots of q what the directory has of its next tokens, `most` slots and the rest of a block at
// most, and never all of them: at least one is left to compute. Nothing where n_cached is no multiple of `block` (or
// q->own), or no block of the cache is free. An error says why less was taken than there seemed to be (a damaged file,
// which is gone then; QUILL_IO), and q goes on from what it has. Not between kv_reserve and the step that makes its
// copies.
Status kvstore_load(KvStore *s, KvCache *kv, Sequence *q, int most);

// Writes the full blocks of q's cached slots that are missing and marks all of them as used now. After an error
// (QUILL_IO: a full disk, no permission) the store writes no more and still reads.
Status kvstore_save(KvStore *s, const KvCache *kv, const Sequence *q);
// The same of a sequence that goes on, from slot *first (a block's) on and until `most` slots are written, or those of
// a block more; *first moves on. The files count as used when it began: clock_now() then, the same in every call.
Status kvstore_save_some(KvStore *s, const KvCache *kv, const Sequence *q, double began, int *first, int most);

const char *kvstore_dir(const KvStore *s);
KvStoreStats kvstore_stats(const KvStore *s);

#endif
