// hf/muse.c: see hf/muse.h.
#include "hf/muse.h"

#include <stdio.h>
#include <string.h>

#include "formats/types.h"

bool hf_is_muse(const HfModel *m) { return strcmp(m->family->arch, "muse-glimmer") == 0; }

Status hf_read_muse(const HfModel *m, int64_t n_layers, const uint8_t *windowed) {
    const json_t *bases = json_object_get(m->config, "layer_rope_theta");
    double eps = 0, theta = 10000;
    hf_config_number(m->config, "rope_theta", &theta);
    hf_config_number(json_object_get(m->config, "rope_parameters"), "rope_theta", &theta);
    if (!hf_config_number(m->config, "post_norm_eps", &eps) || eps != 1e-8)
        return hf_config_wrong(m, "post_norm_eps", "1e-8");
    if (!bases || json_is_null(bases)) return OK;
    bool same = json_array_size(bases) == (size_t)n_layers;
    for (int64_t i = 0; i < n_layers && same; i++) {
        const json_t *v = json_array_get(bases, (size_t)i);
        // transformers takes rope_theta wherever the layer's number is not 0
        same = json_is_number(v) && json_number_value(v) == (windowed[i] ? theta : 0);
    }
    if (same) return OK;
    return status_error(QUILL_MODEL,
                        "%s/config.json: layer_rope_theta: rope_theta's %g in layers with a window and 0 in the others "
                        "expected, others found",
                        m->dir, theta);
}

static void add_norm(const HfModel *m, int64_t layer, const char *part, double value) {
    size_t n = (size_t)m->head_dim;
    float *v = gguf_alloc(m->g, n * sizeof *v);
    char name[64];
    for (size_t i = 0; i < n; i++) v[i] = (float)value;
    snprintf(name, sizeof name, "blk.%d.%s.weight", (int)layer, part);
    gguf_add_tensor(m->g, name, TYPE_F32, n, 0, v, NULL, 0);
}

Status hf_muse_norms(const HfModel *m) {
    int64_t n_layers = 0;
    double factor = 0;
    hf_config_int(m->config, "num_hidden_layers", &n_layers);
    if (!hf_config_number(m->config, "qk_scale_factor", &factor) || !(factor > 0))
        return hf_config_wrong(m, "qk_scale_factor", "a positive number");
    for (int64_t i = 0; i < n_layers; i++) {
        add_norm(m, i, "attn_q_norm", factor);
        add_norm(m, i, "attn_k_norm", 1);
    }
    return OK;
}
