// answer/form.h: the form that a user asks of an answer, as a constraint on a request: --json-schema, --regex and their
// like.
#ifndef QUILL_FORM_H
#define QUILL_FORM_H

#include "answer/answer_config.h"
#include "engine.h"

// Sets r->constraint; NULL: any text will do. `fresh` as in answer_start. QUILL_USAGE: two forms at once, or what is
// wrong with one; QUILL_IO: its file. form_drop gives it back.
Status form_constrain(Engine *e, const AnswerForm *form, bool fresh, Request *r);
void form_drop(Engine *e, Request *r);
Status form_check(const AnswerForm *form); // QUILL_USAGE: two forms at once

// When the request's tokens have come to an end, or go on as part of another prompt (a chat that leaves turns out).
void form_settle(Request *r);

// After the request has finished and form_settle: whether its answer is complete. QUILL_CUT: it was cut; the message
// says what was missing. An answer that a user interrupted is left as it is.
Status form_complete(const Request *r);

#endif
