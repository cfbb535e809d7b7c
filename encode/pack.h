// encode/pack.h: packs the integers and scales of a fit (encode/fit.h) into the bytes of a block.
#ifndef QUILL_PACK_H
#define QUILL_PACK_H

#include "encode/fit.h"

// Writes the block of this TYPE_ whose first sub-block is number `first` of the result.
void pack_block(int type, const FitResult *fit, int first, void *block);

#endif
