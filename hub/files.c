// hub/files.c: see hub/files.h.
#include "hub/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/jsonio.h"

// ---- files ----------------------------------------------------------------------------------------------------------

HubFile *hub_files_add(HubFiles *f, const char *path, uint64_t size) {
    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 32;
        f->at = mem_resize(f->at, (size_t)f->cap * sizeof *f->at);
    }
    f->at[f->n] = (HubFile){.path = mem_copy(path, strlen(path)), .size = size};
    return &f->at[f->n++];
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const HubFile *)a)->path, ((const HubFile *)b)->path);
}

const HubFile *hub_files_find(const HubFiles *f, const char *path) {
    HubFile wanted = {.path = (char *)path};
    return f->n ? bsearch(&wanted, f->at, (size_t)f->n, sizeof *f->at, by_path) : NULL;
}

void hub_files_sort(HubFiles *f) {
    if (f->n) qsort(f->at, (size_t)f->n, sizeof *f->at, by_path);
}

void hub_files_free(HubFiles *f) {
    for (int i = 0; i < f->n; i++) {
        free(f->at[i].path);
        free(f->at[i].blob);
    }
    free(f->at);
    *f = (HubFiles){0};
}

// ---- the API's answer -----------------------------------------------------------------------------------------------

static bool is_hash(const char *s) {
    size_t n = strlen(s);
    return (n == 40 || n == 64) && strspn(s, "0123456789abcdef") == n;
}

static void read_sibling(const json_t *one, HubFiles *out) {
    const char *path = json_string_value(json_object_get(one, "rfilename"));
    json_int_t size = json_integer_value(json_object_get(one, "size"));
    const json_t *large = json_object_get(one, "lfs"); // blobId is then that of a pointer to it
    const char *blob = json_string_value(large ? json_object_get(large, "sha256") : json_object_get(one, "blobId"));
    if (!path || !hub_name_is_safe_path(path)) return;
    HubFile *f = hub_files_add(out, path, size > 0 ? (uint64_t)size : 0);
    if (blob && is_hash(blob)) f->blob = mem_copy(blob, strlen(blob));
}

Status hub_files_read(const char *repo, Str json, HubFiles *out) {
    json_error_t error;
    json_t *answer = jsonio_read(json, JSON_ALLOW_NUL, &error);
    const char *commit = json_string_value(json_object_get(answer, "sha"));
    const char *id = json_string_value(json_object_get(answer, "id"));
    const json_t *siblings = json_object_get(answer, "siblings");
    Status st = OK;
    if (!commit || !is_hash(commit) || !json_is_array(siblings))
        st = status_error(QUILL_IO,
                          "%s: the Hub's list of files expected (JSON with sha and siblings), another answer found: is "
                          "HF_ENDPOINT a Hub?",
                          repo);
    else {
        snprintf(out->commit, sizeof out->commit, "%s", commit);
        if (id && strcasecmp(id, repo) == 0) snprintf(out->repo, sizeof out->repo, "%s", id);
        for (size_t i = 0; i < json_array_size(siblings); i++) read_sibling(json_array_get(siblings, i), out);
        hub_files_sort(out);
    }
    json_decref(answer);
    return st;
}
