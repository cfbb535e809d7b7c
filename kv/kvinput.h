// kv/kvinput.h: a KV file or a block of --kv-dir that a verb of `quill kv` reads.
//
//   KvInput in;
//   Status st = kvinput_open(&in, path);
//   if (!st.code) ...; // in.r.s.head is the header; the tokens come next
//   kvinput_close(&in); // after an error of kvinput_open, too
#ifndef QUILL_KVINPUT_H
#define QUILL_KVINPUT_H

#include "kv/kvframes.h"

typedef struct {
    int fd;        // kvinput_close closes it, unless it is stdin
    KvReader r;    // refers to fd: the struct must stay where it is
    bool is_block; // a block of --kv-dir
    KvLink link;   // the block's place
} KvInput;

// Reads up to the tokens: the header, and the link of a block. "-" is stdin; another path must live as long as `in`.
// QUILL_IO: cannot be opened; the errors of kv/kvframes.h.
Status kvinput_open(KvInput *in, const char *path);
void kvinput_close(KvInput *in);

// Reads all remaining rows, which verifies their checksums.
Status kvinput_skip_rows(KvReader *r);
// The same for the states of recurrent layers, which follow the rows.
Status kvinput_skip_states(KvReader *r);

bool kvinput_same_shape(KvLayerShape a, KvLayerShape b);
void kvinput_print_name(Buf *out, const uint8_t name[32]); // appends a block's name in hexadecimal digits

#endif
