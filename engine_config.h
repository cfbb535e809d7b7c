// engine_config.h: what a user may choose about a model in use (its file, where and how it is computed, its KV cache),
// and what a mode needs of it.
#ifndef QUILL_ENGINE_CONFIG_H
#define QUILL_ENGINE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

enum { KV_TYPE_AUTO = -1 };

// Zero is a valid choice of every field but gpu_layers, type_k and type_v (-1: left to quill) and kv_block (32).
typedef struct {
    // the file
    const char *model;     // a path; NULL or "builtin": the model in the binary (files/builtin.h)
    const char *tokenizer; // tokenizer.bin of a llama2.c model; NULL: the one beside it
    bool no_mmap, mlock, check_tensors;
    // computing
    int threads;        // 0: one for each physical core
    const char *device; // auto, cuda, cpu; NULL: auto
    const char *isa;    // the CPU's kernels, by name; NULL: auto
    int ubatch;         // most rows of a step; 0: what suits the device
    bool deterministic; // one order of sums, whatever is computed together
    int gpu_layers;     // the last ones; -1: as many as fit; INT_MAX: all
    // the KV cache
    int ctx_size;       // tokens; 0: the model's context, if it fits
    int type_k, type_v; // TYPE_ of formats/types.h, or KV_TYPE_AUTO: f16, and f32 for a model in F32
    bool kv_rotate;     // keys and queries are turned by a Hadamard matrix
    bool paged;         // blocks of kv_block slots
    int kv_block;
    size_t kv_mem;      // most bytes of it; 0: what the context needs
    const char *kv_dir; // where blocks are kept from run to run; NULL: nowhere
    size_t kv_dir_size; // most bytes there
    const char *evict;  // what a full cache gives up (kv/evict.h); NULL: a full context ends the answer
    // speculation
    const char *speculate; // ngram, a draft model (a path or builtin), or both as ngram,FILE; NULL: none
    int draft_max;         // drafts of a sequence in a step
    int draft_min;         // fewer are none
    float draft_p_min;     // a draft less likely than that ends them
    // what is said on stderr
    bool verbose, quiet;
    bool dry_run; // everything is planned, nothing reserved
} EngineConfig;

// What a mode needs of an engine, whatever its user has chosen.
typedef struct {
    bool need_tokenizer;
    int n_ctx;      // slots a sequence; 0: by the configuration and the model
    int n_seqs;     // sequences at once; 0: 1
    int max_out;    // rows of logits at once; 0: n_seqs
    int ctx_of_use; // where neither says: the model's context, but no more than this; 0: no limit
    // The sequences share one pool of blocks, and blocks where they begin alike: --kv-mem, or half of the memory that
    // is free, one context at least. Otherwise each has a context of its own.
    bool pooled;
    // K and V of every token are looked at again, as they are saved, sent on, or taken back to an earlier token.
    // Otherwise layers with a window give theirs up as the text goes on.
    bool whole;
} EngineNeeds;

#endif
