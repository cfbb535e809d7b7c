// bench/roofline.h: the ceilings of this machine, measured: read bandwidth and FLOP rates; kept in the user's cache
// directory.
#ifndef QUILL_ROOFLINE_H
#define QUILL_ROOFLINE_H

#include "base/base.h"

typedef struct {
    int threads;          // one for each physical core: a file with another number is ignored
    double read_gbs;      // GB/s, sequential reads of a buffer far larger than the caches (or the largest that fits)
    double read_gbs_1;    // the same with one thread
    double avx2_gflops;   // f32 FMA; 0: this CPU has none
    double avx512_gflops; // f32 FMA
    double amx_gflops;    // bf16
    double cpu_share;     // of the CPU time that there was while measuring; below 1 others took some. Not stored
    char cpu[64];         // model name: a file from another machine is ignored
} Roofline;

// A second or two; with one worker on each core that this process may use, whatever -t says.
Status roofline_measure(Roofline *out);
bool roofline_load(Roofline *out);                             // false: none stored, another machine's, or damaged
void roofline_keep_larger(Roofline *r, const Roofline *other); // of every figure: a ceiling is the best that was seen
bool roofline_save(const Roofline *r);                         // false: there is no place for it
void roofline_print(const Roofline *r, Buf *out);              // a small table
void roofline_cpu_name(char *out, size_t cap);

// What the figures say of fewer threads (more do not help): bandwidth up to what was measured, FLOPs in proportion.
double roofline_read(const Roofline *r, int threads); // GB/s
// The ceiling of what a backend's isa runs on ("avx2", "amx", ...); 0: none was measured.
double roofline_peak_gflops(const Roofline *r, const char *isa, int threads);

// ---- the loops that are timed: roofline_kernels.c -------------------------------------------------------------------

typedef double FlopLoop(long rounds); // computes in registers alone and returns the FLOPs it did

// "avx2", "avx512": f32 multiply-adds; "amx": bf16 tiles. NULL: this CPU or its system has none. Fit for any thread.
FlopLoop *roofline_flop_loop(const char *isa);
// Reads n bytes (a multiple of 256 * streams, aligned to 64) as so many streams; the result keeps the reads alive.
uint64_t roofline_read_loop(const void *data, size_t n, int streams);

#endif
