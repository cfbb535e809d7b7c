// batch/resume.h: quill batch --resume: skips jobs whose answers are in the output file of an earlier run.
//
// Only complete answers count: jobs with errors or with answers that were cancelled run again. A job is identified by
// its id (custom_id in OpenAI's lines), without an id by its line number. If several jobs have the same id, as many of
// them are skipped as there are answers.
#ifndef QUILL_RESUME_H
#define QUILL_RESUME_H

#include <jansson.h>

#include "base/base.h"

typedef struct {
    json_t *answered; // key of a job -> number of answers that have not skipped a job yet; NULL: no --resume
    long long n;      // answers found
} Resume;

// Reads the answers in the file, which is created if missing, and redirects stdout to append to it. Removes an
// incomplete last line. QUILL_IO, also if another quill writes the file; QUILL_USAGE: a line that quill batch does not
// write, or no regular file; QUILL_CONTEXT: more bytes than an int can count. After an error the file stays as it was.
Status resume_open(const char *path, Resume *out);
// True: the input line with this number is a job that has an answer. The answer is then used up.
bool resume_skips(Resume *r, Str line, int64_t number);
void resume_close(Resume *r);

#endif
