// look/template.c: `quill template`: renders messages given in JSON with a chat template.
#define _GNU_SOURCE
#include "look/look.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer/chat_template.h"
#include "base/jsonio.h"
#include "base/output.h"
#include "engine_file.h"
#include "term/screen.h"

// Parses "2026-01-02T03:04:05" or "2026-01-02"; NULL: the current time.
static Status parse_now(const char *text, struct tm *out) {
    time_t seconds = time(NULL);
    localtime_r(&seconds, out);
    if (!text) return OK;
    *out = (struct tm){.tm_isdst = -1};
    const char *end = strptime(text, "%Y-%m-%d", out);
    if (end && (*end == 'T' || *end == ' ')) end = strptime(end + 1, "%H:%M:%S", out);
    if (!end || *end)
        return status_error(QUILL_USAGE, "--now: a time as 2026-01-02T03:04:05 expected, found \"%.100s\"", text);
    int day = out->tm_mday;
    mktime(out); // sets the day of the week, and makes 30 February 2 March
    if (out->tm_mday == day) return OK;
    return status_error(QUILL_USAGE, "--now: a day of the calendar expected, found \"%.100s\"", text);
}

// Opens the template of the options, or that of the model.
static Status open_template(const Options *o, ChatTemplate **out) {
    bool own = !o->answer.chat_template && !o->answer.chat_template_file;
    Gguf *g = NULL;
    Tokenizer *t = NULL;
    if (own || o->engine.model) {
        TRY(engine_file_open(&o->engine, &g));
        Status st = engine_file_tokenizer(g, &t);
        if (!st.code) st = chat_template_choose(g, t, &o->answer, out);
        if (!st.code && !*out)
            st = status_error(QUILL_MODEL,
                              "%s: key tokenizer.chat_template: a template expected, found none; --chat-template and "
                              "--chat-template-file give one",
                              gguf_name(g));
        tokenizer_free(t);
        gguf_close(g);
        return st;
    }
    return chat_template_from_config(&o->answer, (Str){"", 0}, (Str){"", 0}, out);
}

static void set_text(Heap *h, Value variables, const char *name, const char *text) {
    if (text) dict_set_str(h, variables.dict, name, value_string(h, str_of(text), true));
}

// Whether this is a list of objects.
static bool are_messages(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_object(json_array_get(list, i))) return false;
    return json_is_array(list);
}

// Renders the input: the keys of an object become variables of the template; an array is the variable `messages`.
static Status render(const ChatTemplate *c, const Options *o, const json_t *input, size_t n_input, Rendered *out) {
    struct tm now;
    TRY(parse_now(o->look.now, &now));
    Heap *h = chat_template_heap(n_input);
    Value variables = chat_template_variables(c, h, !o->look.no_generation_prompt),
          given = chat_template_value(h, input);
    set_text(h, variables, "bos_token", o->look.bos);
    set_text(h, variables, "eos_token", o->look.eos);
    if (json_is_array(input)) dict_set_str(h, variables.dict, "messages", given);
    for (size_t i = 0; json_is_object(input) && !h->failed.code && i < given.dict->n; i++)
        dict_set(h, variables.dict, given.dict->keys[i], given.dict->values[i]);
    c = chat_template_for(c, json_array_size(json_object_get(input, "tools")) > 0);
    Status st = h->failed.code ? h->failed : chat_template_run(c, h, variables, &now, out);
    heap_free(h);
    return st;
}

static Status read_messages(const Options *o, json_t **out, size_t *n) {
    Buf text = {0};
    json_error_t error;
    *out = NULL;
    if (!o->input && isatty(STDIN_FILENO))
        return status_error(QUILL_USAGE,
                            "quill template: messages in JSON on stdin or -f FILE expected, found a terminal");
    Status st = file_read(o->input ? o->input : "-", &text);
    *n = text.n;
    if (!st.code) {
        *out = jsonio_read(str_of_buf(&text), JSON_ALLOW_NUL, &error);
        const json_t *messages = json_is_array(*out) ? *out : json_object_get(*out, "messages");
        const char *name = o->input && strcmp(o->input, "-") ? o->input : "stdin";
        if (!*out)
            st = status_error(QUILL_USAGE, "%s: an array of messages in JSON expected, found \"%s\" at line %d", name,
                              error.text, error.line);
        else if (!are_messages(messages))
            st = status_error(QUILL_USAGE,
                              "%s: an array of messages, which are objects, or an object with such \"messages\" "
                              "expected, found another value",
                              name);
    }
    buf_free(&text);
    return st;
}

Status look_template(const Options *o) {
    ChatTemplate *c = NULL;
    json_t *input = NULL;
    size_t n_input = 0;
    Rendered out = {0};
    Buf shown = {0};
    TRY(open_template(o, &c));
    Status st = read_messages(o, &input, &n_input);
    if (!st.code) st = render(c, o, input, n_input, &out);
    if (!st.code) screen_whole(STDOUT_FILENO, str_of_buf(&out.text), &shown);
    if (!st.code) st = output_buf(&shown);
    rendered_free(&out);
    json_decref(input);
    chat_template_free(c);
    return st;
}
