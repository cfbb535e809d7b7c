// kv/kvframes.c: see kv/kvframes.h.
#include "kv/kvframes.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fd.h"
#include "base/signals.h"
#include "kernels.h"

static const char magic[8] = "QUILLKV\n";
enum {
    VERSION = 3,
    FRAME = 8,      // bytes before a payload: kind, length
    CHECK = 8,      // bytes after it
    STEP = 1 << 20, // the most bytes allocated before they have arrived
    MOST_TOKENS = 1 << 28,
    MOST_LAYERS = 1 << 16,
    MOST_HEADS = 1 << 12,
    MOST_HEAD_DIM = 1 << 12,
    MOST_VOCAB = 1 << 24,
    MOST_STATE = 1 << 26, // floats of a layer's state
};
// Numbers have the same bytes in the file as in memory: quill runs only on little-endian machines.

// ---- frames ---------------------------------------------------------------------------------------------------------

static void make_room(KvStream *s, size_t n) {
    if (n <= s->cap) return;
    s->cap = n > 2 * s->cap ? n : 2 * s->cap;
    s->frame = mem_resize(s->frame, s->cap);
}

// Each checksum has the previous one as its seed and so covers all bytes up to it: a frame that is missing, repeated or
// from another file is detected.
static uint64_t frame_check(const KvStream *s, size_t n) { return XXH3_64bits_withSeed(s->frame, n, s->check); }

void kv_start(uint8_t out[KV_START]) {
    uint32_t version = VERSION;
    memcpy(out, magic, sizeof magic);
    memcpy(out + sizeof magic, &version, sizeof version);
}

uint32_t kv_group(int type_k, int type_v) { return kv_any_sealed(type_k, type_v) ? SEAL : 1; }

KvLayerShape kv_layer_shape(const KvHead *h, uint32_t layer) {
    if (layer + h->n_windowed >= h->n_layers)
        return (KvLayerShape){(int)h->window_heads, (int)h->window_dim, (int)h->window_v_dim};
    return (KvLayerShape){(int)h->n_kv_heads, (int)h->head_dim, (int)h->v_dim};
}

size_t kv_frame_keys(const KvHead *h, uint32_t layer, size_t n) {
    KvLayerShape s = kv_layer_shape(h, layer);
    return kv_moved_bytes((int)h->type_k, s.k_dim, n) * (size_t)s.n_kv_heads;
}

size_t kv_frame_rows(const KvHead *h, uint32_t layer, size_t n) {
    KvLayerShape s = kv_layer_shape(h, layer);
    size_t v = s.v_dim > 0 ? kv_moved_bytes((int)h->type_v, s.v_dim, n) : 0;
    return kv_frame_keys(h, layer, n) + v * (size_t)s.n_kv_heads;
}

bool kv_frame_holds(const KvHead *h, size_t n) {
    for (uint32_t i = 0; i < h->n_layers; i++)
        if (kv_frame_rows(h, i, n) > UINT32_MAX - sizeof(KvChunk)) return false;
    return true;
}

static void pass_chunk(KvStream *s, KvChunk c) {
    bool last = c.layer + 1 == s->head.n_layers;
    s->next = last ? (KvChunk){0, c.first + c.n, 0} : (KvChunk){c.layer + 1, c.first, c.n};
}

// ---- writing --------------------------------------------------------------------------------------------------------

// Starts a frame and returns where its payload goes.
static uint8_t *begin_frame(KvWriter *w, const char *kind, size_t n) {
    uint32_t length = (uint32_t)n;
    assert(length == n);
    w->s.n = FRAME + n;
    make_room(&w->s, FRAME + n + CHECK);
    memcpy(w->s.frame, kind, 4);
    memcpy(w->s.frame + 4, &length, 4);
    return w->s.frame + FRAME;
}

static Status write_bytes(KvWriter *w, const void *bytes, size_t n) {
    if (w->memory) {
        buf_append(w->memory, bytes, n);
        return OK;
    }
    Status st = fd_write_all(w->fd, bytes, n);
    if (st.code == QUILL_IO && errno == EPIPE) w->pipe_closed = true;
    return st;
}

static Status send_frame(KvWriter *w) {
    w->s.check = frame_check(&w->s, w->s.n);
    memcpy(w->s.frame + w->s.n, &w->s.check, CHECK);
    w->s.n_frames++;
    return write_bytes(w, w->s.frame, w->s.n + CHECK);
}

static Status write_frame(KvWriter *w, const char *kind, const void *payload, size_t n) {
    uint8_t *at = begin_frame(w, kind, n);
    if (n) memcpy(at, payload, n);
    return send_frame(w);
}

Status kvwriter_head(KvWriter *w, const KvHead *h) {
    uint8_t start[KV_START];
    kv_start(start);
    w->s.head = *h;
    TRY(write_bytes(w, start, sizeof start));
    return write_frame(w, "HEAD", h, KV_HEAD);
}

Status kvwriter_link(KvWriter *w, const KvLink *l) { return write_frame(w, "LINK", l, sizeof *l); }

Status kvwriter_tokens(KvWriter *w, const int *tokens) {
    return write_frame(w, "TOKS", tokens, w->s.head.n_tokens * sizeof *tokens);
}

uint8_t *kvwriter_room(KvWriter *w, KvChunk c) {
    KvChunk next = w->s.next;
    assert(c.layer == next.layer && c.first == next.first && (c.n == next.n || (next.n == 0 && c.n > 0)));
    assert(c.n <= w->s.head.n_slots - c.first);
    assert(c.n % w->s.head.group == 0 || c.first + c.n == w->s.head.n_slots);
    uint8_t *at = begin_frame(w, "ROWS", sizeof c + kv_frame_rows(&w->s.head, c.layer, c.n));
    memcpy(at, &c, sizeof c);
    pass_chunk(&w->s, c);
    return at + sizeof c;
}

Status kvwriter_rows(KvWriter *w) { return send_frame(w); }

Status kvwriter_state(KvWriter *w, uint32_t layer, const float *values, size_t n) {
    assert(n > 0 && n <= MOST_STATE && w->s.next.first == w->s.head.n_slots);
    uint8_t *at = begin_frame(w, "STAT", sizeof layer + n * sizeof *values);
    memcpy(at, &layer, sizeof layer);
    memcpy(at + sizeof layer, values, n * sizeof *values);
    return send_frame(w);
}

Status kvwriter_states(KvWriter *w, const KvStates *states, int state) {
    const StatePool *p = &states->pool;
    if (p->n_layers == 0 || state < 0) return OK;
    float *values = mem_alloc(p->floats * sizeof *values);
    Status st = OK;
    for (int layer = 0; layer < p->n_layers && !st.code; layer++) {
        kvstates_load(states, state, layer, values);
        st = kvwriter_state(w, (uint32_t)layer, values, p->floats);
    }
    free(values);
    return st;
}

Status kvwriter_last(KvWriter *w, const float *logits, int n) {
    assert(n > 0 && n <= MOST_VOCAB && w->s.next.first == w->s.head.n_tokens);
    return write_frame(w, "LAST", logits, (size_t)n * sizeof *logits);
}

Status kvwriter_end(KvWriter *w) {
    assert(w->s.next.first == w->s.head.n_slots);
    return write_frame(w, "DONE", &w->s.n_frames, sizeof w->s.n_frames);
}

void kvwriter_free(KvWriter *w) { free(w->s.frame); }

// ---- reading --------------------------------------------------------------------------------------------------------

ssize_t kvreader_from_fd(void *fd, void *out, size_t n) { return fd_read(*(int *)fd, out, n); }

static Status wrong(const KvReader *r, size_t at, const char *format, ...) __attribute__((format(printf, 3, 4)));
static Status wrong(const KvReader *r, size_t at, const char *format, ...) {
    char what[600];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return status_error(QUILL_MODEL, "%.300s: byte %zu: %s", r->name, at, what);
}

// Reads up to n bytes; none: the end. A signal of base/signals.h ends the wait for them (fd_stopped).
static Status read_some(KvReader *r, void *out, size_t n, size_t *got) {
    ssize_t done;
    do done = r->read(r->arg, out, n);
    while (done < 0 && errno == EINTR && !signals_came());
    if (done < 0 && errno == EINTR) return fd_stopped();
    if (done < 0) return status_error(QUILL_IO, "%.300s: byte %zu: cannot read: %s", r->name, r->at, strerror(errno));
    *got = (size_t)done;
    return OK;
}

// Appends n bytes of the stream to the current frame.
static Status take(KvReader *r, size_t n, const char *what) {
    size_t end = r->s.n + n, got;
    while (r->s.n < end) {
        size_t step = end - r->s.n < STEP ? end - r->s.n : STEP;
        make_room(&r->s, r->s.n + step);
        TRY(read_some(r, r->s.frame + r->s.n, step, &got));
        if (got == 0)
            return wrong(r, r->at, "%zu more bytes of %s expected, found the end: the file was cut", end - r->s.n,
                         what);
        r->s.n += got;
        r->at += got;
    }
    return OK;
}

static Status take_start(KvReader *r) {
    TRY(take(r, KV_START, "the magic and the version"));
    uint32_t version;
    memcpy(&version, r->s.frame + sizeof magic, sizeof version);
    if (memcmp(r->s.frame, magic, sizeof magic) != 0)
        return wrong(r, 0, "the magic QUILLKV expected, other bytes found: not a KV file of quill");
    if (version != VERSION)
        return wrong(r, sizeof magic, "version %d expected, %u found; write it again with this quill", VERSION,
                     version);
    return OK;
}

// Reads kind and length of the next frame, unless an earlier call has done so.
static Status take_beginning(KvReader *r, const char *expected) {
    if (r->started) return OK;
    r->s.n = 0;
    TRY(take(r, FRAME, expected));
    r->started = true;
    return OK;
}

// Reads the beginning of a frame that must be of this kind. The caller checks *length.
static Status take_kind(KvReader *r, const char *kind, size_t *length) {
    uint32_t n;
    TRY(take_beginning(r, kind));
    r->started = false;
    if (memcmp(r->s.frame, kind, 4) != 0) {
        Buf found = {0};
        utf8_escape(&found, (const char *)r->s.frame, 4);
        bool block = memcmp(r->s.frame, "LINK", 4) == 0;
        Status st = wrong(r, r->at - FRAME, "a frame %s expected, %s found%s", kind, found.data,
                          block ? ": this is a block of --kv-dir, not a sequence; give its directory to --kv-dir" : "");
        buf_free(&found);
        return st;
    }
    memcpy(&n, r->s.frame + 4, sizeof n);
    *length = n;
    return OK;
}

static Status wrong_length(const KvReader *r, const char *kind, size_t expected, size_t found) {
    return wrong(r, r->at - 4, "a frame %s of %zu bytes expected, %zu found", kind, expected, found);
}

// Reads the rest of the current frame and verifies its checksum.
static Status take_payload(KvReader *r, const char *kind, size_t length) {
    uint64_t found;
    size_t start = r->at - FRAME;
    TRY(take(r, length + CHECK, kind));
    memcpy(&found, r->s.frame + FRAME + length, CHECK);
    uint64_t expected = frame_check(&r->s, FRAME + length);
    if (found != expected)
        return wrong(r, r->at - CHECK,
                     "checksum %016llx of the frame %s from byte %zu expected, %016llx found: damaged",
                     (unsigned long long)expected, kind, start, (unsigned long long)found);
    r->s.check = found;
    r->s.n_frames++;
    return OK;
}

static Status take_frame(KvReader *r, const char *kind, size_t expected) {
    size_t length;
    TRY(take_kind(r, kind, &length));
    if (length != expected) return wrong_length(r, kind, expected, length);
    return take_payload(r, kind, length);
}

// ---- the header -----------------------------------------------------------------------------------------------------

size_t kvreader_offset(size_t field) { return KV_START + FRAME + field; }

static Status check_types(const KvReader *r) {
    const KvHead *h = &r->s.head;
    const uint32_t types[] = {h->type_k, h->type_v};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (types[i] > INT_MAX || !kv_type_name((int)types[i]))
            return wrong(r, kvreader_offset(offsetof(KvHead, type_k) + 4 * i), "a type of KV expected (%s), %u found",
                         kv_type_list(), types[i]);
    return OK;
}

static Status check_head(const KvReader *r) {
    TRY(check_types(r));
    const KvHead *h = &r->s.head;
    uint32_t group = kv_group((int)h->type_k, (int)h->type_v), most = group > 1 ? SEAL_HEAD : MOST_HEAD_DIM;
    bool windowed = h->n_windowed > 0;
    const struct {
        const char *what;
        size_t at;
        uint32_t low, high, found;
    } limits[] = {
        {"layers", offsetof(KvHead, n_layers), 1, MOST_LAYERS, h->n_layers},
        {"KV heads", offsetof(KvHead, n_kv_heads), 1, MOST_HEADS, h->n_kv_heads},
        {"elements per head", offsetof(KvHead, head_dim), 1, most, h->head_dim},
        {"elements of V per head", offsetof(KvHead, v_dim), 0, most, h->v_dim},
        {"layers with a window", offsetof(KvHead, n_windowed), 0, h->n_layers, h->n_windowed},
        {"KV heads of these", offsetof(KvHead, window_heads), windowed, windowed ? MOST_HEADS : 0, h->window_heads},
        {"elements per head of these", offsetof(KvHead, window_dim), windowed, windowed ? most : 0, h->window_dim},
        {"elements of V of these", offsetof(KvHead, window_v_dim), 0, windowed ? most : 0, h->window_v_dim},
        {"tokens", offsetof(KvHead, n_tokens), 0, MOST_TOKENS, h->n_tokens},
        {"slots", offsetof(KvHead, n_slots), 0, h->n_tokens, h->n_slots},
        {"(class of exactness)", offsetof(KvHead, exactness), KV_EXACT, KV_EXACT, h->exactness},
        {"slots per group", offsetof(KvHead, group), group, group, h->group},
        {"(whether K is rotated)", offsetof(KvHead, rotated), 0, 1, h->rotated},
    };
    for (size_t i = 0; i < ARRAY_LEN(limits); i++)
        if (limits[i].found < limits[i].low || limits[i].found > limits[i].high)
            return wrong(r, kvreader_offset(limits[i].at), "%u to %u %s expected, %u found", limits[i].low,
                         limits[i].high, limits[i].what, limits[i].found);
    return OK;
}

Status kvreader_head(KvReader *r) {
    TRY(take_start(r));
    TRY(take_frame(r, "HEAD", KV_HEAD));
    memcpy(&r->s.head, r->s.frame + FRAME, KV_HEAD);
    return check_head(r);
}

static Status match_fingerprints(const KvReader *r, const KvHead *want) {
    static const struct {
        const char *what, *also;
        size_t at;
    } prints[] = {{"model", "", offsetof(KvHead, model)},
                  {"tokenizer", "", offsetof(KvHead, tokenizer)},
                  {"RoPE", "; for a model with LongRoPE also with a -c on the same side of its original context",
                   offsetof(KvHead, rope)}};
    for (size_t i = 0; i < ARRAY_LEN(prints); i++) {
        uint64_t expected, found;
        memcpy(&expected, (const char *)want + prints[i].at, sizeof expected);
        memcpy(&found, (const char *)&r->s.head + prints[i].at, sizeof found);
        if (expected != found)
            return wrong(r, kvreader_offset(prints[i].at),
                         "the %s's fingerprint %016llx expected, %016llx found; load it with the model that saved it%s",
                         prints[i].what, (unsigned long long)expected, (unsigned long long)found, prints[i].also);
    }
    return OK;
}

static Status match_type(const KvReader *r, size_t at, const char *what, const char *flag, uint32_t want,
                         uint32_t found) {
    if (want == found) return OK;
    return wrong(r, kvreader_offset(at), "%s in %s expected, %s found; start with the %s that it was saved with", what,
                 type_name((int)want), type_name((int)found), flag);
}

Status kvreader_match(const KvReader *r, const KvHead *want) {
    const KvHead *h = &r->s.head;
    TRY(match_fingerprints(r, want));
    TRY(match_type(r, offsetof(KvHead, type_k), "K", "-ctk", want->type_k, h->type_k));
    TRY(match_type(r, offsetof(KvHead, type_v), "V", "-ctv", want->type_v, h->type_v));
    if (h->rotated != want->rotated)
        return wrong(r, kvreader_offset(offsetof(KvHead, rotated)), "%s",
                     want->rotated ? "rotated K expected, plain K found; start without --kv-rotate"
                                   : "plain K expected, rotated K found; start with --kv-rotate");
    const struct {
        const char *what;
        size_t at;
        uint32_t want, found;
    } shape[] = {{"layers", offsetof(KvHead, n_layers), want->n_layers, h->n_layers},
                 {"KV heads", offsetof(KvHead, n_kv_heads), want->n_kv_heads, h->n_kv_heads},
                 {"elements per head", offsetof(KvHead, head_dim), want->head_dim, h->head_dim},
                 {"elements of V per head", offsetof(KvHead, v_dim), want->v_dim, h->v_dim},
                 {"layers with a window", offsetof(KvHead, n_windowed), want->n_windowed, h->n_windowed},
                 {"KV heads of these", offsetof(KvHead, window_heads), want->window_heads, h->window_heads},
                 {"elements per head of these", offsetof(KvHead, window_dim), want->window_dim, h->window_dim},
                 {"elements of V of these", offsetof(KvHead, window_v_dim), want->window_v_dim, h->window_v_dim}};
    for (size_t i = 0; i < ARRAY_LEN(shape); i++)
        if (shape[i].want != shape[i].found)
            return wrong(r, kvreader_offset(shape[i].at), "%u %s expected, %u found", shape[i].want, shape[i].what,
                         shape[i].found);
    return OK;
}

// ---- link, tokens, rows, end ----------------------------------------------------------------------------------------

Status kvreader_link(KvReader *r, KvLink *l) {
    TRY(take_frame(r, "LINK", sizeof *l));
    memcpy(l, r->s.frame + FRAME, sizeof *l);
    return OK;
}

Status kvreader_block(KvReader *r, KvLink *l, bool *is_block) {
    TRY(take_beginning(r, "LINK or TOKS"));
    *is_block = memcmp(r->s.frame, "LINK", 4) == 0;
    return *is_block ? kvreader_link(r, l) : OK;
}

Status kvreader_tokens(KvReader *r, int n_vocab, const int **tokens) {
    size_t start = r->at + FRAME, n = r->s.head.n_tokens;
    TRY(take_frame(r, "TOKS", n * sizeof **tokens));
    const int *ids = (const int *)(r->s.frame + FRAME);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return wrong(r, start + i * sizeof *ids, "a token from 0 to %d expected, %d found", n_vocab - 1, ids[i]);
    *tokens = ids;
    return OK;
}

// The number of slots of a chunk whose first layer has `bytes` bytes of rows; `left` slots are still to come. Sealed
// types: all of them or whole groups. If `bytes` fits no number, the caller's check of the length fails.
static size_t chunk_slots(const KvHead *h, size_t bytes, size_t left) {
    if (bytes == kv_frame_rows(h, 0, left)) return left;
    size_t n = bytes / kv_frame_rows(h, 0, h->group) * h->group;
    if (n < h->group) n = h->group;
    return n < left ? n : left;
}

bool kvreader_more(const KvReader *r) { return r->s.next.first < r->s.head.n_slots; }

Status kvreader_rows(KvReader *r, KvChunk *c, const uint8_t **rows) {
    const KvChunk *next = &r->s.next;
    const KvHead *h = &r->s.head;
    size_t length;
    TRY(take_kind(r, "ROWS", &length));
    // The frame of a chunk's first layer decides its number of slots; those of the other layers must have as many.
    size_t n = next->n, head = sizeof *c;
    if (n == 0) n = chunk_slots(h, length < head ? 0 : length - head, h->n_slots - next->first);
    size_t expected = head + kv_frame_rows(h, next->layer, n);
    if (length != expected) return wrong_length(r, "ROWS", expected, length);
    TRY(take_payload(r, "ROWS", length));
    memcpy(c, r->s.frame + FRAME, sizeof *c);
    if (c->layer != next->layer || c->first != next->first || c->n != n)
        return wrong(r, r->at - length - CHECK, "layer %u, slots %u + %zu expected, layer %u, slots %u + %u found",
                     next->layer, next->first, n, c->layer, c->first, c->n);
    pass_chunk(&r->s, *c);
    *rows = r->s.frame + FRAME + sizeof *c;
    return OK;
}

Status kvreader_state(KvReader *r, uint32_t layer, const float **values, size_t *n) {
    size_t length, count = *n;
    uint32_t found;
    *values = NULL;
    TRY(take_beginning(r, "STAT, LAST or DONE"));
    if (memcmp(r->s.frame, "STAT", 4) != 0) return OK;
    TRY(take_kind(r, "STAT", &length));
    if (count == 0) count = length < sizeof layer ? 1 : (length - sizeof layer) / sizeof **values;
    if (count < 1 || count > MOST_STATE) count = 1;
    if (length != sizeof layer + count * sizeof **values)
        return wrong_length(r, "STAT", sizeof layer + count * sizeof **values, length);
    TRY(take_payload(r, "STAT", length));
    memcpy(&found, r->s.frame + FRAME, sizeof found);
    if (found != layer)
        return wrong(r, r->at - length - CHECK, "the state of recurrent layer %u expected, that of %u found", layer,
                     found);
    *values = (const float *)(r->s.frame + FRAME + sizeof layer);
    *n = count;
    return OK;
}

Status kvreader_last(KvReader *r, int n_vocab, const float **logits, int *n) {
    const KvHead *h = &r->s.head;
    size_t length;
    *logits = NULL;
    *n = 0;
    TRY(take_beginning(r, "LAST or DONE"));
    if (memcmp(r->s.frame, "LAST", 4) != 0) return OK;
    if (h->n_slots < h->n_tokens || h->n_tokens == 0)
        return wrong(r, r->at - FRAME, "logits after the K and V of all %u tokens expected, found after %u slots",
                     h->n_tokens, h->n_slots);
    TRY(take_kind(r, "LAST", &length));
    size_t count = length / sizeof **logits, most = n_vocab ? (size_t)n_vocab : MOST_VOCAB;
    if (count < 1 || count > most || (n_vocab && count < most)) count = most;
    if (length != count * sizeof **logits) return wrong_length(r, "LAST", count * sizeof **logits, length);
    TRY(take_payload(r, "LAST", length));
    *logits = (const float *)(r->s.frame + FRAME);
    *n = (int)count;
    return OK;
}

Status kvreader_end(KvReader *r) {
    uint32_t found, expected = r->s.n_frames;
    TRY(take_frame(r, "DONE", sizeof found));
    memcpy(&found, r->s.frame + FRAME, sizeof found);
    if (found != expected)
        return wrong(r, r->at - sizeof found - CHECK, "a count of %u frames expected, %u found", expected, found);
    return OK;
}

Status kvreader_eof(KvReader *r) {
    char more;
    size_t n;
    TRY(read_some(r, &more, 1, &n));
    if (n > 0) return wrong(r, r->at, "the end of the file expected, more bytes found: the file is damaged");
    return OK;
}

void kvreader_free(KvReader *r) { free(r->s.frame); }
