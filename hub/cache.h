// hub/cache.h: reads and writes the directories of the cache that the huggingface_hub package and other tools share.
//
//   ROOT/models--user--repo/blobs/ETAG                     the bytes; ETAG.incomplete during the transfer
//   ROOT/models--user--repo/snapshots/COMMIT/dir/FILE      -> ../../../blobs/ETAG
//   ROOT/models--user--repo/refs/main                      COMMIT
//   ROOT/.locks/models--user--repo/ETAG.lock               flock, while a blob is written
//
// A snapshot gets a file only when its blob is complete. Source: "Understand caching" of the huggingface_hub
// documentation.
#ifndef QUILL_HUB_CACHE_H
#define QUILL_HUB_CACHE_H

#include "hub/files.h"

void hub_cache_folder(const char *root, const char *repo, Buf *out); // ROOT/models--user--repo, appended

// ---- reading: QUILL_IO if something exists and cannot be read -------------------------------------------------------

typedef struct {
    char **at; // (n)
    int n;
} HubNames;

void hub_names_add(HubNames *names, const char *name);
void hub_names_free(HubNames *names);
// The repositories of models in the cache, sorted; none if there is no cache.
Status hub_cache_repos(const char *root, HubNames *out);
// The commits of a repository's snapshots: that of refs/main first, then the newest first.
Status hub_cache_snapshots(const char *folder, HubNames *out);
// The files of a snapshot, without dangling links.
Status hub_cache_files(const char *folder, const char *commit, HubFiles *out);
Status hub_cache_incomplete(const char *folder, uint64_t *out); // bytes of incomplete blobs
Status hub_cache_bytes(const char *folder, uint64_t *out);      // of all files

// ---- writing --------------------------------------------------------------------------------------------------------

Status hub_cache_make_dirs(const char *root, const char *repo); // QUILL_IO; also if one cannot be written
// Makes snapshots/COMMIT/PATH a link to blobs/BLOB; on a file system without links the blob itself is moved there.
Status hub_cache_link(const char *folder, const char *commit, const char *path, const char *blob);
Status hub_cache_set_main(const char *folder, const char *commit); // refs/main
// Waits for the lock of a blob, with a note, while another process writes it. *fd: close it to release the lock; -1:
// the file system has no locks. QUILL_IO; a signal.
Status hub_cache_lock(const char *root, const char *repo, const char *blob, bool quiet, int *fd);
// Whether any process holds one of the repository's locks.
bool hub_cache_is_busy(const char *root, const char *repo);
// Removes a repository with its locks.
Status hub_cache_remove_repo(const char *root, const char *repo);
// Removes these files from all snapshots, and blobs that no link points to any more. QUILL_IO also for a file behind a
// link to a directory.
Status hub_cache_remove_files(const char *folder, const HubNames *paths);

#endif
