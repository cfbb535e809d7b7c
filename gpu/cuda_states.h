// gpu/cuda_states.h: the states of recurrent layers in the GPU's memory, and which of them a batch reads and writes.
//
// StatePool.device has the states of the device's recurrent layers, (n_states, n_device, floats). A batch brings the
// numbers of its states, so that the launches of a step are always the same and a graph can replay them.
#ifndef QUILL_CUDA_STATES_H
#define QUILL_CUDA_STATES_H

#include "gpu/cuda_scratch.h"

// DeviceMemory.states_new, .states_free and .state_move. QUILL_MEMORY: no room
Status cuda_states_new(StatePool *p);
void cuda_states_free(StatePool *p);
void cuda_states_move(const StatePool *p, int state, int layer, float *values, bool store);

// The numbers of a batch's states: how many for `room` padded rows; 0: the model has no such layers. cuda_states_put
// writes them to `host` and sets CudaScratch.states, for numbers that are going to be at `device`.
size_t cuda_states_ints(const Batch *b, size_t room);
void cuda_states_put(CudaScratch *s, const Batch *b, size_t room, int *host, const int *device);

#endif
