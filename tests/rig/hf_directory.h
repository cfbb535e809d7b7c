// tests/rig/hf_directory.h: a view of a GGUF model written as a Hugging Face directory: the directory
// that its converter would have read. The names and the order of rows are written down here a second time, from
// transformers, so that a wrong one in hf/ shows.
#ifndef QUILL_HF_DIRECTORY_H
#define QUILL_HF_DIRECTORY_H

#include "files/gguf.h"

typedef struct {
    int n_shards;        // 0: model.safetensors; otherwise so many files and an index
    bool v5;             // config.json in transformers 5's style
    bool no_tokenizer;   // no tokenizer.json
    bool merges_as_text; // "a b" in place of ["a", "b"]
    const char *head; // of a tied model: NULL: lm_head is not there; "copy": it is; "alone": embed_tokens is not there
    const char *config; // a JSON object whose members go over config.json's; a null one is removed
    size_t shift;       // bytes of blanks at the end of the header, which move the data
    int fp8;            // matrices but for embeddings as FP8 with scales of blocks of so many rows and columns
} HfDirectory;

// The directory is made, or its files are replaced. Ends the test program where the model cannot be written so.
void hf_directory_write(const Gguf *g, const char *dir, const HfDirectory *how);
void hf_directory_text(const char *dir, const char *file, const char *text); // one file of it

#endif
