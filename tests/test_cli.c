// tests/test_cli.c: the command line: accepted options, errors and their messages.
#define _GNU_SOURCE // setenv
#include "tests/rig/testing.h"

#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "files/builtin.h"
#include "cli/cli.h"
#include "cli/values.h"
#include "sampler.h"
#include "formats/types.h"

enum { MAX_ARGS = 64 };

// Splits at single spaces; "_" alone stands for an empty argument.
static Status parse(const char *line, Options *o, bool *stop) {
    static char copy[512]; // Options point into it, as they point into argv
    char *argv[MAX_ARGS + 1] = {"quill"};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word && argc < MAX_ARGS; word = strtok(NULL, " "))
        argv[argc++] = strcmp(word, "_") == 0 ? "" : word;
    return cli_parse(argc, argv, o, stop);
}

static void good(const char *line, Options *o) {
    bool stop;
    Status st = parse(line, o, &stop);
    if (st.code || stop) fail_msg("%s: code %d, stop %d: %s", line, st.code, stop, st.message);
}

static int clear_environment(void **state) {
    (void)state;
    unsetenv("QUILL_MODEL");
    unsetenv("QUILL_DEVICE");
    setenv("XDG_CONFIG_HOME", "/dev/null", 1); // the user's own configuration must have no effect
    return 0;
}

static void test_defaults(void **state) {
    (void)state;
    Options o;
    SamplerParams s = sampler_defaults();
    good("-m x", &o);
    assert_int_equal(o.mode, MODE_RUN);
    assert_int_equal(o.prompt.n_parts, 0);
    assert_int_equal(o.answer.predict, -1);
    assert_int_equal(o.engine.ctx_size, 0);
    assert_int_equal(o.engine.ubatch, 0); // 0: the device chooses
    assert_int_equal(o.engine.type_k, KV_TYPE_AUTO);
    assert_int_equal(o.engine.type_v, KV_TYPE_AUTO);
    assert_int_equal(o.engine.gpu_layers, -1);
    assert_int_equal(o.engine.kv_block, 32);
    assert_int_equal(o.answer.logprobs, -1);
    assert_false(o.engine.paged);
    assert_string_equal(o.engine.device, "auto");
    assert_string_equal(o.engine.isa, "auto");
    // The option table and the sampler must have the same defaults.
    assert_true(o.answer.sampling.temp == s.temp && o.answer.sampling.top_k == s.top_k &&
                o.answer.sampling.top_p == s.top_p);
    assert_true(o.answer.sampling.min_p == s.min_p && o.answer.sampling.typical == s.typical);
    assert_true(o.answer.sampling.xtc_probability == s.xtc_probability &&
                o.answer.sampling.xtc_threshold == s.xtc_threshold);
    assert_true(o.answer.sampling.repeat_penalty == s.repeat_penalty &&
                o.answer.sampling.repeat_last_n == s.repeat_last_n);
    assert_true(o.answer.sampling.presence_penalty == s.presence_penalty);
    assert_true(o.answer.sampling.frequency_penalty == s.frequency_penalty && o.answer.sampling.greedy == s.greedy);
    cli_free(&o);
}

static void test_values(void **state) {
    (void)state;
    Options o;
    good("-m x --temp 1.5 --top_k=7 -n 4k -c 2K --n-predict 3 --min-p=0 -s 9 --logit-bias 5-inf --logit-bias 6+1.5",
         &o);
    assert_true(o.answer.sampling.temp == 1.5f && o.answer.sampling.min_p == 0.0f);
    assert_int_equal(o.answer.sampling.top_k, 7);
    assert_int_equal(o.answer.predict, 3); // the last one wins
    assert_int_equal(o.engine.ctx_size, 2048);
    assert_true(o.answer.seed_given && o.answer.sampling.seed == 9);
    assert_int_equal(o.answer.sampling.n_bias, 2);
    assert_true(o.answer.sampling.bias[0].id == 5 && isinf(o.answer.sampling.bias[0].bias) &&
                o.answer.sampling.bias[0].bias < 0);
    assert_true(o.answer.sampling.bias[1].id == 6 && o.answer.sampling.bias[1].bias == 1.5f);
    cli_free(&o);
    good("-m x --kv-mem 3G --kv_layout=paged -ctk f32 -ctv=bf16 -ngl 0 -r a --stop=b --reverse-prompt c", &o);
    assert_true(o.engine.kv_mem == (size_t)3 << 30 && o.engine.paged);
    assert_null(o.engine.kv_dir);
    assert_int_equal(o.engine.type_k, TYPE_F32);
    assert_int_equal(o.engine.type_v, TYPE_BF16);
    assert_int_equal(o.engine.gpu_layers, 0);
    assert_int_equal(o.answer.n_stop, 3);
    assert_string_equal(o.answer.stop[1], "b");
    cli_free(&o);
    good("-m x --kv-dir a,b=1,size=3M", &o); // only what follows the last comma is a setting
    assert_string_equal(o.engine.kv_dir, "a,b=1");
    cli_free(&o);
    good("-m x --kv-dir a,1=b", &o);
    assert_string_equal(o.engine.kv_dir, "a,1=b");
    cli_free(&o);
    good("-m x --kv-dir=a --kv-dir b,c,size=3M", &o);
    assert_string_equal(o.engine.kv_dir, "b,c");
    assert_true(o.engine.kv_dir_size == 3 << 20);
    cli_free(&o);
    good("-m x --kv-dir a,b", &o);
    assert_string_equal(o.engine.kv_dir, "a,b");
    assert_true(o.engine.kv_dir_size == (size_t)8 << 30);
    cli_free(&o);
    good("-m x -ctk kivi2 -ctv fp8 --evict sinks,window=9 --kv-rotate", &o);
    assert_int_equal(o.engine.type_k, TYPE_KIVI2);
    assert_int_equal(o.engine.type_v, TYPE_FP8);
    assert_string_equal(o.engine.evict, "sinks,window=9");
    assert_true(o.engine.kv_rotate);
    cli_free(&o);
}

// An empty value turns an option without a default off.
static void test_off(void **state) {
    (void)state;
    Options o;
    good("-m x --kv-dir a --speculate ngram --chat-template chatml --tools f --tool-choice none --stop a --think off "
         "--beams 2 --logprobs 3 -ub 8 --logit-bias 5-inf --blend epic --chunk-split a "
         "--kv-dir _ --speculate= --chat-template _ --tools _ --tool-choice _ --stop _ --think _ "
         "--beams _ --logprobs _ -ub _ --logit-bias _ --blend _ --chunk-split _",
         &o);
    assert_null(o.engine.kv_dir);
    assert_null(o.engine.speculate);
    assert_null(o.answer.chat_template);
    assert_null(o.answer.tools.file.path);
    assert_null(o.answer.tools.choice);
    assert_null(o.answer.think);
    assert_null(o.answer.blend);
    assert_null(o.answer.chunk_split);
    assert_int_equal(o.answer.n_stop, 0);
    assert_int_equal(o.answer.beams, 0);
    assert_int_equal(o.answer.logprobs, -1);
    assert_int_equal(o.answer.sampling.n_bias, 0);
    assert_int_equal(o.engine.ubatch, 0);
    cli_free(&o);
    good("-m x --evict sinks --stop a --evict _ --stop _ --stop b -sys _", &o);
    assert_null(o.engine.evict);
    assert_int_equal(o.answer.n_stop, 1);
    assert_string_equal(o.answer.stop[0], "b");
    assert_null(o.answer.system);
    cli_free(&o);
}

static void test_more_values(void **state) {
    (void)state;
    Options o;
    good("-m x -ctk q8_0 -ctv q4_0", &o);
    assert_int_equal(o.engine.type_k, TYPE_Q8_0);
    assert_int_equal(o.engine.type_v, TYPE_Q4_0);
    assert_false(o.engine.kv_rotate);
    cli_free(&o);
    good("-m x -ngl all -n -1 -s -1", &o);
    assert_int_equal(o.engine.gpu_layers, INT_MAX);
    assert_false(o.answer.seed_given);
    cli_free(&o);
    good("batch -m x -np 8 --max-tokens 7 --rate 2.5 --slo ttft=5 --keep-order --static --logprobs 2 jobs.jsonl", &o);
    assert_int_equal(o.mode, MODE_BATCH);
    assert_string_equal(o.input, "jobs.jsonl");
    assert_int_equal(o.batch.parallel, 8);
    assert_int_equal(o.answer.predict, 7);
    assert_true(o.batch.rate == 2.5f && o.batch.keep_order && o.batch.static_batches && o.answer.logprobs == 2);
    cli_free(&o);
    good("bench -m x -p 2k -n 8 -d 16 -np 4 -r 3 -o json", &o);
    assert_int_equal(o.mode, MODE_BENCH);
    assert_int_equal(o.bench.prompt.n, 1);
    assert_int_equal(o.bench.prompt.at[0], 2048);
    assert_int_equal(o.bench.gen.at[0], 8);
    assert_int_equal(o.bench.depth.at[0], 16);
    assert_int_equal(o.bench.threads.at[0], 0);
    assert_int_equal(o.bench.sequences, 4);
    assert_int_equal(o.bench.reps, 3);
    assert_string_equal(o.bench.output, "json");
    cli_free(&o);
    good("bench -m x -p 16,1k -p 5 -n 128-512+128 -d 0-2 -t 1-8*2,-1", &o);
    static const int prompt[] = {16, 1024, 5}, gen[] = {128, 256, 384, 512}, depth[] = {0, 1, 2},
                     threads[] = {1, 2, 4, 8, -1};
    assert_true(o.bench.prompt.n == 3 && memcmp(o.bench.prompt.at, prompt, sizeof prompt) == 0);
    assert_true(o.bench.gen.n == 4 && memcmp(o.bench.gen.at, gen, sizeof gen) == 0);
    assert_true(o.bench.depth.n == 3 && memcmp(o.bench.depth.at, depth, sizeof depth) == 0);
    assert_true(o.bench.threads.n == 5 && memcmp(o.bench.threads.at, threads, sizeof threads) == 0);
    cli_free(&o);
}

// Shows the parts of a prompt with bars between them, files in <>.
static void show_parts(const Options *o, Buf *out) {
    buf_append(out, "", 0);
    for (int i = 0; i < o->prompt.n_parts; i++) {
        const PromptPart *p = &o->prompt.parts[i];
        buf_printf(out, p->file ? "%s<%s>" : "%s%s", i ? "|" : "", p->file ? p->file : p->text);
    }
}

static void test_words(void **state) {
    (void)state;
    static const struct {
        const char *line, *prompt;
    } cases[] = {
        {"-m x Once upon a", "Once upon a"},
        {"Once -m x upon -n 3", "Once upon"},
        {"-m x -p Once", "Once"},
        {"-m x -p Once -p Twice", "Once|Twice"},
        {"-m x -p Once upon", "Once upon"},
        {"-m x -- -n 5 --bogus", "-n 5 --bogus"},
        {"-m x -- bench x", "bench x"},
        {"-m x bench x", "bench x"}, // a mode must be the first argument
        {"-m x -", "<->"},
        {"-m x a - b", "a b|<->"},
        {"-m x -- -", "-"},
        {"-m x -f a -f b -p c", "<a>|<b>|c"},
        {"-m x -p a -f b -p c", "a|<b>|c"},
        {"-m x -f a words -p b", "words|<a>|b"},
        {"-m x -p Tell me -n 3 a story", "a story|Tell me"},
        {"-m x _", ""},
        {"-m x --prompt=-v", "-v"},
        {"-m x -p=--help", "--help"},
        {"tokenize -m x bench", "bench"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Options o;
        good(cases[i].line, &o);
        Buf shown = {0};
        show_parts(&o, &shown);
        if (strcmp(shown.data, cases[i].prompt) != 0) fail_msg("%s: %s", cases[i].line, shown.data);
        buf_free(&shown);
        cli_free(&o);
    }
}

static void test_modes(void **state) {
    (void)state;
    Options o;
    good("inspect model.gguf", &o);
    assert_int_equal(o.mode, MODE_INSPECT);
    assert_string_equal(o.engine.model, "model.gguf");
    cli_free(&o);
    setenv("QUILL_MODEL", "env.gguf", 1);
    good("inspect model.gguf", &o); // an argument overrides the environment
    assert_string_equal(o.engine.model, "model.gguf");
    cli_free(&o);
    good("hello", &o);
    assert_string_equal(o.engine.model, "env.gguf");
    cli_free(&o);
    setenv("QUILL_DEVICE", "cpu", 1);
    good("hello", &o);
    assert_string_equal(o.engine.device, "cpu");
    cli_free(&o);
    good("hello --device auto", &o);
    assert_string_equal(o.engine.device, "auto");
    cli_free(&o);
    clear_environment(NULL);
    good("bench --shape 1.1b", &o); // bench needs no model
    cli_free(&o);
}

// Each line must be QUILL_USAGE, with the following words in the message.
static const struct {
    const char *line, *says, *says_too;
} refused[] = {
    {"-m x --temp abc", "--temp", "\"abc\""},
    {"-m x --temp nan", "--temp", "0 to 1000"},
    {"-m x --temp inf", "--temp", "\"inf\""},
    {"-m x --temp 1e999", "--temp", "1e999"},
    {"-m x --temp 0x1p3", "--temp", "0x1p3"},
    {"-m x --temp 1,5", "--temp", "1,5"},
    {"-m x --temp -1", "--temp", "-1"},
    {"-m x --temp _", "--temp", "\"\""},
    {"-m x --top-p 1.01", "--top-p", "0 to 1"},
    {"-m x --top-k -1", "--top-k", "-1"},
    {"-m x --repeat-penalty 0", "--repeat-penalty", "0.001"},
    {"-m x -n 2.5", "-n", "whole number"},
    {"-m x -n -2", "-n", "-1 to"},
    {"-m x -n 99999999999", "-n", "99999999999"},
    {"-m x -n 9999999999999999999999", "-n", "9999999999999999999999"},
    {"-m x -n 0x10", "-n", "0x10"},
    {"-m x -n 4kk", "-n", "4kk"},
    {"-m x -n 4T", "-n", "4T"},
    {"-m x -n k", "-n", "\"k\""},
    {"-m x -n 9223372036854775807G", "-n", "9223372036854775807G"},
    {"-m x -c -1", "-c", "0 to 1073741823"},
    {"-m x -c 4G", "-c", "4G"},
    {"-m x -ub 0", "-ub", "1 to"},
    {"-m x --ubatch_size=0", "--ubatch-size", "1 to"},
    {"-m x -t 5000", "-t", "-1 to 1024"},
    {"-m x --kv-mem -1", "--kv-mem", "size"},
    {"-m x --kv-dir ,size=1G", "--kv-dir", "a directory"},
    {"-m x --chunk _", "--chunk: a file expected", "found an empty text"},
    {"-m _", "-m: a file or name expected", "found an empty text"},
    {"bench --model= -p 4", "--model: a file or name expected", "found an empty text"},
    {"inspect _", "quill inspect: a model expected", "found an empty text"},
    {"batch -m x _", "quill batch: a file of jobs expected", "found an empty text"},
    {"batch -m x -f _", "-f: a file expected", "found an empty text"},
    {"-m x -f _ hi", "-f: a file expected", "found an empty text"},
    {"-m x --load _ hi", "--load: a file expected", "found an empty text"},
    {"-m x --grammar-file _ hi", "--grammar-file: a file expected", "found an empty text"},
    {"-m x --kv-dir a,size=0", "--kv-dir", "a,size=0"},
    {"-m x --kv-dir a,sz=1G", "--kv-dir", "only size=N"},
    {"-m x --kv-dir a,size=", "--kv-dir", "size=8G"},
    {"-m x -s -5", "-s", "-5"},
    {"-m x -s 9223372036854775808", "-s", "9223372036854775807"},
    {"-m x --logit-bias 5", "--logit-bias", "15043"},
    {"-m x --logit-bias -5+1", "--logit-bias", "-5+1"},
    {"-m x --logit-bias 5+nan", "--logit-bias", "5+nan"},
    {"-m x --logit-bias 99999999999+1", "--logit-bias", "99999999999"},
    {"-m x --isa sse", "--isa", "scalar"},
    {"-m x --device tpu", "--device", "auto|cuda|cpu"},
    {"-m x -ctk q5_0", "-ctk", "f16"},
    {"-m x -ctv Q8_0", "-ctv", "kivi2"},
    {"-m x -ngl some", "-ngl", "auto"},
    {"-m x -ngl -2", "-ngl", "-2"},
    {"-m x --kv-layout tree", "--kv-layout", "paged"},
    {"-m x --greedy=1", "--greedy", "no value"},
    {"-m x --help=off", "--help", "no value"},
    {"-m x --bogus", "--bogus", "unknown option"},
    {"-m x --tmp 1", "--tmp", "did you mean --temp"},
    {"-m x --prompts a", "--prompts", "did you mean --prompt"},
    {"-m x -pp a", "-pp", "did you mean"},
    {"-m x -5", "-5", "unknown"},
    {"-m x --temp", "--temp", "needs a value"},
    {"-m", "-m", "needs a value"},
    {"-m --verbose", "-m", "--verbose"},
    {"-m x --roofline", "--roofline", "belongs to quill bench"},
    {"-m x --ids", "--ids", "quill tokenize"},
    {"bench -m x --greedy", "--greedy", "belongs to quill"},
    {"bench -m x -r 0", "-r", "1 to"},
    {"bench -m x -p 1,", "-p", "whole numbers"},
    {"bench -m x -p 1,x", "-p", "1,x"},
    {"bench -m x -p 8-1", "-p", "8-1"},
    {"bench -m x -p 0-8*2", "-p", "0-8*2"},
    {"bench -m x -p 1-8*1", "-p", "1-8*1"},
    {"bench -m x -p 1-2147483647", "-p", "1-2147483647"},
    {"bench -m x -p 1-9+0", "-p", "1-9+0"},
    {"bench -m x -t 1,5000", "-t", "-1 to 1024"},
    {"bench -m x -o xml", "-o", "table|json|csv|md"},
    {"bench --evict sink=4", "--evict", "belongs to quill"},
    {"-m x --kv-out f", "--kv-out", "it belongs to quill prefill"},
    {"-m x --think maybe", "--think", "on|off|low|medium|high|show|hide"},
    {"--completions csh", "--completions", "bash|zsh|fish"},
    {"--completions", "--completions", "bash|zsh|fish"},
    {"-m x --chat-template chatml --chat-template-file f", "--chat-template", "both"},
    {"-m x --chat-template chatml --raw", "--raw", "both"},
    {"-m x --now 2026-01-02", "--now", "belongs to quill template"},
    {"batch -m x a b", "batch", "one file"},
    {"batch -m x -f a b", "batch", "one file"},
    {"batch -m x -f a -f b", "-f", "one file"},
    {"template -m x -f a -f b", "-f", "one file"},
    {"-m x -i -f -", "-i", "-f -"},
    {"-m x --no-stdin -", "--no-stdin", "-f -"},
    {"batch -m x -np 0", "-np", "1 to 4096"},
    {"batch -m x --kv-layout paged", "--kv-layout", "not an option"},
    {"batch -m x --color never", "--color", "belongs to quill, quill decode"},
    {"batch -m x --context-shift", "--context-shift", "belongs to quill"},
    {"prefill -m x hi", "quill prefill", "--kv-out FILE expected"},
    {"decode -m x", "quill decode", "--kv-in FILE expected"},
    {"decode -m x --kv-in f -f g", "-f", "belongs to"},
    {"kv info f -m x", "-m", "belongs to"},
    {"template -m x --greedy", "--greedy", "belongs to quill"},
    {"-m x --raw --chat", "--raw", "--chat"},
    {"-m x --raw -sys a", "-sys", "--raw"},
    {"-m x -sys a -sysf b", "-sys", "-sysf"},
    {"-m x -v -q", "-v", "-q"},
    {"-m x --logprobs 2", "--logprobs", "--json"},
    {"-m x --json -i", "-i", "JSON"},
    {"-m x -f - --no-stdin", "--no-stdin", "-f -"},
    {"logits -m x --tokens 1 -p a", "--tokens", "both"},
    {"inspect a b", "inspect", "a b"},
    {"inspect -m x a", "inspect", "-m x"},
};

static void test_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        Options o;
        bool stop;
        Status st = parse(refused[i].line, &o, &stop);
        if (st.code != QUILL_USAGE || !strstr(st.message, refused[i].says) || !strstr(st.message, refused[i].says_too))
            fail_msg("%s: code %d: %s", refused[i].line, st.code, st.message);
        assert_null(strchr(st.message, '\n'));
        cli_free(&o);
    }
}

// If no model is named, the built-in one is used, if there is one.
static void test_no_model(void **state) {
    (void)state;
    static const struct {
        const char *line, *says;
    } cases[] = {{"hello", "quill -h"}, {"tokenize hello", "quill tokenize -h"}, {"inspect", "quill inspect -h"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Options o;
        bool stop;
        Status st = parse(cases[i].line, &o, &stop);
        assert_null(o.engine.model);
        assert_int_equal(st.code, builtin_there() ? QUILL_OK : QUILL_USAGE);
        if (!builtin_there()) {
            assert_non_null(strstr(st.message, "no model: give one with -m FILE or set QUILL_MODEL"));
            assert_non_null(strstr(st.message, cases[i].says));
        }
        cli_free(&o);
    }
}

static void test_environment_is_checked(void **state) {
    (void)state;
    Options o;
    bool stop;
    setenv("QUILL_DEVICE", "tpu", 1);
    Status st = parse("-m x hi", &o, &stop);
    assert_int_equal(st.code, QUILL_USAGE);
    assert_non_null(strstr(st.message, "QUILL_DEVICE"));
    cli_free(&o);
    good("-m x --device cpu hi", &o);
    cli_free(&o);
    good("inspect x", &o); // this mode has no device
    cli_free(&o);
    clear_environment(NULL);
}

// In each mode, every row must differ from all others, and its default must pass its own check.
static void test_table(void **state) {
    (void)state;
    for (int i = 0; i < cli_n_options; i++) {
        const Option *a = &cli_options[i];
        assert_true(a->modes != 0 && a->group < N_GROUPS);
        assert_true(a->names[0] == '-' && strlen(a->names) < 64);
        assert_true(!a->help || strlen(a->help) < 200);
        assert_true((a->kind == FLAG || a->kind == HELP || a->kind == VERSION || a->kind == MAN) == !a->arg);
        for (int k = i + 1; k < cli_n_options; k++) {
            if (!(a->modes & cli_options[k].modes)) continue;
            char names[64];
            snprintf(names, sizeof names, "%s", a->names);
            for (char *name = strtok(names, " "); name; name = strtok(NULL, " "))
                for (const char *at = cli_options[k].names; (at = strstr(at, name)); at++) {
                    bool begins = at == cli_options[k].names || at[-1] == ' ';
                    bool ends = at[strlen(name)] == 0 || at[strlen(name)] == ' ';
                    if (begins && ends) fail_msg("%s is in two rows of one mode", name);
                }
        }
    }
}

// Settings that a chat changes use the same table.
static void test_set(void **state) {
    (void)state;
    Options o;
    good("-m x --temp 0.5", &o);
    assert_int_equal(cli_chat_set(&o.answer, "temp", "1.5").code, 0);
    assert_int_equal(cli_chat_set(&o.answer, "top_k", "1k").code, 0);
    assert_int_equal(cli_chat_set(&o.answer, "n-predict", "7").code, 0);
    assert_int_equal(cli_chat_set(&o.answer, "greedy", "on").code, 0);
    assert_int_equal(cli_chat_set(&o.answer, "stop", "###").code, 0);
    assert_int_equal(cli_chat_set(&o.answer, "logit-bias", "5-inf").code, 0);
    assert_int_equal(cli_chat_set(&o.answer, "seed", "9").code, 0);
    assert_true(o.answer.sampling.temp == 1.5f && o.answer.sampling.top_k == 1024 && o.answer.predict == 7 &&
                o.answer.sampling.greedy);
    assert_true(o.answer.n_stop == 1 && o.answer.sampling.n_bias == 1 && o.answer.sampling.seed == 9 &&
                o.answer.seed_given);
    static const struct {
        const char *name, *value, *says;
    } bad[] = {
        {"temp", "x", "temp: a number from 0 to 1000 (default 0.8) expected, found \"x\""},
        {"temp", "1001", "from 0 to 1000"},
        {"greedy", "perhaps", "on or off expected"},
        {"tmp", "1", "did you mean temp"},
        {"ctx-size", "9", "-c 9"},
        {"model", "x", "not a setting"},
        {"threads", "1", "not a setting"},
        {"", "1", "not a setting"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Status st = cli_chat_set(&o.answer, bad[i].name, bad[i].value);
        assert_int_equal(st.code, QUILL_USAGE);
        if (!strstr(st.message, bad[i].says)) fail_msg("%s %s: %s", bad[i].name, bad[i].value, st.message);
    }
    assert_true(o.answer.sampling.temp == 1.5f);
    cli_free(&o);
}

// Every setting can be shown and reset to its default.
static void test_set_default(void **state) {
    (void)state;
    Options o, usual;
    good("-m x --temp 0.5 --top-k 7 -n 3 --greedy --stop a --logit-bias 5-inf", &o);
    char name[32], all[512] = "";
    for (int i = 0; i < cli_n_options; i++) {
        const Option *row = &cli_options[i];
        if (!cli_settable(row)) continue;
        cli_long_name(row, name);
        strncat(all, name, sizeof all - strlen(all) - 1);
        assert_int_equal(cli_chat_set(&o.answer, name, "default").code, 0);
    }
    assert_non_null(strstr(all, "predictignore-eosstoptemp"));
    good("-m x -s 9", &usual);
    assert_int_equal(cli_chat_set(&o.answer, "seed", "9").code, 0);
    for (int i = 0; i < cli_n_options; i++) {
        const Option *row = &cli_options[i];
        Buf found = {0}, expected = {0};
        if (cli_settable(row)) {
            cli_value(row, &o, &found);
            cli_value(row, &usual, &expected);
            assert_string_equal(found.data, expected.data);
        }
        buf_free(&found);
        buf_free(&expected);
    }
    cli_free(&usual);
    cli_free(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_more_values),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_model),
        cmocka_unit_test(test_environment_is_checked),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_set_default),
    };
    return cmocka_run_group_tests(tests, clear_environment, NULL);
}
