// hf/roles.c: see hf/roles.h.
#include "hf/roles.h"

#include <stdlib.h>
#include <string.h>

// A special token in tokenizer_config.json: a text, or an object with its content. NULL: none, or null.
static const char *token_text(const json_t *tokenizer_config, const char *key) {
    const json_t *v = json_object_get(tokenizer_config, key);
    return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

static int find_token(const Gguf *g, const char *text) {
    const GgufValue *tokens = gguf_value(g, "tokenizer.ggml.tokens");
    const uint8_t *at = tokens ? tokens->data : NULL;
    for (uint64_t i = 0; tokens && i < tokens->n; i++)
        if (str_is(gguf_next_string(&at), text)) return (int)i;
    return -1;
}

// An id, or the first of a list; -1: neither.
static int first_id(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    if (json_is_array(v)) v = json_array_get(v, 0);
    return hf_config_id(v);
}

// The id of a special token: tokenizer_config.json names it, or has null if there is none. Without this key the
// configurations give an id.
static int role(const HfModel *m, const json_t *tokenizer_config, const json_t *generation, const char *token,
                const char *id_key) {
    const char *text = token_text(tokenizer_config, token);
    if (text) return find_token(m->g, text);
    if (json_object_get(tokenizer_config, token)) return -1;
    const json_t *places[] = {generation, m->config, m->file};
    int id = -1;
    for (size_t i = 0; i < ARRAY_LEN(places) && id < 0; i++) id = first_id(places[i], id_key);
    return id;
}

// Sets all ids that end an answer: those of generation_config.json, or if it has none, of config.json.
static void set_ends(const HfModel *m, const json_t *generation) {
    const json_t *ids = json_object_get(generation, "eos_token_id");
    if (!ids || json_is_null(ids)) ids = json_object_get(m->config, "eos_token_id");
    if (!ids || json_is_null(ids)) ids = json_object_get(m->file, "eos_token_id");
    bool list = json_is_array(ids);
    size_t n = list ? json_array_size(ids) : 1, n_good = 0;
    int32_t *good = mem_alloc((n + 1) * sizeof *good);
    for (size_t i = 0; i < n; i++) {
        int id = hf_config_id(list ? json_array_get(ids, i) : ids);
        if (id >= 0) good[n_good++] = id;
    }
    if (n_good) gguf_set_ints(m->g, "quill.tokenizer.eog_ids", good, n_good);
    free(good);
}

// Sets the tokens that no answer may have: transformers never draws those of generation_config.json.
static void set_suppressed(const HfModel *m, const json_t *generation) {
    const json_t *ids = json_object_get(generation, "suppress_tokens"), *id;
    size_t i, n_good = 0;
    int32_t *good = mem_alloc((json_array_size(ids) + 1) * sizeof *good);
    json_array_foreach(ids, i, id) if (hf_config_id(id) >= 0) good[n_good++] = hf_config_id(id);
    if (n_good) gguf_set_ints(m->g, "tokenizer.ggml.suppress_tokens", good, n_good);
    free(good);
}

static Status set_template(const HfModel *m, const char *name, const json_t *source) {
    if (!json_is_string(source) || (name && strlen(name) > 60))
        return status_error(QUILL_MODEL,
                            "%s/tokenizer_config.json: chat_template: a text, or a list of names and texts "
                            "expected",
                            m->dir);
    Buf key = {0};
    buf_str(&key, "tokenizer.chat_template");
    if (name) buf_printf(&key, ".%s", name);
    gguf_set_str(m->g, key.data, json_string_value(source));
    buf_free(&key);
    return OK;
}

// Sets the chat template: the only one, or from a list of named templates "default", or else the first.
static Status set_templates(const HfModel *m, const json_t *templates) {
    size_t i;
    json_t *one;
    if (!templates || json_is_null(templates)) return OK;
    if (!json_is_array(templates)) return set_template(m, NULL, templates);
    json_array_foreach(templates, i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        bool is_default = name && strcmp(name, "default") == 0;
        if (i == 0 || is_default) TRY(set_template(m, NULL, json_object_get(one, "template")));
        if (name && !is_default) TRY(set_template(m, name, json_object_get(one, "template")));
    }
    return OK;
}

static void set_flag(const HfModel *m, const json_t *tokenizer_config, const char *from, const char *key) {
    const json_t *v = json_object_get(tokenizer_config, from);
    if (json_is_boolean(v)) gguf_set_bool(m->g, key, json_is_true(v));
    else if (!gguf_value(m->g, key)) gguf_set_bool(m->g, key, false);
}

Status hf_read_roles(const HfModel *m, const json_t *tokenizer_config, const json_t *generation) {
    int eos = role(m, tokenizer_config, generation, "eos_token", "eos_token_id");
    gguf_set_u32(m->g, "tokenizer.ggml.eos_token_id", eos < 0 ? UINT32_MAX : (uint32_t)eos); // out of range: none
    if (!gguf_value(m->g, "tokenizer.ggml.bos_token_id")) {
        int bos = role(m, tokenizer_config, generation, "bos_token", "bos_token_id");
        gguf_set_u32(m->g, "tokenizer.ggml.bos_token_id", bos < 0 ? UINT32_MAX : (uint32_t)bos);
    }
    set_flag(m, tokenizer_config, "add_bos_token", "tokenizer.ggml.add_bos_token");
    set_flag(m, tokenizer_config, "add_eos_token", "tokenizer.ggml.add_eos_token");
    set_ends(m, generation);
    set_suppressed(m, generation);
    return set_templates(m, json_object_get(tokenizer_config, "chat_template"));
}
