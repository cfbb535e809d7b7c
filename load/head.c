// load/head.c: loads a multi-token prediction head from a model file. See load/loader.h and model_load_head.
//
// The head's input is the model's hidden vector of a token, after the final norm. To predict a further token, the
// head's own output, after its own final norm, is the input.
#include "load/loader.h"

#include <stdio.h>

Status loader_check_head(const Model *m) {
    const char *file = gguf_name(m->gguf), *arch = m->c.arch;
    char known[96] = "";
    if (m->c.n_mtp == 0)
        return status_error(QUILL_MODEL,
                            "%s: --speculate mtp: a file with a prediction head (%s.nextn_predict_layers) expected, "
                            "none found; try --speculate ngram",
                            file, arch);
    for (int i = 0; families_at(i); i++)
        if (families_at(i)->head) str_list(known, sizeof known, families_at(i)->arch);
    if (family_find(str_of(arch))->head) return OK;
    return status_error(QUILL_MODEL,
                        "%s: --speculate mtp: the prediction head of one of %s expected, one of %s found, which is not "
                        "supported; try --speculate ngram",
                        file, known, arch);
}

// The embedding or the head of the file's own, in place of the model's.
static Status load_own_end(const Loader *l, int at, const char *part, Tensor *out) {
    char name[96];
    if (!loader_layer_has(l, at, part)) return OK;
    snprintf(name, sizeof name, "blk.%d.%s.weight", at, part);
    return loader_matrix(l, out, name, l->m->c.n_vocab, l->m->c.dim);
}

Status loader_head(const Loader *l, int at) {
    Model *m = l->m;
    Ends *e = &m->ends;
    const float *norm;
    int dim = m->c.dim;
    TRY(loader_layer_matrix(l, at, "nextn.eh_proj", &e->join, dim, 2 * dim));
    TRY(loader_layer_vector(l, at, "nextn.enorm", &e->norm_embd, dim, true));
    TRY(loader_layer_vector(l, at, "nextn.hnorm", &e->norm_given, dim, true));
    TRY(loader_layer_vector(l, at, "nextn.shared_head_norm", &norm, dim, false));
    if (norm) e->norm_out = norm;
    TRY(load_own_end(l, at, "nextn.embed_tokens", &e->tok_embd));
    TRY(load_own_end(l, at, "nextn.shared_head_head", &e->head));
    m->c.tied = e->head.data == e->tok_embd.data;
    Layer *y = &m->layers[0];
    *y = m->layers[at];
    y->index = y->kv_layer = 0;
    y->kv_used_later = false;
    m->c.n_layers = 1;
    m->c.n_recurrent = 0;
    m->c.n_windowed = y->heads.window > 0;
    if (layer_owns_kv(y)) return OK;
    return status_error(QUILL_MODEL, "%s: tensor blk.%d.attn_k.weight: K of its own expected in a prediction head",
                        l->file, at);
}
