// policy/plain.h: plain decoding as a policy: no drafts, and one token from the logits of the last row.
//
// Its accept serves drafts too, so that speculation needs no accept of its own: it draws from one row after the other,
// as plain decoding would, for as long as the token drawn is the one that the next row was computed for. The random
// numbers are keyed by the position, so that the text is the same with any drafts and without.
#ifndef QUILL_PLAIN_H
#define QUILL_PLAIN_H

#include "policy/policy.h"

extern const Policy plain_policy;

#endif
