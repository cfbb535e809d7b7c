// load/xielu.c: loads the parameters of ACT_XIELU from a model file. See load/loader.h.
#include "load/loader.h"

#include <math.h>
#include <stdlib.h>

// A number for each layer, or one for all. These keys begin without the name of the architecture.
static Status load_one(const Loader *l, const char *key, int layer, float low, float high, float *out) {
    const GgufValue *v = gguf_value(l->g, key);
    if (!v || v->type != GGUF_ARRAY) TRY(gguf_f32(l->g, key, out, true, 0));
    else {
        TRY(loader_each_layer(l, v));
        float *all = mem_alloc((size_t)v->n * sizeof *all);
        Status st = gguf_floats(l->g, v, all);
        *out = all[layer];
        free(all);
        TRY(st);
    }
    if (low <= *out && *out <= high) return OK; // not NaN
    return status_error(QUILL_MODEL, "%s: %s: numbers from %g to %g expected, %g found for layer %d", l->file, key,
                        (double)low, (double)high, (double)*out, layer);
}

static float softplus(float v) { return v > 20 ? v : log1pf(expf(v)); }

// The file has both slopes before their softplus; trained ones are near 1. A fourth number replaces the arguments of
// expm1 between it and 0. It is -1e-6 in trained models, and quill leaves the arguments as they are: that changes a
// result by a millionth of the slope.
Status loader_xielu(const Loader *l, int layer) {
    Xielu *x = &l->m->layers[layer].kind.xielu;
    const float most = 1e4f;
    float p, n, eps;
    TRY(load_one(l, "xielu.alpha_p", layer, -most, most, &p));
    TRY(load_one(l, "xielu.alpha_n", layer, -most, most, &n));
    TRY(load_one(l, "xielu.beta", layer, -most, most, &x->b));
    if (gguf_value(l->g, "xielu.eps")) TRY(load_one(l, "xielu.eps", layer, -1e-5f, 0, &eps));
    x->p = softplus(p);
    x->n = x->b + softplus(n);
    return OK;
}
