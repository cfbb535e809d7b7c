// answer/tools.c: see answer/tools.h.
#include "answer/tools.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"

bool tools_given(const AnswerTools *given) { return given->text || given->file.path; }

static bool is_name(const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_-.", name[i])) return false;
    return n > 0 && n <= TOOLS_LONGEST_NAME;
}

// Reads an entry of the list. A bare function object is replaced by {"type","function"}.
static Status read_tool(Tools *t, size_t i) {
    json_t *entry = json_array_get(t->json, i), *function = json_object_get(entry, "function");
    const char *type = json_string_value(json_object_get(entry, "type"));
    if (json_is_object(entry) && !function && !type) {
        json_t *whole = json_object();
        jsonio_put(whole, "type", json_string("function"));
        jsonio_share(whole, "function", entry);
        function = entry;
        json_array_set_new(t->json, i, whole);
    } else if (!type || strcmp(type, "function") != 0 || !json_is_object(function))
        return status_error(QUILL_USAGE, "tool %zu: {\"type\":\"function\",\"function\":{...}} expected, found another",
                            i + 1);
    const char *name = json_string_value(json_object_get(function, "name"));
    if (!name || !is_name(name))
        return status_error(QUILL_USAGE,
                            "tool %zu: a \"name\" of at most %d letters, digits, _ - and . expected, found %s%.80s%s",
                            i + 1, (int)TOOLS_LONGEST_NAME, name ? "\"" : "", name ? name : "none", name ? "\"" : "");
    if (tools_find(t, str_of(name)))
        return status_error(QUILL_USAGE, "tool %zu: each name once expected, found \"%s\" again", i + 1, name);
    json_t *parameters = json_object_get(function, "parameters");
    if (json_is_null(parameters)) parameters = NULL;
    if (parameters && !json_is_object(parameters))
        return status_error(QUILL_USAGE, "tool %zu, \"%s\": parameters: a JSON schema expected, found another", i + 1,
                            name);
    t->all[t->n++] = (Tool){name, parameters};
    return OK;
}

// QUILL_USAGE: the choice requires a call, but there are no tools.
static Status check_lone_choice(const char *choice) {
    if (!choice || strcmp(choice, "auto") == 0 || strcmp(choice, "none") == 0) return OK;
    return status_error(QUILL_USAGE, "tool choice \"%.80s\": tools expected with it, found none", choice);
}

static Status read_choice(Tools *t, const char *choice) {
    static const char *const words[] = {[TOOLS_AUTO] = "auto", [TOOLS_NONE] = "none", [TOOLS_REQUIRED] = "required"};
    if (!choice) return OK;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(choice, words[i]) == 0) {
            t->choice = (ToolsChoice)i;
            return OK;
        }
    const Tool *one = tools_find(t, str_of(choice));
    if (!one)
        return status_error(QUILL_USAGE,
                            "tool choice: auto, none, required or the name of a tool expected, found "
                            "\"%.80s\"",
                            choice);
    t->choice = TOOLS_ONE;
    t->one = (int)(one - t->all);
    return OK;
}

static Status read_list(const AnswerTools *given, Str text, Tools *out) {
    json_error_t error;
    out->json = jsonio_read(text, JSON_REJECT_DUPLICATES, &error);
    if (!out->json)
        return status_error(QUILL_USAGE, "line %d, column %d: a list of tools in JSON expected, found: %.150s",
                            error.line, int_max(1, error.column), error.text);
    if (!json_is_array(out->json)) return status_error(QUILL_USAGE, "a list of tools expected, found another value");
    size_t n = json_array_size(out->json);
    if (n > TOOLS_MOST) return status_error(QUILL_USAGE, "%d tools at most expected, found %zu", (int)TOOLS_MOST, n);
    out->all = mem_alloc((n + 1) * sizeof *out->all);
    for (size_t i = 0; i < n; i++) TRY(read_tool(out, i));
    if (n > 0) return read_choice(out, given->choice);
    json_decref(out->json); // an empty list: no tools
    out->json = NULL;
    return check_lone_choice(given->choice);
}

Status tools_read(const AnswerTools *given, Tools *out) {
    *out = (Tools){0};
    if (!tools_given(given)) return check_lone_choice(given->choice);
    const char *path = given->file.path;
    Status st = read_list(given, path ? given->file.text : str_of(given->text), out);
    if (!st.code) return OK;
    return status_error(st.code, "%s%.300s: %.600s", path ? "--tools " : "tools", path ? path : "", st.message);
}

void tools_free(Tools *t) {
    json_decref(t->json);
    free(t->all);
    *t = (Tools){0};
}

void tools_describe(const Tools *t, Buf *out) {
    buf_printf(out, "%d:%d:", (int)t->choice, t->one);
    if (t->json) jsonio_print(t->json, JSON_COMPACT, out);
}

const Tool *tools_find(const Tools *t, Str name) {
    for (int i = 0; i < t->n; i++)
        if (str_is(name, t->all[i].name)) return &t->all[i];
    return NULL;
}
