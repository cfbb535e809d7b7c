// batch/batch_line.c: see batch/batch_line.h.
#include "batch/batch_line.h"

#include <stdlib.h>

#include "answer/prepare.h"
#include "base/rng.h"

// ---- a line becomes requests ----------------------------------------------------------------------------------------

// The prompt in tokens; *text is what they came from.
static Status encode(const BatchContext *context, const Job *j, const ChatTemplate *template, Rendered *text,
                     Sequence *s) {
    Message prompt[2];
    const Message *messages = j->messages;
    int n = j->n_messages, n_ids = 0, *ids;
    if (messages && !template)
        return status_error(QUILL_MODEL, "messages: a chat template expected, found none; send a prompt, or give one "
                                         "with --chat-template");
    if (!messages) {
        if (template && context->system.data) prompt[n++] = (Message){"system", context->system};
        prompt[n++] = (Message){"user", j->prompt};
        messages = prompt;
    }
    Status st = answer_prompt(context->e, &j->config, template, messages, n, text, &ids, &n_ids);
    if (!st.code) sequence_push(s, ids, n_ids);
    free(ids);
    return st;
}

static uint64_t seed_of(const BatchContext *context, const BatchLine *line) {
    if (line->job.config.seed_given) return line->job.config.sampling.seed;
    return rng_bits(context->config->sampling.seed, UINT64_MAX, (uint64_t)line->number) &
           0xffffffff; // short enough to type
}

// All answers share the prompt: the first computes it, the others branch off.
static void add_requests(const BatchContext *context, BatchLine *line, const ChatTemplate *template,
                         const Rendered *text, const SamplerParams *sampling, double came) {
    Job *j = &line->job;
    bool fresh = !template && j->prompt.n == 0;
    for (int i = 0; i < j->n; i++) {
        Answer *a = &line->answers[i].answer;
        Request *r = &line->answers[i].request;
        answer_start(a, context->e, &j->config, fresh);
        answer_think(a, chat_template_source(template), (Str){text->text.data, text->text.n});
        r->seq = &line->answers[i].seq;
        r->sampling = *sampling;
        r->sequence_key = (uint64_t)i;
        r->max_new = j->config.predict;
        r->emit = answer_emit;
        r->blind = answer_is_blind(&j->config);
        r->arg = a;
        if (i > 0) line->answers[i - 1].request.next = r;
    }
    Request *first = &line->answers[0].request;
    first->branches = first->next;
    first->time.start = came;
    engine_add(context->e, first);
}

static Status open_job(const BatchContext *context, BatchLine *line, double came) {
    Job *j = &line->job;
    const ChatTemplate *template = j->raw ? NULL : context->template;
    SamplerParams sampling;
    Rendered text = {0};
    LineAnswer *answers = mem_alloc((size_t)j->n * sizeof *answers);
    j->config.sampling.seed = seed_of(context, line);
    Status st = encode(context, j, template, &text, &answers[0].seq);
    if (!st.code) st = answer_sampling(context->e, &j->config, &sampling, &line->bias);
    if (!st.code) {
        line->answers = answers;
        add_requests(context, line, template, &text, &sampling, came);
    } else {
        sequence_free(&answers[0].seq);
        free(answers);
    }
    rendered_free(&text);
    job_forget_text(j);
    return st;
}

// ---- the ways a line ends -------------------------------------------------------------------------------------------

static void end_line(BatchLine *line, Status failed) {
    line->failed = failed;
    line->done = true;
    line->end = clock_now();
}

BatchLine *batch_line_new(const BatchContext *context, Str text, int64_t number, double came) {
    BatchLine *line = mem_alloc(sizeof *line);
    line->number = number;
    Status st = job_parse(text, context->config, &line->job);
    if (!st.code && line->job.cancel) {
        line->done = true;
        return line;
    }
    if (!st.code) st = open_job(context, line, came);
    if (st.code) end_line(line, st);
    return line;
}

BatchLine *batch_line_refuse(Status why, int64_t number) {
    BatchLine *line = mem_alloc(sizeof *line);
    line->number = number;
    end_line(line, why);
    return line;
}

bool batch_line_begun(const BatchLine *line) { return line->answers && line->answers[0].request.time.begun != 0; }

void batch_line_cancel(const BatchContext *context, BatchLine *line) {
    for (int i = 0; line->answers && i < line->job.n; i++)
        scheduler_cancel(context->e->sched, &line->answers[i].request);
}

bool batch_line_collect(const BatchContext *context, BatchLine *line) {
    if (line->done) return false;
    bool all = true;
    Status broken = OK;
    for (int i = 0; i < line->job.n; i++) {
        LineAnswer *a = &line->answers[i];
        if (a->request.finish == RUNNING) all = false;
        else if (!a->ended) {
            engine_keep(context->e, a->request.seq);
            kvcache_release(&context->e->kv, a->request.seq);
            answer_end(&a->answer);
            a->ended = true;
        }
        if (a->request.finish == FINISH_BROKEN) broken = answer_broken(context->e, &a->request);
    }
    if (all) end_line(line, broken);
    return all;
}

void batch_line_free(const BatchContext *context, BatchLine *line) {
    for (int i = 0; line->answers && i < line->job.n; i++) {
        Request *r = &line->answers[i].request;
        kvcache_release(&context->e->kv, r->seq);
        sequence_free(r->seq);
        timeline_free(&r->time);
        answer_free(&line->answers[i].answer);
    }
    free(line->answers);
    free(line->bias);
    job_free(&line->job);
    buf_free(&line->reply);
    free(line);
}
