// look/text.h: a text as tokens, and the logits behind every one of them: what tokenize, logits and perplexity share.
#ifndef QUILL_LOOK_TEXT_H
#define QUILL_LOOK_TEXT_H

#include "cli/options.h"
#include "engine.h"
#include "look/kverror.h"

// Reads the mode's text and encodes it; *ids is the caller's to free. add_bos as in chat_template_encode. QUILL_USAGE:
// there is no text.
Status look_text_tokens(const Options *o, const Tokenizer *t, bool add_bos, int **ids, int *n);

enum { LOOK_SLICE = 32 }; // rows of logits held at once: a vocabulary of 150,000 makes 19 MB of them

// Takes the logits (n, n_vocab) of rows [first, first + n); false: enough.
typedef bool LookSlice(void *arg, const float *logits, int first, int n);

// Computes n tokens from an empty cache, as many rows at a time as the engine takes, and hands over all their logits.
// compare: NULL, or what is compared on the way. The engine was opened with max_out = LOOK_SLICE.
void look_text_logits(Engine *e, const int *ids, int n, KvError *compare, LookSlice *take, void *arg);

#endif
