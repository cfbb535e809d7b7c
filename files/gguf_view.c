// files/gguf_view.c: see files/gguf.h. The view: its tables, what it owns, and how one is built in memory.
#include "files/gguf_view.h"

#include "formats/types.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size; // 0: no fixed size
} value_types[GGUF_N_TYPES] = {
    [GGUF_U8] = {"U8", 1},      [GGUF_I8] = {"I8", 1},       [GGUF_U16] = {"U16", 2}, [GGUF_I16] = {"I16", 2},
    [GGUF_U32] = {"U32", 4},    [GGUF_I32] = {"I32", 4},     [GGUF_F32] = {"F32", 4}, [GGUF_BOOL] = {"BOOL", 1},
    [GGUF_STR] = {"STRING", 0}, [GGUF_ARRAY] = {"ARRAY", 0}, [GGUF_U64] = {"U64", 8}, [GGUF_I64] = {"I64", 8},
    [GGUF_F64] = {"F64", 8},
};

const char *gguf_type_name(GgufType type) { return type < GGUF_N_TYPES ? value_types[type].name : "unknown"; }
size_t gguf_type_bytes(GgufType type) { return type < GGUF_N_TYPES ? value_types[type].size : 0; }

Gguf *gguf_new(const char *name) {
    Gguf *g = mem_alloc(sizeof *g);
    g->name = mem_copy(name, strlen(name));
    g->values.record_bytes = sizeof(GgufValue);
    g->tensors.record_bytes = sizeof(GgufTensor);
    return g;
}

void gguf_close(Gguf *g) {
    if (!g) return;
    names_free(&g->values);
    names_free(&g->tensors);
    for (int i = 0; i < g->n_maps; i++) file_unmap(&g->maps[i]);
    free(g->maps);
    for (GgufBlock *b = g->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    for (GgufPages *p = g->pages, *next; p; p = next) {
        next = p->next;
        pages_free(p->data, p->n);
        free(p);
    }
    free(g->name);
    free(g);
}

void gguf_own_map(Gguf *g, FileMap map) {
    g->maps = mem_resize(g->maps, (size_t)(g->n_maps + 1) * sizeof *g->maps);
    g->maps[g->n_maps++] = map;
    g->file_bytes += map.n;
}

void gguf_own_pages(Gguf *g, void *pages, size_t n) {
    GgufPages *p = mem_alloc(sizeof *p);
    *p = (GgufPages){g->pages, pages, n};
    g->pages = p;
}

void *gguf_alloc(Gguf *g, size_t n) {
    GgufBlock *b = mem_alloc(sizeof *b + n);
    b->next = g->blocks;
    g->blocks = b;
    return b->bytes;
}

static char *keep(Gguf *g, const void *bytes, size_t n) {
    char *copy = gguf_alloc(g, n + 1);
    if (n) memcpy(copy, bytes, n);
    return copy;
}

void gguf_set(Gguf *g, const GgufValue *v) {
    int found = names_find(&g->values, v->key);
    GgufValue *mine = found >= 0 ? names_at(&g->values, found)
                                 : names_add(&g->values, (Str){keep(g, v->key.data, v->key.n), v->key.n});
    Str key = mine->key;
    *mine = *v;
    mine->key = key;
    mine->data = (const uint8_t *)keep(g, v->data, v->n_bytes);
}

void gguf_add_tensor(Gguf *g, const char *name, int type, size_t n_in, size_t n_out, const void *data,
                     const float *scales, int group) {
    gguf_add_stack(g, name, type, n_in, n_out, 0, data, scales, group);
}

void gguf_add_stack(Gguf *g, const char *name, int type, size_t n_in, size_t n_out, size_t n_stack, const void *data,
                    const float *scales, int group) {
    const TypeInfo *info = type_info(type);
    size_t n_name = strlen(name), n = n_in * (n_out ? n_out : 1) * (n_stack ? n_stack : 1);
    assert(n_name > 0 && n_name <= GGUF_MAX_NAME && n > 0);
    assert(scales ? group > 0 && n % (size_t)group == 0 : info && n_in % (size_t)info->block == 0);
    GgufTensor *t = names_add(&g->tensors, (Str){keep(g, name, n_name), n_name});
    assert(t && "each tensor name once");
    t->type = type;
    t->n_dims = n_stack ? 3 : n_out ? 2 : 1;
    t->dims[0] = n_in;
    t->dims[1] = n_out ? n_out : 1;
    t->dims[2] = n_stack ? n_stack : 1;
    t->dims[3] = 1;
    t->data = data;
    t->n_bytes = n / (size_t)info->block * (size_t)info->bytes;
    t->scales = scales;
    t->group = group;
}

void gguf_add_like(Gguf *g, const GgufTensor *t, int type) {
    const TypeInfo *info = type_info(type);
    size_t n = gguf_tensor_weights(t);
    assert(type == t->type || (info && t->dims[0] % (uint64_t)info->block == 0));
    GgufTensor *to = names_add(&g->tensors, (Str){keep(g, t->name.data, t->name.n), t->name.n});
    assert(to && "each tensor name once");
    Str name = to->name;
    *to = *t;
    to->name = name;
    to->type = type;
    to->data = NULL;
    to->scales = NULL;
    if (type != t->type) to->n_bytes = n / (size_t)info->block * (size_t)info->bytes;
}

void gguf_set_format(Gguf *g, const char *format) { snprintf(g->format, sizeof g->format, "%s", format); }

const char *gguf_name(const Gguf *g) { return g->name; }
const char *gguf_format(const Gguf *g) { return g->format; }
uint32_t gguf_version(const Gguf *g) { return g->version; }
size_t gguf_file_bytes(const Gguf *g) { return g->file_bytes; }

const FileMap *gguf_maps(const Gguf *g, int *n) {
    *n = g->n_maps;
    return g->maps;
}

size_t gguf_huge_bytes(const Gguf *g) {
    size_t n = 0;
    for (int i = 0; i < g->n_maps; i++) n += pages_huge(g->maps[i].data, g->maps[i].n);
    for (const GgufPages *p = g->pages; p; p = p->next) n += pages_huge(p->data, p->n);
    return n;
}

int gguf_n_values(const Gguf *g) { return g->values.n; }
int gguf_n_tensors(const Gguf *g) { return g->tensors.n; }

const GgufValue *gguf_value_at(const Gguf *g, int i) {
    assert(i >= 0 && i < g->values.n);
    return names_at(&g->values, i);
}

const GgufTensor *gguf_tensor_at(const Gguf *g, int i) {
    assert(i >= 0 && i < g->tensors.n);
    return names_at(&g->tensors, i);
}

const GgufValue *gguf_value(const Gguf *g, const char *key) {
    int i = names_find(&g->values, str_of(key));
    return i < 0 ? NULL : names_at(&g->values, i);
}

const GgufTensor *gguf_tensor(const Gguf *g, const char *name) {
    int i = names_find(&g->tensors, str_of(name));
    return i < 0 ? NULL : names_at(&g->tensors, i);
}
