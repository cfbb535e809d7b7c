// hub/cached.h: the models that are whole in the cache: all of them, or the one that a name means.
#ifndef QUILL_HUB_CACHED_H
#define QUILL_HUB_CACHED_H

#include "hub/cache.h"

typedef struct {
    char *repo;
    char *name; // what -m and `models rm` take: "user/repo:Q4_K_M"
    char *path; // what a model's file is opened with: its first part, or the snapshot's directory
    char type[HUB_TYPE_MOST + 1];
    bool directory;
    bool incomplete; // not a model: what is left of a transfer that was cut; `path` is NULL then, `paths` is empty
    HubNames paths;  // of its files, below the snapshot
    uint64_t bytes;
    int64_t used; // seconds since 1970
} HubCached;

typedef struct {
    HubCached *at;
    int n;
} HubCachedList;

// By repository, then by file. Of a model that several snapshots have, that of refs/main, else the newest.
Status hub_cached_list(const char *root, HubCachedList *out); // QUILL_IO
void hub_cached_free(HubCachedList *list);
// The model that a name means; its repository may stand there without its user. Appends its path and its whole name.
// QUILL_MODEL: none, or several repositories or files; *there: the repository is in the cache. QUILL_IO.
Status hub_cached_find(const char *root, const HubName *name, Buf *path, Buf *whole, bool *there);

#endif
