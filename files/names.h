// files/names.h: a growing table of records with look-up by name: the keys and the tensors of a model file.
#ifndef QUILL_NAMES_H
#define QUILL_NAMES_H

#include "base/base.h"
#include "base/hash.h"

// Start from (NameTable){.record_bytes = sizeof(Record)}; a Record begins with its name, a Str. The hash index is keyed
// (base/hash.h), so that no file can choose names that collide.
typedef struct {
    char *records;
    size_t record_bytes;
    int n, cap;
    uint32_t *slots;  // record number + 1; 0: empty. Linear probing, at most half full
    uint32_t n_slots; // a power of two, or 0
    HashKey key;
} NameTable;

void *names_at(const NameTable *t, int i);
int names_find(const NameTable *t, Str name); // -1: there is none
void names_reserve(NameTable *t, int n);      // room for n records
// Adds a zeroed record and sets its name, whose bytes are not copied. NULL: the table has this name already.
void *names_add(NameTable *t, Str name);
void names_free(NameTable *t);

#endif
