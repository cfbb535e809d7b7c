// hub/choose.c: see hub/choose.h.
#include "hub/choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/jsonio.h"
#include "files/gguf.h"
#include "hf/hf.h"

#define SAFETENSORS "safetensors"
#define INDEX "model.safetensors.index.json"

// ---- models ---------------------------------------------------------------------------------------------------------

static bool is_model_file(const char *path) {
    static const char *const others[] = {"mmproj", "imatrix", "ggml-vocab"};
    const char *base = file_base(path);
    size_t n = strlen(base);
    if (n < 6 || strcasecmp(base + n - 5, ".gguf") != 0) return false;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        for (const char *at = base; *at; at++)
            if (strncasecmp(at, others[i], strlen(others[i])) == 0) return false;
    return true;
}

static HubModel *add_model(HubModels *m) {
    m->at = mem_resize(m->at, (size_t)(m->n + 1) * sizeof *m->at);
    m->at[m->n] = (HubModel){0};
    return &m->at[m->n++];
}

static void add_file(HubModel *m, const HubFile *f) {
    m->files = mem_resize(m->files, (size_t)(m->n + 1) * sizeof *m->files);
    m->files[m->n++] = f;
    m->bytes += f->size;
}

// Adds the parts after the first one. False: a part is missing.
static bool add_parts(const HubFiles *f, const char *first, size_t n_prefix, int count, HubModel *out) {
    for (int no = 2; no <= count; no++) {
        Buf name = {0};
        buf_append(&name, first, n_prefix);
        buf_printf(&name, "-%05d-of-%05d.gguf", no, count);
        const HubFile *part = hub_files_find(f, name.data);
        buf_free(&name);
        if (!part) return false;
        add_file(out, part);
    }
    return true;
}

static void group_gguf(const HubFiles *f, HubModels *out) {
    for (int i = 0; i < f->n; i++) {
        const char *path = f->at[i].path;
        size_t n_prefix = 0;
        int no = 1, count = 1;
        if (!is_model_file(path)) continue;
        if (gguf_split_name(path, &n_prefix, &no, &count) && no != 1) continue;
        HubModel *m = add_model(out);
        hub_name_type(path, m->type);
        add_file(m, &f->at[i]);
        if (add_parts(f, path, n_prefix, count, m)) continue;
        free(m->files);
        out->n--;
    }
}

// Whether the name is that of a part of the weights: model-00001-of-00003.safetensors.
static bool is_shard(const char *path) {
    return str_has_prefix(str_of(path), "model") && str_has_suffix(str_of(path), "." SAFETENSORS) && !strchr(path, '/');
}

static void group_directory(const HubFiles *f, HubModels *out) {
    const HubFile *config = hub_files_find(f, "config.json"), *weights = hub_files_find(f, "model." SAFETENSORS);
    const HubFile *index = weights ? NULL : hub_files_find(f, INDEX);
    if (!config || (!weights && !index)) return;
    HubModel *m = add_model(out);
    m->directory = true;
    m->index = index;
    snprintf(m->type, sizeof m->type, SAFETENSORS);
    add_file(m, config);
    for (int i = 0; hf_small_files[i]; i++) {
        const HubFile *one = hub_files_find(f, hf_small_files[i]);
        if (one) add_file(m, one);
    }
    add_file(m, weights ? weights : index);
    for (int i = 0; index && i < f->n; i++)
        if (is_shard(f->at[i].path)) m->bytes += f->at[i].size;
}

void hub_models_group(const HubFiles *f, HubModels *out) {
    group_gguf(f, out);
    group_directory(f, out);
}

void hub_models_free(HubModels *m) {
    for (int i = 0; i < m->n; i++) free(m->at[i].files);
    free(m->at);
    *m = (HubModels){0};
}

static bool has_file(const HubModel *m, const HubFile *f) {
    for (int i = 0; i < m->n; i++)
        if (m->files[i] == f) return true;
    return false;
}

Status hub_models_add_shards(const char *repo, const HubFiles *f, Str index, HubModel *model) {
    json_error_t error;
    json_t *file = jsonio_read(index, JSON_REJECT_DUPLICATES, &error), *names = json_object_get(file, "weight_map");
    Status st = OK;
    const char *key;
    json_t *value;
    model->bytes = 0;
    for (int i = 0; i < model->n; i++) model->bytes += model->files[i]->size;
    if (!json_is_object(names))
        st = status_error(QUILL_MODEL, "%s: " INDEX ": an object weight_map expected, none found", repo);
    else json_object_foreach(names, key, value) {
            const char *path = json_string_value(value);
            const HubFile *shard = path ? hub_files_find(f, path) : NULL;
            if (!shard && !st.code)
                st = status_error(QUILL_MODEL, "%s: " INDEX ": a file of the repository expected, %.200s found", repo,
                                  path ? path : "no name");
            if (shard && !has_file(model, shard)) add_file(model, shard);
        }
    json_decref(file);
    return st;
}

// ---- the choice -----------------------------------------------------------------------------------------------------

// "dir/Qwen3-8B-Q4_K_M" of "dir/Qwen3-8B-Q4_K_M-00001-of-00002.gguf".
static size_t stem_length(const char *path) {
    size_t n_prefix;
    int no, count;
    return gguf_split_name(path, &n_prefix, &no, &count) ? n_prefix : strlen(path) - strlen(".gguf");
}

static bool is_file_of(const HubModel *m, const char *tag) {
    if (m->directory) return false;
    const char *path = m->files[0]->path, *base = file_base(path);
    size_t stem = stem_length(path), in_base = stem - (size_t)(base - path), n = strlen(tag);
    for (int i = 0; i < m->n; i++)
        if (strcmp(tag, m->files[i]->path) == 0 || strcmp(tag, file_base(m->files[i]->path)) == 0) return true;
    return (n == stem && strncmp(tag, path, n) == 0) || (n == in_base && strncmp(tag, base, n) == 0);
}

// How well a model fits a tag: 3: its file's name; 2: its type; 1: its type without Unsloth's prefix UD-; 0: not at
// all.
static int fit(const HubModel *m, const char *tag) {
    if (is_file_of(m, tag)) return 3;
    if (m->type[0] && strcasecmp(m->type, tag) == 0) return 2;
    return strncmp(m->type, "UD-", 3) == 0 && strcasecmp(m->type + 3, tag) == 0;
}

// Returns how many models fit best; *out is the first of them.
static int best_fits(const HubModels *models, const char *tag, int *out) {
    int best = 0, n = 0;
    for (int i = 0; i < models->n; i++) {
        int f = fit(&models->at[i], tag);
        if (f > best) best = f, n = 0, *out = i;
        n += f == best && f > 0;
    }
    return n;
}

void hub_models_list(const HubModels *models, int except, Buf *out) {
    for (int i = 0; i < models->n; i++) {
        const HubModel *m = &models->at[i];
        bool seen = i == except || (except >= 0 && strcmp(m->type, models->at[except].type) == 0);
        for (int k = 0; k < i && m->type[0]; k++) seen |= strcmp(models->at[k].type, m->type) == 0;
        if (seen) continue;
        buf_printf(out, "%s%s", out->n ? ", " : "", m->type[0] ? m->type : file_base(m->files[0]->path));
    }
}

static Status several(const HubName *name, const HubModels *models, const char *tag) {
    Buf list = {0};
    for (int i = 0; i < models->n; i++)
        if (!*tag || fit(&models->at[i], tag))
            buf_printf(&list, "%s%s", list.n ? ", " : "", models->at[i].files[0]->path);
    Status st = status_error(QUILL_MODEL, "%s%s%s: one model expected, several found; name a file, as %s:FILE: %.600s",
                             name->repo, *tag ? ":" : "", tag, name->repo, list.data);
    buf_free(&list);
    return st;
}

static Status none(const HubName *name, const HubModels *models) {
    Buf list = {0};
    Nearest nearest = {.word = name->tag};
    for (int i = 0; i < models->n; i++) {
        if (models->at[i].type[0]) nearest_try(&nearest, models->at[i].type);
        nearest_try(&nearest, file_base(models->at[i].files[0]->path));
    }
    const char *meant = *name->tag ? nearest_found(&nearest) : NULL;
    hub_models_list(models, -1, &list);
    Status st;
    if (models->n == 0)
        st = status_error(
            QUILL_MODEL, "%s: a GGUF file, or config.json with model.safetensors, expected; the repository has neither",
            name->repo);
    else if (*name->tag)
        st = status_error(QUILL_MODEL, "%s:%s: a type or a file of the repository expected%s%s%s; it has %.600s",
                          name->repo, name->tag, meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "",
                          list.data);
    else
        st = status_error(QUILL_MODEL, "%s: Q4_K_M, Q8_0 or safetensors expected; it has %.600s: name one, as %s:%s",
                          name->repo, list.data, name->repo,
                          models->at[0].type[0] ? models->at[0].type : models->at[0].files[0]->path);
    buf_free(&list);
    return st;
}

Status hub_models_choose(const HubName *name, const HubModels *models, int *out) {
    static const char *const usual[] = {"Q4_K_M", "Q8_0", SAFETENSORS};
    *out = 0;
    if (*name->tag) {
        int n = best_fits(models, name->tag, out);
        return n == 1 ? OK : n > 1 ? several(name, models, name->tag) : none(name, models);
    }
    for (size_t i = 0; i < ARRAY_LEN(usual); i++) {
        int n = best_fits(models, usual[i], out);
        if (n > 1) return several(name, models, usual[i]);
        if (n == 1) return OK;
    }
    *out = 0;
    return models->n == 1 ? OK : none(name, models);
}

void hub_models_name(const char *repo, const HubModels *models, int i, Buf *out) {
    const HubModel *m = &models->at[i];
    int which, n = m->type[0] ? best_fits(models, m->type, &which) : 0;
    buf_str(out, repo);
    if (models->n == 1 && (m->directory || !m->type[0])) return;
    buf_printf(out, ":%s", n == 1 ? m->type : m->files[0]->path);
}
