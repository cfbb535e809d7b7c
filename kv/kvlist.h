// kv/kvlist.h: `quill kv list` and `quill kv remove`: the files of a --kv-dir directory.
#ifndef QUILL_KVLIST_H
#define QUILL_KVLIST_H

#include "cli/options.h"

// Prints a line for each file of the directory files[0], in the order of their names: kind, tokens, model, types of K
// and V, bytes, path; with --json a list of objects. A file with a damaged head is listed as such; quill kv check reads
// the rest. QUILL_IO: the directory cannot be read.
Status kvlist_run(const Options *o, const char *const *files);
// Deletes the files (o->kv.n_words - 1). QUILL_USAGE: one of them does not have the name of a stored file; none was
// deleted then. QUILL_IO: a file could not be deleted; those before it are gone.
Status kvlist_remove(const Options *o, const char *const *files);

#endif
