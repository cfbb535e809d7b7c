// kv/fingerprint.h: hashes of everything that decides the numbers in a KV cache: model, tokenizer, RoPE, types, shape.
//
// K and V from a file or another run may be used only if all of these are equal. How the hashes are computed:
// docs/kv-format.md.
#ifndef QUILL_FINGERPRINT_H
#define QUILL_FINGERPRINT_H

#include "kv/kvframes.h"
#include "model.h"

// Fills every field except n_tokens and n_slots. Reads up to 1 MiB of each tensor: all of a small model; some tens of
// milliseconds for a large one.
KvHead fingerprint(const Model *m, const KvPool kv[KV_KINDS]);

#endif
