// bench/roofline.h: the ceilings of this machine, measured: read bandwidth and the rates of its arithmetic units; kept
// in the user's cache directory.
//
// A ceiling is the best that was seen. A run that is faster than the stored ceiling shows that it was measured too low:
// roofline_share_* then raise it, and roofline_keep_raised stores that.
#ifndef QUILL_ROOFLINE_H
#define QUILL_ROOFLINE_H

#include "base/base.h"
#include "base/jsonio.h"
#include "policy/draft_length.h"

// A unit multiplies and adds in one format; a multiply-add counts as two operations.
typedef struct {
    const char *name;  // "avx512", as engine_prefill_unit and roofline_peak_gflops name it
    const char *label; // in tables
    const char *key;   // in JSON
    bool integer;      // GOP/s; else GFLOP/s
} RooflineUnit;

enum { ROOFLINE_UNITS = 9 };
extern const RooflineUnit roofline_units[ROOFLINE_UNITS];

typedef struct {
    int threads;                   // one for each physical core: a file with another number is ignored
    double read_gbs;               // GB/s, sequential reads of a buffer far larger than the caches
    double read_gbs_1;             // the same with one thread
    double gflops[ROOFLINE_UNITS]; // of all threads, from registers; 0: this CPU or the compiler lacks the unit
    // What steps of few rows take (policy/draft_length.h), of weights in Q8_0 and in Q4_K, on this unit; at[0] == 0:
    // not measured. Set by who has a model to measure with, replaced and never raised.
    StepCosts steps[2];
    char steps_unit[16];
    double cpu_share; // of the CPU time while measuring; below 1 other programs took some. Not stored
    bool raised;      // a run was faster than a figure above, which is its rate since. Not stored
    char cpu[96];     // roofline_cpu_name: a file from another machine is ignored
} Roofline;

// Some five seconds; with one worker on each core that this process may use, whatever -t says.
Status roofline_measure(Roofline *out);
// false: none is stored, or a damaged one, or one of another machine, thread count or way of measuring
bool roofline_load(Roofline *out);
void roofline_keep_larger(Roofline *r, const Roofline *other); // of every figure
bool roofline_save(const Roofline *r);                         // false: there is no place for it
void roofline_print(const Roofline *r, Buf *out);              // a small table
json_t *roofline_json(const Roofline *r);                      // the figures: threads, read_gbs, read_gbs_1, the units'
void roofline_cpu_name(char *out, size_t cap);                 // "AMD EPYC, family 26 model 2"
size_t roofline_cache_bytes(void);                             // of the last level of caches, all together

// What the figures say of fewer threads (more do not help): bandwidth up to what was measured, FLOPs in proportion.
double roofline_read(const Roofline *r, int threads); // GB/s
// The ceiling of a unit, by its name, in GFLOP/s or GOP/s; 0: there is no such unit, or it was not measured.
double roofline_peak_gflops(const Roofline *r, const char *unit, int threads);

// The share of its ceiling that a run reached, at most 1; 0: no ceiling is known. A run above the ceiling raises it.
// bytes: what the run reads over and over. Where that may lie in the caches in part, a rate above the ceiling is not
// one of memory: 0, and nothing is raised.
double roofline_share_of_read(Roofline *r, int threads, double gbs, double bytes);
double roofline_share_of_unit(Roofline *r, const char *unit, int threads, double gflops);
// Where `raised`: stores the figures that are larger than the stored ones and says so in a line on stderr.
void roofline_keep_raised(Roofline *r, bool quiet);

// ---- the loops that are timed: roofline_kernels.c -------------------------------------------------------------------

typedef double FlopLoop(long rounds); // computes in registers alone and returns the operations it did

// The loop of a unit, by its name. NULL: this CPU, its system or the compiler has none. Fit for any thread.
FlopLoop *roofline_flop_loop(const char *unit);
// Reads `part` bytes (a multiple of 256) of each of some streams, stream i at data + i * stride (a multiple of 64), and
// fetches what lies `ahead` bytes further (0: does not). The result keeps the reads alive.
uint64_t roofline_read_loop(const void *data, size_t stride, size_t part, int streams, size_t ahead);

#endif
