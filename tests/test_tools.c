// tests/test_tools.c: tools and their calls: the calls that real chat templates write must be read back and be admitted
// by the grammar; random answers of the grammar must be read as calls; errors in definitions must be named.
#include "tests/rig/testing.h"

#include "answer/call_format.h"
#include "answer/call_value.h"
#include "answer/chat_template.h"
#include "answer/marks.h"
#include "answer/think.h"
#include "base/jsonio.h"
#include "grammar/grammar.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"The weather of a city\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"description\":\"where\"},"
    "\"days\":{\"description\":\"how long\",\"$ref\":\"#/definitions/days\"}},\"required\":[\"city\"],"
    "\"definitions\":{\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"list_all\",\"description\":\"Lists\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{\"kind\":{\"type\":\"string\",\"description\":\"which\",\"enum\":[\"big\",\"small\"]}},"
    "\"required\":[\"kind\"]}}}]";
static const char call_text[] =
    "{\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":"
    "{\"city\":\"New York\",\"days\":3}}}]}";

// Muse Glimmer's format of calls.
#define ATEM                                                                                                           \
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ '<|start|>assistant to='"               \
    " + c.function.name + '<|message|><atem:function_calls>\n<atem:invoke name=\"' + c.function.name + '\">\n' }}"     \
    "{% for k, v in c.function.arguments.items() %}{{ '<atem:parameter name=\"' + k + '\">' }}{{ v }}"                 \
    "{{ '</atem:parameter>\n' }}{% endfor %}{{ '</atem:invoke>\n</atem:function_calls><|eot|>' }}{% endfor %}"         \
    "{% endfor %}"

// Calls in notations of their own: Gemma 4, LFM2.5.
#define EACH_CALL(call)                                                                                                \
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}" call "{% endfor %}{% endfor %}"
#define GEMMA4                                                                                                         \
    EACH_CALL("{{ '<|tool_call>call:' + c.function.name + '{' }}{% for k, v in c.function.arguments.items() %}"        \
              "{{ ('' if loop.first else ',') + k + ':' }}{{ '<|\"|>' + v + '<|\"|>' if v is string else v }}"         \
              "{% endfor %}{{ '}<tool_call|>' }}")
#define LFM2                                                                                                           \
    "{# List of tools: #}" EACH_CALL(                                                                                  \
        "{{ '<|tool_call_start|>[' + c.function.name + '(' }}{% for k, v in c.function.arguments.items() %}"           \
        "{{ ('' if loop.first else ', ') + k + '=' }}{{ \"'\" + v + \"'\" if v is string else v }}"                    \
        "{% endfor %}{{ ')]<|tool_call_end|>' }}")

// Hy3, whose template makes its marks.
#define HY3                                                                                                            \
    "{% set h = ':opensource' %}{% for m in messages %}{{ m.content }}{% if m.tool_calls %}"                           \
    "{{ '<tool_calls{}>'.format(h) + '\n' }}{% for c in m.tool_calls %}"                                               \
    "{{ '<tool_call{}>'.format(h) + c.function.name + '<tool_sep{}>'.format(h) + '\n' }}"                              \
    "{% for k, v in c.function.arguments.items() %}{{ '<arg_key{}>'.format(h) + k + '</arg_key{}>'.format(h) }}"       \
    "{{ '\n<arg_value{}>'.format(h) + v|string + '</arg_value{}>'.format(h) + '\n' }}{% endfor %}"                     \
    "{{ '</tool_call{}>'.format(h) + '\n' }}{% endfor %}{{ '</tool_calls{}>'.format(h) }}{% endif %}{% endfor %}"

// Templates, most of the outside data, with their format of calls. shows_call: the template can write calls of a
// conversation.
static const struct {
    const char *file, *format;
    bool shows_call;
} templates[] = {
    {"Apertus-8B-Instruct", "apertus", true},
    {"Bielik-11B-v3.0-Instruct", "hermes", true},
    {"ByteDance-Seed-OSS", "seed", true},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command", true},
    {"GLM-4.6", "glm", true},
    {"Kimi-K2-Instruct", "kimi", false},
    {"MiroThinker", "mcp", false},
    {"Mistral-Small-3.2-24B-Instruct-2506", "mistral-args", true},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", true},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes", true},
    {"Qwen-Qwen3-0.6B", "hermes", true},
    {"Qwen3-Coder", "qwen3-coder", true},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1", true},
    {"deepseek-ai-DeepSeek-V3.1", "deepseek-v3.1", true},
    {"ibm-granite-granite-3.3-2B-Instruct", "granite", false},
    {"llama-cpp-deepseek-r1", "deepseek-r1", false},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama3", true},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama3", true},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral", true},
    {"openai-gpt-oss-120b", "gpt-oss", true},
    {"unsloth-Apriel-1.5", "apriel", true},
    {ATEM, "atem", true},
    {GEMMA4, "gemma4", true},
    {LFM2, "lfm2", true},
    {HY3, "hy3", true},
    {"{# <TOOLCALL>[ #}", "nemotron", false},
    {"{# <minimax:tool_call> #}", "minimax", false},
    {"google-gemma-2-2b-it", NULL, false},
    {"microsoft-Phi-3.5-mini-instruct", NULL, false},
    {"HuggingFaceTB-SmolLM3-3B", NULL, false},
    {"LFM2-8B-A1B", "lfm2", false},
    {"GigaChat3-10B-A1.8B", NULL, false},
};

typedef struct {
    Tokenizer *t; // a tokenizer without control tokens for the marks
    Gguf *g;
    Vocabulary *v; // a vocabulary of single bytes and an end token
    Tools tools;
} World;

static const char *bytes(void) {
    static char all[256];
    for (int i = 0; i < 256; i++) all[i] = (char)i;
    return all;
}

static void open_world(World *w, const char *choice) {
    Str pieces[257] = {{0}};
    for (size_t i = 0; i < 256; i++) pieces[i] = (Str){bytes() + i, 1};
    pieces[255].n = 0; // the empty piece before control tokens
    assert_ok(gguf_open(test_data("tokenizers/ggml-vocab-gpt-2.gguf"), &w->g));
    assert_ok(tokenizer_load(w->g, &w->t));
    w->v = vocabulary_new(pieces, 257, 257, (int[]){256}, 1);
    assert_ok(tools_read(&(AnswerTools){.text = tools_text, .choice = choice}, &w->tools));
}

static void close_world(World *w) {
    vocabulary_free(w->v);
    tokenizer_free(w->t);
    gguf_close(w->g);
    tools_free(&w->tools);
}

static ChatTemplate *open_template(size_t i) {
    char path[200];
    Buf source = {0};
    ChatTemplate *c;
    snprintf(path, sizeof path, "templates/%s.jinja", templates[i].file);
    if (*templates[i].file == '{') buf_str(&source, templates[i].file);
    else assert_ok(file_read(test_data(path), &source));
    assert_ok(chat_template_open(path, path, str_of_buf(&source), str_of("<s>"), str_of("</s>"), &c));
    buf_free(&source);
    return c;
}

typedef struct {
    const World *w;
    const CallFormat *f;
} WrittenCalls;

static Status write_calls(Rules *r, const void *arg) {
    const WrittenCalls *a = arg;
    int e = 0;
    TRY(call_format_rules(a->f, &a->w->tools, a->w->t, r, &e));
    r->start = rules_anonymous(r, e);
    return OK;
}

static Grammar *grammar_of(const World *w, const CallFormat *f) {
    Grammar *g;
    GrammarSource source = {
        .kind = GRAMMAR_WRITTEN, .text = str_of("x"), .write = write_calls, .arg = &(WrittenCalls){w, f}};
    assert_ok(grammar_compile(source, w->v, &g));
    return g;
}

static const char *name_of(const json_t *calls, size_t i) {
    return json_string_value(json_object_get(json_object_get(json_array_get(calls, i), "function"), "name"));
}

static json_t *arguments_of(const json_t *calls, size_t i) {
    json_t *text = json_object_get(json_object_get(json_array_get(calls, i), "function"), "arguments");
    return json_loads(json_string_value(text), JSON_ALLOW_NUL, NULL);
}

// The text that the template writes for an answer with a call, without the prompt before it.
static void render_call(const ChatTemplate *c, const World *w, Rendered *out) {
    json_t *more = json_loads(call_text, 0, NULL);
    Message m[2] = {{"user", str_of("The weather?"), NULL}, {"assistant", str_of(""), more}};
    Rendered before = {0};
    assert_ok(chat_template_render(c, m, 2, w->tools.json, false, out));
    assert_ok(chat_template_render(c, m, 1, w->tools.json, true, &before));
    size_t same = 0;
    while (same < before.text.n && same < out->text.n && before.text.data[same] == out->text.data[same]) same++;
    // begins at the start of a mark or a line
    while (same > 0 && out->text.data[same - 1] != '>' && out->text.data[same - 1] != '\n') same--;
    memmove(out->text.data, out->text.data + same, out->text.n - same);
    out->text.n -= same;
    buf_append(&out->text, "", 1);
    out->text.n--;
    rendered_free(&before);
    json_decref(more);
}

// The length in bytes of the longest beginning of the text that is a complete answer; -1: there is none.
static int longest_answer(Grammar *g, Str text) {
    int state = grammar_start(g), longest = -1;
    for (size_t i = 0; i < text.n && state != STATE_DEAD; i++) {
        state = grammar_step(g, state, (Str){text.data + i, 1});
        if (state != STATE_DEAD && grammar_accepts(g, state)) longest = (int)i + 1;
    }
    return longest;
}

static bool check_rendered(const World *w, size_t i, const ChatTemplate *c, const CallFormat *f) {
    Rendered r = {0};
    Buf rest = {0};
    render_call(c, w, &r);
    json_t *calls = call_format_read(f, &w->tools, str_of_buf(&r.text), &rest);
    if (!calls) {
        print_error("%s: no call found in %s\n", templates[i].file, r.text.data);
        rendered_free(&r);
        buf_free(&rest);
        return false;
    }
    assert_int_equal(json_array_size(calls), 1);
    assert_string_equal(name_of(calls, 0), "get_weather");
    json_t *arguments = arguments_of(calls, 0);
    if (!str_is(str_of(json_string_value(json_object_get(arguments, "city"))), "New York") ||
        json_integer_value(json_object_get(arguments, "days")) != 3)
        fail_msg("%s: other arguments than those of the call", templates[i].file);
    // From some byte near its beginning to the end of the turn, the text must be an answer of calls only.
    Grammar *g = grammar_of(w, f);
    bool found = false;
    for (size_t from = 0; from < r.text.n && !found; from++) {
        int n = longest_answer(g, (Str){r.text.data + from, r.text.n - from});
        if (n < 0) continue;
        json_t *again = call_format_read(f, &w->tools, (Str){r.text.data + from, (size_t)n}, &rest);
        found = again && json_equal(again, calls);
        json_decref(again);
    }
    if (!found) print_error("%s: the rules refuse what the template writes: %s\n", templates[i].file, r.text.data);
    grammar_free(g);
    json_decref(arguments);
    json_decref(calls);
    rendered_free(&r);
    buf_free(&rest);
    return found;
}

static void test_templates(void **state) {
    (void)state;
    World w;
    int n_bad = 0;
    open_world(&w, "required");
    for (size_t i = 0; i < ARRAY_LEN(templates); i++) {
        ChatTemplate *c = open_template(i);
        const CallFormat *f = call_format_find(chat_template_source(c, true));
        const char *name = f ? call_format_name(f) : "none", *want = templates[i].format ? templates[i].format : "none";
        if (strcmp(name, want) != 0) fail_msg("%s: format %s expected, found %s", templates[i].file, want, name);
        if (templates[i].shows_call) n_bad += !check_rendered(&w, i, c, f);
        chat_template_free(c);
    }
    assert_int_equal(n_bad, 0);
    close_world(&w);
}

// Draws random bytes under the masks; `most` is small, so that the answer gets complete.
static void random_answer(Grammar *g, uint64_t *random, int most, Buf *out) {
    int state = grammar_start(g);
    for (int left = most; left > 0; left--) {
        const uint64_t *mask = grammar_mask_within(g, state, left);
        int id = (int)(test_random(random) % 257);
        while (!mask_has(mask, id)) id = (id + 1) % 257;
        if (id == 256) return;
        buf_append(out, bytes() + id, 1);
        state = grammar_step(g, state, (Str){bytes() + id, 1});
    }
    assert_true(grammar_accepts(g, state));
}

static void check_call(const json_t *calls, size_t i, const char *text) {
    json_t *arguments = arguments_of(calls, i);
    const char *kind = json_string_value(json_object_get(arguments, "kind"));
    const json_t *days = json_object_get(arguments, "days");
    bool weather = strcmp(name_of(calls, i), "get_weather") == 0, good = json_is_object(arguments);
    if (weather) good &= json_is_string(json_object_get(arguments, "city"));
    if (weather && days) good &= json_integer_value(days) >= 1 && json_integer_value(days) <= 9;
    if (!weather) good &= kind && (strcmp(kind, "big") == 0 || strcmp(kind, "small") == 0);
    if (!good) fail_msg("arguments of the schema expected in %s", text);
    json_decref(arguments);
}

static void check_choice(const char *choice, int least, int most) {
    World w;
    uint64_t random = 3;
    int n_bad = 0;
    open_world(&w, choice);
    for (size_t i = 0; i < ARRAY_LEN(templates); i++) {
        if (!templates[i].format) continue;
        ChatTemplate *c = open_template(i);
        const CallFormat *f = call_format_find(chat_template_source(c, true));
        Grammar *g = grammar_of(&w, f);
        for (int k = 0; k < 12; k++) {
            Buf text = {0}, rest = {0};
            random_answer(g, &random, 400, &text);
            buf_append(&text, "", 1);
            json_t *calls = call_format_read(f, &w.tools, (Str){text.data, text.n - 1}, &rest);
            int n = (int)json_array_size(calls);
            if (n < least || n > most)
                print_error("%s, %s: %d calls in %s\n", templates[i].format, choice, n, text.data);
            n_bad += n < least || n > most;
            for (int call = 0; call < n; call++) check_call(calls, (size_t)call, text.data);
            json_decref(calls);
            buf_free(&text);
            buf_free(&rest);
        }
        grammar_free(g);
        chat_template_free(c);
    }
    assert_int_equal(n_bad, 0);
    close_world(&w);
}

static void test_random_answers(void **state) {
    (void)state;
    check_choice("required", 1, 100);
    check_choice("list_all", 1, 1);
    check_choice("auto", 0, 100);
    check_choice("none", 0, 0);
}

// Alternatives are separated by | outside of <| and |>.
static const struct {
    const char *template, *prompt, *yes, *no;
} thoughts[] = {
    {"<think></think>", "", "12|<think>a <b \"</think>\n\n12|\n<think>\n</think>12", "<think>12|<think></think>x|x"},
    {"<think></think>", "<think>\n", "a</think>12|</think>\n12", "12|a</think>b"},
    {"<think></think>", "<think>\n\n</think>\n\n", "12", "<think></think>12"},
    {"<think></think><response></response>", "", "<think>x</think><response>12</response>|12|<think></think>12",
     "<response>x"},
    {"[THINK] [/THINK]", "", "[THINK]</think>[/THINK]12", "[THINK]12"},
    {"<|channel|>analysis<|message|>", "<|start|>assistant",
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>12|"
     "<|channel|>final<|message|>12",
     "<|channel|>analysis<|message|>12|<|channel|>final<|message|>x"},
    {"to=self<|message|>", "<|start|>assistant",
     " to=self<|message|>a<|eom|><|start|>assistant to=user<|message|>12| to=user<|message|>12|"
     " to=get_weather<|message|>12",
     " to=self<|message|>12| to=other<|message|>12| to=user<|message|>x"},
    {"<|START_THINKING|> <|END_THINKING|>", "",
     "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>12<|END_RESPONSE|>|12", "<|START_THINKING|>12"},
    {"no thoughts", "", "12", "<think></think>12"},
};

// Thoughts before the answer: the grammar must agree with the stream that separates thoughts.
static void test_thoughts(void **state) {
    (void)state;
    World w;
    open_world(&w, "auto");
    for (size_t i = 0; i < ARRAY_LEN(thoughts); i++) {
        Rules r;
        Nfa nfa;
        rules_start(&r);
        ThinkStream begin = think_begin(str_of(thoughts[i].template), str_of(thoughts[i].prompt));
        rules_rule(&r, str_of("root"));
        r.start = rules_anonymous(&r, think_rules(&begin, w.t, &w.tools, true, rules_text(&r, "12", 2), &r));
        assert_ok(nfa_build(&r, NULL, &nfa));
        Automaton *a = automaton_new(&nfa);
        for (int want = 0; want < 2; want++) {
            const char *list = want ? thoughts[i].yes : thoughts[i].no;
            int at = automaton_start(a);
            for (const char *s = list;; s++) {
                bool ends = !*s || (*s == '|' && s[1] != '>' && (s == list || s[-1] != '<'));
                if (!ends) {
                    at = automaton_step(a, at, (uint8_t)*s);
                    continue;
                }
                if (automaton_state(a, at)->accepts != (bool)want)
                    fail_msg("%s: %s up to \"%s\" should be %s", thoughts[i].template, list, s,
                             want ? "taken" : "refused");
                at = automaton_start(a);
                if (!*s) break;
            }
        }
        automaton_free(a);
        nfa_free(&nfa);
        rules_free(&r);
    }
    close_world(&w);
}

// Marks are control tokens if the vocabulary has them; the other parts of a mark are text.
static void test_marks(void **state) {
    (void)state;
    static const struct {
        const char *mark, *bytes;
    } all[] = {
        {"<|eot_id|>", "\xff<|eot_id|>"},
        {"<|start_header_id|>assistant<|end_header_id|>", "\xff<|start_header_id|>assistant\xff<|end_header_id|>"},
        {"<tool_call>", "<tool_call>"},
        {"[TOOL_CALLS] x", "[TOOL_CALLS] x"},
    };
    Gguf *g;
    Tokenizer *t;
    assert_ok(gguf_open(test_data("tokenizers/ggml-vocab-llama-bpe.gguf"), &g));
    assert_ok(tokenizer_load(g, &t));
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        Buf out = {0};
        marks_bytes(t, str_of(all[i].mark), &out);
        buf_append(&out, "", 1);
        assert_string_equal(out.data, all[i].bytes);
        buf_free(&out);
    }
    tokenizer_free(t);
    gguf_close(g);
}

// Values in a notation of a model's own.
static void test_values(void **state) {
    (void)state;
    static const struct {
        const char *text, *quote, *want; // NULL: no value
    } cases[] = {
        {"'C:\\\\'", "'", "\"C:\\\\\""},
        {"'it\\'s'", "'", "\"it's\""},
        {"'a\\q\\n'", "'", "\"a\\\\q\\n\""},
        {"'open\\'", "'", NULL},
        {"['a', \"b\", True, None, {'k': [1.5]}]", "'", "[\"a\",\"b\",true,null,{\"k\":[1.5]}]"},
        {"{a:<|\"|>x,y<|\"|>,b c:[{d:1}],e:{}}", "<|\"|>", "{\"a\":\"x,y\",\"b c\":[{\"d\":1}],\"e\":{}}"},
        {"[1,]", "'", NULL},
        {"[1 2]", "'", NULL},
        {"{a}", "'", NULL},
        {"", "'", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *found;
        Buf text = {0};
        size_t n = call_value_read(str_of(cases[i].text), str_of(cases[i].quote), &found);
        if (!n != !cases[i].want) fail_msg("%s: %zu bytes read", cases[i].text, n);
        if (!n) continue;
        assert_int_equal(n, strlen(cases[i].text));
        jsonio_print(found, JSON_ENCODE_ANY | JSON_COMPACT, &text);
        assert_string_equal(text.data, cases[i].want);
        buf_free(&text);
        json_decref(found);
    }
}

static void test_errors(void **state) {
    (void)state;
    static const struct {
        const char *text, *choice, *says;
    } bad[] = {
        {"[\n{]", NULL, "line 2, column"},
        {"[{\"name\":\"a\",\"parameters\":{\"maximum\":18446744073709551615}}]", NULL,
         "line 1, column 57: a list of tools in JSON expected, found: 18446744073709551615, an integer beyond 64 bits; "
         "write it with .0"},
        {"{}", NULL, "a list of tools expected"},
        {"[3]", NULL, "tool 1: {\"type\":\"function\""},
        {"[{\"type\":\"retrieval\"}]", NULL, "tool 1: {\"type\":\"function\""},
        {"[{\"name\":\"a b\"}]", NULL, "tool 1: a \"name\""},
        {"[{\"name\":\"a\"},{\"name\":\"a\"}]", NULL, "tool 2: each name once"},
        {"[{\"name\":\"a\",\"parameters\":3}]", NULL, "parameters: a JSON schema"},
        {"[{\"name\":\"a\"}]", "b", "tool choice: auto, none, required"},
        {"[]", "required", "tools expected with it"},
        {NULL, "a", "tools expected with it"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Tools t;
        Status st = tools_read(&(AnswerTools){.text = bad[i].text, .choice = bad[i].choice}, &t);
        if (st.code != QUILL_USAGE || !strstr(st.message, bad[i].says))
            fail_msg("%zu: \"%s\" expected, found \"%s\"", i, bad[i].says, st.message);
        tools_free(&t);
    }
    Tools none;
    assert_ok(tools_read(&(AnswerTools){.text = "[]"}, &none));
    assert_null(none.json);
    tools_free(&none);
}

int main(void) {
    jsonio_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),   cmocka_unit_test(test_errors),    cmocka_unit_test(test_marks),
        cmocka_unit_test(test_thoughts), cmocka_unit_test(test_templates), cmocka_unit_test(test_random_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
