// answer/report.h: what a run took: the figures of --verbose and of --json, from a request's Timeline.
#ifndef QUILL_REPORT_H
#define QUILL_REPORT_H

#include "answer/answer_config.h"
#include "base/jsonio.h"
#include "engine.h"

// Milliseconds rounded to 4 digits, so that total = ttft + tpot x (tokens - 1) holds in what is printed.
typedef struct {
    int tokens; // generated; without any, ttft, tpot and the gaps mean nothing
    double load_ms, prefill_ms, ttft_ms, tpot_ms, itl_p50_ms, itl_p99_ms, decode_ms, total_ms;
    double prefill_tps, decode_tps; // tokens a second; 0: nothing to measure
} Timing;

Timing report_timing(const Engine *e, const Request *r);

// --verbose, to stderr: what is about to run (template_name NULL: nothing is generated), and what it took.
void report_before(const Engine *e, const AnswerConfig *config, const char *template_name);
void report_budget(const Engine *e); // the memory budget, to stderr
void report_after(const Engine *e, const Request *r);
void report_drafts(const Engine *e, const DraftCounts *c); // what --speculate gave, to stderr
void report_store(const KvStore *s); // what came from --kv-dir and went there, to stderr; NULL: nothing
void report_turn(const Engine *e, const AnswerConfig *config,
                 const Request *r); // a chat's turn in one line, dim in colour

// "speculation" of an object, where there is any.
void report_put_drafts(const Engine *e, const DraftCounts *c, json_t *object);
json_t *report_json(const Engine *e, const AnswerConfig *config, const Request *r, Str text); // the object of --json

#endif
