// gpu/cuda_graphs.h: steps of few rows, recorded once as CUDA graphs and replayed: the layers, and before and behind
// them the embedding, the head and the draws, where the device has all of these.
//
// A recorded graph holds the addresses and the grids of its launches. Whatever else changes from step to step lies in
// device memory. A graph fits a step if all fields of CudaGraph but the graph itself are the same.
#ifndef QUILL_CUDA_GRAPHS_H
#define QUILL_CUDA_GRAPHS_H

#include "gpu/rt.h"
#include "kernels.h"

typedef struct {
    const void *layer;        // Layer.device of the first one
    const void *kv[KV_KINDS]; // KvPool.device
    const void *mass;         // Probe.device, or NULL
    int n_layers, n_rows, max_slots;
    int table_step; // GpuBatch.table_step
    int first_row;  // Probe.first_row
    int embeds;     // 1: it begins with the embedding
    int n_drawn;    // rows of logits that it ends with, and a token drawn from each; 0: it ends with the layers
    RtGraph *graph;
} CudaGraph;

enum { CUDA_MAX_GRAPHS = 64 };

typedef struct { // zeroed at first
    CudaGraph of[CUDA_MAX_GRAPHS];
    int n;
    bool recording;     // between cuda_graphs_begin and cuda_graphs_end
    CudaGraph recorded; // what is being recorded; its `graph` is not there yet
    unsigned drawn;     // bit mask of the numbers of rows whose head and draws have run plainly
    unsigned warm;      // bit mask of the numbers of rows, powers of two, that a step has run with
} CudaGraphs;

// Before the layers of a step of few rows are launched. LAYERS_DONE: a graph that fits was replayed. LAYERS_RUN: the
// caller launches them; the first step of a number of rows runs plainly, the next one is recorded.
LayersTodo cuda_graphs_begin(CudaGraphs *g, const CudaGraph *step);
void cuda_graphs_end(CudaGraphs *g);  // after the layers: what was recorded is kept, and launched
void cuda_graphs_drop(CudaGraphs *g); // waits for the stream, and frees all graphs

#endif
