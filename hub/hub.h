// hub/hub.h: a model by its name: found in the Hugging Face cache, or fetched from the Hub into it.
//
//   Buf path = {0};
//   TRY(hub_get("Qwen/Qwen3-8B-GGUF:Q4_K_M", way, &path));   // -hf, quill pull
//   TRY(hub_find("Qwen3-8B-GGUF", &path, &found));           // -m NAME: never a request
//
// The path is one that model_file_open (files/model_file.h) takes. The other files of the room: names (name.h), files
// of a repository (files.h), where things lie (places.h), the cache (cache.h, cached.h), libcurl (curl.h), requests
// (http.h), hashes (digest.h), transfers (fetch.h).
#ifndef QUILL_HUB_HUB_H
#define QUILL_HUB_HUB_H

#include "base/base.h"

typedef struct {
    bool offline; // no request, whatever the environment says
    bool quiet;   // no notes, no progress
} HubWay;

// The newest version of the model: what the cache lacks of it is fetched, and the choice is said on stderr. Where the
// Hub cannot be reached, or HF_HUB_OFFLINE is set, what the cache has. QUILL_USAGE: no such name can be; QUILL_MODEL:
// the Hub, or offline the cache, has no such model, or does not give it; QUILL_IO: network or disk; a signal.
Status hub_get(const char *name, HubWay way, Buf *path);
// A name in the cache. *found false and OK: it has none like it. QUILL_MODEL: it has several, or none that is whole, or
// `text` can only be a name of the Hub's.
Status hub_find(const char *text, Buf *path, bool *found);

#endif
