// hub/choose.h: the models that the files of a repository form, and the one that a name selects.
//
//   HubFiles files = {0};
//   TRY(hub_files_read("user/repo", answer, &files));     // from the Hub's API; of a snapshot: hub/cache.h
//   HubModels models = {0};
//   hub_models_group(&files, &models);
//   TRY(hub_models_choose(&name, &models, &which));
//   hub_models_free(&models); hub_files_free(&files);
//
// A GGUF file is a model; the parts of a split file (-00001-of-00003.gguf) are one model. Projectors (mmproj),
// importance matrices and vocabularies are not models. A directory with config.json and safetensors is a model too.
#ifndef QUILL_HUB_CHOOSE_H
#define QUILL_HUB_CHOOSE_H

#include "hub/files.h"

typedef struct {
    char type[HUB_TYPE_MOST + 1]; // "Q4_K_M", "safetensors"; "": the file's name has no type
    bool directory;               // a model with config.json and safetensors
    const HubFile **files;        // (n) the required files; the first one is GGUF's first part or config.json
    int n;
    uint64_t bytes;       // of all files
    const HubFile *index; // model.safetensors.index.json, which names the others: hub_models_add_shards
} HubModel;

typedef struct {
    HubModel *at;
    int n;
} HubModels;

// The complete models. They point into f. If a directory has an index, `files` lacks the files that the index names,
// and `bytes` counts the files whose names look like parts of the weights.
void hub_models_group(const HubFiles *f, HubModels *out);
void hub_models_free(HubModels *m);
// Adds the files that the index names. QUILL_MODEL: not an index, or it names a file that is not in f.
Status hub_models_add_shards(const char *repo, const HubFiles *f, Str index, HubModel *model);
// Selects a model by a name, whose tag is a type or a file; without a tag Q4_K_M, else Q8_0, else the directory, else
// the only model. QUILL_MODEL: none fits, or several do; the message lists the models.
Status hub_models_choose(const HubName *name, const HubModels *models, int *out);
// "user/repo:Q4_K_M": the name that chooses model i among these.
void hub_models_name(const char *repo, const HubModels *models, int i, Buf *out);
void hub_models_list(const HubModels *models, int except, Buf *out); // "Q4_K_M, Q8_0", each once

#endif
