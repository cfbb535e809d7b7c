// kv.c: see kv.h.
#define _GNU_SOURCE
#include "kv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels.h"
#include "kvframes.h"
#include "output.h"

// ---- a file that is read --------------------------------------------------------------------------------------------

typedef struct {
    int fd;
    KvReader r;
} KvInput;

static ssize_t read_fd(void *arg, void *out, size_t n) { return read(*(int *)arg, out, n); }

static Status open_input(KvInput *in, const char *path) {
    bool piped = strcmp(path, "-") == 0;
    in->fd = piped ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    in->r = (KvReader){.name = piped ? "stdin" : path, .read = read_fd, .arg = &in->fd};
    if (in->fd < 0) return status_error(QUILL_IO, "%.500s: cannot open: %s", path, strerror(errno));
    return kvreader_head(&in->r);
}

static void close_input(KvInput *in) {
    kvreader_free(&in->r);
    if (in->fd > STDIN_FILENO) close(in->fd);
}

// Reads to the end what nobody wants to see.
static Status skip_rows(KvReader *r) {
    while (kvreader_more(r)) {
        KvChunk c;
        const uint8_t *rows;
        TRY(kvreader_rows(r, &c, &rows));
    }
    return OK;
}

static size_t k_bytes(const KvHead *h) { return (size_t)h->n_kv_heads * h->head_dim * kv_type_bytes((int)h->type_k); }
static size_t v_bytes(const KvHead *h) { return (size_t)h->n_kv_heads * h->head_dim * kv_type_bytes((int)h->type_v); }

static Status say(Buf *out) {
    bool gone = false;
    Status st = output_write(out->data, out->n, &gone);
    buf_free(out);
    return st;
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
        buf_printf(&out, "KV         K in %s, V in %s, exact\n", type_name((int)h->type_k), type_name((int)h->type_v));
        buf_printf(&out, "shape      %u layers, %u KV heads of %u elements\n", h->n_layers, h->n_kv_heads, h->head_dim);
        buf_printf(&out, "tokens     %u, K and V of %u, %zu bytes each\n", h->n_tokens, h->n_slots,
                   (k_bytes(h) + v_bytes(h)) * h->n_layers);
        st = say(&out);
    }
    close_input(&in);
    return st;
}

static Status check_all(KvReader *r, int *n_logits) {
    const int *tokens;
    const float *logits;
    TRY(kvreader_tokens(r, INT_MAX, &tokens));
    TRY(skip_rows(r));
    TRY(kvreader_last(r, 0, &logits, n_logits));
    TRY(kvreader_end(r));
    return kvreader_eof(r);
}

static Status check(const Options *o, const char *const *files) {
    (void)o;
    KvInput in;
    int n_logits;
    Status st = open_input(&in, files[0]);
    if (!st.code) st = check_all(&in.r, &n_logits);
    if (!st.code) {
        Buf out = {0};
        buf_printf(&out, "good       %u frames, %zu bytes; %u tokens, K and V of %u, %d logits after them\n",
                   in.r.s.n_frames, in.r.at, in.r.s.head.n_tokens, in.r.s.head.n_slots, n_logits);
        st = say(&out);
    }
    close_input(&in);
    return st;
}

// ---- cut ------------------------------------------------------------------------------------------------------------

// The chunk's slots below n_slots.
static Status copy_chunk(KvWriter *w, const KvChunk *c, const uint8_t *rows, uint32_t n_slots) {
    if (c->first >= n_slots) return OK;
    KvChunk kept = *c;
    if (kept.n > n_slots - c->first) kept.n = n_slots - c->first;
    size_t k = k_bytes(&w->s.head), v = v_bytes(&w->s.head);
    uint8_t *room = kvwriter_room(w, kept);
    memcpy(room, rows, kept.n * k);
    memcpy(room + kept.n * k, rows + c->n * k, kept.n * v);
    return kvwriter_rows(w);
}

// All of the input is read, so that what is cut from a damaged file is not whole either.
static Status cut_stream(KvReader *r, uint32_t n, int fd) {
    const KvHead *h = &r->s.head;
    const int *tokens;
    const float *logits;
    int n_logits;
    KvHead head = *h;
    if (n < head.n_tokens) head.n_tokens = n;
    if (n < head.n_slots) head.n_slots = n;
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
    if (!st.code) st = kvreader_last(r, 0, &logits, &n_logits);
    if (!st.code && logits && head.n_tokens == h->n_tokens) st = kvwriter_last(&w, logits, n_logits);
    if (!st.code) st = kvreader_end(r);
    if (!st.code) st = kvreader_eof(r);
    if (!st.code) st = kvwriter_end(&w);
    kvwriter_free(&w);
    return st;
}

static Status cut(const Options *o, const char *const *files) {
    if (!o->kv_out || o->predict < 1)
        return status_error(QUILL_USAGE, "quill kv cut: -n N and --kv-out FILE expected, one of them is missing");
    bool piped = strcmp(o->kv_out, "-") == 0;
    if (piped && isatty(STDOUT_FILENO))
        return status_error(QUILL_USAGE, "--kv-out: a file or a pipe expected, found a terminal");
    KvInput in;
    FileDraft draft;
    Status st = open_input(&in, files[0]);
    if (!st.code && piped) st = cut_stream(&in.r, (uint32_t)o->predict, STDOUT_FILENO);
    else if (!st.code) {
        st = file_draft(o->kv_out, &draft);
        if (!st.code) st = file_publish(&draft, cut_stream(&in.r, (uint32_t)o->predict, draft.fd));
    }
    close_input(&in);
    return st;
}

// ---- diff -----------------------------------------------------------------------------------------------------------

// What one file holds, in memory.
typedef struct {
    KvHead head;
    int *tokens;
    uint8_t **k, **v; // (n_layers) (n_slots, n_kv_heads, head_dim) each
} Held;

static void held_free(Held *a) {
    for (uint32_t i = 0; a->k && i < a->head.n_layers; i++) free(a->k[i]), free(a->v[i]);
    free(a->k);
    free(a->v);
    free(a->tokens);
}

// Rooms grow with the chunks that come, not with what a header promises.
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
        size_t k = k_bytes(h), v = v_bytes(h), end = (size_t)c.first + c.n;
        a->k[c.layer] = mem_resize(a->k[c.layer], end * k);
        a->v[c.layer] = mem_resize(a->v[c.layer], end * v);
        memcpy(a->k[c.layer] + c.first * k, rows, c.n * k);
        memcpy(a->v[c.layer] + c.first * v, rows + c.n * k, c.n * v);
    }
    TRY(kvreader_last(r, 0, &logits, &n_logits));
    TRY(kvreader_end(r));
    return kvreader_eof(r);
}

static Status hold_file(const char *path, Held *a) {
    KvInput in;
    Status st = open_input(&in, path);
    if (!st.code) st = hold(&in.r, a);
    close_input(&in);
    return st;
}

static double value_at(const uint8_t *plane, uint32_t type, size_t i) {
    float f;
    uint16_t bits;
    if (type == TYPE_F32) memcpy(&f, plane + 4 * i, sizeof f);
    else memcpy(&bits, plane + 2 * i, sizeof bits), f = type == TYPE_F16 ? half_float(bits) : bf16_float(bits);
    return f;
}

// The slots' values side by side: "differs in 3 of 1024, at most 0.5, relative L2 1.2e-3; slot 17 first".
static void diff_plane(Buf *out, const char *what, uint32_t layer, const uint8_t *a, uint32_t type_a, const uint8_t *b,
                       uint32_t type_b, size_t n_slots, size_t row) {
    size_t n_other = 0, first = 0;
    double most = 0, sum = 0, norm = 0;
    for (size_t i = 0; i < n_slots * row; i++) {
        double x = value_at(a, type_a, i), y = value_at(b, type_b, i), d = fabs(x - y);
        bool same = x == y || (isnan(x) && isnan(y));
        if (!same && n_other++ == 0) first = i / row;
        if (!same && !(d <= most)) most = d;
        sum += same ? 0 : d * d;
        norm += x * x;
    }
    if (n_other == 0) return;
    buf_printf(out, "layer %-4u %s: %zu of %zu values differ, from slot %zu on, by %.3g at most, relative L2 %.3g\n",
               layer, what, n_other, n_slots * row, first, most, sqrt(sum / norm));
}

static void diff_heads(Buf *out, const KvHead *a, const KvHead *b) {
    const struct {
        const char *what;
        unsigned long long a, b;
    } fields[] = {{"model", a->model, b->model},
                  {"tokenizer", a->tokenizer, b->tokenizer},
                  {"RoPE", a->rope, b->rope},
                  {"type of K", a->type_k, b->type_k},
                  {"type of V", a->type_v, b->type_v},
                  {"layers", a->n_layers, b->n_layers},
                  {"KV heads", a->n_kv_heads, b->n_kv_heads},
                  {"elements a head", a->head_dim, b->head_dim},
                  {"tokens", a->n_tokens, b->n_tokens},
                  {"slots", a->n_slots, b->n_slots}};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (fields[i].a != fields[i].b)
            buf_printf(out, i < 3 ? "%s: %016llx and %016llx\n" : "%s: %llu and %llu\n", fields[i].what, fields[i].a,
                       fields[i].b);
}

// What both have, up to the first token in which they part: behind it nothing is comparable.
static void diff_held(Buf *out, const Held *a, const Held *b) {
    const KvHead *h = &a->head;
    diff_heads(out, h, &b->head);
    uint32_t n = h->n_tokens < b->head.n_tokens ? h->n_tokens : b->head.n_tokens, same = 0;
    while (same < n && a->tokens[same] == b->tokens[same]) same++;
    if (same < n) buf_printf(out, "token %u: %d and %d\n", same, a->tokens[same], b->tokens[same]);
    if (h->n_layers != b->head.n_layers || h->n_kv_heads != b->head.n_kv_heads || h->head_dim != b->head.head_dim)
        return;
    if (same > h->n_slots) same = h->n_slots;
    if (same > b->head.n_slots) same = b->head.n_slots;
    size_t row = (size_t)h->n_kv_heads * h->head_dim;
    for (uint32_t l = 0; l < h->n_layers && same > 0; l++) {
        diff_plane(out, "K", l, a->k[l], h->type_k, b->k[l], b->head.type_k, same, row);
        diff_plane(out, "V", l, a->v[l], h->type_v, b->v[l], b->head.type_v, same, row);
    }
}

static Status diff(const Options *o, const char *const *files) {
    (void)o;
    Held a = {0}, b = {0};
    Buf out = {0};
    Status st = hold_file(files[0], &a);
    if (!st.code) st = hold_file(files[1], &b);
    if (!st.code) {
        diff_held(&out, &a, &b);
        if (out.n == 0) buf_str(&out, "same       tokens, K and V\n");
        st = say(&out);
    }
    held_free(&a);
    held_free(&b);
    return st;
}

// ---- the mode -------------------------------------------------------------------------------------------------------

Status kv_run(const Options *o) {
    static const struct {
        const char *name;
        int n_files;
        Status (*run)(const Options *o, const char *const *files);
    } what[] = {{"info", 1, info}, {"check", 1, check}, {"cut", 1, cut}, {"diff", 2, diff}};
    const char *word = o->n_words ? o->words[0] : "nothing";
    for (size_t i = 0; i < ARRAY_LEN(what); i++) {
        if (strcmp(word, what[i].name) != 0) continue;
        if (o->n_words - 1 != what[i].n_files)
            return status_error(QUILL_USAGE, "quill kv %s: %d file%s expected, found %d", word, what[i].n_files,
                                what[i].n_files == 1 ? "" : "s", o->n_words - 1);
        Status st = what[i].run(o, o->words + 1);
        return st.code == QUILL_IO && errno == EPIPE ? OK : st; // a reader that leaves is a quiet end
    }
    return status_error(QUILL_USAGE, "quill kv: info, check, cut or diff expected, found %.100s", word);
}
