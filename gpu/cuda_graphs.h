// gpu/cuda_graphs.h: captures steps of few rows as CUDA graphs and replays them. A graph has the layers, and, if the
// whole model is on the device, also the embedding, the head and the draws.
//
// A captured graph contains the addresses and the grids of its launches. Everything else that changes from step to step
// lies in device memory. A graph fits a step if all fields of CudaGraph except `graph` are equal.
#ifndef QUILL_CUDA_GRAPHS_H
#define QUILL_CUDA_GRAPHS_H

#include "gpu/rt.h"
#include "kernels.h"

typedef struct {
    const void *layer;        // Layer.device of the first layer
    const void *kv[KV_KINDS]; // KvPool.device
    const void *mass;         // Probe.device, or NULL
    const void *states;       // StatePool.device, or NULL
    int n_layers, n_rows, max_slots;
    int table_step; // GpuBatch.table_step
    int first_row;  // Probe.first_row
    int embeds;     // 1: the graph begins with the embedding
    int n_drawn;    // the graph ends with the head and the draws of n_drawn rows; 0: it ends with the last layer
    int advances;   // 1: these draws advance the batch's numbers
    RtGraph *graph;
} CudaGraph;

enum { CUDA_MAX_GRAPHS = 64 };

typedef struct { // zeroed at first
    CudaGraph of[CUDA_MAX_GRAPHS];
    int n;
    bool recording;     // between cuda_graphs_begin and cuda_graphs_end: launches are being captured
    CudaGraph recorded; // the step that is being captured; its `graph` is not set yet
    unsigned drawn;     // bit mask of the numbers of rows (powers of two) whose head and draws have run outside a graph
    unsigned warm[2];   // the same for the layers; [1]: with a probe, which has kernels of its own
} CudaGraphs;

// Call before the layers of a step of few rows are launched. LAYERS_DONE: a fitting graph was replayed. LAYERS_RUN: the
// caller launches them. The first step with a number of rows, and the first such step with a probe, run without a
// graph, since CUDA loads a kernel's code at its first launch; the next one is captured.
LayersTodo cuda_graphs_begin(CudaGraphs *g, const CudaGraph *step);
void cuda_graphs_end(CudaGraphs *g);  // call after the layers: keeps the captured graph and launches it
void cuda_graphs_drop(CudaGraphs *g); // waits for the stream, then frees all graphs

#endif
