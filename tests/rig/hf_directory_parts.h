// tests/rig/hf_directory_parts.h: functions shared by the files that write directories (tests/rig/hf_directory.h).
#ifndef QUILL_HF_DIRECTORY_PARTS_H
#define QUILL_HF_DIRECTORY_PARTS_H

#include <jansson.h>

#include "files/gguf.h"
#include "tests/rig/hf_directory.h"

_Noreturn void hf_directory_impossible(const char *what, const char *name);
void hf_directory_json(const char *dir, const char *file, json_t *value); // frees the value
// tests/rig/hf_directory_config.c
typedef struct {
    const Gguf *g;
    const HfDirectory *how;
    const char *arch, *model_type;
    int n_heads;
} HfConfigSource;
void hf_directory_config(const HfConfigSource *s, const char *dir); // writes config.json

// tests/rig/hf_experts.c
double hf_number_of(const Gguf *g, const char *arch, const char *suffix); // of a key; NAN: there is no such key
void hf_put_number(json_t *config, const char *key, double v);            // NAN: does nothing

// tests/rig/hf_directory_tokenizer.c
void hf_directory_tokenizer(const Gguf *g, const char *dir, bool merges_as_text);

// tests/rig/hf_fp8.c. Matrices in FP8: n of n_out rows and n_in columns, with a scale for each block of `block` rows
// and columns. Factors, the inverse of scales, are powers of two.
typedef struct {
    size_t block, first_expert, n, n_in, n_out;
} HfFp8;
void hf_fp8_weights(Buf *out, const HfFp8 *f, const float *v); // v (n, n_out, n_in); appends a byte for each
void hf_fp8_scales(Buf *out, const HfFp8 *f, size_t dims[3]);  // appends the scales in F32; dims: their shape
#endif
