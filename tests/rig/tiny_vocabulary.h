// tests/rig/tiny_vocabulary.h: the vocabulary and the chat template of a small random model (tests/rig/tiny_model.h).
#ifndef QUILL_TINY_VOCABULARY_H
#define QUILL_TINY_VOCABULARY_H

#include "tests/rig/tiny_model.h"

void tiny_vocabulary(Gguf *g, const TinyModel *m);

#endif
