// batch/batch.h: `quill batch`: many jobs at once, a JSON object a line in and out (docs/batch.md).
#ifndef QUILL_BATCH_H
#define QUILL_BATCH_H

#include "cli/options.h"

// Reads jobs from o->input or stdin while others run, and writes a line for each as it finishes. What is held stays
// bounded however many come: input is read when there is room. A broken line has its line of the output, and the others
// go on; the first one's code and message come back at the end. SIGINT: the jobs that have begun are finished, the rest
// is named. SIGTERM: those that have begun end where they are.
Status batch_run(const Options *o);

#endif
