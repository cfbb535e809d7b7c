// answer/chat_template.c: see answer/chat_template.h.
#define _GNU_SOURCE
#include "answer/chat_template.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "answer/builtin_templates.h"

struct ChatTemplate {
    Jinja *jinja;
    char *source; // n_source bytes
    size_t n_source;
    char *where, *name; // for messages; for --verbose
    char *bos, *eos;    // n_bos and n_eos bytes
    size_t n_bos, n_eos;
    const char *think; // AnswerConfig.think
    // The model's template for conversations with tools, if it has one of its own; NULL: this one. wrong: why it cannot
    // be parsed, which matters only if there are tools
    ChatTemplate *with_tools;
    Status wrong;
};

// ---- choosing -------------------------------------------------------------------------------------------------------

static Status wrong_template(const char *where, const Status *why) {
    return status_error(why->code, "%s: %s; --chat-template NAME uses one of quill's templates", where, why->message);
}

Status chat_template_open(const char *where, const char *name, Str source, Str bos, Str eos, ChatTemplate **out) {
    *out = NULL;
    Jinja *j;
    Status st = jinja_parse(source, &j);
    if (st.code) return wrong_template(where, &st);
    ChatTemplate *c = mem_alloc(sizeof *c);
    *c = (ChatTemplate){.jinja = j, .n_source = source.n, .n_bos = bos.n, .n_eos = eos.n};
    c->source = mem_copy(source.data, source.n);
    c->where = mem_copy(where, strlen(where));
    c->name = mem_copy(name, strlen(name));
    c->bos = mem_copy(bos.data, bos.n);
    c->eos = mem_copy(eos.data, eos.n);
    *out = c;
    return OK;
}

void chat_template_free(ChatTemplate *c) {
    if (!c) return;
    jinja_free(c->jinja);
    free(c->where);
    free(c->source);
    free(c->name);
    free(c->bos);
    free(c->eos);
    chat_template_free(c->with_tools);
    free(c);
}

const ChatTemplate *chat_template_for(const ChatTemplate *c, bool tools) {
    return tools && c && c->with_tools ? c->with_tools : c;
}

Str chat_template_source(const ChatTemplate *c, bool tools) {
    c = chat_template_for(c, tools);
    return c ? (Str){c->source, c->n_source} : (Str){"", 0};
}

const char *chat_template_name(const ChatTemplate *c) { return c ? c->name : "none (raw text)"; }

static Status builtin_template(const char *name, Str bos, Str eos, ChatTemplate **out) {
    const char *source = builtin_templates_find(name);
    if (source) return chat_template_open("--chat-template", name, str_of(source), bos, eos, out);
    Buf names = {0};
    builtin_templates_names(&names);
    Status st = status_error(QUILL_USAGE,
                             "--chat-template: one of %s expected, found \"%.100s\"; --chat-template-file reads a file",
                             names.data, name);
    buf_free(&names);
    return st;
}

static Status file_template(const char *path, Str bos, Str eos, ChatTemplate **out) {
    Buf source = {0};
    Status st = file_read_of("--chat-template-file", path, &source);
    if (!st.code) st = chat_template_open(path, path, str_of_buf(&source), bos, eos, out);
    buf_free(&source);
    return st;
}

Status chat_template_from_config(const AnswerConfig *config, Str bos, Str eos, ChatTemplate **out) {
    *out = NULL;
    if (config->chat_template) TRY(builtin_template(config->chat_template, bos, eos, out));
    else if (config->chat_template_file) TRY(file_template(config->chat_template_file, bos, eos, out));
    if (*out) (*out)->think = config->think;
    return OK;
}

static Status open_key(const Gguf *g, const char *key, const AnswerConfig *config, Str bos, Str eos,
                       ChatTemplate **out) {
    Str source;
    TRY(gguf_str(g, key, &source, false));
    if (source.n == 0) return OK;
    Buf where = {0};
    buf_printf(&where, "%s: key %s", gguf_name(g), key);
    Status st = chat_template_open(where.data, "the model's own", source, bos, eos, out);
    if (!st.code) (*out)->think = config->think;
    buf_free(&where);
    return st;
}

// Some models have a second template, "tool_use", for conversations with tools.
static Status model_template(const Gguf *g, const AnswerConfig *config, Str bos, Str eos, ChatTemplate **out) {
    TRY(open_key(g, "tokenizer.chat_template", config, bos, eos, out));
    if (*out) (*out)->wrong = open_key(g, "tokenizer.chat_template.tool_use", config, bos, eos, &(*out)->with_tools);
    return OK;
}

static Str token_text(const Tokenizer *t, int id) { return id < 0 ? (Str){"", 0} : tokenizer_piece(t, id); }

Status chat_template_choose(const Gguf *g, const Tokenizer *t, const AnswerConfig *config, ChatTemplate **out) {
    *out = NULL;
    if (config->raw) return OK;
    Str bos = token_text(t, tokenizer_bos(t)), eos = token_text(t, tokenizer_eos(t));
    TRY(chat_template_from_config(config, bos, eos, out));
    if (!*out) TRY(model_template(g, config, bos, eos, out));
    if (*out) return OK;
    if (config->chat)
        return status_error(QUILL_MODEL,
                            "%s: --chat: a chat template expected, the model has none; leave --chat out, or give one "
                            "with --chat-template",
                            gguf_name(g));
    if ((config->system || config->system_file) && !config->system_usual)
        return status_error(QUILL_MODEL,
                            "%s: -sys: a chat template expected, the model has none; put the text into the prompt, or "
                            "give one with --chat-template",
                            gguf_name(g));
    return OK;
}

// ---- rendering ------------------------------------------------------------------------------------------------------

enum { ROOM = 256 << 20, STEPS = 20000000 }; // thousands of times what the template of a conversation needs

Heap *chat_template_heap(size_t n_input) {
    size_t n = n_input < SIZE_MAX / 32 ? n_input : SIZE_MAX / 32;
    return heap_new(ROOM + 16 * n, STEPS + (int64_t)n);
}

// Whether templates write the role next to control tokens.
static bool is_role(Str role) {
    static const char *const known[] = {"system", "user", "assistant", "tool", "developer", "function", "ipython"};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_is(role, known[i])) return true;
    return false;
}

Value chat_template_variables(const ChatTemplate *c, Heap *h, bool answer) {
    Value v = value_dict(h);
    dict_set_str(h, v.dict, "tools", value_none());
    dict_set_str(h, v.dict, "documents", value_none());
    dict_set_str(h, v.dict, "add_generation_prompt", value_bool(answer));
    dict_set_str(h, v.dict, "bos_token", value_string(h, (Str){c->bos, c->n_bos}, true));
    dict_set_str(h, v.dict, "eos_token", value_string(h, (Str){c->eos, c->n_eos}, true));
    const char *think = c->think ? c->think : "";
    bool effort = strcmp(think, "low") == 0 || strcmp(think, "medium") == 0 || strcmp(think, "high") == 0;
    bool on = effort || strcmp(think, "on") == 0;
    if (on || strcmp(think, "off") == 0) {
        dict_set_str(h, v.dict, "enable_thinking", value_bool(on)); // Qwen and most others
        dict_set_str(h, v.dict, "thinking", value_bool(on));        // DeepSeek, Granite
    }
    if (effort) {
        dict_set_str(h, v.dict, "reasoning_effort", value_string(h, str_of(think), true));   // gpt-oss and others
        dict_set_str(h, v.dict, "reasoning_strength", value_string(h, str_of(think), true)); // Muse Glimmer
    }
    return v;
}

static Value from_array(Heap *h, const json_t *j) {
    Value list = value_new_list(h, V_LIST, json_array_size(j));
    for (size_t i = 0; i < list.list->n && !h->failed.code; i++)
        list.list->items[i] = chat_template_value(h, json_array_get(j, i));
    return list;
}

// Keys and values are untrusted input, except known roles, which are trusted as text of the template.
static Value from_object(Heap *h, const json_t *j) {
    Value d = value_dict(h);
    const char *key;
    size_t n_key;
    json_t *value;
    json_object_keylen_foreach((json_t *)j, key, n_key, value) {
        Value v = chat_template_value(h, value);
        bool role = strcmp(key, "role") == 0 && value_is(v, V_STRING) && is_role(text_str(*v.text));
        if (role) v = value_string(h, text_str(*v.text), true);
        dict_set(h, d.dict, value_string(h, (Str){key, n_key}, false), v);
    }
    return d;
}

Value chat_template_value(Heap *h, const json_t *j) {
    Value v = value_none();
    if (!heap_enter(h)) return v;
    switch (json_typeof(j)) {
    case JSON_OBJECT: v = from_object(h, j); break;
    case JSON_ARRAY: v = from_array(h, j); break;
    case JSON_STRING: v = value_string(h, (Str){json_string_value(j), json_string_length(j)}, false); break;
    case JSON_INTEGER: v = value_int(json_integer_value(j)); break;
    case JSON_REAL: v = value_float(json_real_value(j)); break;
    case JSON_TRUE:
    case JSON_FALSE: v = value_bool(json_is_true(j)); break;
    case JSON_NULL: break;
    }
    v.foreign = true;
    heap_leave(h);
    return v;
}

static Value message_value(Heap *h, const Message *m) {
    Value v = value_dict(h);
    Str role = str_of(m->role);
    dict_set_str(h, v.dict, "role", value_string(h, role, is_role(role)));
    dict_set_str(h, v.dict, "content", value_string(h, m->text, false));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)m->more, key, value)
        dict_set(h, v.dict, value_string(h, str_of(key), true), chat_template_value(h, value));
    return v;
}

Status chat_template_run(const ChatTemplate *c, Heap *h, Value variables, const struct tm *now, Rendered *out) {
    Status st = jinja_render(c->jinja, h, variables.dict, now, &out->text, &out->trusted);
    return st.code ? wrong_template(c->where, &st) : OK;
}

static Status run_template(const ChatTemplate *c, const Message *messages, int n, const json_t *tools, bool answer,
                           Rendered *out) {
    size_t n_input = 0;
    for (int i = 0; i < n; i++) n_input += messages[i].text.n;
    Heap *h = chat_template_heap(n_input);
    Value v = chat_template_variables(c, h, answer), list = value_new_list(h, V_LIST, (size_t)n);
    for (size_t i = 0; i < list.list->n; i++) list.list->items[i] = message_value(h, &messages[i]);
    dict_set_str(h, v.dict, "messages", list);
    if (tools) dict_set_str(h, v.dict, "tools", chat_template_value(h, tools));
    time_t seconds = time(NULL);
    struct tm now = {0};
    localtime_r(&seconds, &now);
    Status st = chat_template_run(c, h, v, &now, out);
    heap_free(h);
    return st;
}

Status chat_template_render(const ChatTemplate *c, const Message *messages, int n, const json_t *tools, bool answer,
                            Rendered *out) {
    if (tools && c && c->wrong.code) return c->wrong;
    if (c) return run_template(chat_template_for(c, tools), messages, n, tools, answer, out);
    for (int i = 0; i < n; i++) rendered_add(out, messages[i].text.data, messages[i].text.n, false);
    return OK;
}

void rendered_add(Rendered *r, const char *bytes, size_t n, bool trusted) {
    size_t at = r->text.n;
    buf_append(&r->text, bytes, n);
    buf_append(&r->trusted, bytes, n); // grows the buffer; memset overwrites the bytes
    if (n) memset(r->trusted.data + at, trusted, n);
}

void rendered_free(Rendered *r) {
    buf_free(&r->text);
    buf_free(&r->trusted);
}

Status chat_template_encode(const Tokenizer *t, const Rendered *r, bool add_bos, int **out, int *n) {
    *out = NULL;
    *n = 0;
    size_t bound = tokenizer_bound(t, r->text.n);
    if (r->text.n > INT_MAX || bound >= INT_MAX)
        return status_error(QUILL_CONTEXT, "the text has %zu bytes, more than any context holds", r->text.n);
    int *ids = mem_alloc((bound + 1) * sizeof *ids);
    size_t count = tokenizer_encode(t, r->text.data ? r->text.data : "", r->text.n, (const uint8_t *)r->trusted.data,
                                    ids + 1, bound);
    int bos = tokenizer_bos(t);
    if (count > bound) { // SIZE_MAX: too long for the tokenizer
        free(ids);
        return status_error(QUILL_CONTEXT, "the prompt has %zu bytes, more than any context holds; shorten it",
                            r->text.n);
    }
    bool has_bos = count > 0 && ids[1] == bos;
    // An empty prompt needs a token, so it gets the BOS token even if the model usually has none.
    bool put = add_bos && bos >= 0 && !has_bos && (tokenizer_add_bos(t) || count == 0);
    if (put) ids[0] = bos;
    else memmove(ids, ids + 1, count * sizeof *ids);
    count += put;
    if (count == 0 && add_bos) {
        free(ids);
        return status_error(QUILL_USAGE,
                            "the prompt is empty, and this model has no token that begins a text; give a prompt");
    }
    *out = ids;
    *n = (int)count;
    return OK;
}
