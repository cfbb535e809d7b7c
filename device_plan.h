// device_plan.h: where a model is computed: on the CPU, on a GPU, or the first layers on the one and the last on the
// other.
//
// --device and -ngl ask; memory decides what is left to us. A GPU that was asked for and cannot be used is an error;
// `auto` goes to the CPU instead, and --verbose says why.
#ifndef QUILL_DEVICE_PLAN_H
#define QUILL_DEVICE_PLAN_H

#include "engine_config.h"
#include "kvcache.h"
#include "model.h"

typedef struct {
    const Backend *gpu; // NULL: the CPU alone, for the reason in `why`
    char why[320];
    bool asked;   // a GPU was, so nothing falls back silently
    int n_layers; // that it takes, of n_all
    int n_all;
    int n_kept; // of its layers: experts that stay on the CPU
    size_t weights, kv, scratch, free_bytes; // of its memory
    size_t spare;                            // of it, for copies that make prefill faster
} DevicePlan;

// Opens the GPU if the configuration wants one. Without a model (NULL: it is not known yet) only a configuration that
// insists (--device cuda, or -ngl with a number) opens it. `deterministic` goes to the CPU. QUILL_MODEL: the GPU that
// was asked for cannot be used, with the driver's reason. cli/check.h rejects contradictions before.
Status device_plan_open(DevicePlan *p, const EngineConfig *config, const Model *m);
// Decides how many layers the GPU takes with this cache and these steps: s->n_device, s->be, and a shorter s->n_ctx
// where that was left to us. QUILL_MEMORY: what was asked for does not fit, with the budget and what to try.
Status device_plan_make(DevicePlan *p, const EngineConfig *config, const Model *m, KvShape *s, bool may_shorten,
                        int max_rows, int max_out);
Status device_plan_load(const DevicePlan *p, Model *m, ThreadPool *pool, bool quiet);

// Rows in one step: config->ubatch, or what suits the device.
int device_plan_ubatch(const DevicePlan *p, const EngineConfig *config);
// What computes, of which each does its layers' K and V: "cpu amx", "GPU NAME sm_90, KERNELS", or both with the GPU's
// layers. `isa`: the CPU's.
void device_plan_kernels(const DevicePlan *p, const char *isa, Buf *out);
void device_plan_budget(const DevicePlan *p, Buf *out); // a line; nothing without a GPU
// On stderr: where each operation runs; graphs launched and tokens drawn since the start. Nothing without a GPU.
void device_plan_report(const DevicePlan *p);

#endif
