// tests/fuzz_kvfile.c: libFuzzer over the frames of a KV file. The input's first byte is flags: make the checksums
// right, so that what lies after them is reached; hand the bytes out in pieces; expect another header; take the rest
// not as the stream but as changes of a good one: three bytes each, where (two bytes; past the end: cut so many) and
// what; and take it for the stream of a block, with a link; and change a good stream of sealed groups; and change a
// good stream with the states of recurrent layers; and expect states of one size in so many layers, as a model does.
#define _GNU_SOURCE
#include "kv/kvframes.h"
#include "formats/sealed.h"
#include "tests/rig/kv_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MEND = 1, PIECES = 2, MISMATCH = 4, CHANGES = 8, LINK = 16, SEALED = 32, STATES = 64, SIZED = 128 };
enum { N_STATES = 2, STATE_FLOATS = 5 };
enum { N_VOCAB = 1000, MOST_GOOD = 8192 };

typedef struct {
    const uint8_t *data;
    size_t n, at, most; // most: bytes a read, as a pipe would
} StreamBytes;

static ssize_t read_memory(void *arg, void *out, size_t n) {
    StreamBytes *m = arg;
    if (n > m->most) n = m->most;
    if (n > m->n - m->at) n = m->n - m->at;
    if (n) memcpy(out, m->data + m->at, n);
    m->at += n;
    return (ssize_t)n;
}

static volatile unsigned sink;

// Of n slots in one layer, as docs/kv-format.md counts them.
static size_t rows_bytes(const KvHead *h, uint32_t layer, size_t n) {
    bool windowed = layer + h->n_windowed >= h->n_layers;
    size_t bytes = 0;
    for (int v = 0; v < 2; v++) {
        int type = (int)(v ? h->type_v : h->type_k);
        uint32_t dim = v ? (windowed ? h->window_v_dim : h->v_dim) : windowed ? h->window_dim : h->head_dim;
        if (dim == 0) continue;
        bool sealed = type != TYPE_F32 && type != TYPE_F16 && type != TYPE_BF16;
        size_t open = sealed ? n % 32 : 0;
        bytes += (n - open) * kv_slot_bytes(type, (int)dim) + open * 4 * dim;
    }
    return bytes * (windowed ? h->window_heads : h->n_kv_heads);
}

// States of layers come in order, and each value can be read. Without SIZED the file says how many and how large.
static Status walk_states(KvReader *r, int flags) {
    const float *values = NULL;
    for (uint32_t layer = 0; !(flags & SIZED) || layer < N_STATES; layer++) {
        size_t n = flags & SIZED ? STATE_FLOATS : 0;
        TRY(kvreader_state(r, layer, &values, &n));
        if (!values) return OK;
        if (n == 0 || (flags & SIZED && n != STATE_FLOATS)) abort();
        for (size_t i = 0; i < n; i++) sink += values[i] > 0;
    }
    return OK;
}

// Every slot of every layer comes once, and each row can be read.
static Status walk(KvReader *r, int flags) {
    bool mismatch = flags & MISMATCH;
    KvLink link;
    const int *tokens;
    TRY(kvreader_head(r));
    KvHead want = r->s.head;
    if (mismatch) want.rope ^= 1;
    TRY(kvreader_match(r, &want));
    if (mismatch) abort();
    if (flags & LINK) TRY(kvreader_link(r, &link));
    TRY(kvreader_tokens(r, N_VOCAB, &tokens));
    for (uint32_t i = 0; i < want.n_tokens; i++)
        if (tokens[i] < 0 || tokens[i] >= N_VOCAB) abort();
    uint64_t n_rows = 0;
    while (kvreader_more(r)) {
        KvChunk c;
        const uint8_t *rows;
        TRY(kvreader_rows(r, &c, &rows));
        if (c.layer >= want.n_layers || c.n == 0 || c.n > want.n_slots || c.first > want.n_slots - c.n) abort();
        if (c.first % want.group || (c.n % want.group && c.first + c.n < want.n_slots)) abort();
        sink += rows[0] + rows[rows_bytes(&want, c.layer, c.n) - 1];
        n_rows += c.n;
    }
    if (n_rows != (uint64_t)want.n_layers * want.n_slots) abort();
    TRY(walk_states(r, flags));
    const float *logits;
    int n_logits;
    TRY(kvreader_last(r, 0, &logits, &n_logits));
    if ((logits != NULL) != (n_logits > 0) || (logits && want.n_slots < want.n_tokens)) abort();
    for (int i = 0; i < n_logits; i++) sink += logits[i] > 0;
    TRY(kvreader_end(r));
    return kvreader_eof(r);
}

static bool write_stream(KvWriter *w, const KvHead *head, uint32_t first_chunk, bool linked, bool states) {
    static const int tokens[40] = {1, 2, 3, 4};
    const float logits[] = {1, 2, 3};
    bool bad = kvwriter_head(w, head).code || (linked && kvwriter_link(w, &(KvLink){.first = 64}).code) ||
               kvwriter_tokens(w, tokens).code;
    for (uint32_t i = 0; i < 4; i++) {
        KvChunk c = {i % 2, 0, first_chunk};
        if (i >= 2) c = (KvChunk){i % 2, first_chunk, head->n_slots - first_chunk};
        memset(kvwriter_room(w, c), 7, rows_bytes(head, c.layer, c.n));
        bad = bad || kvwriter_rows(w).code;
    }
    static const float state[STATE_FLOATS] = {1, -2, 3};
    for (uint32_t i = 0; states && i < N_STATES; i++) bad = bad || kvwriter_state(w, i, state, STATE_FLOATS).code;
    return !bad && !kvwriter_last(w, logits, 3).code && !kvwriter_end(w).code;
}

// A stream of two chunks in two layers and three logits, made once for each combination of flags.
static size_t good_stream(uint8_t *out, int flags) {
    static uint8_t all[2][2][2][MOST_GOOD];
    static ssize_t sizes[2][2][2];
    bool linked = flags & LINK, sealed = flags & SEALED, states = flags & STATES;
    uint8_t *good = all[linked][sealed][states];
    ssize_t n = sizes[linked][sealed][states];
    KvHead head = {.type_v = 1,
                   .n_layers = 2,
                   .n_kv_heads = 1,
                   .head_dim = 2,
                   .v_dim = 2,
                   .n_tokens = 4,
                   .n_slots = 4,
                   .group = 1};
    if (linked) head.n_windowed = 1, head.window_heads = 2, head.window_dim = 3, head.v_dim = 0; // V in K, and its like
    if (sealed) {
        head.type_k = TYPE_Q8_0;
        head.type_v = TYPE_KIVI2;
        head.n_tokens = head.n_slots = 40;
        head.group = SEAL;
        head.rotated = 1;
    }
    if (n == 0) {
        FILE *f = tmpfile();
        KvWriter w = {.fd = fileno(f)};
        if (!write_stream(&w, &head, sealed ? SEAL : 3, linked, states)) abort();
        n = sizes[linked][sealed][states] = pread(w.fd, good, MOST_GOOD, 0);
        kvwriter_free(&w);
        fclose(f);
    }
    memcpy(out, good, (size_t)n);
    return (size_t)n;
}

// Applies the changes; returns the bytes that are left.
static size_t change(uint8_t *file, size_t n, const uint8_t *changes, size_t n_changes) {
    for (; n_changes >= 3; changes += 3, n_changes -= 3) {
        size_t at = (size_t)changes[0] | (size_t)changes[1] << 8;
        if (at < n) file[at] = changes[2];
        else if (changes[2] < n) n -= changes[2];
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 1) return 0;
    int flags = data[0];
    uint8_t *file = malloc(n + MOST_GOOD);
    size_t size = n - 1;
    if (flags & CHANGES) size = change(file, good_stream(file, flags), data + 1, n - 1);
    else memcpy(file, data + 1, n - 1);
    if (flags & MEND) kv_mend(file, size);
    file = mem_resize(file, size + 1); // nothing readable after it
    StreamBytes m = {file, size, 0, flags & PIECES ? 7 : SIZE_MAX};
    KvReader r = {.name = "fuzz.kv", .read = read_memory, .arg = &m};
    Status st = walk(&r, flags);
    if (st.code && (st.code != QUILL_MODEL || !st.message[0])) abort();
    if (r.at != m.at) abort();
    kvreader_free(&r);
    free(file);
    return 0;
}
