// quantize/quantize.h: `quill quantize IN OUT TYPE`: a model file with smaller weights (docs/quantize.md).
#ifndef QUILL_QUANTIZE_H
#define QUILL_QUANTIZE_H

#include "cli/options.h"

Status quantize_run(const Options *o);

#endif
