// blend/plan.h: which tokens of a prompt made of chunks are computed again (--blend).
//
// The K and V of a chunk were computed from the chunk alone. In a prompt they lack what the chunk would have seen of
// the text in front of it, so some of its tokens are computed again, over all K and V in front of them:
//
//   cacheblend  the share `ratio` of tokens whose V in the second layer differs most from what was kept (CacheBlend,
//               EuroSys 2025), and the first k of each chunk where k is not 0
//   epic        the first k tokens of each chunk (EPIC's LegoLink, arXiv 2410.15332)
//   reuse       none
//   full        all: nothing that was kept is used
#ifndef QUILL_BLEND_PLAN_H
#define QUILL_BLEND_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum { BLEND_CACHEBLEND, BLEND_EPIC, BLEND_REUSE, BLEND_FULL } BlendMode;

typedef struct {
    BlendMode mode;
    double ratio; // of the chunks' tokens, 0 to 1: cacheblend
    int k;        // leading tokens of each chunk: epic, cacheblend
} BlendPlan;

#define BLEND_DEFAULT "cacheblend,ratio=0.15"

// "cacheblend,ratio=0.15,k=0", "epic,k=16", "reuse", "full"; NULL: BLEND_DEFAULT. QUILL_USAGE.
Status plan_parse(const char *text, BlendPlan *out);

// How far V of a token, n numbers, is from what was kept: the sum of squared differences. The one place that ranks.
double plan_deviation(const float *fresh, const float *kept, size_t n);

// Of the tokens [first, n) writes to `out`, ascending, those to be computed again: all that nothing was kept of, and of
// the others floor(ratio * their number), the largest deviation first, of equal ones the earlier. kept and deviation:
// (n) by token; deviation is not looked at for ratio 0. Returns how many.
int plan_choose(double ratio, const uint8_t *kept, const double *deviation, int first, int n, int *out);

#endif
