// hub/hub.c: see hub/hub.h.
#include "hub/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/note.h"
#include "base/signals.h"
#include "hf/hf.h"
#include "hub/cached.h"
#include "hub/choose.h"
#include "hub/fetch.h"
#include "hub/places.h"

// Bytes of the API's answer. The Hub sends 350 for a file; a byte of JSON costs up to 80 in memory.
enum { MOST_ANSWER = 8 << 20 };

// ---- fetching -------------------------------------------------------------------------------------------------------

// A model that is being fetched into the cache.
typedef struct {
    HubName name;
    HubWay way;
    HubFetch fetch;
    Buf folder; // HubFetch.folder
    HubFiles files;
    HubModels models;
    HubModel *model;  // the chosen one
    int n_missing;    // number of its files that the snapshot does not have
    uint64_t missing; // and their bytes that the cache does not have, as far as the Hub has said their sizes
} Pull;

static Status read_files(Pull *p) {
    Buf url = {0}, answer = {0};
    buf_printf(&url, "%s/api/models/%s/revision/main?blobs=true", p->fetch.http->endpoint, p->name.repo);
    Status st = hub_http_read(p->fetch.http, p->name.repo, url.data, MOST_ANSWER, &answer);
    if (!st.code) st = hub_files_read(p->name.repo, str_of_buf(&answer), &p->files);
    if (*p->files.repo) snprintf(p->name.repo, sizeof p->name.repo, "%s", p->files.repo); // names ignore case
    buf_free(&url);
    buf_free(&answer);
    return st;
}

// Bytes of a file that the cache does not have.
static uint64_t missing_bytes(const Pull *p, const HubFile *file) {
    Buf path = {0};
    struct stat info;
    uint64_t have = 0;
    if (!file->blob) return file->size;
    buf_printf(&path, "%s/blobs/%s", p->fetch.folder, file->blob);
    bool there = stat(path.data, &info) == 0;
    buf_str(&path, ".incomplete");
    if (!there && stat(path.data, &info) == 0) have = (uint64_t)info.st_size;
    buf_free(&path);
    return there || have > file->size ? 0 : file->size - have;
}

// Sets n_missing and missing.
static void count_missing(Pull *p) {
    p->n_missing = 0;
    p->missing = 0;
    for (int i = 0; i < p->model->n; i++) {
        Buf path = {0};
        buf_printf(&path, "%s/snapshots/%s/%s", p->fetch.folder, p->files.commit, p->model->files[i]->path);
        if (access(path.data, F_OK) != 0) p->missing += missing_bytes(p, p->model->files[i]), p->n_missing++;
        buf_free(&path);
    }
}

// Notes the chosen model if the name did not choose it, and every transfer before it begins.
static void say_choice(const Pull *p) {
    char size[24];
    Buf others = {0};
    int which = (int)(p->model - p->models.at);
    bool there = p->n_missing == 0;
    if (p->way.quiet || (there && *p->name.tag)) return;
    hub_models_list(&p->models, which, &others);
    const char *type = p->model->type[0] ? p->model->type : file_base(p->model->files[0]->path);
    note_print(false, "%s: %s %s (%s)%s%s", p->name.repo, there ? "using" : "fetching", type,
               units_bytes((double)p->model->bytes, size), others.n ? "; it also has " : "",
               others.n ? others.data : "");
    buf_free(&others);
}

// Fetches the index first: it names the other files.
static Status read_index(Pull *p) {
    Buf path = {0}, text = {0};
    if (!p->model->index) return OK;
    Status st = hub_fetch_file(&p->fetch, p->model->index);
    buf_printf(&path, "%s/snapshots/%s/%s", p->fetch.folder, p->files.commit, p->model->index->path);
    if (!st.code) st = file_read(path.data, &text);
    if (!st.code) st = hub_models_add_shards(p->name.repo, &p->files, str_of_buf(&text), p->model);
    p->fetch.meter.before = 0;
    buf_free(&path);
    buf_free(&text);
    return st;
}

// Makes the directories for files that are missing. *reached becomes false if the cache cannot be written: the model
// may be in it as an older version.
static Status make_room(const Pull *p, bool *reached) {
    if (p->n_missing == 0) return OK;
    Status st = hub_cache_make_dirs(p->fetch.root, p->name.repo);
    if (st.code) *reached = false;
    TRY(st);
    return hub_fetch_check_room(&p->fetch, p->name.repo, p->missing);
}

// Refuses a directory that quill cannot run before its weights are fetched. config.json is there.
static Status check_directory(const Pull *p) {
    Buf dir = {0};
    buf_printf(&dir, "%s/snapshots/%s", p->fetch.folder, p->files.commit);
    Status st = hf_check_config(dir.data);
    buf_free(&dir);
    if (!st.code && !hub_files_find(&p->files, "tokenizer.json"))
        st = status_error(QUILL_MODEL, "%s: tokenizer.json expected beside the weights, none found", p->name.repo);
    return st;
}

static Status fetch_all(Pull *p, bool *reached) {
    count_missing(p);
    TRY(make_room(p, reached));
    TRY(read_index(p));
    count_missing(p); // with the files that the index names
    say_choice(p);
    TRY(make_room(p, reached));
    p->fetch.meter.all = p->model->bytes;
    for (int i = 0; i < p->model->n; i++) {
        TRY(hub_fetch_file(&p->fetch, p->model->files[i]));
        if (i == 0 && p->model->directory) TRY(check_directory(p));
    }
    // Nothing is recorded in a cache that has everything and cannot be written: others fill it.
    if (p->n_missing == 0 && hub_cache_make_dirs(p->fetch.root, p->name.repo).code) return OK;
    return hub_cache_set_main(p->fetch.folder, p->files.commit);
}

// Fetches the model. *reached: the Hub has answered, so that the cache is no alternative after an error.
static Status pull(Pull *p, Buf *path, bool *reached) {
    int which;
    TRY(read_files(p));
    *reached = true;
    hub_models_group(&p->files, &p->models);
    TRY(hub_models_choose(&p->name, &p->models, &which));
    p->model = &p->models.at[which];
    p->fetch.repo = p->name.repo;
    p->fetch.commit = p->files.commit;
    hub_cache_folder(p->fetch.root, p->name.repo, &p->folder);
    p->fetch.folder = p->folder.data;
    TRY(fetch_all(p, reached));
    buf_printf(path, "%s/snapshots/%s", p->fetch.folder, p->files.commit);
    if (!p->model->directory) buf_printf(path, "/%s", p->model->files[0]->path);
    return OK;
}

static Status get_online(const char *root, const HubName *name, HubWay way, Buf *path, bool *reached) {
    HubHttp http;
    *reached = false;
    TRY(hub_http_open(way.quiet, &http));
    Pull p = {.name = *name, .way = way, .fetch = {.http = &http, .root = root}};
    p.fetch.meter.progress = progress_new(way.quiet);
    signals_catch();
    Status st = pull(&p, path, reached);
    if (st.code >= 128 && *reached)
        note_print(way.quiet, "%s: the fetched part is kept; the same command continues the transfer", name->repo);
    if (st.code < 128) signals_release();
    hub_models_free(&p.models);
    hub_files_free(&p.files);
    buf_free(&p.folder);
    hub_http_close(&http);
    return st;
}

// ---- the cache ------------------------------------------------------------------------------------------------------

// Finds the model in the cache because the Hub cannot be used; `why` says the reason and begins the message.
static Status get_cached(const char *root, const HubName *name, HubWay way, const char *why, Buf *path) {
    Buf whole = {0};
    bool there;
    Status st = hub_cached_find(root, name, path, &whole, &there);
    if (!st.code) note_print(way.quiet, "%s: using %s from the cache", why, whole.data);
    if (st.code) st = status_error(st.code, "%.500s; %.500s", why, st.message);
    buf_free(&whole);
    return st;
}

Status hub_get(const char *text, HubWay way, Buf *path) {
    HubName name;
    Buf root = {0};
    bool reached;
    TRY(hub_name_parse(text, &name));
    Status st = hub_places_cache(&root);
    if (st.code) return st;
    char why[40] = "--offline";
    const char *variable = hub_places_offline();
    if (variable && !way.offline) snprintf(why, sizeof why, "%s is set", variable);
    if (way.offline || variable) st = get_cached(root.data, &name, way, why, path);
    else {
        st = get_online(root.data, &name, way, path, &reached);
        if (st.code == QUILL_IO && !reached) {
            Status cached = get_cached(root.data, &name, way, st.message, path);
            if (!cached.code) st = OK;
        }
    }
    buf_free(&root);
    return st;
}

static bool is_file_name(const char *text) {
    static const char *const files[] = {".gguf", ".bin", ".safetensors"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (str_has_suffix(str_of(text), files[i])) return true;
    return false;
}

// The error for a name that is no file and not in the cache; `bare`: without a user, which a fetch needs.
static Status not_in_cache(const char *text, bool bare) {
    return status_error(QUILL_MODEL,
                        "%s: a file, a directory or a model in the cache expected, none found; %squill pull %s%s "
                        "fetches %s from the Hugging Face Hub",
                        text, bare ? "quill models lists the cache, " : "", bare ? "USER/" : "", text,
                        bare ? "one" : "it");
}

Status hub_find(const char *text, Buf *path, bool *found) {
    HubName name;
    Buf root = {0}, whole = {0};
    bool there;
    *found = false;
    if (!hub_name_read(text, true, &name) || hub_places_cache(&root).code) return OK;
    Status st = hub_cached_find(root.data, &name, path, &whole, &there);
    *found = !st.code;
    if (st.code == QUILL_MODEL && !there && !is_file_name(text))
        st = not_in_cache(text, !hub_name_read(text, false, &name));
    else if (st.code == QUILL_MODEL && !there) st = OK;
    buf_free(&root);
    buf_free(&whole);
    return st;
}
