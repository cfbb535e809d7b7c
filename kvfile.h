// kvfile.h: a sequence's tokens and KV cache as a file, so that a conversation goes on without computing it again.
//
// What is saved does not know blocks or layout: a contiguous cache's file loads into a paged one and back, bit for bit.
// What decides the numbers goes with it as fingerprints, and nothing loads where they differ. The bytes: kvframes.h.
#ifndef QUILL_KVFILE_H
#define QUILL_KVFILE_H

#include "engine.h"

// Writes s with all its tokens and the K and V of its n_cached slots, by way of PATH.tmp and rename: after an error
// PATH is what it was. QUILL_IO; QUILL_USAGE: quantised KV, or slots that were given up. Not between kv_reserve and the
// step that makes its copies, as for loading.
Status kvfile_save(const char *path, const Engine *e, const Sequence *s);

// Fills the empty sequence s: tokens, blocks, K and V, n_cached. After an error s is empty and the cache as it was.
// QUILL_MODEL: another model, tokenizer, RoPE or KV type, a damaged or cut file. QUILL_MEMORY: more tokens than the
// context, or no block free. QUILL_IO: the system refuses.
Status kvfile_load(const char *path, Engine *e, Sequence *s);

#endif
