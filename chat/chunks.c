// chat/chunks.c: see chat/chunks.h.
#include "chat/chunks.h"

#include <stdlib.h>
#include <string.h>

#include "base/pages.h"
#include "kv/kvrows.h"

// A copy of the K and V of a sequence while other sequences use its blocks.
typedef struct {
    uint8_t *rows; // layer by layer, of both pools
    size_t bytes;
    int n;            // number of slots
    bool altered;     // of the sequence
    int altered_from; // likewise
} ParkedKv;

static size_t layer_bytes(const KvCache *kv, int layer, int n) {
    return kvrows_bytes(&kv->pool[layer < kv->pool[KV_FULL].n_layers ? KV_FULL : KV_WINDOW], n);
}

// False: there is no memory for the copy, and the sequence is as it was.
static bool park(KvCache *kv, Sequence *q, ParkedKv *out) {
    ParkedKv p = {.n = q->n_cached, .bytes = 1, .altered = q->altered, .altered_from = q->altered_from};
    size_t at = 0;
    for (int i = 0; i < kv_n_layers(kv->pool); i++) p.bytes += layer_bytes(kv, i, p.n);
    p.rows = pages_alloc(p.bytes, false);
    if (!p.rows) return false;
    for (int i = 0; i < kv_n_layers(kv->pool); at += layer_bytes(kv, i++, p.n))
        kvcache_load_rows(kv, q, i, 0, p.n, p.rows + at);
    kvcache_release(kv, q);
    *out = p;
    return true;
}

// Copies K and V back. If the cache has no room any more, the next turn computes everything.
static void unpark(KvCache *kv, Sequence *q, ParkedKv p) {
    size_t at = 0;
    if (p.n > 0 && kvcache_reserve(kv, q, p.n)) {
        for (int i = 0; i < kv_n_layers(kv->pool); at += layer_bytes(kv, i++, p.n))
            kvcache_store_rows(kv, q, i, 0, p.n, p.rows + at);
        q->n_cached = p.n;
        if (p.altered) sequence_alter(q, p.altered_from);
    }
    pages_free(p.rows, p.bytes);
}

// Computes the chunks of p that are not stored. After an interrupt, the others are computed with the message; so are
// all of them if there is no memory to park the conversation's K and V.
static void compute(ChatChunks *c, Engine *e, Sequence *seq, const BlenderPrompt *p) {
    if (!blender_uses_kept(c->blender) || !blender_lacks(c->blender, p)) return;
    ParkedKv parked;
    if (!park(&e->kv, seq, &parked)) return;
    c->n_computed += blender_compute(c->blender, p);
    unpark(&e->kv, seq, parked);
}

static void take(ChatChunks *c, BlenderChunks found) {
    c->files = mem_resize(c->files, (size_t)(c->n_files + 1) * sizeof *c->files);
    c->files[c->n_files++] = found;
    c->texts = mem_resize(c->texts, (size_t)(c->n + found.n) * sizeof *c->texts);
    memcpy(c->texts + c->n, found.texts, (size_t)found.n * sizeof *found.texts);
    c->n += found.n;
}

Status chunks_add(ChatChunks *c, Engine *e, const AnswerConfig *config, Sequence *seq, const char *path,
                  int *n_tokens) {
    AnswerConfig one = *config;
    one.chunks = &path;
    one.n_chunks = 1;
    BlenderChunks found = {0};
    BlenderPrompt p = {0};
    if (!c->blender) TRY(blender_open(e, config->blend, config->quiet, &c->blender));
    Status st = blender_read(&one, &found);
    for (int i = 0; i < found.n && !st.code; i++) st = blender_add_chunk(c->blender, found.texts[i], &p);
    if (!st.code) {
        *n_tokens = p.n;
        compute(c, e, seq, &p);
        take(c, found);
    } else blender_chunks_free(&found);
    blender_prompt_free(&p);
    return st;
}

void chunks_drop(ChatChunks *c) {
    while (c->n_files > 0) blender_chunks_free(&c->files[--c->n_files]);
    c->n = c->n_computed = 0;
}

void chunks_free(ChatChunks *c) {
    chunks_drop(c);
    free(c->files);
    free(c->texts);
    blender_close(c->blender);
}
