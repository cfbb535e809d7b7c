// tests/rig/tiny_model.h: small random models for tests: any shape, any weight type, a vocabulary that can encode every
// byte.
//
// Gguf *g = tiny_model(&(TinyModel){.arch = "qwen2", .type = TYPE_Q4_K, .dim = 256, .head_dim = 32, .ffn = 512});
// tiny_model_file(&(TinyModel){.chat_template = "chatml"}, "/tmp/chat.gguf");
//
// The same fields and seed give the same bytes on every machine. Blocks are valid and scaled so that activations stay
// near 1: weights have standard deviation 1 / sqrt(n_in), norms are near 1. An impossible shape (rows that are not
// whole blocks) ends the test program with one line.
#ifndef QUILL_TINY_MODEL_H
#define QUILL_TINY_MODEL_H

#include "files/gguf.h"
#include "formats/types.h"

typedef struct {
    // "llama" (NULL), "qwen2" (has Q, K, V biases), "qwen3" (has Q and K norms), "gemma2" and "gemma3" (have windows,
    // and norms after the mixer and the feed-forward), "phi3" (fused matrices, LongRoPE on half a head), "granite"
    // (four scalars), "smollm3", "mistral3" (YaRN, a temperature), "olmo2" (norms of whole Q and K, none in front),
    // "glm4" (gate and up fused, biases, RoPE on half a head), "qwen2moe" (experts and a shared one), "qwen3moe"
    // (experts), "gemma4" (two sizes of heads, shared K and V, per-layer embeddings; with n_experts its mixture kind,
    // whose V is K), "deepseek2" (compressed K and V, one dense layer, then experts),
    // "mistral4" (the same with a temperature), "gpt-oss" (experts, sinks,
    // windows, YaRN, biases everywhere);
    // "muse-glimmer" (windows, RoPE in layers with a window alone, norms as gemma3, also of the embedding, attention
    // with a gate); "qwen3next", "qwen35" and "qwen35moe" (gated DeltaNet in all layers but each third, gated
    // attention, RoPE on half a head), "lfm2" (short convolutions in all layers but each third);
    // more mixtures of experts: "olmoe", "granitemoe" (with a shared one), and with a dense layer before the others and
    // a bias for the choice "ernie4_5-moe", "glm4moe", "bailingmoe2", "lfm2moe"; "minimax-m2" has the bias in all
    // layers;
    // "qwen2vl", "qwen3vl" and "qwen3vlmoe" (as the families without vl); "seed_oss" (biases), "ernie4_5", "exaone4" (norms behind
    // alone; with a window each fourth layer has none and no RoPE), "hunyuan-dense" (norms of Q and K after RoPE),
    // "arcee" (relu squared, no gate), "gemma", "command-r" (LayerNorm, attention and feed-forward in parallel),
    // "cohere2" (the same with windows)
    // "granitehybrid" (Mamba-2 in all layers but each third, no RoPE unless n_rot is set; with n_experts it has a
    // shared expert too), "nemotron_h" and "nemotron_h_moe" (a layer is Mamba-2, a feed-forward without a gate or
    // experts of that kind, or attention)
    const char *arch;
    int dim;        // 0: 64
    int n_layers;   // 0: 2; gemma2 and recurrent families 3, gemma3 7, smollm3 4, muse-glimmer 5, nemotron_h 6, to have
                    // layers of both kinds
    int n_heads;    // 0: 4
    int n_kv_heads; // 0: half of n_heads
    int head_dim;   // 0: dim / n_heads
    int ffn;        // 0: 2 x dim
    int n_experts;  // 0: 8 for families with experts, none for the others; `ffn` is the width of an expert
    int n_used;     // experts that a row uses; 0: 3
    int ffn_shared; // 0: ffn for families with a shared expert, none for the others
    // gemma4: number of last layers that share K and V of earlier ones; 0: half of the layers, with experts none
    int n_shared;
    int per;     // gemma4: per-layer values of a token; 0: 32, with experts none
    int kv_rank; // deepseek2: elements of the compressed vector of K and V; 0: 2 x head_dim
    int q_rank;  // deepseek2: elements of the compressed vector of Q; 0: Q is computed from x
    int v_dim;   // deepseek2: elements of a head of V; 0: head_dim
    // deepseek2: groups of experts, of which a row uses half, with sigmoids; 0: no groups, with a softmax. glm4moe and
    // bailingmoe2: the same groups, always with sigmoids
    int n_groups;
    bool softmax;    // with groups: a softmax too; glm4moe and bailingmoe2: the weights of experts are not normalised
    int expert_type; // type of the experts' matrices; 0: `type`
    int key_heads;   // key heads of gated DeltaNet, groups of Mamba-2; 0: 2
    int value_heads; // value heads of gated DeltaNet, heads of Mamba-2 (2 dim elements in all); 0: twice key_heads
    int state;       // elements of a head of gated DeltaNet, of B and C of Mamba-2; 0: 16
    int taps;        // taps of convolutions; 0: 4, "lfm2" 3
    int vocab;       // 0: 320
    int ctx;         // 0: 256
    int type;        // TYPE_ of all matrices; norms, biases and rope_freqs are F32. TYPE_I8G: groups of 32
    bool tied;       // no output.weight
    bool mtp;        // families of gated DeltaNet: a prediction head behind the layers, its tensors after all others
    bool own_ends;   // with mtp: the head has an embedding, a norm and an output matrix of its own
    // The layers add nothing, in F32: the next token depends on the last one alone, and a prediction head knows it.
    bool bigrams;
    bool qkv_bias; // also without "qwen2"
    bool qk_norm;  // also without "qwen3"
    int window; // 0: 12 for the gemmas and others that have windows, none for the others. Which layers have it depends
                // on arch
    float score_cap;   // soft cap of attention's scores; 0: 1.5 for "gemma2", none for the others
    float logit_cap;   // soft cap of the logits; 0: 2 for "gemma2", none for the others
    float swa_base;    // rope.freq_base_swa; 0: 100 for "gemma3", none for the others
    float freq_base;   // 0: 10000, 100 for "mistral3"
    const char *rope;  // NULL: none, but "yarn" for "mistral3"; "linear", "yarn"
    float rope_factor; // 0: 4; with `rope`
    int ctx_orig;      // original context of YaRN and LongRoPE; 0: ctx / factor, 8 for "mistral3", 64 for "phi3"
    bool rope_freqs;   // adds rope_freqs.weight (n_rot / 2), from 1 to 8
    int n_rot;         // 0: head_dim, or about half of it for "phi3" and "glm4"
    bool halves;       // quill.rope.halves
    uint64_t seed;
    const char *tokens; // "llama" (NULL: for llama and the gemmas), "gpt2" (NULL: for the others), "none"
    const char *pre;    // with "gpt2": the pre-tokenizer; NULL: "llama-bpe" for those, "qwen2" for the others
    // NULL: none; "chatml"; otherwise the text of a template. Any template adds two tokens, <|im_start|> and
    // <|im_end|>; the second is then the EOS token.
    const char *chat_template;
} TinyModel;

enum { TINY_TYPES = N_TYPES };
extern const int tiny_types[TINY_TYPES]; // in the order of EACH_TYPE (formats/types.h)

Gguf *tiny_model(const TinyModel *shape); // gguf_close frees all of it
Status tiny_model_file(const TinyModel *shape, const char *path);
// a copy of the view without this tensor; the data still belongs to g
Gguf *tiny_without(const Gguf *g, const char *tensor);
GgufTensor *tiny_tensor(Gguf *g, const char *name); // a tensor that the test may change; it must exist

#endif
