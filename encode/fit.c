// encode/fit.c: see encode/fit.h. Chooses the instruction set.
#include "encode/fit.h"

#include <stddef.h>

#include "cpu/cpuid.h"
#include "formats/types.h"

int fit_weights(int type) {
    switch (type) {
    case TYPE_Q2_K:
    case TYPE_Q3_K:
    case TYPE_Q6_K: return 16;
    case TYPE_Q4_0:
    case TYPE_Q4_1:
    case TYPE_Q5_0:
    case TYPE_Q5_1:
    case TYPE_Q4_K:
    case TYPE_Q5_K:
    case TYPE_IQ4_NL:
    case TYPE_IQ4_XS: return 32;
    default: return 0;
    }
}

FitKernel *fit_kernel(void) {
#if defined(__x86_64__)
    if (cpuid_has_avx512()) return fit_avx512;
    if (cpuid_has_avx2()) return fit_avx2;
#endif
    return fit_portable;
}
