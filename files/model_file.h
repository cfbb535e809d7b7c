// files/model_file.h: opens a model of any format that quill reads: a file, whose format is found from its first bytes,
// or a Hugging Face directory.
#ifndef QUILL_MODEL_FILE_H
#define QUILL_MODEL_FILE_H

#include "files/gguf.h"

// A GGUF file (split or not), a Hugging Face directory (hf/hf.h), or a .bin file of llama2.c with the vocabulary of
// `tokenizer_path` (files/llama2c.h). The caller closes the view. QUILL_MODEL: unreadable, or another format, which the
// message names if it is known. QUILL_USAGE: tokenizer_path is given with a GGUF file or a directory, which have their
// own vocabulary.
Status model_file_open(const char *path, const char *tokenizer_path, Gguf **out);

#endif
