// gpu/cuda_batch.c: see gpu/cuda_batch.h.
#include "gpu/cuda_batch.h"

#include "gpu/cuda_device.h"
#include "gpu/cuda_states.h"

#include <assert.h>
#include <string.h>

// A batch's numbers, in the same order in pinned and in device memory.
typedef struct {
    int *host, *device;
    size_t at;
} PackedInts;

// Appends n numbers in a space of `room` numbers, and zeros where there are none, so that equal batches have equal
// numbers; returns their address on the device.
static void *put(PackedInts *to, const void *from, size_t n, size_t room) {
    int *at = to->device + to->at;
    if (n) memcpy(to->host + to->at, from, n * sizeof(int));
    memset(to->host + to->at + n, 0, (room - n) * sizeof(int));
    to->at += room;
    return at;
}

enum { SAMPLE_INTS = sizeof(GpuSample) / sizeof(int), BIAS_INTS = sizeof(LogitBias) / sizeof(int) };

// The numbers of the draws' windows and biases.
static size_t draw_ints(const Batch *b) {
    size_t n = 0;
    for (int i = 0; b->draw && i < b->n_out; i++) {
        GpuSample d;
        gpu_sample_plan(&d, &b->draw[i]);
        n += (size_t)d.n_window + (size_t)d.n_bias * BIAS_INTS;
    }
    return n;
}

// Fills the draws at `at`, for which there is already space, and appends their windows and biases.
static void put_draws(PackedInts *to, const Batch *b, size_t at, int n_vocab, int *want) {
    GpuSample *draws = (GpuSample *)(void *)(to->host + at);
    for (int i = 0; i < b->n_out; i++) {
        GpuSample *d = &draws[i];
        gpu_sample_plan(d, &b->draw[i]);
        *want = int_max(*want, gpu_sample_wants(d, n_vocab));
        size_t bias = (size_t)d->n_bias * BIAS_INTS;
        d->window = put(to, d->window, (size_t)d->n_window, (size_t)d->n_window);
        d->bias = put(to, d->bias, bias, bias);
    }
}

// A sequence's table of KV_FULL is followed by its table of KV_WINDOW, so that the offset between them does not depend
// on the number of sequences and a captured graph stays valid.
static void put_tables(PackedInts *to, const Batch *b, GpuBatch *g) {
    size_t n = (size_t)b->max_blocks;
    g->table_step = b->max_blocks * (b->window_table ? 2 : 1);
    g->block_table = to->device + to->at;
    g->window_table = b->window_table ? g->block_table + n : NULL;
    for (size_t i = 0; i < (size_t)b->n_seqs; i++) {
        put(to, b->block_table + i * n, n, n);
        if (b->window_table) put(to, b->window_table + i * n, n, n);
    }
}

// GpuBatch.since and .page; -1 for padding. A page has the same number in every pool.
static void put_tails(PackedInts *to, const KvPool *kv, const Batch *b, GpuBatch *g) {
    size_t room = (size_t)g->n_rows;
    int *since = to->host + to->at, *page = since + room;
    g->since = put(to, NULL, 0, room);
    g->page = put(to, NULL, 0, room);
    for (int i = 0; i < g->n_rows; i++) {
        bool padding = i >= b->n_rows, goes_on = !padding && i > 0 && b->seq[i] == b->seq[i - 1];
        const int *table = padding ? NULL : b->block_table + (size_t)b->seq[i] * (size_t)b->max_blocks;
        since[i] = padding ? -1 : goes_on ? since[i - 1] : b->slot[i];
        page[i] = padding ? -1 : kv_tail(kv, table, b->slot[i]);
    }
}

// Waits for the last copy from the next staging buffer and returns the buffer, with room for n numbers. NULL: no memory
// or a failure.
static CudaStaging *next_staging(CudaScratch *s, size_t n) {
    if (!cuda_scratch_reserve(s, n)) return NULL;
    CudaStaging *f = &s->staging[s->n_sent++ % 2];
    return rt_wait(f->sent) ? f : NULL;
}

static void send(CudaScratch *s, CudaStaging *f, size_t n) {
    rt_upload(s->ints, f->ints, n * sizeof(int), cuda_device.stream);
    rt_mark(f->sent, cuda_device.stream);
}

// Whether the draws of a step advance its numbers: every row draws one token, without a window of earlier tokens, and
// steps are queued ahead, so that the next step's tokens will be in `sampled`.
static bool may_advance(const CudaScratch *s, const Batch *b, const GpuSample *draws) {
    if (!b->draw || b->n_out != b->n_rows || s->draws_want > GPU_SAMPLE_TOP) return false;
    for (int i = 0; i < b->n_out; i++)
        if (b->out_row[i] != i || !b->draw[i].pending || draws[i].n_window > 0 || draws[i].pending) return false;
    return true;
}

// Sends n numbers of a step, unless the GPU has advanced those of the last step to the same ones.
static void send_step(CudaScratch *s, CudaStaging *f, size_t n) {
    bool same = n == s->n_there && memcmp(f->ints, s->there, n * sizeof(int)) == 0;
    if (!same) send(s, f, n);
    cuda_device.counts.unsent += same;
    memcpy(s->there, f->ints, n * sizeof(int));
    s->n_there = n;
}

GpuAdvance cuda_batch_advance(const CudaScratch *s) {
    const GpuBatch *g = &s->batch;
    if (!s->advances) return (GpuAdvance){0};
    int *ints = s->ints;
    return (GpuAdvance){.token = ints + (g->token - ints),
                        .pos = ints + (g->pos - ints),
                        .slot = ints + (g->slot - ints),
                        .since = g->since ? ints + (g->since - ints) : NULL};
}

void cuda_batch_advanced(CudaScratch *s) {
    const GpuBatch *g = &s->batch;
    if (!s->advances) return;
    GpuSample *draws = (GpuSample *)(void *)(s->there + ((int *)(void *)s->draws - s->ints));
    for (int i = 0; i < s->n_out; i++) {
        s->there[g->token - s->ints + i] = -1;
        s->there[g->pos - s->ints + i]++;
        s->there[g->slot - s->ints + i]++;
        if (g->since) s->there[g->since - s->ints + i]++;
        draws[i].position++;
    }
}

static CudaStaging *last_staging(CudaScratch *s) { return &s->staging[(s->n_sent - 1) % 2]; }

bool cuda_batch_send(CudaScratch *s, const KvPool kv[KV_KINDS], const Batch *b) {
    size_t n = (size_t)b->n_rows, room = (size_t)cuda_scratch_padded_rows(b->n_rows);
    size_t tables = (size_t)b->n_seqs * (size_t)b->max_blocks * (b->window_table ? 2 : 1);
    bool few = b->n_rows <= CUDA_UNPACK_ROWS; // a graph may need the draws at a fixed address
    size_t n_draws = few ? room : b->draw ? (size_t)b->n_out : 0, draws_at, states = cuda_states_ints(b, room);
    CudaStaging *f = next_staging(s, 7 * room + states + tables + 2 * n + n_draws * SAMPLE_INTS + 2 + draw_ints(b));
    if (!f) return false;
    PackedInts to = {f->ints, s->ints, 0};
    GpuBatch *g = &s->batch;
    *g = (GpuBatch){.n_rows = (int)room, .sampled = s->sampled};
    g->token = put(&to, b->token, n, room);
    g->pos = put(&to, b->pos, n, room);
    g->slot = put(&to, b->slot, n, room);
    g->seq = put(&to, b->seq, n, room);
    for (size_t i = n; i < room; i++) {
        f->ints[i] = f->ints[room + i] = f->ints[3 * room + i] = 0;
        f->ints[2 * room + i] = -1; // padding
    }
    if (kv[KV_FULL].tail_of) put_tails(&to, &kv[KV_FULL], b, g);
    cuda_states_put(s, b, room, to.host + to.at, to.device + to.at);
    to.at += states;
    s->out_row = put(&to, b->out_row, (size_t)b->n_out, room);
    s->n_out = b->n_out;
    put(&to, NULL, 0, to.at % 2); // GpuSample has pointers: it must begin at a multiple of 8 bytes
    draws_at = to.at;
    s->draws = n_draws ? put(&to, NULL, 0, n_draws * SAMPLE_INTS) : NULL;
    put_tables(&to, b, g);
    s->n_tiles = gpu_tiles(b, (GpuTile *)(f->ints + to.at));
    s->tiles = (const GpuTile *)(to.device + to.at);
    to.at += 2 * (size_t)s->n_tiles;
    s->draws_want = 0;
    if (b->draw) put_draws(&to, b, draws_at, s->n_vocab, &s->draws_want);
    s->advances = may_advance(s, b, (const GpuSample *)(const void *)(f->ints + draws_at));
    for (size_t i = 0; i < n; i++) g->max_slots = int_max(g->max_slots, b->slot[i] + 1);
    assert(b->n_rows <= s->max_rows && g->max_slots <= s->max_slots);
    g->max_slots = cuda_scratch_slots(g->max_slots);
    send_step(s, f, to.at);
    return true;
}

bool cuda_batch_next(const CudaScratch *s, const Heads *h, int most, CudaRows *p) {
    size_t first = p->first + (size_t)p->batch.n_rows;
    int left = s->batch.n_rows - (int)first;
    if (left == 0) return false;
    p->first = first;
    p->batch = s->batch;
    p->batch.n_rows = int_min(most, left);
    p->batch.token += first;
    p->batch.pos += first;
    p->batch.slot += first;
    p->batch.seq += first;
    if (p->batch.page) p->batch.since += first, p->batch.page += first;
    p->scratch = s->gpu;
    p->scratch.qkv += first * (size_t)(h->n_heads + 2 * h->n_kv_heads) * (size_t)h->head_dim;
    p->scratch.rope_cos += gpu_rope_at(&s->gpu, 0, (int)first); // the same row in every RoPE table
    p->scratch.rope_sin += gpu_rope_at(&s->gpu, 0, (int)first);
    return true;
}

// ---- copies of blocks, rows that end --------------------------------------------------------------------------------

void cuda_batch_copy_blocks(Workspace *w, KvPool *kv, const Batch *b) {
    CudaScratch *s = w->device;
    const int(*copy)[2] = batch_copies(b, kv);
    size_t n = 2 * (size_t)b->n_copies;
    CudaStaging *f = next_staging(s, 2 * n);
    if (!f) return;
    memcpy(f->ints, copy, n * sizeof(int));
    for (size_t i = 0; i < n && kv->tail_of; i++) f->ints[n + i] = kv->tail_of[copy[i / 2][i % 2]];
    send(s, f, kv->tail_of ? 2 * n : n);
    s->n_there = 0;
    const int(*there)[2] = (const int(*)[2])s->ints;
    gpu_copy_blocks(kv->device, there, there + b->n_copies, b->n_copies, cuda_device.stream);
}

// Backend.narrow: uploads the numbers that depend on the rows of the last batch again, at the same addresses. Such a
// step is never a graph. After it only a part of the last layer is computed: attention over dense KV, or the
// feed-forward. Neither needs the numbers for sealed KV.
void cuda_batch_narrow(Workspace *w, const int *rows, const Batch *b) {
    CudaScratch *s = w->device;
    GpuBatch *g = &s->batch;
    CudaStaging *f = last_staging(s);
    size_t n = (size_t)b->n_rows;
    assert(!s->graphs.recording);
    g->since = g->page = NULL; // of sealed KV: a last layer without a mixer
    if (n == 0 || !rt_wait(f->sent)) return;
    memcpy(f->ints + (g->token - s->ints), rows, n * sizeof *rows); // the tokens are embedded already
    memcpy(f->ints + (g->pos - s->ints), b->pos, n * sizeof *b->pos);
    memcpy(f->ints + (g->slot - s->ints), b->slot, n * sizeof *b->slot);
    memcpy(f->ints + (g->seq - s->ints), b->seq, n * sizeof *b->seq);
    memcpy(f->ints + (s->out_row - s->ints), b->out_row, (size_t)b->n_out * sizeof *b->out_row);
    int *tiles = f->ints + ((const int *)s->tiles - s->ints);
    g->n_rows = (int)n;
    s->n_tiles = gpu_tiles(b, (GpuTile *)tiles);
    send(s, f, (size_t)(tiles - f->ints) + 2 * (size_t)s->n_tiles);
    s->n_there = 0;
    s->advances = false;
    gpu_move_rows(s->x, w->dim, g->token, (int)n, cuda_device.stream);
    gpu_move_rows(s->q, s->q_dim, g->token, (int)n, cuda_device.stream);
    if (w->per_dim > 0) gpu_move_rows(s->per, w->per_dim, g->token, (int)n, cuda_device.stream);
    if (w->mix_dim > 0) gpu_move_rows(s->mix, (int)s->mix_step, g->token, (int)n, cuda_device.stream); // gates
    for (int i = 0; i < w->n_ropes && s->gpu.rope_step > 0; i++) { // 0: no layer has RoPE
        size_t table = gpu_rope_at(&s->gpu, i, 0);
        gpu_move_rows(s->gpu.rope_cos + table, s->gpu.rope_step, g->token, (int)n, cuda_device.stream);
        gpu_move_rows(s->gpu.rope_sin + table, s->gpu.rope_step, g->token, (int)n, cuda_device.stream);
    }
}
