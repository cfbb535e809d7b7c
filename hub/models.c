// hub/models.c: see hub/models.h.
#define _GNU_SOURCE
#include "hub/models.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/jsonio.h"
#include "base/note.h"
#include "base/output.h"
#include "cli/values.h"
#include "files/builtin.h"
#include "files/gguf.h"
#include "hf/hf.h"
#include "hub/cached.h"
#include "hub/hub.h"
#include "hub/places.h"
#include "policy/drafters.h"

// ---- the model of a run ---------------------------------------------------------------------------------------------

// Whether a name is neither the built-in model's nor that of a file or directory.
static bool unknown(const char *name) { return strcmp(name, BUILTIN_WORD) != 0 && access(name, F_OK) != 0; }

// The model of -hf, or of -m if it is a name.
static Status resolve_model(Options *o) {
    Buf path = {0};
    bool found = false;
    const char *model = o->engine.model;
    Status st = OK;
    if (o->hub.repo) {
        st = hub_get(o->hub.repo, (HubWay){o->hub.offline, o->answer.quiet}, &path);
        found = !st.code;
    } else if (model && unknown(model) && o->mode != MODE_KV) st = hub_find(model, &path, &found);
    if (found) {
        cli_keep(o, path.data);
        o->engine.model = path.data;
    } else buf_free(&path);
    return st;
}

// The draft model of --speculate, if it is a name.
static Status resolve_draft(Options *o) {
    const char *draft = o->engine.speculate ? drafters_model(o->engine.speculate) : NULL;
    Buf path = {0}, value = {0};
    bool found = false;
    if (!draft || strcmp(draft, DRAFTERS_MTP) == 0 || !unknown(draft)) return OK;
    Status st = hub_find(draft, &path, &found);
    if (found) {
        buf_printf(&value, "%.*s%s", (int)(draft - o->engine.speculate), o->engine.speculate, path.data);
        cli_keep(o, value.data);
        o->engine.speculate = value.data;
    }
    buf_free(&path);
    return st;
}

Status models_resolve(Options *o) {
    TRY(resolve_model(o));
    return resolve_draft(o);
}

Status models_pull(const Options *o) {
    Buf path = {0};
    if (o->hub.n_words != 1)
        return status_error(QUILL_USAGE, "quill pull: one model expected, as user/repo or user/repo:Q4_K_M, found %d",
                            o->hub.n_words);
    Status st = hub_get(o->hub.words[0], (HubWay){o->hub.offline, o->answer.quiet}, &path);
    if (st.code) buf_free(&path);
    else {
        buf_str(&path, "\n");
        st = output_buf(&path);
    }
    return st;
}

// ---- the list -------------------------------------------------------------------------------------------------------

// Reads general.architecture from the first part only: the other parts have no metadata.
static Status family_of_gguf(const char *path, char out[32]) {
    FileMap map;
    Gguf *g;
    Str family;
    TRY(file_map(path, &map));
    Status st = gguf_open_memory(path, map.data, map.n, &g);
    if (!st.code) {
        if (!gguf_str(g, "general.architecture", &family, true).code)
            snprintf(out, 32, "%.*s", (int)family.n, family.data);
        gguf_close(g);
    }
    file_unmap(&map);
    return st;
}

// The family and type to show for a model, "-" where they are not known, without control characters, which a file could
// send to a terminal. *unread: the first error of all calls.
static void describe(const HubCached *c, char family[32], char type[32], Status *unread) {
    snprintf(family, 32, "-");
    snprintf(type, 32, "%s", c->incomplete ? "incomplete" : c->type[0] ? c->type : "-");
    Status st = OK;
    if (c->directory) st = hf_describe(c->path, family, type);
    else if (c->path) st = family_of_gguf(c->path, family);
    for (char *p = family; *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f) *p = '?';
    if (!unread->code && !c->incomplete) *unread = st;
}

static void print_date(int64_t when, char out[24]) {
    time_t t = (time_t)when;
    struct tm day;
    if (when == 0 || !localtime_r(&t, &day) || !strftime(out, 24, "%Y-%m-%d", &day)) snprintf(out, 24, "-");
}

static int widest(const HubCachedList *list) {
    int width = 4;
    for (int i = 0; i < list->n; i++) width = int_max(width, (int)strlen(list->at[i].name));
    return width;
}

static void print_table(const HubCachedList *list, Buf *out, Status *unread) {
    int width = widest(list);
    buf_printf(out, "%-*s  %9s  %-10s  %-11s  %s\n", width, "NAME", "SIZE", "FAMILY", "TYPE", "LAST USE");
    for (int i = 0; i < list->n; i++) {
        const HubCached *c = &list->at[i];
        char size[24], family[32], type[32], date[24];
        describe(c, family, type, unread);
        print_date(c->used, date);
        buf_printf(out, "%-*s  %9s  %-10s  %-11s  %s\n", width, c->name, units_bytes((double)c->bytes, size), family,
                   type, date);
    }
}

static void print_names(const HubCachedList *list, Buf *out) {
    for (int i = 0; i < list->n; i++)
        if (list->at[i].path) buf_printf(out, "%s\n", list->at[i].name);
}

static void print_json(const HubCachedList *list, Buf *out, Status *unread) {
    json_t *models = json_array();
    for (int i = 0; i < list->n; i++) {
        const HubCached *c = &list->at[i];
        char family[32], type[32];
        json_t *one = json_object();
        describe(c, family, type, unread);
        jsonio_put(one, "name", jsonio_text(str_of(c->name)));
        jsonio_put(one, "repo", jsonio_text(str_of(c->repo)));
        jsonio_put(one, "path", c->path ? jsonio_text(str_of(c->path)) : json_null());
        jsonio_put(one, "bytes", json_integer((json_int_t)c->bytes));
        jsonio_put(one, "family", jsonio_text(str_of(family)));
        jsonio_put(one, "type", jsonio_text(str_of(type)));
        jsonio_put(one, "used", json_integer(c->used));
        jsonio_append(models, one);
    }
    jsonio_line(models, out);
}

static Status list_models(const Options *o, const char *root) {
    HubCachedList list = {0};
    Buf out = {0};
    Status st = hub_cached_list(root, &list);
    if (!st.code && !list.n) note_print(o->answer.quiet, "%s has no models; quill pull user/repo fetches one", root);
    if (!st.code && o->hub.names) print_names(&list, &out);
    else if (!st.code && o->answer.json) print_json(&list, &out, &list.unread);
    else if (!st.code && list.n) print_table(&list, &out, &list.unread);
    if (!st.code && list.unread.code) note_print(o->answer.quiet, "%s", list.unread.message);
    hub_cached_free(&list);
    if (!st.code) return output_buf(&out);
    buf_free(&out);
    return st;
}

// ---- rm -------------------------------------------------------------------------------------------------------------

// What to remove: one model, or a whole repository.
typedef struct {
    const char *repo;
    const HubCached *one; // NULL: the repository with everything in it
    uint64_t bytes;
} Removal;

typedef int Compare(const char *a, const char *b);

// Finds the entry of the list, or else the repository, whose name is equal. Returns the number of repositories with
// such names.
static int match(const HubCachedList *list, const char *asked, Compare *compare, Removal *out) {
    int n = 0;
    const char *last = "";
    for (int i = 0; i < list->n; i++) {
        const HubCached *c = &list->at[i];
        bool one = c->path && compare(c->name, asked) == 0 && strcmp(c->name, c->repo) != 0;
        if (!one && compare(c->repo, asked) != 0) continue;
        n += strcmp(c->repo, last) != 0;
        last = c->repo;
        *out = (Removal){.repo = c->repo, .one = one ? c : NULL, .bytes = c->bytes};
    }
    return n;
}

// Finds what a name means: a name of the list is that entry; a repository's name is all of its entries.
static Status find_removal(const HubCachedList *list, const char *root, const char *asked, Removal *out) {
    Nearest nearest = {.word = asked};
    HubName name;
    Buf plain = {0}; // without an address before it
    bool read = hub_name_read(asked, true, &name);
    if (read) buf_printf(&plain, "%s%s%s", name.repo, *name.tag ? ":" : "", name.tag);
    int n = read ? match(list, plain.data, strcmp, out) : 0;
    if (read && n == 0) n = match(list, plain.data, strcasecmp, out);
    buf_free(&plain);
    if (n > 1)
        return status_error(QUILL_MODEL,
                            "%.200s: several repositories have this name in other cases; give it as quill "
                            "models prints it",
                            asked);
    if (n == 1 && out->one) return OK;
    if (n == 1) {
        Buf folder = {0};
        hub_cache_folder(root, out->repo, &folder);
        Status st = hub_cache_bytes(folder.data, &out->bytes);
        buf_free(&folder);
        return st;
    }
    for (int i = 0; i < list->n; i++) nearest_try(&nearest, list->at[i].name);
    const char *meant = nearest_found(&nearest);
    return status_error(QUILL_MODEL, "%.200s: a name of quill models expected, none like it found%s%s%s", asked,
                        meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
}

// Asks on the terminal unless -y is given.
static bool is_agreed(const Options *o, const Removal *r) {
    char size[24], *line = NULL;
    size_t room = 0;
    if (o->hub.yes) return true;
    fprintf(stderr, "quill: remove %s (%s)? [y/N] ", r->one ? r->one->name : r->repo,
            units_bytes((double)r->bytes, size));
    bool yes = getline(&line, &room, stdin) > 0 && str_is_yes(str_of(line));
    free(line);
    return yes;
}

static Status remove_model(const Options *o, const char *root, const char *asked) {
    HubCachedList list = {0};
    Removal r = {0};
    Buf folder = {0};
    char size[24];
    Status st = hub_cached_list(root, &list);
    if (!st.code) st = find_removal(&list, root, asked, &r);
    bool agreed = !st.code && is_agreed(o, &r);
    if (agreed && hub_cache_is_busy(root, r.repo))
        st = status_error(QUILL_IO, "%s: another process is fetching it; nothing was removed", r.repo);
    if (agreed && !st.code) {
        uint64_t left = 0;
        hub_cache_folder(root, r.repo, &folder);
        if (r.one) st = hub_cache_remove_files(folder.data, &r.one->paths);
        if (r.one && !st.code) st = hub_cache_bytes(folder.data, &left);
        if (left == 0 && !st.code) st = hub_cache_remove_repo(root, r.repo);
    }
    if (!st.code)
        note_print(o->answer.quiet, "%s: %s%s", r.one ? r.one->name : r.repo,
                   agreed ? "removed, " : "nothing was removed",
                   agreed ? units_bytes((double)r.bytes, size) : "; -y removes without a question");
    hub_cached_free(&list);
    buf_free(&folder);
    return st;
}

// ---- the mode -------------------------------------------------------------------------------------------------------

Status models_run(const Options *o) {
    Buf root = {0};
    const char *verb = o->hub.n_words ? o->hub.words[0] : "list";
    bool list = strcmp(verb, "list") == 0, rm = strcmp(verb, "rm") == 0;
    Status st = OK;
    if (!list && !rm) st = status_error(QUILL_USAGE, "quill models: list, rm or nothing expected, found %.100s", verb);
    else if (list && o->hub.n_words > 1)
        st = status_error(QUILL_USAGE, "quill models list: nothing behind it expected, found %.100s", o->hub.words[1]);
    else if (rm && o->hub.n_words < 2)
        st = status_error(QUILL_USAGE, "quill models rm: a name of quill models expected, found nothing");
    else if (rm && !o->hub.yes && !(isatty(STDIN_FILENO) && isatty(STDERR_FILENO)))
        st = status_error(QUILL_USAGE, "quill models rm: -y expected where stdin and stderr are not a terminal to ask "
                                       "on; nothing was removed");
    if (!st.code) st = hub_places_cache(&root);
    if (!st.code && list) st = list_models(o, root.data);
    for (int i = 1; rm && i < o->hub.n_words && !st.code; i++) st = remove_model(o, root.data, o->hub.words[i]);
    buf_free(&root);
    return st;
}
