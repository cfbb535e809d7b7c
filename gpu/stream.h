// gpu/stream.h: the type of a GPU stream, shared by gpu/launch.h and gpu/rt.h.
#ifndef QUILL_STREAM_H
#define QUILL_STREAM_H

typedef void *GpuStream; // a cudaStream_t

#endif
