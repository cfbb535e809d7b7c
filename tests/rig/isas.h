// tests/rig/isas.h: the CPU kernel tables that tests run: those of this CPU, as cpu/backend.c lists them, and the table
// that AVX-512 uses on a CPU without VNNI, so that it is also tested on a CPU with VNNI.
#ifndef QUILL_ISAS_H
#define QUILL_ISAS_H

#include "tests/rig/testing.h"

#include "cpu/backend.h"
#include "cpu/cpu.h"

enum { MOST_ISAS = 8 };
#define ISA_NO_VNNI "avx512/avx2" // the float kernels of AVX-512 and the integer kernels of AVX2

// The i-th name, "scalar" first; NULL past the last.
static inline const char *isa_name(int i) {
    static char list[128];
    static const char *names[MOST_ISAS + 1];
    if (!names[0]) {
        int n = 0;
        snprintf(list, sizeof list, "%s%s", cpu_isa_list(), cpu_has_isa("avx512") ? ", " ISA_NO_VNNI : "");
        for (char *at = strtok(list, ", "); at; at = strtok(NULL, ", ")) {
            assert_true(n < MOST_ISAS);
            names[n++] = at;
        }
    }
    return names[i];
}

// The number of tables in cpu/backend.c. isa_name(isa_count()) is the fallback of AVX-512, which has no kernels of its
// own.
static inline int isa_count(void) {
    int n = 0;
    while (isa_name(n) && strcmp(isa_name(n), ISA_NO_VNNI) != 0) n++;
    return n;
}

// Like cpu_backend or cpu_backend_deterministic, but also takes ISA_NO_VNNI.
static inline Status isa_backend(const char *isa, bool deterministic, const Backend **out) {
    static CpuKernels kernels[2];
    static Backend backends[2];
    bool no_vnni = strcmp(isa, ISA_NO_VNNI) == 0;
    TRY((deterministic ? cpu_backend_deterministic : cpu_backend)(no_vnni ? "avx512" : isa, out));
#if defined(__x86_64__)
    if (no_vnni) {
        kernels[deterministic] = *(const CpuKernels *)(*out)->impl;
        kernels[deterministic].int8_rows = cpu_madd_matrix;
        kernels[deterministic].int8_panels = kernels[deterministic].bf16_lanes = NULL;
        backends[deterministic] = **out;
        backends[deterministic].impl = &kernels[deterministic];
        *out = &backends[deterministic];
    }
#endif
    return OK;
}

// Whether a table differs from another one only in products of quantised weights. A model in F32 then has the same
// bits.
static inline bool isa_is_of_integers(const char *isa) {
    return strcmp(isa, "avxvnni") == 0 || strcmp(isa, ISA_NO_VNNI) == 0;
}

// Whether products of many rows with 16-bit weights are computed in bf16.
static inline bool isa_rounds_halves(const char *isa) {
    const Backend *be = NULL;
    if (isa_backend(isa, false, &be).code) return false;
    const CpuKernels *k = be->impl;
    return k->bf16_panels || k->bf16_lanes;
}

static inline int isa_print(void **state) { // setup of a group of tests
    (void)state;
    print_message("instruction sets of this CPU:");
    for (int i = 0; isa_name(i); i++) print_message(" %s", isa_name(i));
    print_message("; no other is tested here\n");
    return 0;
}

#endif
