// tests/fuzz_hf.c: libFuzzer over config.json and tokenizer.json. The input's first byte picks one; after a
// tokenizer.json a zero byte and a text may follow, which is encoded.
// `make fuzz-build` builds it.
#include "hf/hf.h"
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void check(Status st) {
    if (st.code != QUILL_OK && (st.code != QUILL_MODEL || !st.message[0])) abort();
}

static void encode(const Tokenizer *t, Str text, bool trust) {
    size_t bound = tokenizer_bound(t, text.n);
    int *ids = mem_alloc((bound + 1) * sizeof *ids);
    uint8_t *trusted = mem_alloc(text.n + 1);
    memset(trusted, 1, text.n + 1);
    size_t n = tokenizer_encode(t, text.data, text.n, trust ? trusted : NULL, ids, bound);
    if (n > bound) abort();
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= tokenizer_n(t) || (!trust && tokenizer_is_control(t, ids[i]) && text.n == 0))
            abort();
    Buf back = {0};
    tokenizer_decode(t, ids, n, true, &back);
    buf_free(&back);
    free(trusted);
    free(ids);
}

static void read_tokenizer(Str input) {
    const char *zero = memchr(input.data, 0, input.n);
    Str json = {input.data, zero ? (size_t)(zero - input.data) : input.n};
    Str text = zero ? (Str){zero + 1, input.n - json.n - 1} : (Str){"a b", 3};
    Gguf *g = gguf_new("fuzz");
    Tokenizer *t;
    Status st = hf_tokenizer_memory("tokenizer.json", json, NULL, g);
    check(st);
    if (!st.code) {
        st = tokenizer_load(g, &t);
        check(st);
        if (!st.code) {
            encode(t, text, true);
            encode(t, text, false);
            tokenizer_free(t);
        }
    }
    gguf_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n == 0) return 0;
    // a sanitizer sees reads past the end
    char *copy = mem_resize(mem_copy((const char *)data + 1, n - 1), n - (n > 1));
    Str input = {copy, n - 1};
    if (data[0] & 1) read_tokenizer(input);
    else {
        Gguf *g = gguf_new("fuzz");
        check(hf_config_memory("fuzz", input, g));
        gguf_close(g);
    }
    free(copy);
    return 0;
}
