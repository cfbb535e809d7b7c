// files/gguf_read.c: see files/gguf.h. Reading the bytes of one file: a bounds-checked cursor, the metadata, the
// tensors.
#include "files/gguf_view.h"

#include "formats/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are copied from little-endian files unchanged");

enum {
    MAX_KEY = 65535, // the specification's limit
    MAX_STRING = 16 << 20,
    MAX_ELEMENTS = 64 << 20,
    MAX_ALIGNMENT = 65536,
    DEFAULT_ALIGNMENT = 32,
    MIN_VALUE_BYTES = 8 + 1 + 4 + 1,          // key length, key, type, value
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, // name length, name, n_dims, one dimension, type, offset
};

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
} GgufCursor;

static bool has(const GgufCursor *c, size_t n) { return n <= c->n - c->pos; }

__attribute__((format(printf, 3, 4))) static bool fail(GgufCursor *c, size_t at, const char *format, ...) {
    char what[768];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    Str subject = c->kind ? c->subject : (Str){"", 0};
    c->status = status_error(QUILL_MODEL, "%s: byte %zu: %s%.*s%s%s", c->file, at, c->kind ? c->kind : "",
                             GGUF_SHOW(subject), c->kind ? ": " : "", what);
    return false;
}

static bool read_bytes(GgufCursor *c, void *out, size_t n, const char *what) {
    if (!has(c, n)) return fail(c, c->pos, "%s: %zu bytes expected, the file ends after %zu", what, n, c->n - c->pos);
    memcpy(out, c->data + c->pos, n);
    c->pos += n;
    return true;
}

// Reads a key or a tensor's name. Control characters are refused, since names appear in messages, and so is "../".
static bool read_name(GgufCursor *c, const char *what, size_t max, Str *out) {
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
static bool skip_strings(GgufCursor *c, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint64_t len;
        if (!has(c, sizeof len))
            return fail(c, c->pos, "string %" PRIu64 " of %" PRIu64 " expected, found the end of the file", i + 1, n);
        memcpy(&len, c->data + c->pos, sizeof len);
        size_t left = c->n - c->pos - sizeof len;
        if (len > left || len > MAX_STRING)
            return fail(c, c->pos, "string of at most %zu bytes expected, length %" PRIu64 " found",
                        left < MAX_STRING ? left : (size_t)MAX_STRING, len);
        c->pos += sizeof len + (size_t)len;
    }
    return true;
}

static bool read_type(GgufCursor *c, GgufType *out) {
    uint32_t type = 0;
    if (!read_bytes(c, &type, sizeof type, "value type")) return false;
    if (type >= GGUF_N_TYPES)
        return fail(c, c->pos - 4, "value type 0 to %d expected, %" PRIu32 " found", GGUF_N_TYPES - 1, type);
    *out = (GgufType)type;
    return true;
}

static bool read_value(GgufCursor *c, GgufValue *v) {
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
    size_t least = strings ? 8 : gguf_type_bytes(v->elem_type), left = c->n - c->pos;
    if (v->n > MAX_ELEMENTS || v->n > left / least)
        return fail(c, at, "%" PRIu64 " x %s found, at most %zu expected (%zu bytes are left)", v->n,
                    gguf_type_name(v->elem_type), left / least < MAX_ELEMENTS ? left / least : (size_t)MAX_ELEMENTS,
                    left);
    v->data = c->data + c->pos;
    if (!strings) c->pos += (size_t)v->n * least;
    else if (!skip_strings(c, v->n)) return false;
    v->n_bytes = (size_t)(c->data + c->pos - v->data);
    return true;
}

// ---- one file -------------------------------------------------------------------------------------------------------

static bool read_header(GgufCursor *c, Gguf *g, uint64_t *n_tensors, uint64_t *n_values) {
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
    snprintf(g->format, sizeof g->format, "GGUF v%" PRIu32, g->version);
    if (!read_bytes(c, n_tensors, 8, "tensor count") || !read_bytes(c, n_values, 8, "key count")) return false;
    size_t left = c->n - c->pos;
    if (*n_tensors > GGUF_MAX_TENSORS || *n_tensors > left / MIN_TENSOR_BYTES)
        return fail(c, 8, "%" PRIu64 " tensors found, at most %zu expected (%zu bytes are left)", *n_tensors,
                    left / MIN_TENSOR_BYTES < GGUF_MAX_TENSORS ? left / MIN_TENSOR_BYTES : (size_t)GGUF_MAX_TENSORS,
                    left);
    if (*n_values > GGUF_MAX_VALUES || *n_values > left / MIN_VALUE_BYTES)
        return fail(c, 16, "%" PRIu64 " keys found, at most %zu expected (%zu bytes are left)", *n_values,
                    left / MIN_VALUE_BYTES < GGUF_MAX_VALUES ? left / MIN_VALUE_BYTES : (size_t)GGUF_MAX_VALUES, left);
    return true;
}

static bool read_values(GgufCursor *c, Gguf *g, uint64_t n) {
    names_reserve(&g->values, (int)n);
    for (uint64_t i = 0; i < n; i++) {
        size_t at = c->pos;
        Str key;
        if (!read_name(c, "key", MAX_KEY, &key)) return false;
        c->kind = "key ";
        c->subject = key;
        GgufValue *v = names_add(&g->values, key);
        if (!v) return fail(c, at, "each key once expected, a second one found");
        if (!read_value(c, v)) return false;
        c->kind = NULL;
    }
    return true;
}

static bool read_alignment(GgufCursor *c, const Gguf *g, size_t *alignment) {
    *alignment = DEFAULT_ALIGNMENT;
    const GgufValue *v = gguf_value(g, "general.alignment");
    if (!v) return true;
    c->kind = "key ";
    c->subject = v->key;
    size_t at = (size_t)(v->data - c->data);
    if (v->type != GGUF_U32) return fail(c, at, "U32 expected, %s found", gguf_type_name(v->type));
    uint32_t a;
    memcpy(&a, v->data, sizeof a);
    if (a < 8 || a > MAX_ALIGNMENT || (a & (a - 1)) != 0)
        return fail(c, at, "a power of two from 8 to %d expected, %" PRIu32 " found", MAX_ALIGNMENT, a);
    *alignment = a;
    c->kind = NULL;
    return true;
}

// Where a tensor's record is in the file and where its data is in the data section, which begins after all records.
typedef struct {
    uint64_t offset; // from the start of the data section
    size_t n_bytes, at;
    int index;
} TensorPlace;

// Reads the dimensions and multiplies *n, which is 1 at first, by each: *n becomes the number of elements.
static bool read_dims(GgufCursor *c, GgufTensor *t, size_t *n) {
    uint32_t n_dims = 0;
    if (!read_bytes(c, &n_dims, sizeof n_dims, "number of dimensions")) return false;
    if (n_dims < 1 || n_dims > 4) return fail(c, c->pos - 4, "1 to 4 dimensions expected, %" PRIu32 " found", n_dims);
    t->n_dims = (int)n_dims;
    for (int d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if (d >= t->n_dims) continue;
        if (!read_bytes(c, &t->dims[d], 8, "dimension")) return false;
        if (t->dims[d] < 1 || t->dims[d] > INT32_MAX) // rows and columns are int everywhere else
            return fail(c, c->pos - 8, "dimension %d of 1 to %d expected, %" PRIu64 " found", d, INT32_MAX, t->dims[d]);
        if (!size_mul(*n, (size_t)t->dims[d], n))
            return fail(c, c->pos - 8, "dimensions whose product fits 64 bits expected, a larger one found");
    }
    return true;
}

static bool read_tensor(GgufCursor *c, Gguf *g, TensorPlace *p) {
    Str name;
    size_t n = 1;
    p->at = c->pos;
    if (!read_name(c, "tensor name", GGUF_MAX_NAME, &name)) return false;
    c->kind = "tensor ";
    c->subject = name;
    GgufTensor *t = names_add(&g->tensors, name);
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
    const TensorPlace *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

// Advice for a file whose name says that it was cut by other tools than GGUF's: "model.gguf.part1of2".
static const char *part_advice(const char *name) {
    const char *part = strstr(file_base(name), ".part");
    int no, count;
    return part && sscanf(part, ".part%dof%d", &no, &count) == 2 ? ", or join its parts with cat" : "";
}

// Sets the data of all tensors. They may be in any order and have gaps between them, as some writers leave them. Two
// tensors that share bytes are refused: no writer does that, and a small hostile file could claim to be a large one.
static bool place_tensors(GgufCursor *c, Gguf *g, TensorPlace *places, size_t alignment) {
    int n = g->tensors.n;
    size_t start = round_up(c->pos, alignment);
    size_t section = start < c->n ? c->n - start : 0; // bytes in the data section
    for (int i = 0; i < n; i++) {
        GgufTensor *t = names_at(&g->tensors, i);
        TensorPlace *p = &places[i];
        c->kind = "tensor ";
        c->subject = t->name;
        if (p->offset % alignment != 0)
            return fail(c, p->at, "offset in steps of %zu expected, %" PRIu64 " found", alignment, p->offset);
        if (p->offset > section || p->n_bytes > section - p->offset)
            return fail(c, p->at,
                        "%zu bytes at offset %" PRIu64
                        " of the data expected, the data section has %zu bytes; the file "
                        "is cut off: fetch it again%s",
                        p->n_bytes, p->offset, section, part_advice(gguf_name(g)));
        t->data = c->data + start + p->offset;
    }
    qsort(places, (size_t)n, sizeof *places, by_offset);
    for (int i = 1; i < n; i++) {
        const TensorPlace *low = &places[i - 1], *high = &places[i];
        Str other = gguf_tensor_at(g, low->index)->name;
        c->subject = gguf_tensor_at(g, high->index)->name;
        if (high->offset - low->offset < low->n_bytes)
            return fail(c, high->at, "data after that of %.*s expected, offset %" PRIu64 " inside of it found",
                        GGUF_SHOW(other), high->offset);
    }
    c->kind = NULL;
    return true;
}

static bool read_file(GgufCursor *c, Gguf *g) {
    uint64_t n_tensors = 0, n_values = 0;
    size_t alignment;
    if (!read_header(c, g, &n_tensors, &n_values) || !read_values(c, g, n_values) || !read_alignment(c, g, &alignment))
        return false;
    names_reserve(&g->tensors, (int)n_tensors);
    TensorPlace *places = mem_alloc((size_t)n_tensors * sizeof *places);
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
    GgufCursor c = {.file = g->name, .data = bytes, .n = n};
    if (!read_file(&c, g)) {
        gguf_close(g);
        return c.status;
    }
    g->file_bytes = n;
    *out = g;
    return OK;
}
