// cpu/cpuid.c: see cpu/cpuid.h.
#include "cpu/cpuid.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stddef.h>
#include <stdint.h>

// The CPU's features, read once: in a virtual machine each CPUID instruction traps to the host, which takes 20 to 70
// us.
typedef struct {
    unsigned c1;         // leaf 1, ECX
    unsigned b7, c7, d7; // leaf 7
    unsigned a7_1;       // leaf 7, subleaf 1, EAX
    bool intel;
    uint64_t saved; // register states that the operating system saves (XCR0)
} CpuFeatures;

static const CpuFeatures *features(void) {
    static CpuFeatures f;
    static bool known;
    if (known) return &f;
    unsigned maker, most = __get_cpuid_max(0, &maker), a = 0, b, c, d;
    f.intel = maker == signature_INTEL_ebx;
    if (most >= 1) __cpuid(1, a, b, f.c1, d);
    if (most >= 7) __cpuid_count(7, 0, a, f.b7, f.c7, f.d7);
    if (most >= 7 && a >= 1) __cpuid_count(7, 1, f.a7_1, b, c, d);
    if (f.c1 >> 27 & 1) { // OSXSAVE
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        f.saved = (uint64_t)high << 32 | low;
    }
    known = true;
    return &f;
}

static bool os_saves(uint64_t states) { return (features()->saved & states) == states; }

bool cpuid_has_avx2(void) {
    const CpuFeatures *f = features();
    return os_saves(0x6) && (f->c1 >> 12 & 1) && (f->c1 >> 29 & 1) && (f->b7 >> 5 & 1);
}

bool cpuid_has_avxvnni(void) { return cpuid_has_avx2() && (features()->a7_1 >> 4 & 1); }

bool cpuid_has_avx512(void) {
    unsigned b = features()->b7;
    return cpuid_has_avx2() && os_saves(0xe6) && (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1);
}

bool cpuid_has_vnni(void) { return cpuid_has_avx512() && (features()->c7 >> 11 & 1); }

bool cpuid_has_vbmi(void) {
    const CpuFeatures *f = features();
    return cpuid_has_vnni() && (f->c7 >> 1 & 1) && (f->c7 >> 8 & 1) && (f->b7 >> 8 & 1);
}

bool cpuid_has_bf16(void) { return cpuid_has_avx512() && (features()->a7_1 >> 5 & 1); }

bool cpuid_has_fast_bf16(void) { return cpuid_has_bf16() && !features()->intel; }

bool cpuid_has_amx(void) {
    const CpuFeatures *f = features();
    bool there = (f->d7 >> 24 & 1) && (f->d7 >> 22 & 1) && (f->d7 >> 25 & 1) && (f->c7 >> 1 & 1);
    return there && cpuid_has_bf16() && os_saves(0x60000);
}
#endif
