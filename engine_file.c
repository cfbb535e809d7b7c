// engine_file.c: see engine_file.h.
#define _GNU_SOURCE
#include "engine_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/note.h"
#include "base/progress.h"
#include "base/units.h"
#include "files/builtin.h"
#include "files/model_file.h"
#include "hf/hf.h"

static Status read_pages(const EngineConfig *config, int fd, size_t n, uint8_t **out) {
    uint8_t *bytes = pages_alloc(n, true);
    if (!bytes)
        return status_error(QUILL_MEMORY, "%s: --no-mmap: the system refused %zu bytes of memory", config->model, n);
    Progress progress = progress_new(config->quiet);
    double start = clock_now();
    Status st = OK;
    for (size_t at = 0; at < n && !st.code;) {
        ssize_t got = fd_read(fd, bytes + at, n - at < 64u << 20 ? n - at : 64u << 20);
        if (got <= 0)
            st = status_error(QUILL_IO, "%s: cannot read at byte %zu of %zu: %s", config->model, at, n,
                              got < 0 ? strerror(errno) : "the file has become shorter");
        else at += (size_t)got;
        if (clock_now() - start > 1) progress_show(&progress, "load", (double)at, (double)n);
    }
    progress_erase(&progress);
    if (st.code) pages_free(bytes, n);
    else *out = bytes;
    return st;
}

// Checks the available memory first: Linux grants more memory than there is and kills the process when it is used.
static Status check_room(const EngineConfig *config, size_t n) {
    char need[24], have[24];
    size_t available = memory_available();
    if (n <= available) return OK;
    Status st = status_error(QUILL_MEMORY,
                             "%.700s: --no-mmap: the file needs %s of memory, only %s are available; leave --no-mmap "
                             "out, or use a smaller model",
                             config->model, units_bytes((double)n, need), units_bytes((double)available, have));
    Buf budget = {0};
    buf_printf(&budget, "  file       %9s\n  available  %9s\n", need, have);
    status_append(&st, budget.data);
    buf_free(&budget);
    return st;
}

// Refuses a part of a split model.
static Status check_parts(const EngineConfig *config, const Gguf *g) {
    uint32_t parts;
    TRY(gguf_u32(g, "split.count", &parts, false, 1));
    if (parts <= 1) return OK;
    return status_error(QUILL_USAGE, "%s: --no-mmap: one file expected, part of a split model found; leave it out",
                        config->model);
}

// Checks the metadata before the whole file is read, if the file can be mapped.
static Status check_mapped(const EngineConfig *config) {
    FileMap map;
    Gguf *g;
    if (file_map(config->model, &map).code) return OK;
    Status st = gguf_open_memory(config->model, map.data, map.n, &g);
    if (!st.code) {
        st = check_parts(config, g);
        gguf_close(g);
    }
    file_unmap(&map);
    return st;
}

// Opens a file for --no-mmap, which must be GGUF.
static Status open_whole(const EngineConfig *config, int *fd, size_t *n) {
    struct stat info;
    Status st = file_open(config->model, 0, fd, &info);
    if (!info.st_mode) return status_error(QUILL_MODEL, "%s", st.message);
    char magic[4] = "";
    *n = (size_t)info.st_size;
    if (st.code || pread(*fd, magic, 4, 0) != 4 || memcmp(magic, "GGUF", 4) != 0)
        return status_error(QUILL_USAGE, "%s: --no-mmap: a GGUF file expected; leave --no-mmap out for others",
                            config->model);
    if (config->tokenizer) return model_file_own_vocabulary(config->model, "GGUF");
    return check_mapped(config);
}

// --no-mmap: reads the whole file into allocated memory.
static Status open_in_memory(const EngineConfig *config, Gguf **out) {
    int fd = -1;
    size_t n = 0;
    uint8_t *bytes = NULL;
    Status st = open_whole(config, &fd, &n);
    if (!st.code) st = check_room(config, n);
    if (!st.code) st = read_pages(config, fd, n, &bytes);
    if (fd >= 0) close(fd);
    TRY(st);
    Gguf *g;
    st = gguf_open_memory(config->model, bytes, n, &g);
    if (st.code) {
        pages_free(bytes, n);
        return st;
    }
    gguf_own_pages(g, bytes, n);
    st = check_parts(config, g);
    if (st.code) gguf_close(g);
    else *out = g;
    return st;
}

static Status open_builtin(const EngineConfig *config, Gguf **out) {
    if (config->no_mmap)
        return status_error(QUILL_USAGE, "--no-mmap: a file expected, found the built-in model, which comes with the "
                                         "binary; leave --no-mmap out, or name a file with -m");
    if (config->tokenizer)
        return status_error(QUILL_USAGE,
                            "--tokenizer: a llama2.c model expected with it, found the built-in one, which "
                            "has its own vocabulary; leave it out, or name a file with -m");
    return builtin_open(out);
}

Status engine_file_open(const EngineConfig *config, Gguf **out) {
    *out = NULL;
    if (!config->model || strcmp(config->model, BUILTIN_WORD) == 0) return open_builtin(config, out);
    return config->no_mmap ? open_in_memory(config, out) : model_file_open(config->model, config->tokenizer, out);
}

// ---- locking, the vocabulary ----------------------------------------------------------------------------------------

// Locks adjacent tensors in one call: locking a part of a huge page would split it.
void engine_file_lock(const EngineConfig *config, const Gguf *g) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = 0, to = 0;
    size_t locked = 0;
    for (int i = 0; i <= gguf_n_tensors(g); i++) {
        const GgufTensor *t = i < gguf_n_tensors(g) ? gguf_tensor_at(g, i) : NULL;
        uintptr_t at = t ? (uintptr_t)t->data : 0;
        if (t && at >= to && at - to < page) {
            to = at + t->n_bytes;
            continue;
        }
        if (to > from && mlock((const void *)from, to - from) != 0) {
            note_print(!config->verbose,
                       "--mlock: the system locked %zu bytes and then refused (%s); ulimit -l is the limit", locked,
                       strerror(errno));
            return;
        }
        locked += to - from;
        from = at / page * page;
        to = t ? at + t->n_bytes : 0;
    }
}

Status engine_file_tokenizer(const Gguf *g, Tokenizer **out) {
    *out = NULL;
    bool none = gguf_version(g) == 0 && !gguf_value(g, "tokenizer.ggml.model");
    if (none && hf_is_directory(gguf_name(g)))
        return status_error(QUILL_MODEL,
                            "%s: tokenizer.json expected, none found; the tokenizers library writes it from other "
                            "vocabularies",
                            gguf_name(g));
    if (none)
        return status_error(QUILL_MODEL,
                            "%s: a vocabulary expected, none found: a llama2.c file has it beside it; -z tokenizer.bin "
                            "names it",
                            gguf_name(g));
    return tokenizer_load(g, out);
}
