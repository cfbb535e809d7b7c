// files/model_file.h: opens a model file of any format that quill reads; the format is found from the file's first
// bytes.
#ifndef QUILL_MODEL_FILE_H
#define QUILL_MODEL_FILE_H

#include "files/gguf.h"

// A GGUF file (split or not), or a .bin file of llama2.c with the vocabulary of `tokenizer_path` (files/llama2c.h). The
// caller closes the view. QUILL_MODEL: unreadable, or another format, which the message names if it is known.
// QUILL_USAGE: tokenizer_path is given with a GGUF file, which has its own vocabulary.
Status model_file_open(const char *path, const char *tokenizer_path, Gguf **out);

#endif
