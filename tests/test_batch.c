// tests/test_batch.c: `quill batch` as a whole: every answer must be the same as without other jobs.
//
// The model is a small random one with the scalar kernels (--isa scalar, f32), whose numbers do not depend on the
// batch. QUILL_SOAK=N sets the number of random jobs of the soak (60; `make soak` has 2,000).
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

#include "batch/batch.h"
#include "cli/cli.h"
#include "answer/answer.h"
#include "answer/prepare.h"
#include "tests/rig/directory.h"
#include "tests/rig/tiny_model.h"

static char model[1024], jobs_path[1024], out_path[1024], said_path[1024];

static int write_model(void **state) {
    (void)state;
    snprintf(model, sizeof model, "%s", test_tmp("batch_model.gguf"));
    snprintf(jobs_path, sizeof jobs_path, "%s", test_tmp("batch_jobs.jsonl"));
    snprintf(out_path, sizeof out_path, "%s", test_tmp("batch_out.jsonl"));
    snprintf(said_path, sizeof said_path, "%s", test_tmp("batch_said.txt"));
    return tiny_model_file(&(TinyModel){.arch = "qwen2", .dim = 32, .ctx = 128, .chat_template = "chatml", .seed = 3},
                           model)
        .code;
}

// ---- running --------------------------------------------------------------------------------------------------------

// Parses "quill batch" with the scalar kernels and these words.
static void options(Options *o, const char *words) {
    static char copy[512];
    char *argv[32] = {"quill", "batch", "-m", model, "--isa", "scalar", "-ctk", "f32", "-ctv", "f32", "-v", "-t", "1"};
    int argc = 13;
    bool stop;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    argv[argc++] = jobs_path;
    assert_ok(cli_parse(argc, argv, o, &stop));
}

// Redirects a stream to a file; returns a copy of the old descriptor.
static int redirect(int fd, const char *path) {
    int saved = dup(fd), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(saved >= 0 && file >= 0 && dup2(file, fd) >= 0);
    close(file);
    return saved;
}

static void turn_back(int fd, int saved) {
    dup2(saved, fd);
    close(saved);
}

// Runs the batch over these lines. `out` gets its stdout, and the file said_path its stderr.
static Status run_batch(const char *words, Str lines, Buf *out) {
    Options o;
    FILE *jobs = fopen(jobs_path, "w");
    fwrite(lines.data, 1, lines.n, jobs);
    fclose(jobs);
    options(&o, words);
    fflush(stdout);
    int saved = redirect(STDOUT_FILENO, out_path), said = redirect(STDERR_FILENO, said_path);
    Status st = batch_run(&o);
    turn_back(STDOUT_FILENO, saved);
    turn_back(STDERR_FILENO, said);
    cli_free(&o);
    assert_ok(file_read(out_path, out));
    buf_append(out, "", 0);
    return st;
}

// The number of preemptions, as --verbose prints it.
static int preemptions(void) {
    Buf said = {0};
    assert_ok(file_read(said_path, &said));
    buf_append(&said, "", 0);
    const char *at = strstr(said.data, " preemptions");
    assert_non_null(at);
    while (at[-1] != ' ') at--;
    int n = (int)strtol(at, NULL, 10);
    buf_free(&said);
    return n;
}

// The replies by the number of their line: (n + 1), NULL if there is none. Fails if a line has two. `order`: NULL, or
// (n) the numbers in the order of arrival.
static json_t **replies(const Buf *out, int n, int *order) {
    json_t **all = mem_alloc(((size_t)n + 1) * sizeof *all);
    int at = 0;
    for (const char *line = out->data; line && *line; line = strchr(line, '\n') + 1) {
        json_t *j = json_loads(line, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL);
        int number = (int)json_integer_value(json_object_get(j, "line"));
        assert_in_range(number, 1, n);
        assert_null(all[number]);
        all[number] = j;
        if (order) order[at++] = number;
    }
    return all;
}

static void free_replies(json_t **all, int n) {
    for (int i = 0; i <= n; i++) json_decref(all[i]);
    free(all);
}

static Str text_of_reply(const json_t *reply, int choice) {
    const json_t *choices = json_object_get(reply, "choices");
    const json_t *text = json_object_get(choices ? json_array_get(choices, (size_t)choice) : reply, "text");
    assert_true(json_is_string(text));
    return (Str){json_string_value(text), json_string_length(text)};
}

// ---- alone ----------------------------------------------------------------------------------------------------------

typedef struct {
    Engine e;
    Options o;
    ChatTemplate *template;
} Alone;

static void open_alone(Alone *a, const char *types) {
    char words[128];
    snprintf(words, sizeof words, "-c 128 %s", types);
    options(&a->o, words);
    a->o.answer.json = true;
    assert_ok(engine_open(&a->e, &a->o.engine, (EngineNeeds){.need_tokenizer = true}));
    assert_ok(chat_template_choose(a->e.gguf, a->e.tok, &a->o.answer, &a->template));
}

static void close_alone(Alone *a) {
    chat_template_free(a->template);
    engine_close(&a->e);
    cli_free(&a->o);
}

typedef struct {
    char prompt[256];
    bool raw, cancelled, broken;
    int n, max_tokens;
    double temperature;
    uint64_t seed;
    const char *stop;
} Wish;

// Appends to `out` the text of the same request alone, in a cache of its own; NUL-terminated.
static void answer_alone(Alone *a, const Wish *w, int choice, Buf *out) {
    Options o = a->o;
    Message message = {"user", str_of(w->prompt), NULL};
    Rendered text = {0};
    Sequence seq = {0};
    const char *stop = w->stop;
    o.answer.stop = &stop;
    o.answer.n_stop = w->stop ? 1 : 0;
    const ChatTemplate *template = w->raw ? NULL : a->template;
    assert_ok(answer_push(&a->e, &o.answer, template, &message, 1, &text, &seq));
    Answer answer;
    answer_begin(&answer, &a->e,
                 &(AnswerSetup){.config = &o.answer,
                                .template = template,
                                .prompt = {text.text.data, text.text.n},
                                .fresh = !template && !w->prompt[0]});
    Request r = {.seq = &seq, .sampling = o.answer.sampling, .sequence_key = (uint64_t)choice};
    answer_ask(&answer, &r);
    r.max_new = w->max_tokens;
    r.sampling.temp = (float)w->temperature;
    r.sampling.seed = w->seed;
    scheduler_add(a->e.sched, &r);
    engine_run(&a->e);
    answer_end(&answer);
    utf8_repair(out, answer_text(&answer).data, answer_text(&answer).n);
    buf_append(out, "", 0);
    answer_free(&answer);
    sequence_end(&a->e.kv, r.seq);
    timeline_free(&r.time);
    rendered_free(&text);
}

// ---- random jobs ----------------------------------------------------------------------------------------------------

static const char *const broken[] = {"{",
                                     "null",
                                     "{\"prompt\":7}",
                                     "\x80\xff",
                                     "{\"prompt\":\"x\",\"n\":0}",
                                     "{\"prompt\":\"x\",\"max_tokens\":\"many\"}"};

static void random_wish(uint64_t *random, Wish *w) {
    static const char *const beginnings[] = {"the same beginning of many prompts, long enough for some blocks, ",
                                             "another beginning that is shared as well, of a few blocks; ", ""};
    *w = (Wish){.raw = test_random(random) % 2, .n = 1, .max_tokens = (int)(test_random(random) % 30)};
    snprintf(w->prompt, sizeof w->prompt, "%s", w->raw ? beginnings[test_random(random) % 3] : "");
    size_t at = strlen(w->prompt), n = test_random(random) % 20;
    for (size_t i = 0; i < n; i++) w->prompt[at + i] = (char)('a' + test_random(random) % 26);
    if (test_random(random) % 4 == 0) w->n = 2 + (int)(test_random(random) % 4);
    if (test_random(random) % 3) w->temperature = 0.5 + (double)(test_random(random) % 100) * 0.01;
    if (test_random(random) % 3 == 0) w->stop = "e";
    w->seed = test_random(random) % 1000;
    w->broken = test_random(random) % 16 == 0;
}

static void write_wish(const Wish *w, int line, Buf *out) {
    json_t *j =
        json_pack("{s:i, s:s, s:b, s:i, s:i, s:f, s:I}", "id", line, "prompt", w->prompt, "raw", w->raw, "n", w->n,
                  "max_tokens", w->max_tokens, "temperature", w->temperature, "seed", (json_int_t)w->seed);
    if (w->stop) json_object_set_new(j, "stop", json_string(w->stop));
    char *text = json_dumps(j, JSON_COMPACT);
    buf_printf(out, "%s\n", text);
    free(text);
    json_decref(j);
}

static void check_wish(Alone *a, const Wish *w, const json_t *reply, int line) {
    const char *reason = json_string_value(json_object_get(reply, "finish_reason"));
    for (int i = 0; i < w->n; i++) {
        Buf want = {0};
        Str got = text_of_reply(reply, i);
        answer_alone(a, w, i, &want);
        bool cut = w->cancelled && (w->n > 1 || strcmp(reason, "interrupt") == 0);
        while (cut && got.n >= 3 && memcmp(got.data + got.n - 3, "\xef\xbf\xbd", 3) == 0)
            got.n -= 3; // removes half a character
        bool same = (cut ? got.n <= want.n : got.n == want.n) && memcmp(got.data, want.data, got.n) == 0;
        if (!same) fail_msg("line %d, choice %d: \"%s\" alone, \"%s\" in the batch", line, i, want.data, got.data);
        buf_free(&want);
    }
}

// Runs random jobs, some of them invalid or cancelled, in a cache that is too small for all of them.
static void soak_types(const char *words, const char *types, int n, uint64_t seed) {
    Wish *wishes = mem_alloc((size_t)n * sizeof *wishes);
    Buf lines = {0}, out = {0};
    int n_lines = 0, n_broken = 0, *line_of = mem_alloc((size_t)n * sizeof *line_of);
    for (int i = 0; i < n; i++) {
        Wish *w = &wishes[i];
        random_wish(&seed, w);
        line_of[i] = ++n_lines;
        n_broken += w->broken;
        if (w->broken) buf_printf(&lines, "%s\n", broken[test_random(&seed) % ARRAY_LEN(broken)]);
        else write_wish(w, n_lines, &lines);
        int which = i - (int)(test_random(&seed) % 6);
        if (test_random(&seed) % 12 || which < 0 || wishes[which].broken) continue;
        n_lines++;
        wishes[which].cancelled = true;
        buf_printf(&lines, "{\"cancel\":%d}\n", line_of[which]);
    }
    char all_words[1400];
    snprintf(all_words, sizeof all_words, "%s %s", words, types);
    Status st = run_batch(all_words, str_of_buf(&lines), &out);
    assert_int_equal(st.code, n_broken ? QUILL_USAGE : QUILL_OK);
    json_t **all = replies(&out, n_lines, NULL);
    Alone a;
    open_alone(&a, types);
    for (int i = 0; i < n; i++) {
        const json_t *reply = all[line_of[i]];
        assert_non_null(reply);
        assert_int_equal(json_object_get(reply, "error") != NULL, wishes[i].broken);
        if (!wishes[i].broken) check_wish(&a, &wishes[i], reply, line_of[i]);
    }
    close_alone(&a);
    free_replies(all, n_lines);
    free(wishes);
    free(line_of);
    buf_free(&lines);
    buf_free(&out);
}

static void soak(const char *words, int n, uint64_t seed) { soak_types(words, "", n, seed); }

static int soak_jobs(void) {
    const char *n = getenv("QUILL_SOAK");
    return n && *n ? int_max(1, (int)strtol(n, NULL, 10)) : 60;
}

// 128 slots of 2 layers, 2 heads of 8, K and V, 4 bytes: 32 KiB, the smallest cache for this context.
static void test_small_cache(void **state) {
    (void)state;
    soak("-c 128 --kv-block 8 --kv-mem 32k -np 6 -ub 24", soak_jobs(), 1);
    assert_true(preemptions() > 0);
}

static void test_wide(void **state) {
    (void)state;
    soak("-c 128 --kv-block 16 -np 32 -ub 64", soak_jobs(), 2);
}

static void test_static(void **state) {
    (void)state;
    soak("-c 128 --kv-block 4 -np 5 -ub 7 --static", int_max(20, soak_jobs() / 10), 3);
}

static const char *const all_types[] = {
    "-ctk f16 -ctv f16",   "-ctk bf16 -ctv f32",  "-ctk fp8 -ctv fp8",
    "-ctk q8_0 -ctv q8_0", "-ctk q4_0 -ctv q4_0", "-ctk kivi2 -ctv kivi2 --kv-rotate",
    "-ctk q8_0 -ctv f16",  "-ctk f32 -ctv kivi2", "-ctk fp8 -ctv q4_0 --kv-rotate"};

// Every type of KV, in a cache slightly larger than one context, half of which the open groups of sealed types take.
static void test_every_type(void **state) {
    (void)state;
    int n_preempted = 0;
    for (size_t i = 0; i < ARRAY_LEN(all_types); i++)
        for (int block = 16; block <= 32; block += 16) {
            char words[128];
            bool dense = i < 2;
            snprintf(words, sizeof words, "-c 128 --kv-block %d --kv-mem %s -np 6 -ub %d", block, dense ? "26k" : "80k",
                     block == 16 ? 24 : 70);
            soak_types(words, all_types[i], int_max(24, soak_jobs() / 20), 10 + i);
            n_preempted += preemptions();
        }
    assert_true(n_preempted > 0);
}

// The number of bytes that were allocated.
static size_t bytes_taken(const KvPool *p) {
    size_t pages = kv_tail_index(p, p->n_layers, 0, 0, 0) * sizeof(float);
    return p->bytes_k + p->bytes_v + (p->tail_k ? pages : 0) + (p->tail_v ? pages : 0);
}

static void check_size(const char *words, bool pooled, bool may_be_too_little) {
    Options o;
    Engine e;
    options(&o, words);
    o.answer.verbose = false;
    Status st = engine_open(&e, &o.engine, (EngineNeeds){.n_seqs = pooled ? o.batch.parallel : 1, .pooled = pooled});
    if (st.code) {
        assert_int_equal(st.code, QUILL_MEMORY);
        assert_true(may_be_too_little);
    } else {
        const KvPool *p = e.kv.pool;
        assert_int_equal(bytes_taken(p), kvshape_bytes(&e.shape));
        assert_in_range(bytes_taken(p), 1, o.engine.kv_mem);
        assert_true(p->n_blocks * p->block >= e.shape.n_ctx);
        assert_true(!p->tail_of || p->n_tails >= int_min(2, p->n_blocks));
        engine_close(&e);
    }
    cli_free(&o);
}

// The allocated cache, including pages of open groups, must be within --kv-mem and hold a context. If there are too few
// pages, fewer sequences of the pool run at once.
static void test_within_kv_mem(void **state) {
    (void)state;
    static const char *const sizes[] = {"40k", "52k", "60k", "100k", "400k", "2M"};
    for (size_t i = 0; i < ARRAY_LEN(all_types); i++)
        for (size_t k = 0; k < ARRAY_LEN(sizes); k++)
            for (int asked = 0; asked < 2; asked++) {
                char words[160];
                snprintf(words, sizeof words, "%s %s --kv-mem %s -np 64", all_types[i], asked ? "-c 128" : "",
                         sizes[k]);
                check_size(words, true, asked && k < 2); // two pages and a context in q8_0 take 51 KB
                check_size(words, false, asked && k < 1);
            }
}

// ---- the order of answers -------------------------------------------------------------------------------------------

// With two sequences at a time, short jobs finish before an earlier long one; with --keep-order they wait for it.
static void test_short_jobs_leave_first(void **state) {
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        Buf lines = {0}, out = {0};
        buf_str(&lines, "{\"prompt\":\"long\",\"max_tokens\":90,\"ignore_eos\":true}\n");
        for (int i = 0; i < 6; i++) buf_str(&lines, "{\"prompt\":\"short\",\"max_tokens\":5,\"ignore_eos\":true}\n");
        int order[7];
        assert_ok(run_batch(keep ? "-np 2 --keep-order" : "-np 2", str_of_buf(&lines), &out));
        json_t **all = replies(&out, 7, order);
        for (int i = 0; i < 7; i++) assert_int_equal(order[i], keep ? i + 1 : i == 6 ? 1 : i + 2);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(all[1], "usage"), "completion_tokens")),
                         90);
        free_replies(all, 7);
        buf_free(&lines);
        buf_free(&out);
    }
}

static int cached_tokens(const json_t *reply) {
    return (int)json_integer_value(json_object_get(json_object_get(reply, "usage"), "cached_tokens"));
}

// Jobs with the same beginning that arrive together: one computes the beginning, the others share it.
static void test_shared_prefix(void **state) {
    (void)state;
    Buf lines = {0}, out = {0};
    for (int i = 0; i < 8; i++)
        buf_printf(&lines,
                   "{\"prompt\":\"a beginning of more than sixty-four bytes, which they all have, then %d\","
                   "\"raw\":true,\"max_tokens\":3}\n",
                   i);
    assert_ok(run_batch("--kv-block 16 -ub 32", str_of_buf(&lines), &out));
    json_t **all = replies(&out, 8, NULL);
    assert_int_equal(cached_tokens(all[1]), 0);
    for (int i = 2; i <= 8; i++) assert_in_range(cached_tokens(all[i]), 16, 128);
    free_replies(all, 8);
    buf_free(&lines);
    buf_free(&out);
}

// Asserts that --verbose printed a line with this beginning.
static void assert_said(const char *beginning) {
    Buf said = {0};
    assert_ok(file_read(said_path, &said));
    buf_append(&said, "", 0);
    if (!strstr(said.data, beginning)) fail_msg("\"%s\" expected on stderr, found: %s", beginning, said.data);
    buf_free(&said);
}

// A batch must find what an earlier batch has saved: prompts, answers and common beginnings.
static void test_prefix_on_disk(void **state) {
    (void)state;
    Buf lines = {0}, want = {0};
    char words[1200];
    const char *dir = test_tmp("batch-dir");
    remove_directory(dir);
    for (int i = 0; i < 6; i++)
        buf_printf(&lines,
                   "{\"prompt\":\"a beginning of more than sixty-four bytes, which they all have, then %d\","
                   "\"raw\":true,\"max_tokens\":20,\"ignore_eos\":true,\"greedy\":true,\"n\":%d}\n",
                   i, i == 3 ? 3 : 1);
    assert_ok(run_batch("--kv-block 16", str_of_buf(&lines), &want));
    json_t **alone = replies(&want, 6, NULL);
    for (int round = 0; round < 3; round++) {
        static const char *const ways[] = {"-ub 32", "-np 2 --static", "--kv-mem 60k -np 4"};
        Buf out = {0};
        snprintf(words, sizeof words, "--kv-block 16 --kv-dir %s %s", dir, ways[round]);
        assert_ok(run_batch(words, str_of_buf(&lines), &out));
        assert_said("\nKV dir     ");
        json_t **all = replies(&out, 6, NULL);
        for (int i = 1; i <= 6; i++) {
            assert_true(str_eq(text_of_reply(alone[i], 0), text_of_reply(all[i], 0)));
            if (round == 0) assert_in_range(cached_tokens(all[i]), i == 1 ? 0 : 16, i == 1 ? 0 : 128);
            else assert_in_range(cached_tokens(all[i]), 48, 128);
        }
        free_replies(all, 6);
        buf_free(&out);
    }
    free_replies(alone, 6);
    buf_free(&lines);
    buf_free(&want);
    remove_directory(dir);
}

// Many more different prompts than the cache holds: a second run must load each of them up to its last whole block.
static void test_more_on_disk_than_in_memory(void **state) {
    (void)state;
    enum { JOBS = 24 };
    Buf lines = {0}, want = {0};
    char words[1200];
    const char *dir = test_tmp("batch-dir");
    remove_directory(dir);
    for (int i = 0; i < JOBS; i++)
        buf_printf(
            &lines,
            "{\"prompt\":\"%c the beginnings of these prompts differ, and each of them is of several blocks: %d\","
            "\"raw\":true,\"max_tokens\":8,\"ignore_eos\":true,\"greedy\":true}\n",
            'a' + i, i);
    snprintf(words, sizeof words, "-c 128 --kv-block 16 --kv-mem 48k -np 8 -ub 40 --kv-dir %s", dir);
    assert_ok(run_batch(words, str_of_buf(&lines), &want));
    json_t **first = replies(&want, JOBS, NULL);
    for (int width = 1; width <= 64; width *= 8) {
        Buf out = {0};
        snprintf(words, sizeof words, "-c 128 --kv-block 16 --kv-mem 48k -np %d -ub 40 --kv-dir %s", width, dir);
        assert_ok(run_batch(words, str_of_buf(&lines), &out));
        json_t **all = replies(&out, JOBS, NULL);
        for (int i = 1; i <= JOBS; i++) {
            const json_t *usage = json_object_get(all[i], "usage");
            int n_prompt = (int)json_integer_value(json_object_get(usage, "prompt_tokens"));
            assert_int_equal(cached_tokens(all[i]), (n_prompt - 1) / 16 * 16);
            assert_true(str_eq(text_of_reply(first[i], 0), text_of_reply(all[i], 0)));
        }
        free_replies(all, JOBS);
        buf_free(&out);
    }
    free_replies(first, JOBS);
    buf_free(&lines);
    buf_free(&want);
    remove_directory(dir);
}

// After each step at most as many slots are saved as the step had rows, plus a block. When a request ends, less than a
// block is unsaved. Decoding sequences must not wait until a prompt is saved.
static void test_kept_as_they_fill(void **state) {
    (void)state;
    enum { N = 6 };
    Options o;
    Engine e;
    Request r[N] = {0};
    Sequence seq[N] = {0};
    Batch *b;
    uint64_t random = 2;
    char words[1200];
    const char *dir = test_tmp("batch-dir");
    remove_directory(dir);
    snprintf(words, sizeof words, "-c 128 --kv-block 16 -ub 24 --kv-dir %s", dir);
    options(&o, words);
    assert_ok(engine_open(&e, &o.engine, (EngineNeeds){.n_seqs = N, .pooled = true}));
    for (int i = 0; i < N; i++) {
        r[i].seq = &seq[i];
        for (int k = 0; k < 70 + i; k++) sequence_push(r[i].seq, &(int){(int)(test_random(&random) % 300)}, 1);
        r[i].sampling = o.answer.sampling;
        r[i].max_new = 40;
        scheduler_add(e.sched, &r[i]);
    }
    for (int n_saved = 0, n_rows = 0; engine_step(&e, &b);) {
        int now = kvstore_stats(e.kv_dir.store).n_saved;
        n_rows += b->n_rows;
        assert_in_range(now - n_saved, 0, b->n_rows + 2 * 16 - 1);
        assert_true(now > n_rows - N * 16 - 16); // no sequence may fall behind
        n_saved = now;
    }
    for (int i = 0, n_saved = 0; i < N; i++) {
        n_saved = kvstore_stats(e.kv_dir.store).n_saved;
        engine_keep(&e, r[i].seq);
        assert_in_range(kvstore_stats(e.kv_dir.store).n_saved - n_saved, 0, 16);
        sequence_end(&e.kv, r[i].seq);
        timeline_free(&r[i].time);
    }
    assert_int_equal(kvstore_stats(e.kv_dir.store).n_saved, 96 * 3 + 112 * 3); // the whole blocks of 109 to 114 slots
    engine_close(&e);
    cli_free(&o);
    remove_directory(dir);
}

// Random jobs with a cache that they fill and a directory that is too small for them.
static void test_soak_on_disk(void **state) {
    (void)state;
    char words[1200];
    const char *dir = test_tmp("batch-dir");
    remove_directory(dir);
    snprintf(words, sizeof words, "-c 128 --kv-block 8 --kv-mem 32k -np 6 -ub 24 --kv-dir %s,size=100k", dir);
    // fewer jobs, because each waits for the disk
    for (int round = 0; round < 2; round++) soak(words, int_max(30, soak_jobs() / 20), 4);
    remove_directory(dir);
}

static void test_rate(void **state) {
    (void)state;
    Buf lines = {0}, first = {0}, second = {0};
    for (int i = 0; i < 10; i++) buf_str(&lines, "{\"prompt\":\"x\",\"max_tokens\":4}\n");
    assert_ok(run_batch("--rate 200 --slo ttft=1000,tpot=100 --seed 5", str_of_buf(&lines), &first));
    assert_ok(run_batch("--rate 1000 --seed 5 --static -np 2", str_of_buf(&lines), &second));
    json_t **a = replies(&first, 10, NULL), **b = replies(&second, 10, NULL);
    for (int i = 1; i <= 10; i++) { // a seed follows from the run's seed and the line
        assert_true(str_eq(text_of_reply(a[i], 0), text_of_reply(b[i], 0)));
        assert_true(json_equal(json_object_get(a[i], "seed"), json_object_get(b[i], "seed")));
    }
    assert_false(json_equal(json_object_get(a[1], "seed"), json_object_get(a[2], "seed")));
    free_replies(a, 10);
    free_replies(b, 10);
    buf_free(&lines);
    buf_free(&first);
    buf_free(&second);
    static const char *const bad[] = {"",        "ttft",          "ttft=", "ttft=0",   "ttft=-1",
                                      "ttft=1,", "ttft=1,ttft=2", "x=1",   "ttft=nan", "ttft=1 tpot=2"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Options o;
        options(&o, "");
        o.batch.slo = bad[i];
        assert_int_equal(batch_run(&o).code, QUILL_USAGE);
        cli_free(&o);
    }
}

static json_t *at(json_t *j, const char *path) { // follows a path such as "response.body.choices.0"
    char copy[128];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *key = strtok(copy, "."); key; key = strtok(NULL, "."))
        j = json_is_array(j) ? json_array_get(j, (size_t)strtol(key, NULL, 10)) : json_object_get(j, key);
    if (!j) fail_msg("no %s", path);
    return j;
}

static void test_openai_replies(void **state) {
    (void)state;
    static const char lines[] =
        "{\"custom_id\":\"c\",\"url\":\"/v1/chat/completions\",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":"
        "\"hi\"}],\"n\":2,\"max_tokens\":4,\"ignore_eos\":true,\"logprobs\":true,\"top_logprobs\":3}}\n"
        "{\"custom_id\":\"t\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"hi\",\"max_tokens\":4,"
        "\"ignore_eos\":true,\"logprobs\":2}}\n"
        "{\"custom_id\":\"bad\",\"body\":{\"prompt\":\"hi\",\"best_of\":0}}\n"
        "{\"custom_id\":\"off\",\"body\":{\"prompt\":\"hi\",\"max_tokens\":50,\"ignore_eos\":true}}\n"
        "{\"cancel\":\"off\"}\n";
    Buf out = {0};
    assert_int_equal(run_batch("--keep-order", str_of(lines), &out).code, QUILL_USAGE);
    json_t *j[4];
    const char *line = out.data;
    for (int i = 0; i < 4; i++, line = strchr(line, '\n') + 1)
        assert_non_null(j[i] = json_loads(line, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL));
    assert_string_equal(json_string_value(at(j[0], "custom_id")), "c");
    assert_int_equal(json_integer_value(at(j[0], "response.status_code")), 200);
    assert_true(json_is_null(at(j[0], "error")));
    assert_string_equal(json_string_value(at(j[0], "response.body.object")), "chat.completion");
    assert_int_equal(json_array_size(at(j[0], "response.body.choices")), 2);
    assert_int_equal(json_integer_value(at(j[0], "response.body.usage.completion_tokens")), 8);
    json_t *choice = at(j[0], "response.body.choices.1");
    assert_int_equal(json_integer_value(at(choice, "index")), 1);
    assert_string_equal(json_string_value(at(choice, "finish_reason")), "length");
    assert_true(json_is_string(at(choice, "message.content")));
    assert_int_equal(json_array_size(at(choice, "logprobs.content")), 4);
    assert_int_equal(json_array_size(at(choice, "logprobs.content.3.top_logprobs")), 3);
    assert_true(json_real_value(at(choice, "logprobs.content.3.logprob")) < 0);
    assert_string_equal(json_string_value(at(j[1], "response.body.object")), "text_completion");
    assert_true(json_is_string(at(j[1], "response.body.choices.0.text")));
    assert_int_equal(json_array_size(at(j[1], "response.body.choices.0.logprobs.tokens")), 4);
    assert_int_equal(json_array_size(at(j[1], "response.body.choices.0.logprobs.top_logprobs")), 4);
    assert_int_equal(json_integer_value(at(j[2], "response.status_code")), 400);
    assert_string_equal(json_string_value(at(j[2], "response.body.error.type")), "invalid_request_error");
    assert_true(json_is_null(at(j[3], "response")));
    assert_string_equal(json_string_value(at(j[3], "error.code")), "batch_cancelled");
    for (int i = 0; i < 4; i++) json_decref(j[i]);
    buf_free(&out);
}

// A prompt that is too long is an error of its own line, and the exit code is that of the first error.
static void test_too_long(void **state) {
    (void)state;
    Buf lines = {0}, out = {0};
    buf_str(&lines, "{\"prompt\":\"");
    for (int i = 0; i < 300; i++) buf_str(&lines, "x ");
    buf_str(&lines, "\"}\n{\"prompt\":\"y\",\"max_tokens\":2}\n{\"prompt\":\"z\",\"logit_bias\":{\"99999\":1}}\n\n");
    Status st = run_batch("-c 64", str_of_buf(&lines), &out);
    assert_int_equal(st.code, QUILL_CONTEXT);
    assert_non_null(strstr(st.message, "2 of 3 jobs failed; the first: line 1: the prompt has"));
    json_t **all = replies(&out, 3, NULL);
    text_of_reply(all[2], 0);
    assert_non_null(json_object_get(all[3], "error"));
    free_replies(all, 3);
    buf_free(&lines);
    buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_jobs_leave_first),
        cmocka_unit_test(test_shared_prefix),
        cmocka_unit_test(test_prefix_on_disk),
        cmocka_unit_test(test_more_on_disk_than_in_memory),
        cmocka_unit_test(test_kept_as_they_fill),
        cmocka_unit_test(test_soak_on_disk),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_openai_replies),
        cmocka_unit_test(test_small_cache),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_static),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_within_kv_mem),
    };
    return cmocka_run_group_tests(tests, write_model, NULL);
}
