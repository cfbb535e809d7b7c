// kv/kvnames.c: a hash table of blocks, chained through the blocks' own entries. See kvnames.h.
#include "kv/kvnames.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void kvnames_new(KvNames *x, int n_blocks, int block, bool index) {
    *x = (KvNames){.block = block, .n_buckets = 1};
    x->of_block = mem_alloc((size_t)n_blocks * sizeof *x->of_block);
    if (!index) return;
    x->ids = mem_alloc((size_t)n_blocks * (size_t)block * sizeof *x->ids);
    while (x->n_buckets < n_blocks) x->n_buckets *= 2;
    x->buckets = mem_alloc((size_t)x->n_buckets * sizeof *x->buckets);
    for (int i = 0; i < x->n_buckets; i++) x->buckets[i] = -1;
}

void kvnames_free(KvNames *x) {
    free(x->of_block);
    free(x->ids);
    free(x->buckets);
    *x = (KvNames){0};
}

static int *ids_of(const KvNames *x, int block) { return x->ids + (size_t)block * (size_t)x->block; }

static int *bucket_of(const KvNames *x, const ChainHash *name) {
    uint32_t bits; // the name is a hash: any of its bits will do
    memcpy(&bits, name->bytes, sizeof bits);
    return &x->buckets[bits & (uint32_t)(x->n_buckets - 1)];
}

static bool same_hash(const ChainHash *a, const ChainHash *b) { return memcmp(a, b, sizeof *a) == 0; }

int kvnames_find(const KvNames *x, const ChainHash *name, const ChainHash *parent, const int *ids) {
    for (int i = *bucket_of(x, name); i >= 0; i = x->of_block[i].same_bucket) {
        const KvName *b = &x->of_block[i];
        if (same_hash(&b->name, name) && same_hash(&b->parent, parent) &&
            memcmp(ids_of(x, i), ids, (size_t)x->block * sizeof *ids) == 0)
            return i;
    }
    return -1;
}

void kvnames_set(KvNames *x, int block, const ChainHash *name, const ChainHash *parent, const int *ids) {
    KvName *b = &x->of_block[block];
    *b = (KvName){.named = true, .found = kvnames_find(x, name, parent, ids) < 0, .name = *name, .parent = *parent};
    if (!b->found) return;
    memcpy(ids_of(x, block), ids, (size_t)x->block * sizeof *ids);
    int *bucket = bucket_of(x, name);
    b->same_bucket = *bucket;
    *bucket = block;
}

void kvnames_forget(KvNames *x, int block) {
    KvName *b = &x->of_block[block];
    if (b->found) {
        int *at = bucket_of(x, &b->name);
        while (*at != block) at = &x->of_block[*at].same_bucket;
        *at = b->same_bucket;
    }
    b->named = b->found = false;
}
