// hub/files.h: the files of a repository, which of them make up a model, and which model a name means.
//
//   HubFiles files = {0};
//   TRY(hub_files_read("user/repo", answer, &files));     // what the Hub's API says; or hub/cache.h, of a snapshot
//   HubModels models = {0};
//   hub_models_group(&files, &models);
//   TRY(hub_models_choose(&name, &models, &which));
//   hub_models_free(&models); hub_files_free(&files);
//
// A GGUF file is a model, its parts (-00001-of-00003.gguf) together are one. Projectors (mmproj), importance matrices
// and vocabularies are none. config.json with safetensors beside it is a model too: the directory.
#ifndef QUILL_HUB_FILES_H
#define QUILL_HUB_FILES_H

#include "hub/name.h"

typedef struct {
    char *path;    // below the repository or the snapshot; safe (hub_name_is_safe_path)
    uint64_t size; // bytes; 0: not known
    char *blob;    // in the cache: the name below blobs/ that it points to; NULL: a file of its own
    int64_t used;  // in the cache: time of the last access or change, seconds since 1970
} HubFile;

typedef struct {
    HubFile *at;
    int n, cap;
    char commit[65]; // that they belong to
} HubFiles;

HubFile *hub_files_add(HubFiles *f, const char *path, uint64_t size);
void hub_files_sort(HubFiles *f);                                   // by path, before they are searched
const HubFile *hub_files_find(const HubFiles *f, const char *path); // NULL: there is none
void hub_files_free(HubFiles *f);
// The answer of /api/models/REPO/revision/main?blobs=true. Paths that are not safe are left out. QUILL_IO: no such
// answer.
Status hub_files_read(const char *repo, Str json, HubFiles *out);

typedef struct {
    char type[HUB_TYPE_MOST + 1]; // "Q4_K_M", "safetensors"; "": the name has none
    bool directory;               // config.json and what is beside it
    const HubFile **files;        // (n) what has to be there; the first names the model: GGUF's first part, config.json
    int n;
    uint64_t bytes;       // of all
    const HubFile *index; // model.safetensors.index.json, which names the others: hub_models_add_shards
} HubModel;

typedef struct {
    HubModel *at;
    int n;
} HubModels;

// The models that are whole. They point into f. Of a directory with an index, the files that the index names are
// missing in `files`; `bytes` has those whose names look like it.
void hub_models_group(const HubFiles *f, HubModels *out);
void hub_models_free(HubModels *m);
// Adds the files that the index names. QUILL_MODEL: not an index, or it names a file that f has not.
Status hub_models_add_shards(const char *repo, const HubFiles *f, Str index, HubModel *model);
// The model that a name means: its tag is a type or a file; without a tag Q4_K_M, Q8_0, the directory, or the only one
// that is there. QUILL_MODEL: none, or several; the message says what there is.
Status hub_models_choose(const HubName *name, const HubModels *models, int *out);
// "user/repo:Q4_K_M": the name that chooses model i among these.
void hub_models_name(const char *repo, const HubModels *models, int i, Buf *out);
void hub_models_list(const HubModels *models, int except, Buf *out); // "Q4_K_M, Q8_0", each once

#endif
