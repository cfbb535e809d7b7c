// hf/tokenizer.h: reads tokenizer.json into GGUF's vocabulary.
#ifndef QUILL_HF_TOKENIZER_H
#define QUILL_HF_TOKENIZER_H

#include "files/gguf.h"

// Sets the tokens, their types and merges, and the settings of hf/steps.h; tokenizer.h has the keys that GGUF lacks.
// text: the file, which is not needed afterwards; name: its path, for messages. QUILL_MODEL: damaged, or a kind of
// vocabulary that is not supported.
Status hf_read_tokenizer(const char *name, Str text, Gguf *g);

#endif
