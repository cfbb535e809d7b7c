// hf/steps.h: translates the normalizer, pre_tokenizer and post_processor of a tokenizer.json to settings of
// tokenizer.h.
#ifndef QUILL_HF_STEPS_H
#define QUILL_HF_STEPS_H

#include <jansson.h>

#include "files/gguf.h"

// parts: an object with these members of the file, as far as it has them; name: the file's path, for messages.
// byte_fallback: the vocabulary has a token for each byte. *byte_level: the vocabulary has bytes as characters, as that
// of GPT-2. QUILL_MODEL: a step that tokenizer.h does not support; the message names it.
Status hf_read_steps(const char *name, const json_t *parts, bool byte_fallback, Gguf *g, bool *byte_level);

#endif
