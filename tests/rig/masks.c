// tests/rig/masks.c: the masks of grammars, for tests/rig/masks.py.
//
//   masks VOCAB.gguf
// First a line {"eog": [ids], "pieces": [hex or null]}: null for control tokens. Then for each line of stdin,
// {"kind": "regex"|"gbnf"|"schema", "text": T, "prefixes": [[ids]...]}, a line {"error": E} or {"n": bytes of a mask}
// and as many masks as prefixes, bit i of them token i; one of zeros where the prefix is refused. JSON is compact.
#define _GNU_SOURCE // getline
#include "grammar/cache.h"
#include "base/jsonio.h"
#include "grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_line(json_t *j) {
    Buf line = {0};
    jsonio_line(j, &line);
    fwrite(line.data, 1, line.n, stdout);
    buf_free(&line);
}

static void print_vocabulary(const Tokenizer *t) {
    json_t *j = json_object(), *ends = json_array(), *pieces = json_array();
    int n = tokenizer_n(t), n_ends = tokenizer_eog_ids(t, NULL, 0), *ids = mem_alloc((size_t)n_ends * sizeof *ids + 1);
    tokenizer_eog_ids(t, ids, n_ends);
    for (int i = 0; i < n_ends; i++) jsonio_append(ends, json_integer(ids[i]));
    for (int i = 0; i < n; i++) {
        Str piece = tokenizer_piece(t, i);
        Buf hex = {0};
        for (size_t k = 0; k < piece.n; k++) buf_printf(&hex, "%02x", (unsigned char)piece.data[k]);
        bool none = tokenizer_is_control(t, i) || tokenizer_is_eog(t, i) || piece.n == 0;
        jsonio_append(pieces, none ? json_null() : jsonio_text((Str){hex.data, hex.n}));
        buf_free(&hex);
    }
    jsonio_put(j, "eog", ends);
    jsonio_put(j, "pieces", pieces);
    print_line(j);
    fflush(stdout);
    free(ids);
}

static void print_mask(Constraint *c, const json_t *prefix, const float *logits, float *out, int n) {
    size_t length = json_array_size(prefix), bytes = (size_t)(n + 7) / 8;
    int *ids = mem_alloc((length + 1) * sizeof *ids);
    uint8_t *mask = mem_alloc(bytes);
    for (size_t i = 0; i < length; i++) ids[i] = (int)json_integer_value(json_array_get(prefix, i));
    constraint_apply(c, ids, (int)length, -1, logits, n, out);
    for (int i = 0; i < n; i++)
        if (out[i] == 0) mask[i / 8] |= (uint8_t)(1 << i % 8);
    fwrite(mask, 1, bytes, stdout);
    free(ids);
    free(mask);
}

// GrammarSource.write
static Status compact_schema(Rules *r, const void *schema) { return schema_parse(*(const Str *)schema, true, r); }

static void answer(GrammarCache **cache, const Tokenizer *t, const json_t *job) {
    int n = tokenizer_n(t);
    const char *kind = json_string_value(json_object_get(job, "kind"));
    json_t *text = json_object_get(job, "text"), *prefix, *j = json_object();
    GrammarSource source = {.text = {json_string_value(text), json_string_length(text)}, .write = compact_schema};
    source.arg = &source.text;
    source.kind = strcmp(kind, "regex") == 0  ? GRAMMAR_REGEX
                  : strcmp(kind, "gbnf") == 0 ? GRAMMAR_GBNF
                                              : GRAMMAR_WRITTEN;
    Constraint *c;
    Status st = grammar_cache_get(cache, t, n, source, false, &c);
    if (st.code) jsonio_put(j, "error", jsonio_text(str_of(st.message)));
    else jsonio_put(j, "n", json_integer((n + 7) / 8));
    print_line(j);
    float *logits = mem_alloc((size_t)n * sizeof *logits), *out = mem_alloc((size_t)n * sizeof *out);
    size_t i;
    json_array_foreach(json_object_get(job, "prefixes"), i, prefix) {
        if (!st.code) print_mask(c, prefix, logits, out, n);
    }
    fflush(stdout);
    if (!st.code) grammar_cache_drop(*cache, c);
    free(logits);
    free(out);
}

int main(int argc, char **argv) {
    Gguf *g;
    Tokenizer *t;
    GrammarCache *cache = NULL;
    jsonio_start();
    Status st = argc == 2 ? gguf_open(argv[1], &g) : status_error(QUILL_USAGE, "masks VOCAB.gguf");
    if (!st.code) st = tokenizer_load(g, &t);
    if (st.code) {
        fprintf(stderr, "masks: %s\n", st.message);
        return st.code;
    }
    print_vocabulary(t);
    char *line = NULL;
    size_t room = 0;
    for (ssize_t n; (n = getline(&line, &room, stdin)) > 0;) {
        json_t *job = jsonio_read((Str){line, (size_t)n}, JSON_ALLOW_NUL, &(json_error_t){0});
        if (json_is_string(json_object_get(job, "text"))) answer(&cache, t, job);
        json_decref(job);
    }
    free(line);
    grammar_cache_free(cache);
    tokenizer_free(t);
    gguf_close(g);
    return 0;
}
