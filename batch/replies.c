// batch/replies.c: see batch/replies.h.
#include "batch/replies.h"

#include <string.h>
#include <time.h>

#include "answer/report.h"

static void put_ms(json_t *object, const char *key, double seconds, bool known) {
    jsonio_put(object, key, known ? jsonio_number(1e3 * seconds, 4) : json_null());
}

// All times begin when the line arrived. queue: until the first row was computed; ttft, latency: until the first and
// the last token. tpot: the mean gap between tokens, over all answers.
static void put_times(json_t *object, const BatchLine *line) {
    const Choices *c = &line->choices;
    const Timeline *first = &c->runs[0].request.time;
    double gaps = 0, seconds = 0;
    for (int i = 0; i < c->n_runs; i++) {
        const Timeline *time = &c->runs[i].request.time;
        seconds += time->last - time->first;
        gaps += time->n_gaps;
    }
    put_ms(object, "queue_ms", first->begun - first->start, first->begun != 0);
    put_ms(object, "ttft_ms", timeline_ttft(first), first->first != 0);
    put_ms(object, "tpot_ms", gaps > 0 ? seconds / gaps : 0, gaps > 0);
    put_ms(object, "latency_ms", line->end - first->start, true);
}

// ---- quill's format -------------------------------------------------------------------------------------------------

// Sets "speculation" as in --json, summed over all answers of the line.
static void put_drafts(const BatchContext *context, const BatchLine *line, json_t *object) {
    DraftCounts all = {0};
    for (int i = 0; i < line->choices.n_runs; i++) draft_counts_add(&all, &line->choices.runs[i].request.drafts);
    report_put_drafts(context->e, &all, object);
}

static json_t *own_reply(const BatchContext *context, const BatchLine *line) {
    json_t *j = json_object(), *usage = json_object();
    if (line->job.id) jsonio_share(j, "id", line->job.id);
    jsonio_put(j, "line", json_integer((json_int_t)line->number));
    const Request *first = &line->choices.runs[0].request;
    if (line->job.n == 1) choices_put(j, &line->choices.choices[0]);
    else jsonio_put(j, "choices", choices_json(&line->choices));
    jsonio_put(usage, "prompt_tokens", json_integer(first->n_prompt));
    jsonio_put(usage, "cached_tokens", json_integer(first->n_reused));
    jsonio_put(usage, "completion_tokens", json_integer(choices_tokens(&line->choices)));
    jsonio_put(j, "usage", usage);
    jsonio_put(j, "seed", json_integer((json_int_t)line->job.config.sampling.seed));
    put_times(j, line);
    put_drafts(context, line, j);
    return j;
}

static json_t *own_error(const BatchLine *line) {
    json_t *j = json_object(), *error = json_object();
    if (line->job.id) jsonio_share(j, "id", line->job.id);
    jsonio_put(j, "line", json_integer((json_int_t)line->number));
    jsonio_put(error, "code", json_integer(line->failed.code));
    jsonio_put(error, "message", jsonio_text(str_of(line->failed.message)));
    jsonio_put(j, "error", error);
    return j;
}

// ---- OpenAI's format ------------------------------------------------------------------------------------------------

// {"token","logprob","bytes"} from a token object of quill's format.
static json_t *chat_token(const json_t *token) {
    json_t *j = json_object();
    jsonio_share(j, "token", json_object_get(token, "piece"));
    jsonio_share(j, "logprob", json_object_get(token, "logprob"));
    jsonio_share(j, "bytes", json_object_get(token, "bytes"));
    return j;
}

static json_t *chat_logprobs(const json_t *tokens) {
    json_t *content = json_array(), *token, *one;
    size_t i, k;
    json_array_foreach(tokens, i, token) {
        json_t *j = chat_token(token), *top = json_array();
        json_array_foreach(json_object_get(token, "top"), k, one) jsonio_append(top, chat_token(one));
        jsonio_put(j, "top_logprobs", top);
        jsonio_append(content, j);
    }
    json_t *j = json_object();
    jsonio_put(j, "content", content);
    return j;
}

// The name of a token in a completion: its piece; if that is not UTF-8 by itself or has a NUL, its bytes in OpenAI's
// notation: "bytes:\\xe2\\x80", where printable ASCII stands for itself.
static json_t *completion_name(const json_t *token) {
    Buf bytes = {0}, name = {0};
    json_t *byte;
    size_t i;
    bool text = true;
    buf_str(&name, "bytes:");
    json_array_foreach(json_object_get(token, "bytes"), i, byte) {
        char b = (char)json_integer_value(byte);
        text = text && b != 0;
        buf_append(&bytes, &b, 1);
        if (b >= ' ' && b <= '~' && b != '\\') buf_append(&name, &b, 1);
        else buf_printf(&name, "\\x%02x", (unsigned char)b);
    }
    for (size_t at = 0; text && at < bytes.n;) {
        int length = utf8_next(bytes.data + at, bytes.n - at);
        text = length > 0;
        at += (size_t)int_max(1, length);
    }
    json_t *out = text ? json_incref(json_object_get(token, "piece")) : jsonio_text(str_of_buf(&name));
    buf_free(&bytes);
    buf_free(&name);
    return out;
}

// {"NAME": logprob, ...} of the likeliest tokens, best first. Of tokens with the same name it has the likeliest.
static json_t *completion_top(const json_t *tokens) {
    json_t *top = json_object(), *one;
    size_t i;
    json_array_foreach(tokens, i, one) {
        json_t *name = completion_name(one);
        const char *key = json_string_value(name);
        if (!json_object_get(top, key)) jsonio_share(top, key, json_object_get(one, "logprob"));
        json_decref(name);
    }
    return top;
}

static json_t *completion_logprobs(const json_t *tokens) {
    json_t *pieces = json_array(), *logprobs = json_array(), *tops = json_array(), *token;
    size_t i;
    json_array_foreach(tokens, i, token) {
        jsonio_append(pieces, completion_name(token));
        jsonio_append(logprobs, json_incref(json_object_get(token, "logprob")));
        jsonio_append(tops, completion_top(json_object_get(token, "top")));
    }
    return json_pack("{s:o, s:o, s:o}", "tokens", pieces, "token_logprobs", logprobs, "top_logprobs", tops);
}

// OpenAI's finish reasons are "stop", "length" and "tool_calls".
static const char *openai_finish(const Choice *c) {
    const char *name = answer_finish_name(c->answer, c->finish, c->cut);
    return strcmp(name, finish_name(FINISH_EOG)) == 0 ? "stop" : name;
}

static json_t *openai_choice(const BatchLine *line, int i) {
    const Choice *choice = &line->choices.choices[i];
    const Answer *a = choice->answer;
    bool chat = line->job.form == JOB_CHAT;
    json_t *j = json_object(), *logprobs = json_null(), *text = jsonio_text(answer_text(a));
    jsonio_put(j, "index", json_integer(i));
    if (chat) {
        json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content", text);
        if (a->show_thoughts && a->thinking.n)
            jsonio_put(message, "reasoning_content", jsonio_text(str_of_buf(&a->thinking)));
        if (a->found) jsonio_share(message, "tool_calls", a->found);
        if (a->found && answer_text(a).n == 0) jsonio_put(message, "content", json_null());
        jsonio_put(j, "message", message);
    } else jsonio_put(j, "text", text);
    if (a->tokens) logprobs = chat ? chat_logprobs(a->tokens) : completion_logprobs(a->tokens);
    jsonio_put(j, "logprobs", logprobs);
    jsonio_put(j, "finish_reason", json_string(openai_finish(choice)));
    return j;
}

static json_t *openai_usage(const BatchLine *line) {
    const Request *first = &line->choices.runs[0].request;
    int n = choices_tokens(&line->choices);
    json_t *j = json_object(), *details = json_object();
    jsonio_put(j, "prompt_tokens", json_integer(first->n_prompt));
    jsonio_put(j, "completion_tokens", json_integer(n));
    jsonio_put(j, "total_tokens", json_integer((json_int_t)first->n_prompt + n));
    jsonio_put(details, "cached_tokens", json_integer(first->n_reused));
    jsonio_put(j, "prompt_tokens_details", details);
    return j;
}

static json_t *scores(const Choices *c) {
    json_t *list = json_array();
    for (int i = 0; i < c->n_choices; i++) jsonio_append(list, jsonio_number(c->choices[i].score, 6));
    return list;
}

static json_t *completes(const Choices *c) {
    json_t *list = json_array();
    for (int i = 0; i < c->n_choices; i++) jsonio_append(list, json_boolean(!c->choices[i].cut));
    return list;
}

static json_t *openai_body(const BatchContext *context, const BatchLine *line) {
    json_t *j = json_object(), *choices = json_array(), *timing = json_object();
    bool chat = line->job.form == JOB_CHAT;
    char id[40];
    snprintf(id, sizeof id, "%s-%lld", chat ? "chatcmpl" : "cmpl", (long long)line->number);
    for (int i = 0; i < line->choices.n_choices; i++) jsonio_append(choices, openai_choice(line, i));
    put_times(timing, line);
    if (line->choices.choices[0].scored) jsonio_put(timing, "scores", scores(&line->choices));
    if (line->choices.runs[0].request.constraint) jsonio_put(timing, "complete", completes(&line->choices));
    put_drafts(context, line, timing);
    jsonio_put(timing, "line", json_integer((json_int_t)line->number));
    jsonio_put(timing, "seed", json_integer((json_int_t)line->job.config.sampling.seed));
    jsonio_put(j, "id", json_string(id));
    jsonio_put(j, "object", json_string(chat ? "chat.completion" : "text_completion"));
    jsonio_put(j, "created", json_integer((json_int_t)time(NULL)));
    jsonio_put(j, "model", jsonio_text(str_of(gguf_name(context->e->gguf))));
    jsonio_put(j, "choices", choices);
    jsonio_put(j, "usage", openai_usage(line));
    jsonio_put(j, "quill", timing);
    return j;
}

// True: quill failed (server_error). False: the line is wrong (invalid_request_error).
static bool is_ours(Status st) { return st.code != QUILL_USAGE && st.code != QUILL_CONTEXT; }

static json_t *openai_failure(const BatchLine *line) {
    json_t *error = json_object(), *j = json_object();
    jsonio_put(error, "message", jsonio_text(str_of(line->failed.message)));
    jsonio_put(error, "type", json_string(is_ours(line->failed) ? "server_error" : "invalid_request_error"));
    jsonio_put(error, "param", json_null());
    jsonio_put(error, "code", json_integer(line->failed.code));
    jsonio_put(j, "error", error);
    return j;
}

static json_t *openai_reply(const BatchContext *context, const BatchLine *line) {
    json_t *j = json_object(), *response = json_null(), *error = json_null();
    char id[40];
    bool failed = line->failed.code != 0;
    snprintf(id, sizeof id, "batch_req_%lld", (long long)line->number);
    if (!failed && choices_was_cut(&line->choices))
        error = json_pack("{s:s, s:s}", "code", "batch_cancelled", "message", "cancelled before its end");
    else {
        response = json_object();
        jsonio_put(response, "status_code", json_integer(!failed ? 200 : is_ours(line->failed) ? 500 : 400));
        jsonio_put(response, "request_id", json_string(id));
        jsonio_put(response, "body", failed ? openai_failure(line) : openai_body(context, line));
    }
    jsonio_put(j, "id", json_string(id));
    jsonio_put(j, "custom_id", line->job.id ? json_incref(line->job.id) : json_null());
    jsonio_put(j, "response", response);
    jsonio_put(j, "error", error);
    return j;
}

void replies_write(const BatchContext *context, const BatchLine *line, Buf *out) {
    bool own = line->job.form == JOB_QUILL;
    jsonio_line(!own                ? openai_reply(context, line)
                : line->failed.code ? own_error(line)
                                    : own_reply(context, line),
                out);
}
