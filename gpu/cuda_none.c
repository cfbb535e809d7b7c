// gpu/cuda_none.c: gpu/cuda.h in a build without CUDA.
#include "gpu/cuda.h"

Status cuda_backend(const Backend **out) {
    *out = NULL;
    return status_error(QUILL_MODEL, "this build has no CUDA (make finds nvcc in CUDA_HOME, /usr/local/cuda or PATH); "
                                     "--device cpu works");
}

Status cuda_available(void) { return status_error(QUILL_MODEL, "this build has no CUDA"); }

Status cuda_roofline(CudaRoofline *out) {
    *out = (CudaRoofline){0};
    const Backend *none;
    return cuda_backend(&none);
}

void cuda_describe(Buf *out) { buf_str(out, "no"); }

// Never called in a build without CUDA.
Status cuda_supports(const Heads *h) {
    (void)h;
    return OK;
}

void cuda_open_products(void) {}
size_t cuda_layer_bytes(const Layer *l) {
    (void)l;
    return 0;
}
size_t cuda_ends_bytes(const Ends *e, bool embeds) {
    (void)e, (void)embeds;
    return 0;
}
size_t cuda_scratch_bytes(const Workspace *shape, const Heads *widest) {
    (void)shape, (void)widest;
    return 0;
}
size_t cuda_free_bytes(void) { return 0; }
double cuda_replay_seconds(void (*queue)(void *arg), void *arg) {
    (void)queue, (void)arg;
    return 0;
}
bool cuda_begin_early(bool early) {
    (void)early;
    return false;
}
void cuda_queue_head(Workspace *w, const Ends *e) { (void)w, (void)e; }
void cuda_queue_draws(Workspace *w) { (void)w; }
CudaCounts cuda_counts(void) { return (CudaCounts){0}; }
