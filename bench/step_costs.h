// bench/step_costs.h: measures the time of steps with few rows, relative to a step of one row (policy/draft_length.h).
#ifndef QUILL_STEP_COSTS_H
#define QUILL_STEP_COSTS_H

#include "engine_config.h"
#include "policy/draft_length.h"

#include "base/base.h"

// Measures with random weights of a type, larger than the caches, and the CPU kernels that `config` chooses. Takes a
// second or two. unit: the arithmetic unit of these kernels, as bench/roofline.h names it. QUILL_MEMORY.
Status step_costs_measure(const EngineConfig *config, int type, StepCosts *out, char unit[16]);

#endif
