// cpu/vector.h: the vector kernels of one instruction set: what their files offer each other and the table.
//
// The files cpu/vector_*.c are compiled once per instruction set (QUILL_SIMD, see simd.h). Each name below stands for a
// function of the instruction set that is being compiled: vector_matvec is cpu_avx2_matvec in the objects for AVX2.
// Weights are unpacked to f32 in registers, straight from the file's blocks, and all arithmetic is f32.
#ifndef QUILL_VECTOR_H
#define QUILL_VECTOR_H

#include "cpu/cpu.h"
#include "cpu/simd.h"

#if QUILL_SIMD == 512
#define VECTOR_ISA "avx512"
#define vector_kernels cpu_avx512
#define VECTOR_NAME(name) cpu_avx512_##name
#elif QUILL_SIMD == 256
#define VECTOR_ISA "avx2"
#define vector_kernels cpu_avx2
#define VECTOR_NAME(name) cpu_avx2_##name
#else
#define VECTOR_ISA "portable"
#define vector_kernels cpu_portable
#define VECTOR_NAME(name) cpu_portable_##name
#endif

#define vector_load_row VECTOR_NAME(load_row)
#define vector_embed VECTOR_NAME(embed)
#define vector_rmsnorm VECTOR_NAME(rmsnorm)
#define vector_rope VECTOR_NAME(rope)
#define vector_gate VECTOR_NAME(gate)
#define vector_softcap VECTOR_NAME(softcap)
#define vector_xielu VECTOR_NAME(xielu)
#define vector_to_kv VECTOR_NAME(to_kv)
#define vector_matvec VECTOR_NAME(matvec)
#define vector_matmul VECTOR_NAME(matmul)
#define vector_convolve VECTOR_NAME(convolve)
#define vector_delta VECTOR_NAME(delta)
#define vector_delta_in_order VECTOR_NAME(delta_in_order)

// Elements [32 * b0, 32 * b0 + n) of a weight row in f32; b0 is a multiple of 8, `out` has room for whole blocks of 32.
void vector_load_row(const Tensor *t, int row, int b0, int n, float *out);

// The fields of CpuKernels (cpu.h).
void vector_embed(const Tensor *t, int row, float *out);
void vector_rmsnorm(float *out, const float *x, const float *weight, int n, float eps);
void vector_rope(float *head, const float *cosine, const float *sine, int n_rot, bool adjacent);
void vector_gate(Activation act, float *gate, const float *up, int n);
void vector_softcap(float *v, int n, float cap);
void vector_xielu(const Xielu *x, float *v, int n);
void vector_to_kv(void *out, int type, const float *x, int n);
void vector_matvec(const MatvecTask *t);
extern const MatrixKernel vector_matmul;
void vector_convolve(const ConvolveTask *t);
enum { DELTA_CHUNK = 64 };                   // rows of a chunk
typedef struct {                             // DeltaTask.scratch
    float keys[SEAL_HEAD * DELTA_CHUNK];     // k transposed: (key_dim, DELTA_CHUNK)
    float dots_k[DELTA_CHUNK * DELTA_CHUNK]; // k_t.k_i, in whole vectors up to the diagonal
    float dots_q[DELTA_CHUNK * DELTA_CHUNK]; // q_t.k_i likewise; the rest belongs to one value head
    float sum[DELTA_CHUNK];                  // G: the sum of the decays up to a row
    float rest[DELTA_CHUNK];                 // what rounding cost `sum`, so that differences of large sums are exact
    float grown[DELTA_CHUNK];                // e^G
    float solve[DELTA_CHUNK * DELTA_CHUNK];  // -beta_t e^(G_t - G_i) (k_t.k_i) below the diagonal
    float weigh[DELTA_CHUNK * DELTA_CHUNK];  // e^(G_t - G_i) (q_t.k_i) up to the diagonal
    float updates[DELTA_CHUNK * SEAL_HEAD];  // u (DELTA_CHUNK, value_dim)
} DeltaChunk;
void vector_delta(const DeltaTask *t);
void vector_delta_in_order(const DeltaTask *t);

#endif
