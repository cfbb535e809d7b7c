// batch/batch_line.h: a line of a batch on its way: its job, the requests that answer it, the line that comes of it.
#ifndef QUILL_BATCH_LINE_H
#define QUILL_BATCH_LINE_H

#include "answer/choices.h"
#include "batch/jobs.h"
#include "blend/blender.h"

// What all lines of a run share.
typedef struct {
    Engine *e;
    const AnswerConfig *config;   // the run's, for every job that says nothing else
    const ChatTemplate *template; // NULL: raw text
    Str system;                   // data NULL: no system message
    Blender **blender;            // of jobs with chunks; the first of them opens it
} BatchContext;

typedef struct BatchLine BatchLine;
struct BatchLine {
    int64_t number; // of the line in the input
    Job job;
    LogitBias *bias; // of --ignore-eos
    Blend *blend;    // the policy of a prompt with chunks
    Choices choices; // its answers; nothing of it has begun: the line is no job, or a broken one
    double end;      // when its last answer had ended
    Status failed;
    Buf reply; // what replies_write has made of it when it is done; empty: nothing is to be written
    bool done;
    BatchLine *next;
};

// Reads a line. A job's requests are with the scheduler when it returns, as if they had come at `came`; a broken line
// is done, and so is one that calls jobs off.
BatchLine *batch_line_new(const BatchContext *context, Str text, int64_t number, double came);
// A line of which nothing is known but what is wrong with it.
BatchLine *batch_line_refuse(Status why, int64_t number);
bool batch_line_begun(const BatchLine *line); // a row of it was computed
void batch_line_cancel(BatchLine *line);
// Ends the answers whose requests have finished. True: all of them have now, and the line is done.
bool batch_line_collect(BatchLine *line);
void batch_line_free(BatchLine *line); // its requests must have finished

#endif
