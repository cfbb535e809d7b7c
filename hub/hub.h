// hub/hub.h: finds a model by its name in the Hugging Face cache, or fetches it from the Hub into the cache.
//
//   Buf path = {0};
//   TRY(hub_get("Qwen/Qwen3-8B-GGUF:Q4_K_M", way, &path));   // -hf, quill pull
//   TRY(hub_find("Qwen3-8B-GGUF", &path, &found));           // -m NAME: makes no request
//
// model_file_open (files/model_file.h) opens the path. The other files of this directory: names (name.h), files of a
// repository (files.h), directories (places.h), the cache (cache.h, cached.h), libcurl (curl.h), requests (http.h),
// hashes (digest.h), transfers (fetch.h).
#ifndef QUILL_HUB_HUB_H
#define QUILL_HUB_HUB_H

#include "base/base.h"

typedef struct {
    bool offline; // makes no requests, whatever the environment says
    bool quiet;   // no notes, no progress
} HubWay;

// Gets the newest version of the model: fetches the files that the cache does not have, and notes the choice on stderr.
// If the Hub cannot be reached or HF_HUB_OFFLINE is set, the model comes from the cache. QUILL_USAGE: not a valid name;
// QUILL_MODEL: the Hub (or offline the cache) does not have the model, or refuses it; QUILL_IO: network or disk; a
// signal.
Status hub_get(const char *name, HubWay way, Buf *path);
// Finds a name in the cache. OK with *found false: the cache has no such name. QUILL_MODEL: it has several such models,
// or only incomplete ones, or `text` has the form of a name and no file's ending.
Status hub_find(const char *text, Buf *path, bool *found);

#endif
