// files/model_file.h: opens a model in any format that quill reads: a file, whose format follows from its first bytes,
// or a Hugging Face directory.
#ifndef QUILL_MODEL_FILE_H
#define QUILL_MODEL_FILE_H

#include "files/gguf.h"

// A GGUF file (split or not), a Hugging Face directory (hf/hf.h), or a .bin file of llama2.c with the vocabulary of
// `tokenizer_path` (files/llama2c.h). The caller closes the view. QUILL_MODEL: the file cannot be read or has another
// format; the message names a known format. QUILL_USAGE: tokenizer_path is given for a GGUF file or a directory, which
// have their own vocabulary.
Status model_file_open(const char *path, const char *tokenizer_path, Gguf **out);
// The error for a vocabulary beside a model that has one: QUILL_USAGE. `what`: "GGUF".
Status model_file_own_vocabulary(const char *path, const char *what);

#endif
