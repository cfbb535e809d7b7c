// hf/hf.h: opens a Hugging Face model directory as a Gguf view.
//
//   config.json              shape, RoPE, windows, scales; hf/families.c says for which families
//   model.safetensors        weights, or model.safetensors.index.json and the files that it names
//   tokenizer.json           the vocabulary; without it the view has none
//   tokenizer_config.json, generation_config.json, chat_template.jinja: optional
//   additional_chat_templates/tool_use.jinja: optional, for conversations with tools
//
// Metadata has GGUF's keys and tensors have GGUF's names, so that the rest of quill reads a directory like a GGUF file.
// Weights stay in the mapped files, except those that hf/tensors.h lists, and divisors of RoPE frequencies, which are
// computed. Keys for metadata that GGUF does not have:
//
//   quill.rope.halves                rows of Q and K are ordered for the pairs (i, i + n_rot/2)
//   quill.tokenizer.*                see tokenizer.h
//
// Formats: the documentation of the transformers, safetensors and tokenizers libraries.
#ifndef QUILL_HF_H
#define QUILL_HF_H

#include "files/gguf.h"

bool hf_is_directory(const char *path); // any directory
// QUILL_MODEL: a file is missing, damaged or not supported; the message names it. The caller closes the view.
Status hf_open(const char *dir, Gguf **out);
// Reads config.json alone. QUILL_MODEL: hf_open would refuse the directory because of it.
Status hf_check_config(const char *dir);
// What config.json says, for a list of models: model_type, and the type of the weights, such as "BF16". What it does
// not say stays as it is. QUILL_MODEL: not readable.
Status hf_describe(const char *dir, char family[32], char type[32]);
// The names of all files that hf_open reads beside config.json and the weights, then NULL.
extern const char *const hf_small_files[];

// For the fuzzer and tests: reads a config.json, or a tokenizer.json with its tokenizer_config.json (NULL: none), into
// a view; messages call it `name`.
Status hf_config_memory(const char *name, Str config, Gguf *g);
Status hf_tokenizer_memory(const char *name, Str tokenizer, const char *tokenizer_config, Gguf *g);

#endif
