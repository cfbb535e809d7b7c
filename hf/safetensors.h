// hf/safetensors.h: reads safetensors files into a table of tensors by name; data stays in the mapped files.
//
// A file is a u64 with the header's length, the header (a JSON object: name -> dtype, shape, data_offsets), and the
// data; offsets count from its beginning. The file is not trusted: shapes, types and sizes must agree, data must lie
// inside the file, and tensors must not overlap. An error names the file and the tensor. Format: the README of the
// safetensors project.
#ifndef QUILL_HF_SAFETENSORS_H
#define QUILL_HF_SAFETENSORS_H

#include <jansson.h>

#include "base/base.h"
#include "files/names.h"

// Arguments of %.*s that show a tensor's name in a message, its first 100 bytes at most.
#define SAFE_SHOW(s) (int)((s).n < 100 ? (s).n : 100), (s).data

enum { SAFE_MAX_DIMS = 8 };

typedef struct {
    Str name;                     // in the file's header
    const char *dtype;            // "BF16": one of the format's names, or an unknown name from the header
    size_t element;               // bytes of an element; 0: not whole bytes, or unknown
    int n_dims;                   // 0: a single number
    uint64_t dims[SAFE_MAX_DIMS]; // the slowest first, as in the file
    const uint8_t *data;
    size_t n_bytes;
    const char *file; // the file's path
} SafeTensor;

typedef struct {
    NameTable tensors; // of SafeTensor
    FileMap *maps;     // (n_maps) one for each file; code that takes ownership of them sets n_maps to 0
    char **paths;      // (n_files)
    json_t **headers;  // (n_files) own the tensors' names
    int n_files, n_maps;
} SafeFiles;

// Opens DIR/model.safetensors, or the files that DIR/model.safetensors.index.json names. QUILL_MODEL: a file is
// missing, damaged, or does not agree with the index. The caller calls safetensors_close, also after an error.
Status safetensors_open(const char *dir, SafeFiles *out);
// Adds the tensors of one file, whose bytes the caller keeps alive.
Status safetensors_add(SafeFiles *s, const char *path, const uint8_t *bytes, size_t n);
const SafeTensor *safetensors_find(const SafeFiles *s, const char *name); // NULL: there is none
void safetensors_close(SafeFiles *s);                                     // unmaps the n_maps maps

#endif
