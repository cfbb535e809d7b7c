// tests/rig/tiny_ssd.c: see tests/rig/tiny_ssd.h.
#include "tests/rig/tiny_ssd.h"

#include "tests/rig/tiny_weights.h"

static const char *name_of(char out[64], int layer, const char *what) {
    snprintf(out, 64, "blk.%d.%s", layer, what);
    return out;
}

void tiny_ssd(Gguf *g, const TinyModel *m, int layer, uint64_t *random) {
    char name[64];
    int n = m->value_heads, inner = 2 * m->dim, channels = 2 * m->key_heads * m->state + inner;
    if (inner % n || inner % m->key_heads) impossible("heads that divide 2 dim expected", n, inner);
    add_matrix(g, name_of(name, layer, "ssm_in.weight"), m->type, m->dim, inner + channels + n, random);
    add_vectors(g, name_of(name, layer, "ssm_conv1d.weight"), m->taps, channels, 0, 0.7f, random);
    add_vector(g, name_of(name, layer, "ssm_conv1d.bias"), channels, 0, 0.5f, random);
    add_vector(g, name_of(name, layer, "ssm_dt.bias"), n, 0, 1, random);
    add_vectors(g, name_of(name, layer, "ssm_a"), 1, n, -0.5f, 0.4f, random);
    add_vectors(g, name_of(name, layer, "ssm_d"), 1, n, 1, 0.5f, random);
    add_vectors(g, name_of(name, layer, "ssm_norm.weight"), inner / m->key_heads, m->key_heads, 1, 0.2f, random);
    add_matrix(g, name_of(name, layer, "ssm_out.weight"), m->type, inner, m->dim, random);
}
