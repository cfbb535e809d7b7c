// files/gguf.h: a model file as a read-only view: metadata by key, tensors by name, data in the mapped file.
//
//   Gguf *g;
//   Status st = gguf_open("model.gguf", &g);               // v2, v3, split or not; any format: files/model_file.h
//   uint32_t n; TRY(gguf_u32(g, "llama.block_count", &n, true, 0));
//   const GgufTensor *t = gguf_tensor(g, "output.weight"); // NULL: there is none
//   gguf_close(g);
//
// The file is not trusted: every count is compared with the bytes that are left before memory is allocated, every
// product and sum is checked for overflow, and every tensor lies inside its file. An error names the file, the byte
// offset, and what was expected and found. Keys, strings and tensor data point into the mapping, or into memory that a
// view built in memory owns.
// Format: the GGUF specification in the ggml project's docs/gguf.md.
#ifndef QUILL_GGUF_H
#define QUILL_GGUF_H

#include "base/base.h"

typedef enum {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STR,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_N_TYPES
} GgufType;

// The elements of tokenizer.ggml.token_type.
enum {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN = 2,
    GGUF_TOKEN_CONTROL = 3,
    GGUF_TOKEN_USER_DEFINED = 4,
    GGUF_TOKEN_UNUSED = 5,
    GGUF_TOKEN_BYTE = 6
};

typedef struct {
    Str key;
    GgufType type;       // GGUF_ARRAY: elem_type and n describe the elements
    GgufType elem_type;  // equal to type for a scalar
    uint64_t n;          // elements; 1 for a scalar
    const uint8_t *data; // n little-endian elements, unaligned; a string is a u64 length and its bytes
    size_t n_bytes;      // of data
} GgufValue;

typedef struct {
    Str name;
    int type;            // the TYPE_ ids of formats/types.h
    int n_dims;          // 1..4
    uint64_t dims[4];    // dims[0] is the row length (n_in), dims[1] the rows (n_out); unused ones are 1
    const void *data;    // row-major
    size_t n_bytes;      // of data
    const float *scales; // only TYPE_I8G: (elements / group), unaligned
    int group;           // only TYPE_I8G: number of consecutive elements of the flat tensor that share a scale
} GgufTensor;

// Elements of a tensor; the parser has checked the product.
static inline size_t gguf_tensor_weights(const GgufTensor *t) {
    return (size_t)(t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]);
}

// Bytes of a tensor in its file: of data and scales.
static inline size_t gguf_tensor_bytes(const GgufTensor *t) {
    return t->n_bytes + (t->scales ? gguf_tensor_weights(t) / (size_t)t->group * sizeof(float) : 0);
}

typedef struct Gguf Gguf;

Status gguf_open(const char *path, Gguf **out);
// For the fuzzer and tests: the same parser over bytes that the caller keeps alive; messages call them `name`.
Status gguf_open_memory(const char *name, const void *bytes, size_t n, Gguf **out);
void gguf_close(Gguf *g); // NULL is fine
// Whether the path names a part of a split model, as PREFIX-00002-of-00005.gguf. Then *no is 2, *count is 5, and
// *n_prefix is the length of PREFIX.
bool gguf_split_name(const char *path, size_t *n_prefix, int *no, int *count);

const char *gguf_name(const Gguf *g);            // the path as given
const char *gguf_format(const Gguf *g);          // "GGUF v3", "llama2.c", ...; "": built in memory
uint32_t gguf_version(const Gguf *g);            // 2, 3; 0: not GGUF
size_t gguf_file_bytes(const Gguf *g);           // of all mapped files
const FileMap *gguf_maps(const Gguf *g, int *n); // the mapped files in the order of the parts; owned by the view
size_t gguf_huge_bytes(const Gguf *g);           // bytes of the mapped files and owned pages that lie in huge pages
int gguf_n_values(const Gguf *g);
const char *gguf_type_name(GgufType type); // "U32"
const GgufValue *gguf_value_at(const Gguf *g, int i);
const GgufValue *gguf_value(const Gguf *g, const char *key); // NULL: absent
int gguf_n_tensors(const Gguf *g);
const GgufTensor *gguf_tensor_at(const Gguf *g, int i);
const GgufTensor *gguf_tensor(const Gguf *g, const char *name); // NULL: absent

// The value of any integer type as magnitude and sign. False: it is not an integer.
bool gguf_integer(const GgufValue *v, uint64_t *magnitude, bool *negative);

// Typed scalars. A missing key gives `fallback`, or an error if `required`. A value of another type is an error that
// names both types. gguf_u32 accepts any integer type whose value fits, gguf_f32 both float types.
Status gguf_u32(const Gguf *g, const char *key, uint32_t *out, bool required, uint32_t fallback);
Status gguf_f32(const Gguf *g, const char *key, float *out, bool required, float fallback);
Status gguf_bool(const Gguf *g, const char *key, bool *out, bool fallback);
Status gguf_str(const Gguf *g, const char *key, Str *out, bool required); // absent: {NULL, 0}

// Arrays. `out` has room for value->n elements. QUILL_MODEL: the value is not an array of this type.
Status gguf_strings(const Gguf *g, const GgufValue *v, Str *out);
// Returns the next string of such an array. *at starts as value->data and is advanced; call it at most value->n times.
Str gguf_next_string(const uint8_t **at);
Status gguf_floats(const Gguf *g, const GgufValue *v, float *out); // F32
Status gguf_ints(const Gguf *g, const GgufValue *v, int32_t *out); // I32 or U32 (ids, token types)

// Building a view in memory: llama2.c files, random models, tests. Keys, names and values are copied. Tensor data is
// not: the caller keeps it alive, or gives it to the view with gguf_own_pages or gguf_own_map. Setting a key again
// replaces its value. Pointers from gguf_value and gguf_tensor are valid until the next set or add.
Gguf *gguf_new(const char *name);
void gguf_set(Gguf *g, const GgufValue *v); // any value, copied with its key: metadata from another view
void gguf_set_u32(Gguf *g, const char *key, uint32_t v);
void gguf_set_f32(Gguf *g, const char *key, float v);
void gguf_set_bool(Gguf *g, const char *key, bool v);
void gguf_set_str(Gguf *g, const char *key, const char *v);
void gguf_set_strings(Gguf *g, const char *key, const Str *v, size_t n);
void gguf_set_floats(Gguf *g, const char *key, const float *v, size_t n);
void gguf_set_ints(Gguf *g, const char *key, const int32_t *v, size_t n);
// n_out == 0 makes a vector of n_in elements. `scales` and `group` are for TYPE_I8G; otherwise NULL and 0.
void gguf_add_tensor(Gguf *g, const char *name, int type, size_t n_in, size_t n_out, const void *data,
                     const float *scales, int group);
// Adds a tensor of n_stack consecutive matrices, as experts have them.
void gguf_add_stack(Gguf *g, const char *name, int type, size_t n_in, size_t n_out, size_t n_stack, const void *data,
                    const float *scales, int group);
// Adds a tensor with the name and shape of t, another type and no data: gguf_save_made asks its caller for the data.
void gguf_add_like(Gguf *g, const GgufTensor *t, int type);
void gguf_set_format(Gguf *g, const char *format);   // what gguf_format returns; at most 63 bytes are kept
void *gguf_alloc(Gguf *g, size_t n);                 // zeroed memory, aligned to 8, freed with the view
void gguf_own_pages(Gguf *g, void *pages, size_t n); // pages of pages_alloc, freed by gguf_close
void gguf_own_map(Gguf *g, FileMap map);             // unmapped by gguf_close

// Writes the view as a GGUF v3 file (alignment 32), through a temporary file (base/tempfile.h). QUILL_MODEL: a tensor
// has TYPE_I8G, which GGUF cannot store. QUILL_USAGE, QUILL_IO: as tempfile_open.
Status gguf_save(const Gguf *g, const char *path);
// Writes the same file, but `make` writes the n_bytes of tensor number i to fd. It is called once for each tensor, in
// order. If it returns an error, no file is created and the error is returned.
typedef Status GgufMaker(void *arg, int i, int fd);
Status gguf_save_made(const Gguf *g, const char *path, GgufMaker *make, void *arg);

#endif
