// cpu/cpuid.h: which instruction sets the CPU has and the operating system supports.
#ifndef QUILL_CPUID_H
#define QUILL_CPUID_H

#include <stdbool.h>

#if defined(__x86_64__)
bool cpuid_has_avx2(void);    // with FMA and F16C
bool cpuid_has_avxvnni(void); // AVX2 with VNNI
bool cpuid_has_avx512(void);  // F, DQ, BW, VL
bool cpuid_has_vnni(void);    // AVX-512 with VNNI
bool cpuid_has_vbmi(void);    // the same with VBMI, GFNI and BMI2
bool cpuid_has_bf16(void);    // AVX-512 with BF16
// Whether its products are faster than f32's. Intel's cores make half as many of them a second as f32 multiply-adds.
bool cpuid_has_fast_bf16(void);
// AMX-TILE, AMX-BF16 and AMX-INT8, with AVX512-BF16 and AVX512-VBMI. cpu_amx_enable asks the system for the tile
// registers.
bool cpuid_has_amx(void);
#endif

#endif
