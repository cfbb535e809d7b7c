// kv/kvdiff.h: `quill kv diff`: where two KV files differ, and by how much.
#ifndef QUILL_KVDIFF_H
#define QUILL_KVDIFF_H

#include "cli/options.h"

// Compares files[0] with files[1], and prints one line for each difference. Files of different types of K and V are
// compared by their values. Code 1 without a message: they differ in something else than values, or one layer's K or V
// has a relative L2 difference larger than o->kv.tolerance. QUILL_IO; QUILL_MODEL: a damaged file.
Status kvdiff_run(const Options *o, const char *const *files);

#endif
