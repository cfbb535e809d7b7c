// hub/cached.c: see hub/cached.h.
#define _GNU_SOURCE
#include "hub/cached.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hub/choose.h"

// ---- one snapshot ---------------------------------------------------------------------------------------------------

typedef struct {
    char *folder; // folder of the repository
    HubFiles files;
    HubModels models;
    Status unread; // of an index that cannot be read: its model is not among the models
} HubSnapshot;

static void path_of(const HubSnapshot *s, const HubModel *m, Buf *out) {
    buf_printf(out, "%s/snapshots/%s", s->folder, s->files.commit);
    if (!m->directory) buf_printf(out, "/%s", m->files[0]->path);
}

// Adds the files that the model's index names. False: the snapshot lacks some of them, or the index cannot be read.
static bool add_shards(HubSnapshot *s, const char *repo, HubModel *m) {
    if (!m->index) return true;
    Buf path = {0}, text = {0};
    buf_printf(&path, "%s/snapshots/%s/%s", s->folder, s->files.commit, m->index->path);
    Status read = file_read(path.data, &text);
    if (read.code) s->unread = read;
    bool whole = !read.code && !hub_models_add_shards(repo, &s->files, str_of_buf(&text), m).code;
    buf_free(&path);
    buf_free(&text);
    return whole;
}

// Reads the complete models of a snapshot. The caller frees `out`, also after an error.
static Status read_snapshot(const char *folder, const char *repo, const char *commit, HubSnapshot *out) {
    *out = (HubSnapshot){.folder = mem_copy(folder, strlen(folder))};
    TRY(hub_cache_files(folder, commit, &out->files));
    hub_models_group(&out->files, &out->models);
    int n = 0;
    for (int i = 0; i < out->models.n; i++) {
        if (add_shards(out, repo, &out->models.at[i])) out->models.at[n++] = out->models.at[i];
        else free(out->models.at[i].files);
    }
    out->models.n = n;
    return OK;
}

static void snapshot_free(HubSnapshot *s) {
    hub_models_free(&s->models);
    hub_files_free(&s->files);
    free(s->folder);
}

// ---- all models -----------------------------------------------------------------------------------------------------

static HubCached *add(HubCachedList *list, const char *repo, const char *name) {
    list->at = mem_resize(list->at, (size_t)(list->n + 1) * sizeof *list->at);
    list->at[list->n] = (HubCached){.repo = mem_copy(repo, strlen(repo)), .name = mem_copy(name, strlen(name))};
    return &list->at[list->n++];
}

static void add_model(HubCachedList *list, const char *repo, const HubSnapshot *s, int which, int first) {
    const HubModel *m = &s->models.at[which];
    Buf name = {0}, path = {0};
    hub_models_name(repo, &s->models, which, &name);
    bool known = false;
    for (int i = first; i < list->n; i++) known |= strcmp(list->at[i].paths.at[0], m->files[0]->path) == 0;
    if (!known) {
        HubCached *c = add(list, repo, name.data);
        path_of(s, m, &path);
        c->path = mem_copy(path.data, path.n);
        c->directory = m->directory;
        c->bytes = m->bytes;
        snprintf(c->type, sizeof c->type, "%s", m->type);
        for (int i = 0; i < m->n; i++) {
            hub_names_add(&c->paths, m->files[i]->path);
            if (m->files[i]->used > c->used) c->used = m->files[i]->used;
        }
    }
    buf_free(&name);
    buf_free(&path);
}

// Adds the models of a repository. One without models, or with an incomplete one, is listed too: it takes disk space.
static Status add_repo(HubCachedList *list, const char *root, const char *repo) {
    Buf folder = {0};
    HubNames commits = {0};
    int first = list->n;
    uint64_t rest = 0, all = 0;
    hub_cache_folder(root, repo, &folder);
    Status st = hub_cache_snapshots(folder.data, &commits);
    for (int i = 0; i < commits.n && !st.code; i++) {
        HubSnapshot s;
        st = read_snapshot(folder.data, repo, commits.at[i], &s);
        for (int k = 0; k < s.models.n && !st.code; k++) add_model(list, repo, &s, k, first);
        if (!list->unread.code) list->unread = s.unread;
        snapshot_free(&s);
    }
    if (!st.code) st = hub_cache_incomplete(folder.data, &rest);
    bool none = list->n == first;
    if (!st.code && none) st = hub_cache_bytes(folder.data, &all);
    if (rest || none) {
        HubCached *c = add(list, repo, repo);
        c->incomplete = rest > 0;
        c->bytes = none ? all : rest;
    }
    hub_names_free(&commits);
    buf_free(&folder);
    return st;
}

Status hub_cached_list(const char *root, HubCachedList *out) {
    HubNames repos = {0};
    Status st = hub_cache_repos(root, &repos);
    for (int i = 0; i < repos.n && !st.code; i++) {
        Status read = add_repo(out, root, repos.at[i]);
        if (!out->unread.code) out->unread = read;
    }
    hub_names_free(&repos);
    return st;
}

void hub_cached_free(HubCachedList *list) {
    for (int i = 0; i < list->n; i++) {
        free(list->at[i].repo);
        free(list->at[i].name);
        free(list->at[i].path);
        hub_names_free(&list->at[i].paths);
    }
    free(list->at);
    *list = (HubCachedList){0};
}

// ---- one model ------------------------------------------------------------------------------------------------------

static bool is_meant(const char *repo, const char *asked) {
    const char *slash = strchr(repo, '/');
    return strcasecmp(repo, asked) == 0 || (slash && !strchr(asked, '/') && strcasecmp(slash + 1, asked) == 0);
}

// The repository with this name; NULL: none or several, and *st has the error.
static const char *find_repo(const HubNames *repos, const char *asked, bool *there, Status *st) {
    Buf found = {0};
    const char *repo = NULL;
    int n = 0;
    for (int i = 0; i < repos->n; i++) {
        if (!is_meant(repos->at[i], asked)) continue;
        buf_printf(&found, "%s%s", n++ ? ", " : "", repos->at[i]);
        if (!repo || strcmp(repos->at[i], asked) == 0) repo = repos->at[i];
    }
    *there = n > 0;
    bool clear = n == 1 || (n > 1 && strcmp(repo, asked) == 0);
    if (n == 0) *st = status_error(QUILL_MODEL, "%s: a model in the cache expected, none found", asked);
    else if (!clear)
        *st = status_error(QUILL_MODEL, "%s: one model in the cache expected, found %.700s: %s", asked, found.data,
                           strchr(asked, '/') ? "write it as quill models does" : "add the user's name");
    buf_free(&found);
    return clear ? repo : NULL;
}

// Searches the snapshots in order for the model. If no snapshot has it, the error is that of the first one.
static Status find_model(const char *folder, const HubName *name, const HubNames *commits, Buf *path, Buf *whole) {
    Status st =
        status_error(QUILL_MODEL, "%s: a whole model in the cache expected, none found; quill pull %s fetches it",
                     name->repo, name->repo);
    for (int i = 0; i < commits->n; i++) {
        HubSnapshot s;
        int which = 0;
        Status read = read_snapshot(folder, name->repo, commits->at[i], &s), chosen = st;
        if (!read.code && s.models.n) chosen = hub_models_choose(name, &s.models, &which);
        if (!read.code && chosen.code) read = s.unread;
        if (!read.code && !chosen.code) {
            path_of(&s, &s.models.at[which], path);
            hub_models_name(name->repo, &s.models, which, whole);
        }
        snapshot_free(&s);
        TRY(read);
        if (!chosen.code) return OK;
        if (i == 0) st = chosen;
    }
    return st;
}

Status hub_cached_find(const char *root, const HubName *name, Buf *path, Buf *whole, bool *there) {
    HubNames repos = {0}, commits = {0};
    Buf folder = {0};
    *there = false;
    Status st = hub_cache_repos(root, &repos);
    const char *repo = st.code ? NULL : find_repo(&repos, name->repo, there, &st);
    if (repo) {
        HubName exact = *name;
        snprintf(exact.repo, sizeof exact.repo, "%s", repo);
        hub_cache_folder(root, repo, &folder);
        st = hub_cache_snapshots(folder.data, &commits);
        if (!st.code) st = find_model(folder.data, &exact, &commits, path, whole);
    }
    hub_names_free(&repos);
    hub_names_free(&commits);
    buf_free(&folder);
    return st;
}
