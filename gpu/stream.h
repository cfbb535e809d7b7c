// gpu/stream.h: the type of a GPU's stream, which the launches (gpu/launch.h) and the runtime (gpu/rt.h) share.
#ifndef QUILL_STREAM_H
#define QUILL_STREAM_H

typedef void *GpuStream; // a cudaStream_t

#endif
