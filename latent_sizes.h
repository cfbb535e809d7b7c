// latent_sizes.h: the sizes of a layer with compressed K and V (MIXER_LATENT), and the choice between the two forms of
// its attention, which cpu/latent_expand.h describes.
#ifndef QUILL_LATENT_SIZES_H
#define QUILL_LATENT_SIZES_H

#include <stdbool.h>

// The elements of a head of Q and K without RoPE, with RoPE and both together, of a head of V
// before it is compressed, and of the compressed vector.
typedef struct {
    int plain, rot, query, v, rank, n_heads;
} LatentSizes;
// Whether the expanded form of attention to compressed K and V takes fewer multiplications than the absorbed form, for
// rows of one sequence that see `seen` keys in all, of n_slots slots: absorbed, k_b and v_b multiply each row, and a
// key has rank + rot and rank elements; expanded, they multiply each slot, and a key has query and v elements for each
// head.
static inline bool latent_sizes_expand(const LatentSizes *s, double seen, int n_rows, int n_slots) {
    double product = (double)s->rank * (s->plain + s->v);
    double absorbed = seen * (2 * s->rank + s->rot) + n_rows * product;
    return n_rows > 1 && seen * (s->query + s->v) + n_slots * product < absorbed;
}

#endif
