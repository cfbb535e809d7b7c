// cli/outputs.h: checks a file that a run is to write, before long work.
#ifndef QUILL_OUTPUTS_H
#define QUILL_OUTPUTS_H

#include "cli/options.h"

// QUILL_USAGE: `path`, the value of `option`, is another file that the options name, or - (which is a file's name as
// ./-). QUILL_IO: it cannot be created.
Status outputs_check(const Options *o, const char *option, const char *path);

#endif
