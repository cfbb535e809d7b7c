// files/gguf.c: see files/gguf.h. Reading: one bounds-checked cursor over the bytes, a table with a hash index for keys
// and one for tensors, split files, typed getters; and the primitives by which a view is built in memory.
#include "files/gguf.h"

#include "base/hash.h"
#include "formats/types.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are copied from little-endian files as they lie");

// What a hostile file may cost. With these caps both tables and their indexes stay below 50 MiB; real files have less
// than a hundred keys and a few thousand tensors.
enum {
    MAX_VALUES = 1 << 19,
    MAX_TENSORS = 1 << 17,
    MAX_KEY = 65535, // the specification's limit
    MAX_NAME = 63,   // ggml keeps names in 64 bytes with their NUL
    MAX_STRING = 16 << 20,
    MAX_ELEMENTS = 64 << 20,
    MAX_ALIGNMENT = 65536,
    DEFAULT_ALIGNMENT = 32,
    MIN_VALUE_BYTES = 8 + 1 + 4 + 1,          // key length, key, type, value
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, // name length, name, n_dims, one dimension, type, offset
};

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

// For "%.*s": no more of a name than a line can carry.
#define SHOW(s) (int)((s).n < 80 ? (s).n : 80), (s).data

// ---- tables ---------------------------------------------------------------------------------------------------------

// A growable array of records that begin with their name (a Str), and a hash index over the names.
typedef struct {
    char *records;
    size_t record_bytes;
    int n, cap;
    uint32_t *slots;  // record number + 1; 0: empty. Linear probing, at most half full
    uint32_t n_slots; // a power of two, or 0
    HashKey key;
} Table;

static void *table_at(const Table *t, int i) { return t->records + (size_t)i * t->record_bytes; }

// The slot that holds the name, or the empty one where it belongs.
static uint32_t table_slot(const Table *t, Str name) {
    uint32_t slot = (uint32_t)hash_bytes(t->key, name.data, name.n) & (t->n_slots - 1);
    while (t->slots[slot] && !str_eq(*(const Str *)table_at(t, (int)t->slots[slot] - 1), name))
        slot = (slot + 1) & (t->n_slots - 1);
    return slot;
}

static int table_find(const Table *t, Str name) { return t->n_slots ? (int)t->slots[table_slot(t, name)] - 1 : -1; }

static void table_reserve(Table *t, int n) {
    if (n <= t->cap) return;
    t->cap = n;
    t->records = mem_resize(t->records, (size_t)n * t->record_bytes);
    if (t->n_slots == 0) t->key = hash_key();
    while (t->n_slots < 2 * (uint32_t)n) t->n_slots = t->n_slots ? t->n_slots * 2 : 16;
    free(t->slots);
    t->slots = mem_alloc(t->n_slots * sizeof *t->slots);
    for (int i = 0; i < t->n; i++) t->slots[table_slot(t, *(const Str *)table_at(t, i))] = (uint32_t)i + 1;
}

// A zeroed record with its name set (the bytes are not copied), or NULL if the name is there already.
static void *table_add(Table *t, Str name) {
    if (t->n == t->cap) table_reserve(t, t->cap ? t->cap * 2 : 16);
    uint32_t slot = table_slot(t, name);
    if (t->slots[slot]) return NULL;
    void *record = table_at(t, t->n);
    memset(record, 0, t->record_bytes);
    *(Str *)record = name;
    t->slots[slot] = (uint32_t)++t->n;
    return record;
}

static void table_free(Table *t) {
    free(t->records);
    free(t->slots);
}

// ---- the view -------------------------------------------------------------------------------------------------------

typedef struct Block { // memory that goes with the view
    struct Block *next;
    char bytes[];
} Block;

typedef struct Pages {
    struct Pages *next;
    void *data;
    size_t n;
} Pages;

struct Gguf {
    char *name;
    uint32_t version;
    size_t file_bytes;
    Table values, tensors; // of GgufValue, GgufTensor
    FileMap *maps;
    int n_maps;
    Block *blocks; // keys, names and values of a view that is built in memory
    Pages *pages;
};

Gguf *gguf_new(const char *name) {
    Gguf *g = mem_alloc(sizeof *g);
    g->name = mem_copy(name, strlen(name));
    g->values.record_bytes = sizeof(GgufValue);
    g->tensors.record_bytes = sizeof(GgufTensor);
    return g;
}

void gguf_close(Gguf *g) {
    if (!g) return;
    table_free(&g->values);
    table_free(&g->tensors);
    for (int i = 0; i < g->n_maps; i++) file_unmap(&g->maps[i]);
    free(g->maps);
    for (Block *b = g->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    for (Pages *p = g->pages, *next; p; p = next) {
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
    Pages *p = mem_alloc(sizeof *p);
    *p = (Pages){g->pages, pages, n};
    g->pages = p;
}

static char *keep(Gguf *g, const void *bytes, size_t n) {
    Block *b = mem_alloc(sizeof *b + n + 1);
    b->next = g->blocks;
    g->blocks = b;
    if (n) memcpy(b->bytes, bytes, n);
    return b->bytes;
}

void gguf_set(Gguf *g, const GgufValue *v) {
    int found = table_find(&g->values, v->key);
    GgufValue *mine = found >= 0 ? table_at(&g->values, found)
                                 : table_add(&g->values, (Str){keep(g, v->key.data, v->key.n), v->key.n});
    Str key = mine->key;
    *mine = *v;
    mine->key = key;
    mine->data = (const uint8_t *)keep(g, v->data, v->n_bytes);
}

void gguf_add_tensor(Gguf *g, const char *name, int type, size_t n_in, size_t n_out, const void *data,
                     const float *scales, int group) {
    const TypeInfo *info = type_info(type);
    size_t n_name = strlen(name), n = n_in * (n_out ? n_out : 1);
    assert(n_name > 0 && n_name <= MAX_NAME && n > 0);
    assert(scales ? group > 0 && n % (size_t)group == 0 : info && n_in % (size_t)info->block == 0);
    GgufTensor *t = table_add(&g->tensors, (Str){keep(g, name, n_name), n_name});
    assert(t && "a tensor of that name is there already");
    t->type = type;
    t->n_dims = n_out ? 2 : 1;
    t->dims[0] = n_in;
    t->dims[1] = n_out ? n_out : 1;
    t->dims[2] = t->dims[3] = 1;
    t->data = data;
    t->n_bytes = n / (size_t)info->block * (size_t)info->bytes;
    t->scales = scales;
    t->group = group;
}

const char *gguf_name(const Gguf *g) { return g->name; }
uint32_t gguf_version(const Gguf *g) { return g->version; }
size_t gguf_file_bytes(const Gguf *g) { return g->file_bytes; }

const FileMap *gguf_maps(const Gguf *g, int *n) {
    *n = g->n_maps;
    return g->maps;
}

size_t gguf_huge_bytes(const Gguf *g) {
    size_t n = 0;
    for (int i = 0; i < g->n_maps; i++) n += pages_huge(g->maps[i].data, g->maps[i].n);
    for (const Pages *p = g->pages; p; p = p->next) n += pages_huge(p->data, p->n);
    return n;
}

int gguf_n_values(const Gguf *g) { return g->values.n; }
int gguf_n_tensors(const Gguf *g) { return g->tensors.n; }

const GgufValue *gguf_value_at(const Gguf *g, int i) {
    assert(i >= 0 && i < g->values.n);
    return table_at(&g->values, i);
}

const GgufTensor *gguf_tensor_at(const Gguf *g, int i) {
    assert(i >= 0 && i < g->tensors.n);
    return table_at(&g->tensors, i);
}

const GgufValue *gguf_value(const Gguf *g, const char *key) {
    int i = table_find(&g->values, str_of(key));
    return i < 0 ? NULL : table_at(&g->values, i);
}

const GgufTensor *gguf_tensor(const Gguf *g, const char *name) {
    int i = table_find(&g->tensors, str_of(name));
    return i < 0 ? NULL : table_at(&g->tensors, i);
}

// ---- the cursor -----------------------------------------------------------------------------------------------------

// Reading functions return false after the first error, which stays in `status`: a Status is a kilobyte, too much to
// pass up through every string of a vocabulary.
typedef struct {
    const char *file;
    const uint8_t *data;
    size_t n, pos;    // pos <= n always
    const char *kind; // "key " or "tensor " once `subject` is known, for messages
    Str subject;
    Status status;
} Cursor;

static bool has(const Cursor *c, size_t n) { return n <= c->n - c->pos; }

__attribute__((format(printf, 3, 4))) static bool fail(Cursor *c, size_t at, const char *format, ...) {
    char what[768];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    Str subject = c->kind ? c->subject : (Str){"", 0};
    c->status = status_error(QUILL_MODEL, "%s: byte %zu: %s%.*s%s%s", c->file, at, c->kind ? c->kind : "",
                             SHOW(subject), c->kind ? ": " : "", what);
    return false;
}

static bool read_bytes(Cursor *c, void *out, size_t n, const char *what) {
    if (!has(c, n)) return fail(c, c->pos, "%s: %zu bytes expected, the file ends after %zu", what, n, c->n - c->pos);
    memcpy(out, c->data + c->pos, n);
    c->pos += n;
    return true;
}

// A key or a tensor's name. It goes into messages and is compared, so: no control characters, no path out of a folder.
static bool read_name(Cursor *c, const char *what, size_t max, Str *out) {
    uint64_t n = 0;
    size_t at = c->pos;
    if (!read_bytes(c, &n, sizeof n, what)) return false;
    if (n == 0 || n > max) return fail(c, at, "%s: 1 to %zu bytes expected, length %" PRIu64 " found", what, max, n);
    if (!has(c, n))
        return fail(c, at, "%s: %" PRIu64 " bytes expected, the file ends after %zu", what, n, c->n - c->pos);
    *out = (Str){(const char *)c->data + c->pos, (size_t)n};
    for (size_t i = 0; i < n; i++) {
        unsigned char ch = c->data[c->pos + i];
        if (ch < 0x20 || ch == 0x7f) return fail(c, c->pos + i, "%s: text expected, control byte %u found", what, ch);
        if (i >= 2 && memcmp(out->data + i - 2, "../", 3) == 0)
            return fail(c, c->pos + i, "%s: a plain name expected, \"../\" found", what);
    }
    c->pos += (size_t)n;
    return true;
}

// Every string's length is checked here once, so that gguf_strings need not.
static bool skip_strings(Cursor *c, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint64_t len;
        if (!has(c, sizeof len))
            return fail(c, c->pos, "string %" PRIu64 " of %" PRIu64 " expected, the file ends", i + 1, n);
        memcpy(&len, c->data + c->pos, sizeof len);
        size_t left = c->n - c->pos - sizeof len;
        if (len > left || len > MAX_STRING)
            return fail(c, c->pos, "string of at most %zu bytes expected, length %" PRIu64 " found",
                        left < MAX_STRING ? left : (size_t)MAX_STRING, len);
        c->pos += sizeof len + (size_t)len;
    }
    return true;
}

static bool read_type(Cursor *c, GgufType *out) {
    uint32_t type = 0;
    if (!read_bytes(c, &type, sizeof type, "value type")) return false;
    if (type >= GGUF_N_TYPES)
        return fail(c, c->pos - 4, "value type 0 to %d expected, %" PRIu32 " found", GGUF_N_TYPES - 1, type);
    *out = (GgufType)type;
    return true;
}

static bool read_value(Cursor *c, GgufValue *v) {
    if (!read_type(c, &v->type)) return false;
    v->elem_type = v->type;
    v->n = 1;
    size_t at = c->pos;
    if (v->type == GGUF_ARRAY) {
        if (!read_type(c, &v->elem_type)) return false;
        if (v->elem_type == GGUF_ARRAY)
            return fail(c, at, "array of numbers, booleans or strings expected, array of arrays found");
        at = c->pos;
        if (!read_bytes(c, &v->n, sizeof v->n, "array length")) return false;
    }
    bool strings = v->elem_type == GGUF_STR;
    size_t least = strings ? 8 : value_types[v->elem_type].size, left = c->n - c->pos;
    if (v->n > MAX_ELEMENTS || v->n > left / least)
        return fail(c, at, "%" PRIu64 " x %s found, at most %zu expected (%zu bytes are left)", v->n,
                    value_types[v->elem_type].name, left / least < MAX_ELEMENTS ? left / least : (size_t)MAX_ELEMENTS,
                    left);
    v->data = c->data + c->pos;
    if (!strings) c->pos += (size_t)v->n * least;
    else if (!skip_strings(c, v->n)) return false;
    v->n_bytes = (size_t)(c->data + c->pos - v->data);
    return true;
}

// ---- one file -------------------------------------------------------------------------------------------------------

static bool read_header(Cursor *c, Gguf *g, uint64_t *n_tensors, uint64_t *n_values) {
    char magic[4];
    if (c->n == 0) return fail(c, 0, "a GGUF file expected, an empty file found");
    if (!read_bytes(c, magic, sizeof magic, "magic \"GGUF\"")) return false;
    if (memcmp(magic, "GGUF", 4) != 0)
        return fail(c, 0, "magic \"GGUF\" expected, bytes %02x %02x %02x %02x found", magic[0] & 255, magic[1] & 255,
                    magic[2] & 255, magic[3] & 255);
    if (!read_bytes(c, &g->version, 4, "version")) return false;
    if (g->version && (g->version & 0xffff) == 0)
        return fail(c, 4, "little-endian version 2 or 3 expected, a big-endian file found; convert it");
    if (g->version != 2 && g->version != 3)
        return fail(c, 4, "GGUF version 2 or 3 expected, version %" PRIu32 " found%s", g->version,
                    g->version == 1 ? "; convert the model again with a newer converter" : "");
    if (!read_bytes(c, n_tensors, 8, "tensor count") || !read_bytes(c, n_values, 8, "key count")) return false;
    size_t left = c->n - c->pos;
    if (*n_tensors > MAX_TENSORS || *n_tensors > left / MIN_TENSOR_BYTES)
        return fail(c, 8, "%" PRIu64 " tensors found, at most %zu expected (%zu bytes are left)", *n_tensors,
                    left / MIN_TENSOR_BYTES < MAX_TENSORS ? left / MIN_TENSOR_BYTES : (size_t)MAX_TENSORS, left);
    if (*n_values > MAX_VALUES || *n_values > left / MIN_VALUE_BYTES)
        return fail(c, 16, "%" PRIu64 " keys found, at most %zu expected (%zu bytes are left)", *n_values,
                    left / MIN_VALUE_BYTES < MAX_VALUES ? left / MIN_VALUE_BYTES : (size_t)MAX_VALUES, left);
    return true;
}

static bool read_values(Cursor *c, Gguf *g, uint64_t n) {
    table_reserve(&g->values, (int)n);
    for (uint64_t i = 0; i < n; i++) {
        size_t at = c->pos;
        Str key;
        if (!read_name(c, "key", MAX_KEY, &key)) return false;
        c->kind = "key ";
        c->subject = key;
        GgufValue *v = table_add(&g->values, key);
        if (!v) return fail(c, at, "each key once expected, a second one found");
        if (!read_value(c, v)) return false;
        c->kind = NULL;
    }
    return true;
}

static bool read_alignment(Cursor *c, const Gguf *g, size_t *alignment) {
    *alignment = DEFAULT_ALIGNMENT;
    const GgufValue *v = gguf_value(g, "general.alignment");
    if (!v) return true;
    c->kind = "key ";
    c->subject = v->key;
    size_t at = (size_t)(v->data - c->data);
    if (v->type != GGUF_U32) return fail(c, at, "U32 expected, %s found", value_types[v->type].name);
    uint32_t a;
    memcpy(&a, v->data, sizeof a);
    if (a < 8 || a > MAX_ALIGNMENT || (a & (a - 1)) != 0)
        return fail(c, at, "a power of two from 8 to %d expected, %" PRIu32 " found", MAX_ALIGNMENT, a);
    *alignment = a;
    c->kind = NULL;
    return true;
}

// Where a tensor's record and its data are: `data` is known after all records, the two tell an overlap.
typedef struct {
    uint64_t offset; // from the start of the data section
    size_t n_bytes, at;
    int index;
} Place;

// *n, 1 at first, becomes the number of elements.
static bool read_dims(Cursor *c, GgufTensor *t, size_t *n) {
    uint32_t n_dims = 0;
    if (!read_bytes(c, &n_dims, sizeof n_dims, "number of dimensions")) return false;
    if (n_dims < 1 || n_dims > 4) return fail(c, c->pos - 4, "1 to 4 dimensions expected, %" PRIu32 " found", n_dims);
    t->n_dims = (int)n_dims;
    for (int d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if (d >= t->n_dims) continue;
        if (!read_bytes(c, &t->dims[d], 8, "dimension")) return false;
        if (t->dims[d] < 1 || t->dims[d] > INT32_MAX) // rows and columns are int in all that follows
            return fail(c, c->pos - 8, "dimension %d of 1 to %d expected, %" PRIu64 " found", d, INT32_MAX, t->dims[d]);
        if (!size_mul(*n, (size_t)t->dims[d], n))
            return fail(c, c->pos - 8, "dimensions whose product fits 64 bits expected, a larger one found");
    }
    return true;
}

static bool read_tensor(Cursor *c, Gguf *g, Place *p) {
    Str name;
    size_t n = 1;
    p->at = c->pos;
    if (!read_name(c, "tensor name", MAX_NAME, &name)) return false;
    c->kind = "tensor ";
    c->subject = name;
    GgufTensor *t = table_add(&g->tensors, name);
    if (!t) return fail(c, p->at, "each tensor once expected, a second one found");
    if (!read_dims(c, t, &n)) return false;
    uint32_t type = 0;
    if (!read_bytes(c, &type, sizeof type, "type")) return false;
    t->type = (int)type;
    const TypeInfo *info = type > INT32_MAX || type == TYPE_I8G ? NULL : type_info(t->type);
    if (!info)
        return fail(c, c->pos - 4, "one of %s expected, %s (id %" PRIu32 ") found", type_name_list(),
                    type_name(t->type), type);
    if (t->dims[0] % (size_t)info->block != 0)
        return fail(c, c->pos - 4, "rows of whole %s blocks of %d expected, rows of %" PRIu64 " found", info->name,
                    info->block, t->dims[0]);
    if (!size_mul(n / (size_t)info->block, (size_t)info->bytes, &t->n_bytes))
        return fail(c, c->pos - 4, "a size in bytes that fits 64 bits expected, a larger one found");
    if (!read_bytes(c, &p->offset, 8, "offset")) return false;
    p->n_bytes = t->n_bytes;
    c->kind = NULL;
    return true;
}

static int by_offset(const void *a, const void *b) {
    const Place *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

// The data section. Tensors may lie in any order (writers that sort or append do that) and leave gaps; sharing bytes is
// refused, since no writer does it and it is how a small file claims to be a large one.
static bool place_tensors(Cursor *c, Gguf *g, Place *places, size_t alignment) {
    int n = g->tensors.n;
    size_t start = round_up(c->pos, alignment);
    size_t section = start < c->n ? c->n - start : 0; // bytes of data there are
    for (int i = 0; i < n; i++) {
        GgufTensor *t = table_at(&g->tensors, i);
        Place *p = &places[i];
        c->kind = "tensor ";
        c->subject = t->name;
        if (p->offset % alignment != 0)
            return fail(c, p->at, "offset in steps of %zu expected, %" PRIu64 " found", alignment, p->offset);
        if (p->offset > section || p->n_bytes > section - p->offset)
            return fail(c, p->at,
                        "%zu bytes at offset %" PRIu64 " of the data expected, the data section has %zu bytes",
                        p->n_bytes, p->offset, section);
        t->data = c->data + start + p->offset;
    }
    qsort(places, (size_t)n, sizeof *places, by_offset);
    for (int i = 1; i < n; i++) {
        const Place *low = &places[i - 1], *high = &places[i];
        Str other = gguf_tensor_at(g, low->index)->name;
        c->subject = gguf_tensor_at(g, high->index)->name;
        if (high->offset - low->offset < low->n_bytes)
            return fail(c, high->at, "data after that of %.*s expected, offset %" PRIu64 " inside of it found",
                        SHOW(other), high->offset);
    }
    c->kind = NULL;
    return true;
}

static bool read_file(Cursor *c, Gguf *g) {
    uint64_t n_tensors = 0, n_values = 0;
    size_t alignment;
    if (!read_header(c, g, &n_tensors, &n_values) || !read_values(c, g, n_values) || !read_alignment(c, g, &alignment))
        return false;
    table_reserve(&g->tensors, (int)n_tensors);
    Place *places = mem_alloc((size_t)n_tensors * sizeof *places);
    bool good = true;
    for (int i = 0; good && i < (int)n_tensors; i++) {
        places[i].index = i;
        good = read_tensor(c, g, &places[i]);
    }
    good = good && place_tensors(c, g, places, alignment);
    free(places);
    return good;
}

Status gguf_open_memory(const char *name, const void *bytes, size_t n, Gguf **out) {
    *out = NULL;
    Gguf *g = gguf_new(name);
    Cursor c = {.file = g->name, .data = bytes, .n = n};
    if (!read_file(&c, g)) {
        gguf_close(g);
        return c.status;
    }
    g->file_bytes = n;
    *out = g;
    return OK;
}

static Status open_one(const char *path, Gguf **out) {
    FileMap map;
    Status st = file_map(path, &map);
    if (st.code) {
        st.code = QUILL_MODEL; // a model that cannot be read is a model that cannot be used
        return st;
    }
    st = gguf_open_memory(path, map.data, map.n, out);
    if (st.code) {
        file_unmap(&map);
        return st;
    }
    (*out)->file_bytes = 0; // gguf_own_map counts them
    gguf_own_map(*out, map);
    return OK;
}

// ---- split files ----------------------------------------------------------------------------------------------------

// "PREFIX-00002-of-00005.gguf": part 2 of 5. Anything else is a file of its own.
static bool split_name(const char *path, size_t *n_prefix, int *no, int *count) {
    static const size_t tail = sizeof "-00001-of-00005.gguf" - 1;
    size_t n = strlen(path);
    if (n < tail) return false;
    const char *t = path + n - tail;
    for (size_t i = 0; i < tail; i++) {
        char p = "-#####-of-#####.gguf"[i];
        if (p == '#' ? t[i] < '0' || t[i] > '9' : t[i] != p) return false;
    }
    *n_prefix = n - tail;
    *no = (int)strtol(t + 1, NULL, 10);
    *count = (int)strtol(t + 10, NULL, 10);
    return *no >= 1 && *no <= *count;
}

// A file says of itself which part of how many it is; that and its name must agree.
static Status check_part(const Gguf *part, int no, int count) {
    uint32_t said_no, said_count;
    TRY(gguf_u32(part, "split.no", &said_no, false, (uint32_t)(no - 1)));
    TRY(gguf_u32(part, "split.count", &said_count, false, (uint32_t)count));
    if (said_count == 0) said_count = 1; // what gguf-split leaves in a file that it merged
    if (said_count != (uint32_t)count && count == 1)
        return status_error(QUILL_MODEL,
                            "%s: key split.count: part %" PRIu32 " of %" PRIu32
                            " of a split model found; name the parts "
                            "NAME-00001-of-%05" PRIu32 ".gguf and so on, and give the first",
                            part->name, said_no + 1, said_count, said_count);
    if (said_count != (uint32_t)count)
        return status_error(QUILL_MODEL, "%s: key split.count: %d expected by the file's name, %" PRIu32 " found",
                            part->name, count, said_count);
    if (said_no != (uint32_t)(no - 1))
        return status_error(QUILL_MODEL, "%s: key split.no: %d expected by the file's name, %" PRIu32 " found",
                            part->name, no - 1, said_no);
    return OK;
}

// Moves the tensors and the mapping of `part` into g; closes part.
static Status merge_part(Gguf *g, Gguf *part) {
    Status st = OK;
    if (part->tensors.n > MAX_TENSORS - g->tensors.n)
        st = status_error(QUILL_MODEL, "%s: at most %d tensors in all parts expected, more found", part->name,
                          MAX_TENSORS);
    for (int i = 0; i < part->tensors.n && !st.code; i++) {
        const GgufTensor *from = gguf_tensor_at(part, i);
        GgufTensor *to = table_add(&g->tensors, from->name);
        if (to) *to = *from;
        else
            st = status_error(QUILL_MODEL, "%s: tensor %.*s: each tensor once expected, one of an earlier part found",
                              part->name, SHOW(from->name));
    }
    if (!st.code) { // the names in g's table point into this mapping now
        gguf_own_map(g, part->maps[0]);
        part->n_maps = 0;
    }
    gguf_close(part);
    return st;
}

static Status open_parts(const char *path, size_t n_prefix, int count, Gguf *g) {
    for (int no = 2; no <= count; no++) {
        Buf name = {0};
        buf_append(&name, path, n_prefix);
        buf_printf(&name, "-%05d-of-%05d.gguf", no, count);
        Gguf *part;
        Status st = open_one(name.data, &part);
        buf_free(&name);
        if (st.code) return status_error(st.code, "%.960s (part %d of %d of the model)", st.message, no, count);
        st = check_part(part, no, count);
        if (st.code) {
            gguf_close(part);
            return st;
        }
        TRY(merge_part(g, part));
    }
    uint32_t n;
    TRY(gguf_u32(g, "split.tensors.count", &n, false, (uint32_t)g->tensors.n));
    if (n != (uint32_t)g->tensors.n)
        return status_error(QUILL_MODEL,
                            "%s: key split.tensors.count: %" PRIu32 " tensors expected, %d found in %d parts", g->name,
                            n, g->tensors.n, count);
    return OK;
}

Status gguf_open(const char *path, Gguf **out) {
    size_t n_prefix = 0;
    int no = 1, count = 1;
    *out = NULL;
    Buf first = {0};
    if (split_name(path, &n_prefix, &no, &count)) {
        buf_append(&first, path, n_prefix);
        buf_printf(&first, "-00001-of-%05d.gguf", count);
    }
    Gguf *g;
    Status st = open_one(first.data ? first.data : path, &g);
    buf_free(&first);
    if (st.code && no > 1) return status_error(st.code, "%.960s (part 1 of %d of the model)", st.message, count);
    if (st.code) return st;
    st = check_part(g, 1, count);
    if (!st.code) st = open_parts(path, n_prefix, count, g);
    if (st.code) {
        gguf_close(g);
        return st;
    }
    free(g->name);
    g->name = mem_copy(path, strlen(path));
    *out = g;
    return OK;
}

// ---- typed access ---------------------------------------------------------------------------------------------------

static Status wrong_type(const Gguf *g, const GgufValue *v, const char *expected) {
    bool array = v->type == GGUF_ARRAY;
    return status_error(QUILL_MODEL, "%s: key %.*s: %s expected, %s%s found", g->name, SHOW(v->key), expected,
                        array ? "array of " : "", value_types[v->elem_type].name);
}

static Status absent(const Gguf *g, const char *key, const char *expected) {
    return status_error(QUILL_MODEL, "%s: key %s: %s expected, none found", g->name, key, expected);
}

// An integer of any type as its sign and its magnitude.
static bool value_integer(const GgufValue *v, uint64_t *out, bool *negative) {
    bool is_signed = v->type == GGUF_I8 || v->type == GGUF_I16 || v->type == GGUF_I32 || v->type == GGUF_I64;
    if (!is_signed && v->type != GGUF_U8 && v->type != GGUF_U16 && v->type != GGUF_U32 && v->type != GGUF_U64)
        return false;
    size_t size = value_types[v->type].size;
    *out = 0;
    memcpy(out, v->data, size);
    *negative = is_signed && v->data[size - 1] >= 0x80;
    if (*negative) {
        uint64_t extended = size == 8 ? *out : *out | ~(uint64_t)0 << (8 * size);
        *out = 0 - extended;
    }
    return true;
}

Status gguf_u32(const Gguf *g, const char *key, uint32_t *out, bool required, uint32_t fallback) {
    *out = fallback;
    const GgufValue *v = gguf_value(g, key);
    if (!v) return required ? absent(g, key, "an integer") : OK;
    uint64_t n;
    bool negative;
    if (!value_integer(v, &n, &negative)) return wrong_type(g, v, "an integer");
    if (negative || n > UINT32_MAX)
        return status_error(QUILL_MODEL, "%s: key %s: 0 to %" PRIu32 " expected, %s%" PRIu64 " found", g->name, key,
                            UINT32_MAX, negative ? "-" : "", n);
    *out = (uint32_t)n;
    return OK;
}

Status gguf_f32(const Gguf *g, const char *key, float *out, bool required, float fallback) {
    *out = fallback;
    const GgufValue *v = gguf_value(g, key);
    if (!v) return required ? absent(g, key, "a number") : OK;
    double d;
    if (v->type == GGUF_F32) memcpy(out, v->data, sizeof *out);
    else if (v->type == GGUF_F64) {
        memcpy(&d, v->data, sizeof d);
        // A double beyond float's range has no defined conversion; it becomes an infinity, which callers refuse.
        *out = d > 3.4028234663852886e38 ? __builtin_inff() : d < -3.4028234663852886e38 ? -__builtin_inff() : (float)d;
    } else return wrong_type(g, v, "F32 or F64");
    return OK;
}

Status gguf_bool(const Gguf *g, const char *key, bool *out, bool fallback) {
    *out = fallback;
    const GgufValue *v = gguf_value(g, key);
    if (!v) return OK;
    if (v->type != GGUF_BOOL) return wrong_type(g, v, "BOOL");
    if (v->data[0] > 1)
        return status_error(QUILL_MODEL, "%s: key %s: 0 or 1 expected, %u found", g->name, key, v->data[0]);
    *out = v->data[0];
    return OK;
}

Status gguf_str(const Gguf *g, const char *key, Str *out, bool required) {
    *out = (Str){0};
    const GgufValue *v = gguf_value(g, key);
    if (!v) return required ? absent(g, key, "a string") : OK;
    if (v->type != GGUF_STR) return wrong_type(g, v, "STRING");
    *out = (Str){(const char *)v->data + 8, v->n_bytes - 8};
    return OK;
}

Str gguf_next_string(const uint8_t **at) {
    uint64_t n;
    memcpy(&n, *at, sizeof n);
    Str s = {(const char *)*at + sizeof n, (size_t)n};
    *at += sizeof n + n;
    return s;
}

Status gguf_strings(const Gguf *g, const GgufValue *v, Str *out) {
    if (v->type != GGUF_ARRAY || v->elem_type != GGUF_STR) return wrong_type(g, v, "array of STRING");
    const uint8_t *at = v->data;
    for (uint64_t i = 0; i < v->n; i++) out[i] = gguf_next_string(&at);
    return OK;
}

Status gguf_floats(const Gguf *g, const GgufValue *v, float *out) {
    if (v->type != GGUF_ARRAY || v->elem_type != GGUF_F32) return wrong_type(g, v, "array of F32");
    if (v->n) memcpy(out, v->data, v->n_bytes);
    return OK;
}

Status gguf_ints(const Gguf *g, const GgufValue *v, int32_t *out) {
    if (v->type != GGUF_ARRAY || (v->elem_type != GGUF_I32 && v->elem_type != GGUF_U32))
        return wrong_type(g, v, "array of I32 or U32");
    if (v->n) memcpy(out, v->data, v->n_bytes);
    return OK;
}
