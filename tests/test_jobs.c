// tests/test_jobs.c: lines of a batch: their meaning and their errors; lines that arrive through a pipe in pieces.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include <fcntl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "batch/feed.h"
#include "batch/jobs.h"

static Options defaults;

static int read_defaults(void **state) {
    (void)state;
    bool stop;
    char *argv[] = {"quill", "batch", "--raw", "--logit-bias", "3+1", "-m", "x", NULL};
    return cli_parse(7, argv, &defaults, &stop).code || stop;
}

static int free_defaults(void **state) {
    (void)state;
    cli_free(&defaults);
    return 0;
}

static void good(const char *line, Job *j) {
    Status st = job_parse(str_of(line), &defaults.answer, j);
    if (st.code) fail_msg("%s: %s", line, st.message);
}

static void test_our_form(void **state) {
    (void)state;
    Job j;
    good("{\"id\":\"a\",\"prompt\":\"x\\u0000y\",\"n\":3,\"max_tokens\":7,\"temperature\":0.5,\"top_p\":1,\"top_k\":0,"
         "\"min_p\":0,\"xtc_probability\":0.5,\"seed\":9,\"greedy\":true,\"ignore_eos\":true,\"repeat_penalty\":1.5,"
         "\"logprobs\":2,"
         "\"stop\":[\"a\",\"b\"],\"logit_bias\":{\"5\":-100}}",
         &j);
    assert_int_equal(j.form, JOB_QUILL);
    assert_string_equal(json_string_value(j.id), "a");
    assert_int_equal(j.prompt.n, 3);
    assert_memory_equal(j.prompt.data, "x\0y", 3);
    assert_int_equal(j.n, 3);
    assert_int_equal(j.config.predict, 7);
    assert_true(j.config.sampling.temp == 0.5f && j.config.sampling.top_p == 1.0f &&
                j.config.sampling.repeat_penalty == 1.5f);
    assert_int_equal(j.config.sampling.top_k, 0);
    assert_true(j.config.sampling.xtc_probability == 0.5f);
    assert_true(j.config.seed_given && j.config.sampling.seed == 9 && j.config.sampling.greedy && j.config.ignore_eos &&
                j.raw);
    assert_int_equal(j.config.logprobs, 2);
    assert_int_equal(j.config.n_stop, 2);
    assert_string_equal(j.config.stop[1], "b");
    assert_int_equal(j.config.sampling.n_bias, 2); // that of the run and that of the line
    assert_true(j.config.sampling.bias[0].id == 3 && j.config.sampling.bias[1].id == 5 &&
                j.config.sampling.bias[1].bias == -100);
    job_free(&j);
    // A key that the line does not have keeps the value of the run.
    good("{\"prompt\":\"\",\"stop\":null,\"temperature\":null,\"n\":null,\"tools\":[]}", &j);
    assert_null(j.id);
    assert_true(j.n == 1 && j.config.predict == -1 && !j.config.seed_given && j.config.sampling.temp == 0.8f);
    assert_ptr_equal(j.config.sampling.bias, defaults.answer.sampling.bias);
    job_free(&j);
    // Empty values take back what the run says.
    good("{\"prompt\":\"x\",\"messages\":null,\"raw\":false,\"stop\":[],\"ignore_eos\":false,\"early_stopping\":false,"
         "\"logprobs\":false,\"max_tokens\":3.0,\"n\":2.0,\"metadata\":{},\"unknown\":[]}",
         &j);
    assert_true(!j.raw && j.config.n_stop == 0 && !j.config.ignore_eos && j.config.logprobs == -1);
    assert_string_equal(j.config.early_stopping, "false");
    assert_true(j.config.predict == 3 && j.n == 2);
    job_free(&j);
    good("{\"id\":7,\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":"
         "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}],\"stop\":\"###\"}",
         &j);
    assert_int_equal(j.n_messages, 2);
    assert_string_equal(j.messages[0].role, "system");
    assert_true(str_is(j.messages[0].text, "Be brief.") && str_is(j.messages[1].text, "ab"));
    assert_string_equal(j.messages[1].role, "user");
    assert_int_equal(j.config.n_stop, 1);
    job_free(&j);
    good("{\"cancel\":\"a\"}", &j);
    assert_string_equal(json_string_value(j.cancel), "a");
    job_free(&j);
}

static void test_no_tool_choice(void **state) {
    (void)state;
    AnswerConfig run = defaults.answer;
    run.raw = false;
    run.tools.text = "[]";
    run.tools.choice = "required";
    for (int off = 0; off < 2; off++) {
        Job j;
        assert_ok(job_parse(str_of(off ? "{\"prompt\":\"x\",\"tool_choice\":false}" : "{\"prompt\":\"x\"}"), &run, &j));
        assert_non_null(j.config.tools.text);
        if (off) assert_null(j.config.tools.choice);
        else assert_string_equal(j.config.tools.choice, "required");
        job_free(&j);
    }
}

// What a line turns off or replaces of a run's forms, tools and kinds of search.
static void test_rivals(void **state) {
    (void)state;
    static const struct {
        const char *keys;
        const char *regex; // of the job; NULL: none
        bool tools;
        int beams, best_of, n_stop, n_bias;
    } cases[] = {
        {"\"id\":1", "a+", true, 0, 3, 1, 1},
        {"\"regex\":false", NULL, true, 0, 3, 1, 1},
        {"\"grammar\":false,\"choice\":false,\"json_schema\":false", NULL, true, 0, 3, 1, 1},
        {"\"response_format\":{\"type\":\"text\"}", NULL, true, 0, 3, 1, 1},
        {"\"regex\":\"b\",\"choice\":false", "b", false, 0, 3, 1, 1},
        {"\"regex\":\"\"", "", false, 0, 3, 1, 1},
        {"\"tools\":false", "a+", false, 0, 3, 1, 1},
        {"\"tools\":[{\"name\":\"f\"}]", NULL, true, 0, 3, 1, 1},
        {"\"stop\":false,\"logit_bias\":false", "a+", true, 0, 3, 0, 0},
        {"\"beams\":2", "a+", true, 2, 0, 1, 1},
        {"\"best_of\":false", "a+", true, 0, 0, 1, 1},
        {"\"best_of\":2,\"beams\":false", "a+", true, 0, 2, 1, 1},
    };
    AnswerConfig run = defaults.answer;
    run.raw = false;
    run.form.regex = "a+";
    run.tools.text = "[]";
    run.best_of = 3;
    run.n_stop = 1;
    run.stop = (const char *[]){"s"};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char line[300];
        Job j;
        snprintf(line, sizeof line, "{\"prompt\":\"x\",%s}", cases[i].keys);
        Status st = job_parse(str_of(line), &run, &j);
        if (st.code) fail_msg("%s: %s", line, st.message);
        bool same = cases[i].regex && j.config.form.regex ? strcmp(cases[i].regex, j.config.form.regex) == 0
                                                          : cases[i].regex == j.config.form.regex;
        bool right = same && cases[i].tools == (j.config.tools.text != NULL) && cases[i].beams == j.config.beams;
        right = right && cases[i].best_of == j.config.best_of && cases[i].n_stop == j.config.n_stop;
        if (!right || cases[i].n_bias != j.config.sampling.n_bias) fail_msg("%s: another job", line);
        job_free(&j);
    }
}

static void test_openai_form(void **state) {
    (void)state;
    Job j;
    good("{\"custom_id\":\"r1\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{\"model\":\"m\","
         "\"messages\":[{\"role\":\"user\",\"content\":\"hi\",\"name\":null}],\"max_completion_tokens\":5,"
         "\"logprobs\":true,\"top_logprobs\":4,\"stream\":false,\"user\":\"u\",\"response_format\":{\"type\":\"text\"}}"
         "}",
         &j);
    assert_int_equal(j.form, JOB_CHAT);
    assert_string_equal(json_string_value(j.id), "r1");
    assert_int_equal(j.config.predict, 5);
    assert_int_equal(j.config.logprobs, 4);
    job_free(&j);
    good("{\"custom_id\":\"r2\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"x\",\"logprobs\":0}}", &j);
    assert_int_equal(j.form, JOB_COMPLETION);
    assert_true(j.raw && j.config.logprobs == 0);
    job_free(&j);
    good("{\"custom_id\":\"r3\",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}}", &j);
    assert_int_equal(j.form, JOB_CHAT);
    job_free(&j);
}

static const struct {
    const char *line, *says;
} broken_lines[] = {
    {"", "a JSON object expected"},
    {"x", "a JSON object expected"},
    {"[1]", "line: a JSON object expected, found [1]"},
    {"{\"prompt\":\"x\"", "a JSON object expected"},
    {"{\"prompt\":\"x\"} y", "a JSON object expected; column 16: end of file expected near 'y'"},
    {"{\"prompt\":\"\xff\"}", "a JSON object expected"},
    {"{\"prompt\":\"x\",\"prompt\":\"y\"}", "duplicate"},
    {"{}", "\"prompt\" or \"messages\" expected, found none"},
    {"{\"id\":1}", "found none"},
    {"{\"prompt\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}", "found both"},
    {"{\"prompt\":[1,2]}", "prompt: a text expected, found [1,2]"},
    {"{\"prompt\":null}", "found none"},
    {"{\"id\":{},\"prompt\":\"x\"}", "id: a text or a whole number expected"},
    {"{\"prompt\":\"x\",\"n\":0}", "n: a whole number from 1 to 128 expected, found 0"},
    {"{\"prompt\":\"x\",\"n\":129}", "n: a whole number"},
    {"{\"prompt\":\"x\",\"n\":1e99}", "n: a whole number"},
    {"{\"prompt\":\"x\",\"n\":99999999999999999999}",
     "column 38: 99999999999999999999, an integer beyond 64 bits; write it with .0"},
    {"{\"prompt\":\"x\",\"n\":-99999999999999999999}", ": an integer beyond 64 bits; write it with .0"},
    {"{\"prompt\":\"x\",\"temprature\":1}", "did you mean temperature?"},
    {"{\"prompt\":\"x\",\"promt\":\"y\"}", "did you mean prompt?"},
    {"{\"prompt\":\"x\",\"context_shift\":true}", "context_shift: quill batch does not support this key"},
    {"{\"prompt\":\"x\",\"x\":1}", "x: quill batch does not support this key"},
    {"{\"prompt\":\"x\",\"tools\":3}", "tools: a list of tools expected, found 3"},
    {"{\"prompt\":\"x\",\"tool_choice\":3}", "tool_choice: \"auto\", \"none\""},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":3}]}", "tool_calls: a list of calls expected"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}", "tool_calls: {\"function\""},
    {"{\"messages\":[{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":3}]}", "tool_call_id: a text expected"},
    {"{\"prompt\":\"x\",\"ctx_size\":64}", "ctx_size"},
    {"{\"prompt\":\"x\",\"context_shift\":true}", "context_shift"},
    {"{\"prompt\":\"x\",\"temperature\":-1}", "temperature: a number from 0 to 1000"},
    {"{\"prompt\":\"x\",\"temperature\":\"1\"}", "temperature: a number expected"},
    {"{\"prompt\":\"x\",\"max_tokens\":1.5}", "max_tokens: a whole number"},
    {"{\"prompt\":\"x\",\"seed\":-2}", "seed: a whole number"},
    {"{\"prompt\":\"x\",\"greedy\":1}", "greedy: true or false expected"},
    {"{\"prompt\":\"x\",\"stop\":[\"\"]}", "stop: texts of 1 to 1024 bytes"},
    {"{\"prompt\":\"x\",\"choice\":[]}", "choice: at least one text expected, found []"},
    {"{\"prompt\":\"x\",\"grammar_file\":\"g\"}", "grammar_file: quill batch does not support this key"},
    {"{\"prompt\":\"x\",\"grammer\":\"g\"}", "did you mean grammar?"},
    {"{\"prompt\":\"x\",\"stop\":[\"a\\u0000\"]}", "stop: texts"},
    {"{\"prompt\":\"x\",\"stop\":[1]}", "stop: texts"},
    {"{\"prompt\":\"x\",\"reverse_prompt\":\"y\"}", "reverse_prompt"},
    {"{\"prompt\":\"x\",\"logit_bias\":{\"a\":1}}", "logit_bias: token ids"},
    {"{\"prompt\":\"x\",\"logit_bias\":{\"1\":1e9}}", "logit_bias: token ids"},
    {"{\"prompt\":\"x\",\"logprobs\":-1}", "logprobs: a whole number from 0 to 1000"},
    {"{\"messages\":[]}", "messages: a list of at least one message"},
    {"{\"messages\":[{}]}", "role: a short text"},
    {"{\"messages\":[{\"role\":\"user\"}]}", "content: a text expected"},
    {"{\"messages\":[{\"role\":\"user\\u0000\",\"content\":\"\"}]}", "role: a short text"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "content: parts of the form"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"\",\"tool_calls\":[1]}]}", "tool_calls: {\"function\""},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"\",\"audio\":[1]}]}", "tool_call_id"},
    {"{\"cancel\":[]}", "cancel: the id of a job"},
    {"{\"cancel\":\"a\",\"prompt\":\"x\"}", "nothing beside \"cancel\" expected, found \"prompt\""},
    {"{\"custom_id\":\"a\"}", "body: an object expected"},
    {"{\"custom_id\":\"a\",\"url\":\"/v1/embeddings\",\"body\":{}}", "url: /v1/chat/completions or"},
    {"{\"custom_id\":\"a\",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"stream\":true}}",
     "stream: quill batch does not support this key"},
    {"{\"a\\u0000b\":1,\"prompt\":\"x\"}", "a JSON object expected"},
};

static void test_broken_lines(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(broken_lines); i++) {
        Job j;
        Status st = job_parse(str_of(broken_lines[i].line), &defaults.answer, &j);
        if (st.code != QUILL_USAGE || !strstr(st.message, broken_lines[i].says))
            fail_msg("%s: code %d: %s", broken_lines[i].line, st.code, st.message);
        job_free(&j);
    }
    Job j;
    assert_int_equal(job_parse(str_of("{\"id\":\"a\",\"prompt\":1}"), &defaults.answer, &j).code, QUILL_USAGE);
    assert_string_equal(json_string_value(j.id), "a"); // the id is known even if the line has an error
    job_free(&j);
}

// ---- the feed -------------------------------------------------------------------------------------------------------

static void expect(Feed *f, FeedResult want, const char *text, int64_t number) {
    Str line = {0};
    FeedResult got;
    assert_ok(feed_next(f, 0, &line, &got));
    assert_int_equal(got, want);
    if (text) assert_true(str_is(line, text));
    if (number) assert_int_equal(f->n_lines, number);
}

static void test_lines_as_they_come(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    Feed f = {.name = "pipe", .fd = ends[0]};
    expect(&f, FEED_NOTHING, NULL, 0);
    assert_int_equal(write(ends[1], "one\ntw", 6), 6);
    expect(&f, FEED_LINE, "one", 1);
    expect(&f, FEED_NOTHING, NULL, 1);
    assert_int_equal(write(ends[1], "o\n \r\n\nfour\r\nfive", 16), 16);
    expect(&f, FEED_LINE, "two", 2);
    expect(&f, FEED_LINE, "four\r", 5); // blank lines are counted too
    expect(&f, FEED_NOTHING, NULL, 0);
    close(ends[1]);
    expect(&f, FEED_LINE, "five", 6); // without a line break
    expect(&f, FEED_END, NULL, 6);
    expect(&f, FEED_END, NULL, 6);
    feed_close(&f);
}

// A look ahead shows each complete line once, reads a limited number of bytes, and leaves the lines to feed_next.
static void test_lines_ahead(void **state) {
    (void)state;
    int ends[2];
    Str line;
    assert_int_equal(pipe(ends), 0);
    Feed f = {.name = "pipe", .fd = ends[0]};
    assert_false(feed_ahead(&f, 100, &line));
    assert_int_equal(write(ends[1], "one\ntwo\nthr", 11), 11);
    assert_false(feed_ahead(&f, 0, &line)); // no byte may be read
    assert_true(feed_ahead(&f, 100, &line) && str_is(line, "one"));
    expect(&f, FEED_LINE, "one", 1);
    assert_true(feed_ahead(&f, 100, &line) && str_is(line, "two"));
    assert_false(feed_ahead(&f, 100, &line));
    expect(&f, FEED_LINE, "two", 2);
    assert_int_equal(write(ends[1], "ee\nfour\n", 8), 8);
    expect(&f, FEED_LINE, "three", 3);
    assert_true(feed_ahead(&f, 100, &line) && str_is(line, "four"));
    close(ends[1]);
    assert_false(feed_ahead(&f, 100, &line));
    expect(&f, FEED_LINE, "four", 4);
    expect(&f, FEED_END, NULL, 4);
    assert_false(feed_ahead(&f, 100, &line));
    feed_close(&f);
}

// A line that is too long is skipped, and memory stays bounded, whatever pieces the line arrives in.
static void test_huge_lines(void **state) {
    (void)state;
    const char *path = test_tmp("huge.jsonl");
    FILE *file = fopen(path, "w");
    char *xs = mem_alloc(1 << 20);
    memset(xs, 'x', 1 << 20);
    for (int k = 0; k < 2; k++) {
        fputs("before\n", file);
        for (int i = 0; i < (FEED_LONGEST >> 20) + 3; i++) fwrite(xs, 1, 1 << 20, file);
        fputs(k == 0 ? "\nafter\n" : "", file);
    }
    fclose(file);
    Feed f;
    assert_ok(feed_open(path, &f));
    static const FeedResult want[] = {FEED_LINE, FEED_TOO_LONG, FEED_LINE, FEED_LINE, FEED_TOO_LONG, FEED_END};
    for (size_t i = 0; i < ARRAY_LEN(want);) {
        Str line;
        FeedResult got;
        assert_ok(feed_next(&f, 1, &line, &got));
        assert_true(f.held.cap <= 3 * (size_t)FEED_LONGEST);
        if (got == FEED_NOTHING) continue;
        assert_int_equal(got, want[i]);
        i++;
    }
    assert_int_equal(f.n_lines, 5);
    feed_close(&f);
    free(xs);
    unlink(path);
    assert_int_equal(feed_open("/nonexistent/jobs", &f).code, QUILL_IO);
    assert_ok(feed_open("/", &f));
    Str line;
    FeedResult got;
    assert_int_equal(feed_next(&f, 0, &line, &got).code, QUILL_IO); // a directory is an error
    feed_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_our_form),       cmocka_unit_test(test_rivals),
        cmocka_unit_test(test_no_tool_choice), cmocka_unit_test(test_openai_form),
        cmocka_unit_test(test_broken_lines),   cmocka_unit_test(test_lines_as_they_come),
        cmocka_unit_test(test_lines_ahead),    cmocka_unit_test(test_huge_lines),
    };
    return cmocka_run_group_tests(tests, read_defaults, free_defaults);
}
