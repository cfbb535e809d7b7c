// hf/view.c: see hf/view.h.
#include "hf/view.h"

#include <stdlib.h>
#include <string.h>

#include "formats/types.h"

bool hf_number(const char *text, const char **end, long *out) {
    size_t n = strspn(text, "0123456789");
    if (n < 1 || n > 9 || (n > 1 && *text == '0')) return false; // 9 digits fit any long
    *end = text + n;
    *out = strtol(text, NULL, 10);
    return true;
}

int hf_type_of(const SafeTensor *t) {
    static const struct {
        const char *dtype;
        int type;
    } types[] = {{"F32", TYPE_F32}, {"F16", TYPE_F16}, {"BF16", TYPE_BF16}};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strcmp(types[i].dtype, t->dtype) == 0) return types[i].type;
    return -1;
}

// Large pieces get separate pages.
void *hf_view_alloc(Gguf *g, size_t n) {
    if (n < 1 << 16) return gguf_alloc(g, n);
    void *pages = pages_alloc(n, true);
    if (!pages) mem_refused(n);
    gguf_own_pages(g, pages, n);
    return pages;
}

const void *hf_aligned_data(const HfModel *m, const SafeTensor *t) {
    if ((uintptr_t)t->data % t->element == 0) return t->data;
    void *copy = hf_view_alloc(m->g, t->n_bytes);
    memcpy(copy, t->data, t->n_bytes);
    return copy;
}

Status hf_view_add(const HfModel *m, const SafeTensor *t, const char *name, int type, size_t n_in, size_t n_out,
                   size_t n_stack, const void *data) {
    if (gguf_tensor(m->g, name) && t)
        return status_error(QUILL_MODEL, "%s: tensor %.*s: another one is %s already", t->file, SAFE_SHOW(t->name),
                            name);
    if (gguf_tensor(m->g, name))
        return status_error(QUILL_MODEL, "%s: tensors of single experts: another one is %s already", m->dir, name);
    gguf_add_stack(m->g, name, type, n_in, n_out, n_stack, data, NULL, 0);
    return OK;
}

Status hf_refuse(const SafeTensor *t, const char *expected) {
    return status_error(QUILL_MODEL, "%s: tensor %.*s: %s expected, %s of %d dimensions found", t->file,
                        SAFE_SHOW(t->name), expected, t->dtype, t->n_dims);
}

Status hf_take_taps(const HfModel *m, const char *name, const SafeTensor *t) {
    if (t->n_dims != 3 || t->dims[1] != 1 || t->dims[0] < 1 || t->dims[2] < 1 || hf_type_of(t) < 0)
        return hf_refuse(t, "F32, F16 or BF16 of (channels, 1, taps)");
    return hf_view_add(m, t, name, hf_type_of(t), (size_t)t->dims[2], (size_t)t->dims[0], 0, hf_aligned_data(m, t));
}

Status hf_check_vector(const SafeTensor *t) {
    bool good = t->n_dims == 1 && t->dims[0] >= 1 && hf_type_of(t) >= 0;
    return good ? OK : hf_refuse(t, "F32, F16 or BF16 of one dimension");
}
