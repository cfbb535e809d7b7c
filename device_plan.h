// device_plan.h: decides which device computes a model: the CPU, a GPU, or the CPU its first layers and the GPU its
// last ones.
//
// The user decides with --device and -ngl; otherwise the GPU's free memory decides. If a requested GPU cannot be used,
// that is an error; with `auto` the CPU computes instead, and --verbose reports the reason.
#ifndef QUILL_DEVICE_PLAN_H
#define QUILL_DEVICE_PLAN_H

#include "engine_config.h"
#include "kvcache.h"
#include "model.h"

typedef struct {
    const Backend *gpu; // NULL: only the CPU computes, for the reason in `why`
    char why[320];
    bool asked;   // the user requested a GPU: failing to use it is an error
    int n_layers; // number of layers on the GPU, of n_all
    int n_all;
    int n_kept;                              // number of GPU layers whose experts stay on the CPU
    size_t weights, kv, scratch, free_bytes; // of the GPU's memory
    size_t spare;                            // bytes of it for additional copies of weights that make prefill faster
} DevicePlan;

// Opens the GPU if the configuration allows one. Without a model (NULL: it is not opened yet) this only opens a GPU
// that the user requested (--device cuda, or -ngl with a number). `deterministic` selects the CPU. QUILL_MODEL: the
// requested GPU cannot be used; the message has the driver's reason. QUILL_USAGE: QUILL_GPU_TRY has an unknown word.
// cli/check.h has rejected contradictory options.
Status device_plan_open(DevicePlan *p, const EngineConfig *config, const Model *m);
// Decides how many layers the GPU gets with this cache and steps of up to max_rows rows, max_out of them with logits:
// sets s->n_device and s->be, and with may_shorten possibly a shorter s->n_ctx. Of a pool, s->n_blocks is the number of
// blocks of one context; it stays so if the context becomes shorter. QUILL_MEMORY: the requested layers do not fit; the
// message has the memory budget and flags to try. QUILL_USAGE: -ngl separates layers that share K and V. QUILL_MODEL:
// the requested GPU cannot compute this model.
Status device_plan_make(DevicePlan *p, const EngineConfig *config, const Model *m, KvShape *s, bool may_shorten,
                        int max_rows, int max_out);
// Bytes of the GPU's memory for K and V beside these layers; SIZE_MAX without a GPU.
size_t device_plan_kv_room(const DevicePlan *p);
// Call after device_plan_make, when the shape of the cache is final: sets p->kv and p->spare.
void device_plan_settle(DevicePlan *p, const KvShape *s);
Status device_plan_load(const DevicePlan *p, Model *m, ThreadPool *pool, bool quiet);

// The most rows of a step: config->ubatch, or the device's default.
int device_plan_ubatch(const DevicePlan *p, const EngineConfig *config);
// Appends which kernels compute the layers and their K and V: "cpu amx", "GPU NAME sm_90, KERNELS", or both with the
// GPU's layers. `isa`: the CPU's instruction set.
void device_plan_kernels(const DevicePlan *p, const char *isa, Buf *out);
void device_plan_budget(const DevicePlan *p, Buf *out); // appends a line about the GPU's memory; nothing without a GPU
// Writes to stderr where each operation runs, graphs launched and tokens drawn since the start. Nothing without a GPU.
void device_plan_report(const DevicePlan *p);

#endif
