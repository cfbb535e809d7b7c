// tests/rig/kv_bytes.h: the bytes of a KV file: finds its frames, and corrects their checksums after a change.
//
// Written from docs/kv-format.md and not from kv/kvframes.c, so that the two are compared.
#ifndef QUILL_KV_BYTES_H
#define QUILL_KV_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xxhash.h>

enum { KV_BYTES_START = 12, KV_BYTES_HEAD = 20 }; // offset of the first frame; offset of the header's fields

// Bytes of the frame at `at`; 0: there is none, or it is cut.
static inline size_t kv_frame_bytes(const uint8_t *file, size_t n, size_t at) {
    uint32_t length;
    if (at > n || n - at < 16) return 0;
    memcpy(&length, file + at + 4, 4);
    return n - at - 16 < length ? 0 : (size_t)length + 16;
}

// Corrects the checksum of every complete frame.
static inline void kv_mend(uint8_t *file, size_t n) {
    uint64_t check = 0;
    for (size_t at = KV_BYTES_START, size; (size = kv_frame_bytes(file, n, at)) > 0; at += size) {
        check = XXH3_64bits_withSeed(file + at, size - 8, check);
        memcpy(file + at + size - 8, &check, 8);
    }
}

#endif
