// tests/fuzz_tokenizer.c: libFuzzer over the tokenizer. The input's bytes make a small vocabulary, then a text and its
// trusted parts. `make fuzz-build` builds it.
//
// Every vocabulary has all bytes, so an encoded text must decode to itself.
#include "tokens/pretokenize.h"
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ADDED = 24, MAX_TOKENS = 300, MAX_MERGES = 32 };

typedef struct {
    const uint8_t *data;
    size_t n;
} Input;

static uint8_t take(Input *in) {
    if (in->n == 0) return 0;
    in->n--;
    return *in->data++;
}

static Str take_str(Input *in, size_t max) {
    size_t n = take(in) % (max + 1);
    if (n > in->n) n = in->n;
    Str s = {(const char *)in->data, n};
    in->data += n;
    in->n -= n;
    return s;
}

typedef struct {
    Str tokens[MAX_TOKENS], merges[MAX_MERGES];
    int32_t types[MAX_TOKENS];
    float scores[MAX_TOKENS];
    char names[256][8];
    size_t n, n_merges;
} VocabInput;

static void add(VocabInput *b, Str text, int type, float score) {
    b->tokens[b->n] = text;
    b->types[b->n] = type;
    b->scores[b->n++] = score;
}

static void add_bytes(VocabInput *b, bool spm) {
    if (spm) add(b, str_of("<unk>"), 2, 0);
    if (spm) add(b, str_of("\xe2\x96\x81"), 1, -1);
    for (int i = 0; i < 256; i++) {
        int c = i <= 0x20 ? 0x100 + i : i >= 0x7f && i <= 0xa0 ? 0x121 + i - 0x7f : i == 0xad ? 0x143 : i;
        if (spm) snprintf(b->names[i], sizeof b->names[i], "<0x%02X>", i);
        else if (c < 0x80) snprintf(b->names[i], sizeof b->names[i], "%c", c);
        else snprintf(b->names[i], sizeof b->names[i], "%c%c", 0xc0 | c >> 6, 0x80 | (c & 0x3f));
        add(b, str_of(b->names[i]), spm ? 6 : 1, 0);
    }
}

static Gguf *make_view(Input *in, VocabInput *b, bool spm, bool prefix) {
    add_bytes(b, spm);
    for (int k = take(in) % MAX_ADDED; k > 0; k--) {
        int type = (int8_t)take(in);
        add(b, take_str(in, 9), type > 8 ? 1 : type, (float)(take(in) - 128));
    }
    Gguf *g = gguf_new("fuzz");
    gguf_set_str(g, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    gguf_set_strings(g, "tokenizer.ggml.tokens", b->tokens, b->n);
    gguf_set_ints(g, "tokenizer.ggml.token_type", b->types, b->n);
    gguf_set_floats(g, "tokenizer.ggml.scores", b->scores, b->n);
    gguf_set_bool(g, "tokenizer.ggml.add_space_prefix", prefix);
    for (int k = take(in) % MAX_MERGES; k > 0; k--) b->merges[b->n_merges++] = take_str(in, 12);
    gguf_set_strings(g, "tokenizer.ggml.merges", b->merges, b->n_merges);
    gguf_set_u32(g, "tokenizer.ggml.eos_token_id", (uint32_t)(take(in) - 1));
    if (spm) return g;
    Buf names = {0};
    pretokenizer_names(&names);
    int skip = take(in) % 64;
    char *name = strtok(names.data, " ");
    for (char *next; skip-- > 0 && (next = strtok(NULL, " "));) name = next;
    gguf_set_str(g, "tokenizer.ggml.pre", name);
    buf_free(&names);
    return g;
}

static void require(bool truth, const char *what) {
    if (truth) return;
    fprintf(stderr, "fuzz_tokenizer: %s\n", what);
    abort();
}

static bool says_space(Str s) { // U+2581, which SentencePiece decodes as a space
    for (size_t i = 0; i + 3 <= s.n; i++)
        if (memcmp(s.data + i, "\xe2\x96\x81", 3) == 0) return true;
    return false;
}

static void check_text(const Tokenizer *t, Str text, const uint8_t *trusted, bool spm, bool prefix) {
    size_t max = tokenizer_bound(t, text.n);
    int *ids = mem_alloc((max + 1) * sizeof *ids);
    size_t n = tokenizer_encode(t, text.data, text.n, trusted, ids, max);
    require(n <= max, "the bound is too small");
    require(n == tokenizer_encode(t, text.data, text.n, trusted, NULL, 0), "two calls differ");
    bool added = false; // after such a token SentencePiece adds a space, which decoding keeps
    for (size_t i = 0; i < n; i++) {
        require(ids[i] >= 0 && ids[i] < tokenizer_n(t), "an id is out of range");
        require(trusted || !tokenizer_is_control(t, ids[i]), "untrusted text became a control token");
        added = added || tokenizer_is_control(t, ids[i]);
    }
    Buf out = {0};
    tokenizer_decode(t, ids, n, true, &out);
    bool exact = !spm || (!says_space(text) && !(prefix && (added || tokenizer_n(t) > 258)));
    if (exact) require(out.n == text.n && (text.n == 0 || memcmp(out.data, text.data, text.n) == 0), "no round trip");
    buf_free(&out);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in = {data, size};
    uint8_t flags = take(&in);
    bool spm = flags & 1, prefix = flags & 2;
    VocabInput *b = mem_alloc(sizeof *b);
    Gguf *g = make_view(&in, b, spm, prefix);
    Tokenizer *t;
    Status st = tokenizer_load(g, &t);
    require(st.code == QUILL_OK, st.message);
    gguf_close(g);
    Str text = {(const char *)in.data, in.n};
    uint8_t *trusted = mem_alloc(text.n + 1);
    for (size_t i = 0; i < text.n; i++) trusted[i] = (uint8_t)text.data[i] * 37 >> 5 & 1 || flags & 4;
    check_text(t, text, NULL, spm, prefix);
    check_text(t, text, trusted, spm, prefix);
    free(trusted);
    tokenizer_free(t);
    free(b);
    return 0;
}
