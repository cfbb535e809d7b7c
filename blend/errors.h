// blend/errors.h: measures the error of K and V of a blended prompt, relative to a prefill of the whole prompt.
#ifndef QUILL_BLEND_ERRORS_H
#define QUILL_BLEND_ERRORS_H

#include "blend/blender.h"

// Compares q, a computed sequence that begins with the blended prompt, with a prefill of the prompt. Releases the
// blocks of q. out: (layers with K and V, layers of full attention first) the relative L2 distance of K and V of the
// tokens from the first chunk to the end of the last. Errors as engine_fault: QUILL_MODEL, QUILL_MEMORY. 128 plus the
// number of a signal: interrupted.
Status blend_errors(Engine *e, const BlenderPrompt *p, Sequence *q, double *out);

#endif
