// batch/batch_stats.h: what a batch of jobs took: rates, latencies, how well the KV cache was used, what kept its
// promise.
#ifndef QUILL_BATCH_STATS_H
#define QUILL_BATCH_STATS_H

#include "engine.h"

// Latencies to keep, in seconds; 0: any.
typedef struct {
    double ttft, tpot;
} Slo;

// "ttft=500,tpot=50", in milliseconds, one of them or both; NULL: none. QUILL_USAGE.
Status slo_parse(const char *text, Slo *out);

typedef struct {
    double start;
    Sample ttft, tpot, itl, latency, queue; // seconds
    int64_t n_jobs, n_failed, n_kept;       // n_kept: jobs whose answers all kept the Slo
    int64_t n_prompt, n_cached, n_new;      // tokens
    int64_t n_steps, n_seqs, n_emitted;     // n_seqs, and tokens that came of their rows: summed over the steps
    int most_seqs, most_blocks;             // in a step
    DraftCounts drafts;                     // of all answers
    double slots, slots_held;               // computed, and in the blocks that hold them, summed over the steps
} BatchStats;

void batch_stats_step(BatchStats *t, const Engine *e, const Batch *b); // after engine_step
void batch_stats_answer(BatchStats *t, const Request *r);              // one that has ended
// A job that is answered: its n answers, and when the last token came (`end`, clock_now()).
void batch_stats_job(BatchStats *t, const Slo *slo, const Request *const *answers, int n, double end);
void batch_stats_goodput(const BatchStats *t, const Slo *slo); // to stderr, where something was promised
void batch_stats_report(const BatchStats *t, const Engine *e, const Slo *slo); // --verbose, to stderr, with the goodput
void batch_stats_free(BatchStats *t);

#endif
