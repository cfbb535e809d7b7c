// answer/chat_template.h: a conversation as the text that a model was trained on: its chat template, run over the
// messages (jinja/jinja.h).
//
// Every byte of the text is marked: only what the template itself writes is trusted to hold control tokens, so that a
// user who types <|im_end|> has typed text.
#ifndef QUILL_CHAT_TEMPLATE_H
#define QUILL_CHAT_TEMPLATE_H

#include <jansson.h>

#include "answer/answer_config.h"
#include "files/gguf.h"
#include "jinja/jinja.h"
#include "tokenizer.h"

typedef struct ChatTemplate ChatTemplate; // NULL: raw text

typedef struct {
    const char *role;   // "system", "user", "assistant"
    Str text;           // the caller's
    const json_t *more; // an object of other keys ("tool_calls"), the caller's; NULL: none
} Message;

typedef struct {
    Buf text;
    Buf trusted; // (text.n) 1 where control tokens may be recognised
} Rendered;

// The template for this model and configuration; NULL without an error: raw text. QUILL_USAGE: no built-in template of
// that name. QUILL_MODEL: it cannot be parsed, or --chat or a system message without one. QUILL_IO: its file.
Status chat_template_choose(const Gguf *g, const Tokenizer *t, const AnswerConfig *config, ChatTemplate **out);
void chat_template_free(ChatTemplate *c); // NULL is fine
// "none (raw text)", "the model's own", the name of a built-in one, or a path.
const char *chat_template_name(const ChatTemplate *c);
Str chat_template_source(const ChatTemplate *c); // Jinja; NULL: empty

// Renders the messages and, if `answer`, the beginning of the assistant's next one. NULL joins the bare texts. Start
// from (Rendered){0}; call rendered_free. tools: the list that the template is given (answer/tools.h), NULL: none.
// QUILL_MODEL: the template refuses this conversation; its words are in the message.
Status chat_template_render(const ChatTemplate *c, const Message *messages, int n, const json_t *tools, bool answer,
                            Rendered *out);
void rendered_add(Rendered *r, const char *bytes, size_t n, bool trusted);
void rendered_free(Rendered *r);

// Encodes rendered text. add_bos: a prompt, which has the beginning token in front if the model wants one and the text
// does not have it, and which must not be empty (QUILL_USAGE). QUILL_CONTEXT: more text than an int can count. `out` is
// the caller's to free.
Status chat_template_encode(const Tokenizer *t, const Rendered *r, bool add_bos, int **out, int *n);

// ---- the parts, for `quill template` --------------------------------------------------------------------------------

// A template from its source. `where` and `name` are copied; bos and eos are what bos_token and eos_token say.
Status chat_template_open(const char *where, const char *name, Str source, Str bos, Str eos, ChatTemplate **out);
// The template that the configuration names; *out stays NULL if it names none.
Status chat_template_from_config(const AnswerConfig *config, Str bos, Str eos, ChatTemplate **out);

Heap *chat_template_heap(size_t n_input); // with the room and steps that so much input may need
// What every template gets: a dict without messages.
Value chat_template_variables(const ChatTemplate *c, Heap *h, bool answer);
Value chat_template_value(Heap *h, const json_t *j); // JSON, whose texts are not trusted but for roles
bool chat_template_is_role(Str role);                // a role that templates make control tokens of
Status chat_template_run(const ChatTemplate *c, Heap *h, Value variables, const struct tm *now, Rendered *out);

#endif
