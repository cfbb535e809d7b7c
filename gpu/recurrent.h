// gpu/recurrent.h: the C interface of the kernels of recurrent layers and of gated attention (gpu/recurrent.cuh), as
// gpu/launch.h for the others: functions that queue launches, over device pointers.
//
// `y` has the products of a recurrent layer's input. A row of MIXER_DELTA and of MIXER_SSD has the outputs of w_mix
// (channels), of w_z (n_values * value_dim), and those for beta and alpha (n_values each; MIXER_SSD: only those for
// dt). A row of MIXER_CONV has B, C and X. `mix` is the input of the recurrence, computed from y: q, k, v (channels),
// beta or dt, and the factor of M (n_values each). Rows of both are `stride` floats apart.
#ifndef QUILL_GPU_RECURRENT_H
#define QUILL_GPU_RECURRENT_H

#include "gpu/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

// The rows [first, first + n) of a sequence in the batch, and the state before them; state -1: the sequence's start.
// n 0: a span of padding, without a sequence.
typedef struct {
    int first, n, state;
} GpuSpan;

// The states of a batch's sequences, in device memory (Batch.states, state_in, state_out).
typedef struct {
    const GpuSpan *span; // (n_spans) by sequence
    int n_spans;
    const int *keep; // (n_rows) the state that a row's result is stored in; -1: none. A sequence's last row stores one
    float *data;     // (states, step) StatePool.device
    size_t step;     // floats of a state, in all layers of the device
} GpuStates;

enum { GPU_MAX_STATE = 256 }; // the largest key_dim and value_dim: CUDA_MAX_STATE of gpu/cuda.h

// Few rows, b->n_rows in [1, GPU_DECODE_ROWS]: y = the products of norm(x) (n_rows, dim).
void gpu_recurrent_in(float *y, size_t stride, const float *x, const GpuLayer *l, const GpuBatch *b, GpuProduct how,
                      GpuStream stream);
// The same for gated attention: rows of `gate`, `stride` apart, are the gate's part of Wq times norm(x).
void gpu_gate_in(float *gate, size_t stride, const float *x, const GpuLayer *l, const GpuBatch *b, GpuProduct how,
                 GpuStream stream);
// a (n_rows, width), of `type`, is multiplied by sigmoid(gate).
void gpu_gate(void *a, int type, const float *gate, size_t stride, int width, int n_rows, GpuStream stream);

// For any number of rows: the convolution, and what follows it in each channel. MIXER_CONV: a (n_rows, channels) of
// `type` is the mixer's result. Others: fills mix. Also stores the convolution's part of the states.
void gpu_convolve(void *a, int type, float *mix, const float *y, size_t stride, const GpuLayer *l, const GpuBatch *b,
                  const GpuStates *s, GpuStream stream);
// MIXER_DELTA and MIXER_SSD, after gpu_convolve: a (n_rows, n_values * value_dim) of `type` is the mixer's result;
// stores the other part of the states. raw: scratch, as large as `a` in f32; it may be `a` if type is F32.
void gpu_delta(void *a, int type, float *raw, const float *mix, const float *y, size_t stride, const GpuLayer *l,
               const GpuBatch *b, const GpuStates *s, GpuStream stream);

#ifdef __cplusplus
}
#endif

#endif
