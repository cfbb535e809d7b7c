// answer/form.h: constrains a request to the form that a user asks for: --json-schema, --regex and the like, or calls
// of tools.
#ifndef QUILL_FORM_H
#define QUILL_FORM_H

#include "answer/answer_setup.h"
#include "engine.h"

// Sets r->constraint; NULL: any text is allowed. The form applies to the answer without its thoughts; thoughts and the
// markers of the model family (answer/think.h) remain allowed around it. QUILL_USAGE: two forms, a wrong form, or wrong
// tools. Release the constraint with form_drop.
Status form_constrain(Engine *e, const AnswerSetup *setup, Request *r);
void form_drop(Engine *e, Request *r);

// Advances the constraint over all tokens generated so far, without their last n_cut bytes (answer_n_cut). Call it when
// the request has finished, or before its tokens become part of another prompt (a chat that drops turns).
void form_settle(Request *r, size_t n_cut);

// After form_settle of a finished request. QUILL_CUT: the answer was cut before its form was complete; the message says
// what is missing. An answer that the user interrupted is OK.
Status form_complete(const Request *r);

#endif
