// blend/errors.h: how far K and V of a blended prompt are from those that a prefill of all of it computes.
#ifndef QUILL_BLEND_ERRORS_H
#define QUILL_BLEND_ERRORS_H

#include "blend/blender.h"

// Computes the prompt as a whole beside q, a sequence that begins with it and has run: its blocks are given back.
// out: (layers with K and V, those that see everything first) the relative L2 distance of K and V of the tokens from
// the first chunk to the end of the last. QUILL_MODEL, QUILL_MEMORY: engine_fault's.
Status blend_errors(Engine *e, const BlenderPrompt *p, Sequence *q, double *out);

#endif
