// fuzz_kvfile.c: libFuzzer over the frames of a KV file. The input's first byte is flags: make the checksums right, so
// that what lies behind them is reached; hand the bytes out in pieces; expect another header; take the rest not as the
// stream but as changes of a good one: three bytes each, where (two bytes; past the end: cut so many) and what; and
// take it for the stream of a block, with a link.
#define _GNU_SOURCE
#include "../kvframes.h"
#include "kv_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MEND = 1, PIECES = 2, MISMATCH = 4, CHANGES = 8, LINK = 16 };
enum { N_VOCAB = 1000, MOST_GOOD = 1024 };

typedef struct {
    const uint8_t *data;
    size_t n, at, most; // most: bytes a read, as a pipe would
} Memory;

static ssize_t read_memory(void *arg, void *out, size_t n) {
    Memory *m = arg;
    if (n > m->most) n = m->most;
    if (n > m->n - m->at) n = m->n - m->at;
    if (n) memcpy(out, m->data + m->at, n);
    m->at += n;
    return (ssize_t)n;
}

static volatile unsigned sink;

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
        size_t of_k = want.type_k == 0 ? 4 : 2, of_v = want.type_v == 0 ? 4 : 2;
        size_t n = (size_t)c.n * want.n_kv_heads * want.head_dim * (of_k + of_v);
        sink += rows[0] + rows[n - 1];
        n_rows += c.n;
    }
    if (n_rows != (uint64_t)want.n_layers * want.n_slots) abort();
    return kvreader_end(r);
}

// A stream of two chunks in two layers, made once.
static size_t good_stream(uint8_t *out, bool linked) {
    static uint8_t both[2][MOST_GOOD];
    static ssize_t sizes[2];
    uint8_t *good = both[linked];
    ssize_t n = sizes[linked];
    const KvHead head = {
        .type_k = 0, .type_v = 1, .n_layers = 2, .n_kv_heads = 1, .head_dim = 2, .n_tokens = 5, .n_slots = 4};
    const int tokens[] = {1, 2, 3, 4, 5};
    const KvChunk chunks[] = {{0, 0, 3}, {1, 0, 3}, {0, 3, 1}, {1, 3, 1}};
    if (n == 0) {
        FILE *f = tmpfile();
        KvWriter w = {.fd = fileno(f)};
        bool bad = kvwriter_head(&w, &head).code || (linked && kvwriter_link(&w, &(KvLink){.first = 8}).code) ||
                   kvwriter_tokens(&w, tokens).code;
        for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
            memset(kvwriter_room(&w, chunks[i]), 7, chunks[i].n * 12);
            bad = bad || kvwriter_rows(&w).code;
        }
        if (bad || kvwriter_end(&w).code) abort();
        n = sizes[linked] = pread(w.fd, good, MOST_GOOD, 0);
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
    if (flags & CHANGES) size = change(file, good_stream(file, flags & LINK), data + 1, n - 1);
    else memcpy(file, data + 1, n - 1);
    if (flags & MEND) kv_mend(file, size);
    file = mem_resize(file, size + 1); // nothing readable behind it
    Memory m = {file, size, 0, flags & PIECES ? 7 : SIZE_MAX};
    KvReader r = {.name = "fuzz.kv", .read = read_memory, .arg = &m};
    Status st = walk(&r, flags);
    if (st.code && (st.code != QUILL_MODEL || !st.message[0])) abort();
    if (r.at != m.at) abort();
    kvreader_free(&r);
    free(file);
    return 0;
}
