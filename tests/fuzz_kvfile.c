// fuzz_kvfile.c: libFuzzer over the frames of a KV file. The input's first byte says how the stream hands its bytes out
// and, by its lowest bit, whether the checksums are made right first, so that what lies behind them is reached.
#include "../kvframes.h"
#include "kv_bytes.h"

#include <stdlib.h>

enum { N_VOCAB = 1000 };

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
static Status walk(KvReader *r, bool match) {
    const int *tokens;
    TRY(kvreader_head(r));
    KvHead want = r->s.head;
    if (match) want.rope ^= 1;
    TRY(kvreader_match(r, &want));
    if (match) abort();
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 1) return 0;
    uint8_t *file = malloc(n); // a copy of its own, with nothing readable behind it
    memcpy(file, data + 1, n - 1);
    if (data[0] & 1) kv_mend(file, n - 1);
    Memory m = {file, n - 1, 0, data[0] & 2 ? 7 : SIZE_MAX};
    KvReader r = {.name = "fuzz.kv", .read = read_memory, .arg = &m};
    Status st = walk(&r, data[0] & 4);
    if (st.code && (st.code != QUILL_MODEL || !st.message[0])) abort();
    if (r.at != m.at) abort();
    kvreader_free(&r);
    free(file);
    return 0;
}
