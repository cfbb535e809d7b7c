// batch/batch_stats.h: statistics of a batch: rates, latencies, use of the KV cache, and the share of jobs that met the
// latency targets (--slo).
#ifndef QUILL_BATCH_STATS_H
#define QUILL_BATCH_STATS_H

#include "engine.h"

// Latency targets in seconds; 0: no target.
typedef struct {
    double ttft, tpot;
} Slo;

// Parses "ttft=500,tpot=50" (milliseconds, one of them or both); NULL: no targets. QUILL_USAGE: wrong syntax.
Status slo_parse(const char *text, Slo *out);

typedef struct {
    double start;
    Sample ttft, tpot, itl, latency, queue; // seconds
    int64_t n_jobs, n_failed, n_kept;       // n_jobs: answered; n_kept: of them, jobs whose answers all met the Slo
    int64_t n_prompt, n_cached, n_new;      // tokens
    int64_t n_steps, n_seqs, n_emitted;     // n_seqs, n_emitted: sequences and generated tokens, summed over the steps
    int most_seqs, most_blocks;             // maximum over the steps
    DraftCounts drafts;                     // of all answers
    double slots, slots_held;               // slots computed, slots in the allocated blocks; summed over the steps
} BatchStats;

void batch_stats_step(BatchStats *t, const Engine *e, const Batch *b); // after engine_step
void batch_stats_answer(BatchStats *t, const Request *r);              // adds a request that has finished
// Adds an answered job: the requests of its n answers, and the time of its last token, clock_now().
void batch_stats_job(BatchStats *t, const Slo *slo, const Request *const *answers, int n, double end);
void batch_stats_goodput(const BatchStats *t, const Slo *slo); // prints the goodput to stderr if there are targets
void batch_stats_report(const BatchStats *t, const Engine *e, const Slo *slo); // --verbose: prints all to stderr
void batch_stats_free(BatchStats *t);

#endif
