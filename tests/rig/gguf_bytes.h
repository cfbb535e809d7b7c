// tests/rig/gguf_bytes.h: GGUF files written byte by byte, right or wrong; shares nothing with the code under test.
#ifndef QUILL_GGUF_BYTES_H
#define QUILL_GGUF_BYTES_H

#include "files/gguf.h"

// Each function appends one part of a file.
void gguf_bytes_u32(Buf *b, uint32_t v);
void gguf_bytes_u64(Buf *b, uint64_t v);
void gguf_bytes_str(Buf *b, const char *s);
void gguf_bytes_header(Buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys);
void gguf_bytes_key(Buf *b, const char *name, uint32_t type); // the caller appends its value
void gguf_bytes_key_u32(Buf *b, const char *name, uint32_t v);
void gguf_bytes_tensor(Buf *b, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset);
void gguf_bytes_vector(Buf *b, const char *name, uint64_t n, uint64_t offset); // an F32 tensor of one dimension
void gguf_bytes_zeros(Buf *b, size_t n);
void gguf_bytes_pad(Buf *b, size_t alignment);

// Two tensors (a: 8 x F32 at 0, b: 64 x 2 of Q8_0 at 32), an integer, a string, an array of strings.
Buf gguf_bytes_good_file(uint32_t version);

// Opens the bytes in a block of exactly their size, so that a sanitizer sees a read past them. The caller frees *block.
Status gguf_bytes_open_exact(const void *bytes, size_t n, Gguf **out, void **block);
// Asserts that the file is refused with its name, a place, and `part` in the message; frees b.
void gguf_bytes_refused(Buf *b, const char *part);

#endif
