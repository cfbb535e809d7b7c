// template.h: what a model's chat template adds to ChatML, found by reading its Jinja source without running it.
//
// Looked at is what a conversation without tools would get: text outside of all blocks and the string literals of
// {{ }} and {% set %}. Macros, comments, and branches whose condition speaks of tools or enable_thinking are left out.
#ifndef QUILL_TEMPLATE_H
#define QUILL_TEMPLATE_H

#include "util.h"

#define IM_START "<|im_start|>"
#define IM_END "<|im_end|>"

// True: the template is ChatML, with at most a system message for conversations that begin with none; `system` gets
// its text, and system->data stays NULL where there is none. False: `why` names what else would be in the prompt.
bool template_is_chatml(Str source, Buf *system, char why[80]);

#endif
