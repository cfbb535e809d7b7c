// tests/rig/tiny_weights.h: adds tensors of random weights to a tiny model.
#ifndef QUILL_TINY_WEIGHTS_H
#define QUILL_TINY_WEIGHTS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/gguf.h"
#include "formats/random_blocks.h"
#include "formats/types.h"

static inline _Noreturn void impossible(const char *what, long a, long b) {
    fprintf(stderr, "tiny_model: %s (%ld, %ld)\n", what, a, b);
    exit(QUILL_USAGE);
}

static inline void *own_bytes(Gguf *g, size_t n) {
    void *p = pages_alloc(n, false);
    if (!p) impossible("no memory for a tensor of bytes", (long)n, 0);
    gguf_own_pages(g, p, n);
    return p;
}

static inline void add_i8g(Gguf *g, const char *name, size_t n_in, size_t n_out, size_t n_stack, float deviation,
                           uint64_t *random) {
    enum { GROUP = 32 };
    size_t n = n_in * n_out * (n_stack ? n_stack : 1), n_groups = n / GROUP;
    if (n % GROUP) impossible("groups of 32 expected, other number of weights found", (long)n_in, (long)n_out);
    char *data = own_bytes(g, n + 1 + n_groups * sizeof(float)), *scales = data + n + 1; // unaligned, as files may be
    for (size_t i = 0; i < n; i++) data[i] = (char)((int)(random_blocks_bits(random) % 255) - 127);
    for (size_t i = 0; i < n_groups; i++) {
        float scale =
            // 73.6 is the standard deviation of -127..127
            deviation / 73.6f * (1.0f + 0.5f * random_blocks_uniform(random));
        memcpy(scales + i * sizeof scale, &scale, sizeof scale);
    }
    gguf_add_stack(g, name, TYPE_I8G, n_in, n_out, n_stack, data, (const void *)scales, GROUP);
}

// n_stack 0 makes one matrix.
static inline void add_stack(Gguf *g, const char *name, int type, int n_in, int n_out, int n_stack, uint64_t *random) {
    const TypeInfo *info = type_info(type);
    if (!info) impossible("a type that quill computes with expected", type, 0);
    if (n_in % info->block) impossible("rows of whole blocks expected", n_in, info->block);
    float deviation = 1.0f / sqrtf((float)n_in);
    size_t n = (size_t)n_in * (size_t)n_out * (size_t)(n_stack ? n_stack : 1);
    if (type == TYPE_I8G) {
        add_i8g(g, name, (size_t)n_in, (size_t)n_out, (size_t)n_stack, deviation, random);
        return;
    }
    void *data = own_bytes(g, n / (size_t)info->block * (size_t)info->bytes);
    random_blocks_fill(type, data, n, deviation, random);
    gguf_add_stack(g, name, type, (size_t)n_in, (size_t)n_out, (size_t)n_stack, data, NULL, 0);
}

static inline void add_matrix(Gguf *g, const char *name, int type, int n_in, int n_out, uint64_t *random) {
    add_stack(g, name, type, n_in, n_out, 0, random);
}

// Adds f32 values around `centre`.
static inline void add_vectors(Gguf *g, const char *name, int n, int n_stack, float centre, float spread,
                               uint64_t *random) {
    size_t all = (size_t)n * (size_t)(n_stack ? n_stack : 1);
    float *data = own_bytes(g, all * sizeof *data);
    for (size_t i = 0; i < all; i++) data[i] = centre + spread * random_blocks_uniform(random);
    gguf_add_tensor(g, name, TYPE_F32, (size_t)n, (size_t)n_stack, data, NULL, 0);
}

static inline void add_vector(Gguf *g, const char *name, int n, float centre, float spread, uint64_t *random) {
    add_vectors(g, name, n, 0, centre, spread, random);
}

#endif
