// blend/loader.h: loads the K and V of chunks from their files into the blocks of a sequence while the step that needs
// them runs.
//
// A thread reads all chunks layer by layer, rotates the keys to their new positions (kv/kvturn.h) and writes K and V
// into the blocks. The computing thread waits for each layer just before it needs it (KvArrival). The files are not
// changed. If layers of the model are in device memory, everything is loaded before loader_start returns.
#ifndef QUILL_BLEND_LOADER_H
#define QUILL_BLEND_LOADER_H

#include "blend/chunkstore.h"
#include "model.h"

// A chunk file, and the slots of it that are loaded.
typedef struct {
    ChunkFile file;
    int skip;     // slots at the beginning of the file that are not loaded
    int first, n; // slots of the sequence to load into: [first, first + n)
} LoaderChunk;

typedef struct {
    const Model *m;
    KvCache *kv;
    const Sequence *q;   // has blocks for all slots
    LoaderChunk *chunks; // (n_chunks) ascending by `first`; the loader takes over the array and the files
    int n_chunks;
    int check;   // index of the check layer: layers before it are not loaded; -1: load all layers
    float *kept; // (slots of q, kv_dim) with check >= 0 the V of the check layer goes here, not into the blocks
} LoaderPlan;

typedef struct BlendLoader BlendLoader;

BlendLoader *loader_start(const LoaderPlan *plan);
void loader_wait(BlendLoader *l, const Layer *layer); // until that layer is loaded or the loader has failed
bool loader_over(BlendLoader *l);                     // all layers are loaded, or the loader has failed
double loader_layer_seconds(BlendLoader *l);          // mean time of the layers loaded so far; 0: none yet
// Waits for the rest, closes the files and frees the loader. QUILL_MODEL: a file was damaged and is removed; QUILL_IO:
// it could not be read. After an error the loaded slots are not valid, and *bad is a slot of the chunk that failed.
Status loader_end(BlendLoader *l, int *bad);

#endif
