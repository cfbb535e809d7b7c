// kv/kvstore.h: blocks of KV cache in a directory (--kv-dir): later runs load what earlier runs computed.
//
//   kvstore_load(s, &kv, &seq, INT_MAX); // before a prompt is computed: loads the leading blocks that are there
//   kvstore_save(s, &kv, &seq);          // afterwards: saves the full blocks that the directory lacks
//
// A file holds one block of `block` slots, independent of the cache's layout. The file's name is the block's name
// (kv/chain.h), whose root covers the format, the model and everything else that decides the numbers
// (kv/fingerprint.h). So one directory serves any number of models and processes: a name identifies one block, a file
// appears whole or not at all, and the reader checks fingerprints, the parent block, the ids and a checksum per frame,
// and removes a damaged file. The checksums detect damage, not forgery: a user who can write into the directory can
// change answers. Files with other names are left alone. The format: docs/kv-format.md.
//
// When the files exceed `most_bytes`, the least recently used are removed until a sixteenth is free. Of one sequence
// the last block goes first, since later blocks are useless without earlier ones. A store lists the directory again
// when it has written half of the bytes that were free at its last listing, so that several processes together stay
// near the limit.
#ifndef QUILL_KVSTORE_H
#define QUILL_KVSTORE_H

#include "kv/kvframes.h"
#include "kvcache.h"

typedef struct KvStore KvStore;

// Totals since kvstore_open.
typedef struct {
    int64_t n_loaded, n_saved; // slots
    size_t saved_bytes;
    int n_removed; // files removed to stay below most_bytes
    double load_seconds, save_seconds;
} KvStoreStats;

// Creates the directory (mode 0700) if it is missing. `like` is the cache's fingerprint(). `kernels` names the kernels
// ("cpu amx", device_plan_kernels): results of different kernels differ in the last bits, so blocks of other kernels
// are not loaded. QUILL_IO: the directory cannot be created or is something else. QUILL_USAGE: `block` is not a
// multiple of a sealed type's group.
Status kvstore_open(const char *dir, size_t most_bytes, int block, const KvHead *like, const char *kernels,
                    KvStore **out);
void kvstore_close(KvStore *s);

// Loads the blocks of q's next tokens that the directory has: at most `most` slots, rounded up to a block; at least one
// token is left to compute. Loads nothing if n_cached is not a multiple of `block`, if q does not share
// (sequence_shares), or if the cache has no free block. An error (a damaged file, which is removed; QUILL_IO) says why
// fewer slots were loaded; q stays valid with the loaded ones. Do not call it between kvcache_reserve and the step that
// makes its copies.
Status kvstore_load(KvStore *s, KvCache *kv, Sequence *q, int most);

// Writes the full blocks of q's cached slots that the directory lacks and marks all of them as used now. After an error
// (QUILL_IO: a full disk, no permission) the store only reads.
Status kvstore_save(KvStore *s, const KvCache *kv, const Sequence *q);
// The same in parts, for a sequence that is still growing: writes from slot *first (a block's first) on until at least
// `most` slots are written, and advances *first. `began` is when the sequence began (clock_now()), the same in every
// call; the files count as used at that time.
Status kvstore_save_some(KvStore *s, const KvCache *kv, const Sequence *q, double began, int *first, int most);

#define KVSTORE_BLOCK ".kv" // ends the name of a block's file

// The ending of a stored file: KVSTORE_BLOCK or KVSTORE_CHUNK. NULL: no store gives a file this name. `file` has no
// folders.
const char *kvstore_ending(const char *file);

// ---- files of another class in the same directory -------------------------------------------------------------------
// These are not blocks of a prefix; each can be used alone. The caller derives the name from kvstore_root; `ending`
// (KVSTORE_CHUNK) follows the name. They count towards most_bytes and are removed like blocks.

#define KVSTORE_CHUNK ".chunk" // the KV of a text that was computed alone (blend/chunkstore.h)

const ChainHash *kvstore_root(const KvStore *s);
// Opens a file for reading and marks it as used now; -1: there is none, or *st says why it cannot be read. The caller
// frees *path.
int kvstore_open_file(const KvStore *s, const ChainHash *name, const char *ending, char **path, Status *st);
// Writes a file, which appears whole or not at all. After an error the store only reads, unless the file was larger
// than most_bytes. QUILL_IO; QUILL_MODEL or QUILL_MEMORY: the device failed to give the rows.
Status kvstore_write_file(KvStore *s, const ChainHash *name, const char *ending,
                          Status (*write)(void *arg, KvWriter *w), void *arg);

const char *kvstore_dir(const KvStore *s);
KvStoreStats kvstore_stats(const KvStore *s);

#endif
