// kv/kvinput.c: see kv/kvinput.h.
#define _GNU_SOURCE
#include "kv/kvinput.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

Status kvinput_open(KvInput *in, const char *path) {
    bool piped = strcmp(path, "-") == 0;
    *in = (KvInput){.fd = piped ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)};
    in->r = (KvReader){.name = piped ? "stdin" : path, .read = kvreader_from_fd, .arg = &in->fd};
    if (in->fd < 0) return status_error(QUILL_IO, "%.500s: cannot open: %s", path, strerror(errno));
    TRY(kvreader_head(&in->r));
    return kvreader_block(&in->r, &in->link, &in->is_block);
}

void kvinput_close(KvInput *in) {
    kvreader_free(&in->r);
    if (in->fd > STDIN_FILENO) close(in->fd);
}

Status kvinput_skip_rows(KvReader *r) {
    while (kvreader_more(r)) {
        KvChunk c;
        const uint8_t *rows;
        TRY(kvreader_rows(r, &c, &rows));
    }
    return OK;
}

Status kvinput_skip_states(KvReader *r) {
    const float *values;
    for (uint32_t layer = 0;; layer++) {
        size_t n = 0;
        TRY(kvreader_state(r, layer, &values, &n));
        if (!values) return OK;
    }
}

bool kvinput_same_shape(KvLayerShape a, KvLayerShape b) {
    return a.n_kv_heads == b.n_kv_heads && a.k_dim == b.k_dim && a.v_dim == b.v_dim;
}

void kvinput_print_name(Buf *out, const uint8_t name[32]) {
    for (int i = 0; i < 32; i++) buf_printf(out, "%02x", name[i]);
}
