// cli/outputs.h: checks a file that a run is to write, before long work.
#ifndef QUILL_OUTPUTS_H
#define QUILL_OUTPUTS_H

#include "cli/options.h"

// QUILL_USAGE: the options name the file `path`, the value of `option`, a second time; or it is -, where ./- names such
// a file. QUILL_IO: it cannot be created; not with --dry-run, which writes nothing.
Status outputs_check(const Options *o, const char *option, const char *path);

#endif
