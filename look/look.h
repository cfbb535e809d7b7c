// look/look.h: the modes that look at a model: what its file holds, its tokens, what its chat template renders, its
// logits, its perplexity.
#ifndef QUILL_LOOK_H
#define QUILL_LOOK_H

#include "cli/options.h"

Status inspect_run(const Options *o);  // inspect.c
Status tokenize_run(const Options *o); // look.c
Status template_run(const Options *o); // render.c
Status logits_run(const Options *o);
Status perplexity_run(const Options *o);

#endif
