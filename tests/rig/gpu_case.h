// tests/rig/gpu_case.h: a case for the GPU's kernels: a tiny model, a batch and a cache, on the host and on the
// device.
//
// The cache is NaN wherever no row sees it, tables are permuted, memory is NaN until written, a row of padding comes
// last.
#ifndef QUILL_GPU_CASE_H
#define QUILL_GPU_CASE_H

#include "model.h"
#include "tests/rig/gpu_compare.h"
#include "tests/rig/tiny_model.h"

typedef struct {
    const char *name;
    TinyModel model;
    struct {
        int type_k, type_v, block, window;
        bool rotate;
    };
    struct { // of the batch
        int n_seqs, rows_each;
        int past;  // slots that the first sequence has already; the next ones have a few more each
        bool gaps; // every third slot only is in the batch, the others have their K and V
    };
} GpuCase;

typedef struct {
    const GpuCase *c;
    Gguf *g;
    Model m;
    ThreadPool *pool;
    Workspace w;
    KvPool kv;
    Batch b;
    uint64_t random;
    // on the device
    GpuLayer l;
    DeviceTensor tok, head;
    GpuRopes ropes;
    KvPool dkv;
    GpuBatch db;
    GpuScratch s;
    float *x, *norm_out;
} GpuCaseRig;

void gpu_case_open(GpuCaseRig *r, const GpuCase *c, uint64_t seed);
void gpu_case_close(GpuCaseRig *r);                // fails the test where a launch failed
int *gpu_case_table(const GpuCaseRig *r, int seq); // the host's block table of a sequence

#endif
