// hf/gemma4.c: see hf/gemma4.h.
#include "hf/gemma4.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"

// Heads of a layer: elements of a head, and the number of heads of K and V.
typedef struct {
    int64_t width, n_kv;
} Gemma4Heads;

static bool is_true(const json_t *object, const char *key) { return json_is_true(json_object_get(object, key)); }

// ---- heads ----------------------------------------------------------------------------------------------------------

static Status refuse_layer(const HfModel *m, const char *layer, const char *expected, const json_t *found) {
    Buf text = {0};
    jsonio_print(found, JSON_ENCODE_ANY | JSON_COMPACT, &text);
    Status st = status_error(QUILL_MODEL, "%s/config.json: per_layer_config, layer %.20s: %s expected, %.60s found",
                             m->dir, layer, expected, text.data);
    buf_free(&text);
    return st;
}

// Reads the entry of one layer. Keys that it leaves out have the values of the whole model, which *out has already.
static Status read_layer(const HfModel *m, const char *layer, json_t *entry, Gemma4Heads *out) {
    const char *key;
    json_t *value;
    if (!json_is_object(entry)) return refuse_layer(m, layer, "an object", entry);
    json_object_foreach(entry, key, value) {
        bool width = strcmp(key, "head_dim") == 0, n_kv = strcmp(key, "num_key_value_heads") == 0;
        int64_t v = 0;
        if ((!width && !n_kv) || !hf_config_int(entry, key, &v) || v < 1 || v > 1 << 15)
            return refuse_layer(m, layer, "only head_dim and num_key_value_heads, from 1 to 32768,", entry);
        *(width ? &out->width : &out->n_kv) = v;
    }
    return OK;
}

// Sets the heads of both kinds of layers from those of each layer.
static Status join_layers(const HfModel *m, const Gemma4Heads *all, int64_t n_layers, const uint8_t *windowed,
                          Gemma4Heads heads[2]) {
    bool found[2] = {false, false};
    for (int64_t i = 0; i < n_layers; i++) {
        Gemma4Heads *h = &heads[windowed[i]];
        if (found[windowed[i]] && (h->width != all[i].width || h->n_kv != all[i].n_kv))
            return status_error(QUILL_MODEL,
                                "%s/config.json: per_layer_config: the same head_dim and num_key_value_heads in all %s "
                                "layers expected, %d of %d in layer %d found, %d of %d in layers before it",
                                m->dir, windowed[i] ? "sliding_attention" : "full_attention", (int)all[i].n_kv,
                                (int)all[i].width, (int)i, (int)h->n_kv, (int)h->width);
        *h = all[i];
        found[windowed[i]] = true;
    }
    return OK;
}

// per_layer_config: keys of single layers that differ from those of the whole model. `all` (n_layers).
static Status read_layers(const HfModel *m, json_t *layers, int64_t n_layers, Gemma4Heads *all) {
    const char *layer;
    json_t *entry;
    json_object_foreach(layers, layer, entry) {
        size_t n = strspn(layer, "0123456789"); // "03" in models of more than ten layers
        long i = n > 0 && n < 10 && !layer[n] ? strtol(layer, NULL, 10) : -1;
        if (i < 0 || i >= n_layers) return refuse_layer(m, layer, "a number below that of the layers", entry);
        TRY(read_layer(m, layer, entry, &all[i]));
    }
    return OK;
}

// Sets heads[1] for layers with a window, heads[0] for the others. transformers 5 writes the differences as
// per_layer_config, its first versions as global_head_dim and num_global_key_value_heads.
static Status read_heads(const HfModel *m, int64_t n_layers, const uint8_t *windowed, Gemma4Heads heads[2]) {
    const json_t *c = m->config;
    json_t *layers = json_object_get(c, "per_layer_config");
    hf_config_int(c, "head_dim", &heads[1].width);
    hf_config_int(c, "num_key_value_heads", &heads[1].n_kv);
    heads[0] = heads[1];
    if (!layers) {
        hf_config_int(c, "global_head_dim", &heads[0].width);
        if (is_true(c, "attention_k_eq_v")) hf_config_int(c, "num_global_key_value_heads", &heads[0].n_kv);
        return OK;
    }
    if (!json_is_object(layers)) return hf_config_wrong(m, "per_layer_config", "an object");
    Gemma4Heads *all = mem_alloc((size_t)n_layers * sizeof *all);
    for (int64_t i = 0; i < n_layers; i++) all[i] = heads[1];
    Status st = read_layers(m, layers, n_layers, all);
    if (!st.code) st = join_layers(m, all, n_layers, windowed, heads);
    free(all);
    if (!st.code) jsonio_put(m->config, "global_head_dim", json_integer(heads[0].width));
    return st;
}

// ---- everything together --------------------------------------------------------------------------------------------

Status hf_read_gemma4(const HfModel *m, int64_t n_layers, const uint8_t *windowed) {
    int64_t shared = 0, per = 0, ffn = 0, top = 0;
    char key[96];
    const json_t *c = m->config;
    Gemma4Heads h[2] = {{0}};
    TRY(read_heads(m, n_layers, windowed, h));
    if (h[0].width < 2 || h[0].width > 1 << 15)
        return hf_config_wrong(m, "global_head_dim", "a whole number from 2 to 32768");
    if (h[1].width < 2 || h[1].width > 1 << 15) return hf_config_wrong(m, "head_dim", "a whole number from 2 to 32768");
    if (hf_config_int(c, "num_kv_shared_layers", &shared) && (shared < 0 || shared >= n_layers))
        return hf_config_wrong(m, "num_kv_shared_layers", "a number below that of the layers");
    hf_config_int(c, "hidden_size_per_layer_input", &per);
    hf_config_int(c, "intermediate_size", &ffn);
    if (per < 0 || per > 1 << 20)
        return hf_config_wrong(m, "hidden_size_per_layer_input", "a whole number up to 1048576");
    int32_t *heads = mem_alloc((size_t)n_layers * sizeof *heads),
            *widths = mem_alloc((size_t)n_layers * sizeof *widths);
    bool twice = is_true(c, "use_double_wide_mlp");
    for (int64_t i = 0; i < n_layers; i++) {
        heads[i] = (int32_t)h[windowed[i]].n_kv;
        widths[i] = (int32_t)(twice && i >= n_layers - shared ? 2 * ffn : ffn);
    }
    hf_set_ints(m, "attention.head_count_kv", heads, n_layers);
    hf_set_ints(m, "feed_forward_length", widths, n_layers);
    free(heads);
    free(widths);
    static const char *const swa[] = {"attention.key_length_swa", "attention.value_length_swa",
                                      "rope.dimension_count_swa"};
    static const char *const whole[] = {"attention.key_length", "attention.value_length"};
    for (size_t i = 0; i < ARRAY_LEN(swa); i++) gguf_set_u32(m->g, hf_key(m, swa[i], key), (uint32_t)h[1].width);
    for (size_t i = 0; i < ARRAY_LEN(whole); i++) gguf_set_u32(m->g, hf_key(m, whole[i], key), (uint32_t)h[0].width);
    gguf_set_u32(m->g, hf_key(m, "attention.shared_kv_layers", key), (uint32_t)shared);
    gguf_set_u32(m->g, hf_key(m, "embedding_length_per_layer_input", key), (uint32_t)per);
    if (!is_true(c, "enable_moe_block")) gguf_set_u32(m->g, hf_key(m, "expert_count", key), 0);
    else if (!hf_config_int(c, "top_k_experts", &top) || top < 1 || top > 1 << 12)
        return hf_config_wrong(m, "top_k_experts", "a whole number from 1 to 4096");
    else gguf_set_u32(m->g, hf_key(m, "expert_used_count", key), (uint32_t)top);
    return OK;
}
