// kv/kvfile.h: a sequence's tokens and KV cache as a file, so that a conversation goes on without computing it again.
//
// What is saved does not know blocks or layout: a contiguous cache's file loads into a paged one and back, bit for bit.
// What decides the numbers goes with it as fingerprints, and nothing loads where they differ. The bytes: kvframes.h.
#ifndef QUILL_KVFILE_H
#define QUILL_KVFILE_H

#include "engine.h"
#include "kv/kvframes.h"

// Writes s with all its tokens and the K and V of its n_cached slots, by way of a temporary file (tempfile.h): after an
// error PATH is what it was. QUILL_IO; QUILL_USAGE: slots that were given up. Not between kv_reserve and the step that
// makes its copies, as for loading.
Status kvfile_save(const char *path, const Engine *e, const Sequence *s);

// Fills the empty sequence s: tokens, blocks, K and V, n_cached. After an error s is empty and the cache as it was.
// QUILL_MODEL: another model, tokenizer, RoPE or KV type, a damaged or cut file. QUILL_MEMORY: more tokens than the
// context, or no block free. QUILL_IO: the system refuses.
Status kvfile_load(const char *path, Engine *e, Sequence *s);
// The same from an open file or pipe, which must end where its frames do. *has_logits: those after the last token came
// too, into `logits` (n_vocab).
Status kvfile_receive(int fd, const char *name, Engine *e, Sequence *s, float *logits, bool *has_logits);

// ---- while it is computed -------------------------------------------------------------------------------------------
// The bytes do not depend on how many tokens a step took. QUILL_IO: what was written is no whole stream then.

Status kvfile_begin(KvWriter *w, const Engine *e, const Sequence *s, int n_slots); // of which K and V will be sent
Status kvfile_send(KvWriter *w, const Engine *e, const Sequence *s);               // what has been computed since
Status kvfile_end(KvWriter *w, const Engine *e, const float *logits); // after the last slot; logits NULL: none

#endif
