// batch/batch.h: `quill batch`: runs many jobs at once; one JSON object per line in and out (docs/batch.md).
#ifndef QUILL_BATCH_H
#define QUILL_BATCH_H

#include "cli/options.h"

// Reads jobs from o->input or stdin while others run, and writes a line for each job that finishes. Memory stays
// bounded for any number of jobs: input is read only while there is room. A broken line gets an error line in the
// output and does not stop the others; the Status returned at the end has the code and message of the first one.
// SIGINT: finishes the jobs that have begun; the message names the others. SIGTERM and SIGHUP: also cuts the jobs that
// have begun.
Status batch_run(const Options *o);

#endif
