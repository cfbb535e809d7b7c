// hub/cache.h: the cache that the huggingface_hub package and others share: its directories, read and written.
//
//   ROOT/models--user--repo/blobs/ETAG                     the bytes; ETAG.incomplete while they come
//   ROOT/models--user--repo/snapshots/COMMIT/dir/FILE      -> ../../../blobs/ETAG
//   ROOT/models--user--repo/refs/main                      COMMIT
//   ROOT/.locks/models--user--repo/ETAG.lock               flock, while a blob is written
//
// A snapshot's file is there when its blob is whole. Source: "Understand caching" of the huggingface_hub documentation.
#ifndef QUILL_HUB_CACHE_H
#define QUILL_HUB_CACHE_H

#include "hub/files.h"

void hub_cache_folder(const char *root, const char *repo, Buf *out); // ROOT/models--user--repo, appended

// ---- reading: QUILL_IO where something that is there cannot be read -------------------------------------------------

typedef struct {
    char **at; // (n)
    int n;
} HubNames;

void hub_names_add(HubNames *names, const char *name);
void hub_names_free(HubNames *names);
// The models' repositories in the cache, sorted. None where there is no cache.
Status hub_cache_repos(const char *root, HubNames *out);
// The commits of which a repository has a snapshot: that of refs/main first, then the newest.
Status hub_cache_snapshots(const char *folder, HubNames *out);
// The files of a snapshot that are there. A link that leads nowhere is none.
Status hub_cache_files(const char *folder, const char *commit, HubFiles *out);
Status hub_cache_incomplete(const char *folder, uint64_t *out); // bytes of what has not been fetched whole

// ---- writing --------------------------------------------------------------------------------------------------------

Status hub_cache_make_dirs(const char *root, const char *repo); // QUILL_IO
// Makes snapshots/COMMIT/PATH lead to blobs/BLOB; where the file system has no links, the blob itself goes there.
Status hub_cache_link(const char *folder, const char *commit, const char *path, const char *blob);
Status hub_cache_set_main(const char *folder, const char *commit); // refs/main
// Waits for the lock of a blob: until nobody else writes it. *fd: close it to let go; -1 where the file system has no
// locks. A note says what is waited for. QUILL_IO; a signal.
Status hub_cache_lock(const char *root, const char *repo, const char *blob, bool quiet, int *fd);
// Whether somebody holds one of the repository's locks.
bool hub_cache_is_busy(const char *root, const char *repo);
// Removes a repository with its locks.
Status hub_cache_remove_repo(const char *root, const char *repo);
// Removes these files of all snapshots, and blobs that nothing leads to any more.
Status hub_cache_remove_files(const char *folder, const HubNames *paths);

#endif
