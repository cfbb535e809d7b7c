// bench/roofline.h: peak rates of this machine ("ceilings"): its read bandwidth and the throughput of its arithmetic
// units. They are measured once and stored in the user's cache directory.
//
// If a run is faster than a stored ceiling, the ceiling was measured too low: roofline_share_* raise it, and
// roofline_keep_raised stores the new value. A new measurement replaces all stored ceilings.
#ifndef QUILL_ROOFLINE_H
#define QUILL_ROOFLINE_H

#include "base/base.h"
#include "base/jsonio.h"
#include "policy/draft_length.h"

// An arithmetic unit multiplies and adds in one number format. A multiply-add counts as two operations.
typedef struct {
    const char *name;  // "avx512", as engine_prefill_unit and roofline_peak_gflops name it
    const char *label; // name in tables
    const char *key;   // key in JSON
    bool integer;      // rates are GOP/s; otherwise GFLOP/s
} RooflineUnit;

enum { ROOFLINE_UNITS = 9 };
extern const RooflineUnit roofline_units[ROOFLINE_UNITS];

typedef struct {
    int threads;                   // one for each physical core; a file with another number is ignored
    double read_gbs;               // GB/s, sequential reads of a buffer much larger than the caches
    double read_gbs_1;             // the same with one thread
    double gflops[ROOFLINE_UNITS]; // all threads, operands in registers; 0: the CPU or the compiler lacks the unit
    // Times of steps with few rows (policy/draft_length.h), with weights in Q8_0 and in Q4_K, computed on steps_unit.
    // at[0] == 0: not measured. `quill bench --roofline` sets them; they are replaced, never raised.
    StepCosts steps[2];
    char steps_unit[16];
    double cpu_share; // share of the CPU time during the measurement; below 1: other programs ran. Not stored
    bool raised;      // a run was faster than a ceiling and has raised it. Not stored
    char cpu[96];     // roofline_cpu_name; a file from another machine is ignored
} Roofline;

// Takes about five seconds. Uses one worker on each core that this process may use, independent of -t.
Status roofline_measure(Roofline *out);
// False: no file, a damaged one, or one of another machine, number of threads or version of the measurement.
bool roofline_load(Roofline *out);
bool roofline_save(const Roofline *r);            // false: no cache directory can be written
void roofline_print(const Roofline *r, Buf *out); // a small table
json_t *roofline_json(const Roofline *r);         // keys: threads, read_gbs, read_gbs_1, those of the units
void roofline_cpu_name(char *out, size_t cap);    // "AMD EPYC, family 26 model 2"
size_t roofline_cache_bytes(void);                // total size of all last-level caches

// Ceilings for `threads` threads; more threads than r->threads do not raise them. The bandwidth of fewer threads is
// that of one times their number, at most read_gbs; the rate of a unit is proportional to the threads.
double roofline_read(const Roofline *r, int threads); // GB/s
// The ceiling of a unit by its name, in GFLOP/s or GOP/s; 0: unknown or not measured.
double roofline_peak_gflops(const Roofline *r, const char *unit, int threads);

// The share of its ceiling that a run reached, at most 1; 0: no ceiling is known. A run above the ceiling raises it.
// bytes: memory that the run reads repeatedly. If part of that may be in the caches, a rate above the ceiling is not a
// rate of memory: the share is 0 and the ceiling stays.
double roofline_share_of_read(Roofline *r, int threads, double gbs, double bytes);
double roofline_share_of_unit(Roofline *r, const char *unit, int threads, double gflops);
// If r->raised: stores the ceilings that are larger than the stored ones, and says so in a line on stderr.
void roofline_keep_raised(Roofline *r, bool quiet);

// ---- the loops that are timed: roofline_kernels.c -------------------------------------------------------------------

typedef double FlopLoop(long rounds); // computes in registers only and returns the number of operations

// The loop of a unit by its name, callable from any thread. NULL: the CPU, the operating system or the compiler does
// not support the unit.
FlopLoop *roofline_flop_loop(const char *unit);
// Reads `part` bytes (a multiple of 256) of each stream; stream i begins at data + i * stride (a multiple of 64).
// ahead: prefetches this many bytes ahead; 0: no prefetching. The result depends on all bytes read, so that the
// compiler keeps the reads.
uint64_t roofline_read_loop(const void *data, size_t stride, size_t part, int streams, size_t ahead);

#endif
