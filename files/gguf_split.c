// files/gguf_split.c: see files/gguf.h. Opens a file, and all parts of the model if the file's name is that of a part.
#include "files/gguf_view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static Status open_one(const char *path, Gguf **out) {
    FileMap map;
    Status st = file_map(path, &map);
    if (st.code) {
        st.code = QUILL_MODEL; // an unreadable model has the code of a bad model, not of an I/O error
        return st;
    }
    st = gguf_open_memory(path, map.data, map.n, out);
    if (st.code) {
        file_unmap(&map);
        return st;
    }
    (*out)->file_bytes = 0; // gguf_own_map adds the bytes again
    gguf_own_map(*out, map);
    return OK;
}

bool gguf_split_name(const char *path, size_t *n_prefix, int *no, int *count) {
    static const size_t tail = sizeof "-00001-of-00005.gguf" - 1;
    size_t n = strlen(path);
    if (n < tail) return false;
    const char *t = path + n - tail;
    for (size_t i = 0; i < tail; i++) {
        char p = "-#####-of-#####.gguf"[i];
        if (p == '#' ? t[i] < '0' || t[i] > '9' : t[i] != p) return false;
    }
    *n_prefix = n - tail;
    *no = (int)strtol(t + 1, NULL, 10);
    *count = (int)strtol(t + 10, NULL, 10);
    return *no >= 1 && *no <= *count;
}

// Compares the part number and the number of parts in the metadata with those in the file's name.
static Status check_part(const Gguf *part, int no, int count) {
    uint32_t said_no, said_count;
    TRY(gguf_u32(part, "split.no", &said_no, false, (uint32_t)(no - 1)));
    TRY(gguf_u32(part, "split.count", &said_count, false, (uint32_t)count));
    if (said_count == 0) said_count = 1; // llama.cpp's gguf-split writes 0 into a merged file
    if (said_count != (uint32_t)count && count == 1)
        return status_error(QUILL_MODEL,
                            "%s: key split.count: part %" PRIu32 " of %" PRIu32
                            " of a split model found; name the parts "
                            "NAME-00001-of-%05" PRIu32 ".gguf and so on, and give the first",
                            part->name, said_no + 1, said_count, said_count);
    if (said_count != (uint32_t)count)
        return status_error(QUILL_MODEL, "%s: key split.count: %d expected by the file's name, %" PRIu32 " found",
                            part->name, count, said_count);
    if (said_no != (uint32_t)(no - 1))
        return status_error(QUILL_MODEL, "%s: key split.no: %d expected by the file's name, %" PRIu32 " found",
                            part->name, no - 1, said_no);
    return OK;
}

// Moves the tensors and the mapping of `part` into g; closes part.
static Status merge_part(Gguf *g, Gguf *part) {
    Status st = OK;
    if (part->tensors.n > GGUF_MAX_TENSORS - g->tensors.n)
        st = status_error(QUILL_MODEL, "%s: at most %d tensors in all parts expected, more found", part->name,
                          GGUF_MAX_TENSORS);
    for (int i = 0; i < part->tensors.n && !st.code; i++) {
        const GgufTensor *from = gguf_tensor_at(part, i);
        GgufTensor *to = names_add(&g->tensors, from->name);
        if (to) *to = *from;
        else
            st = status_error(QUILL_MODEL, "%s: tensor %.*s: each tensor once expected, one of an earlier part found",
                              part->name, GGUF_SHOW(from->name));
    }
    if (!st.code) { // g owns the mapping now, because names in its table point into it
        gguf_own_map(g, part->maps[0]);
        part->n_maps = 0;
    }
    gguf_close(part);
    return st;
}

static Status open_parts(const char *path, size_t n_prefix, int count, Gguf *g) {
    for (int no = 2; no <= count; no++) {
        Buf name = {0};
        buf_append(&name, path, n_prefix);
        buf_printf(&name, "-%05d-of-%05d.gguf", no, count);
        Gguf *part;
        Status st = open_one(name.data, &part);
        buf_free(&name);
        if (st.code) return status_error(st.code, "%.960s (part %d of %d of the model)", st.message, no, count);
        st = check_part(part, no, count);
        if (st.code) {
            gguf_close(part);
            return st;
        }
        TRY(merge_part(g, part));
    }
    uint32_t n;
    TRY(gguf_u32(g, "split.tensors.count", &n, false, (uint32_t)g->tensors.n));
    if (n != (uint32_t)g->tensors.n)
        return status_error(QUILL_MODEL,
                            "%s: key split.tensors.count: %" PRIu32 " tensors expected, %d found in %d parts", g->name,
                            n, g->tensors.n, count);
    return OK;
}

Status gguf_open(const char *path, Gguf **out) {
    size_t n_prefix = 0;
    int no = 1, count = 1;
    *out = NULL;
    Buf first = {0};
    if (gguf_split_name(path, &n_prefix, &no, &count)) {
        buf_append(&first, path, n_prefix);
        buf_printf(&first, "-00001-of-%05d.gguf", count);
    }
    Gguf *g;
    Status st = open_one(first.data ? first.data : path, &g);
    buf_free(&first);
    if (st.code && no > 1) return status_error(st.code, "%.960s (part 1 of %d of the model)", st.message, count);
    if (st.code) return st;
    st = check_part(g, 1, count);
    if (!st.code) st = open_parts(path, n_prefix, count, g);
    if (st.code) {
        gguf_close(g);
        return st;
    }
    free(g->name);
    g->name = mem_copy(path, strlen(path));
    *out = g;
    return OK;
}
