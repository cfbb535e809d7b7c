// tests/rig/hf_experts.h: the keys of config.json that only families with mixtures of experts have, for
// tests/rig/hf_directory.c.
#ifndef QUILL_TESTS_HF_EXPERTS_H
#define QUILL_TESTS_HF_EXPERTS_H

#include <jansson.h>

#include "files/gguf.h"

// Adds these keys, and changes those of the shape, which are written already. Other families: nothing.
void hf_experts_config(const Gguf *g, const char *arch, json_t *config);

#endif
