// kv/kvlist.c: see kv/kvlist.h.
#define _GNU_SOURCE
#include "kv/kvlist.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/jsonio.h"
#include "base/output.h"
#include "kv/kvinput.h"
#include "kv/kvstore.h"

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// The paths of the directory's files in order; the caller frees them and the array.
static Status read_dir(const char *path, char ***files, int *n) {
    DIR *dir = opendir(path);
    if (!dir) return status_error(QUILL_IO, "%.500s: a directory expected, cannot open: %s", path, strerror(errno));
    for (struct dirent *d; (d = readdir(dir));) {
        if (!kvstore_ending(d->d_name)) continue;
        Buf file = {0};
        buf_printf(&file, "%s/%s", path, d->d_name);
        *files = mem_resize(*files, (size_t)(*n + 1) * sizeof **files);
        (*files)[(*n)++] = file.data;
    }
    closedir(dir);
    if (*n) qsort(*files, (size_t)*n, sizeof **files, by_name);
    return OK;
}

// A file of the directory. head NULL: it is damaged.
static void print_line(const char *path, const char *kind, const KvHead *head, off_t bytes, Buf *out) {
    if (!head) buf_printf(out, "damaged                                                 ");
    else
        buf_printf(out, "%-7s %6u tokens  model %016llx %s/%s ", kind, head->n_tokens, (unsigned long long)head->model,
                   type_name((int)head->type_k), type_name((int)head->type_v));
    buf_printf(out, "%10lld bytes  ", (long long)bytes);
    utf8_escape(out, path, strlen(path));
    buf_str(out, "\n");
}

static json_t *as_json(const char *path, const char *kind, const KvHead *head, off_t bytes) {
    json_t *j = json_object();
    jsonio_put(j, "path", jsonio_text(str_of(path)));
    jsonio_put(j, "kind", json_string(kind));
    jsonio_put(j, "bytes", json_integer(bytes));
    if (!head) return j;
    char model[17];
    snprintf(model, sizeof model, "%016llx", (unsigned long long)head->model);
    jsonio_put(j, "tokens", json_integer(head->n_tokens));
    jsonio_put(j, "model", json_string(model));
    jsonio_put(j, "type_k", json_string(type_name((int)head->type_k)));
    jsonio_put(j, "type_v", json_string(type_name((int)head->type_v)));
    return j;
}

// Appends the file to the list, or without one its line to `out`.
static void list_file(const char *path, json_t *list, Buf *out) {
    struct stat info;
    KvInput in;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return; // removed by another process; a pipe would block
    Status st = kvinput_open(&in, path);
    bool chunk = strcmp(kvstore_ending(file_base(path)), KVSTORE_CHUNK) == 0;
    const char *kind = st.code ? "damaged" : chunk ? "chunk" : "block";
    const KvHead *head = st.code ? NULL : &in.r.s.head;
    if (list) jsonio_append(list, as_json(path, kind, head, info.st_size));
    else print_line(path, kind, head, info.st_size, out);
    kvinput_close(&in);
}

Status kvlist_run(const Options *o, const char *const *files) {
    char **found = NULL;
    int n = 0;
    Buf out = {0};
    json_t *list = o->answer.json ? json_array() : NULL;
    Status st = read_dir(files[0], &found, &n);
    for (int i = 0; i < n; i++) {
        list_file(found[i], list, &out);
        free(found[i]);
    }
    free(found);
    if (list) jsonio_print(list, JSON_INDENT(2), &out), buf_str(&out, "\n");
    json_decref(list);
    return st.code ? st : output_buf(&out);
}

Status kvlist_remove(const Options *o, const char *const *files) {
    int n = o->kv.n_words - 1;
    for (int i = 0; i < n; i++) // removes none if one of them is something else
        if (!kvstore_ending(file_base(files[i])))
            return status_error(
                QUILL_USAGE,
                "quill kv remove: %.300s: the name of a file expected, as quill kv list shows it; no file was removed",
                files[i]);
    for (int i = 0; i < n; i++)
        if (unlink(files[i]) != 0)
            return status_error(QUILL_IO, "%.300s: cannot remove: %s", files[i], strerror(errno));
    return OK;
}
