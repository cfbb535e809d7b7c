// files/llama2c.h: the .bin files of karpathy's llama2.c, opened as a Gguf view.
//
// Three versions: legacy (no magic, 7 ints; a negative vocabulary size means that the output matrix is not the
// embedding), v1 ("ak42", 256-byte header, f32) and v2 (int8 with an f32 scale for each group, TYPE_I8G). Weights stay
// in the mapping. The vocabulary is a tokenizer.bin, given with -z or found in the model's directory. Format: export.py
// and tokenizer.py of llama2.c.
#ifndef QUILL_LLAMA2C_H
#define QUILL_LLAMA2C_H

#include "files/gguf.h"

// tokenizer_path NULL: "tokenizer.bin" in the model's directory if it is there, else a view without a vocabulary.
Status llama2c_open(const char *path, const char *tokenizer_path, Gguf **out);

// For the fuzzer and tests: the same over bytes that the caller keeps alive. tokenizer_name NULL: no vocabulary.
Status llama2c_open_memory(const char *name, const void *bytes, size_t n, const char *tokenizer_name,
                           const void *tokenizer, size_t n_tokenizer, Gguf **out);

// Whether the bytes begin with the magic of v1 and v2, or with seven numbers that are possible in a legacy header. Then
// llama2c_open gives the more precise error.
bool llama2c_is_likely(const uint8_t *data, size_t n);

#endif
