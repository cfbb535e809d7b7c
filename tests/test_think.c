// tests/test_think.c: thoughts are separated from answers, whatever pieces the stream arrives in: every family, markers
// as text and as tokens.
#include "tests/rig/testing.h"

#include "answer/think.h"

// The result of splitting a stream: the joined text of each kind, the whole input, and the kind of each byte of it.
typedef struct {
    Buf said, thought, marker, hidden, all, kinds;
} Split;

static void drain(ThinkStream *t, Split *s) {
    for (Part p; think_next(t, &p);) {
        Buf *of[] = {&s->said, &s->thought, &s->marker, &s->hidden};
        assert_true(p.bytes.n > 0);
        buf_append(of[p.kind], p.bytes.data, p.bytes.n);
        buf_append(&s->all, p.bytes.data, p.bytes.n);
        for (size_t i = 0; i < p.bytes.n; i++) buf_append(&s->kinds, &"STMH"[p.kind], 1);
    }
}

static void finish(ThinkStream *t, Split *s) {
    think_end(t);
    drain(t, s);
    think_free(t);
    Buf *all[] = {&s->said, &s->thought, &s->marker, &s->hidden, &s->all, &s->kinds};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) buf_append(all[i], "", 0);
}

static void split_free(Split *s) {
    Buf *all[] = {&s->said, &s->thought, &s->marker, &s->hidden, &s->all, &s->kinds};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) buf_free(all[i]);
}

// Splits a text given in two pieces (0 < cut < n), in one piece (0), or byte by byte (n).
static Split split(const char *template, const char *prompt, const char *text, size_t cut) {
    ThinkStream t = think_begin(str_of(template), str_of(prompt));
    Split s = {0};
    size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        size_t len = cut == n ? 1 : cut && at < cut ? cut - at : n - at;
        think_add(&t, text + at, len, false);
        drain(&t, &s);
        at += len;
    }
    finish(&t, &s);
    return s;
}

#define GRANITE "between <think></think> and write your response between <response></response> for"
#define HARMONY "{{ '<|channel|>analysis<|message|>' }}"

#define HY3 "{%- set HYTK = ':opensource' %}{%- set think_begin_token = '<think{}>'.format(HYTK) %}"
#define MUSE "'<|start|>assistant to=self<|message|>'"

static const struct {
    const char *template, *prompt, *text, *thought, *said;
} splits[] = {
    {"<think>", "", "<think>\nWhy?\n</think>\n\nBecause.", "Why?", "Because."},
    {"x.split('</think>')", "hi<think>\n", "Why?\n</think>\n\nBecause.\n", "Why?", "Because.\n"},
    {"</think>", "assistant\n<think>\n\n</think>\n\n", "Because.", "", "Because."},
    {"</think>", "assistant\n", "<think>\n\n</think>\n\nYes", "", "Yes"},
    {"</think>", "assistant\n", " \n<think>a</think>b", "a", "b"},
    {"</think>", "", "Write <think>x</think> so.", "", "Write <think>x</think> so."},
    {"</think>", "", "<think>a <think> b</think>c</think>d", "a <think> b", "c</think>d"},
    {"</think>", "", "<think>cut off\n", "cut off\n", ""},
    {"</think>", "", "<think>a</thin", "a</thin", ""},
    {"</think>", "", "<thinking>", "", "<thinking>"},
    {"</think>", "", "<think>é中\n\n b\n</think>  é", "é中\n\n b", "  é"}, // the indentation of a line stays
    {"</think>", "", "", "", ""},
    {"</think>", "", " \n ", "", " \n "},
    {GRANITE, "", "<think>a</think>\n\n<response>b <x>c</x>\n</response>", "a", "b <x>c</x>"},
    {GRANITE, "", "<think>a</think>b <response>c</response>", "a", "b <response>c</response>"},
    {GRANITE, "", "A tag: <response>c</response>", "",
     "A tag: <response>c</response>"}, // this model was not asked to think
    {GRANITE, "", "<think>a</think><response>b</response> c</response>", "a", "b c</response>"},
    {"<think></think>", "", "<think>a</think><response>b</response>", "a", "<response>b</response>"},
    {"<seed:think>", "", "<seed:think>a</think></seed:think>b", "a</think>", "b"},
    {"[THINK]", "", "[THINK]a[/THI[/THINK]b", "a[/THI", "b"},
    {"</thought>", "<thought>", "a</thought>b", "a", "b"},
    {"◁think▷", "", "◁think▷a◁/think▷b", "a", "b"},
    {"<|inner_prefix|>", "", "<|inner_prefix|>a<|inner_suffix|>b", "a", "b"},
    {"<|START_THINKING|>", "", "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>b<|END_RESPONSE|>", "a", "b"},
    {HARMONY, "<|start|>assistant",
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "a", "b"},
    {HARMONY, "<|start|>assistant",
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>"
     "<|start|>assistant<|channel|>analysis <|constrain|>x<|message|>c<|end|>"
     "<|start|>assistant<|channel|>final<|message|>d",
     "ac", "bd"},
    {HARMONY, "<|start|>assistant<|channel|>final<|message|>", "b < c |> <| d", "", "b < c |> <| d"},
    {HARMONY, "<|start|>assistant<|channel|>analysis<|message|>", "a<|end|><|channel|>final<|message|>b", "a", "b"},
    {HARMONY, "", // a channel name that is too long is ordinary text
     "<|channel|>this name of a channel is longer than any that a model was ever given......<|message|>", "",
     "<|channel|>this name of a channel is longer than any that a model was ever given......<|message|>"},
    {HY3, "<think:opensource>", "a<think>b</think:opensource>c", "a<think>b", "c"},
    {HY3, "<think:opensource></think:opensource>", "<think:opensource>a", "", "<think:opensource>a"},
    {"{{ '<think{}>'.format('') }}", "<think>", "a</think>b", "", "a</think>b"},
    {MUSE, "<|start|>assistant",
     " to=self<|message|>a to=user b<|eom|><|start|>assistant to=user<|message|>c to=self<|message|>", "a to=user b",
     "c to=self<|message|>"},
    {MUSE, "<|start|>assistant", " to=user<|message|>a<|eom|><|start|>assistant to=user<|message|>b", "", "ab"},
    {MUSE, "<|start|>assistant", " to=get_weather<|message|><atem:function_calls>", "", "<atem:function_calls>"},
    {MUSE, "<|start|>assistant", "to=day is fine", "", "to=day is fine"},
    // the template belongs to no family
    {"{{ messages }}", "<think>\n", "<think>a</think>b", "", "<think>a</think>b"},
    {"", "", "<think>a</think>b", "", "<think>a</think>b"},
    {"phi: <|end|>", "", "a<|end|>b", "", "a<|end|>b"}, // in this family the marker has no meaning
};

static void test_families(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(splits); i++)
        for (size_t cut = 0; cut <= strlen(splits[i].text); cut++) {
            Split s = split(splits[i].template, splits[i].prompt, splits[i].text, cut);
            if (strcmp(s.thought.data, splits[i].thought) != 0 || strcmp(s.said.data, splits[i].said) != 0)
                fail_msg("%s cut at %zu: thought \"%s\", said \"%s\"", splits[i].text, cut, s.thought.data,
                         s.said.data);
            assert_string_equal(s.all.data, splits[i].text);
            assert_int_equal(s.hidden.n, 0);
            split_free(&s);
        }
}

// Control tokens can be markers, like text. Other control tokens are not shown.
static void test_control_tokens(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        bool control;
    } pieces[] = {{"<|channel|>", true}, {"analysis", false},   {"<|message|>", true}, {"Hm", false},
                  {"<|end|>", true},     {"<|start|>", true},   {"assistant", false},  {"<|channel|>", true},
                  {"final", false},      {"<|message|>", true}, {"Yes", false},        {"<|pad|>", true},
                  {".", false},          {"<|return|>", true}};
    ThinkStream t = think_begin(str_of(HARMONY), str_of("<|start|>assistant"));
    Split s = {0};
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        think_add(&t, pieces[i].bytes, strlen(pieces[i].bytes), pieces[i].control);
        drain(&t, &s);
    }
    finish(&t, &s);
    assert_string_equal(s.thought.data, "Hm");
    assert_string_equal(s.said.data, "Yes.");
    assert_string_equal(s.hidden.data, "<|pad|><|return|>");
    split_free(&s);
    // Without a family, control tokens are hidden as usual.
    t = think_begin(str_of(""), str_of(""));
    s = (Split){0};
    think_add(&t, "<think>", 7, true);
    think_add(&t, "a", 1, false);
    finish(&t, &s);
    assert_string_equal(s.said.data, "a");
    assert_string_equal(s.hidden.data, "<think>");
    split_free(&s);
}

static void test_holds_no_more_than_needed(void **state) {
    (void)state;
    ThinkStream t = think_begin(str_of("</think>"), str_of("<think>\n"));
    Split s = {0};
    const struct {
        const char *piece, *thought, *said;
    } steps[] = {
        {"Hm", "Hm", ""},
        {" a", "Hm a", ""},
        {"</", "Hm a", ""},
        {"thin", "Hm a", ""},
        {"g\n", "Hm a</thing", ""},
        {"b\n\n", "Hm a</thing\nb", ""},
        {"</think>", "Hm a</thing\nb", ""},
        {"\n\n", "Hm a</thing\nb", ""},
        {"Yes </", "Hm a</thing\nb", "Yes </"},
    };
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        think_add(&t, steps[i].piece, strlen(steps[i].piece), false);
        drain(&t, &s);
        buf_append(&s.thought, "", 0);
        buf_append(&s.said, "", 0);
        assert_string_equal(s.thought.data, steps[i].thought);
        assert_string_equal(s.said.data, steps[i].said);
    }
    finish(&t, &s);
    split_free(&s);
}

// Random streams of pieces of markers and control tokens: the joined parts must be the input, and the kind of each byte
// must not depend on the pieces.
static void test_cuts_do_not_matter(void **state) {
    (void)state;
    static const char *const templates[] = {"</think>", HARMONY, "<|START_THINKING|>", ""};
    static const char *const prompts[] = {"", "<think>\n", "<|start|>assistant"};
    static const char *const words[] = {
        "<think>",
        "</think>",
        "<thi",
        "nk>",
        "\n",
        " ",
        "a",
        "é",
        "<|channel|>",
        "analysis",
        "final",
        "<|message|>",
        "<|end|>",
        "<|start|>assistant",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "<|START_RESPONSE|>",
        "<",
        "|>",
        "b",
    };
    uint64_t random = 11;
    for (int round = 0; round < 20000; round++) {
        const char *template = templates[test_random(&random) % ARRAY_LEN(templates)];
        const char *prompt = prompts[test_random(&random) % ARRAY_LEN(prompts)];
        ThinkStream whole = think_begin(str_of(template), str_of(prompt)), cut = whole;
        Split a = {0}, b = {0};
        Buf text = {0};
        for (int n = (int)(test_random(&random) % 16); n > 0; n--) {
            const char *word = words[test_random(&random) % ARRAY_LEN(words)];
            bool hidden = word[0] == '<' && test_random(&random) % 4 == 0;
            buf_str(&text, word);
            think_add(&whole, word, strlen(word), hidden); // each word as one piece
            for (size_t at = 0, len; at < strlen(word); at += len) {
                len = 1 + test_random(&random) % (strlen(word) - at);
                think_add(&cut, word + at, len, hidden);
                drain(&cut, &b);
            }
        }
        buf_append(&text, "", 0);
        finish(&whole, &a);
        finish(&cut, &b);
        assert_string_equal(a.all.data, text.data);
        assert_string_equal(b.all.data, text.data);
        assert_string_equal(a.kinds.data, b.kinds.data);
        buf_free(&text);
        split_free(&a);
        split_free(&b);
    }
}

// Templates of real models with their own markers: {file, the end of a prompt, an answer that thinks "a" and says "b"}.
static void test_real_templates(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"Qwen-Qwen3-0.6B", "<|im_start|>assistant\n", "<think>\na\n</think>\n\nb"},
        {"HuggingFaceTB-SmolLM3-3B", "<|im_start|>assistant\n", "<think>\na\n</think>\nb"},
        {"GLM-4.6", "<|assistant|>", "\n<think>a</think>\nb"},
        {"llama-cpp-deepseek-r1", "<think>\n", "a\n</think>\n\nb"},
        {"deepseek-ai-DeepSeek-V3.1", "<think>", "a</think>b"},
        {"ByteDance-Seed-OSS", "<seed:bos>assistant\n", "<seed:think>a</seed:think>b"},
        {"Apertus-8B-Instruct", "<|assistant_start|>", "<|inner_prefix|>a<|inner_suffix|>b"},
        {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "<|CHATBOT_TOKEN|>",
         "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>b<|END_RESPONSE|>"},
        {"openai-gpt-oss-120b", "<|start|>assistant",
         "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Buf template = {0};
        char path[96];
        snprintf(path, sizeof path, "templates/%s.jinja", cases[i][0]);
        assert_ok(file_read(test_data(path), &template));
        Split s = split(template.data, cases[i][1], cases[i][2], 0);
        if (strcmp(s.thought.data, "a") != 0 || strcmp(s.said.data, "b") != 0)
            fail_msg("%s: thought \"%s\", said \"%s\"", cases[i][0], s.thought.data, s.said.data);
        split_free(&s);
        buf_free(&template);
    }
    static const char *const none[] = {"Qwen3-Coder", "microsoft-Phi-3.5-mini-instruct", "google-gemma-2-2b-it"};
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        Buf template = {0};
        char path[96];
        snprintf(path, sizeof path, "templates/%s.jinja", none[i]);
        assert_ok(file_read(test_data(path), &template));
        ThinkStream t = think_begin(str_of_buf(&template), str_of(""));
        assert_null(t.family);
        buf_free(&template);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_control_tokens),
        cmocka_unit_test(test_holds_no_more_than_needed),
        cmocka_unit_test(test_cuts_do_not_matter),
        cmocka_unit_test(test_real_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
