// gpu/cuda_kv.c: see gpu/cuda_kv.h.
#include "gpu/cuda_kv.h"

#include "gpu/cuda_device.h"

#include <stdlib.h>

void cuda_kv_free(KvPool *kv) {
    KvPool *on_gpu = kv->device;
    rt_free(on_gpu->k);
    rt_free(on_gpu->v);
    rt_free(on_gpu->tail_k);
    rt_free(on_gpu->tail_v);
    free(on_gpu);
    kv->device = NULL;
}

static size_t plane_bytes(const KvPool *kv, bool value) {
    if (value && kv->v_in_k) return 0;
    return kv_slot(kv, kv->n_layers, 0, 0, 0) * kv_slot_bytes(kv_plane_type(kv, value), kv_plane_dim(kv, value));
}

// Allocates a plane's tail pages; also true if it has none.
static bool tail_new(const KvPool *kv, bool value, float **out) {
    size_t n = kv_tail_at(kv, kv_plane_dim(kv, value), kv->n_layers, 0, 0, 0) * sizeof **out;
    return (value && kv->v_in_k) || !kv_is_sealed(kv_plane_type(kv, value)) || (*out = rt_alloc(n));
}

Status cuda_kv_new(KvPool *kv) {
    KvPool *on_gpu = kv->device = mem_alloc(sizeof *on_gpu);
    *on_gpu = *kv;
    on_gpu->n_layers = kv->n_device;
    on_gpu->n_device = 0;
    on_gpu->bytes_k = plane_bytes(on_gpu, false);
    on_gpu->bytes_v = plane_bytes(on_gpu, true);
    on_gpu->k = rt_alloc(on_gpu->bytes_k);
    on_gpu->v = on_gpu->bytes_v > 0 ? rt_alloc(on_gpu->bytes_v) : NULL;
    on_gpu->tail_k = on_gpu->tail_v = NULL; // replaces the host's pointers
    bool tails = tail_new(on_gpu, false, &on_gpu->tail_k) && tail_new(on_gpu, true, &on_gpu->tail_v);
    if (on_gpu->k && (on_gpu->v || on_gpu->bytes_v == 0) && tails) return OK;
    return status_error(QUILL_MEMORY, "the GPU: KV cache: %zu bytes expected, %zu are free; try a smaller -c or -ngl",
                        on_gpu->bytes_k + on_gpu->bytes_v, rt_free_bytes());
}

// Copies n slots, `size` bytes per head, between pool and host. In the pool the slots of a head are adjacent and heads
// are `step` bytes apart; on the host the heads of a slot are adjacent. Returns the end of the rows on the host.
static uint8_t *move_run(int n_heads, int n, uint8_t *stored, size_t size, size_t step, uint8_t *rows, bool store) {
    size_t row = size * (size_t)n_heads;
    for (int head = 0; head < n_heads; head++, stored += step) {
        uint8_t *at = rows + (size_t)head * size;
        if (store) rt_move_rows(stored, size, at, row, size, n, true, cuda_device.stream);
        else rt_move_rows(at, row, stored, size, size, n, false, cuda_device.stream);
    }
    return rows + (size_t)n * row;
}

// Copies slots of one plane in its own type.
static uint8_t *move_slots(const KvPool *on_gpu, bool value, int layer, const int *blocks, int first, int n,
                           uint8_t *rows, bool store) {
    size_t size = kv_slot_bytes(kv_plane_type(on_gpu, value), kv_plane_dim(on_gpu, value));
    for (int slot = first, run; slot < first + n; slot += run) {
        run = int_min(on_gpu->block - slot % on_gpu->block, first + n - slot);
        size_t at = kv_slot(on_gpu, layer, blocks[slot / on_gpu->block], 0, slot % on_gpu->block);
        rows = move_run(on_gpu->n_kv_heads, run, (value ? on_gpu->v : on_gpu->k) + at * size, size,
                        (size_t)on_gpu->block * size, rows, store);
    }
    return rows;
}

// Copies the rows of an open group from or to its tail page.
static uint8_t *move_open(const KvPool *on_gpu, bool value, int layer, int page, int n, uint8_t *rows, bool store) {
    int dim = kv_plane_dim(on_gpu, value);
    size_t size = kv_slot_bytes(TYPE_F32, dim);
    float *tail = kv_plane_tail(on_gpu, value) + kv_tail_at(on_gpu, dim, layer, page, 0, 0);
    return move_run(on_gpu->n_kv_heads, n, (uint8_t *)tail, size, SEAL * size, rows, store);
}

void cuda_kv_move(const KvPool *kv, int layer, const int *blocks, int first, int n, void *rows, bool store) {
    const KvPool *on_gpu = kv->device;
    layer -= kv->n_layers - kv->n_device;
    for (int v = 0; v < kv_planes(kv); v++) {
        int whole = (int)kv_whole_slots(v ? kv->type_v : kv->type_k, (size_t)n);
        rows = move_slots(on_gpu, v, layer, blocks, first, whole, rows, store);
        if (whole < n) rows = move_open(on_gpu, v, layer, kv_tail(kv, blocks, first + whole), n - whole, rows, store);
    }
    rt_sync(cuda_device.stream);
}

// ---- slots that are given up ----------------------------------------------------------------------------------------

void cuda_kv_close_up(KvPool *kv, const int *blocks, int n_blocks, const int *keep, int n) {
    const KvPool *on_gpu = kv->device;
    size_t n_keep = (size_t)on_gpu->n_layers * (size_t)on_gpu->n_kv_heads * (size_t)n, table = (size_t)n_blocks;
    int *ints = rt_alloc((table + n_keep) * sizeof *ints);
    if (!ints) {
        rt_fail(QUILL_MEMORY, "out of memory: which slots stay");
        return;
    }
    rt_upload(ints, blocks, table * sizeof *ints, cuda_device.stream);
    rt_upload(ints + table, keep, n_keep * sizeof *ints, cuda_device.stream);
    gpu_close_up(on_gpu, ints, ints + table, n, cuda_device.stream);
    rt_sync(cuda_device.stream);
    rt_free(ints);
}

static size_t probe_floats(const Probe *p, int n_layers, int n_kv_heads) {
    return (size_t)n_layers * (size_t)n_kv_heads * (size_t)p->n_slots;
}

Status cuda_kv_probe_new(Probe *p, int n_layers, int n_kv_heads) {
    size_t n = probe_floats(p, n_layers, n_kv_heads) * sizeof *p->device;
    p->device = rt_alloc(n);
    if (p->device) return OK;
    return status_error(QUILL_MEMORY,
                        "the GPU: what queries look at: %zu bytes expected, %zu are free; try a smaller -c", n,
                        rt_free_bytes());
}

void cuda_kv_probe_free(Probe *p) {
    rt_sync(cuda_device.stream);
    rt_free(p->device);
    p->device = NULL;
}

void cuda_kv_probe_move(Probe *p, int first, int n_layers, int n_kv_heads, bool store) {
    float *host = p->mass + probe_floats(p, first, n_kv_heads);
    size_t n = probe_floats(p, n_layers, n_kv_heads) * sizeof *host;
    if (store) rt_upload(p->device, host, n, cuda_device.stream);
    else rt_download(host, p->device, n, cuda_device.stream);
    rt_sync(cuda_device.stream);
}
