// hf/parts.h: shared by the files of hf/: a directory that is being converted to a Gguf view.
#ifndef QUILL_HF_PARTS_H
#define QUILL_HF_PARTS_H

#include <jansson.h>

#include "files/gguf.h"
#include "hf/fp8.h"

// How a family names its tensors, where families differ (hf/tensors.c).
typedef enum {
    HF_NAMES_LLAMA = 1,
    HF_NAMES_GEMMA = 2,
    HF_NAMES_OLMO = 4,
    HF_NAMES_GLM = 8,
    HF_NAMES_OSS = 16,
    HF_NAMES_DEEPSEEK = 32,
    HF_NAMES_GEMMA4 = 64,
    HF_NAMES_NEXT = 128, // Qwen3-Next and later: gated DeltaNet
    HF_NAMES_LFM = 256,
} HfNames;

// The layers with a window, if config.json has no layer_types.
typedef enum {
    HF_WINDOW_NONE,
    HF_WINDOW_ALL,     // all layers, if sliding_window is a number
    HF_WINDOW_PATTERN, // all layers but each HfFamily.full_every-th
    HF_WINDOW_SWITCH,  // the layers from max_window_layers on, if use_sliding_window is true
} HfWindow;

// A row of hf/families.c.
typedef struct {
    const char *model_type; // in config.json
    const char *arch;       // general.architecture of the same models in GGUF
    const char *act;        // the required value of hidden_act
    HfNames names;
    HfWindow window;
    int full_every;
    bool halves;           // RoPE rotates halves here, and pairs in GGUF files of this architecture
    bool norm_plus_one;    // norms are stored minus one
    const char *recurrent; // name of recurrent layers in layer_types; NULL: the family has none
    const char *defaults;  // JSON: defaults of the configuration's class for keys that config.json may leave out
} HfFamily;

const HfFamily *hf_family(const char *model_type); // NULL: none
const char *hf_family_list(void);                  // "llama, mistral, ..."; static

typedef struct {
    const char *dir;
    Gguf *g;
    json_t *file;   // config.json
    json_t *config; // the part about the text model, with defaults filled in
    const HfFamily *family;
    Fp8Block fp8; // the blocks of matrices in FP8
} HfModel;

// How jansson reads the small files: their numbers may be larger than any integer (model_max_length often is).
#define HF_JSON JSON_DECODE_INT_AS_REAL

// hf/config.c. Reads m->file: m->config, m->family, and the keys of the view.
Status hf_read_config(HfModel *m);
bool hf_config_int(const json_t *object, const char *key, int64_t *out); // false: absent, null or not a whole number
int hf_config_id(const json_t *v);                                       // the id of a token; -1: not a number
bool hf_config_number(const json_t *object, const char *key, double *out);
// the message also has the value that was found
Status hf_config_wrong(const HfModel *m, const char *name, const char *expected);
// writes a key such as "llama.block_count" to `key`
const char *hf_key(const HfModel *m, const char *suffix, char key[96]);
void hf_set_ints(const HfModel *m, const char *suffix, const int32_t *all, int64_t n); // (n)
void hf_set_flags(const HfModel *m, const char *suffix, const uint8_t *all, int64_t n);
// The key of the number of experts, or NULL if there is none. *n 0: none, or no whole number.
const char *hf_config_experts(const HfModel *m, int64_t *n);
// hf/rope.c: the keys and tensors of RoPE.
Status hf_read_rope(HfModel *m, int head_dim);
// hf/tensors.c: the tensors of the directory, under GGUF's names.
Status hf_read_tensors(HfModel *m);

// hf/tokenizer.c: reads tokenizer.json into the view.
Status hf_read_tokenizer(const char *name, Str text, Gguf *g);
// hf/steps.c: reads the normalizer, pre_tokenizer and post_processor of tokenizer.json.
Status hf_read_steps(const char *name, const json_t *parts, bool byte_fallback, Gguf *g, bool *byte_level);
// hf/regex.c: translates a regular expression of the tokenizers library (Oniguruma's syntax) for PCRE2. QUILL_MODEL:
// PCRE2 would understand a part of it differently.
Status hf_regex(const char *name, const char *pattern, Buf *out);
// hf/roles.c: reads special tokens, the tokens that end an answer, and chat templates from tokenizer_config.json,
// generation_config.json and config.json (NULL: the file does not exist).
Status hf_read_roles(const HfModel *m, const json_t *tokenizer_config, const json_t *generation);

#endif
