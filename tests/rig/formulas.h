// tests/rig/formulas.h: a model on every instruction set against the formulas in double (plain_forward).
#ifndef QUILL_FORMULAS_H
#define QUILL_FORMULAS_H

#include "tests/rig/cpu_rig.h"
#include "tests/rig/plain_forward.h"

// Logits of 30 random tokens, in steps of 30, 7 and 1. n_ctx 0: N_CTX. `name` is for messages.
static inline void expect_formulas(const Gguf *g, int n_ctx, uint64_t seed, const char *name) {
    enum { N = 30 };
    int tokens[N], n_vocab = (int)gguf_tensor(g, "token_embd.weight")->dims[1];
    if (n_ctx == 0) n_ctx = N_CTX;
    random_tokens(tokens, N, n_vocab, seed);
    float *want = plain_forward(g, n_ctx, tokens, N);
    for (int isa = 0; isa_name(isa); isa++)
        for (int chunk = N; chunk > 0; chunk = chunk > 7 ? 7 : chunk > 1 ? 1 : 0) {
            Rig r;
            if (isa_is_of_integers(isa_name(isa))) continue;
            if (!rig_open(&r, g, (Setup){.isa = isa_name(isa), .block = 16, .n_ctx = n_ctx})) continue;
            float *got = run_tokens(&r, tokens, N, chunk);
            double d = test_distance(got, want, (size_t)(N * n_vocab));
            if (!(d < 1e-5)) fail_msg("%s, %s, steps of %d: distance %.3g", name, isa_name(isa), chunk, d);
            free(got);
            rig_close(&r);
        }
    free(want);
}

#endif
