// files/gguf_view.h: the fields of a Gguf view, for the files gguf*.c only.
#ifndef QUILL_GGUF_VIEW_H
#define QUILL_GGUF_VIEW_H

#include "files/gguf.h"
#include "files/names.h"

// Limits for a hostile file: with these, both tables and their indexes stay below 50 MiB. Real files have fewer than a
// hundred keys and a few thousand tensors.
enum {
    GGUF_MAX_VALUES = 1 << 19,
    GGUF_MAX_TENSORS = 1 << 17,
    GGUF_MAX_NAME = 63, // bytes of a tensor's name; ggml keeps names in 64 bytes with their NUL
};

typedef struct GgufBlock { // memory that is freed with the view
    struct GgufBlock *next;
    char bytes[];
} GgufBlock;

typedef struct GgufPages {
    struct GgufPages *next;
    void *data;
    size_t n;
} GgufPages;

struct Gguf {
    char *name;
    char format[64];
    uint32_t version;
    size_t file_bytes;
    NameTable values, tensors; // of GgufValue, GgufTensor
    FileMap *maps;
    int n_maps;
    GgufBlock *blocks; // keys, names and values of a view that is built in memory
    GgufPages *pages;
};

size_t gguf_type_bytes(GgufType type); // of one element; 0: no fixed size (strings, arrays)

// The arguments of "%.*s": at most 80 bytes of a name, so that it fits into a message.
#define GGUF_SHOW(s) (int)((s).n < 80 ? (s).n : 80), (s).data

#endif
