// kv/kvdiff.c: see kv/kvdiff.h.
#include "kv/kvdiff.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/output.h"
#include "kv/kvinput.h"

enum { DIFFERENT = 1 }; // the exit code, without a message: stdout has said it

// ---- the content of a file ------------------------------------------------------------------------------------------

// Tokens, K and V of a file. K and V are f32, unsealed and without the Hadamard rotation.
typedef struct {
    KvHead head;
    bool is_block;
    KvLink link;
    int *tokens;
    float **k, **v; // (n_layers) arrays of (n_slots, KV heads, elements of that layer)
} KvContent;

static void content_free(KvContent *a) {
    for (uint32_t i = 0; a->k && i < a->head.n_layers; i++) free(a->k[i]), free(a->v[i]);
    free(a->k);
    free(a->v);
    free(a->tokens);
}

// Unseals whole groups of slots, in the byte order of the file, into (n, n_heads, dim) floats.
static void unseal_rows(int type, bool keys, size_t n_heads, int dim, const uint8_t *rows, size_t n, float *out) {
    size_t size = kv_slot_bytes(type, dim), row = n_heads * (size_t)dim;
    _Alignas(16) uint8_t group[SEAL_MOST];
    for (size_t first = 0; first < n; first += SEAL)
        for (size_t head = 0; head < n_heads; head++) {
            for (size_t slot = 0; slot < SEAL; slot++)
                memcpy(group + slot * size, rows + ((first + slot) * n_heads + head) * size, size);
            sealed_unpack_group(type, keys, group, dim, out + first * row + head * (size_t)dim, row);
        }
}

// K or V of n slots of a chunk as f32: unsealed, and without the Hadamard rotation.
static void read_values(const KvHead *h, uint32_t layer, bool keys, const uint8_t *rows, size_t n, float *out) {
    KvLayerShape s = kv_layer_shape(h, layer);
    size_t n_heads = (size_t)s.n_kv_heads;
    int dim = keys ? s.k_dim : s.v_dim;
    if (dim == 0) return;
    int type = (int)(keys ? h->type_k : h->type_v), dense = kv_is_sealed(type) ? TYPE_F32 : type;
    size_t row = n_heads * (size_t)dim, sealed = dense == type ? 0 : kv_whole_slots(type, n);
    unseal_rows(type, keys, n_heads, dim, rows, sealed, out);
    rows += sealed * n_heads * kv_slot_bytes(type, dim);
    type_info(dense)->dequantize(rows, out + sealed * row, (n - sealed) * row);
    if (!keys || !h->rotated) return;
    for (size_t i = 0; i < n * n_heads; i++) sealed_hadamard(out + i * (size_t)dim, dim);
}

// Reads a file into memory. Arrays grow with the chunks that arrive, not with the header's numbers.
static Status read_content(KvReader *r, KvContent *a) {
    const int *tokens;
    const float *logits;
    int n_logits;
    const KvHead *h = &a->head;
    a->head = r->s.head;
    TRY(kvreader_tokens(r, INT_MAX, &tokens));
    a->tokens = mem_alloc(h->n_tokens * sizeof *tokens + 1);
    if (h->n_tokens) memcpy(a->tokens, tokens, h->n_tokens * sizeof *tokens);
    a->k = mem_alloc(h->n_layers * sizeof *a->k);
    a->v = mem_alloc(h->n_layers * sizeof *a->v);
    while (kvreader_more(r)) {
        KvChunk c;
        const uint8_t *rows;
        TRY(kvreader_rows(r, &c, &rows));
        KvLayerShape s = kv_layer_shape(h, c.layer);
        size_t k_row = (size_t)(s.n_kv_heads * s.k_dim), v_row = (size_t)(s.n_kv_heads * s.v_dim);
        size_t n = (size_t)c.first + c.n;
        a->k[c.layer] = mem_resize(a->k[c.layer], n * k_row * sizeof(float));
        a->v[c.layer] = mem_resize(a->v[c.layer], n * v_row * sizeof(float) + 1);
        read_values(h, c.layer, true, rows, c.n, a->k[c.layer] + c.first * k_row);
        read_values(h, c.layer, false, rows + kv_frame_keys(h, c.layer, c.n), c.n, a->v[c.layer] + c.first * v_row);
    }
    TRY(kvinput_skip_states(r));
    TRY(kvreader_last(r, 0, &logits, &n_logits));
    TRY(kvreader_end(r));
    return kvreader_eof(r);
}

static Status read_file(const char *path, KvContent *a) {
    KvInput in;
    Status st = kvinput_open(&in, path);
    a->is_block = in.is_block;
    a->link = in.link;
    if (!st.code) st = read_content(&in.r, a);
    kvinput_close(&in);
    return st;
}

// ---- comparing ------------------------------------------------------------------------------------------------------

typedef struct {
    Buf out;
    bool other;     // a difference that no tolerance covers
    double most;    // the largest relative L2 difference of one layer's K or V
    uint32_t layer; // that layer
    const char *what;
} Difference;

// Compares the values of slots of one layer, and adds a line if some differ.
static void diff_plane(Difference *d, const char *what, uint32_t layer, const float *a, const float *b, size_t n_slots,
                       size_t row) {
    size_t n_other = 0, first = 0;
    double most = 0, sum = 0, norm = 0;
    for (size_t i = 0; i < n_slots * row; i++) {
        double x = a[i], y = b[i], by = fabs(x - y);
        bool same = x == y || (isnan(x) && isnan(y));
        if (!same && n_other++ == 0) first = i / row;
        if (!same && !(by <= most)) most = by;
        sum += same ? 0 : by * by;
        norm += x * x;
    }
    if (n_other == 0) return;
    double relative = sqrt(sum / norm);
    buf_printf(&d->out,
               "layer %-4u %s: %zu of %zu values differ, from slot %zu on, by %.3g at most, relative L2 %.3g\n", layer,
               what, n_other, n_slots * row, first, most, relative);
    if (isnan(relative)) relative = INFINITY;
    if (relative <= d->most) return;
    d->most = relative;
    d->layer = layer;
    d->what = what;
}

// Compares the places of two blocks.
static void diff_links(Difference *d, const KvContent *a, const KvContent *b) {
    if (a->is_block != b->is_block)
        buf_printf(&d->out, "block of --kv-dir: %s\n", a->is_block ? "yes and no" : "no and yes");
    if (!a->is_block || !b->is_block || memcmp(&a->link, &b->link, sizeof a->link) == 0) return;
    buf_printf(&d->out, "block: from slot %u after ", a->link.first);
    kvinput_print_name(&d->out, a->link.parent);
    buf_printf(&d->out, " and from slot %u after ", b->link.first);
    kvinput_print_name(&d->out, b->link.parent);
    buf_str(&d->out, "\n");
}

static void diff_heads(Difference *d, const KvHead *a, const KvHead *b) {
    const struct {
        const char *what;
        unsigned long long a, b;
    } fields[] = {{"model", a->model, b->model},
                  {"tokenizer", a->tokenizer, b->tokenizer},
                  {"RoPE", a->rope, b->rope},
                  {"layers", a->n_layers, b->n_layers},
                  {"KV heads", a->n_kv_heads, b->n_kv_heads},
                  {"elements per head", a->head_dim, b->head_dim},
                  {"elements of V per head", a->v_dim, b->v_dim},
                  {"layers with a window", a->n_windowed, b->n_windowed},
                  {"KV heads of these", a->window_heads, b->window_heads},
                  {"elements per head of these", a->window_dim, b->window_dim},
                  {"elements of V of these", a->window_v_dim, b->window_v_dim},
                  {"tokens", a->n_tokens, b->n_tokens},
                  {"slots", a->n_slots, b->n_slots}};
    const uint32_t types[][2] = {{a->type_k, b->type_k}, {a->type_v, b->type_v}};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (fields[i].a != fields[i].b)
            buf_printf(&d->out, i < 3 ? "%s: %016llx and %016llx\n" : "%s: %llu and %llu\n", fields[i].what,
                       fields[i].a, fields[i].b);
    d->other = d->out.n > 0;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (types[i][0] != types[i][1])
            buf_printf(&d->out, "type of %s: %s and %s\n", i ? "V" : "K", type_name((int)types[i][0]),
                       type_name((int)types[i][1]));
    if (a->rotated != b->rotated) buf_printf(&d->out, "K rotated: %u and %u\n", a->rotated, b->rotated);
}

// Compares two files up to the first token that differs: K and V after it are not comparable.
static void diff_contents(Difference *d, const KvContent *a, const KvContent *b) {
    const KvHead *h = &a->head;
    diff_links(d, a, b);
    diff_heads(d, h, &b->head);
    uint32_t n = h->n_tokens < b->head.n_tokens ? h->n_tokens : b->head.n_tokens, same = 0;
    while (same < n && a->tokens[same] == b->tokens[same]) same++;
    if (same < n) {
        buf_printf(&d->out, "token %u: %d and %d\n", same, a->tokens[same], b->tokens[same]);
        d->other = true;
    }
    if (h->n_layers != b->head.n_layers) return;
    for (uint32_t l = 0; l < h->n_layers; l++)
        if (!kvinput_same_shape(kv_layer_shape(h, l), kv_layer_shape(&b->head, l))) return;
    if (same > h->n_slots) same = h->n_slots;
    if (same > b->head.n_slots) same = b->head.n_slots;
    for (uint32_t l = 0; l < h->n_layers && same > 0; l++) {
        KvLayerShape s = kv_layer_shape(h, l);
        diff_plane(d, "K", l, a->k[l], b->k[l], same, (size_t)(s.n_kv_heads * s.k_dim));
        if (s.v_dim > 0) diff_plane(d, "V", l, a->v[l], b->v[l], same, (size_t)(s.n_kv_heads * s.v_dim));
    }
}

Status kvdiff_run(const Options *o, const char *const *files) {
    KvContent a = {0}, b = {0};
    Difference d = {0};
    double tolerance = (double)o->kv.tolerance;
    if (strcmp(files[0], "-") == 0 && strcmp(files[1], "-") == 0)
        return status_error(QUILL_USAGE, "quill kv diff - -: one of them may be stdin, found both");
    Status st = read_file(files[0], &a);
    if (!st.code) st = read_file(files[1], &b);
    if (!st.code) {
        diff_contents(&d, &a, &b);
        if (d.out.n == 0) buf_str(&d.out, "same       tokens, K and V\n");
        if (d.most > 0)
            buf_printf(&d.out, "most       relative L2 %.3g, %s of layer %u: %s the tolerance of %g\n", d.most, d.what,
                       d.layer, d.most > tolerance ? "over" : "within", tolerance);
        st = output_buf(&d.out);
    }
    if (!st.code && (d.other || d.most > tolerance)) st.code = DIFFERENT;
    content_free(&a);
    content_free(&b);
    return st;
}
