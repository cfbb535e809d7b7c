// hf/safetensors.c: see hf/safetensors.h.
#include "hf/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/jsonio.h"

enum { MAX_HEADER = 100 << 20 }; // the limit of the format's own library

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {{"F64", 8},     {"F32", 4},     {"F16", 2},         {"BF16", 2},        {"F8_E4M3", 1},
              {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"I64", 8},
              {"I32", 4},     {"I16", 2},     {"I8", 1},          {"U64", 8},         {"U32", 4},
              {"U16", 2},     {"U8", 1},      {"BOOL", 1},        {"C64", 8}};

static size_t dtype_bytes(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++)
        if (strcmp(dtypes[i].name, name) == 0) return dtypes[i].bytes;
    return 0;
}

// ---- one file -------------------------------------------------------------------------------------------------------

static Status read_shape(const char *path, SafeTensor *t, const json_t *shape) {
    size_t i, n = 1;
    json_t *one;
    if (!json_is_array(shape) || json_array_size(shape) > SAFE_MAX_DIMS)
        return status_error(QUILL_MODEL, "%s: tensor %.*s: shape: an array of at most %d numbers expected", path,
                            SAFE_SHOW(t->name), SAFE_MAX_DIMS);
    t->n_dims = (int)json_array_size(shape);
    json_array_foreach(shape, i, one) {
        if (!json_is_integer(one) || json_integer_value(one) < 0)
            return status_error(QUILL_MODEL, "%s: tensor %.*s: shape: whole numbers expected", path,
                                SAFE_SHOW(t->name));
        t->dims[i] = (uint64_t)json_integer_value(one);
        if (!size_mul(n, (size_t)t->dims[i], &n))
            return status_error(QUILL_MODEL, "%s: tensor %.*s: shape: a product that fits 64 bits expected", path,
                                SAFE_SHOW(t->name));
    }
    if (t->element == 0) return OK; // an unknown type is an error only if the tensor is used
    if (!size_mul(n, t->element, &n) || n != t->n_bytes)
        return status_error(QUILL_MODEL,
                            "%s: tensor %.*s: data_offsets: %zu bytes expected by its shape and %s, %zu found", path,
                            SAFE_SHOW(t->name), n, t->dtype, t->n_bytes);
    return OK;
}

static Status read_tensor(const char *path, SafeTensor *t, const json_t *entry, const uint8_t *data, size_t n_data) {
    const json_t *dtype = json_object_get(entry, "dtype"), *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_object(entry) || !json_is_string(dtype))
        return status_error(QUILL_MODEL, "%s: tensor %.*s: an object with dtype, shape and data_offsets expected", path,
                            SAFE_SHOW(t->name));
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to))
        return status_error(QUILL_MODEL, "%s: tensor %.*s: data_offsets: two whole numbers expected", path,
                            SAFE_SHOW(t->name));
    json_int_t begin = json_integer_value(from), end = json_integer_value(to);
    if (begin < 0 || end < begin || (uint64_t)end > n_data)
        return status_error(QUILL_MODEL,
                            "%s: tensor %.*s: data_offsets: a range within the file's %zu bytes of data expected, "
                            "%" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT " found%s",
                            path, SAFE_SHOW(t->name), n_data, begin, end,
                            begin >= 0 && end >= begin ? "; is the file complete?" : "");
    t->dtype = json_string_value(dtype);
    t->element = dtype_bytes(t->dtype);
    t->data = data + begin;
    t->n_bytes = (size_t)(end - begin);
    t->file = path;
    return read_shape(path, t, json_object_get(entry, "shape"));
}

static int by_data(const void *a, const void *b) {
    const SafeTensor *x = *(const SafeTensor *const *)a, *y = *(const SafeTensor *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes; // empty tensors first
}

static Status check_overlaps(const SafeFiles *s, const char *path, int first) {
    int n = s->tensors.n - first;
    const SafeTensor **sorted = mem_alloc((size_t)n * sizeof *sorted);
    for (int i = 0; i < n; i++) sorted[i] = names_at(&s->tensors, first + i);
    qsort(sorted, (size_t)n, sizeof *sorted, by_data);
    Status st = OK;
    for (int i = 1; i < n && !st.code; i++)
        if (sorted[i - 1]->data + sorted[i - 1]->n_bytes > sorted[i]->data)
            st = status_error(QUILL_MODEL,
                              "%s: tensor %.*s: data_offsets: bytes of its own expected, %.*s has some of them", path,
                              SAFE_SHOW(sorted[i]->name), SAFE_SHOW(sorted[i - 1]->name));
    free(sorted);
    return st;
}

static Status read_header(const char *path, const uint8_t *bytes, size_t n, size_t *n_header, json_t **out) {
    uint64_t n_json = 0;
    if (n >= 8)
        for (int i = 7; i >= 0; i--) n_json = n_json << 8 | bytes[i];
    if (n < 8 || n_json > n - 8 || n_json > MAX_HEADER)
        return status_error(QUILL_MODEL, "%s: a safetensors header of at most %zu bytes expected, %" PRIu64 " found",
                            path,
                            n < 8                ? 0
                            : n - 8 < MAX_HEADER ? n - 8
                                                 : (size_t)MAX_HEADER,
                            n_json);
    json_error_t error;
    *n_header = 8 + (size_t)n_json;
    *out = json_loadb((const char *)bytes + 8, (size_t)n_json, JSON_REJECT_DUPLICATES, &error);
    if (!*out) return status_error(QUILL_MODEL, "%s: byte %d: the header: %s", path, 8 + error.position, error.text);
    if (json_is_object(*out)) return OK;
    json_decref(*out);
    return status_error(QUILL_MODEL, "%s: the header: a JSON object expected, another value found", path);
}

Status safetensors_add(SafeFiles *s, const char *path, const uint8_t *bytes, size_t n) {
    size_t n_header = 0;
    json_t *header, *entry;
    const char *name;
    TRY(read_header(path, bytes, n, &n_header, &header));
    s->paths = mem_resize(s->paths, (size_t)(s->n_files + 1) * sizeof *s->paths);
    s->headers = mem_resize(s->headers, (size_t)(s->n_files + 1) * sizeof *s->headers);
    path = s->paths[s->n_files] = mem_copy(path, strlen(path));
    s->headers[s->n_files++] = header;
    s->tensors.record_bytes = sizeof(SafeTensor);
    int first = s->tensors.n;
    json_object_foreach(header, name, entry) {
        if (strcmp(name, "__metadata__") == 0) continue;
        SafeTensor *t = names_add(&s->tensors, str_of(name));
        if (!t) {
            const SafeTensor *other = safetensors_find(s, name);
            return status_error(QUILL_MODEL, "%s: tensor %.100s: each tensor once expected, %s has it too", path, name,
                                other->file);
        }
        TRY(read_tensor(path, t, entry, bytes + n_header, n - n_header));
    }
    return check_overlaps(s, path, first);
}

const SafeTensor *safetensors_find(const SafeFiles *s, const char *name) {
    int i = names_find(&s->tensors, str_of(name));
    return i < 0 ? NULL : names_at(&s->tensors, i);
}

// ---- a directory ----------------------------------------------------------------------------------------------------

static Status map_file(SafeFiles *s, const char *path) {
    FileMap map;
    Status st = file_map(path, &map);
    if (st.code) {
        st.code = QUILL_MODEL;
        return st;
    }
    s->maps = mem_resize(s->maps, (size_t)(s->n_maps + 1) * sizeof *s->maps);
    s->maps[s->n_maps++] = map;
    return safetensors_add(s, path, map.data, map.n);
}

static bool has_file(const SafeFiles *s, const char *path) {
    for (int i = 0; i < s->n_files; i++)
        if (strcmp(s->paths[i], path) == 0) return true;
    return false;
}

// Whether the name is that of a file in the directory itself.
static bool is_plain_name(const char *name) { return *name && *name != '.' && !strchr(name, '/'); }

static Status open_shards(SafeFiles *s, const char *dir, const char *index_path, const json_t *index) {
    const char *name;
    json_t *file, *map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return status_error(QUILL_MODEL, "%s: weight_map: an object that names a file for each tensor expected",
                            index_path);
    Buf path = {0};
    Status st = OK;
    json_object_foreach(map, name, file) {
        const char *base = json_string_value(file);
        if (!base || !is_plain_name(base)) {
            st = status_error(QUILL_MODEL,
                              "%s: weight_map: tensor %.100s: a file of the directory expected, found %.200s",
                              index_path, name, base ? base : "no text");
            break;
        }
        path.n = 0;
        buf_printf(&path, "%s/%s", dir, base);
        if (has_file(s, path.data)) continue;
        if (access(path.data, F_OK) != 0) {
            st = status_error(QUILL_MODEL, "%s: tensor %.100s: the file %s expected, it is missing", index_path, name,
                              base);
            break;
        }
        st = map_file(s, path.data);
        if (st.code) break;
    }
    buf_free(&path);
    TRY(st);
    json_object_foreach(map, name, file) {
        const SafeTensor *t = safetensors_find(s, name);
        const char *slash = t ? strrchr(t->file, '/') + 1 : NULL;
        if (!t || strcmp(slash, json_string_value(file)) != 0)
            return status_error(QUILL_MODEL, "%s: tensor %.100s: expected in %s, found in %s", index_path, name,
                                json_string_value(file), t ? slash : "no file");
    }
    return OK;
}

static Status open_index(SafeFiles *s, const char *dir, const char *path) {
    Buf text = {0};
    Status st = file_read(path, &text);
    if (st.code) {
        st.code = QUILL_MODEL;
        buf_free(&text);
        return st;
    }
    json_error_t error;
    json_t *index = jsonio_read(str_of_buf(&text), JSON_REJECT_DUPLICATES, &error);
    buf_free(&text);
    if (!index) return status_error(QUILL_MODEL, "%s: line %d: %s", path, error.line, error.text);
    st = open_shards(s, dir, path, index);
    json_decref(index);
    return st;
}

Status safetensors_open(const char *dir, SafeFiles *out) {
    *out = (SafeFiles){.tensors.record_bytes = sizeof(SafeTensor)};
    Buf whole = {0}, index = {0};
    buf_printf(&whole, "%s/model.safetensors", dir);
    buf_printf(&index, "%s/model.safetensors.index.json", dir);
    Status st;
    if (access(whole.data, F_OK) == 0) st = map_file(out, whole.data);
    else if (access(index.data, F_OK) == 0) st = open_index(out, dir, index.data);
    else
        st = status_error(QUILL_MODEL,
                          "%s: weights expected in model.safetensors, or in files that model.safetensors.index.json "
                          "names; neither is there",
                          dir);
    buf_free(&whole);
    buf_free(&index);
    return st;
}

void safetensors_close(SafeFiles *s) {
    for (int i = 0; i < s->n_maps; i++) file_unmap(&s->maps[i]);
    for (int i = 0; i < s->n_files; i++) {
        free(s->paths[i]);
        json_decref(s->headers[i]);
    }
    free(s->maps);
    free(s->paths);
    free(s->headers);
    names_free(&s->tensors);
    *s = (SafeFiles){0};
}
