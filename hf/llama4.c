// hf/llama4.c: see hf/llama4.h.
#include "hf/llama4.h"

#include <stdio.h>
#include <string.h>

bool hf_is_llama4(const HfModel *m) { return strcmp(m->family->arch, "llama4") == 0; }

static Status set_count(const HfModel *m, const char *name, const char *suffix) {
    char key[96];
    int64_t n;
    if (!hf_config_int(m->config, name, &n) || n < 1 || n > INT32_MAX)
        return hf_config_wrong(m, name, "a whole number from 1 on");
    gguf_set_u32(m->g, hf_key(m, suffix, key), (uint32_t)n);
    return OK;
}

// Every fourth layer has neither RoPE nor chunks. hf/config.c has compared no_rope_layers with that, as far as it goes.
static Status check_chunks(const HfModel *m, int64_t n_layers, const uint8_t *windowed) {
    size_t n = json_array_size(json_object_get(m->config, "no_rope_layers"));
    if (n > 0 && n < (size_t)n_layers) return hf_config_wrong(m, "no_rope_layers", "a number for each layer");
    for (int64_t i = 0; i < n_layers; i++)
        if (windowed[i] != ((i + 1) % 4 != 0))
            return status_error(QUILL_MODEL,
                                "%s/config.json: layer_types: chunked_attention in all layers but every fourth one "
                                "expected, %s_attention found for layer %d",
                                m->dir, windowed[i] ? "chunked" : "full", (int)i);
    return OK;
}

// moe_layers, if it is there, must list the layers that interleave_moe_layer_step gives experts.
static Status check_expert_layers(const HfModel *m, int64_t n_layers) {
    const json_t *list = json_object_get(m->config, "moe_layers");
    int64_t step;
    size_t n = 0;
    if (!hf_config_int(m->config, "interleave_moe_layer_step", &step) || step < 1 || step > n_layers)
        return hf_config_wrong(m, "interleave_moe_layer_step", "a whole number from 1 to the number of layers");
    if (!json_is_array(list)) return OK;
    bool same = true;
    for (int64_t i = step - 1; i < n_layers; i += step, n++) {
        const json_t *v = json_array_get(list, n);
        same = same && json_is_number(v) && json_number_value(v) == (double)i;
    }
    if (same && n == json_array_size(list)) return OK;
    return status_error(QUILL_MODEL,
                        "%s/config.json: moe_layers: one layer of %d, as interleave_moe_layer_step says, expected, "
                        "others found",
                        m->dir, (int)step);
}

Status hf_read_llama4(const HfModel *m, int64_t n_layers, const uint8_t *windowed) {
    char key[96];
    double scale = 0;
    const json_t *tuning = json_object_get(m->config, "attn_temperature_tuning"); // older files have a number
    bool on = json_is_number(tuning) ? json_number_value(tuning) != 0 : json_is_true(tuning);
    TRY(check_chunks(m, n_layers, windowed));
    TRY(check_expert_layers(m, n_layers));
    TRY(set_count(m, "interleave_moe_layer_step", "interleave_moe_layer_step"));
    TRY(set_count(m, "intermediate_size", "expert_feed_forward_length"));
    TRY(set_count(m, "intermediate_size_mlp", "feed_forward_length"));
    TRY(set_count(m, "attention_chunk_size", "attention.chunk_size"));
    TRY(set_count(m, "floor_scale", "attention.temperature_length"));
    if (on && (!hf_config_number(m->config, "attn_scale", &scale) || !(scale > 0)))
        return hf_config_wrong(m, "attn_scale", "a positive number");
    gguf_set_f32(m->g, hf_key(m, "attention.temperature_scale", key), on ? (float)scale : 0);
    const json_t *norms = json_object_get(m->config, "use_qk_norm");
    if (!json_is_boolean(norms)) return hf_config_wrong(m, "use_qk_norm", "true or false");
    gguf_set_bool(m->g, hf_key(m, "use_qk_norm", key), json_is_true(norms));
    return OK;
}
