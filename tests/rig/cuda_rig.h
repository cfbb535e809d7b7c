// tests/rig/cuda_rig.h: a tiny model with layers on the GPU's twin, and runs of it, for the tests of the backend.
//
// The kernels run on the CPU (tests/rig/gpu_host.cpp) and the runtime is the twin (tests/rig/gpu_rt_host.h): no GPU is
// needed.
#ifndef QUILL_CUDA_RIG_H
#define QUILL_CUDA_RIG_H

#include "tests/rig/model_rig.h"
#include "tests/rig/tiny_model.h"
#include "tests/rig/two_texts.h"

// A step of CUDA_PROMPT rows is too large for the fused kernels, with any type of weights.
enum { CUDA_PROMPT = 34, CUDA_MOST_ROWS = 64, CUDA_CTX = 300, ALL_LAYERS = 1000 };

typedef struct {
    int n_gpu; // layers on the GPU; 0: the scalar reference
    int kv_type;
    int block;        // slots of a block; 0: contiguous
    uint64_t shuffle; // seed for shuffling the blocks; 0: in order
    size_t spare;     // bytes for dense copies of weights
    int type_v;       // 0: as kv_type
    bool rotate;
    bool scarce;         // as few blocks of layers with a window as steps of CUDA_MOST_ROWS rows need
    bool keep;           // KvShape.keep_partners
    bool bare;           // without_parts
    int n_kept;          // layers whose experts stay on the host
    int n_checkpoints;   // of recurrent layers' states
    int n_ctx;           // for which LongRoPE's factors are chosen; 0: CUDA_CTX
    const Backend *host; // NULL: the scalar one
} CudaSetup;

// A shape whose head_dim is not dim / n_heads, with three heads to a KV head.
TinyModel cuda_rig_shape(const char *arch);
// Loads the model; makes a cache, filled with NaN, and a workspace. Call rig_close also after a failure. cuda_rig_open
// fails the test instead.
Status cuda_rig_try(Rig *r, const Gguf *g, CudaSetup s);
void cuda_rig_open(Rig *r, const Gguf *g, CudaSetup s);

// Returns all logits of n tokens: `first` of them in the first step, `chunk` in each later step. `strangers`: two other
// sequences are in the same steps. The caller frees.
float *cuda_rig_run_tokens(Rig *r, const int *tokens, int n, int first, int chunk, bool strangers);
// The same with random tokens: the first n of one text.
float *cuda_rig_run_from(Rig *r, int n, int first, int chunk, bool strangers);
float *cuda_rig_run(Rig *r, int n, int chunk, bool strangers);  // cuda_rig_run_from with first = chunk
float *cuda_rig_run_on_host(const Gguf *g, CudaSetup s, int n); // the same with all layers on the host

typedef struct {
    int n, first, chunk; // tokens; tokens in the first step; tokens in each later step
    bool strangers;
} CudaBatching;
// Runs a model over batchings and gives `each` the logits (n, n_vocab) of all tokens with those of the scalar
// reference; nothing may be left on the GPU.
void cuda_rig_compare(const Gguf *g, CudaSetup s, const CudaBatching *b, int n_batchings,
                      void (*each)(void *arg, const float *got, const float *want, int n), void *arg);
// Their largest distance may be up to `limit`.
void cuda_rig_expect(const Gguf *g, CudaSetup s, const CudaBatching *b, int n_batchings, double limit,
                     const char *what);

// Two texts in F32 whose logits are those of the scalar reference; close t, then the model that is returned.
Gguf *cuda_rig_open_texts(TwoTexts *t, const TinyModel *shape, CudaSetup s, int n, int alike);

#endif
