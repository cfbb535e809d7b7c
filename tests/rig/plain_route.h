// tests/rig/plain_route.h: how a row chooses its experts, for plain_forward.c.
#ifndef QUILL_PLAIN_ROUTE_H
#define QUILL_PLAIN_ROUTE_H

#include "tests/rig/plain_file.h"

// Computes the weights (n) of a row's experts from the router's outputs; 0: the row does not use the expert.
void plain_route(const Plain *p, int layer, const double *logits, int n, double *weight);

#endif
