// cpu/cpuid.h: which instruction sets this CPU has and the system lets a process use.
#ifndef QUILL_CPUID_H
#define QUILL_CPUID_H

#include <stdbool.h>

#if defined(__x86_64__)
bool cpuid_has_avx2(void);    // with FMA and F16C
bool cpuid_has_avxvnni(void); // AVX2 with VNNI
bool cpuid_has_avx512(void);  // F, DQ, BW, VL
bool cpuid_has_vnni(void);    // AVX-512 with VNNI
bool cpuid_has_bf16(void);    // AVX-512 with BF16
// AMX-TILE, AMX-BF16, AMX-INT8, AVX512-BF16. Whether the system gives the tile registers: cpu_amx_enable.
bool cpuid_has_amx(void);
#endif

#endif
