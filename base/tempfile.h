// base/tempfile.h: files that appear whole or not at all.
//
//   TempFile d;
//   TRY(tempfile_open(path, 0666, &d));
//   return tempfile_publish(&d, fd_write_all(d.fd, bytes, n));
//
// A temporary file is written beside its file, as PATH.quill-tmp-XXXXXX (six letters or digits), and renamed to PATH
// when all of it is on the disk. Its writer holds a lock (flock) on it, which ends with the process. A temporary file
// without a lock was left by a process that was killed; the next tempfile_open of the same PATH removes it. A signal
// that kills the process after it was caught (base/signals.h) removes it too.
//
// PATH may be a symbolic link: the file that it leads to is replaced. A file that is replaced keeps its mode. A FIFO, a
// character device and a descriptor (/dev/fd/N, /dev/stdout) are never replaced: they are written directly, so a writer
// must not seek. Messages name PATH.
#ifndef QUILL_TEMPFILE_H
#define QUILL_TEMPFILE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct {
    const char *path;   // owned by the caller
    char *target, *tmp; // PATH without links, its temporary file; owned by this struct. tmp NULL: written directly
    int fd;             // write here, with fd_write_all
} TempFile;

// mode: of a file that is new, less the umask. QUILL_USAGE: an empty PATH. QUILL_IO: cannot be created; a directory, a
// socket or a block device. A signal (base/signals.h) ends the wait for the reader of a FIFO.
Status tempfile_open(const char *path, mode_t mode, TempFile *out);
// Finds the errors of tempfile_open before long work, and creates nothing.
Status tempfile_check(const char *path);
// Ends the file that tempfile_open opened. `written` is the result of writing: if it is an error, the temporary file is
// removed, PATH stays as it was, and the error is returned; QUILL_IO with PATH in front. QUILL_IO: cannot be synced,
// closed or renamed.
Status tempfile_publish(TempFile *d, Status written);

// ---- for file names of another form (kv/kvstore.c) ------------------------------------------------------------------

enum { TEMPFILE_LETTERS = 6 };

// Creates a new file and locks it: *path is `stem` and TEMPFILE_LETTERS letters or digits; the caller frees it. The
// message of an error names no file.
Status tempfile_create(const char *stem, mode_t mode, char **path, int *fd);
// Removes the temporary file `name` if no process holds its lock; on a file system without locks, if it was not written
// for an hour. True: it is removed.
bool tempfile_remove_dead(int dir, const char *name);

#endif
