// draft.h: files that appear whole or not at all.
//
//   Draft d;
//   TRY(draft_open(path, 0666, &d));
//   return draft_publish(&d, fd_write_all(d.fd, bytes, n));
//
// A draft is written beside its file, as PATH.quill-XXXXXX (six letters or digits), and renamed to PATH when all of it
// is on the disk. Its writer holds a lock (flock) on it, which ends with the process: a draft that nobody locks belongs
// to a process that was killed, and the next draft_open of the same PATH removes it.
#ifndef QUILL_DRAFT_H
#define QUILL_DRAFT_H

#include "util.h"

#include <sys/types.h>

typedef struct {
    const char *path; // the caller's
    char *tmp;        // the draft's own
    int fd;           // write here, with fd_write_all
} Draft;

Status draft_open(const char *path, mode_t mode, Draft *out); // QUILL_IO: cannot be created
// Ends the draft that draft_open opened. `written` is how the writing went: after a failure the draft is removed, PATH
// stays as it was, and the failure comes back with the draft's name in front. QUILL_IO: cannot be synced or renamed.
Status draft_publish(Draft *d, Status written);

// ---- the parts, for drafts that have names of another form (kvstore.c)
// -------------------------------------------------

enum { DRAFT_LETTERS = 6 };

// Creates a file of this process alone and locks it: *path is `stem` and DRAFT_LETTERS letters; the caller frees it.
Status draft_create(const char *stem, mode_t mode, char **path, int *fd);
// Removes the file if it is a draft whose writer is gone: nobody holds its lock. Where the file system has no locks, a
// draft that was not written to for an hour counts as such. True: it is removed. The name must be a draft's.
bool draft_remove_dead(int dir, const char *name);

#endif
