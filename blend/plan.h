// blend/plan.h: chooses the tokens of a prompt with chunks that are recomputed (--blend).
//
// The K and V of a chunk were computed from the chunk alone, without attention to the text before it. To correct
// this, some tokens of the chunks are recomputed over all K and V before them:
//
//   cacheblend  the share `ratio` of tokens whose V in the second layer differs most from the stored V (CacheBlend,
//               EuroSys 2025), and the first k tokens of each chunk. With gradual = g the share falls linearly from
//               ratio (1 + g) in the first layer after the second to ratio (1 - g) in the last: each layer drops the
//               tokens whose V there is nearest to the stored V
//   epic        the first k tokens of each chunk (EPIC's LegoLink, arXiv 2410.15332)
//   reuse       none
//   full        all: stored K and V are not used
#ifndef QUILL_BLEND_PLAN_H
#define QUILL_BLEND_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum { BLEND_CACHEBLEND, BLEND_EPIC, BLEND_REUSE, BLEND_FULL } BlendMode;

typedef struct {
    BlendMode mode;
    double ratio;    // cacheblend: share of the chunks' tokens, 0 to 1
    bool by_loading; // ratio=auto: `ratio` is the least share; more if loading a layer takes longer than computing it
    int k;           // epic, cacheblend: leading tokens of each chunk
    double gradual;  // cacheblend: 0 to 1
} BlendPlan;

#define BLEND_DEFAULT "cacheblend,ratio=0.15"

// Parses "cacheblend,ratio=0.15,k=0,gradual=0", "cacheblend,ratio=auto", "epic,k=16", "reuse" or "full"; NULL:
// BLEND_DEFAULT. QUILL_USAGE: wrong syntax.
Status plan_parse(const char *text, BlendPlan *out);

// The ratio at which computing a layer takes as long as loading it (CacheBlend's loading controller). load: seconds to
// load a layer; compute: seconds to compute all tokens in a layer. At least p->ratio, at most 1.
double plan_ratio_by_loading(const BlendPlan *p, double load, double compute);
// The share of tokens to compute in the i-th of the n layers after the check layer, 0 <= i < n. It falls from
// min(1, ratio (1 + gradual)) to as much below `ratio` as that is above it.
double plan_share(const BlendPlan *p, int i, int n);

// The deviation of a token: the sum of squared differences of its computed V and its stored V, n numbers each.
double plan_deviation(const float *fresh, const float *kept, size_t n);

// Writes the tokens of [first, n) that are recomputed to `out`, ascending, and returns their number: all tokens without
// stored K and V, and floor(ratio * number) of the others, those with the largest deviation, the earlier of equal ones.
// kept, deviation: (n) by token; deviation is not read if ratio is 0.
int plan_choose(double ratio, const uint8_t *kept, const double *deviation, int first, int n, int *out);

#endif
