// cpu/backend.h: the backends on the CPU, one for each instruction set. What the rest of the program includes of this
// room.
#ifndef QUILL_CPU_BACKEND_H
#define QUILL_CPU_BACKEND_H

#include "kernels.h"

// isa: NULL or "auto", "scalar", "portable", "avx2", "avxvnni", "avx512", "amx"; QUILL_USAGE if unknown, QUILL_MODEL if
// this CPU lacks it. Both errors name what there is. *out is static.
Status cpu_backend(const char *isa, const Backend **out);
// The same, whose results are the same bits whatever the batch, the chunks, the KV layout and the number of threads:
// one kernel of a type serves any number of rows, and attention sums in an order that a row's slot alone decides.
Status cpu_backend_deterministic(const char *isa, const Backend **out);
bool cpu_has_isa(const char *isa);
// The unit that products of many rows with weights of this type run on, as bench/roofline.h names units.
const char *cpu_prefill_unit(const Backend *be, int type);
const char *cpu_isa_list(void); // those this CPU can run, "scalar, portable, avx2, ..."

#endif
