// hf/hf.h: a Hugging Face model directory, shown as the same view that a GGUF file gives.
//
//   config.json              shape, RoPE, windows, scales; hf/families.c says for which families
//   model.safetensors        weights, or model.safetensors.index.json and the files that it names
//   tokenizer.json           the vocabulary; without it the view has none
//   tokenizer_config.json, chat_template.jinja, generation_config.json: where they are there
//
// Metadata has GGUF's keys and tensors have GGUF's names, so that whatever reads a GGUF file reads a directory. Weights
// stay in the mapped files. Computed are: divisors of RoPE frequencies, norms that a family stores without their one,
// and FP8 matrices, which become BF16. Metadata that GGUF has no key for:
//
//   quill.rope.halves                rows of Q and K are ordered for the pairs (i, i + n_rot/2)
//   quill.tokenizer.*                what the tokenizer does: see tokenizer.h
//
// Formats: the documentation of the transformers, safetensors and tokenizers libraries.
#ifndef QUILL_HF_H
#define QUILL_HF_H

#include "files/gguf.h"

bool hf_is_directory(const char *path); // any directory
// QUILL_MODEL: what is missing, broken or not supported, with the file's name. The caller closes the view.
Status hf_open(const char *dir, Gguf **out);

// For the fuzzer and tests: a config.json, or a tokenizer.json with its tokenizer_config.json (NULL: none), into a
// view; `name` stands in messages.
Status hf_config_memory(const char *name, Str config, Gguf *g);
Status hf_tokenizer_memory(const char *name, Str tokenizer, const char *tokenizer_config, Gguf *g);

#endif
