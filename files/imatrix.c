// files/imatrix.c: see files/imatrix.h.
#include "files/imatrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/gguf.h"
#include "formats/types.h"

typedef struct {
    Str weight; // the name of the weight; the entry owns its bytes
    float *mean;
    int n, n_mat;
} ImatrixEntry;

struct Imatrix {
    ImatrixEntry *entry; // (n)
    int n, chunks;
    char *text;
};

enum { MOST_ENTRIES = 1 << 17, SUFFIX = 8 }; // ".in_sum2"

// ---- the table ------------------------------------------------------------------------------------------------------

static ImatrixEntry *add_entry(Imatrix *m, const char *weight, size_t n_weight, size_t n, size_t n_mat) {
    m->entry = mem_resize(m->entry, (size_t)(m->n + 1) * sizeof *m->entry);
    ImatrixEntry *e = &m->entry[m->n++];
    *e = (ImatrixEntry){
        {mem_copy(weight, n_weight), n_weight}, mem_alloc(n * n_mat * sizeof(float)), (int)n, (int)n_mat};
    return e;
}

const float *imatrix_of(const Imatrix *m, Str weight, int *n, int *n_mat) {
    for (int i = 0; i < m->n; i++) {
        if (!str_eq(m->entry[i].weight, weight)) continue;
        *n = m->entry[i].n;
        *n_mat = m->entry[i].n_mat;
        return m->entry[i].mean;
    }
    return NULL;
}

int imatrix_count(const Imatrix *m) { return m->n; }
const char *imatrix_text(const Imatrix *m) { return m->text ? m->text : ""; }
int imatrix_chunks(const Imatrix *m) { return m->chunks; }

void imatrix_close(Imatrix *m) {
    if (!m) return;
    for (int i = 0; i < m->n; i++) {
        free((char *)m->entry[i].weight.data);
        free(m->entry[i].mean);
    }
    free(m->entry);
    free(m->text);
    free(m);
}

static Status check_values(const char *name, const ImatrixEntry *e) {
    for (size_t i = 0; i < (size_t)e->n * (size_t)e->n_mat; i++)
        if (!(e->mean[i] >= 0 && isfinite(e->mean[i])))
            return status_error(
                QUILL_MODEL,
                "%s: importance of %.80s, value %zu: a finite number that is not negative expected, found %g", name,
                e->weight.data, i, (double)e->mean[i]);
    return OK;
}

// ---- the GGUF form --------------------------------------------------------------------------------------------------

static Status add_sums(Imatrix *m, const Gguf *g, const GgufTensor *t) {
    char counts[128];
    size_t n_weight = t->name.n - SUFFIX;
    snprintf(counts, sizeof counts, "%.*s.counts", (int)n_weight, t->name.data);
    const GgufTensor *c = gguf_tensor(g, counts);
    uint64_t n = t->dims[0], n_mat = t->dims[1] * t->dims[2] * t->dims[3];
    if (t->type != TYPE_F32 || n > INT32_MAX || n_mat > INT32_MAX)
        return status_error(QUILL_MODEL, "%s: %.*s: an importance in F32 expected", gguf_name(g), (int)t->name.n,
                            t->name.data);
    if (!c || c->type != TYPE_F32 || c->n_bytes != n_mat * sizeof(float))
        return status_error(QUILL_MODEL, "%s: %s: %llu counts in F32 expected beside the sums, found none",
                            gguf_name(g), counts, (unsigned long long)n_mat);
    ImatrixEntry *e = add_entry(m, t->name.data, n_weight, (size_t)n, (size_t)n_mat);
    for (size_t k = 0; k < n_mat; k++) {
        float count, sum;
        memcpy(&count, (const uint8_t *)c->data + k * sizeof count, sizeof count);
        for (size_t i = 0; i < n; i++) { // an expert that no token was routed to: all columns are equally important
            memcpy(&sum, (const uint8_t *)t->data + (k * n + i) * sizeof sum, sizeof sum);
            e->mean[k * n + i] = count > 0 ? sum / count : 1;
        }
    }
    return check_values(gguf_name(g), e);
}

static void read_text(Imatrix *m, const Gguf *g) {
    const GgufValue *v = gguf_value(g, "imatrix.datasets");
    if (!v || v->type != GGUF_ARRAY || v->elem_type != GGUF_STR || v->n == 0) return;
    const uint8_t *at = v->data;
    Str s = gguf_next_string(&at);
    m->text = mem_copy(s.data, s.n < 4096 ? s.n : 4096);
}

static bool is_sums(Str name) {
    return name.n > SUFFIX && memcmp(name.data + name.n - SUFFIX, ".in_sum2", SUFFIX) == 0;
}

static Status read_gguf(const Gguf *g, Imatrix *m) {
    for (int i = 0; i < gguf_n_tensors(g); i++)
        if (is_sums(gguf_tensor_at(g, i)->name)) TRY(add_sums(m, g, gguf_tensor_at(g, i)));
    if (m->n == 0)
        return status_error(QUILL_MODEL,
                            "%s: an importance matrix expected, found a GGUF file without tensors *.in_sum2; quill "
                            "perplexity --imatrix-out makes one",
                            gguf_name(g));
    uint32_t chunks = 0;
    if (gguf_u32(g, "imatrix.chunk_count", &chunks, false, 0).code || chunks > INT32_MAX) chunks = 0;
    m->chunks = (int)chunks;
    read_text(m, g);
    return OK;
}

// ---- the older form -------------------------------------------------------------------------------------------------

typedef struct {
    const char *name;
    const uint8_t *at, *end, *begin;
} DatReader;

static Status dat_int(DatReader *r, const char *what, int least, int most, int *out) {
    int32_t v = -1;
    if (r->end - r->at >= (ptrdiff_t)sizeof v) memcpy(&v, r->at, sizeof v);
    if (r->end - r->at < (ptrdiff_t)sizeof v || v < least || v > most)
        return status_error(QUILL_MODEL, "%s: byte %td: an importance matrix expected: %s from %d to %d, found %d",
                            r->name, r->at - r->begin, what, least, most, v);
    r->at += sizeof v;
    *out = v;
    return OK;
}

static int dat_left(const DatReader *r) { return r->end - r->at > INT32_MAX ? INT32_MAX : (int)(r->end - r->at); }

// Reads an entry: a name, the number of chunks, and for each column the sum of the chunks' means.
static Status dat_entry(DatReader *r, Imatrix *m) {
    int n_name, calls, n;
    TRY(dat_int(r, "bytes of a name", 1, int_min(dat_left(r), 255), &n_name));
    const char *weight = (const char *)r->at;
    r->at += n_name;
    TRY(dat_int(r, "chunks", 0, INT32_MAX, &calls));
    TRY(dat_int(r, "importances", 1, int_max(1, (dat_left(r) - 4) / 4), &n));
    if (dat_left(r) / 4 < n) return status_error(QUILL_MODEL, "%s: the file ends inside an entry", r->name);
    ImatrixEntry *e = add_entry(m, weight, (size_t)n_name, (size_t)n, 1);
    memcpy(e->mean, r->at, (size_t)n * sizeof *e->mean);
    r->at += (size_t)n * sizeof *e->mean;
    for (int i = 0; i < n && calls > 0; i++) e->mean[i] /= (float)calls;
    return check_values(r->name, e);
}

static Status read_dat(DatReader *r, Imatrix *m) {
    int n_entries, n_text;
    TRY(dat_int(r, "entries", 1, MOST_ENTRIES, &n_entries));
    for (int i = 0; i < n_entries; i++) TRY(dat_entry(r, m));
    if (r->at == r->end) return OK; // older files end here, without the name of the text
    TRY(dat_int(r, "chunks", 0, INT32_MAX, &m->chunks));
    TRY(dat_int(r, "bytes of a text's name", 0, dat_left(r) - 4, &n_text));
    m->text = mem_copy((const char *)r->at, (size_t)n_text);
    return OK;
}

Status imatrix_read_dat(const char *name, const void *bytes, size_t n, Imatrix **out) {
    DatReader r = {name, bytes, (const uint8_t *)bytes + n, bytes};
    Imatrix *m = mem_alloc(sizeof *m);
    Status st = read_dat(&r, m);
    *out = st.code ? NULL : m;
    if (st.code) imatrix_close(m);
    return st;
}

// ---- files ----------------------------------------------------------------------------------------------------------

static Status open_gguf(const char *path, Imatrix **out) {
    Gguf *g;
    TRY(gguf_open(path, &g));
    Imatrix *m = mem_alloc(sizeof *m);
    Status st = read_gguf(g, m);
    gguf_close(g);
    *out = st.code ? NULL : m;
    if (st.code) imatrix_close(m);
    return st;
}

Status imatrix_open(const char *path, Imatrix **out) {
    FileMap map;
    *out = NULL;
    TRY(file_map(path, &map));
    bool is_gguf = map.n >= 4 && memcmp(map.data, "GGUF", 4) == 0;
    Status st = is_gguf ? OK : imatrix_read_dat(path, map.data, map.n, out);
    file_unmap(&map);
    return is_gguf ? open_gguf(path, out) : st;
}

Status imatrix_save(const char *path, const ImatrixSums *sums, int n, const char *text, int n_chunks, int chunk) {
    Gguf *g = gguf_new(path);
    Str texts[] = {str_of(text)};
    gguf_set_str(g, "general.type", "imatrix");
    gguf_set_strings(g, "imatrix.datasets", texts, 1);
    gguf_set_u32(g, "imatrix.chunk_count", (uint32_t)n_chunks);
    gguf_set_u32(g, "imatrix.chunk_size", (uint32_t)chunk);
    float **data = mem_alloc((size_t)int_max(n, 1) * sizeof *data);
    for (int i = 0; i < n; i++) {
        const ImatrixSums *s = &sums[i];
        char name[128];
        size_t n_mat = (size_t)s->n_mat, all = (size_t)s->n * n_mat;
        data[i] = mem_alloc((all + n_mat) * sizeof **data);
        for (size_t k = 0; k < all; k++) data[i][k] = (float)s->sums[k];
        for (size_t k = 0; k < n_mat; k++) data[i][all + k] = (float)s->counts[k];
        snprintf(name, sizeof name, "%.*s.in_sum2", (int)s->weight.n, s->weight.data);
        gguf_add_tensor(g, name, TYPE_F32, (size_t)s->n, n_mat, data[i], NULL, 0);
        snprintf(name, sizeof name, "%.*s.counts", (int)s->weight.n, s->weight.data);
        gguf_add_tensor(g, name, TYPE_F32, 1, n_mat, data[i] + all, NULL, 0);
    }
    Status st = gguf_save(g, path);
    gguf_close(g);
    for (int i = 0; i < n; i++) free(data[i]);
    free(data);
    return st;
}
