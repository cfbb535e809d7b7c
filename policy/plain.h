// policy/plain.h: plain decoding as a policy: no drafts, and one token from the logits of the last row.
//
// Its accept also handles drafts, so that speculation need not: it draws a token from one row after the other, as long
// as the drawn token equals the draft that the next row was computed for. Random numbers are keyed by position, so that
// the text is the same with and without drafts.
#ifndef QUILL_PLAIN_H
#define QUILL_PLAIN_H

#include "policy/policy.h"

extern const Policy plain_policy;

#endif
