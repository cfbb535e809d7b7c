// tests/rig/hf_directory_parts.h: functions shared by the files that write directories (tests/rig/hf_directory.h).
#ifndef QUILL_HF_DIRECTORY_PARTS_H
#define QUILL_HF_DIRECTORY_PARTS_H

#include <jansson.h>

#include "files/gguf.h"

_Noreturn void hf_directory_impossible(const char *what, const char *name);
void hf_directory_json(const char *dir, const char *file, json_t *value); // frees the value
void hf_directory_tokenizer(const Gguf *g, const char *dir, bool merges_as_text);

#endif
