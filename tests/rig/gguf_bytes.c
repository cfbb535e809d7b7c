// tests/rig/gguf_bytes.c: see tests/rig/gguf_bytes.h.
#include "tests/rig/gguf_bytes.h"

#include "formats/types.h"
#include "tests/rig/testing.h"

void gguf_bytes_u32(Buf *b, uint32_t v) { buf_append(b, &v, 4); }
void gguf_bytes_u64(Buf *b, uint64_t v) { buf_append(b, &v, 8); }

void gguf_bytes_str(Buf *b, const char *s) {
    gguf_bytes_u64(b, strlen(s));
    buf_str(b, s);
}

void gguf_bytes_header(Buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys) {
    buf_str(b, "GGUF");
    gguf_bytes_u32(b, version);
    gguf_bytes_u64(b, n_tensors);
    gguf_bytes_u64(b, n_keys);
}

void gguf_bytes_key(Buf *b, const char *name, uint32_t type) {
    gguf_bytes_str(b, name);
    gguf_bytes_u32(b, type);
}

void gguf_bytes_key_u32(Buf *b, const char *name, uint32_t v) {
    gguf_bytes_key(b, name, GGUF_U32);
    gguf_bytes_u32(b, v);
}

void gguf_bytes_tensor(Buf *b, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                       uint64_t offset) {
    gguf_bytes_str(b, name);
    gguf_bytes_u32(b, n_dims);
    for (uint32_t d = 0; d < n_dims && d < 8; d++) gguf_bytes_u64(b, dims[d]);
    gguf_bytes_u32(b, type);
    gguf_bytes_u64(b, offset);
}

void gguf_bytes_vector(Buf *b, const char *name, uint64_t n, uint64_t offset) {
    gguf_bytes_tensor(b, name, 1, &n, TYPE_F32, offset);
}

void gguf_bytes_zeros(Buf *b, size_t n) {
    for (size_t i = 0; i < n; i++) buf_append(b, "", 1);
}

void gguf_bytes_pad(Buf *b, size_t alignment) { gguf_bytes_zeros(b, round_up(b->n, alignment) - b->n); }

Buf gguf_bytes_good_file(uint32_t version) {
    Buf b = {0};
    gguf_bytes_header(&b, version, 2, 3);
    gguf_bytes_key_u32(&b, "n", 7);
    gguf_bytes_key(&b, "s", GGUF_STR);
    gguf_bytes_str(&b, "text");
    gguf_bytes_key(&b, "list", GGUF_ARRAY);
    gguf_bytes_u32(&b, GGUF_STR);
    gguf_bytes_u64(&b, 3);
    gguf_bytes_str(&b, "one");
    gguf_bytes_str(&b, "");
    gguf_bytes_str(&b, "three");
    gguf_bytes_vector(&b, "a", 8, 0);
    gguf_bytes_tensor(&b, "b", 2, (uint64_t[]){64, 2}, TYPE_Q8_0, 32);
    gguf_bytes_pad(&b, 32);
    for (int i = 0; i < 32; i++) buf_append(&b, &(char){(char)i}, 1);
    gguf_bytes_zeros(&b, 4 * 34);
    return b;
}

Status gguf_bytes_open_exact(const void *bytes, size_t n, Gguf **out, void **block) {
    *block = malloc(n ? n : 1);
    assert_non_null(*block);
    if (n) memcpy(*block, bytes, n);
    return gguf_open_memory("bad.gguf", *block, n, out);
}

void gguf_bytes_refused(Buf *b, const char *part) {
    Gguf *g = (Gguf *)b;
    void *block;
    Status st = gguf_bytes_open_exact(b->data, b->n, &g, &block);
    if (st.code != QUILL_MODEL) fail_msg("code 3 expected, %d found; for: %s", st.code, part);
    assert_null(g);
    if (strncmp(st.message, "bad.gguf: byte ", 15) != 0 || !strstr(st.message, part) || strchr(st.message, '\n'))
        fail_msg("\"bad.gguf: byte ...%s...\" expected, \"%s\" found", part, st.message);
    free(block);
    buf_free(b);
}
