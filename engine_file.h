// engine_file.h: opens the model file that a configuration names: mapped, read into memory, or the built-in model.
#ifndef QUILL_ENGINE_FILE_H
#define QUILL_ENGINE_FILE_H

#include "engine_config.h"
#include "files/gguf.h"
#include "tokenizer.h"

// Opens config->model. Modes that do not compute need nothing else. QUILL_MODEL, QUILL_IO; QUILL_MEMORY: --no-mmap and
// the file does not fit; QUILL_USAGE: --no-mmap or --tokenizer cannot be used with this file.
Status engine_file_open(const EngineConfig *config, Gguf **out);
// --mlock: locks the tensors' pages in memory. The system may lock only a part of them; with --verbose a note says so.
void engine_file_lock(const EngineConfig *config, const Gguf *g);
// Loads the vocabulary. QUILL_MODEL: a llama2.c model or a directory without a vocabulary; the message says where it
// was searched.
Status engine_file_tokenizer(const Gguf *g, Tokenizer **out);

#endif
