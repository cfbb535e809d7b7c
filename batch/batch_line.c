// batch/batch_line.c: see batch/batch_line.h.
#include "batch/batch_line.h"

#include <stdlib.h>

#include "answer/prepare.h"
#include "base/rng.h"

// ---- a line becomes requests ----------------------------------------------------------------------------------------

// The prompt in tokens; *text is what they came from.
static Status encode(const BatchContext *context, const Job *j, const ChatTemplate *form, Rendered *text, Sequence *s) {
    Message prompt[2];
    const Message *messages = j->messages;
    int n = j->n_messages, n_ids = 0, *ids;
    if (messages && !form)
        return status_error(QUILL_MODEL, "messages: a chat template expected, found none; send a prompt, or give one "
                                         "with --chat-template");
    if (!messages) {
        if (form && context->system.data) prompt[n++] = (Message){"system", context->system};
        prompt[n++] = (Message){"user", j->prompt};
        messages = prompt;
    }
    Status st = answer_prompt(context->e, &j->config, form, messages, n, text, &ids, &n_ids);
    if (!st.code) sequence_push(s, ids, n_ids);
    free(ids);
    return st;
}

static uint64_t seed_of(const BatchContext *context, const BatchLine *t) {
    if (t->job.config.seed_given) return t->job.config.sampling.seed;
    return rng_bits(context->config->sampling.seed, UINT64_MAX, (uint64_t)t->line) & 0xffffffff; // short enough to type
}

// All answers share the prompt: the first computes it, the others branch off.
static void add_requests(const BatchContext *context, BatchLine *t, const ChatTemplate *form, const Rendered *text,
                         const SamplerParams *sampling, double came) {
    Job *j = &t->job;
    bool fresh = !form && j->prompt.n == 0;
    for (int i = 0; i < j->n; i++) {
        Answer *a = &t->answers[i].answer;
        Request *r = &t->answers[i].request;
        answer_start(a, context->e, &j->config, fresh);
        answer_think(a, chat_template_source(form), (Str){text->text.data, text->text.n});
        r->seq = &t->answers[i].seq;
        r->sampling = *sampling;
        r->sequence_key = (uint64_t)i;
        r->max_new = j->config.predict;
        r->emit = answer_emit;
        r->blind = answer_is_blind(&j->config);
        r->arg = a;
        if (i > 0) t->answers[i - 1].request.next = r;
    }
    Request *first = &t->answers[0].request;
    first->branches = first->next;
    first->time.start = came;
    engine_add(context->e, first);
}

static Status open_job(const BatchContext *context, BatchLine *t, double came) {
    Job *j = &t->job;
    const ChatTemplate *form = j->raw ? NULL : context->form;
    SamplerParams sampling;
    Rendered text = {0};
    LineAnswer *answers = mem_alloc((size_t)j->n * sizeof *answers);
    j->config.sampling.seed = seed_of(context, t);
    Status st = encode(context, j, form, &text, &answers[0].seq);
    if (!st.code) st = answer_sampling(context->e, &j->config, &sampling, &t->bias);
    if (!st.code) {
        t->answers = answers;
        add_requests(context, t, form, &text, &sampling, came);
    } else {
        sequence_free(&answers[0].seq);
        free(answers);
    }
    rendered_free(&text);
    job_forget_text(j);
    return st;
}

// ---- the ways a line ends -------------------------------------------------------------------------------------------

static void end_line(BatchLine *t, Status failed) {
    t->failed = failed;
    t->done = true;
    t->end = clock_now();
}

BatchLine *batch_line_new(const BatchContext *context, Str line, int64_t number, double came) {
    BatchLine *t = mem_alloc(sizeof *t);
    t->line = number;
    Status st = job_parse(line, context->config, &t->job);
    if (!st.code && t->job.cancel) {
        t->done = true;
        return t;
    }
    if (!st.code) st = open_job(context, t, came);
    if (st.code) end_line(t, st);
    return t;
}

BatchLine *batch_line_refuse(Status why, int64_t number) {
    BatchLine *t = mem_alloc(sizeof *t);
    t->line = number;
    end_line(t, why);
    return t;
}

bool batch_line_begun(const BatchLine *t) { return t->answers && t->answers[0].request.time.begun != 0; }

void batch_line_cancel(const BatchContext *context, BatchLine *t) {
    for (int i = 0; t->answers && i < t->job.n; i++) scheduler_cancel(context->e->sched, &t->answers[i].request);
}

bool batch_line_collect(const BatchContext *context, BatchLine *t) {
    if (t->done) return false;
    bool all = true;
    Status broken = OK;
    for (int i = 0; i < t->job.n; i++) {
        LineAnswer *a = &t->answers[i];
        if (a->request.finish == RUNNING) all = false;
        else if (!a->ended) {
            engine_keep(context->e, a->request.seq);
            kvcache_release(&context->e->kv, a->request.seq);
            answer_end(&a->answer);
            a->ended = true;
        }
        if (a->request.finish == FINISH_BROKEN) broken = answer_broken(context->e, &a->request);
    }
    if (all) end_line(t, broken);
    return all;
}

void batch_line_free(const BatchContext *context, BatchLine *t) {
    for (int i = 0; t->answers && i < t->job.n; i++) {
        Request *r = &t->answers[i].request;
        kvcache_release(&context->e->kv, r->seq);
        sequence_free(r->seq);
        timeline_free(&r->time);
        answer_free(&t->answers[i].answer);
    }
    free(t->answers);
    free(t->bias);
    job_free(&t->job);
    buf_free(&t->reply);
    free(t);
}
