// bench/step_costs.h: measures what steps of few rows take, in steps of one row (policy/draft_length.h).
#ifndef QUILL_STEP_COSTS_H
#define QUILL_STEP_COSTS_H

#include "engine_config.h"
#include "policy/draft_length.h"

#include "base/base.h"

// Over random weights of a type that are larger than the caches, on the CPU's kernels that the configuration chooses; a
// second or two. unit: of them, as bench/roofline.h names it. QUILL_MEMORY.
Status step_costs_measure(const EngineConfig *config, int type, StepCosts *out, char unit[16]);

#endif
