// hf/xielu.c: see hf/xielu.h.
#include "hf/xielu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/types.h"
#include "hf/view.h"

static const struct {
    const char *part, *key;
    float usual; // NaN: the tensors must be there
} lists[] = {{"mlp.act_fn.alpha_p", "xielu.alpha_p", NAN},
             {"mlp.act_fn.alpha_n", "xielu.alpha_n", NAN},
             {"mlp.act_fn.beta", "xielu.beta", 0.5f},
             {"mlp.act_fn.eps", "xielu.eps", -1e-6f}};

void hf_xielu_begin(const HfModel *m, int64_t n_layers) {
    if (strcmp(m->family->act, "xielu") != 0) return;
    float *all = mem_alloc((size_t)n_layers * sizeof *all);
    for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
        for (int64_t i = 0; i < n_layers; i++) all[i] = lists[k].usual;
        gguf_set_floats(m->g, lists[k].key, all, (size_t)n_layers);
    }
    free(all);
}

// Replaces one number of a list.
static Status put(const HfModel *m, const char *key, long layer, float v) {
    const GgufValue *list = gguf_value(m->g, key);
    size_t n = (size_t)list->n;
    float *all = mem_alloc(n * sizeof *all);
    Status st = gguf_floats(m->g, list, all);
    all[layer] = v;
    if (!st.code) gguf_set_floats(m->g, key, all, n);
    free(all);
    return st;
}

bool hf_xielu_take(const HfModel *m, long layer, const char *part, const SafeTensor *t, Status *st) {
    for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
        if (strcmp(part, lists[k].part) != 0 || !gguf_value(m->g, lists[k].key)) continue;
        int type = hf_type_of(t);
        float v = 0;
        if (type < 0 || t->n_bytes != t->element) *st = hf_refuse(t, "one number in F32, F16 or BF16");
        else {
            type_info(type)->dequantize(hf_aligned_data(m, t), &v, 1);
            *st = put(m, lists[k].key, layer, v);
        }
        return true;
    }
    return false;
}

Status hf_xielu_end(const HfModel *m) {
    for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
        const GgufValue *list = gguf_value(m->g, lists[k].key);
        for (uint64_t i = 0; list && i < list->n; i++) {
            float v;
            memcpy(&v, list->data + i * sizeof v, sizeof v);
            if (isnan(v))
                return status_error(QUILL_MODEL,
                                    "%s: tensor layers.%d.%s: one number expected in the safetensors files, "
                                    "none found",
                                    m->dir, (int)i, lists[k].part);
        }
    }
    return OK;
}
