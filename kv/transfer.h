// kv/transfer.h: a prompt computed in one process and answered in another: `quill prefill` and `quill decode`.
//
// What goes between them is a KV stream (kv/kvfile.h) with the logits after the last token, so that decode computes no
// row of the prompt and its answer is byte for byte that of one process with the same kernels, options and seed.
#ifndef QUILL_TRANSFER_H
#define QUILL_TRANSFER_H

#include "cli/options.h"

// Sends each chunk of slots as soon as it is computed. A file appears whole or not at all; a reader that leaves a pipe
// ends it quietly. Errors of the prompt and the model as complete_run's; QUILL_IO; 128 + a signal's number.
Status transfer_prefill(const Options *o);
// Nothing is printed before the whole stream has been read and found good. Errors as kvfile_receive's and
// complete_run's.
Status transfer_decode(const Options *o);

#endif
