// blend/loader.c: see blend/loader.h.
#include "blend/loader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/signals.h"
#include "base/stats.h"
#include "kv/kvrows.h"
#include "kv/kvturn.h"

struct BlendLoader {
    LoaderPlan plan;
    int *table[KV_KINDS];
    const Layer **layers; // (n_layers) in the order of the chunk files
    int n_layers;
    pthread_t thread;
    bool threaded;
    pthread_mutex_t lock;
    pthread_cond_t more;
    int n_there;            // number of layers loaded so far
    double started, loaded; // time of the start, time at which the last of these layers was loaded
    bool failed;
    Status st;
    int bad;       // first slot of the chunk that failed
    uint8_t *rows; // (cap bytes) K and V of a chunk in a layer
    size_t cap;
};

static const KvPool *pool_of(const BlendLoader *l, const Layer *layer) { return &l->plan.kv->pool[layer->kv_kind]; }

// ---- a chunk in a layer ---------------------------------------------------------------------------------------------

// Writes V of the chunk as f32 to LoaderPlan.kept, for the comparison in the check layer.
static void keep_values(const BlendLoader *l, const KvPool *pool, const LoaderChunk *c, const uint8_t *v) {
    size_t row = (size_t)pool->n_kv_heads * (size_t)pool->head_dim;
    type_info(pool->type_v)->dequantize(v, l->plan.kept + (size_t)c->first * row, (size_t)c->n * row);
}

static void put_rows(BlendLoader *l, const Layer *layer, const LoaderChunk *c, const uint8_t *rows, uint32_t n_rows) {
    const KvPool *pool = pool_of(l, layer);
    size_t heads = (size_t)pool->n_kv_heads, n = (size_t)c->n, skip = (size_t)c->skip;
    size_t k = heads * kv_slot_bytes(pool->type_k, pool->head_dim),
           v = heads * kv_slot_bytes(pool->type_v, pool->head_dim);
    const uint8_t *keys = rows + skip * k, *values = rows + n_rows * k + skip * v;
    if (layer->index < l->plan.check) return;
    if (layer->index == l->plan.check) {
        keep_values(l, pool, c, values);
        return;
    }
    if (n * (k + v) > l->cap) l->rows = mem_resize(l->rows, l->cap = n * (k + v));
    memcpy(l->rows, keys, n * k);
    memcpy(l->rows + n * k, values, n * v);
    kvturn_keys(pool, &layer->rope, c->first - c->skip, l->rows, n * heads);
    kvrows_write((KvPool *)pool, layer->kv_layer, l->table[layer->kv_kind], c->first, c->n, l->rows);
}

static Status load_rows(BlendLoader *l, const Layer *layer, LoaderChunk *c) {
    KvChunk at;
    const uint8_t *rows;
    KvReader *r = &c->file.r;
    TRY(kvreader_rows(r, &at, &rows));
    if (at.n != r->s.head.n_slots)
        return status_error(QUILL_MODEL,
                            "%.300s: all %u slots of a layer in one frame expected, %u found: the file is damaged",
                            r->name, r->s.head.n_slots, at.n);
    put_rows(l, layer, c, rows, at.n);
    return OK;
}

// ---- all layers -----------------------------------------------------------------------------------------------------

static void say_there(BlendLoader *l, int n, bool failed) {
    pthread_mutex_lock(&l->lock);
    l->n_there = n;
    l->loaded = clock_now();
    l->failed = failed;
    pthread_cond_broadcast(&l->more);
    pthread_mutex_unlock(&l->lock);
}

static void load_all(BlendLoader *l) {
    for (int i = 0; i < l->n_layers; i++) {
        for (int k = 0; k < l->plan.n_chunks; k++) {
            LoaderChunk *c = &l->plan.chunks[k];
            l->st = load_rows(l, l->layers[i], c);
            if (!l->st.code && i + 1 == l->n_layers) l->st = kvreader_end(&c->file.r);
            l->bad = c->first;
            if (l->st.code) {
                say_there(l, i, true);
                return;
            }
        }
        say_there(l, i + 1, false);
    }
}

static void *run_thread(void *arg) {
    signals_leave();
    load_all(arg);
    return NULL;
}

BlendLoader *loader_start(const LoaderPlan *plan) {
    BlendLoader *l = mem_alloc(sizeof *l);
    *l = (BlendLoader){.plan = *plan, .n_layers = kv_n_layers(plan->kv->pool), .started = clock_now()};
    for (int kind = 0; kind < KV_KINDS; kind++) {
        l->table[kind] = mem_alloc((size_t)plan->q->n_blocks * sizeof(int));
        kvcache_table(plan->kv, plan->q, kind, l->table[kind]);
    }
    l->layers = mem_alloc((size_t)l->n_layers * sizeof *l->layers);
    for (int i = 0; i < plan->m->c.n_layers; i++)
        if (plan->m->layers[i].kv_kind >= 0)
            l->layers[kvcache_row_layer(l->plan.kv, &plan->m->layers[i])] = &plan->m->layers[i];
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->more, NULL);
    // Only the computing thread may write to device memory.
    l->threaded = plan->m->n_device == 0 && pthread_create(&l->thread, NULL, run_thread, l) == 0;
    if (!l->threaded) load_all(l);
    return l;
}

void loader_wait(BlendLoader *l, const Layer *layer) {
    int place = kvcache_row_layer(l->plan.kv, layer);
    pthread_mutex_lock(&l->lock);
    while (l->n_there <= place && !l->failed) pthread_cond_wait(&l->more, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

bool loader_over(BlendLoader *l) {
    pthread_mutex_lock(&l->lock);
    bool over = l->failed || l->n_there == l->n_layers;
    pthread_mutex_unlock(&l->lock);
    return over;
}

double loader_layer_seconds(BlendLoader *l) {
    pthread_mutex_lock(&l->lock);
    double seconds = l->n_there > 0 ? (l->loaded - l->started) / l->n_there : 0;
    pthread_mutex_unlock(&l->lock);
    return seconds;
}

Status loader_end(BlendLoader *l, int *bad) {
    if (l->threaded) pthread_join(l->thread, NULL);
    Status st = l->st;
    *bad = l->bad;
    for (int i = 0; i < l->plan.n_chunks; i++) {
        LoaderChunk *c = &l->plan.chunks[i];
        chunkstore_close(&c->file, st.code == QUILL_MODEL && c->first == l->bad);
    }
    for (int kind = 0; kind < KV_KINDS; kind++) free(l->table[kind]);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->more);
    free(l->layers);
    free(l->rows);
    free(l->plan.chunks);
    free(l);
    return st;
}
