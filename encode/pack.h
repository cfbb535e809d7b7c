// encode/pack.h: the integers and scales of a fit (encode/fit.h) as the bytes of a block.
#ifndef QUILL_PACK_H
#define QUILL_PACK_H

#include "encode/fit.h"

// The block of a fitted TYPE_ whose first sub-block is number `first` of the result.
void pack_block(int type, const FitResult *fit, int first, void *block);

#endif
