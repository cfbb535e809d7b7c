// tests/rig/vocabularies.c: see tests/rig/vocabularies.h.
#include "tests/rig/vocabularies.h"

#include "tests/rig/testing.h"

int vocabulary_add(TestVocabulary *b, const char *text, int type, float score) {
    b->tokens[b->n] = str_of(text);
    b->types[b->n] = type;
    b->scores[b->n] = score;
    return b->n++;
}

void vocabulary_add_merge(TestVocabulary *b, const char *merge) { b->merges[b->n_merges++] = str_of(merge); }

// The character of a byte in GPT-2's alphabet.
static void alphabet(int byte, char *out) {
    int c = byte;
    if (byte <= 0x20) c = 0x100 + byte;
    else if (byte >= 0x7f && byte <= 0xa0) c = 0x121 + byte - 0x7f;
    else if (byte == 0xad) c = 0x143;
    if (c < 0x80) snprintf(out, 8, "%c", c);
    else snprintf(out, 8, "%c%c", 0xc0 | c >> 6, 0x80 | (c & 0x3f));
}

TestVocabulary *vocabulary_bpe(void) {
    TestVocabulary *b = mem_alloc(sizeof *b);
    for (int i = 0; i < 256; i++) {
        alphabet(i, b->names[i]);
        vocabulary_add(b, b->names[i], GGUF_TOKEN_NORMAL, 0);
    }
    return b;
}

TestVocabulary *vocabulary_spm(void) {
    TestVocabulary *b = mem_alloc(sizeof *b);
    vocabulary_add(b, "<unk>", GGUF_TOKEN_UNKNOWN, 0);
    vocabulary_add(b, "<s>", GGUF_TOKEN_CONTROL, 0);
    vocabulary_add(b, "</s>", GGUF_TOKEN_CONTROL, 0);
    for (int i = 0; i < 256; i++) {
        snprintf(b->names[i], 8, "<0x%02X>", i);
        vocabulary_add(b, b->names[i], GGUF_TOKEN_BYTE, 0);
    }
    return b;
}

Gguf *vocabulary_view(const TestVocabulary *b, const char *model, const char *pre) {
    Gguf *g = gguf_new("made.gguf");
    gguf_set_str(g, "tokenizer.ggml.model", model);
    if (pre) gguf_set_str(g, "tokenizer.ggml.pre", pre);
    gguf_set_strings(g, "tokenizer.ggml.tokens", b->tokens, (size_t)b->n);
    gguf_set_ints(g, "tokenizer.ggml.token_type", b->types, (size_t)b->n);
    gguf_set_floats(g, "tokenizer.ggml.scores", b->scores, (size_t)b->n);
    if (strcmp(model, "gpt2") == 0) gguf_set_strings(g, "tokenizer.ggml.merges", b->merges, (size_t)b->n_merges);
    return g;
}

Tokenizer *vocabulary_load(Gguf *g) {
    Tokenizer *t;
    assert_ok(tokenizer_load(g, &t));
    gguf_close(g);
    return t;
}

Tokenizer *vocabulary_load_bpe(TestVocabulary *b, const char *pre) {
    Tokenizer *t = vocabulary_load(vocabulary_view(b, "gpt2", pre));
    free(b);
    return t;
}

Tokenizer *vocabulary_load_spm(TestVocabulary *b) {
    Tokenizer *t = vocabulary_load(vocabulary_view(b, "llama", NULL));
    free(b);
    return t;
}

void vocabulary_refused(Gguf *g, const char *word) {
    Tokenizer *t;
    Status st = tokenizer_load(g, &t);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_null(t);
    assert_non_null(strstr(st.message, gguf_name(g)));
    if (!strstr(st.message, word)) fail_msg("\"%s\" expected in: %s", word, st.message);
    gguf_close(g);
}

TestVocabulary *vocabulary_small_spm(void) {
    TestVocabulary *b = vocabulary_spm();
    vocabulary_add(b, "▁", GGUF_TOKEN_NORMAL, -10);          // 259
    vocabulary_add(b, "a", GGUF_TOKEN_NORMAL, -11);          // 260
    vocabulary_add(b, "b", GGUF_TOKEN_NORMAL, -12);          // 261
    vocabulary_add(b, "▁a", GGUF_TOKEN_NORMAL, -1);          // 262
    vocabulary_add(b, "ab", GGUF_TOKEN_NORMAL, -2);          // 263
    vocabulary_add(b, "▁ab", GGUF_TOKEN_NORMAL, -3);         // 264
    vocabulary_add(b, "c", GGUF_TOKEN_NORMAL, -13);          // 265
    vocabulary_add(b, "cc", GGUF_TOKEN_NORMAL, -5);          // 266
    vocabulary_add(b, "▁▁", GGUF_TOKEN_NORMAL, -4);          // 267
    vocabulary_add(b, "<tool>", GGUF_TOKEN_USER_DEFINED, 0); // 268
    return b;
}

void vocabulary_check_ids(const Tokenizer *t, const char *text, size_t n, const uint8_t *trusted,
                          const char *expected) {
    int *ids = mem_alloc((tokenizer_bound(t, n) + 1) * sizeof *ids);
    size_t n_ids = tokenizer_encode(t, text, n, trusted, ids, tokenizer_bound(t, n));
    assert_true(n_ids <= tokenizer_bound(t, n));
    Buf got = {0};
    buf_str(&got, "");
    for (size_t i = 0; i < n_ids; i++) buf_printf(&got, "%s%d", i ? " " : "", ids[i]);
    if (strcmp(got.data, expected) != 0) fail_msg("\"%s\": %s expected, %s found", text, expected, got.data);
    buf_free(&got);
    free(ids);
}

void vocabulary_ids_of(const Tokenizer *t, const char *text, const char *expected) {
    vocabulary_check_ids(t, text, strlen(text), NULL, expected);
}

void vocabulary_trusted_ids_of(const Tokenizer *t, const char *text, const char *expected) {
    uint8_t trusted[256];
    memset(trusted, 1, sizeof trusted);
    vocabulary_check_ids(t, text, strlen(text), trusted, expected);
}

void vocabulary_check_round_trip(const Tokenizer *t, const char *text, size_t n) {
    size_t max = tokenizer_bound(t, n);
    int *ids = mem_alloc((max + 1) * sizeof *ids);
    size_t n_ids = tokenizer_encode(t, text, n, NULL, ids, max);
    assert_true(n_ids <= max);
    Buf joined = {0}, whole = {0};
    for (size_t i = 0; i < n_ids; i++) {
        assert_in_range(ids[i], 0, tokenizer_n(t) - 1);
        Str s = tokenizer_stream_piece(t, ids[i], i == 0);
        buf_append(&joined, s.data, s.n);
    }
    tokenizer_decode(t, ids, n_ids, false, &whole);
    assert_int_equal(whole.n, n);
    if (n) assert_memory_equal(whole.data, text, n);
    assert_int_equal(joined.n, n);
    if (n) assert_memory_equal(joined.data, text, n);
    buf_free(&joined);
    buf_free(&whole);
    free(ids);
}
