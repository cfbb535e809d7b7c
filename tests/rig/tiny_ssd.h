// tests/rig/tiny_ssd.h: the tensors of a Mamba-2 layer, for tiny_model.c.
#ifndef QUILL_TINY_SSD_H
#define QUILL_TINY_SSD_H

#include "tests/rig/tiny_model.h"

void tiny_ssd(Gguf *g, const TinyModel *m, int layer, uint64_t *random);

#endif
