// batch/jobs.c: see batch/jobs.h.
#define _GNU_SOURCE
#include "batch/jobs.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "answer/candidates.h"
#include "answer/tools.h"
#include "cli/values.h"

// ---- JSON -----------------------------------------------------------------------------------------------------------

static Str str_of_json(const json_t *j) { return (Str){json_string_value(j), json_string_length(j)}; }

// An error as "a text expected, found 3.5", with the value as JSON, at most 100 bytes of it.
static Status unexpected(const char *key, const char *expected, const json_t *found) {
    Buf text = {0};
    jsonio_print(found, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9), &text);
    Status st = status_error(QUILL_USAGE, "%.60s: %s expected, found %.100s%s", key, expected, text.data,
                             text.n > 100 ? "..." : "");
    buf_free(&text);
    return st;
}

// True for null, false, "", [] and {}: such a key has no effect.
static bool asks_nothing(const json_t *j) {
    if (json_is_null(j) || json_is_false(j)) return true;
    if (json_is_string(j)) return json_string_length(j) == 0;
    return (json_is_array(j) && json_array_size(j) == 0) || (json_is_object(j) && json_object_size(j) == 0);
}

static bool is_whole(double v) { return floor(v) == v; } // 3.0 is a whole number, too

static Status read_whole(const char *key, const json_t *j, int least, int most, int *out) {
    char expected[64];
    snprintf(expected, sizeof expected, "a whole number from %d to %d", least, most);
    double value = json_number_value(j);
    if (!json_is_number(j) || value < least || value > most || !is_whole(value)) return unexpected(key, expected, j);
    *out = (int)value;
    return OK;
}

static Status read_flag(const char *key, const json_t *j, bool *out) {
    if (!json_is_boolean(j)) return unexpected(key, "true or false", j);
    *out = json_is_true(j);
    return OK;
}

// ---- messages -------------------------------------------------------------------------------------------------------

// Appends the content of a message to j->message_text: a string, or OpenAI's list of parts, which must be texts.
static Status read_content(Job *j, const json_t *content) {
    if (json_is_string(content)) {
        buf_append(&j->message_text, str_of_json(content).data, str_of_json(content).n);
        return OK;
    }
    if (!json_is_array(content)) return unexpected("content", "a text", content);
    size_t i;
    json_t *part;
    json_array_foreach(content, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, "text");
        if (!type || strcmp(type, "text") != 0 || !json_is_string(text))
            return unexpected("content", "parts of the form {\"type\":\"text\",\"text\":...}", part);
        buf_append(&j->message_text, str_of_json(text).data, str_of_json(text).n);
    }
    return OK;
}

static Status read_role(Job *j, const json_t *role) {
    Str text = json_is_string(role) ? str_of_json(role) : str_of("");
    if (text.n == 0 || text.n > 64 || memchr(text.data, 0, text.n))
        return unexpected("role", "a short text as \"user\"", role ? role : json_null());
    buf_append(&j->roles, text.data, text.n + 1);
    return OK;
}

// Copies the tool calls of an earlier answer for the template. Arguments that are a string of a JSON object become that
// object, as templates expect.
static Status read_calls(const json_t *calls, json_t *more) {
    json_t *list = json_deep_copy(calls), *call;
    size_t i;
    jsonio_put(more, "tool_calls", list);
    if (!json_is_array(list)) return unexpected("tool_calls", "a list of calls", calls);
    json_array_foreach(list, i, call) {
        json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
        if (!json_is_string(json_object_get(function, "name")))
            return unexpected("tool_calls", "{\"function\":{\"name\":...,\"arguments\":...}}", call);
        if (!json_is_string(arguments)) continue;
        json_t *object = jsonio_read(str_of_json(arguments), JSON_ALLOW_NUL, &(json_error_t){0});
        if (json_is_object(object)) jsonio_share(function, "arguments", object);
        json_decref(object);
    }
    return OK;
}

// Reads a key of a message other than role and content, and keeps it for the template.
static Status read_more(const char *key, json_t *value, json_t *more) {
    static const char *const texts[] = {"tool_call_id", "name", "reasoning_content"};
    if (strcmp(key, "tool_calls") == 0) return read_calls(value, more);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (strcmp(key, texts[i]) != 0) continue;
        if (!json_is_string(value)) return unexpected(key, "a text", value);
        jsonio_share(more, key, value);
        return OK;
    }
    return unexpected(key, "\"role\", \"content\", \"tool_calls\", \"tool_call_id\" or \"name\" in a message", value);
}

static Status read_message(Job *j, json_t *m) {
    if (!json_is_object(m)) return unexpected("messages", "{\"role\":...,\"content\":...}", m);
    const char *key;
    json_t *value, *more = json_object();
    jsonio_append(j->more, more);
    json_object_foreach(m, key, value) {
        bool known = strcmp(key, "role") == 0 || strcmp(key, "content") == 0;
        if (!known && !asks_nothing(value)) TRY(read_more(key, value, more));
    }
    json_t *content = json_object_get(m, "content");
    TRY(read_role(j, json_object_get(m, "role")));
    if (json_object_get(more, "tool_calls") && (!content || json_is_null(content))) return OK; // only calls
    return read_content(j, content ? content : json_null());
}

// Appends the texts of all messages to one buffer, and sets the pointers into it when it no longer grows.
static Status read_messages(Job *j, const char *key, json_t *list) {
    if (!json_is_array(list) || json_array_size(list) == 0)
        return unexpected(key, "a list of at least one message", list);
    size_t n = json_array_size(list), *ends = mem_alloc(n * sizeof *ends);
    Status st = OK;
    j->more = json_array();
    for (size_t i = 0; i < n && !st.code; i++) {
        st = read_message(j, json_array_get(list, i));
        ends[i] = j->message_text.n;
    }
    buf_append(&j->message_text, "", 0);
    j->messages = mem_alloc(n * sizeof *j->messages);
    const char *role = j->roles.data;
    for (size_t i = 0, begin = 0; i < n && !st.code; begin = ends[i++]) {
        json_t *more = json_array_get(j->more, i);
        Str text = {j->message_text.data + begin, ends[i] - begin};
        j->messages[i] = (Message){role, text, json_object_size(more) ? more : NULL};
        role += strlen(role) + 1;
    }
    j->n_messages = (int)n;
    free(ends);
    return st;
}

// ---- keys that are not options --------------------------------------------------------------------------------------

static Status read_prompt(Job *j, const char *key, json_t *value) {
    if (!json_is_string(value)) return unexpected(key, "a text", value);
    j->prompt = str_of_json(value);
    return OK;
}

static Status read_chunks(Job *j, const char *key, json_t *value) {
    if (!json_is_array(value) || json_array_size(value) > JOB_MOST_CHUNKS)
        return unexpected(key, "a list of at most 1024 texts", value);
    j->chunks = mem_alloc(json_array_size(value) * sizeof *j->chunks);
    size_t i;
    json_t *one;
    json_array_foreach(value, i, one) {
        if (!json_is_string(one)) return unexpected(key, "texts", one);
        j->chunks[j->n_chunks++] = str_of_json(one);
    }
    return OK;
}

static Status read_stop(Job *j, const char *key, json_t *value) {
    size_t n = json_is_array(value) ? json_array_size(value) : json_is_false(value) ? 0 : 1;
    if (n > JOB_MOST_STOPS) return unexpected(key, "no more than 64 texts", value);
    j->config.n_stop = 0;
    if (n == 0) return OK;
    Buf texts = {0};
    size_t begin[JOB_MOST_STOPS];
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        Str text = json_is_string(one) ? str_of_json(one) : str_of("");
        if (text.n == 0 || text.n > JOB_LONGEST_STOP || memchr(text.data, 0, text.n)) {
            buf_free(&texts);
            return unexpected(key, "texts of 1 to 1024 bytes without a NUL", one);
        }
        begin[i] = texts.n;
        buf_append(&texts, text.data, text.n + 1);
    }
    j->stop_texts = texts.data;
    j->config.stop = mem_alloc((n + 1) * sizeof *j->config.stop);
    for (size_t i = 0; i < n; i++) j->config.stop[i] = texts.data + begin[i];
    j->config.n_stop = (int)n;
    return OK;
}

// {"15043": -100, ...}: adds biases to those of the run. false: none.
static Status read_bias(Job *j, const char *key, json_t *value) {
    SamplerParams *s = &j->config.sampling;
    if (json_is_false(value)) {
        s->n_bias = 0;
        return OK;
    }
    if (!json_is_object(value)) return unexpected(key, "an object of token ids and numbers", value);
    int n = s->n_bias;
    LogitBias *all = mem_alloc(((size_t)n + json_object_size(value)) * sizeof *all);
    if (n) memcpy(all, s->bias, (size_t)n * sizeof *all);
    const char *id_text;
    json_t *bias;
    json_object_foreach(value, id_text, bias) {
        char *end;
        long id = strtol(id_text, &end, 10);
        double b = json_number_value(bias);
        if (*id_text < '0' || *id_text > '9' || *end || id > INT_MAX || !json_is_number(bias) || fabs(b) > 1e6) {
            free(all);
            return unexpected(key, "token ids and numbers from -1e6 to 1e6", value);
        }
        all[n++] = (LogitBias){(int)id, (float)b};
    }
    s->bias = j->bias = all;
    s->n_bias = n;
    return OK;
}

static Status read_logprobs(Job *j, const char *key, json_t *value) {
    if (json_is_false(value)) {
        j->config.logprobs = -1;
        return OK;
    }
    if (!json_is_true(value)) return read_whole(key, value, 0, 1000, &j->config.logprobs);
    if (j->config.logprobs < 0) j->config.logprobs = 0; // top_logprobs may have set a number already
    return OK;
}

static Status read_answers(Job *j, const char *key, json_t *value) {
    return read_whole(key, value, 1, JOB_MOST_ANSWERS, &j->n);
}

// As transformers and vLLM have it: true, false or "never".
static Status read_early_stopping(Job *j, const char *key, json_t *value) {
    const char *word = json_string_value(value);
    bool never = word && strcmp(word, "never") == 0;
    if (!never && !json_is_boolean(value)) return unexpected(key, "true, false or \"never\"", value);
    j->config.early_stopping = never ? "never" : json_is_true(value) ? "true" : "false";
    return OK;
}

static Status read_raw(Job *j, const char *key, json_t *value) { return read_flag(key, value, &j->raw); }

// Accepts and ignores keys that do not affect the answer.
static Status read_nothing(Job *j, const char *key, json_t *value) {
    (void)j;
    (void)key;
    (void)value;
    return OK;
}

// Replaces the form of the run by that of the line, whose value is `value`.
static Status claim_form(Job *j, const char *key, json_t *value) {
    if (j->form_value) return status_error(QUILL_USAGE, "%.60s: one form of the answer expected, found two", key);
    j->config.form = (AnswerForm){0};
    j->form_value = json_incref(value);
    Str text = json_is_string(value) ? str_of_json(value) : (Str){0};
    return text.n && memchr(text.data, 0, text.n) ? unexpected(key, "a text without NUL", value) : OK;
}

// Turns off the form of the run; one of the line stays.
static Status no_form(Job *j) {
    if (!j->form_value) j->config.form = (AnswerForm){0};
    return OK;
}

// A schema may be an object or a string.
static Status read_form(Job *j, const char *key, json_t *value) {
    if (json_is_false(value)) return no_form(j);
    TRY(claim_form(j, key, value));
    bool schema = strcmp(key, "json_schema") == 0;
    if (schema && !json_is_string(value)) jsonio_print(value, JSON_ENCODE_ANY | JSON_COMPACT, &j->form_text);
    const char *text = j->form_text.data ? j->form_text.data : json_string_value(value);
    if (!text) return unexpected(key, schema ? "a schema" : "a text", value);
    *(schema                      ? &j->config.form.schema
      : strcmp(key, "regex") == 0 ? &j->config.form.regex
                                  : &j->config.form.grammar) = text;
    return OK;
}

// A list of strings, or one string with commas as in --choice.
static Status read_choice(Job *j, const char *key, json_t *value) {
    if (json_is_false(value)) return no_form(j);
    TRY(claim_form(j, key, value));
    if (json_is_array(value) && json_array_size(value) == 0) return unexpected(key, "at least one text", value);
    for (size_t i = 0; i < json_array_size(value); i++) {
        Str one = str_of_json(json_array_get(value, i));
        if (one.n == 0 || memchr(one.data, 0, one.n))
            return unexpected(key, "a list of texts that are not empty and have no NUL", value);
        if (i) buf_str(&j->form_text, ",");
        for (size_t k = 0; k < one.n; k++) {
            if (one.data[k] == ',' || one.data[k] == '\\') buf_str(&j->form_text, "\\");
            buf_append(&j->form_text, &one.data[k], 1);
        }
    }
    if (!json_is_array(value) && !json_is_string(value)) return unexpected(key, "a list of texts", value);
    j->config.form = (AnswerForm){.choice = json_is_array(value) ? j->form_text.data : json_string_value(value)};
    return OK;
}

static Status read_object(Job *j, const char *key, json_t *value) {
    bool on = false;
    TRY(read_flag(key, value, &on));
    if (on) TRY(claim_form(j, key, value));
    j->config.form.object = on;
    return OK;
}

// OpenAI's response_format: text, json_object or json_schema.
static Status read_format(Job *j, const char *key, json_t *value) {
    const char *type = json_string_value(json_object_get(value, "type"));
    json_t *schema = json_object_get(json_object_get(value, "json_schema"), "schema");
    if (json_is_false(value) || (type && strcmp(type, "text") == 0)) return no_form(j);
    if (type && strcmp(type, "json_schema") == 0 && schema) return read_form(j, "json_schema", schema);
    if (!type || strcmp(type, "json_object") != 0)
        return unexpected(key, "{\"type\":\"text\"}, json_object, or json_schema with {\"schema\":...}", value);
    TRY(claim_form(j, key, value));
    j->config.form.object = true;
    return OK;
}

static Status read_tools(Job *j, const char *key, json_t *value) {
    if (!json_is_array(value) && !json_is_false(value)) return unexpected(key, "a list of tools", value);
    j->tools.n = 0;
    if (json_array_size(value) == 0) {
        j->config.tools = (AnswerTools){0};
        return OK;
    }
    jsonio_print(value, JSON_COMPACT, &j->tools);
    buf_append(&j->tools, "", 1);
    j->config.tools.file = (OptionFile){0};
    j->config.tools.text = j->tools.data;
    return OK;
}

// auto, none, required, or OpenAI's {"type":"function","function":{"name":...}}. false turns off the command line's.
static Status read_tool_choice(Job *j, const char *key, json_t *value) {
    if (json_is_false(value)) {
        j->config.tools.choice = NULL;
        return OK;
    }
    const char *name = json_string_value(json_object_get(json_object_get(value, "function"), "name"));
    if (json_is_string(value)) name = json_string_value(value);
    if (!name) return unexpected(key, "\"auto\", \"none\", \"required\" or a function's name", value);
    j->tool_choice.n = 0;
    buf_append(&j->tool_choice, name, strlen(name) + 1);
    j->config.tools.choice = j->tool_choice.data;
    return OK;
}

static Status read_option(Job *j, const char *key, json_t *value);

// A kind of search for candidates.
static Status read_search(Job *j, const char *key, json_t *value) {
    if (!json_is_false(value)) return read_option(j, key, value);
    *(strcmp(key, "beams") == 0 ? &j->config.beams : &j->config.best_of) = 0;
    return OK;
}

enum { OURS = 1 << JOB_QUILL, CHAT = 1 << JOB_CHAT, COMPLETION = 1 << JOB_COMPLETION, OPENAI = CHAT | COMPLETION };

// Empty values of a key that are read: they turn off what the command line has turned on, are a prompt, or are wrong.
// The other ones are skipped, and so is null.
enum { OFF = 1 << JSON_FALSE, NO_TEXT = 1 << JSON_STRING, NO_LIST = 1 << JSON_ARRAY, NO_OBJECT = 1 << JSON_OBJECT };

static const struct {
    const char *key;
    unsigned forms; // 1 << JobForm
    unsigned empty; // the empty values that are read
    Status (*read)(Job *j, const char *key, json_t *value);
} own_keys[] = {
    {"prompt", OURS | COMPLETION, NO_TEXT, read_prompt},
    {"messages", OURS | CHAT, OFF | NO_TEXT | NO_LIST | NO_OBJECT, read_messages},
    {"chunks", OURS, 0, read_chunks},
    {"n", OURS | OPENAI, 0, read_answers},
    {"raw", OURS, OFF, read_raw},
    {"early_stopping", OURS | OPENAI, OFF, read_early_stopping},
    {"stop", OURS | OPENAI, OFF | NO_LIST, read_stop},
    {"logit_bias", OURS | OPENAI, OFF, read_bias},
    {"logprobs", OURS | OPENAI, OFF, read_logprobs},
    {"top_logprobs", CHAT, 0, read_logprobs},
    {"id", OURS, 0, read_nothing}, // read by job_parse
    {"model", OPENAI, 0, read_nothing},
    {"user", OPENAI, 0, read_nothing},
    {"metadata", OPENAI, 0, read_nothing},
    {"store", OPENAI, 0, read_nothing},
    {"service_tier", OPENAI, 0, read_nothing},
    {"safety_identifier", OPENAI, 0, read_nothing},
    {"prompt_cache_key", OPENAI, 0, read_nothing},
    {"response_format", OURS | CHAT, OFF, read_format},
    {"json_schema", OURS, OFF | NO_TEXT | NO_OBJECT, read_form},
    {"regex", OURS, OFF | NO_TEXT, read_form},
    {"grammar", OURS, OFF | NO_TEXT, read_form},
    {"choice", OURS, OFF | NO_TEXT | NO_LIST, read_choice},
    {"json_object", OURS, OFF, read_object},
    {"beams", OURS | OPENAI, OFF, read_search},
    {"best_of", OURS | OPENAI, OFF, read_search},
    {"tools", OURS | CHAT, OFF | NO_LIST, read_tools},
    {"tool_choice", OURS | CHAT, OFF, read_tool_choice},
    {"parallel_tool_calls", CHAT, 0, read_nothing},
};

// ---- keys that are options ------------------------------------------------------------------------------------------

// Whether a key of a job may be this option, with a number, true or false.
static bool is_key(const Option *o) {
    return o && cli_job_settable(o) && o->kind != STOPS && o->kind != TEXT && o->kind != TEXT_FILE;
}

static Status unknown_key(const Job *j, const char *key) {
    Nearest nearest = {.word = key};
    char name[32];
    for (size_t i = 0; i < ARRAY_LEN(own_keys); i++)
        if (own_keys[i].forms & 1u << j->form) nearest_try(&nearest, own_keys[i].key);
    for (int i = 0; i < cli_n_options; i++) {
        if (!is_key(&cli_options[i]) || !(cli_options[i].modes & MODE_BIT(BATCH))) continue;
        for (const char *at = cli_options[i].names; (at = cli_next_name(at, name));) {
            for (char *c = name; *c; c++)
                if (*c == '-') *c = '_';
            if (name[1] == '_') nearest_try(&nearest, name + 2);
        }
    }
    const char *meant = nearest_found(&nearest);
    if (meant) return status_error(QUILL_USAGE, "%.60s: no key of a job; did you mean %s?", key, meant);
    return status_error(QUILL_USAGE, "%.60s: quill batch does not support this key; leave it out", key);
}

// Sets an option; a number is written as text, as on a command line.
static Status read_option(Job *j, const char *key, json_t *value) {
    const Option *o = cli_job_option(key);
    if (!is_key(o)) return unknown_key(j, key);
    if (o->kind == FLAG) {
        bool on = false;
        TRY(read_flag(key, value, &on));
        return cli_set_answer(o, key, on ? "on" : "off", &j->config);
    }
    if (!json_is_number(value)) return unexpected(key, "a number", value);
    Buf text = {0};
    double number = json_number_value(value);
    if (fabs(number) < 1e15 && is_whole(number)) buf_printf(&text, "%.0f", number);
    else jsonio_print(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9), &text);
    Status st = cli_set_answer(o, key, text.data, &j->config);
    buf_free(&text);
    return st;
}

static Status read_key(Job *j, const char *key, json_t *value) {
    for (size_t i = 0; i < ARRAY_LEN(own_keys); i++)
        if (strcmp(key, own_keys[i].key) == 0 && own_keys[i].forms & 1u << j->form)
            return own_keys[i].read(j, key, value);
    return read_option(j, key, value);
}

static bool is_read(const char *key, const json_t *value) {
    if (json_is_null(value)) return false;
    if (!asks_nothing(value)) return true;
    for (size_t i = 0; i < ARRAY_LEN(own_keys); i++)
        if (strcmp(key, own_keys[i].key) == 0) return own_keys[i].empty >> json_typeof(value) & 1;
    const Option *o = cli_job_option(key);
    return json_is_false(value) && o && o->kind == FLAG;
}

static bool has(const json_t *body, const char *key) {
    const json_t *value = json_object_get(body, key);
    return value && !asks_nothing(value);
}

// What the line says takes the place of what the run says against it.
static void drop_rivals(Job *j, const json_t *body) {
    if (has(body, "beams") && !has(body, "best_of")) j->config.best_of = 0;
    if (has(body, "best_of") && !has(body, "beams")) j->config.beams = 0;
    if (j->form_value && !has(body, "tools")) j->config.tools = (AnswerTools){0};
    if (has(body, "tools")) no_form(j);
    else if (j->raw) j->config.tools = (AnswerTools){0}; // the template writes the tools
    if (!tools_given(&j->config.tools) && !has(body, "tool_choice")) j->config.tools.choice = NULL;
}

static Status read_body(Job *j, json_t *body) {
    const char *key;
    json_t *value;
    const json_t *given = json_object_get(body, "messages");
    bool prompt = json_is_string(json_object_get(body, "prompt")), messages = given && !json_is_null(given);
    json_object_foreach(body, key, value) {
        if (is_read(key, value)) TRY(read_key(j, key, value));
    }
    drop_rivals(j, body);
    if (prompt == messages)
        return status_error(QUILL_USAGE, "\"%s\" expected, found %s",
                            j->form == JOB_CHAT         ? "messages"
                            : j->form == JOB_COMPLETION ? "prompt"
                                                        : "prompt\" or \"messages",
                            prompt ? "both prompt and messages" : "none");
    return candidates_check(&j->config, j->n, j->n_chunks, false);
}

// ---- the line -------------------------------------------------------------------------------------------------------

static bool is_id(const json_t *j) { return json_is_string(j) || json_is_integer(j); }

static Status read_openai(Job *j) {
    json_t *url = json_object_get(j->root, "url"), *body = json_object_get(j->root, "body");
    const char *path = json_string_value(url);
    if (!json_is_object(body)) return unexpected("body", "an object", body ? body : json_null());
    if (!path) path = json_object_get(body, "messages") ? "/v1/chat/completions" : "/v1/completions";
    if (strcmp(path, "/v1/chat/completions") == 0) j->form = JOB_CHAT;
    else if (strcmp(path, "/v1/completions") == 0) j->form = JOB_COMPLETION;
    else return unexpected("url", "/v1/chat/completions or /v1/completions", url);
    j->raw = j->form == JOB_COMPLETION;
    return read_body(j, body);
}

// A line that cancels jobs. It may also have an id, but no other key: a job in it would not be answered.
static Status read_cancel(Job *j, json_t *cancel) {
    const char *key;
    json_t *value;
    if (!is_id(cancel)) return unexpected("cancel", "the id of a job", cancel);
    json_object_foreach(j->root, key, value) {
        if (strcmp(key, "cancel") != 0 && strcmp(key, "id") != 0)
            return status_error(QUILL_USAGE, "nothing beside \"cancel\" expected, found \"%.100s\"", key);
    }
    j->cancel = json_incref(cancel);
    return OK;
}

static Status read_line(Job *j) {
    json_t *custom = json_object_get(j->root, "custom_id"), *own = json_object_get(j->root, "id");
    json_t *id = custom ? custom : own, *cancel = json_object_get(j->root, "cancel");
    bool openai = custom || json_object_get(j->root, "body");
    if (openai) j->form = JOB_CHAT;
    if (is_id(id)) j->id = json_incref(id);
    else if (id && !json_is_null(id)) return unexpected(custom ? "custom_id" : "id", "a text or a whole number", id);
    if (cancel) return read_cancel(j, cancel);
    return openai ? read_openai(j) : read_body(j, j->root);
}

Status job_parse(Str line, const AnswerConfig *defaults, Job *out) {
    *out = (Job){.n = 1, .raw = defaults->raw, .config = *defaults};
    out->config.seed_given = false;
    json_error_t error;
    out->root = jsonio_read(line, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!out->root)
        return status_error(QUILL_USAGE, "a JSON object expected; column %d: %.100s", error.column, error.text);
    if (!json_is_object(out->root)) return unexpected("line", "a JSON object", out->root);
    return read_line(out);
}

void job_forget_text(Job *j) {
    json_decref(j->root);
    free(j->messages);
    free(j->chunks);
    buf_free(&j->roles);
    buf_free(&j->message_text);
    json_decref(j->more);
    j->root = j->more = NULL;
    j->messages = NULL;
    j->chunks = NULL;
    j->prompt = (Str){0};
}

void job_free(Job *j) {
    job_forget_text(j);
    json_decref(j->id);
    json_decref(j->cancel);
    json_decref(j->form_value);
    buf_free(&j->form_text);
    buf_free(&j->tools);
    buf_free(&j->tool_choice);
    if (j->stop_texts) free(j->config.stop);
    free(j->stop_texts);
    free(j->bias);
    *j = (Job){0};
}
