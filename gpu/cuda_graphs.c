// gpu/cuda_graphs.c: see gpu/cuda_graphs.h.
#include "gpu/cuda_graphs.h"

#include "gpu/cuda_device.h"

#include <string.h>

static const CudaGraph *find_graph(const CudaGraphs *all, const CudaGraph *like) {
    for (int i = 0; i < all->n; i++) {
        const CudaGraph *g = &all->of[i];
        if (g->layer == like->layer && memcmp(g->kv, like->kv, sizeof g->kv) == 0 && g->n_layers == like->n_layers &&
            g->n_rows == like->n_rows && g->max_slots == like->max_slots && g->table_step == like->table_step &&
            g->mass == like->mass && g->states == like->states && g->first_row == like->first_row &&
            g->embeds == like->embeds && g->n_drawn == like->n_drawn && g->advances == like->advances)
            return g;
    }
    return NULL;
}

static void replay(const CudaGraph *g) {
    rt_replay(g->graph, cuda_device.stream);
    cuda_device.counts.replays++;
}

LayersTodo cuda_graphs_begin(CudaGraphs *g, const CudaGraph *step) {
    unsigned bit = (unsigned)step->n_rows, *warm = &g->warm[step->mass != NULL];
    if (!(*warm & bit)) { // a kernel's first launch loads its code, which is not allowed in a capture
        *warm |= bit;
        return LAYERS_RUN;
    }
    g->recorded = *step;
    const CudaGraph *same = find_graph(g, step);
    if (same) replay(same);
    else g->recording = rt_capture(cuda_device.stream);
    return same ? LAYERS_DONE : LAYERS_RUN;
}

void cuda_graphs_end(CudaGraphs *g) {
    if (!g->recording) return;
    g->recording = false;
    RtGraph *graph = g->recorded.graph = rt_capture_end(cuda_device.stream);
    if (!graph) return;
    cuda_device.counts.captures++;
    if (g->n == CUDA_MAX_GRAPHS) cuda_graphs_drop(g); // many sizes of the context were captured: starts again
    bool ready = rt_graph_ready(graph, g->n == 0);
    if (!ready && g->n > 0) { // no memory: that of the other graphs may do
        cuda_graphs_drop(g);
        ready = rt_graph_ready(graph, true);
    }
    if (!ready) return rt_graph_free(graph);
    g->of[g->n++] = g->recorded;
    replay(&g->recorded);
}

void cuda_graphs_drop(CudaGraphs *g) {
    rt_sync(cuda_device.stream); // a graph may be running
    for (int i = 0; i < g->n; i++) rt_graph_free(g->of[i].graph);
    g->n = 0;
}
