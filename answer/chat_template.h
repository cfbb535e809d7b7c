// answer/chat_template.h: renders a conversation with the chat template of the model (jinja/jinja.h), in the format
// that the model was trained on.
//
// Each byte of the rendered text is marked as trusted or not. Only text of the template itself is trusted and may form
// control tokens, so <|im_end|> in a user's message stays plain text.
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
    Str text;           // owned by the caller
    const json_t *more; // an object with other keys ("tool_calls"), owned by the caller; NULL: none
} Message;

typedef struct {
    Buf text;
    Buf trusted; // (text.n) 1 for bytes in which control tokens may be recognised
} Rendered;

// Chooses the template of a model and configuration; *out NULL without an error: raw text. QUILL_USAGE: no built-in
// template has that name. QUILL_MODEL: the template cannot be parsed, or --chat or a system message needs one and there
// is none. QUILL_IO: its file; QUILL_CONTEXT: that is too large.
Status chat_template_choose(const Gguf *g, const Tokenizer *t, const AnswerConfig *config, ChatTemplate **out);
void chat_template_free(ChatTemplate *c); // NULL is fine
// "none (raw text)", "the model's own", the name of a built-in one, or a path.
const char *chat_template_name(const ChatTemplate *c);
// The template of conversations with tools or without: a model may have one for each.
const ChatTemplate *chat_template_for(const ChatTemplate *c, bool tools);
Str chat_template_source(const ChatTemplate *c, bool tools); // the Jinja of that template; c NULL: empty

// Appends the rendered messages to `out`. answer: also the beginning of the assistant's next message. c NULL: joins the
// texts of the messages. tools: the list that the template gets (answer/tools.h); NULL: none. Start with (Rendered){0};
// call rendered_free. QUILL_MODEL: the template rejects this conversation; the message has its reason.
Status chat_template_render(const ChatTemplate *c, const Message *messages, int n, const json_t *tools, bool answer,
                            Rendered *out);
void rendered_add(Rendered *r, const char *bytes, size_t n, bool trusted);
void rendered_free(Rendered *r);

// Encodes rendered text. add_bos: the text is a prompt. The BOS token is put in front if the model wants it and the
// text does not begin with it; without any token the prompt is QUILL_USAGE. QUILL_CONTEXT: more text than an int can
// count. The caller frees *out.
Status chat_template_encode(const Tokenizer *t, const Rendered *r, bool add_bos, int **out, int *n);

// ---- the parts, for `quill template` --------------------------------------------------------------------------------

// Parses a template. All texts are copied. where: for messages; name: for --verbose; bos, eos: the values of bos_token
// and eos_token.
Status chat_template_open(const char *where, const char *name, Str source, Str bos, Str eos, ChatTemplate **out);
// The template that the configuration names; *out stays NULL if it names none.
Status chat_template_from_config(const AnswerConfig *config, Str bos, Str eos, ChatTemplate **out);

Heap *chat_template_heap(size_t n_input); // its limits of memory and steps suit n_input bytes of messages
// The variables of every template, except messages: a dict.
Value chat_template_variables(const ChatTemplate *c, Heap *h, bool answer);
Value chat_template_value(Heap *h, const json_t *j); // a value from JSON; its texts are not trusted, except roles
Status chat_template_run(const ChatTemplate *c, Heap *h, Value variables, const struct tm *now, Rendered *out);

#endif
