// files/names.c: see files/names.h.
#include "files/names.h"

#include <stdlib.h>
#include <string.h>

void *names_at(const NameTable *t, int i) { return t->records + (size_t)i * t->record_bytes; }

// The slot that holds the name, or the empty one where it belongs.
static uint32_t names_slot(const NameTable *t, Str name) {
    uint32_t slot = (uint32_t)hash_bytes(t->key, name.data, name.n) & (t->n_slots - 1);
    while (t->slots[slot] && !str_eq(*(const Str *)names_at(t, (int)t->slots[slot] - 1), name))
        slot = (slot + 1) & (t->n_slots - 1);
    return slot;
}

int names_find(const NameTable *t, Str name) { return t->n_slots ? (int)t->slots[names_slot(t, name)] - 1 : -1; }

void names_reserve(NameTable *t, int n) {
    if (n <= t->cap) return;
    t->cap = n;
    t->records = mem_resize(t->records, (size_t)n * t->record_bytes);
    if (t->n_slots == 0) t->key = hash_key();
    while (t->n_slots < 2 * (uint32_t)n) t->n_slots = t->n_slots ? t->n_slots * 2 : 16;
    free(t->slots);
    t->slots = mem_alloc(t->n_slots * sizeof *t->slots);
    for (int i = 0; i < t->n; i++) t->slots[names_slot(t, *(const Str *)names_at(t, i))] = (uint32_t)i + 1;
}

void *names_add(NameTable *t, Str name) {
    if (t->n == t->cap) names_reserve(t, t->cap ? t->cap * 2 : 16);
    uint32_t slot = names_slot(t, name);
    if (t->slots[slot]) return NULL;
    void *record = names_at(t, t->n);
    memset(record, 0, t->record_bytes);
    *(Str *)record = name;
    t->slots[slot] = (uint32_t)++t->n;
    return record;
}

void names_free(NameTable *t) {
    free(t->records);
    free(t->slots);
}
