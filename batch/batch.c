// batch/batch.c: see batch/batch.h.
#define _GNU_SOURCE
#include "batch/batch.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "answer/file_sampling.h"
#include "answer/prompt.h"
#include "answer/report.h"
#include "base/fd.h"
#include "base/note.h"
#include "base/output.h"
#include "base/rng.h"
#include "base/signals.h"
#include "batch/batch_line.h"
#include "batch/batch_stats.h"
#include "batch/feed.h"
#include "batch/replies.h"
#include "batch/resume.h"

enum {
    LINES_A_STEP = 8,    // lines read between two steps even if fewer places are free
    MOST_PENDING = 4096, // the most lines in memory, including those whose output --keep-order delays
};
static const double WAIT = 1;   // the longest wait for input in seconds; signals end it at once
static const double SHOW = 0.2; // seconds between two updates of the progress line

typedef struct {
    const Options *o;
    AnswerConfig job_config; // o->answer, with `json` set
    Engine e;
    ChatTemplate *template;
    Buf system;
    Blender *blender; // NULL: no job with chunks so far
    BatchContext context;
    Feed feed;
    bool ended;    // no more lines are read
    bool has_next; // `next` is a line that has been read, whose time (--rate) has not come
    Str next;
    FeedResult next_kind;
    BatchLine *pending;    // a list in the order of the input, until the output of a line is written
    int n_pending, n_open; // n_open: pending lines that are not done
    int width;             // the most sequences at once
    int64_t n_cut;         // jobs that a signal ended before their end
    double next_arrival;   // --rate
    uint64_t n_arrived;
    Resume resume;
    long long n_skipped, n_lines; // jobs that --resume skipped; jobs of the input, 0: unknown
    BatchStats stats;
    Slo slo;
    Progress progress;
    double shown;
    bool gone;      // the reader of stdout has closed the pipe
    Status failed;  // stdout could not be written: ends the run
    Status unread;  // the input could not be read: the lines before are answered
    Status first;   // the error of the first line that failed
    int stopped_by; // the signal that stopped the run; 0: none
    int n_signals;  // number of signals that stop has handled
    Buf left;       // "58-64": lines that stop has dropped
    bool cut;       // stopped before the end of the input
} BatchRun;

// ---- input ----------------------------------------------------------------------------------------------------------

static void append(BatchRun *b, BatchLine *line) {
    BatchLine **at = &b->pending;
    while (*at) at = &(*at)->next;
    *at = line;
    b->n_pending++;
    b->n_open += !line->done;
}

// Counts a line that has failed, and keeps the first error.
static void note_failure(BatchRun *b, const BatchLine *line) {
    if (!line->failed.code) return;
    b->stats.n_failed++;
    if (b->first.code) return;
    Buf message = {0};
    utf8_escape(&message, line->failed.message, strlen(line->failed.message)); // it may quote the line
    b->first = status_error(line->failed.code, "line %lld: %.900s", (long long)line->number, message.data);
    buf_free(&message);
}

static void cancel_jobs(BatchRun *b, const json_t *id) {
    for (BatchLine *line = b->pending; line; line = line->next)
        if (line->job.id && json_equal(line->job.id, id)) choices_cancel(&line->choices);
}

static void take_line(BatchRun *b, FeedResult kind, Str text, double came) {
    int64_t number = b->feed.n_lines;
    if (kind == FEED_LINE && resume_skips(&b->resume, text, number)) {
        b->n_skipped++;
        return;
    }
    Status too_long =
        status_error(QUILL_USAGE, "a line of at most %d bytes expected, found a longer one", (int)FEED_LONGEST);
    BatchLine *line =
        kind == FEED_LINE ? batch_line_new(&b->context, text, number, came) : batch_line_refuse(too_long, number);
    if (line->job.cancel) {
        cancel_jobs(b, line->job.cancel);
        if (b->n_lines > 0) b->n_lines--; // it was counted as a job
    }
    if (line->failed.code) replies_write(&b->context, line, &line->reply);
    note_failure(b, line);
    append(b, line);
}

// The next arrival of a Poisson process, whose gaps have an exponential distribution.
static void next_arrival(BatchRun *b) {
    double u = rng_uniform(b->o->answer.sampling.seed, UINT64_MAX - 1, b->n_arrived++);
    b->next_arrival += -log1p(-u) / (double)b->o->batch.rate;
}

static bool has_room(const BatchRun *b) {
    int most = b->o->batch.static_batches ? b->width : 2 * b->width;
    return b->n_open < most && b->n_pending < MOST_PENDING;
}

// Sleeps until the next arrival, at most WAIT seconds, or until a signal. Returns at once while jobs are running.
static void nap(const BatchRun *b) {
    double seconds = fmin(WAIT, b->next_arrival - clock_now());
    if (b->n_open > 0 || seconds <= 0) return;
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - floor(seconds)))};
    nanosleep(&t, NULL);
}

// Obeys cancel lines behind lines that have no room yet. Such a line also has its turn: it ends the jobs before it.
static void obey_early(BatchRun *b) {
    enum { AHEAD = 1 << 20 }; // bytes
    Str line;
    if (b->ended || b->has_next) return;
    while (feed_ahead(&b->feed, AHEAD, &line)) {
        Job job;
        if (!memmem(line.data, line.n, "\"cancel\"", 8)) continue;
        if (!job_parse(line, &b->job_config, &job).code && job.cancel) cancel_jobs(b, job.cancel);
        job_free(&job);
    }
}

// Reads the lines that have arrived, as far as there is room. Waits for the first one only if no job is running.
static void read_lines(BatchRun *b) {
    bool rated = b->o->batch.rate > 0, idle = b->n_open == 0;
    int most = int_max(LINES_A_STEP, b->width - b->n_open); // running sequences do not wait for more input
    if (!has_room(b)) obey_early(b);
    if (b->o->batch.static_batches && !idle) return;
    for (int i = 0; !b->ended && has_room(b) && (idle || i < most); i++) {
        if (!b->has_next) {
            b->unread = feed_next(&b->feed, b->n_open > 0 ? 0 : WAIT, &b->next, &b->next_kind);
            b->ended = b->unread.code || b->next_kind == FEED_END;
            if (b->ended || b->next_kind == FEED_NOTHING) return;
            b->has_next = true;
        }
        if (rated && clock_now() < b->next_arrival) {
            nap(b);
            return;
        }
        take_line(b, b->next_kind, b->next, rated ? b->next_arrival : clock_now());
        b->has_next = false;
        if (rated) next_arrival(b);
    }
}

// ---- output ---------------------------------------------------------------------------------------------------------

static void count_job(BatchRun *b, const BatchLine *line) {
    if (line->failed.code) return;
    const Request *requests[JOB_MOST_ANSWERS];
    int n = line->choices.n_runs;
    for (int i = 0; i < n; i++) {
        requests[i] = &line->choices.runs[i].request;
        batch_stats_answer(&b->stats, requests[i]);
    }
    b->n_cut += choices_was_cut(&line->choices);
    batch_stats_job(&b->stats, &b->slo, requests, n, line->end);
}

static void collect(BatchRun *b) {
    for (BatchLine *line = b->pending; line; line = line->next) {
        if (!batch_line_collect(line)) continue;
        b->n_open--;
        replies_write(&b->context, line, &line->reply);
        note_failure(b, line);
        count_job(b, line);
    }
}

static void drop(BatchRun *b, BatchLine **at) {
    BatchLine *line = *at;
    *at = line->next;
    b->n_pending--;
    batch_line_free(line);
}

static void write_replies(BatchRun *b) {
    for (BatchLine **at = &b->pending; *at;) {
        BatchLine *line = *at;
        if (!line->done && b->o->batch.keep_order) return;
        if (!line->done) {
            at = &line->next;
            continue;
        }
        progress_erase(&b->progress);
        const char *file = b->o->batch.resume ? b->o->batch.resume : "stdout";
        Status st = output_write_to(file, line->reply.data, line->reply.n, &b->gone);
        if (st.code) {
            b->failed = st;
            return;
        }
        drop(b, at);
    }
}

// Counts the jobs (lines that are not blank) from the current offset of a regular file on. 0: not a regular file.
static long long count_lines(int fd) {
    struct stat info;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || at < 0) return 0;
    char bytes[1 << 16];
    long long lines = 0;
    bool text = false; // the current line is not blank
    for (ssize_t n; (n = pread(fd, bytes, sizeof bytes, at)) > 0; at += n)
        for (ssize_t i = 0; i < n; i++) {
            lines += bytes[i] == '\n' && text;
            text = bytes[i] != '\n' && (text || !isspace((unsigned char)bytes[i]));
        }
    return lines + text;
}

// "1:02:03" or "2:03".
static void add_clock(Buf *out, double seconds) {
    long long s = (long long)(seconds + 0.5);
    if (s >= 3600) buf_printf(out, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else buf_printf(out, "%lld:%02lld", s / 60, s % 60);
}

static void show_progress(BatchRun *b) {
    double now = clock_now();
    if (now - b->stats.start < 1 || now - b->shown < SHOW) return;
    b->shown = now;
    const BatchStats *t = &b->stats;
    long long ended = t->n_jobs + t->n_failed, done = ended + b->n_skipped;
    long long all = b->ended ? done + b->n_open : b->n_lines;
    Buf line = {0};
    buf_printf(&line, "%lld", done);
    if (all > 0) buf_printf(&line, " of %lld", all);
    buf_printf(&line, " done, %lld failed, %d open, %.0f tok/s", (long long)t->n_failed, b->n_open,
               (double)t->n_emitted / (now - t->start));
    if (all > done && ended > 0) {
        buf_str(&line, ", ");
        add_clock(&line, (now - t->start) / (double)ended * (double)(all - done));
        buf_str(&line, " left");
    }
    progress_show(&b->progress, line.data, 0, 0);
    buf_free(&line);
}

// ---- signals --------------------------------------------------------------------------------------------------------

// Adds a line number to b->left ("58-60, 62"). Numbers must ascend; 0 ends the list. *first, *last: the open range.
static void note_left(BatchRun *b, int64_t line, int64_t *first, int64_t *last) {
    if (*last != 0 && line == *last + 1) {
        *last = line;
        return;
    }
    if (*last != 0)
        buf_printf(&b->left, *first < *last ? "%s%lld-%lld" : "%s%lld", b->left.n ? ", " : "", (long long)*first,
                   (long long)*last);
    *first = *last = line;
}

// Whether the signals that came cancel the running jobs.
static bool cancels_all(void) { return signals_ends() || signals_times() > 1; }

// Stops reading and drops the jobs that have not begun. SIGTERM, SIGHUP, or a second SIGINT, also cancels the running
// jobs.
static void stop(BatchRun *b, int signal) {
    int64_t first = 0, last = 0;
    b->stopped_by = signal;
    b->n_signals = signals_times();
    bool all = cancels_all();
    for (BatchLine **at = &b->pending; *at;) {
        BatchLine *line = *at;
        bool waits = !line->done && !choices_begun(&line->choices);
        if (waits || all) choices_cancel(&line->choices);
        if (!waits) {
            at = &line->next;
            continue;
        }
        note_left(b, line->number, &first, &last);
        b->n_open--;
        drop(b, at);
    }
    note_left(b, 0, &first, &last);
    b->cut |= !b->ended;
    b->ended = true;
    progress_erase(&b->progress);
    if (!all && b->n_open > 0 && !b->o->answer.quiet)
        fprintf(stderr, "quill: batch: finishing %d job%s; Ctrl-C again stops\n", b->n_open, b->n_open == 1 ? "" : "s");
}

static void heed_signals(BatchRun *b) {
    if (signals_caught() != b->stopped_by || signals_times() > b->n_signals) stop(b, signals_caught());
}

static Status interrupted(const BatchRun *b) {
    const BatchStats *t = &b->stats;
    Buf left = {0};
    if (b->left.n)
        buf_printf(&left, "; not begun: line%s %.500s", strpbrk(b->left.data, "-,") ? "s" : "", b->left.data);
    long long n_taken = b->feed.n_lines - b->has_next;
    if (b->cut && n_taken == 0) buf_str(&left, "; no line was read");
    else if (b->cut) buf_printf(&left, "%s the lines after line %lld", b->left.n ? ", and" : "; not read:", n_taken);
    char cut[40] = "";
    if (b->n_cut > 0) snprintf(cut, sizeof cut, ", %lld cut", (long long)b->n_cut);
    Status st = status_error(128 + b->stopped_by, "batch: stopped by %s: %lld jobs answered%s%s",
                             b->stopped_by == SIGINT   ? "SIGINT"
                             : b->stopped_by == SIGHUP ? "SIGHUP"
                                                       : "SIGTERM",
                             (long long)(t->n_jobs - b->n_cut), cut, left.n ? left.data : "; none is open");
    buf_free(&left);
    return st;
}

// ---- the run --------------------------------------------------------------------------------------------------------

static void run(BatchRun *b) {
    b->stats.start = b->next_arrival = clock_now();
    if (b->o->batch.rate > 0) next_arrival(b);
    b->e.stop = cancels_all;
    while (!b->gone && !b->failed.code) {
        heed_signals(b);
        read_lines(b);
        collect(b); // cancelled jobs: a step that finds their blocks taken would end the jobs that wait for them
        Batch *batch;
        if (engine_step(&b->e, &batch)) batch_stats_step(&b->stats, &b->e, batch);
        if (b->blender) blender_collect(b->blender);
        b->ended |= engine_fault(&b->e).code != 0; // the open jobs fail with it
        collect(b);
        write_replies(b);
        if (b->ended && b->n_pending == 0) break;
        show_progress(b);
    }
    if (b->failed.code > 128) heed_signals(b); // a signal arrived during a write
    progress_erase(&b->progress);
}

// The Status of the run: one message for all failures.
static Status outcome(const BatchRun *b) {
    if (b->stopped_by && b->failed.code != QUILL_IO) return interrupted(b); // not if answers could not be written
    if (b->gone || b->failed.code) return b->failed;
    if (b->unread.code || !b->first.code) return b->unread;
    const BatchStats *t = &b->stats;
    long long failed = t->n_failed, all = t->n_jobs + t->n_failed;
    if (all == 1) return status_error(b->first.code, "batch: %.980s", b->first.message);
    return status_error(b->first.code, "batch: %lld of %lld jobs failed; the first: %.900s", failed, all,
                        b->first.message);
}

// Refuses to append answers to the file of the jobs: they would be read as jobs, without end.
static Status check_out(const BatchRun *b) {
    struct stat in, out;
    const char *resume = b->o->batch.resume;
    bool known = resume ? stat(resume, &out) == 0 : fstat(STDOUT_FILENO, &out) == 0;
    if (!known || fstat(b->feed.fd, &in) != 0 || !S_ISREG(in.st_mode) || !fd_same_file(&in, &out)) return OK;
    return status_error(QUILL_USAGE, "quill batch: %.500s: a file other than that of the jobs expected, found the same",
                        resume ? resume : "stdout");
}

// With --raw the template is for jobs with "raw":false, and may be missing or wrong.
static Status choose_template(BatchRun *b, const AnswerConfig *config) {
    AnswerConfig with = *config;
    with.raw = false;
    Status st = chat_template_choose(b->e.gguf, b->e.tok, &with, &b->template);
    return config->raw ? OK : st;
}

static Status open_run(BatchRun *b, const Options *o) {
    b->o = o;
    b->job_config = o->answer;
    b->job_config.json = true;
    TRY(slo_parse(o->batch.slo, &b->slo));
    TRY(plan_parse(o->answer.blend, &(BlendPlan){0})); // reports a wrong --blend before the first job
    if (!o->input && isatty(STDIN_FILENO))
        return status_error(QUILL_USAGE, "quill batch: jobs in JSON, one per line, on stdin or in FILE expected, found "
                                         "a terminal; give - to read from the terminal");
    TRY(prompt_system(&o->answer, true, &b->system));
    TRY(feed_open(o->input, &b->feed));
    TRY(check_out(b));
    TRY(engine_open(
        &b->e, &o->engine,
        (EngineNeeds){.need_tokenizer = true, .n_seqs = o->batch.parallel, .pooled = true, .whole = o->answer.blend}));
    if (!o->engine.dry_run) TRY(file_sampling_take(b->e.gguf, &b->job_config));
    if (o->batch.resume && !o->engine.dry_run) TRY(resume_open(o->batch.resume, &b->resume));
    if (b->resume.n > 0)
        note_print(o->answer.quiet, "%.500s has %lld answers; their jobs are skipped", o->batch.resume, b->resume.n);
    b->width = b->e.sched ? scheduler_max_seqs(b->e.sched) : b->e.shape.n_seqs;
    TRY(choose_template(b, &o->answer));
    b->context = (BatchContext){&b->e, &b->job_config, b->template, {b->system.data, b->system.n}, &b->blender};
    b->progress = progress_new(o->answer.quiet);
    if (b->progress.on) b->n_lines = count_lines(b->feed.fd);
    return OK;
}

static void close_run(BatchRun *b) {
    while (b->pending) {
        choices_cancel(&b->pending->choices);
        drop(b, &b->pending);
    }
    blender_close(b->blender);
    assert(b->e.kv.n_free == b->e.kv.pool->n_blocks); // all blocks were released
    feed_close(&b->feed);
    resume_close(&b->resume);
    batch_stats_free(&b->stats);
    chat_template_free(b->template);
    engine_close(&b->e);
    buf_free(&b->system);
    buf_free(&b->left);
}

Status batch_run(const Options *o) {
    BatchRun b = {.feed = {.fd = -1}};
    Status st = open_run(&b, o);
    if (!st.code && o->engine.dry_run) report_budget(&b.e);
    else if (!st.code) {
        if (o->answer.verbose)
            report_before(&b.e, &b.job_config, chat_template_name(o->answer.raw ? NULL : b.template));
        signals_catch_two(NULL);
        run(&b);
        signals_release();
        if (o->answer.verbose) batch_stats_report(&b.stats, &b.e, &b.slo);
        else if (!o->answer.quiet) batch_stats_goodput(&b.stats, &b.slo);
        st = outcome(&b);
    }
    close_run(&b);
    return st;
}
