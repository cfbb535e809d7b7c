// tests/rig/hf_directory.h: writes a GGUF model as the Hugging Face directory that its converter would have read. The
// names and the order of rows are written down here a second time, from transformers, so that a wrong one in hf/ is
// noticed.
#ifndef QUILL_HF_DIRECTORY_H
#define QUILL_HF_DIRECTORY_H

#include "files/gguf.h"

typedef struct {
    int n_shards;        // 0: model.safetensors; otherwise the number of files, with an index
    bool v5;             // config.json in transformers 5's style
    bool no_tokenizer;   // no tokenizer.json
    bool merges_as_text; // merges are "a b" in place of ["a", "b"]
    const char *head;    // of a tied model: NULL: without lm_head; "copy": with lm_head; "alone": without embed_tokens
    const char *config;  // a JSON object whose members replace those of config.json; a null member removes one
    size_t shift;        // number of blanks at the end of the header, which move the data
    // matrices except embeddings are written in FP8, with scales for blocks of this many rows and columns
    int fp8;
} HfDirectory;

// Makes the directory, or replaces its files. Ends the test program if the model cannot be written.
void hf_directory_write(const Gguf *g, const char *dir, const HfDirectory *how);
bool hf_directory_permutes(const char *arch); // whether the rows of Q and K have another order in directories
void hf_directory_text(const char *dir, const char *file, const char *text); // writes one file of it

#endif
