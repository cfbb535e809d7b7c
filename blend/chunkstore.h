// blend/chunkstore.h: the KV of chunks, each computed alone: files in --kv-dir, or without one in memory.
//
// A chunk's tokens stand behind a lead-in, the same for all (a beginning token, where the model has one), so that its
// first token is not the first of all, which models treat apart. What is kept is the KV file (docs/kv-format.md) of
// lead-in and chunk, as one forward over both computes them, its rows layer by layer. Its name is made from its tokens
// and from everything else that decides the numbers, under a root of its own: it is never taken for a block of a
// prefix, nor a block for it. Files are as kv/kvstore.h describes: they appear whole, are checked as they are read,
// count for the directory's size and are the first to go when they were not used for longest.
#ifndef QUILL_CHUNKSTORE_H
#define QUILL_CHUNKSTORE_H

#include "kv/kvstore.h"

typedef struct ChunkStore ChunkStore;

enum { CHUNKSTORE_MEMORY = 1 << 30 }; // most bytes in memory; the chunk unused for longest goes first

// dir: NULL, or it must outlive the store. `like` is the cache's fingerprint().
ChunkStore *chunkstore_new(KvStore *dir, const KvHead *like);
void chunkstore_free(ChunkStore *s);

// A chunk's file, open for reading from its first byte to its last.
typedef struct {
    int fd;
    int64_t at;
    char *path; // NULL: it is in memory
    KvReader r; // behind the tokens: rows are next
} ChunkFile;

bool chunkstore_has(const ChunkStore *s, const int *tokens, int n); // lead-in and chunk
// Opens it and checks that it is what its name says; false: there is none, or *st says what is wrong with it. A damaged
// file is removed. `out` must not move until chunkstore_close.
bool chunkstore_open(ChunkStore *s, const int *tokens, int n, ChunkFile *out, Status *st);
// damaged: it is removed.
void chunkstore_close(ChunkStore *s, ChunkFile *f, bool damaged);
// Keeps all computed slots of q, whose tokens are a lead-in and a chunk. QUILL_IO.
Status chunkstore_save(ChunkStore *s, const KvCache *kv, const Sequence *q);

#endif
