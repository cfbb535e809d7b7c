// cpu/backend.h: the backends on the CPU, one for each instruction set. Other directories include only this header of
// cpu/.
#ifndef QUILL_CPU_BACKEND_H
#define QUILL_CPU_BACKEND_H

#include "kernels.h"

// isa: NULL or "auto", "scalar", "portable", "avx2", "avxvnni", "avx512", "amx"; QUILL_USAGE if unknown, QUILL_MODEL if
// this CPU does not support it. Both errors list the valid names. *out is static.
Status cpu_backend(const char *isa, const Backend **out);
// The same with results whose bits do not depend on the batch, the chunks, the KV layout or the number of threads: each
// type has one kernel for any number of rows, and attention adds in an order that depends only on a row's slot.
Status cpu_backend_deterministic(const char *isa, const Backend **out);
bool cpu_has_isa(const char *isa);
// The unit that multiplies weights of this type by many rows, with its name in bench/roofline.h.
const char *cpu_prefill_unit(const Backend *be, int type);
const char *cpu_isa_list(void); // the instruction sets that this CPU supports: "scalar, portable, avx2, ..."

#endif
