// look/text.h: reads the text of a mode and encodes it, for tokenize, logits and perplexity.
#ifndef QUILL_LOOK_TEXT_H
#define QUILL_LOOK_TEXT_H

#include "cli/options.h"
#include "tokenizer.h"

// Reads the mode's text and encodes it; the caller frees *ids. add_bos as in chat_template_encode. QUILL_USAGE: there
// is no text.
Status look_text_tokens(const Options *o, const Tokenizer *t, bool add_bos, int **ids, int *n);

#endif
