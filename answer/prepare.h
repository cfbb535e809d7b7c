// answer/prepare.h: what an answer needs before its first token: sampling parameters, and a prompt that fits.
#ifndef QUILL_PREPARE_H
#define QUILL_PREPARE_H

#include "answer/answer_config.h"
#include "answer/chat_template.h"
#include "engine.h"

// The sampling options for this model: ids checked, --ignore-eos turned into biases. bias is the caller's to free.
Status answer_sampling(const Engine *e, const AnswerConfig *config, SamplerParams *out, LogitBias **bias);
// The messages, and the tools of the configuration, as the model wants them (template NULL: their bare texts).
// QUILL_USAGE: what is wrong with the tools, or that the template cannot show them.
Status answer_render(const AnswerConfig *config, const ChatTemplate *template, const Message *messages, int n,
                     bool answer, Rendered *text);
// The messages as the model wants them (template NULL: their bare texts), as text and in tokens. QUILL_CONTEXT: they do
// not fit. `ids` is the caller's to free.
Status answer_prompt(const Engine *e, const AnswerConfig *config, const ChatTemplate *template, const Message *messages,
                     int n_messages, Rendered *text, int **ids, int *n);
// QUILL_CONTEXT if n_prompt tokens do not fit, with the -c that does.
Status answer_fits(const Engine *e, const AnswerConfig *config, int n_prompt);
// The prompt as the model wants it, as text and in seq's tokens. Errors as chat_template_render's,
// chat_template_encode's, answer_fits's.
Status answer_prepare(const Engine *e, const AnswerConfig *config, Str prompt, const ChatTemplate *template,
                      Rendered *text, Sequence *seq);
// --dump-prompt and --dump-tokens, to stderr: the rendered text, and its n tokens.
void answer_dump(const Engine *e, const AnswerConfig *config, const Rendered *text, const int *ids, int n);

#endif
