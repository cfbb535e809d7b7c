// kv/kv.c: see kv/kv.h.
#define _GNU_SOURCE
#include "kv/kv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/output.h"
#include "kernels.h"
#include "kv/chain.h"
#include "kv/kvfile.h"
#include "kv/kvstore.h"

// ---- a file that is read --------------------------------------------------------------------------------------------

typedef struct {
    int fd;
    KvReader r;
    bool is_block; // a block of --kv-dir
    KvLink link;   // the block's place
} KvInput;

static Status open_input(KvInput *in, const char *path) {
    bool piped = strcmp(path, "-") == 0;
    *in = (KvInput){.fd = piped ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)};
    in->r = (KvReader){.name = piped ? "stdin" : path, .read = kvreader_from_fd, .arg = &in->fd};
    if (in->fd < 0) return status_error(QUILL_IO, "%.500s: cannot open: %s", path, strerror(errno));
    TRY(kvreader_head(&in->r));
    return kvreader_block(&in->r, &in->link, &in->is_block);
}

static void close_input(KvInput *in) {
    kvreader_free(&in->r);
    if (in->fd > STDIN_FILENO) close(in->fd);
}

// Reads all remaining rows, which verifies their checksums.
static Status skip_rows(KvReader *r) {
    while (kvreader_more(r)) {
        KvChunk c;
        const uint8_t *rows;
        TRY(kvreader_rows(r, &c, &rows));
    }
    return OK;
}

// The same for the states of recurrent layers, which follow the rows.
static Status skip_states(KvReader *r, int *n_layers) {
    const float *values;
    *n_layers = 0;
    for (size_t n = 0;; n = 0) {
        TRY(kvreader_state(r, (uint32_t)*n_layers, &values, &n));
        if (!values) return OK;
        ++*n_layers;
    }
}

// Bytes of one slot in all layers.
static size_t slot_bytes(const KvHead *h) {
    size_t n = 0;
    for (uint32_t i = 0; i < h->n_layers; i++) n += kv_frame_rows(h, i, h->group);
    return n / h->group;
}

// Prints "2 KV heads of 64 elements", and V's elements if they differ.
static void print_shape(Buf *out, KvLayerShape s) {
    buf_printf(out, "%d KV heads of %d elements", s.n_kv_heads, s.k_dim);
    if (s.v_dim == 0) buf_str(out, ", V in K");
    else if (s.v_dim != s.k_dim) buf_printf(out, ", V of %d", s.v_dim);
}

static bool same_shape(KvLayerShape a, KvLayerShape b) {
    return a.n_kv_heads == b.n_kv_heads && a.k_dim == b.k_dim && a.v_dim == b.v_dim;
}

static void print_name(Buf *out, const uint8_t name[32]) {
    for (int i = 0; i < 32; i++) buf_printf(out, "%02x", name[i]);
}

// ---- info, check ----------------------------------------------------------------------------------------------------

static Status info(const Options *o, const char *const *files) {
    (void)o;
    KvInput in;
    Status st = open_input(&in, files[0]);
    if (!st.code) {
        const KvHead *h = &in.r.s.head;
        Buf out = {0};
        buf_printf(&out, "model      %016llx, tokenizer %016llx, RoPE %016llx\n", (unsigned long long)h->model,
                   (unsigned long long)h->tokenizer, (unsigned long long)h->rope);
        buf_printf(&out, "KV         K in %s, V in %s, exact", type_name((int)h->type_k), type_name((int)h->type_v));
        if (h->group > 1) buf_printf(&out, "; sealed in groups of %u slots", h->group);
        buf_str(&out, h->rotated ? "; K rotated\n" : "\n");
        buf_printf(&out, "shape      %u layers, ", h->n_layers);
        print_shape(&out, kv_layer_shape(h, 0));
        if (!same_shape(kv_layer_shape(h, 0), kv_layer_shape(h, h->n_layers - 1))) {
            buf_printf(&out, "; the last %u with a window, ", h->n_windowed);
            print_shape(&out, kv_layer_shape(h, h->n_layers - 1));
        }
        buf_str(&out, "\n");
        buf_printf(&out, "tokens     %u, K and V of %u, %zu bytes each\n", h->n_tokens, h->n_slots, slot_bytes(h));
        if (in.is_block) {
            buf_printf(&out, "block      of --kv-dir, from slot %u of a sequence on, after the %s ", in.link.first,
                       in.link.first ? "block" : "root");
            print_name(&out, in.link.parent);
            buf_str(&out, "\n");
        }
        st = output_buf(&out);
    }
    close_input(&in);
    return st;
}

// Computes the name that a block's file must have; "" if this is not a block. A file with another name is an error.
static Status check_name(const KvInput *in, const int *tokens, Buf *name) {
    const char *file = file_base(in->r.name);
    ChainHash parent;
    if (!in->is_block) return OK;
    memcpy(parent.bytes, in->link.parent, sizeof parent.bytes);
    print_name(name, chain_next(&parent, tokens, (int)in->r.s.head.n_tokens).bytes);
    bool named = strspn(file, "0123456789abcdef") == name->n && strcmp(file + name->n, ".kv") == 0;
    if (!named || memcmp(file, name->data, name->n) == 0) return OK;
    return status_error(
        QUILL_MODEL, "%.300s: the block that the file's name says expected, found block %s; rename or remove the file",
        in->r.name, name->data);
}

static Status check_all(KvInput *in, Buf *name, int *n_logits) {
    KvReader *r = &in->r;
    const int *tokens;
    const float *logits;
    TRY(kvreader_tokens(r, INT_MAX, &tokens));
    TRY(check_name(in, tokens, name));
    int n_states;
    TRY(skip_rows(r));
    TRY(skip_states(r, &n_states));
    TRY(kvreader_last(r, 0, &logits, n_logits));
    TRY(kvreader_end(r));
    return kvreader_eof(r);
}

static Status check(const Options *o, const char *const *files) {
    (void)o;
    KvInput in;
    Buf name = {0};
    int n_logits;
    Status st = open_input(&in, files[0]);
    if (!st.code) st = check_all(&in, &name, &n_logits);
    if (!st.code) {
        Buf out = {0};
        buf_printf(&out, "good       %u frames, %zu bytes; %u tokens, K and V of %u, %d logits after them\n",
                   in.r.s.n_frames, in.r.at, in.r.s.head.n_tokens, in.r.s.head.n_slots, n_logits);
        if (name.n) buf_printf(&out, "block      %s of --kv-dir\n", name.data);
        st = output_buf(&out);
    }
    buf_free(&name);
    close_input(&in);
    return st;
}

// ---- cut ------------------------------------------------------------------------------------------------------------

// Copies the chunk's slots below n_slots.
static Status copy_chunk(KvWriter *w, const KvChunk *c, const uint8_t *rows, uint32_t n_slots) {
    if (c->first >= n_slots) return OK;
    KvChunk kept = *c;
    if (kept.n > n_slots - c->first) kept.n = n_slots - c->first;
    const KvHead *h = &w->s.head;
    size_t k = kv_frame_keys(h, c->layer, kept.n);
    uint8_t *room = kvwriter_room(w, kept);
    memcpy(room, rows, k);
    memcpy(room + k, rows + kv_frame_keys(h, c->layer, c->n), kv_frame_rows(h, c->layer, kept.n) - k);
    return kvwriter_rows(w);
}

// Copies the recurrent states. A file has them only after its last slot, so that a sequence with states cannot be cut.
static Status copy_states(KvReader *r, KvWriter *w, bool whole) {
    const float *values;
    size_t n = 0;
    for (uint32_t layer = 0;; layer++, n = 0) {
        TRY(kvreader_state(r, layer, &values, &n));
        if (!values) return OK;
        if (!whole)
            return status_error(
                QUILL_USAGE,
                "quill kv cut: %.300s: a file without states of recurrent layers expected, found states, which belong "
                "to its last token only; compute the shorter prompt with quill prefill instead",
                r->name);
        TRY(kvwriter_state(w, layer, values, n));
    }
}

// Reads the input to its end, so that a damaged file is an error even if the damage is in the part that is cut off.
static Status cut_stream(KvReader *r, uint32_t n, int fd) {
    const KvHead *h = &r->s.head;
    const int *tokens;
    const float *logits;
    int n_logits;
    KvHead head = *h;
    if (n < head.n_tokens) head.n_tokens = n;
    if (n < head.n_slots) head.n_slots = n / head.group * head.group; // keeps only whole sealed groups
    KvWriter w = {.fd = fd};
    TRY(kvreader_tokens(r, INT_MAX, &tokens));
    Status st = kvwriter_head(&w, &head);
    if (!st.code) st = kvwriter_tokens(&w, tokens);
    while (!st.code && kvreader_more(r)) {
        KvChunk c;
        const uint8_t *rows;
        st = kvreader_rows(r, &c, &rows);
        if (!st.code) st = copy_chunk(&w, &c, rows, head.n_slots);
    }
    if (!st.code) st = copy_states(r, &w, head.n_slots == h->n_slots);
    if (!st.code) st = kvreader_last(r, 0, &logits, &n_logits);
    if (!st.code && logits && head.n_tokens == h->n_tokens) st = kvwriter_last(&w, logits, n_logits);
    if (!st.code) st = kvreader_end(r);
    if (!st.code) st = kvreader_eof(r);
    if (!st.code) st = kvwriter_end(&w);
    kvwriter_free(&w);
    return st;
}

static Status cut(const Options *o, const char *const *files) {
    if (!o->kv.out || o->kv.n_tokens < 1)
        return status_error(QUILL_USAGE, "quill kv cut: -n N and --kv-out FILE expected, one of them is missing");
    KvInput in;
    TempFile temp;
    Status st = open_input(&in, files[0]);
    if (!st.code && in.is_block)
        st = status_error(QUILL_USAGE,
                          "quill kv cut: %.300s: the KV of a whole sequence expected, found a block of --kv-dir, which "
                          "cannot be cut; quill prefill --kv-out writes files that can",
                          in.r.name);
    if (!st.code) st = kvfile_create(o->kv.out, &temp);
    if (!st.code) st = tempfile_publish(&temp, cut_stream(&in.r, (uint32_t)o->kv.n_tokens, temp.fd));
    close_input(&in);
    return st;
}

// ---- diff -----------------------------------------------------------------------------------------------------------

enum { DIFFERENT = 1 }; // the exit code, without a message: stdout has said it

// The content of one file.
typedef struct {
    KvHead head;
    bool is_block;
    KvLink link;
    int *tokens;
    float **k, **v; // (n_layers) (n_slots, KV heads, elements of that layer) each
} Held;

static void held_free(Held *a) {
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
static Status hold(KvReader *r, Held *a) {
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
    int n_states;
    TRY(skip_states(r, &n_states));
    TRY(kvreader_last(r, 0, &logits, &n_logits));
    TRY(kvreader_end(r));
    return kvreader_eof(r);
}

static Status hold_file(const char *path, Held *a) {
    KvInput in;
    Status st = open_input(&in, path);
    a->is_block = in.is_block;
    a->link = in.link;
    if (!st.code) st = hold(&in.r, a);
    close_input(&in);
    return st;
}

typedef struct {
    Buf out;
    bool other;     // a difference that no tolerance covers
    double most;    // the largest relative L2 difference of one layer's K or V
    uint32_t layer; // that layer
    const char *what;
} Difference;

// Compares the values of slots: "differs in 3 of 1024, at most 0.5, relative L2 1.2e-3; slot 17 first".
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
static void diff_links(Difference *d, const Held *a, const Held *b) {
    if (a->is_block != b->is_block)
        buf_printf(&d->out, "block of --kv-dir: %s\n", a->is_block ? "yes and no" : "no and yes");
    if (!a->is_block || !b->is_block || memcmp(&a->link, &b->link, sizeof a->link) == 0) return;
    buf_printf(&d->out, "block: from slot %u after ", a->link.first);
    print_name(&d->out, a->link.parent);
    buf_printf(&d->out, " and from slot %u after ", b->link.first);
    print_name(&d->out, b->link.parent);
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
static void diff_held(Difference *d, const Held *a, const Held *b) {
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
        if (!same_shape(kv_layer_shape(h, l), kv_layer_shape(&b->head, l))) return;
    if (same > h->n_slots) same = h->n_slots;
    if (same > b->head.n_slots) same = b->head.n_slots;
    for (uint32_t l = 0; l < h->n_layers && same > 0; l++) {
        KvLayerShape s = kv_layer_shape(h, l);
        diff_plane(d, "K", l, a->k[l], b->k[l], same, (size_t)(s.n_kv_heads * s.k_dim));
        if (s.v_dim > 0) diff_plane(d, "V", l, a->v[l], b->v[l], same, (size_t)(s.n_kv_heads * s.v_dim));
    }
}

static Status diff(const Options *o, const char *const *files) {
    Held a = {0}, b = {0};
    Difference d = {0};
    double tolerance = (double)o->kv.tolerance;
    Status st = hold_file(files[0], &a);
    if (!st.code) st = hold_file(files[1], &b);
    if (!st.code) {
        diff_held(&d, &a, &b);
        if (d.out.n == 0) buf_str(&d.out, "same       tokens, K and V\n");
        if (d.most > 0)
            buf_printf(&d.out, "most       relative L2 %.3g, %s of layer %u: %s the tolerance of %g\n", d.most, d.what,
                       d.layer, d.most > tolerance ? "over" : "within", tolerance);
        st = output_buf(&d.out);
    }
    if (!st.code && (d.other || d.most > tolerance)) st.code = DIFFERENT;
    held_free(&a);
    held_free(&b);
    return st;
}

// ---- a directory ----------------------------------------------------------------------------------------------------

// Whether --kv-dir could have given a file this name; sets *ending if so.
static bool is_stored(const char *path, const char **ending) {
    enum { DIGITS = 64 };
    const char *name = file_base(path);
    *ending = name + DIGITS;
    return strspn(name, "0123456789abcdef") == DIGITS &&
           (strcmp(*ending, ".kv") == 0 || strcmp(*ending, KVSTORE_CHUNK) == 0);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// The paths of the directory's files in order; the caller frees them and the array.
static Status read_dir(const char *path, char ***files, int *n) {
    DIR *dir = opendir(path);
    const char *ending;
    if (!dir) return status_error(QUILL_IO, "%.500s: a directory expected, cannot open: %s", path, strerror(errno));
    for (struct dirent *d; (d = readdir(dir));) {
        if (!is_stored(d->d_name, &ending)) continue;
        Buf file = {0};
        buf_printf(&file, "%s/%s", path, d->d_name);
        *files = mem_resize(*files, (size_t)(*n + 1) * sizeof **files);
        (*files)[(*n)++] = file.data;
    }
    closedir(dir);
    if (*n) qsort(*files, (size_t)*n, sizeof **files, by_name);
    return OK;
}

static void list_file(const char *path, Buf *out) {
    const char *ending;
    struct stat info;
    KvInput in;
    is_stored(path, &ending);
    if (stat(path, &info) != 0) return; // another process has removed it
    Status st = open_input(&in, path);
    if (st.code) buf_printf(out, "damaged                                                 ");
    else
        buf_printf(out, "%-7s %6u tokens  model %016llx %s/%s ", *ending == '.' && ending[1] == 'c' ? "chunk" : "block",
                   in.r.s.head.n_tokens, (unsigned long long)in.r.s.head.model, type_name((int)in.r.s.head.type_k),
                   type_name((int)in.r.s.head.type_v));
    buf_printf(out, "%10lld bytes  ", (long long)info.st_size);
    utf8_escape(out, path, strlen(path));
    buf_str(out, "\n");
    close_input(&in);
}

static Status list(const Options *o, const char *const *files) {
    char **found = NULL;
    int n = 0;
    Buf out = {0};
    (void)o;
    Status st = read_dir(files[0], &found, &n);
    for (int i = 0; i < n; i++) {
        list_file(found[i], &out);
        free(found[i]);
    }
    free(found);
    return st.code ? st : output_buf(&out);
}

static Status remove_files(const Options *o, const char *const *files) {
    int n = o->kv.n_words - 1;
    const char *ending;
    for (int i = 0; i < n; i++) // removes none if one of them is something else
        if (!is_stored(files[i], &ending))
            return status_error(
                QUILL_USAGE,
                "quill kv remove: %.300s: the name of a file expected, as quill kv list shows it; no file was removed",
                files[i]);
    for (int i = 0; i < n; i++)
        if (unlink(files[i]) != 0)
            return status_error(QUILL_IO, "%.300s: cannot remove: %s", files[i], strerror(errno));
    return OK;
}

// ---- the mode -------------------------------------------------------------------------------------------------------

Status kv_run(const Options *o) {
    static const struct {
        const char *name;
        int n_files;
        Status (*run)(const Options *o, const char *const *files);
    } what[] = {{"info", 1, info}, {"check", 1, check}, {"cut", 1, cut},
                {"diff", 2, diff}, {"list", 1, list},   {"remove", INT_MAX, remove_files}};
    const char *word = o->kv.n_words ? o->kv.words[0] : "nothing";
    for (size_t i = 0; i < ARRAY_LEN(what); i++) {
        if (strcmp(word, what[i].name) != 0) continue;
        bool many = what[i].n_files == INT_MAX && o->kv.n_words > 1;
        if (!many && o->kv.n_words - 1 != what[i].n_files)
            return status_error(QUILL_USAGE, "quill kv %s: %s expected, found %d", word,
                                what[i].run == list    ? "1 directory"
                                : what[i].n_files == 1 ? "1 file"
                                : what[i].n_files == 2 ? "2 files"
                                                       : "files of a --kv-dir directory",
                                o->kv.n_words - 1);
        Status st = what[i].run(o, o->kv.words + 1);
        return st.code == QUILL_IO && errno == EPIPE ? OK : st; // a closed pipe is no error
    }
    return status_error(QUILL_USAGE, "quill kv: info, check, cut, diff, list or remove expected, found %.100s", word);
}
