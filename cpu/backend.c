// cpu/backend.c: chooses kernels for this CPU and builds the backends from them.
#include "cpu/backend.h"

#include "base/str.h"
#include "cpu/cpu.h"
#include "cpu/cpuid.h"
#include "cpu/experts.h"
#include "cpu/latent.h"
#include "cpu/layer.h"
#include "cpu/matmul.h"

#include <stdio.h>
#include <string.h>

#if defined(QUILL_AMX)
static bool has_amx(void) { return cpuid_has_amx() && cpu_amx_enable(); }
#endif
static bool has_any(void) { return true; }
static __attribute__((unused)) bool has_none(void) { return false; }

// From slow to fast: "auto" takes the last one that this CPU supports, but never scalar.
typedef struct {
    const char *isa;
    bool (*available)(void);
    const CpuKernels *kernels;
    const MatrixKernel *(*bf16_panels)(int type);
    const AttendKernel *attend_16bit;
    const MatrixKernel *(*int8_rows)(int type);
    const char *int8_isa; // the instruction set of int8_rows
    const MatrixKernel *(*int8_tiles)(int type);
    const MatrixKernel *(*int8_panels)(int type);
    const MatrixKernel *(*bf16_lanes)(int type);
} IsaChoice;

#if defined(QUILL_BF16)
#define BF16_LANES cpu_bf16_panels
#else
#define BF16_LANES NULL
#endif

static const IsaChoice choices[] = {
    {.isa = "scalar", .available = has_any, .kernels = &cpu_scalar},
    {.isa = "portable", .available = has_any, .kernels = &cpu_portable},
#if defined(__x86_64__)
    {.isa = "avx2",
     .available = cpuid_has_avx2,
     .kernels = &cpu_avx2,
     .int8_rows = cpu_madd_matrix,
     .int8_isa = "avx2",
     .int8_panels = cpu_madd_panels,
     .attend_16bit = &cpu_madd_attend},
#else // names of other CPUs' instruction sets, which are refused
    {.isa = "avx2", .available = has_none, .kernels = &cpu_portable},
#endif
#if defined(QUILL_AVXVNNI)
    {.isa = "avxvnni",
     .available = cpuid_has_avxvnni,
     .kernels = &cpu_avx2,
     .int8_rows = cpu_avxvnni_matrix,
     .int8_isa = "avxvnni",
     .int8_panels = cpu_avxvnni_panels,
     .attend_16bit = &cpu_avxvnni_attend},
#else
    {.isa = "avxvnni", .available = has_none, .kernels = &cpu_portable},
#endif
#if defined(__x86_64__)
    {.isa = "avx512",
     .available = cpuid_has_avx512,
     .kernels = &cpu_avx512,
     .attend_16bit = &cpu_vnni_attend,
     .int8_rows = cpu_vnni_matrix,
     .int8_isa = "avx512 vnni",
     .int8_panels = cpu_vnni_panels,
     .bf16_lanes = BF16_LANES},
#else
    {.isa = "avx512", .available = has_none, .kernels = &cpu_portable},
#endif
#if defined(QUILL_AMX)
    {.isa = "amx",
     .available = has_amx,
     .kernels = &cpu_avx512,
     .bf16_panels = cpu_amx_matrix,
     .attend_16bit = &cpu_amx_attend,
     .int8_rows = cpu_vnni_matrix,
     .int8_isa = "avx512 vnni",
     .int8_tiles = cpu_amx_int8_matrix},
#else
    {.isa = "amx", .available = has_none, .kernels = &cpu_portable},
#endif
};

bool cpu_has_isa(const char *isa) {
    for (size_t i = 0; i < ARRAY_LEN(choices); i++)
        if (strcmp(isa, choices[i].isa) == 0) return choices[i].available();
    return false;
}

const char *cpu_isa_list(void) {
    static char list[64];
    *list = 0;
    for (size_t i = 0; i < ARRAY_LEN(choices); i++)
        if (choices[i].available()) str_list(list, sizeof list, choices[i].isa);
    return list;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t stacks_packed_bytes(const Backend *be, const Workspace *w, int max_n_in) {
    return larger(experts_packed_bytes(be, w, max_n_in), latent_packed_bytes(cpu_kernels_of(be), w));
}

static size_t packed_bytes(const Backend *be, int max_rows, int max_n_in) {
    return matmul_packed_bytes(cpu_kernels_of(be), max_rows, max_n_in);
}

// The entry for "auto" or for the user's choice.
static Status choose(const char *isa, size_t *out) {
    bool automatic = !isa || strcmp(isa, "auto") == 0, known = false;
    for (size_t i = 0; i < ARRAY_LEN(choices); i++)
        if (automatic ? choices[i].available() : strcmp(isa, choices[i].isa) == 0) {
            *out = i;
            known = true;
        }
    if (!known)
        return status_error(QUILL_USAGE, "--isa %s: one of auto, scalar, portable, avx2, avxvnni, avx512, amx expected",
                            isa);
    if (!choices[*out].available())
        return status_error(QUILL_MODEL, "--isa %s: this CPU does not support it; it has %s", isa, cpu_isa_list());
    return OK;
}

// The entry, adapted to this CPU: AVX-512 without VNNI uses the integer kernels of AVX2; without fast BF16 only f32.
static IsaChoice choice_here(size_t i) {
    IsaChoice c = choices[i];
#if defined(__x86_64__)
    if (c.int8_rows == cpu_vnni_matrix && !cpuid_has_vnni()) {
        c.int8_rows = cpu_madd_matrix;
        c.int8_isa = "avx2";
        c.int8_panels = NULL;
        c.attend_16bit = NULL;
    }
    if (c.bf16_lanes && !cpuid_has_fast_bf16()) c.bf16_lanes = NULL;
#endif
    return c;
}

static CpuKernels kernels_for(const IsaChoice *c, bool in_order) {
    CpuKernels k = *c->kernels;
    k.isa = c->isa;
    k.bf16_panels = c->bf16_panels;
    k.int8_rows = c->int8_rows;
    k.int8_tiles = c->int8_tiles;
    k.int8_panels = c->int8_panels;
    k.bf16_lanes = c->bf16_lanes;
    k.in_order = in_order;
    k.attend_16bit = c->attend_16bit;
    if (in_order) {
        k.delta = k.delta_in_order;
        k.attend.run = k.attend_in_order;
        k.attend_16bit = NULL; // its tiles depend on the rows of a task
    }
    return k;
}

enum { WORDS = 192 };

// Describes in words which kernels are used.
static void describe(const IsaChoice *c, bool in_order, char out[WORDS]) {
    const char *f32 = c->kernels->isa;
    char rows[56] = "", tiles[40] = "", panels[72];
    if (!c->kernels->f32_panels) {
        snprintf(out, WORDS, "plain f32 loops (the reference)");
        return;
    }
    if (c->int8_isa) snprintf(rows, sizeof rows, "int8 %s (16- and 32-bit weights: f32 %s", c->int8_isa, f32);
    const char *attention = c->attend_16bit && !in_order ? " and attention" : "";
    if (c->bf16_panels)
        snprintf(panels, sizeof panels, "bf16 %s panels%s (F32 weights: f32 %s)", c->isa, attention, f32);
    else if (c->int8_panels && !in_order)
        snprintf(panels, sizeof panels, "int8 %s panels (%s)", c->int8_isa,
                 c->bf16_lanes ? "16-bit weights: bf16; F32: f32" : "16- and 32-bit weights: f32");
    else snprintf(panels, sizeof panels, "f32 %s panels", f32);
    if (c->int8_tiles)
        snprintf(tiles, sizeof tiles, "up to %d or %d sequences int8 %s, by type; ",
                 c->int8_tiles(TYPE_Q4_K)->most_rows, c->int8_tiles(TYPE_Q8_0)->most_rows, c->isa);
    if (!in_order && c->int8_isa) snprintf(out, WORDS, "matvec %s); %sprefill %s", rows, tiles, panels);
    else if (!in_order) snprintf(out, WORDS, "matvec f32 %s; prefill %s", f32, panels);
    else if (c->int8_isa && !c->bf16_panels) snprintf(out, WORDS, "%s panels) for any number of rows", rows);
    else snprintf(out, WORDS, "%s for any number of rows", panels);
}

static Status backend_for(const char *isa, bool in_order, const Backend **out) {
    static CpuKernels kernels[ARRAY_LEN(choices)][2];
    static Backend backends[ARRAY_LEN(choices)][2];
    static char words[ARRAY_LEN(choices)][2][WORDS];
    size_t i = 0;
    TRY(choose(isa, &i));
    IsaChoice choice = choice_here(i);
    CpuKernels *k = &kernels[i][in_order];
    *k = kernels_for(&choice, in_order);
    describe(&choice, in_order, words[i][in_order]);
    size_t scratch = larger(k->attend.scratch, k->delta_scratch);
    if (k->attend_16bit) scratch = larger(scratch, k->attend_16bit->scratch);
    if (k->f32_panels) scratch = larger(scratch, k->f32_panels->scratch);
    if (k->bf16_panels) scratch = larger(scratch, k->bf16_panels(TYPE_Q8_0)->scratch); // the same for all types
    if (k->int8_tiles) scratch = larger(scratch, k->int8_tiles(TYPE_Q8_0)->scratch);
    if (k->int8_panels) scratch = larger(scratch, k->int8_panels(TYPE_Q8_0)->scratch);
    if (k->bf16_lanes) scratch = larger(scratch, k->bf16_lanes(TYPE_BF16)->scratch);
    backends[i][in_order] = (Backend){
        .name = "cpu",
        .isa = k->isa,
        .kernels = words[i][in_order],
        .packed_bytes = packed_bytes,
        .stack_bytes = stacks_packed_bytes,
        .panel_bytes = round_up(scratch, 4096),
        .impl = k,
        .copy_blocks = layer_copy_blocks,
        .narrow = layer_narrow,
        .embed = layer_embed,
        .attn_in = layer_attn_in,
        .attention = layer_attention,
        .attn_out = layer_attn_out,
        .ffn_in = layer_ffn_in,
        .ffn_out = layer_ffn_out,
        .logits = layer_logits,
        .hidden = layer_hidden,
    };
    *out = &backends[i][in_order];
    return OK;
}

Status cpu_backend(const char *isa, const Backend **out) { return backend_for(isa, false, out); }

Status cpu_backend_deterministic(const char *isa, const Backend **out) { return backend_for(isa, true, out); }

const char *cpu_prefill_unit(const Backend *be, int type) {
    const CpuKernels *k = cpu_kernels_of(be);
    const MatrixKernel *bytes = !k->in_order && k->int8_panels ? k->int8_panels(type) : NULL;
    if (k->bf16_panels && k->bf16_panels(type)) return "amx";
    if (bytes) return bytes->unit ? bytes->unit : "vnni";
    if (!k->in_order && k->bf16_lanes && k->bf16_lanes(type)) return "avx512bf16";
    return strcmp(k->isa, "amx") == 0 ? "avx512" : strcmp(k->isa, "avxvnni") == 0 ? "avx2" : k->isa;
}
