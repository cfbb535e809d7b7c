// tests/test_answer.c: the output of an answer: thoughts and text on stdout, in JSON and in the history of the
// conversation.
#define _GNU_SOURCE // setenv
#include "tests/rig/testing.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "cli/cli.h"
#include "answer/answer.h"
#include "answer/prepare.h"
#include "tests/rig/tiny_model.h"

typedef struct {
    const char *options; // separated by spaces
    const char *written; // the model's text
    bool terminal;
    const char *answer, *thinking; // expected in the Answer
    const char *out;               // expected on stdout; NULL: see the test
} Case;

static Engine engine;

static int open_engine(void **state) {
    (void)state;
    Options o;
    bool stop;
    unsetenv("NO_COLOR");
    unsetenv("QUILL_DEVICE");
    char *argv[] = {"quill", "-m", "tiny", "-t", "1"};
    Gguf *g = tiny_model(&(TinyModel){.arch = "qwen2", .chat_template = "chatml"});
    Status st = cli_parse(ARRAY_LEN(argv), argv, &o, &stop);
    if (!st.code) st = engine_open_view(&engine, &o.engine, (EngineNeeds){.need_tokenizer = true}, g);
    cli_free(&o);
    return st.code;
}

static int close_engine(void **state) {
    (void)state;
    engine_close(&engine);
    return 0;
}

// Feeds the text as if the model had sampled its tokens. `out` gets the bytes of stdout.
static Finish say(Answer *a, const Case *c, Options *o, Buf *out) {
    static char line[256]; // the Options point into it
    char *argv[16] = {"quill", "-m", "tiny"};
    int argc = 3, ids[512];
    bool stop;
    snprintf(line, sizeof line, "%s", c->options);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    assert_ok(cli_parse(argc, argv, o, &stop));
    size_t n = tokenizer_encode(engine.tok, c->written, strlen(c->written), NULL, ids, ARRAY_LEN(ids));
    assert_in_range(n, 0, ARRAY_LEN(ids));
    ChatTemplate *template;
    assert_ok(chat_template_open("test", "test", str_of("</think>"), str_of(""), str_of(""), &template));
    const char *path = test_tmp("answer.txt");
    fflush(stdout);
    int saved = dup(STDOUT_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(saved >= 0 && file >= 0 && dup2(file, STDOUT_FILENO) >= 0);
    Request r = {0};
    answer_begin(a, &engine,
                 &(AnswerSetup){.config = &o->answer, .template = template, .prompt = str_of("assistant\n")});
    answer_ask(a, &r);
    chat_template_free(template);
    // Pretends that stdout is a terminal.
    if (c->terminal && (!o->answer.think || strcmp(o->answer.think, "hide") != 0)) a->show_thoughts = true;
    Finish finish = RUNNING;
    float *logits = mem_alloc((size_t)engine.model.c.n_vocab * sizeof *logits);
    for (size_t i = 0; i < n && finish == RUNNING; i++, r.n_new++) finish = r.emit(&r, ids[i], logits);
    r.finish = finish == RUNNING ? FINISH_LENGTH : finish;
    Status st = answer_finish(a, &r);
    free(logits);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(file);
    assert_ok(st);
    assert_ok(file_read(path, out));
    buf_append(out, "", 0);
    buf_append(&a->answer, "", 0);
    buf_append(&a->thinking, "", 0);
    buf_append(&a->text, "", 0);
    return finish;
}

#define WRITTEN "<think>\nWhy? é\n</think>\n\nBecause."

static void test_text(void **state) {
    (void)state;
    static const Case cases[] = {
        {"", WRITTEN, false, "Because.", "Why? é", "Because.\n"},
        {"", WRITTEN, true, "Because.", "Why? é", "<think>\nWhy? é\n</think>\n\nBecause.\n"},
        {"--color always", WRITTEN, true, "Because.", "Why? é", "\033[2mWhy? é\033[0m\n\nBecause.\n"},
        {"--color always", "<think>\nWhy", true, "", "Why", "\033[2mWhy\033[0m\n"},
        {"--think hide", WRITTEN, true, "Because.", "Why? é", "Because.\n"},
        {"--think show", WRITTEN, false, "Because.", "Why? é", "<think>\nWhy? é\n</think>\n\nBecause.\n"},
        {"--think show", "<think>\nWhy", false, "", "Why", "<think>\nWhy\n</think>\n"},
        {"--think on", WRITTEN, false, "Because.", "Why? é", "Because.\n"},
        {"--no-newline", WRITTEN, false, "Because.", "Why? é", "Because."},
        {"--no-stream", WRITTEN, false, "Because.", "Why? é", "Because.\n"},
        {"", "Because.\n", false, "Because.\n", "", "Because.\n"},
        {"-q", "<think>Why", false, "", "Why", ""},
        {"", "<think>\n\n</think>\n\nYes", true, "Yes", "", "Yes\n"},
        {"", "No <think>a</think>.", false, "No <think>a</think>.", "", "No <think>a</think>.\n"},
        // Stop strings apply to the answer, not to the thoughts, and never match across both.
        {"--stop use", "<think>of use</think>Because.", false, "Beca", "of use", "Beca\n"},
        {"--stop useB", "<think>of use</think>Because.", false, "Because.", "of use", "Because.\n"},
        {"--special", WRITTEN, false, WRITTEN, "", WRITTEN "\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Answer a;
        Options o;
        Buf out = {0};
        Finish finish = say(&a, &cases[i], &o, &out);
        assert_string_equal(a.answer.data, cases[i].answer);
        assert_string_equal(a.thinking.data, cases[i].thinking);
        assert_string_equal(out.data, cases[i].out);
        bool stopped = strstr(cases[i].answer, "Beca") && !strstr(cases[i].answer, "Because");
        assert_int_equal(finish, stopped ? FINISH_STOP : RUNNING);
        if (!stopped) assert_string_equal(a.text.data, cases[i].written); // the history has the whole text
        else assert_string_equal(a.text.data, "<think>of use</think>Beca");
        buf_free(&out);
        answer_free(&a);
        cli_free(&o);
    }
}

// The tokens that the model's file suppresses get a bias of -inf, behind those of the user.
static void test_suppressed_tokens(void **state) {
    (void)state;
    Engine e;
    EngineConfig config = {.device = "cpu", .isa = "scalar", .quiet = true, .threads = 1, .ubatch = 16};
    Gguf *g = tiny_model(&(TinyModel){0});
    gguf_set_ints(g, "tokenizer.ggml.suppress_tokens", (int32_t[]){5, 9}, 2);
    assert_ok(engine_open_view(&e, &config, (EngineNeeds){.need_tokenizer = true}, g));
    AnswerConfig own = {.sampling = {.bias = &(LogitBias){7, 1}, .n_bias = 1}, .ignore_eos = true};
    SamplerParams p;
    LogitBias *bias;
    assert_ok(answer_sampling(&e, &own, &p, &bias));
    int n_ends = tokenizer_eog_ids(e.tok, NULL, 0), last = p.n_bias - 1;
    assert_int_equal(p.n_bias, 1 + n_ends + 2);
    assert_true(p.bias[0].id == 7 && p.bias[0].bias == 1);
    assert_true(p.bias[last - 1].id == 5 && p.bias[last].id == 9);
    assert_true(p.bias[last - 1].bias == -INFINITY && p.bias[last].bias == -INFINITY);
    free(bias);
    own.ignore_eos = false;
    assert_ok(answer_sampling(&e, &own, &p, &bias));
    assert_int_equal(p.n_bias, 3);
    free(bias);
    engine_close(&e);
}

static const char *json_text(json_t *object, const char *key) {
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

// The lines of --jsonl, joined, must give the last object, which is that of --json.
static void test_json(void **state) {
    (void)state;
    static const Case cases[] = {
        {"--json", WRITTEN, false, "Because.", "Why? é", NULL},
        {"--jsonl", WRITTEN, false, "Because.", "Why? é", NULL},
        {"--jsonl --think show", WRITTEN, false, "Because.", "Why? é", NULL},
        {"--jsonl --think hide", WRITTEN, false, "Because.", "", NULL},
        {"--jsonl", "Because.", false, "Because.", "", NULL},
        // Text that may begin a marker or a stop string but does not.
        {"--jsonl", "<think>\nWhy\n</thi", false, "", "Why\n</thi", NULL},
        {"--jsonl --stop sense", "Because.  sens", false, "Because.  sens", "", NULL},
        {"--jsonl --stop sense", "Because.  sense", false, "Because.  ", "", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Answer a;
        Options o;
        Buf out = {0}, text = {0}, thinking = {0};
        say(&a, &cases[i], &o, &out);
        json_t *last = NULL;
        for (char *line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n")) {
            if (last) buf_str(&text, json_text(last, "text")), buf_str(&thinking, json_text(last, "thinking"));
            json_decref(last);
            last = json_loads(line, 0, NULL);
            assert_non_null(last);
        }
        assert_string_equal(json_text(last, "text"), cases[i].answer);
        assert_string_equal(json_text(last, "thinking"), cases[i].thinking);
        assert_int_equal(json_object_get(last, "thinking") != NULL, cases[i].thinking[0] != 0);
        if (o.answer.jsonl) {
            buf_append(&text, "", 0);
            buf_append(&thinking, "", 0);
            assert_string_equal(text.data, cases[i].answer);
            assert_string_equal(thinking.data, cases[i].thinking);
        }
        json_decref(last);
        buf_free(&out);
        buf_free(&text);
        buf_free(&thinking);
        answer_free(&a);
        cli_free(&o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_suppressed_tokens),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
