// tests/rig/hf_compare.h: a directory for a test, and its logits, compared with those of the GGUF model that it was
// written from.
#ifndef QUILL_HF_COMPARE_H
#define QUILL_HF_COMPARE_H

#include "hf/hf.h"
#include "tests/rig/cpu_rig.h"
#include "tests/rig/directory.h"

#include <sys/stat.h>

static inline char *hf_made_directory(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s", test_tmp(name));
    remove_directory(path);
    mkdir(path, 0777);
    return path;
}

static inline float *hf_logits(const Gguf *g, const char *isa, const int *tokens, int n, size_t *n_logits) {
    Rig r;
    if (!rig_open(&r, g, (Setup){.isa = isa})) return NULL;
    *n_logits = (size_t)(n * r.m.c.n_vocab);
    float *out = run_tokens(&r, tokens, n, n);
    rig_close(&r);
    return out;
}

// Compares the logits of a directory with those of the GGUF model that it was written from.
static inline void hf_compare(const Gguf *model, const char *dir, const char *isa, double limit, const char *what) {
    Gguf *g;
    int tokens[40];
    size_t n_logits = 0;
    random_tokens(tokens, 40, 280, 7);
    assert_ok(hf_open(dir, &g));
    float *want = hf_logits(model, isa, tokens, 40, &n_logits), *got = hf_logits(g, isa, tokens, 40, &n_logits);
    double d = test_distance(got, want, n_logits);
    bool same = memcmp(got, want, n_logits * sizeof *got) == 0;
    if (limit > 0 ? !(d < limit) : !same) fail_msg("%s, %s: distance %.3g, limit %.3g", what, isa, d, limit);
    free(want);
    free(got);
    gguf_close(g);
}

#endif
