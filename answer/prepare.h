// answer/prepare.h: prepares an answer: its sampling parameters, and its prompt as text and tokens.
#ifndef QUILL_PREPARE_H
#define QUILL_PREPARE_H

#include "answer/answer_config.h"
#include "answer/saved.h"
#include "engine.h"

// The sampling parameters for this model. --ignore-eos and the tokens that the model's file suppresses become logit
// biases. The caller frees *bias after the request. QUILL_USAGE: --logit-bias has a token id that the model does not
// have.
Status answer_sampling(const Engine *e, const AnswerConfig *config, SamplerParams *out, LogitBias **bias);
// Renders the messages and the tools of the configuration. template NULL: joins the texts of the messages. answer: as
// chat_template_render. QUILL_USAGE: wrong tools, or a template without a known format of calls.
Status answer_render(const AnswerConfig *config, const ChatTemplate *template, const Message *messages, int n,
                     bool answer, Rendered *text);
// QUILL_CONTEXT: n_prompt tokens do not fit into the context; the message suggests a -c that is large enough.
Status answer_fits(const Engine *e, const AnswerConfig *config, int n_prompt);
// The system message and the saved conversation of the configuration, then the prompt. Free *out with saved_talk_free,
// also after an error. Errors as prompt_system and saved_prompt.
Status answer_messages(const Engine *e, const AnswerConfig *config, const ChatTemplate *template, Str prompt,
                       SavedTalk *out);
// Renders the messages as a prompt and appends its tokens to `seq`. Errors as answer_render; QUILL_CONTEXT: it does not
// fit.
Status answer_push(const Engine *e, const AnswerConfig *config, const ChatTemplate *template, const Message *messages,
                   int n_messages, Rendered *text, Sequence *seq);
// Both for one prompt. Errors as answer_messages and answer_push.
Status answer_prepare(const Engine *e, const AnswerConfig *config, Str prompt, const ChatTemplate *template,
                      Rendered *text, Sequence *seq);
// --dump-prompt and --dump-tokens, to stderr: the rendered text, and its n tokens.
void answer_dump(const Engine *e, const AnswerConfig *config, const Rendered *text, const int *ids, int n);

#endif
