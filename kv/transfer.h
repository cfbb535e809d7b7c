// kv/transfer.h: `quill prefill` computes a prompt in one process, `quill decode` answers it in another.
//
// Prefill sends decode a KV stream (kv/kvfile.h) with the logits after the last token. Decode therefore computes no row
// of the prompt, and its answer is byte for byte that of one process with the same kernels, options and seed.
#ifndef QUILL_TRANSFER_H
#define QUILL_TRANSFER_H

#include "cli/options.h"

// Sends each chunk of slots as soon as it is computed. A file appears whole or not at all. If the reader closes the
// pipe, prefill ends without an error. Errors: those of complete_run for prompt and model; QUILL_IO; 128 + a signal's
// number.
Status transfer_prefill(const Options *o);
// Prints nothing until the whole stream has been read and verified. Errors: those of kvfile_receive and complete_run.
Status transfer_decode(const Options *o);

#endif
