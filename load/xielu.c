// load/xielu.c: loads the parameters of ACT_XIELU from a model file. See load/loader.h.
#include "load/loader.h"

#include <math.h>
#include <stdlib.h>

// A number for each layer, or one for all. These keys begin without the name of the architecture.
static Status load_one(const Loader *l, const char *key, int layer, float *out) {
    const GgufValue *v = gguf_value(l->g, key);
    if (!v || v->type != GGUF_ARRAY) TRY(gguf_f32(l->g, key, out, true, 0));
    else {
        if (v->n != (uint64_t)l->m->c.n_layers)
            return status_error(QUILL_MODEL, "%s: %s: %d numbers, one for each layer, expected, %llu found", l->file,
                                key, l->m->c.n_layers, (unsigned long long)v->n);
        float *all = mem_alloc((size_t)v->n * sizeof *all);
        Status st = gguf_floats(l->g, v, all);
        *out = all[layer];
        free(all);
        TRY(st);
    }
    if (fabsf(*out) <= 1e4f) return OK; // trained ones are near 1
    return status_error(QUILL_MODEL, "%s: %s: numbers from -10000 to 10000 expected, %g found for layer %d", l->file,
                        key, (double)*out, layer);
}

static float softplus(float v) { return v > 20 ? v : log1pf(expf(v)); }

// The file has both slopes before their softplus. A fourth number, xielu.eps, is not read: it replaces arguments of
// expm1 between it, -1e-6, and 0, which changes no result by more.
Status loader_xielu(const Loader *l, int layer) {
    Xielu *x = &l->m->layers[layer].kind.xielu;
    float p, n;
    TRY(load_one(l, "xielu.alpha_p", layer, &p));
    TRY(load_one(l, "xielu.alpha_n", layer, &n));
    TRY(load_one(l, "xielu.beta", layer, &x->b));
    x->p = softplus(p);
    x->n = x->b + softplus(n);
    return OK;
}
