// answer/report.h: reports times, rates and memory of a request, for --verbose and --json.
#ifndef QUILL_REPORT_H
#define QUILL_REPORT_H

#include "answer/answer_config.h"
#include "base/jsonio.h"
#include "engine.h"

// Milliseconds are rounded to 4 decimals, so that total = ttft + tpot x (tokens - 1) holds for the printed figures.
typedef struct {
    int tokens; // number of generated tokens; ttft is valid from 1 on, tpot and itl from 2 on
    // prefill_ms: of the rows of the prompt alone. ttft_ms is longer: it has the time before the first of them too, in
    // which chunks are computed (--chunk) and K and V loaded (--kv-dir)
    double load_ms, prefill_ms, ttft_ms, tpot_ms, itl_p50_ms, itl_p99_ms, decode_ms, total_ms;
    double prefill_tps, decode_tps; // tokens per second; 0: nothing was measured
} Timing;

Timing report_timing(const Engine *e, const Request *r);

// All to stderr. report_before: the model, the device and the sampling (template_name NULL: nothing is generated).
// report_after: times, rates and memory of a finished request.
void report_before(const Engine *e, const AnswerConfig *config, const char *template_name);
void report_budget(const Engine *e); // the memory budget
void report_after(const Engine *e, const Request *r);
void report_drafts(const Engine *e, const DraftCounts *c); // drafted and accepted tokens of --speculate
void report_store(const KvStore *s);                       // reads from and writes to --kv-dir; NULL: prints nothing
void report_turn(const Engine *e, const AnswerConfig *config,
                 const Request *r); // a turn of a chat in two lines, dim in colour

// Sets "speculation" in `object`, if the engine speculates.
void report_put_drafts(const Engine *e, const DraftCounts *c, json_t *object);
// The object of --json. finish: the name of the reason for the end.
json_t *report_json(const Engine *e, const AnswerConfig *config, const Request *r, const char *finish, Str text);

#endif
