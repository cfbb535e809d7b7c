// batch/resume.h: quill batch --resume: what an earlier run has answered already, read from the file that it wrote.
//
// An answer counts where it is whole: errors and answers that a signal cut are computed again. A job is known by its id
// (custom_id in OpenAI's lines), one without an id by the number of its line. Where several jobs have the same id, as
// many of them are skipped as there are answers.
#ifndef QUILL_RESUME_H
#define QUILL_RESUME_H

#include <jansson.h>

#include "base/base.h"

typedef struct {
    json_t *answered; // what a job is known by -> answers that no job has been skipped for; NULL: nothing is resumed
    long long n;      // answers found
} Resume;

// Reads the answers in the file at `path` and makes stdout append to it; it need not be there. A last line that was cut
// while it was written is removed. QUILL_IO.
Status resume_open(const char *path, Resume *out);
// Whether this line of the input, the number-th, is a job with an answer; that answer is then used up.
bool resume_skips(Resume *r, Str line, int64_t number);
void resume_close(Resume *r);

#endif
