// hub/name.h: names of models: "user/repo", "user/repo:TYPE", and the type that a GGUF file's name ends with.
#ifndef QUILL_HUB_NAME_H
#define QUILL_HUB_NAME_H

#include "base/base.h"

enum { HUB_REPO_MOST = 96, HUB_TAG_MOST = 255, HUB_TYPE_MOST = 31 };

typedef struct {
    char repo[HUB_REPO_MOST + 1]; // "user/repo"; for a model in the cache also "repo"
    char tag[HUB_TAG_MOST + 1];   // "Q4_K_M", "safetensors", a file's path or name; "": none
} HubName;

// Reads "user/repo[:TAG]", or an address: hf.co/user/repo, https://huggingface.co/user/repo/blob/main/FILE.
// A name is safe in a path and in a URL: letters, digits, . _ -, neither ".." nor "--". QUILL_USAGE.
Status hub_name_parse(const char *text, HubName *out);
// The same without a message. `bare`: "repo" without a user is accepted too.
bool hub_name_read(const char *text, bool bare, HubName *out);
// The type at the end of a GGUF file's name, upper case: "x/Qwen3-8B-UD-q4_k_xl-00001-of-00002.gguf" gives
// "UD-Q4_K_XL". "": none.
void hub_name_type(const char *path, char type[HUB_TYPE_MOST + 1]);
// Whether a path of a repository may become a path below a directory: relative, no "..", no empty part, no control
// characters, at most 1000 bytes.
bool hub_name_is_safe_path(const char *path);

#endif
