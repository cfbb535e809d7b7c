// blend/loader.h: the K and V of chunks on their way from their files into a sequence's blocks, while the step that
// needs them runs.
//
// A thread reads layer after layer of all chunks, as far ahead as it gets, turns keys to their new positions
// (kv/kvturn.h) and writes them into the blocks; who computes waits for a layer just before it (KvArrival). The files
// stay as they are. Layers in a device's memory are loaded before loader_start returns.
#ifndef QUILL_LOADER_H
#define QUILL_LOADER_H

#include "blend/chunkstore.h"
#include "model.h"

// A chunk: its file, and the slots of it that are wanted.
typedef struct {
    ChunkFile file;
    int skip;     // slots of the file that come before those
    int first, n; // slots of the sequence that they become
} LoaderChunk;

typedef struct {
    const Model *m;
    KvCache *kv;
    const Sequence *q;   // with blocks for all slots
    LoaderChunk *chunks; // (n_chunks) the loader's from here on: array and files; ascending by `first`
    int n_chunks;
    ChunkStore *store;
    int check;   // layers of the model before this one are not loaded; -1: all are
    float *kept; // with check >= 0: V of that layer goes here, (slots of q, kv_dim), instead of the blocks
} LoaderPlan;

typedef struct BlendLoader BlendLoader;

BlendLoader *loader_start(const LoaderPlan *plan);
void loader_wait(BlendLoader *l, const Layer *layer); // until that layer is there, or the loader has failed
bool loader_over(BlendLoader *l);                     // all layers are there, or it has failed
double loader_layer_seconds(BlendLoader *l);          // what a layer has taken so far, on average; 0: none is there yet
// Waits for the rest and closes the files. QUILL_MODEL: a file was damaged, and is removed; QUILL_IO: it could not be
// read. The slots are void then, and *bad is a slot of that chunk.
Status loader_end(BlendLoader *l, int *bad);

#endif
