// kv/kvfile.h: saves a sequence's tokens and K and V in a file, and loads them, so that no new prefill is needed.
//
// A file does not depend on blocks or layout: the file of a contiguous cache loads into a paged one and back, bit for
// bit. The file holds the fingerprints of the model, the tokenizer and RoPE; loading refuses a file with other
// fingerprints. The format of the bytes: kv/kvframes.h.
#ifndef QUILL_KVFILE_H
#define QUILL_KVFILE_H

#include "base/tempfile.h"
#include "engine.h"
#include "kv/kvframes.h"

// Writes all tokens of s and the K and V of its n_cached slots through a temporary file (base/tempfile.h): after an
// error `path` is unchanged. QUILL_IO; QUILL_USAGE: slots were evicted, K and V are those of blended chunks, or the
// model has no attention; QUILL_MODEL, QUILL_MEMORY: the device failed. Do not save or load between kvcache_reserve and
// the step that makes its copies.
Status kvfile_save(const char *path, const Engine *e, const Sequence *s);

// Opens `path` to write a KV file: "-" is stdout. QUILL_USAGE: a terminal; the errors of tempfile_open.
Status kvfile_create(const char *path, TempFile *out);

// Fills the empty sequence s: tokens, blocks, K and V, n_cached. After an error s is empty and its blocks are free.
// QUILL_MODEL: another model, tokenizer, RoPE or KV type; a damaged or truncated file. QUILL_CONTEXT: more tokens than
// the context. QUILL_MEMORY: not enough free blocks. QUILL_IO.
Status kvfile_load(const char *path, Engine *e, Sequence *s);
// The same from an open file or pipe, which must end with the last frame. *has_logits: the stream contained the logits
// after the last token; they are copied to `logits` (n_vocab; NULL: not wanted).
Status kvfile_receive(int fd, const char *name, Engine *e, Sequence *s, float *logits, bool *has_logits);

// ---- writing a stream while the prompt is computed ------------------------------------------------------------------
// The bytes do not depend on the sizes of the steps. The errors of kvfile_save, of which kvfile_begin gives
// QUILL_USAGE; after one the stream is incomplete.

Status kvfile_begin(KvWriter *w, const Engine *e, const Sequence *s, int n_slots); // n_slots: slots that will follow
Status kvfile_send(KvWriter *w, const Engine *e, const Sequence *s); // the chunks completed since the last call
Status kvfile_end(KvWriter *w, const Engine *e, const Sequence *s,
                  const float *logits); // after the last slot; NULL: none

#endif
