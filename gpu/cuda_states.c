// gpu/cuda_states.c: see gpu/cuda_states.h.
#include "gpu/cuda_states.h"

#include "gpu/cuda_device.h"

Status cuda_states_new(StatePool *p) {
    size_t n = (size_t)p->n_states * (size_t)p->n_device * p->floats * sizeof *p->device;
    p->device = rt_alloc(n);
    if (p->device) return OK;
    return status_error(QUILL_MEMORY, "the GPU: %d states: %zu bytes expected, %zu are free; try a smaller -c or -ngl",
                        p->n_states, n, rt_free_bytes());
}

void cuda_states_free(StatePool *p) {
    rt_free(p->device);
    p->device = NULL;
}

void cuda_states_move(const StatePool *p, int state, int layer, float *values, bool store) {
    size_t at = (size_t)state * (size_t)p->n_device + (size_t)(layer - (p->n_layers - p->n_device));
    float *there = p->device + at * p->floats;
    if (store) rt_upload(there, values, p->floats * sizeof *there, cuda_device.stream);
    else rt_download(values, there, p->floats * sizeof *there, cuda_device.stream);
    rt_sync(cuda_device.stream);
}

// ---- a batch --------------------------------------------------------------------------------------------------------

enum { SPAN_INTS = sizeof(GpuSpan) / sizeof(int) };

// A step of few rows has a span for each padded row, because a graph does not depend on the number of sequences.
static size_t n_spans(const Batch *b, size_t room) { return b->n_rows <= CUDA_UNPACK_ROWS ? room : (size_t)b->n_seqs; }

size_t cuda_states_ints(const Batch *b, size_t room) { return b->states ? room + n_spans(b, room) * SPAN_INTS : 0; }

void cuda_states_put(CudaScratch *s, const Batch *b, size_t room, int *host, const int *device) {
    s->states = (GpuStates){0};
    if (!b->states || !b->states->device) return;
    const StatePool *p = b->states;
    GpuSpan *span = (GpuSpan *)(void *)(host + room);
    s->states = (GpuStates){.keep = device,
                            .span = (const GpuSpan *)(const void *)(device + room),
                            .n_spans = (int)n_spans(b, room),
                            .data = p->device,
                            .step = (size_t)p->n_device * p->floats};
    for (int i = 0; i < s->states.n_spans; i++) span[i] = (GpuSpan){.state = i < b->n_seqs ? b->state_in[i] : -1};
    for (int i = 0; i < b->n_rows; i++) {
        GpuSpan *of = &span[b->seq[i]];
        host[i] = b->state_out[i];
        if (of->n++ == 0) of->first = i;
    }
    for (size_t i = (size_t)b->n_rows; i < room; i++) host[i] = -1;
}
