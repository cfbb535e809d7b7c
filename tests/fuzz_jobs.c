// tests/fuzz_jobs.c: any bytes as a line of a batch. There must be no crash and no leak, and accepted values must be
// within their limits.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "batch/jobs.h"

static void require(bool truth, const char *what) {
    if (truth) return;
    fprintf(stderr, "fuzz_jobs: %s\n", what);
    abort();
}

static const AnswerConfig *defaults(void) {
    static Options o;
    static char *argv[] = {"quill", "batch", "-m", "x", NULL};
    bool stop;
    if (!o.engine.device) require(!cli_parse(4, argv, &o, &stop).code, "the defaults");
    return &o.answer;
}

static void check(const Job *j) {
    require(j->n >= 1 && j->n <= JOB_MOST_ANSWERS, "n");
    require((j->messages != NULL) != (j->prompt.data != NULL), "a prompt, or messages");
    for (int i = 0; i < j->n_messages; i++) {
        require(j->messages[i].role[0], "a role");
        require(j->messages[i].text.n <= j->message_text.n, "a text");
    }
    for (int i = 0; i < j->config.n_stop; i++)
        require(j->config.stop[i][0] && strlen(j->config.stop[i]) <= JOB_LONGEST_STOP, "a stop text");
    require(j->config.sampling.temp >= 0 && j->config.sampling.temp <= 1000, "a temperature");
    require(j->config.predict >= -1 && j->config.logprobs >= -1 && j->config.logprobs <= 1000, "lengths");
    for (int i = 0; i < j->config.sampling.n_bias; i++) require(j->config.sampling.bias[i].id >= 0, "a token's id");
}

static void parse(Str line) {
    Job j;
    Status st = job_parse(line, defaults(), &j);
    require(!st.code || (st.code == QUILL_USAGE && st.message[0]), "an error has a message");
    if (!st.code && !j.cancel) check(&j);
    job_free(&j);
}

// Reads the input as a whole line, and as the value of a key that the first byte chooses, which lets the fuzzer reach
// more code.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const keys[] = {
        "id",          "prompt",          "messages",   "n",          "stop", "logit_bias", "raw",          "logprobs",
        "temperature", "cancel",          "tools",      "max_tokens", "seed", "ignore_eos", "top_logprobs", "body",
        "greedy",      "response_format", "tool_choice"};
    parse((Str){(const char *)data, size});
    if (size == 0) return 0;
    Buf line = {0};
    const char *key = keys[data[0] % ARRAY_LEN(keys)];
    bool openai = data[0] >= 128, whole = strcmp(key, "messages") == 0 || strcmp(key, "prompt") == 0;
    buf_str(&line, openai ? "{\"custom_id\":\"a\",\"body\":{" : "{");
    buf_printf(&line, whole ? "\"%s\":" : "\"prompt\":\"x\",\"%s\":", key);
    buf_append(&line, data + 1, size - 1);
    buf_str(&line, openai ? "}}" : "}");
    parse(str_of_buf(&line));
    buf_free(&line);
    return 0;
}
