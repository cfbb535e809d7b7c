// hf/families.h: the families of Hugging Face directories, as data: names, windows, defaults. The families.c of the top
// level describes their arithmetic.
#ifndef QUILL_HF_FAMILIES_H
#define QUILL_HF_FAMILIES_H

#include <stdbool.h>

// How a family names its tensors, where families differ (hf/tensors.c). Bits, since a table there names several.
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
    HF_NAMES_GLM_MOE = 512,
    HF_NAMES_SEED = 1024,
    HF_NAMES_HUNYUAN = 2048,
    HF_NAMES_GRANITE_HYBRID = 4096,
    HF_NAMES_NEMOTRON = 8192,
    HF_NAMES_AFMOE = 16384,
    HF_NAMES_HY = 32768,
    HF_NAMES_EXAONE = 65536, // EXAONE 3, which has other names in config.json too
    HF_NAMES_LLAMA4 = 131072,
    HF_NAMES_APERTUS = 262144,
} HfNames;

// The layers with a window, if config.json has no layer_types.
typedef enum {
    HF_WINDOW_NONE,
    HF_WINDOW_ALL,       // all layers, if sliding_window is a number
    HF_WINDOW_PATTERN,   // all layers but each HfFamily.full_every-th
    HF_WINDOW_FROM_LAST, // the same, counted from the last layer, which has none
    HF_WINDOW_BEHIND,    // the layers from max_window_layers on
    // if use_sliding_window is true:
    HF_WINDOW_SWITCH,     // the layers from max_window_layers on
    HF_WINDOW_SWITCH_ALL, // all layers
    HF_WINDOW_ODD,        // every second layer, from the first one on, of those before max_window_layers
    HF_WINDOW_UNROTATED,  // the layers without RoPE: every fourth one
} HfWindow;

// A row of hf/families.c.
typedef struct {
    const char *model_type; // in config.json
    const char *arch;       // general.architecture of the same models in GGUF
    const char *act;        // the required value of hidden_act
    HfNames names;
    HfWindow window;
    int full_every;
    bool rope_in_windows;  // layers without a window have no RoPE, even if no layer has the window
    bool turns_experts;    // fused experts are transposed, unless their shape is that of the class
    bool sections;         // RoPE has positions of several parts (mrope_section), which are equal in a text
    bool halves;           // RoPE rotates halves here, and pairs in GGUF files of this architecture
    bool norm_plus_one;    // norms are stored minus one
    bool last_norm_plain;  // except the one behind the last layer
    int gating;            // expert_gating_func: 1 softmax, 2 sigmoid; 0: its GGUF files have no such key
    const char *recurrent; // name of recurrent layers in layer_types; NULL: the family has none
    // JSON: defaults of the configuration's class for keys that config.json may leave out. Keys that are null: the
    // class has no default.
    const char *defaults;
} HfFamily;

const HfFamily *hf_family(const char *model_type); // a row of hf/families.c; NULL: none
// The other row of a model_type that has two: that of its dense models. hf_family gives the last row.
const HfFamily *hf_family_dense(const HfFamily *f);
const char *hf_family_list(void); // "llama, mistral, ..."; static

#endif
