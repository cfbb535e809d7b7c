// engine_config.h: what a user may choose about a loaded model (its file, its device, its KV cache), and what a mode
// requires of it.
#ifndef QUILL_ENGINE_CONFIG_H
#define QUILL_ENGINE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

enum { KV_TYPE_AUTO = -1 };

// Zero is a valid choice for every field except gpu_layers, type_k and type_v (-1: quill chooses) and kv_block (32).
typedef struct {
    // the file
    const char *model;     // a path; NULL or "builtin": the model in the binary (files/builtin.h)
    const char *tokenizer; // tokenizer.bin of a llama2.c model; NULL: the one beside it
    bool no_mmap, mlock, check_tensors;
    // computing
    int threads;        // 0: one for each physical core
    const char *device; // auto, cuda, cpu; NULL: auto
    const char *isa;    // the CPU's kernels, by name; NULL: auto
    int ubatch;         // the most rows of a step; 0: the device's default
    bool deterministic; // the order of sums does not depend on which rows share a step
    int gpu_layers;     // layers on the GPU, the last ones of the model; -1: as many as fit; INT_MAX: all
    bool cpu_moe;       // experts of all layers stay on the CPU
    int n_cpu_moe;      // those of the first so many layers do
    // the KV cache
    int ctx_size;       // tokens; 0: the model's context, if it fits
    int type_k, type_v; // TYPE_ of formats/types.h, or KV_TYPE_AUTO: f16, and f32 for a model in F32
    bool kv_rotate;     // keys and queries are multiplied by a Hadamard matrix
    bool paged;         // the cache consists of blocks of kv_block slots
    int kv_block;
    size_t kv_mem;      // the most bytes of the cache; 0: what the context needs
    const char *kv_dir; // directory that keeps blocks between runs; NULL: none
    size_t kv_dir_size; // the most bytes there
    const char *evict;  // which slots a full cache frees (kv/evict.h); NULL: a full context ends the answer
    // speculation
    const char *speculate; // ngram, a draft model (a path or builtin) or mtp, or both as ngram,FILE; NULL: none
    int draft_max;         // the most drafted tokens of a sequence in a step
    int draft_min;         // fewer drafted tokens are not verified
    float draft_p_min;     // drafting stops at a token whose probability is below this
    // messages on stderr
    bool verbose, quiet;
    bool dry_run; // plans the memory and reserves none
} EngineConfig;

// What a mode requires of an engine, independent of the user's choices.
typedef struct {
    bool need_tokenizer;
    int n_ctx;      // slots of a sequence; 0: ctx_size of the configuration, or the model's context
    int n_seqs;     // sequences at once; 0: 1
    int max_out;    // rows of logits in a step; 0: n_seqs
    int ctx_of_use; // upper limit if the context is the model's (neither n_ctx nor ctx_size is set); 0: no limit
    // The sequences share one pool of blocks, and share the blocks of a common beginning. The pool has --kv-mem bytes,
    // or half of the free memory, but at least one context. Otherwise each sequence has a context of its own.
    bool pooled;
    // K and V of every token must stay available: they will be saved, sent, or cut back to an earlier token. Otherwise
    // layers with a window free the slots that have left the window.
    bool whole;
} EngineNeeds;

#endif
