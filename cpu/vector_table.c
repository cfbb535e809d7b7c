// cpu/vector_table.c: the table of the vector kernels of one instruction set.
#include "cpu/vector_attend.h"

const CpuKernels vector_kernels = {
    .isa = VECTOR_ISA,
    .embed = vector_embed,
    .rmsnorm = vector_rmsnorm,
    .rope = vector_rope,
    .gate = vector_gate,
    .softcap = vector_softcap,
    .xielu = vector_xielu,
    .to_kv = vector_to_kv,
    .matvec = vector_matvec,
    .convolve = vector_convolve,
    .delta = vector_delta,
    .delta_in_order = vector_delta_in_order,
    .delta_scratch = sizeof(DeltaChunk),
    .attend = {.run = vector_attend,
               .scratch = sizeof(QueryTile),
               .pairs = LANE_TILES * T,
               .in_parts = true,
               .gives_lse = true},
    .attend_in_order = vector_attend_many,
    .attend_mass = vector_attend_mass,
    .f32_panels = &vector_matmul,
};
