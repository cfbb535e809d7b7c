// answer/call_format.c: see answer/call_format.h.
#define _GNU_SOURCE
#include "answer/call_format.h"

#include <stdlib.h>
#include <string.h>

#include "answer/call_pattern.h"
#include "answer/marks.h"
#include "base/jsonio.h"
#include "grammar/schema.h"
#include "grammar/schema_merge.h"

// ---- the formats ----------------------------------------------------------------------------------------------------

#define M(mark) "\1" mark "\1"
#define HY3(mark) M(mark ":opensource>")
#define ARGUMENTS_CALL "{\"name\":%s\"%n\",%s\"arguments\":%s%a}"
#define ID_CALL "{\"name\":%s\"%n\",%s\"arguments\":%s%a%(,%s\"id\":%s\"%i\"%)}"

// call_format_find takes the first format whose texts a template contains, so a format comes before others whose texts
// its templates contain too.
static const CallFormat formats[] = {
    {.name = "gpt-oss",
     .sign = "<|channel|>commentary",
     .lead = M("<|channel|>") "commentary",
     .open = " to=functions.",
     .call = "%n%(" M("<|channel|>") "commentary%)%( %(" M("<|constrain|>") "%)json%)" M("<|message|>") "%a",
     .close = ""},
    {.name = "seed",
     .sign = "<seed:tool_call>",
     .open = M("<seed:tool_call>") "%l",
     .call = "<function=%n>%l%p</function>%l",
     .between = "",
     .close = M("</seed:tool_call>"),
     .param = "<parameter=%k>",
     .end = "</parameter>",
     .again = true},
    {.name = "atem", // Muse Glimmer
     .sign = "<atem:function_calls>",
     .open = "<atem:function_calls>%l",
     .call = "<atem:invoke name=\"%n\">%l%p</atem:invoke>%l",
     .between = "",
     .close = "</atem:function_calls>",
     .param = "<atem:parameter name=\"%k\">",
     .end = "</atem:parameter>",
     .again = true},
    {.name = "gemma4",
     .sign = "<|tool_call>call:",
     .open = M("<|tool_call>") "call:",
     .call = "%n{%p}",
     .close = M("<tool_call|>"),
     .param = "%k:",
     .join = ",",
     .quote = M("<|\"|>"),
     .again = true},
    {.name = "nemotron",
     .sign = "<TOOLCALL>[",
     .open = "<TOOLCALL>[",
     .call = ARGUMENTS_CALL,
     .between = ",%s",
     .close = "]</TOOLCALL>"},
    {.name = "minimax",
     .sign = "<minimax:tool_call>",
     .open = M("<minimax:tool_call>") "%l",
     .call = "<invoke name=\"%n\">%l%p</invoke>%l",
     .between = "",
     .close = M("</minimax:tool_call>"),
     .param = "<parameter name=\"%k\">",
     .end = "</parameter>",
     .again = true},
    {.name = "qwen3-coder",
     .sign = "<function=",
     .also = "<tool_call>",
     .open = M("<tool_call>") "%l",
     .call = "<function=%n>%l%p</function>%l",
     .close = M("</tool_call>"),
     .param = "<parameter=%k>\n",
     .end = "\n</parameter>",
     .again = true},
    {.name = "glm",
     .sign = "<arg_key>",
     .open = M("<tool_call>"),
     .call = "%n%l%p",
     .close = M("</tool_call>"),
     .param = M("<arg_key>") "%k" M("</arg_key>") "%l" M("<arg_value>"),
     .end = M("</arg_value>"),
     .again = true},
    {.name = "hy3", // its template puts :opensource into the marks
     .sign = "<tool_calls{}>",
     .also = "':opensource'",
     .open = HY3("<tool_calls") "%l",
     .call = HY3("<tool_call") "%n" HY3("<tool_sep") "%l%p" HY3("</tool_call") "%l",
     .between = "",
     .close = HY3("</tool_calls"),
     .param = HY3("<arg_key") "%k" HY3("</arg_key") "%l" HY3("<arg_value"),
     .end = HY3("</arg_value"),
     .again = true},
    {.name = "kimi",
     .sign = "<|tool_calls_section_begin|>",
     .open = M("<|tool_calls_section_begin|>"),
     .call = M("<|tool_call_begin|>") "functions.%n:%c" M("<|tool_call_argument_begin|>") "%a" M("<|tool_call_end|>"),
     .between = "",
     .close = M("<|tool_calls_section_end|>")},
    {.name = "deepseek-r1",
     .sign = "<｜tool▁calls▁begin｜>",
     .also = "```json",
     .open = M("<｜tool▁calls▁begin｜>"),
     .call = M("<｜tool▁call▁begin｜>") "function" M("<｜tool▁sep｜>") "%n\n```json\n%a\n```" M("<｜tool▁call▁end｜>"),
     .between = "%l",
     .close = M("<｜tool▁calls▁end｜>")},
    {.name = "deepseek-v3.1",
     .sign = "<｜tool▁calls▁begin｜>",
     .open = M("<｜tool▁calls▁begin｜>"),
     .call = M("<｜tool▁call▁begin｜>") "%n" M("<｜tool▁sep｜>") "%a" M("<｜tool▁call▁end｜>"),
     .between = "",
     .close = M("<｜tool▁calls▁end｜>")},
    {.name = "command",
     .sign = "<|START_ACTION|>",
     .open = M("<|START_ACTION|>") "[%w",
     .call = "{\"tool_call_id\":%s\"%c\",%s\"tool_name\":%s\"%n\",%s\"parameters\":%s%a}",
     .between = ",%w",
     .close = "%w]" M("<|END_ACTION|>")},
    {.name = "apertus",
     .sign = "<|tools_prefix|>",
     .open = M("<|tools_prefix|>") "[",
     .call = "{\"%n\":%s%a}",
     .between = ",%s",
     .close = "]" M("<|tools_suffix|>")},
    {.name = "mistral-args",
     .sign = "[TOOL_CALLS]",
     .also = "[ARGS]",
     .open = M("[TOOL_CALLS]"),
     .call = "%n%(" M("[CALL_ID]") "%i%)" M("[ARGS]") "%a",
     .close = "",
     .again = true},
    {.name = "mistral",
     .sign = "[TOOL_CALLS]",
     .open = M("[TOOL_CALLS]") "%s[",
     .call = ID_CALL,
     .between = ",%s",
     .close = "]"},
    {.name = "apriel",
     .sign = "<tool_calls>[",
     .open = M("<tool_calls>") "[",
     .call = ID_CALL,
     .between = ",%s",
     .close = "]" M("</tool_calls>")},
    {.name = "phi4",
     .sign = "<|tool_call|>",
     .also = "<|/tool_call|>",
     .open = M("<|tool_call|>"),
     .call = ARGUMENTS_CALL,
     .close = M("<|/tool_call|>"),
     .again = true},
    {.name = "granite",
     .sign = "<|tool_call|>",
     .open = M("<|tool_call|>") "%s[",
     .call = ARGUMENTS_CALL,
     .between = ",%s",
     .close = "]"},
    {.name = "mcp",
     .sign = "<use_mcp_tool>",
     .open = M("<use_mcp_tool>"),
     .call = "%l<server_name>%f</server_name>%l<tool_name>%n</tool_name>%l<arguments>%l%a%l</arguments>",
     .between = "",
     .close = "%l" M("</use_mcp_tool>")},
    {.name = "hermes",
     .sign = "<tool_call>",
     .open = M("<tool_call>") "%l",
     .call = ARGUMENTS_CALL,
     .close = "%l" M("</tool_call>"),
     .again = true},
    {.name = "lfm2",
     .sign = "List of tools: ",
     .open = M("<|tool_call_start|>") "[",
     .call = "%n(%p)",
     .between = ",%s",
     .close = "]" M("<|tool_call_end|>"),
     .param = "%k=",
     .join = ", ",
     .quote = "'"},
    {.name = "llama3",
     .sign = "{\"name\": function name",
     .open = "%(" M("<|python_tag|>") "%)",
     .call = "{\"name\":%s\"%n\",%s\"parameters\":%s%a}",
     .close = "",
     .starts = true},
};

static bool has(Str template, const char *text) {
    return !text || memmem(template.data, template.n, text, strlen(text)) != NULL;
}

const CallFormat *call_format_find(Str template) {
    for (size_t i = 0; i < ARRAY_LEN(formats) && template.n; i++)
        if (has(template, formats[i].sign) && has(template, formats[i].also)) return &formats[i];
    return NULL;
}

const char *call_format_name(const CallFormat *f) { return f->name; }

void call_format_names(Buf *out) {
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) buf_printf(out, "%s%s", i ? ", " : "", formats[i].name);
}

// ---- as rules -------------------------------------------------------------------------------------------------------

typedef struct {
    const CallFormat *f;
    const Tools *tools;
    const Tokenizer *t;
    Rules *r;
    int arguments[TOOLS_MOST]; // for each tool the expression of its arguments
    Status failed;
} CallRules;

static int some(CallRules *c, const CharRange *ranges, int n, int least, int most) {
    return rules_repeat(c->r, rules_class(c->r, ranges, n), least, most);
}

// The expression of the placeholder %letter. text: the name of the tool or of the argument.
static int placeholder(CallRules *c, char letter, const char *text, int arguments) {
    static const CharRange alnum[] = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}};
    static const CharRange word[] = {{'-', '.'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const CharRange space[] = {{'\t', '\n'}, {' ', ' '}};
    switch (letter) {
    case 'n':
    case 'k': return rules_text(c->r, text, strlen(text));
    case 'a':
    case 'p': return arguments;
    case 'i': return some(c, alnum, 3, 9, 9);
    case 'c': return some(c, alnum, 1, 1, 3);
    case 'f': return some(c, word, 5, 1, 64);
    case 's': return rules_repeat(c->r, rules_text(c->r, " ", 1), 0, 1);
    case 'l': return rules_repeat(c->r, rules_text(c->r, "\n", 1), 0, 1);
    default: return some(c, space, 2, 0, 16);
    }
}

static int pattern(CallRules *c, const char *s, size_t n, const char *text, int arguments) {
    Buf kids = {0};
    for (size_t i = 0; i < n;) {
        int e;
        if (s[i] == '\1') {
            size_t length = (size_t)(strchr(s + i + 1, '\1') - s) - i - 1;
            e = marks_rule(c->t, (Str){s + i + 1, length}, c->r);
            i += length + 2;
        } else if (s[i] == '%' && s[i + 1] == '(') {
            size_t length = call_pattern_group(s + i + 2);
            e = rules_repeat(c->r, pattern(c, s + i + 2, length, text, arguments), 0, 1);
            i += length + 4;
        } else if (s[i] == '%') {
            e = placeholder(c, s[i + 1], text, arguments);
            i += 2;
        } else {
            size_t length = 0;
            while (i + length < n && !strchr("\1%", s[i + length])) length++;
            e = rules_text(c->r, s + i, length);
            i += length;
        }
        buf_append(&kids, &e, sizeof e);
    }
    int all = rules_seq_of(c->r, &kids);
    buf_free(&kids);
    return all;
}

static int whole(CallRules *c, const char *s) { return pattern(c, s, strlen(s), "", 0); }

static void pass(CallRules *c, const Tool *tool, const char *key, Status st) {
    if (!st.code || c->failed.code) return;
    c->failed = status_error(st.code, "tool \"%s\": parameters%s%.80s: %.500s", tool->name, key ? ", " : "",
                             key ? key : "", st.message);
}

// Appends the bytes of a text that is a single mark, or has none.
static void bytes_of(const CallRules *c, Str text, Buf *out) {
    Str plain = call_pattern_unmarked(text);
    if (plain.n < text.n) marks_bytes(c->t, plain, out);
    else buf_append(out, text.data, text.n);
}

// The value of an argument, with the text behind it.
static int value_with_end(CallRules *c, const Tool *tool, const char *key, const json_t *schema, const char *scope) {
    Buf end = {0};
    int e = 0;
    bytes_of(c, str_of(c->f->end), &end);
    buf_append(&end, "", 1);
    SchemaPart part = {.root = tool->parameters, .schema = schema, .scope = scope, .end = end.data};
    if (!c->failed.code) pass(c, tool, key, schema_part(&part, c->r, &e));
    buf_free(&end);
    return rules_pair(c->r, e, whole(c, "%l"));
}

// A string in single quotes with escapes, as Python writes it. -1: the schema says more than that it is a string, and
// would be applied to the escaped text.
static int python_string(CallRules *c, const json_t *schema) {
    static const CharRange plain[] = {{0, '\'' - 1}, {'\'' + 1, '\\' - 1}, {'\\' + 1, 0x10ffff}},
                           any[] = {{0, 0x10ffff}};
    static const char *const more[] = {"enum",      "const", "pattern", "format", "minLength",
                                       "maxLength", "$ref",  "anyOf",   "oneOf",  "allOf"};
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        if (json_object_get(schema, more[i])) return -1;
    int escape = rules_pair(c->r, rules_text(c->r, "\\", 1), rules_class(c->r, any, 1)),
        quote = rules_text(c->r, "'", 1);
    int each = rules_alt(c->r, (int[]){rules_class(c->r, plain, 3), escape}, 2);
    return rules_seq(c->r, (int[]){quote, rules_repeat(c->r, each, 0, -1), quote}, 3);
}

// A string between two marks, without escapes.
static int marked_string(CallRules *c, const Tool *tool, const char *key, const json_t *schema, const char *scope) {
    char other[TOOLS_LONGEST_NAME + 3];
    Buf quote = {0};
    int text = 0;
    snprintf(other, sizeof other, "%s:", scope); // another scope than that of the same string in JSON
    bytes_of(c, str_of(c->f->quote), &quote);
    int open = rules_text(c->r, quote.data, quote.n);
    buf_append(&quote, "", 1);
    SchemaPart part = {.root = tool->parameters, .schema = schema, .scope = other, .end = quote.data, .compact = true};
    if (!c->failed.code) pass(c, tool, key, schema_part(&part, c->r, &text));
    buf_free(&quote);
    return rules_pair(c->r, open, text);
}

// The value of an argument in JSON or, if it must be a string, between the format's own quotes.
static int joined_value(CallRules *c, const Tool *tool, const char *key, const json_t *schema, const char *scope) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    int json = 0;
    SchemaPart part = {.root = tool->parameters, .schema = schema, .scope = scope, .compact = true};
    if (!c->failed.code) pass(c, tool, key, schema_part(&part, c->r, &json));
    if (c->failed.code || !type || strcmp(type, "string") != 0) return json;
    bool python = strcmp(c->f->quote, "'") == 0;
    int own = python ? python_string(c, schema) : marked_string(c, tool, key, schema, scope);
    return own < 0 ? json : rules_alt(c->r, (int[]){own, json}, 2);
}

static int named_argument(CallRules *c, const Tool *tool, const char *key, const json_t *schema, const char *scope) {
    if (!*key || strpbrk(key, call_pattern_ends(c->f)) || strlen(key) > CALL_LONGEST_KEY)
        pass(c, tool, key,
             status_error(QUILL_USAGE,
                          "an argument's name of 1 to %d bytes without any of %s and line ends expected, found %zu "
                          "bytes; rename the argument",
                          CALL_LONGEST_KEY, c->f->join ? "< > : = \"" : "< > \"", strlen(key)));
    int value = c->f->join ? joined_value(c, tool, key, schema, scope) : value_with_end(c, tool, key, schema, scope);
    return rules_pair(c->r, pattern(c, c->f->param, strlen(c->f->param), key, 0), value);
}

// These formats write an object's members one by one: its schema may say no more than which they are.
static void check_listed(CallRules *c, const Tool *tool, const json_t *schema) {
    static const char *const known[] = {"type", "properties", "required", "additionalProperties", "propertyNames"};
    const json_t *type = json_object_get(schema, "type");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value) {
        bool fine = schema_merge_key(key) == KEY_REMARK;
        for (size_t i = 0; i < ARRAY_LEN(known); i++) fine |= strcmp(key, known[i]) == 0;
        if (!fine)
            pass(c, tool, NULL,
                 status_error(
                     QUILL_USAGE,
                     "at #: type, properties, required, additionalProperties and propertyNames expected, as the "
                     "model writes arguments one by one, found \"%.60s\"",
                     key));
    }
    if (type && !(schema_merge_types(schema, schema) & SCHEMA_OBJECT))
        pass(c, tool, NULL, status_error(QUILL_USAGE, "at #: type: object expected, found another"));
}

// The arguments in the order of the schema, each in the form of `param`; those that are not required are optional.
// With CallFormat.join: one text between each two of them.
static int listed_arguments(CallRules *c, const Tool *tool, const char *scope) {
    json_t *schema = NULL, *value;
    if (tool->parameters) pass(c, tool, NULL, schema_flat(tool->parameters, &schema));
    check_listed(c, tool, schema);
    json_t *properties = json_object_get(schema, "properties");
    int n = 0, most = (int)json_object_size(properties), *all = mem_alloc((size_t)(most + 1) * sizeof *all);
    bool *required = mem_alloc((size_t)most + 1);
    const char *key;
    json_object_foreach(properties, key, value) {
        required[n] = schema_requires(schema, key);
        all[n++] = named_argument(c, tool, key, value, scope);
    }
    int none = rules_seq(c->r, NULL, 0), join = c->f->join ? whole(c, c->f->join) : none;
    // Rules for the arguments behind number n: `after` if an argument comes before them, `first` if none does.
    int after = none, first = none;
    while (n-- > 0) {
        int here = rules_pair(c->r, all[n], after), next = rules_pair(c->r, join, all[n]);
        first = required[n] ? here : rules_alt(c->r, (int[]){here, first}, 2);
        after = rules_pair(c->r, rules_repeat(c->r, next, required[n], 1), after);
        after = rules_call(c->r, rules_anonymous(c->r, after)); // used twice
    }
    free(all);
    free(required);
    json_decref(schema);
    return first;
}

static int arguments_of(CallRules *c, const Tool *tool) {
    char scope[TOOLS_LONGEST_NAME + 2];
    snprintf(scope, sizeof scope, "%s:", tool->name);
    if (c->f->param) return listed_arguments(c, tool, scope);
    json_t *schema = tool->parameters ? json_copy(tool->parameters) : json_object();
    if (json_object_size(schema) == 0) jsonio_put(schema, "properties", json_object()); // no arguments
    if (!json_object_get(schema, "type")) jsonio_put(schema, "type", json_string("object"));
    int e = 0;
    pass(c, tool, NULL, schema_part(&(SchemaPart){.root = schema, .schema = schema, .scope = scope}, c->r, &e));
    json_decref(schema);
    return e;
}

static int one_call(CallRules *c, int tool) {
    return pattern(c, c->f->call, strlen(c->f->call), c->tools->all[tool].name, c->arguments[tool]);
}

static int any_call(CallRules *c) {
    int ways[TOOLS_MOST];
    if (c->tools->choice == TOOLS_ONE) return one_call(c, c->tools->one);
    for (int i = 0; i < c->tools->n; i++) ways[i] = one_call(c, i);
    return rules_alt(c->r, ways, c->tools->n);
}

// The rest of a section whose first `opened` bytes were already written.
static int section(CallRules *c, size_t opened) {
    Rules *r = c->r;
    const CallFormat *f = c->f;
    int open = whole(c, f->open + opened), calls = any_call(c);
    if (f->between && c->tools->choice != TOOLS_ONE)
        calls = rules_pair(r, calls, rules_repeat(r, rules_pair(r, whole(c, f->between), calls), 0, -1));
    return rules_seq(r, (int[]){open, calls, whole(c, f->close)}, 3);
}

// Any bytes that do not begin with `text`.
static int beginning_otherwise(CallRules *c, const Buf *text) {
    int any = rules_without(c->r, "", 0), other = rules_seq(c->r, NULL, 0);
    for (size_t i = text->n; i-- > 0;) {
        unsigned char byte = (unsigned char)text->data[i];
        CharRange rest[] = {{0, byte - 1u}, {byte + 1u, 0x10ffff}};
        int ways[] = {rules_seq(c->r, NULL, 0), rules_pair(c->r, rules_class(c->r, rest, 2), any),
                      rules_pair(c->r, rules_text(c->r, text->data + i, 1), other)};
        other = i + 1 == text->n ? rules_alt(c->r, ways, 2) : rules_alt(c->r, ways, 3);
    }
    return other;
}

// Text in which no call begins; if `calls`, also calls between such texts.
static int free_text(CallRules *c, bool calls) {
    Buf trigger = {0};
    Rules *r = c->r;
    int all;
    if (c->f->starts) {
        buf_str(&trigger, "{\"name\"");
        all = beginning_otherwise(c, &trigger);
        if (calls) all = rules_alt(r, (int[]){section(c, 0), all}, 2);
    } else {
        Str begins = call_pattern_trigger(c->f);
        bytes_of(c, begins, &trigger);
        all = rules_without(r, trigger.data, trigger.n);
        int called = calls ? rules_pair(r, rules_until(r, trigger.data, trigger.n), section(c, begins.n)) : 0;
        if (calls) all = rules_pair(r, rules_repeat(r, called, 0, -1), all);
    }
    buf_free(&trigger);
    return all;
}

static int required(CallRules *c) {
    int one = section(c, 0), lead = rules_seq(c->r, NULL, 0);
    if (c->f->lead) lead = rules_repeat(c->r, whole(c, c->f->lead), 0, 1);
    if (c->f->again && c->tools->choice != TOOLS_ONE)
        one = rules_pair(c->r, one, rules_repeat(c->r, rules_pair(c->r, whole(c, "%l"), one), 0, -1));
    return rules_pair(c->r, lead, one);
}

Status call_format_rules(const CallFormat *f, const Tools *tools, const Tokenizer *t, Rules *r, int *expr) {
    CallRules c = {.f = f, .tools = tools, .t = t, .r = r};
    for (int i = 0; i < tools->n; i++) c.arguments[i] = arguments_of(&c, &tools->all[i]);
    bool must = tools->choice == TOOLS_REQUIRED || tools->choice == TOOLS_ONE;
    *expr = must ? required(&c) : free_text(&c, tools->choice == TOOLS_AUTO);
    return c.failed;
}
