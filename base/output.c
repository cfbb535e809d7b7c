// base/output.c: see base/output.h.
#include "base/output.h"

#include <errno.h>
#include <unistd.h>

#include "base/fd.h"

Status output_write(const void *bytes, size_t n, bool *gone) { return output_write_to("stdout", bytes, n, gone); }

Status output_write_to(const char *name, const void *bytes, size_t n, bool *gone) {
    if (*gone || n == 0) return OK;
    Status st = fd_write_all(STDOUT_FILENO, bytes, n);
    if (!st.code) return OK;
    if (st.code != QUILL_IO) return st;
    *gone = errno == EPIPE;
    return *gone ? OK : status_error(QUILL_IO, "%.500s: %.500s", name, st.message);
}

Status output_buf(Buf *out) {
    bool gone = false;
    Status st = output_write(out->data, out->n, &gone);
    buf_free(out);
    return st;
}
