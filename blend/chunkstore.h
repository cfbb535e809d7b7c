// blend/chunkstore.h: stores the K and V of chunks that were computed alone: as files in --kv-dir, without it in
// memory.
//
// A chunk is computed after a lead-in that all chunks share (the BOS token, or a line break if the model puts none
// before a text), because models treat the first position of a sequence differently. A chunk file is a KV file
// (docs/kv-format.md) of lead-in and chunk, computed in one forward pass, with its rows layer by layer. Its name is a
// hash of its tokens and of everything else that determines K and V. The hash has a root of its own, so a chunk file
// never has the name of a prefix block. As kv/kvstore.h describes, files appear atomically, are checked while they are
// read, count towards the size of the directory, and are removed least recently used first.
#ifndef QUILL_CHUNKSTORE_H
#define QUILL_CHUNKSTORE_H

#include "kv/kvstore.h"

typedef struct ChunkStore ChunkStore;

enum { CHUNKSTORE_MEMORY = 1 << 30 }; // the most bytes in memory; the least recently used chunk is dropped first

// dir: the store of --kv-dir, which must outlive this one; NULL: in memory, where most_bytes limits the chunks. like:
// the cache's fingerprint().
ChunkStore *chunkstore_new(KvStore *dir, size_t most_bytes, const KvHead *like);
void chunkstore_free(ChunkStore *s);

typedef struct ChunkBytes ChunkBytes; // a chunk file in memory

// A chunk file that is open for sequential reading. In memory it has no descriptor, so that a prompt may have any
// number of chunks; dropping the chunk does not end the reading.
typedef struct {
    int fd;             // -1: in memory
    ChunkBytes *memory; // NULL: a file
    size_t at;          // offset of the next read
    char *path;         // NULL: in memory
    KvReader r;         // has read head and tokens; the rows follow
} ChunkFile;

bool chunkstore_has(const ChunkStore *s, const int *tokens, int n); // tokens: lead-in and chunk
// Opens a chunk and checks that its head and tokens are the expected ones. False: there is none (*st OK), or *st is the
// error. A damaged file is removed. `out` must not move until chunkstore_close.
bool chunkstore_open(ChunkStore *s, const int *tokens, int n, ChunkFile *out, Status *st);
// damaged: removes the file.
void chunkstore_close(ChunkFile *f, bool damaged);
// Stores all computed slots of q, whose tokens are a lead-in and a chunk. QUILL_IO, also if a layer's K and V do
// not fit one frame.
Status chunkstore_save(ChunkStore *s, const KvCache *kv, const Sequence *q);

#endif
