// tests/rig/hf_directory_tokenizer.c: tokenizer.json and tokenizer_config.json of a directory
// (tests/rig/hf_directory.h).
#include "tests/rig/hf_directory_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"

#define WORDS(number)                                                                                                  \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" number                                               \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static json_t *split(Str pre) {
    bool llama = str_is(pre, "llama-bpe");
    if (!llama && !str_is(pre, "qwen2"))
        hf_directory_impossible("a pre-tokenizer of a directory expected", "tokenizer.ggml.pre");
    json_t *regex = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                              llama ? WORDS("\\p{N}{1,3}") : WORDS("\\p{N}"), "behavior", "Isolated", "invert", 0);
    json_t *bytes = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
                              "use_regex", 0);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", regex, bytes);
}

static json_t *spaces(void) {
    json_t *prepend = json_pack("{s:s, s:s}", "type", "Prepend", "prepend", "\xe2\x96\x81");
    json_t *replace =
        json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ", "content", "\xe2\x96\x81");
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "normalizers", prepend, replace);
}

typedef struct {
    int left, right, merged;
} Pair;

static int by_merged(const void *a, const void *b) {
    const Pair *x = a, *y = b;
    return x->merged != y->merged ? x->merged - y->merged : x->left - y->left;
}

// In these vocabularies scores fall from id to id. The merges are all ways to split a token into two, in the order of
// ids.
static json_t *merges_of_scores(const Str *tokens, int n, const json_t *vocab) {
    Pair *pairs = NULL;
    size_t n_pairs = 0;
    for (int id = 259; id < n; id++)
        for (size_t cut = 1; cut < tokens[id].n; cut++) {
            const json_t *left = json_object_getn(vocab, tokens[id].data, cut);
            const json_t *right = json_object_getn(vocab, tokens[id].data + cut, tokens[id].n - cut);
            if (!left || !right) continue;
            pairs = mem_resize(pairs, (n_pairs + 1) * sizeof *pairs);
            pairs[n_pairs++] = (Pair){(int)json_integer_value(left), (int)json_integer_value(right), id};
        }
    if (n_pairs) qsort(pairs, n_pairs, sizeof *pairs, by_merged);
    json_t *out = json_array();
    for (size_t i = 0; i < n_pairs; i++)
        jsonio_append(out, json_pack("[s%, s%]", tokens[pairs[i].left].data, tokens[pairs[i].left].n,
                                     tokens[pairs[i].right].data, tokens[pairs[i].right].n));
    free(pairs);
    return out;
}

static json_t *merges(const Gguf *g, const Str *tokens, int n, const json_t *vocab, bool as_text) {
    const GgufValue *v = gguf_value(g, "tokenizer.ggml.merges");
    if (!v) return merges_of_scores(tokens, n, vocab);
    const uint8_t *at = v->data;
    json_t *out = json_array();
    for (uint64_t i = 0; i < v->n; i++) {
        Str merge = gguf_next_string(&at);
        const char *space = memchr(merge.data + 1, ' ', merge.n - 1);
        size_t n_left = (size_t)(space - merge.data);
        jsonio_append(out, as_text ? json_stringn(merge.data, merge.n)
                                   : json_pack("[s%, s%]", merge.data, n_left, space + 1, merge.n - n_left - 1));
    }
    return out;
}

void hf_directory_tokenizer(const Gguf *g, const char *dir, bool merges_as_text) {
    const GgufValue *v = gguf_value(g, "tokenizer.ggml.tokens"), *t = gguf_value(g, "tokenizer.ggml.token_type");
    if (!v || !t) return;
    uint32_t bos_id, eos_id;
    gguf_u32(g, "tokenizer.ggml.bos_token_id", &bos_id, true, 0);
    gguf_u32(g, "tokenizer.ggml.eos_token_id", &eos_id, true, 0);
    int n = (int)v->n, bos = (int)bos_id, eos = (int)eos_id;
    Str *tokens = mem_alloc((size_t)n * sizeof *tokens), pre, model, template;
    int32_t *types = mem_alloc((size_t)n * sizeof *types);
    gguf_strings(g, v, tokens);
    gguf_ints(g, t, types);
    gguf_str(g, "tokenizer.ggml.pre", &pre, false);
    gguf_str(g, "tokenizer.ggml.model", &model, true);
    gguf_str(g, "tokenizer.chat_template", &template, false);
    bool spm = str_is(model, "llama"), add_bos = false;
    gguf_bool(g, "tokenizer.ggml.add_bos_token", &add_bos, spm);
    json_t *vocab = json_object(), *added = json_array();
    for (int i = 0; i < n; i++) {
        bool special = types[i] == GGUF_TOKEN_CONTROL || types[i] == GGUF_TOKEN_UNKNOWN;
        if (special || types[i] == GGUF_TOKEN_USER_DEFINED)
            jsonio_append(added, json_pack("{s:i, s:s%, s:b, s:b}", "id", i, "content", tokens[i].data, tokens[i].n,
                                           "special", special, "normalized", 0));
        if (!special || spm) json_object_setn_new(vocab, tokens[i].data, tokens[i].n, json_integer(i));
    }
    json_t *list = merges(g, tokens, n, vocab, merges_as_text);
    json_t *bpe = json_pack("{s:s, s:o?, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "unk_token",
                            spm ? json_string("<unk>") : json_null(), "fuse_unk", spm, "byte_fallback", spm,
                            "ignore_merges", !spm && str_is(pre, "llama-bpe"), "vocab", vocab, "merges", list);
    hf_directory_json(dir, "tokenizer.json",
                      json_pack("{s:s, s:o, s:o, s:o, s:o}", "version", "1.0", "added_tokens", added, "normalizer",
                                spm ? spaces() : json_null(), "pre_tokenizer", spm ? json_null() : split(pre), "model",
                                bpe));
    json_t *config = json_pack("{s:b}", "add_bos_token", add_bos);
    if (bos >= 0 && bos < n) jsonio_put(config, "bos_token", jsonio_text(tokens[bos]));
    if (eos >= 0 && eos < n) jsonio_put(config, "eos_token", jsonio_text(tokens[eos]));
    if (template.data) jsonio_put(config, "chat_template", jsonio_text(template));
    hf_directory_json(dir, "tokenizer_config.json", config);
    free(tokens);
    free(types);
}
