// blend/plan.h: which tokens of a prompt made of chunks are computed again (--blend).
//
// The K and V of a chunk were computed from the chunk alone. In a prompt they lack what the chunk would have seen of
// the text in front of it, so some of its tokens are computed again, over all K and V in front of them:
//
//   cacheblend  the share `ratio` of tokens whose V in the second layer differs most from what was kept (CacheBlend,
//               EuroSys 2025), and the first k of each chunk where k is not 0. With gradual = g, more tokens in
//               the first layers behind the second, ratio (1 + g), and fewer in the last, ratio (1 - g), on a straight
//               line: each layer leaves out those whose V there is nearest to what was kept
//   epic        the first k tokens of each chunk (EPIC's LegoLink, arXiv 2410.15332)
//   reuse       none
//   full        all: nothing that was kept is used
#ifndef QUILL_BLEND_PLAN_H
#define QUILL_BLEND_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum { BLEND_CACHEBLEND, BLEND_EPIC, BLEND_REUSE, BLEND_FULL } BlendMode;

typedef struct {
    BlendMode mode;
    double ratio;    // of the chunks' tokens, 0 to 1: cacheblend
    bool by_loading; // ratio=auto: at least the ratio here, more where loading takes longer than computing
    int k;           // leading tokens of each chunk: epic, cacheblend
    double gradual;  // 0 to 1: cacheblend
} BlendPlan;

#define BLEND_DEFAULT "cacheblend,ratio=0.15"

// "cacheblend,ratio=0.15,k=0,gradual=0", "cacheblend,ratio=auto", "epic,k=16", "reuse", "full"; NULL:
// BLEND_DEFAULT. QUILL_USAGE.
Status plan_parse(const char *text, BlendPlan *out);

// The ratio whose computing takes as long as loading, where loading a layer and computing all tokens in one take so
// many seconds: p->ratio at least, 1 at most (CacheBlend's loading controller).
double plan_ratio_by_loading(const BlendPlan *p, double load, double compute);
// The share of tokens in layer i of the n that come behind the check layer, 0 <= i < n: between ratio (1 + gradual), 1
// at most, and as much below the ratio.
double plan_share(const BlendPlan *p, int i, int n);

// How far V of a token, n numbers, is from what was kept: the sum of squared differences. The one place that ranks.
double plan_deviation(const float *fresh, const float *kept, size_t n);

// Of the tokens [first, n) writes to `out`, ascending, those to be computed again: all that nothing was kept of, and of
// the others floor(ratio * their number), the largest deviation first, of equal ones the earlier. kept and deviation:
// (n) by token; deviation is not looked at for ratio 0. Returns how many.
int plan_choose(double ratio, const uint8_t *kept, const double *deviation, int first, int n, int *out);

#endif
