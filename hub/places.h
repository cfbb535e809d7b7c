// hub/places.h: the paths of the Hugging Face cache and of its token, and whether requests are allowed: environment
// variables, with the same meaning as in the huggingface_hub package.
//
//   HF_HOME        $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface
//   HF_HUB_CACHE   $HF_HOME/hub
//   HF_TOKEN       else the file HF_TOKEN_PATH, which is $HF_HOME/token
//   HF_HUB_OFFLINE 1, on, yes or true: no requests
#ifndef QUILL_HUB_PLACES_H
#define QUILL_HUB_PLACES_H

#include "base/base.h"

Status hub_places_cache(Buf *out);   // appends the path. QUILL_USAGE: no variable and no home directory is set
Status hub_places_token(char **out); // NULL: none; the caller frees it. QUILL_USAGE: characters not allowed in a header
const char *hub_places_offline(void); // the environment variable that forbids requests; NULL: none

#endif
