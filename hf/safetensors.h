// hf/safetensors.h: safetensors files as a table of tensors by name, their data in the mapped files.
//
// A file is a u64 with the header's length, the header (a JSON object: name -> dtype, shape, data_offsets), and the
// data that offsets count from. Nothing is trusted: shapes, types and sizes agree, data lies inside its file and no two
// tensors share bytes. An error names the file and the tensor. Format: the safetensors project's README.
#ifndef QUILL_HF_SAFETENSORS_H
#define QUILL_HF_SAFETENSORS_H

#include <jansson.h>

#include "base/base.h"
#include "files/names.h"

enum { SAFE_MAX_DIMS = 8 };

typedef struct {
    Str name;                     // in the file's header
    const char *dtype;            // "BF16"; one of the format's names, or another that stands in the header
    size_t element;               // its bytes; 0: not whole bytes, or not known
    int n_dims;                   // 0: a single number
    uint64_t dims[SAFE_MAX_DIMS]; // the slowest first, as in the file
    const uint8_t *data;
    size_t n_bytes;
    const char *file; // that it is in
} SafeTensor;

typedef struct {
    NameTable tensors; // of SafeTensor
    FileMap *maps;     // one a file; whoever takes them over sets n_maps to 0
    char **paths;      // (n_files)
    json_t **headers;  // (n_files) which own the names
    int n_files, n_maps;
} SafeFiles;

// DIR/model.safetensors, or the files that DIR/model.safetensors.index.json names. QUILL_MODEL: a file that is missing,
// broken, or does not have what the index says. The caller closes, also after an error.
Status safetensors_open(const char *dir, SafeFiles *out);
// The tensors of one file whose bytes the caller keeps alive: what the above does for each.
Status safetensors_add(SafeFiles *s, const char *path, const uint8_t *bytes, size_t n);
const SafeTensor *safetensors_find(const SafeFiles *s, const char *name); // NULL: there is none
void safetensors_close(SafeFiles *s);                                     // unmaps the maps that are still there

#endif
