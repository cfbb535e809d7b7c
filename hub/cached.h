// hub/cached.h: the complete models in the cache: a list of all, or the one with a given name.
#ifndef QUILL_HUB_CACHED_H
#define QUILL_HUB_CACHED_H

#include "hub/cache.h"

typedef struct {
    char *repo;
    char *name; // its name for -m and `models rm`: "user/repo:Q4_K_M"
    char *path; // the path to open: the GGUF file or its first part, or the snapshot's directory; NULL: not a model,
                // and `paths` is empty
    char type[HUB_TYPE_MOST + 1];
    bool directory;
    bool incomplete; // the rest of an interrupted transfer and not a model
    HubNames paths;  // its files, relative to the snapshot
    uint64_t bytes;
    int64_t used; // seconds since 1970
} HubCached;

typedef struct {
    HubCached *at;
    int n;
    Status unread; // the first index or directory that could not be read: its models are not in the list
} HubCachedList;

// Sorted by repository, then by file. A model of several snapshots is listed once: that of refs/main, else the newest.
Status hub_cached_list(const char *root, HubCachedList *out); // QUILL_IO
void hub_cached_free(HubCachedList *list);
// Finds the model with this name, whose repository may be given without its user. Appends its path and its full name.
// *there: the repository is in the cache. QUILL_MODEL: no model has this name, or several do; QUILL_IO.
Status hub_cached_find(const char *root, const HubName *name, Buf *path, Buf *whole, bool *there);

#endif
