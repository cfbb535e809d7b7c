// files/model_file.c: see files/model_file.h.
#include "files/model_file.h"

#include <string.h>

#include "files/llama2c.h"
#include "hf/hf.h"

// The name of a format that is often given by mistake. NULL: none that is known.
static const char *other_format(const uint8_t *data, size_t n) {
    static const struct {
        size_t at, n;
        const char *bytes, *what;
    } formats[] = {
        {0, 23, "version https://git-lfs", "a Git LFS pointer; fetch the file itself (git lfs pull)"},
        {0, 4, "PK\x03\x04", "a zip archive, perhaps written by PyTorch; convert it to GGUF"},
        {0, 2, "\x80\x02", "a Python pickle; convert it to GGUF"},
        {8, 1, "{", "a safetensors file; name its directory, which must hold config.json"},
        {0, 4, "lmgg", "an old GGML file; convert it to GGUF"},
        {0, 4, "tjgg", "an old GGML file; convert it to GGUF"},
        {0, 4, "algg", "an old GGML file; convert it to GGUF"},
        {0, 4, "fmgg", "an old GGML file; convert it to GGUF"},
        {0, 1, "<", "text like HTML or XML, perhaps a server's error page"},
        {0, 1, "{", "text like JSON"},
        {0, 2, "\x1f\x8b", "a gzip archive; unpack it"},
        {0, 4, "\x28\xb5\x2f\xfd", "a zstd archive; unpack it"},
    };
    if (n == 0) return "an empty file";
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (n >= formats[i].at + formats[i].n && memcmp(data + formats[i].at, formats[i].bytes, formats[i].n) == 0)
            return formats[i].what;
    return NULL;
}

// QUILL_MODEL: neither GGUF nor llama2.c. A legacy llama2.c header has no magic, so that many files look like one;
// other formats are recognised only if its numbers are impossible.
static Status check_format(const char *path, const FileMap *map) {
    if (llama2c_is_likely(map->data, map->n)) return OK;
    const char *what = other_format(map->data, map->n);
    if (what) return status_error(QUILL_MODEL, "%s: a GGUF or llama2.c model expected, found %s", path, what);
    return status_error(QUILL_MODEL, "%s: a GGUF or llama2.c model expected, found neither (%zu bytes)", path, map->n);
}

Status model_file_own_vocabulary(const char *path, const char *what) {
    return status_error(QUILL_USAGE,
                        "--tokenizer: a llama2.c model expected, but %s is %s and has its own vocabulary; leave "
                        "--tokenizer out",
                        path, what);
}

Status model_file_open(const char *path, const char *tokenizer_path, Gguf **out) {
    FileMap map;
    *out = NULL;
    if (hf_is_directory(path))
        return tokenizer_path ? model_file_own_vocabulary(path, "a directory") : hf_open(path, out);
    if (file_map(path, &map).code) return gguf_open(path, out); // its message names the missing part of a split model
    bool is_gguf = map.n >= 4 && memcmp(map.data, "GGUF", 4) == 0;
    Status st = is_gguf ? OK : check_format(path, &map);
    file_unmap(&map);
    TRY(st);
    if (is_gguf && tokenizer_path) return model_file_own_vocabulary(path, "GGUF");
    return is_gguf ? gguf_open(path, out) : llama2c_open(path, tokenizer_path, out);
}
