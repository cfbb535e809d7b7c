// hf/tokenizer.c: see hf/tokenizer.h. Vocabulary and merges, nearly all of a file of ten megabytes, are read without
// building a JSON tree.
#include "hf/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/jsonwalk.h"
#include "hf/model.h"
#include "hf/steps.h"

enum { MAX_TOKENS = 1 << 20 }; // the same limit as in tokens/vocab.c

typedef struct {
    size_t at, n; // offset and length in `texts`
    int id;
} HfToken;

typedef struct {
    const char *name;
    Gguf *g;
    JsonWalk walk;
    Buf texts; // the texts of all tokens
    HfToken *tokens;
    size_t n_tokens, tokens_cap;
    Buf merges; // in the layout of a GGUF array of strings
    uint64_t n_merges;
    Buf scratch;
    json_t *parts; // the other members of the file; those of "model" have names "model.NAME"
} TokenizerReader;

static Status broken(const TokenizerReader *r, Str text) {
    size_t at = text.n ? (size_t)(r->walk.at - text.data) : 0; // an empty file has no mapping
    return status_error(QUILL_MODEL, "%s: byte %zu: %s expected", r->name, at, r->walk.error);
}

// ---- walking --------------------------------------------------------------------------------------------------------

static void walk_vocab(TokenizerReader *r) {
    Str text;
    int64_t id;
    if (!jsonwalk_enter(&r->walk, '{')) return;
    while (jsonwalk_member(&r->walk, &text)) {
        if (r->n_tokens == r->tokens_cap) {
            r->tokens_cap = r->tokens_cap ? r->tokens_cap * 2 : 4096;
            r->tokens = mem_resize(r->tokens, r->tokens_cap * sizeof *r->tokens);
        }
        r->tokens[r->n_tokens] = (HfToken){.at = r->texts.n, .n = text.n};
        buf_append(&r->texts, text.data, text.n);
        if (!jsonwalk_int(&r->walk, &id)) return;
        if (id < 0 || id >= MAX_TOKENS || r->n_tokens >= MAX_TOKENS) {
            r->walk.error = "an id from 0 to 1048575";
            return;
        }
        r->tokens[r->n_tokens++].id = (int)id;
    }
}

// Reads a merge: "a b" or ["a", "b"]. A merge whose part contains a space is left out: no text gives such a part, and
// "a b" could not represent it.
static bool walk_merge(TokenizerReader *r) {
    JsonWalk *w = &r->walk;
    Buf *pair = &r->scratch;
    pair->n = 0;
    bool two = jsonwalk_is(w, '[');
    if (!two && !jsonwalk_string(w, pair)) return false;
    if (two) {
        int n = 0;
        for (jsonwalk_enter(w, '['); jsonwalk_element(w); n++) {
            if (n == 1) buf_str(pair, " ");
            if (!jsonwalk_string(w, pair)) return false;
        }
        if (n != 2 && !w->error) w->error = "two texts to merge";
        if (w->error) return false;
    }
    const char *space = memchr(pair->data, ' ', pair->n);
    if (two && space && memchr(space + 1, ' ', pair->n - (size_t)(space + 1 - pair->data))) return true;
    uint64_t n = pair->n;
    buf_append(&r->merges, &n, sizeof n);
    buf_append(&r->merges, pair->data, pair->n);
    r->n_merges++;
    return true;
}

static void walk_merges(TokenizerReader *r) {
    if (!jsonwalk_enter(&r->walk, '[')) return;
    while (jsonwalk_element(&r->walk))
        if (!walk_merge(r)) return;
}

// Keeps a member with one of these names, parsed by jansson, and skips all others. QUILL_MODEL: it is not JSON.
static Status keep_part(TokenizerReader *r, const char *in, Str key) {
    static const char *const names[] = {"added_tokens",
                                        "normalizer",
                                        "pre_tokenizer",
                                        "post_processor",
                                        "model.type",
                                        "model.unk_token",
                                        "model.fuse_unk",
                                        "model.byte_fallback",
                                        "model.ignore_merges",
                                        "model.continuing_subword_prefix",
                                        "model.end_of_word_suffix"};
    Str raw;
    json_error_t error;
    if (!jsonwalk_skip(&r->walk, &raw)) return OK;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!str_has_prefix(str_of(names[i]), in) || !str_is(key, names[i] + strlen(in))) continue;
        json_t *value = json_loadb(raw.data, raw.n, JSON_DECODE_ANY, &error);
        if (!value) return status_error(QUILL_MODEL, "%s: %s: line %d: %s", r->name, names[i], error.line, error.text);
        jsonio_put(r->parts, names[i], value);
        break;
    }
    return OK;
}

static Status walk_model(TokenizerReader *r) {
    Str key;
    if (!jsonwalk_enter(&r->walk, '{')) return OK;
    while (jsonwalk_member(&r->walk, &key)) {
        if (str_is(key, "vocab") && jsonwalk_is(&r->walk, '{')) walk_vocab(r);
        else if (str_is(key, "merges")) walk_merges(r);
        else TRY(keep_part(r, "model.", key));
    }
    return OK;
}

static Status walk_file(TokenizerReader *r, Str text) {
    Str key;
    r->walk = jsonwalk_start(text);
    if (jsonwalk_enter(&r->walk, '{'))
        while (jsonwalk_member(&r->walk, &key)) {
            if (str_is(key, "model")) TRY(walk_model(r));
            else TRY(keep_part(r, "", key));
        }
    if (r->walk.error || !jsonwalk_ended(&r->walk)) return broken(r, text);
    return OK;
}

// ---- the kind of model ----------------------------------------------------------------------------------------------

static Status check_model(const TokenizerReader *r) {
    const json_t *type = json_object_get(r->parts, "model.type");
    const char *kind = type ? json_string_value(type) : "BPE";
    if (!kind || strcmp(kind, "BPE") != 0)
        return status_error(QUILL_MODEL,
                            "%s: model.type: BPE expected, %.60s found; such vocabularies are not supported", r->name,
                            kind ? kind : "another value");
    static const char *const affixes[] = {"model.continuing_subword_prefix", "model.end_of_word_suffix"};
    for (size_t i = 0; i < ARRAY_LEN(affixes); i++) {
        const char *affix = json_string_value(json_object_get(r->parts, affixes[i]));
        if (affix && *affix) return status_error(QUILL_MODEL, "%s: %s is not supported", r->name, affixes[i]);
    }
    if (r->n_tokens == 0) return status_error(QUILL_MODEL, "%s: model.vocab: tokens expected, none found", r->name);
    return OK;
}

// ---- the vocabulary -------------------------------------------------------------------------------------------------

typedef struct {
    Str *texts;
    int32_t *types;
    int n;
    int32_t *left, *right; // ids of added tokens that absorb white space on their left or right
    size_t n_left, n_right;
} HfVocab;

static bool is_byte_name(Str s) {
    return s.n == 6 && memcmp(s.data, "<0x", 3) == 0 && str_hex_digit(s.data[3]) >= 0 &&
           str_hex_digit(s.data[4]) >= 0 && s.data[5] == '>';
}

static Status check_added(const TokenizerReader *r, const json_t *added, int *n) {
    size_t i;
    json_t *one;
    json_array_foreach(added, i, one) {
        int64_t id;
        const json_t *content = json_object_get(one, "content");
        if (!hf_config_int(one, "id", &id) || id < 0 || id >= MAX_TOKENS || !json_is_string(content))
            return status_error(QUILL_MODEL, "%s: added_tokens: number %zu: content and an id from 0 to %d expected",
                                r->name, i, MAX_TOKENS - 1);
        if (json_is_true(json_object_get(one, "single_word")))
            return status_error(QUILL_MODEL, "%s: added_tokens: %.60s: single_word is not supported", r->name,
                                json_string_value(content));
        *n = int_max(*n, (int)id + 1);
    }
    return OK;
}

static void add_added(const TokenizerReader *r, const json_t *added, HfVocab *v) {
    size_t i;
    json_t *one;
    const char *unknown = json_string_value(json_object_get(r->parts, "model.unk_token"));
    json_array_foreach(added, i, one) {
        const json_t *content = json_object_get(one, "content");
        int id = (int)json_integer_value(json_object_get(one, "id"));
        Str text = {json_string_value(content), json_string_length(content)};
        bool special = json_is_true(json_object_get(one, "special"));
        v->texts[id] = text;
        v->types[id] = !special                           ? GGUF_TOKEN_USER_DEFINED
                       : unknown && str_is(text, unknown) ? GGUF_TOKEN_UNKNOWN
                                                          : GGUF_TOKEN_CONTROL;
        if (json_is_true(json_object_get(one, "lstrip"))) v->left[v->n_left++] = id;
        if (json_is_true(json_object_get(one, "rstrip"))) v->right[v->n_right++] = id;
    }
}

static void set_vocab(const TokenizerReader *r, const HfVocab *v) {
    gguf_set_strings(r->g, "tokenizer.ggml.tokens", v->texts, (size_t)v->n);
    gguf_set_ints(r->g, "tokenizer.ggml.token_type", v->types, (size_t)v->n);
    gguf_set(r->g, &(GgufValue){.key = str_of("tokenizer.ggml.merges"),
                                .type = GGUF_ARRAY,
                                .elem_type = GGUF_STR,
                                .n = r->n_merges,
                                .data = (const uint8_t *)r->merges.data,
                                .n_bytes = r->merges.n});
    if (v->n_left) gguf_set_ints(r->g, "quill.tokenizer.strip_left", v->left, v->n_left);
    if (v->n_right) gguf_set_ints(r->g, "quill.tokenizer.strip_right", v->right, v->n_right);
    const char *unknown = json_string_value(json_object_get(r->parts, "model.unk_token"));
    uint32_t unk = UINT32_MAX; // out of range: none
    for (int i = 0; i < v->n && unknown; i++)
        if (str_is(v->texts[i], unknown)) unk = (uint32_t)i;
    gguf_set_u32(r->g, "tokenizer.ggml.unknown_token_id", unk);
}

static Status read_vocab(const TokenizerReader *r, bool byte_fallback) {
    const json_t *added = json_object_get(r->parts, "added_tokens");
    size_t n_added = json_array_size(added);
    HfVocab v = {0};
    for (size_t i = 0; i < r->n_tokens; i++) v.n = int_max(v.n, r->tokens[i].id + 1);
    TRY(check_added(r, added, &v.n));
    v.texts = mem_alloc((size_t)v.n * sizeof *v.texts);
    v.types = mem_alloc((size_t)v.n * sizeof *v.types);
    v.left = mem_alloc((n_added + 1) * sizeof *v.left);
    v.right = mem_alloc((n_added + 1) * sizeof *v.right);
    for (int i = 0; i < v.n; i++) { // ids without a token have no text
        v.texts[i] = (Str){"", 0};
        v.types[i] = GGUF_TOKEN_UNUSED;
    }
    for (size_t i = 0; i < r->n_tokens; i++) {
        const HfToken *t = &r->tokens[i];
        v.texts[t->id] = (Str){r->texts.data + t->at, t->n};
        v.types[t->id] = byte_fallback && is_byte_name(v.texts[t->id]) ? GGUF_TOKEN_BYTE : GGUF_TOKEN_NORMAL;
    }
    add_added(r, added, &v);
    set_vocab(r, &v);
    free(v.texts);
    free(v.types);
    free(v.left);
    free(v.right);
    return OK;
}

// ---- everything together --------------------------------------------------------------------------------------------

static bool model_flag(const TokenizerReader *r, const char *key) {
    return json_is_true(json_object_get(r->parts, key));
}

static Status read_all(TokenizerReader *r, Str text) {
    TRY(walk_file(r, text));
    TRY(check_model(r));
    bool byte_fallback = model_flag(r, "model.byte_fallback"), bytes;
    TRY(hf_read_steps(r->name, r->parts, byte_fallback, r->g, &bytes));
    TRY(read_vocab(r, byte_fallback));
    gguf_set_str(r->g, "tokenizer.ggml.model", bytes ? "gpt2" : "llama");
    gguf_set_bool(r->g, "quill.tokenizer.types_hold", true);
    gguf_set_bool(r->g, "quill.tokenizer.by_merges", true);
    gguf_set_bool(r->g, "quill.tokenizer.ignore_merges", model_flag(r, "model.ignore_merges"));
    gguf_set_bool(r->g, "quill.tokenizer.fuse_unknown", model_flag(r, "model.fuse_unk"));
    return OK;
}

Status hf_read_tokenizer(const char *name, Str text, Gguf *g) {
    TokenizerReader r = {.name = name, .g = g, .parts = json_object()};
    buf_str(&r.texts, "");
    buf_str(&r.merges, "");
    Status st = read_all(&r, text);
    jsonwalk_free(&r.walk);
    buf_free(&r.texts);
    buf_free(&r.merges);
    buf_free(&r.scratch);
    free(r.tokens);
    json_decref(r.parts);
    return st;
}
