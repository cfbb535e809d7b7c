// files/llama2c.h: the .bin files of karpathy's llama2.c, shown as the same view that a GGUF file gives.
//
// legacy (no magic, 7 ints; negative vocab: output not shared), v1 ("ak42", 256-byte header, f32) and v2 (int8 with
// a f32 scale a group, TYPE_I8G). Weights stay in the mapping. The vocabulary is a tokenizer.bin beside it, given by
// -z or found as tokenizer.bin in the model's directory. Format: export.py and tokenizer.py of llama2.c.
#ifndef QUILL_LLAMA2C_H
#define QUILL_LLAMA2C_H

#include "files/gguf.h"

// tokenizer_path NULL: "tokenizer.bin" in the model's directory if it is there, else a view without a vocabulary.
Status llama2c_open(const char *path, const char *tokenizer_path, Gguf **out);

// For the fuzzer and tests: the same over bytes that the caller keeps alive. tokenizer_name NULL: no vocabulary.
Status llama2c_open_memory(const char *name, const void *bytes, size_t n, const char *tokenizer_name,
                           const void *tokenizer, size_t n_tokenizer, Gguf **out);

// What every mode calls: GGUF by its magic, otherwise llama2.c. tokenizer_path with a GGUF file is QUILL_USAGE.
Status model_file_open(const char *path, const char *tokenizer_path, Gguf **out);

#endif
