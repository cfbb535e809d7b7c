// tests/rig/gpu_case.h: a case for the GPU's kernels: a tiny model, a batch and a cache, on the host and on the device.
//
// The cache is NaN wherever no row sees it, tables are permuted, memory is NaN until it is written, and the last row is
// padding.
#ifndef QUILL_GPU_CASE_H
#define QUILL_GPU_CASE_H

#include "model.h"
#include "tests/rig/gpu_compare.h"
#include "tests/rig/tiny_model.h"

typedef struct {
    const char *name;
    TinyModel model;
    struct {
        int type_k, type_v, block, window; // window: negative means chunks of that many slots
        bool rotate;
    };
    struct { // describes the batch
        int n_seqs, rows_each;
        int past;  // cached slots of the first sequence; each further sequence has a few more
        bool gaps; // only every third slot is in the batch; the slots between have K and V
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
    // On the device:
    GpuLayer l;
    DeviceTensor tok, head;
    GpuRopes ropes;
    KvPool dkv;
    GpuBatch db;
    GpuScratch s;
    float *x, *norm_out;
} GpuCaseRig;

void gpu_case_open(GpuCaseRig *r, const GpuCase *c, uint64_t seed);
void gpu_case_close(GpuCaseRig *r);                // fails the test if a launch has failed
int *gpu_case_table(const GpuCaseRig *r, int seq); // the block table of a sequence on the host

#endif
