// hub/places.h: where the Hugging Face cache and its token lie, and whether one may go online: the environment as the
// huggingface_hub package reads it.
//
//   HF_HOME        $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface
//   HF_HUB_CACHE   $HF_HOME/hub
//   HF_TOKEN       else the file HF_TOKEN_PATH, which is $HF_HOME/token
//   HF_HUB_OFFLINE 1, on, yes or true: no request
#ifndef QUILL_HUB_PLACES_H
#define QUILL_HUB_PLACES_H

#include "base/base.h"

Status hub_places_cache(Buf *out);   // appended. QUILL_USAGE: neither it nor a home directory is known
Status hub_places_token(char **out); // NULL: none; the caller frees it. QUILL_USAGE: one that no header may carry
bool hub_places_is_offline(void);

#endif
