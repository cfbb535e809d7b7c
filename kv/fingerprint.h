// kv/fingerprint.h: what decides the numbers in a KV cache: its model, tokenizer, RoPE, types and shape.
//
// Rows from elsewhere (a file, another run) are of use only where all of it is equal. How the numbers are made:
// docs/kv-format.md.
#ifndef QUILL_FINGERPRINT_H
#define QUILL_FINGERPRINT_H

#include "kv/kvframes.h"
#include "model.h"

// Everything but n_tokens and n_slots. Reads up to 1 MiB of every tensor: all of a small model, some
// tens of milliseconds for a large one.
KvHead fingerprint(const Model *m, const KvPool kv[KV_KINDS]);

#endif
