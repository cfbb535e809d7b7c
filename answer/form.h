// answer/form.h: the form that a user asks of an answer, as a constraint on a request: --json-schema, --regex and their
// like, and calls of tools.
#ifndef QUILL_FORM_H
#define QUILL_FORM_H

#include "answer/answer_config.h"
#include "answer/chat_template.h"
#include "engine.h"

// What an answer begins with: its prompt as it was rendered. `fresh` as in answer_start.
typedef struct {
    const AnswerConfig *config;
    const ChatTemplate *template; // NULL: raw text
    Str prompt;
    bool fresh;
} FormSetup;

// Sets r->constraint; NULL: any text will do. The form is that of what is said: thoughts and the marks of the model's
// family (answer/think.h) come besides. QUILL_USAGE: two forms at once, or what is wrong with one or with the tools;
// QUILL_IO: a file. form_drop gives it back.
Status form_constrain(Engine *e, const FormSetup *setup, Request *r);
void form_drop(Engine *e, Request *r);
Status form_check(const AnswerForm *form); // QUILL_USAGE: two forms at once

// When the request's tokens have come to an end, or go on as part of another prompt (a chat that leaves turns out).
void form_settle(Request *r);

// After the request has finished and form_settle: whether its answer is complete. QUILL_CUT: it was cut; the message
// says what was missing. An answer that a user interrupted is left as it is.
Status form_complete(const Request *r);

#endif
