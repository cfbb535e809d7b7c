// base/file.h: files that are mapped, read whole, or read as one number.
#ifndef QUILL_FILE_H
#define QUILL_FILE_H

#include <stdint.h>
#include <sys/stat.h>

#include "base/status.h"
#include "base/str.h"

// A file mapped read-only. An empty file gives data == NULL, n == 0. If the file is cut while it is mapped, the missing
// bytes read as zeros and guard_lost reports it (base/guard.h). On file systems that cache files in huge pages, parts
// that are not cached yet are read into huge pages.
typedef struct {
    const uint8_t *data;
    size_t n;
} FileMap;

// The path without its folders; the whole path if it ends with a slash.
const char *file_base(const char *path);
// Opens a regular file for reading. A pipe of that name does not block. flags: O_NOFOLLOW or 0. info: of the file; zero
// if it cannot be opened. QUILL_IO: it cannot (errno is kept), or it is not a regular file; *fd is -1 then.
Status file_open(const char *path, int flags, int *fd, struct stat *info);
Status file_map(const char *path, FileMap *out); // QUILL_IO: missing, a directory, unreadable
void file_unmap(FileMap *m);
// Appends the whole file; "-" is stdin. Errors as fd_read_all (base/fd.h).
Status file_read(const char *path, Buf *out);
// The same for the file of an option: messages begin with the option's name, whose origin main.c then adds.
Status file_read_of(const char *option, const char *path, Buf *out);
// Asks the system to read these bytes of a mapped file, and no others, unless it has their first and their last page in
// memory. It does not wait for them. Linux says of a file that the user may not write that it is in memory.
void file_want(const void *bytes, size_t n);
// The number after `key` at the beginning of a line (NULL: at the beginning of the file), in the form of files in /proc
// and /sys; SIZE_MAX: none.
size_t file_number(const char *path, const char *key);

#endif
