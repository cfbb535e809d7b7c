// look/look.h: the modes that examine a model: its file, its tokens, its chat template, its logits, its perplexity.
#ifndef QUILL_LOOK_H
#define QUILL_LOOK_H

#include "cli/options.h"

Status look_inspect(const Options *o);
Status look_tokenize(const Options *o);
Status look_template(const Options *o);
Status look_logits(const Options *o);
Status look_perplexity(const Options *o);

#endif
