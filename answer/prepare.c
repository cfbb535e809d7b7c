// answer/prepare.c: see answer/prepare.h.
#include "answer/prepare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer/call_format.h"
#include "answer/prompt.h"
#include "term/screen.h"

Status answer_sampling(const Engine *e, const AnswerConfig *config, SamplerParams *out, LogitBias **bias) {
    *out = config->sampling;
    *bias = NULL;
    for (int i = 0; i < config->sampling.n_bias; i++)
        if (config->sampling.bias[i].id >= e->model.c.n_vocab)
            return status_error(QUILL_USAGE, "--logit-bias: a token id below %d expected, found %d", e->model.c.n_vocab,
                                config->sampling.bias[i].id);
    int n_ends = config->ignore_eos ? tokenizer_eog_ids(e->tok, NULL, 0) : 0, n = config->sampling.n_bias;
    int n_never = n_ends + tokenizer_suppressed_ids(e->tok, NULL, 0);
    if (n_never == 0) return OK;
    int *ids = mem_alloc((size_t)n_never * sizeof *ids);
    tokenizer_eog_ids(e->tok, ids, n_ends);
    tokenizer_suppressed_ids(e->tok, ids + n_ends, n_never - n_ends);
    LogitBias *all = mem_alloc((size_t)(n + n_never) * sizeof *all);
    if (n) memcpy(all, config->sampling.bias, (size_t)n * sizeof *all);
    for (int i = 0; i < n_never; i++) all[n + i] = (LogitBias){ids[i], -INFINITY};
    free(ids);
    out->bias = *bias = all;
    out->n_bias = n + n_never;
    return OK;
}

Status answer_fits(const Engine *e, const AnswerConfig *config, int n_prompt) {
    if (n_prompt <= e->shape.n_ctx || engine_endless(e)) return OK;
    char advice[CONTEXT_ADVICE];
    engine_context_advice(e, n_prompt, int_max(0, config->predict), advice);
    return status_error(QUILL_CONTEXT, "the prompt has %d tokens, the context %d; shorten the prompt%s", n_prompt,
                        e->shape.n_ctx, advice);
}

void answer_dump(const Engine *e, const AnswerConfig *config, const Rendered *text, const int *ids, int n) {
    if (config->dump_prompt) { // also text of the model's template
        Buf shown = {0};
        screen_whole(STDERR_FILENO, str_of_buf(&text->text), &shown);
        buf_str(&shown, "\n");
        fwrite(shown.data, 1, shown.n, stderr);
        buf_free(&shown);
    }
    for (int i = 0; config->dump_tokens && i < n; i++) {
        Buf line = {0};
        Str piece = tokenizer_piece(e->tok, ids[i]);
        utf8_escape(&line, piece.data, piece.n);
        fprintf(stderr, "%d\t%s\n", ids[i], line.data);
        buf_free(&line);
    }
}

// QUILL_USAGE: the template has no known format of calls.
static Status check_tools(const ChatTemplate *template) {
    Buf names = {0};
    if (call_format_find(chat_template_source(template, true))) return OK;
    call_format_names(&names);
    Status st =
        status_error(QUILL_USAGE, "--tools: a chat template that shows how calls are written expected (%s), found %s",
                     names.data, chat_template_name(chat_template_for(template, true)));
    buf_free(&names);
    return st;
}

Status answer_render(const AnswerConfig *config, const ChatTemplate *template, const Message *messages, int n,
                     bool answer, Rendered *text) {
    Tools tools;
    Status st = tools_read(&config->tools, &tools);
    if (!st.code && tools.json) st = check_tools(template);
    if (!st.code) st = chat_template_render(template, messages, n, tools.json, answer, text);
    if (!st.code && !template && config->parse_special && text->text.n) memset(text->trusted.data, 1, text->text.n);
    tools_free(&tools);
    return st;
}

Status answer_messages(const Engine *e, const AnswerConfig *config, const ChatTemplate *template, Str prompt,
                       SavedTalk *out) {
    Buf system = {0};
    *out = (SavedTalk){0};
    Status st = prompt_system(config, template, &system);
    if (!st.code) st = saved_prompt(config, gguf_name(e->gguf), !template, str_of_buf(&system), prompt, out);
    buf_free(&system);
    return st;
}

Status answer_push(const Engine *e, const AnswerConfig *config, const ChatTemplate *template, const Message *messages,
                   int n_messages, Rendered *text, Sequence *seq) {
    int *ids, n;
    TRY(answer_render(config, template, messages, n_messages, true, text));
    TRY(chat_template_encode(e->tok, text, true, &ids, &n));
    answer_dump(e, config, text, ids, n);
    Status st = answer_fits(e, config, n);
    if (!st.code) sequence_push(seq, ids, n);
    free(ids);
    return st;
}

Status answer_prepare(const Engine *e, const AnswerConfig *config, Str prompt, const ChatTemplate *template,
                      Rendered *text, Sequence *seq) {
    SavedTalk talk;
    Status st = answer_messages(e, config, template, prompt, &talk);
    if (!st.code) st = answer_push(e, config, template, talk.messages.at, talk.messages.n, text, seq);
    saved_talk_free(&talk);
    return st;
}
