// kv/kvfile.h: a sequence's tokens and KV cache as a file: a loaded conversation continues without a new prefill.
//
// A file does not depend on blocks or layout: a contiguous cache's file loads into a paged one and back, bit for bit.
// It carries the fingerprints of what decides the numbers; a file with other fingerprints is refused. The bytes:
// kv/kvframes.h.
#ifndef QUILL_KVFILE_H
#define QUILL_KVFILE_H

#include "engine.h"
#include "kv/kvframes.h"

// Writes all tokens of s and the K and V of its n_cached slots through a temporary file (base/tempfile.h): after an
// error `path` is unchanged. QUILL_IO; QUILL_USAGE: slots were given up, or K and V are those of blended chunks. Saving
// and loading are not allowed between kvcache_reserve and the step that makes its copies.
Status kvfile_save(const char *path, const Engine *e, const Sequence *s);

// Fills the empty sequence s: tokens, blocks, K and V, n_cached. After an error s is empty and the cache as it was.
// QUILL_MODEL: another model, tokenizer, RoPE or KV type, a damaged or cut file. QUILL_MEMORY: more tokens than the
// context, or no block free. QUILL_IO: the system refuses.
Status kvfile_load(const char *path, Engine *e, Sequence *s);
// The same from an open file or pipe, which must end with the last frame. *has_logits: the logits after the last token
// were in the stream and are in `logits` (n_vocab).
Status kvfile_receive(int fd, const char *name, Engine *e, Sequence *s, float *logits, bool *has_logits);

// ---- a stream that is written while the prompt is computed ----------------------------------------------------------
// The bytes do not depend on the sizes of the steps. After QUILL_IO the stream is incomplete.

Status kvfile_begin(KvWriter *w, const Engine *e, const Sequence *s, int n_slots); // n_slots will be sent
Status kvfile_send(KvWriter *w, const Engine *e, const Sequence *s); // the chunks completed since the last call
Status kvfile_end(KvWriter *w, const Engine *e, const Sequence *s,
                  const float *logits); // after the last slot; NULL: none

#endif
