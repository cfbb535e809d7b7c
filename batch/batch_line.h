// batch/batch_line.h: one input line of a batch: its job, the requests that answer the job, and the output line.
#ifndef QUILL_BATCH_LINE_H
#define QUILL_BATCH_LINE_H

#include "answer/choices.h"
#include "batch/jobs.h"
#include "blend/blender.h"

// State that all lines of a run share.
typedef struct {
    Engine *e;
    const AnswerConfig *config;   // the defaults of every job
    const ChatTemplate *template; // NULL: raw text
    Str system;                   // data NULL: no system message
    Blender **blender;            // for jobs with chunks; the first such job opens it
} BatchContext;

typedef struct BatchLine BatchLine;
struct BatchLine {
    int64_t number; // line number in the input
    Job job;
    LogitBias *bias; // biases of --ignore-eos, used by the requests
    Blend *blend;    // the policy of a prompt with chunks; NULL: no chunks
    Choices choices; // the answers; empty for a broken line and for one that cancels jobs
    double end;      // time at which the last answer ended, clock_now()
    Status failed;
    Buf reply; // the output line once the line is done; empty: no output
    bool done;
    BatchLine *next;
};

// Parses a line and adds the requests of its job to the scheduler, with arrival time `came`. A broken line is done at
// once, with `failed` set; a line that cancels jobs is done too.
BatchLine *batch_line_new(const BatchContext *context, Str text, int64_t number, double came);
// A failed line that was not parsed.
BatchLine *batch_line_refuse(Status why, int64_t number);
// Ends the answers whose requests have finished. True: this call has ended the last one, and the line is done.
bool batch_line_collect(BatchLine *line);
void batch_line_free(BatchLine *line); // its requests must have finished

#endif
