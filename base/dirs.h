// base/dirs.h: the directories that quill writes to, by the XDG base directory specification; making directories.
#ifndef QUILL_DIRS_H
#define QUILL_DIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

// Both make the directory if it is missing. False: errno says why not; "" in `out`: neither variable has an absolute
// path.
// For data that can be computed again: $XDG_CACHE_HOME/quill or ~/.cache/quill.
bool dirs_cache(char *out, size_t cap);
// For data that the user would miss, readable by its owner alone: $XDG_STATE_HOME/quill or ~/.local/state/quill.
bool dirs_state(char *out, size_t cap);
// Makes every missing directory of the path, the last one with `mode`. False: errno says why not.
bool dirs_make(const char *path, mode_t mode);

#endif
