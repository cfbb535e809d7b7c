// answer/transcript.c: see answer/transcript.h.
#include "answer/transcript.h"

#include <limits.h>
#include <string.h>

#include "base/tempfile.h"

static Status wrong_message(const char *name, size_t i, const char *expected) {
    return status_error(QUILL_USAGE, "%.500s: message %zu: %s expected; /save writes such files", name, i + 1,
                        expected);
}

// The role as a static string, which outlives the JSON. NULL: unknown role.
static const char *own_role(const char *role) {
    static const char *const known[] = {"system", "user", "assistant"};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(role, known[i]) == 0) return known[i];
    return NULL;
}

static Status read_message(const char *name, const json_t *list, size_t i, bool raw, MessageList *out) {
    const json_t *one = json_array_get(list, i), *content = json_object_get(one, "content");
    const char *role = json_string_value(json_object_get(one, "role"));
    if (!role || !json_is_string(content))
        return wrong_message(name, i, "an object with the texts \"role\" and \"content\"");
    role = own_role(role);
    if (!role) return wrong_message(name, i, "a role of system, user or assistant");
    bool system = strcmp(role, "system") == 0;
    if (system && i > 0) return wrong_message(name, i, "only the first message to be a system message");
    if (system && raw) return wrong_message(name, i, "no system message, because raw text has none,");
    messages_insert(out, out->n, role, (Str){json_string_value(content), json_string_length(content)});
    return OK;
}

static Status no_json(const char *name, const json_error_t *error) {
    Buf found = {0}; // escaped: it may have bytes of the file
    utf8_escape(&found, error->text, strlen(error->text));
    Status st =
        status_error(QUILL_USAGE, "%.500s: line %d: JSON expected, found an error: %s", name, error->line, found.data);
    buf_free(&found);
    return st;
}

Status transcript_read(const char *name, Str json, bool raw, MessageList *out) {
    json_error_t error;
    *out = (MessageList){0};
    json_t *all = jsonio_read(json, JSON_ALLOW_NUL, &error);
    const json_t *list = json_object_get(all, "messages");
    Status st = OK;
    if (!all) st = no_json(name, &error);
    else if (!json_is_array(list) || json_array_size(list) >= INT_MAX)
        st = status_error(QUILL_USAGE, "%.500s: {\"messages\": [...]} expected, no such list found", name);
    for (size_t i = 0; !st.code && i < json_array_size(list); i++) st = read_message(name, list, i, raw, out);
    if (st.code) messages_free(out);
    json_decref(all);
    return st;
}

static void take_value(const char *name, const json_t *value, void (*take)(void *, const char *, const char *),
                       void *arg) {
    size_t i;
    const json_t *one;
    if (json_is_string(value)) take(arg, name, json_string_value(value));
    else if (json_is_boolean(value)) take(arg, name, json_is_true(value) ? "on" : "off");
    else if (json_is_number(value)) {
        Buf text = {0};
        jsonio_print(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9), &text);
        take(arg, name, text.data);
        buf_free(&text);
    } else if (json_is_array(value)) {
        take(arg, name, "default");
        json_array_foreach(value, i, one) if (json_is_string(one)) take(arg, name, json_string_value(one));
    }
}

json_t *transcript_settings_json(Str json) {
    json_t *all = jsonio_read(json, JSON_ALLOW_NUL, NULL);
    json_t *settings = json_incref(json_object_get(all, "settings"));
    json_decref(all);
    return settings;
}

void transcript_settings(Str json, void (*take)(void *arg, const char *name, const char *value), void *arg) {
    json_t *settings = transcript_settings_json(json), *value;
    const char *name;
    json_object_foreach(settings, name, value) take_value(name, value, take, arg);
    json_decref(settings);
}

Status transcript_write(const char *path, const char *model, json_t *settings, const MessageList *messages) {
    json_t *all = json_object(), *list = json_array();
    jsonio_put(all, "model", jsonio_text(str_of(model)));
    if (settings) jsonio_put(all, "settings", settings);
    jsonio_put(all, "messages", list);
    for (int i = 0; i < messages->n; i++) {
        json_t *one = json_object();
        jsonio_put(one, "role", json_string(messages->at[i].role));
        jsonio_put(one, "content", jsonio_text(messages->at[i].text));
        jsonio_append(list, one);
    }
    Buf text = {0};
    jsonio_print(all, JSON_INDENT(2), &text);
    json_decref(all);
    TempFile temp;
    Status st = tempfile_open(path, 0666, &temp);
    if (!st.code) st = tempfile_publish(&temp, fd_write_all(temp.fd, text.data, text.n));
    buf_free(&text);
    return st;
}
