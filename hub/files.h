// hub/files.h: the files of a repository: of a snapshot in the cache (hub/cache.h), or from the answer of the Hub's
// API.
#ifndef QUILL_HUB_FILES_H
#define QUILL_HUB_FILES_H

#include "hub/name.h"

typedef struct {
    char *path;    // below the repository or the snapshot; safe (hub_name_is_safe_path)
    uint64_t size; // bytes; 0: not known
    char *blob;    // the name of its blob; NULL: not known, or in the cache: it is not a link
    int64_t used;  // in the cache: time of the last access or change, seconds since 1970
} HubFile;

typedef struct {
    HubFile *at;
    int n, cap;
    char commit[65];              // the commit of these files
    char repo[HUB_REPO_MOST + 1]; // from the Hub: the repository's name in its own case; "": not known
} HubFiles;

HubFile *hub_files_add(HubFiles *f, const char *path, uint64_t size);
void hub_files_sort(HubFiles *f);                                   // by path, before they are searched
const HubFile *hub_files_find(const HubFiles *f, const char *path); // NULL: there is none
void hub_files_free(HubFiles *f);
// Parses the answer of /api/models/REPO/revision/main?blobs=true. Paths that are not safe are left out. QUILL_IO: it is
// another answer.
Status hub_files_read(const char *repo, Str json, HubFiles *out);

#endif
