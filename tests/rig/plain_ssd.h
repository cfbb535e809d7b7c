// tests/rig/plain_ssd.h: Mamba-2 by its recurrence, in double, for plain_forward.c.
#ifndef QUILL_PLAIN_SSD_H
#define QUILL_PLAIN_SSD_H

#include "tests/rig/plain_file.h"

// The outputs (n, dim) of the mixer for rows x (n, dim), which the caller frees. NULL: the layer has no such mixer.
double *plain_ssd(const Plain *p, int layer, const double *x, int n);

#endif
