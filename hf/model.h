// hf/model.h: a directory that is being converted to a Gguf view; values of its config.json, and keys of the view.
#ifndef QUILL_HF_MODEL_H
#define QUILL_HF_MODEL_H

#include <jansson.h>

#include "files/gguf.h"
#include "hf/families.h"
#include "hf/fp8.h"

// hf/hf.c owns the strings, the view and the JSON values.
typedef struct {
    const char *dir; // its path, also for messages
    Gguf *g;         // the view
    json_t *file;    // config.json
    // set by hf_read_config
    json_t *config; // the part about the text model, with defaults filled in
    const HfFamily *family;
    Fp8Block fp8; // the blocks of matrices in FP8
    int head_dim; // elements of a head, on which RoPE's rotation is based; DeepSeek: those that RoPE rotates
} HfModel;

// ---- config.json ----------------------------------------------------------------------------------------------------

bool hf_config_number(const json_t *object, const char *key, double *out); // false: absent, or no number; *out stays
bool hf_config_int(const json_t *object, const char *key, int64_t *out);   // the same for whole numbers up to 1e15
int hf_config_id(const json_t *v);                                         // the id of a token; -1: v is none
// Whether the defaults of the family's class have the key. transformers does not apply keys that a class lacks.
bool hf_class_has(const HfModel *m, const char *key);
// QUILL_MODEL. The message names the directory, the key, what was expected, and the value of m->config that was found.
Status hf_config_wrong(const HfModel *m, const char *name, const char *expected);

// ---- keys of the view -----------------------------------------------------------------------------------------------

// Writes a key such as "llama.block_count" to `key`, and returns it.
const char *hf_key(const HfModel *m, const char *suffix, char key[96]);
// Set the key of this suffix to a list; the values are copied.
void hf_set_ints(const HfModel *m, const char *suffix, const int32_t *all, int64_t n);  // (n)
void hf_set_flags(const HfModel *m, const char *suffix, const uint8_t *all, int64_t n); // (n) 0 or 1

#endif
