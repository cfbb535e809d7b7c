// chat.h: a conversation as the text that a model was trained on.
//
// One fixed form so far: ChatML, recognised when the model's template and vocabulary both have <|im_start|> and
// <|im_end|>, and nothing else to say but a system message of its own. Every byte of the text is marked: only what the
// form itself adds is trusted to hold control tokens, so that a user who types <|im_end|> has typed text.
#ifndef QUILL_CHAT_H
#define QUILL_CHAT_H

#include "gguf.h"
#include "options.h"
#include "tokenizer.h"

typedef enum { CHAT_RAW, CHAT_CHATML } ChatForm;

typedef struct {
    const char *role; // "system", "user", "assistant"
    Str text;         // the caller's
} Message;

typedef struct {
    Buf text;
    Buf trusted; // (text.n) 1 where control tokens may be recognised
} Rendered;

// The form for this model and these options. `system` (or NULL) gets the system message that the template puts where
// the options give none; its data stays as it was where there is no such. QUILL_MODEL: a template nobody recognises or
// that says more than the form (template.h), or --chat without one.
Status chat_choose(const Gguf *g, const Tokenizer *t, const Options *o, ChatForm *out, Buf *system);
const char *chat_name(ChatForm f); // "none (raw text)", "ChatML"

// Renders the messages and, if `answer`, the beginning of the assistant's next one. CHAT_RAW joins the bare texts.
// Start from (Rendered){0}; call rendered_free.
void chat_render(ChatForm f, const Message *messages, int n, bool answer, Rendered *out);
void rendered_add(Rendered *r, const char *bytes, size_t n, bool trusted);
void rendered_free(Rendered *r);

// Encodes rendered text. add_bos: a prompt, which has the beginning token in front if the model wants one and the text
// does not have it, and which must not be empty (QUILL_USAGE). QUILL_CONTEXT: more text than an int can count. `out` is
// the caller's to free.
Status chat_encode(const Tokenizer *t, const Rendered *r, bool add_bos, int **out, int *n);

#endif
