// engine_file.h: the model's file as a configuration names it: mapped, read into memory, or the model in the binary.
#ifndef QUILL_ENGINE_FILE_H
#define QUILL_ENGINE_FILE_H

#include "engine_config.h"
#include "files/gguf.h"
#include "tokenizer.h"

// Opens config->model. The modes that look without computing need nothing else. QUILL_MODEL, QUILL_IO; QUILL_MEMORY
// (--no-mmap) with the file's size; QUILL_USAGE: --no-mmap or --tokenizer does not go with such a file.
Status engine_file_open(const EngineConfig *config, Gguf **out);
// --mlock: keeps the tensors' pages in memory. The system may lock a part and refuse the rest: a note, where it is
// verbose.
void engine_file_lock(const EngineConfig *config, const Gguf *g);
// The vocabulary of the file. QUILL_MODEL: a llama2.c model or a directory without one; the message says where it is
// looked for.
Status engine_file_tokenizer(const Gguf *g, Tokenizer **out);

#endif
