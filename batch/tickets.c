// batch/tickets.c: see batch/tickets.h.
#include "batch/tickets.h"

#include <stdlib.h>

#include "batch/replies.h"
#include "base/rng.h"

// ---- a line becomes requests ----------------------------------------------------------------------------------------

// The prompt in tokens; *text is what they came from.
static Status encode(const TicketOffice *office, const Job *j, const ChatTemplate *form, Rendered *text, Sequence *s) {
    Message prompt[2];
    const Message *messages = j->messages;
    int n = j->n_messages, n_ids = 0, *ids;
    if (messages && !form)
        return status_error(QUILL_MODEL, "messages: a chat template expected, found none; send a prompt, or give one "
                                         "with --chat-template");
    if (!messages) {
        if (form && office->system.data) prompt[n++] = (Message){"system", office->system};
        prompt[n++] = (Message){"user", j->prompt};
        messages = prompt;
    }
    Status st = answer_prompt(office->e, &j->config, form, messages, n, text, &ids, &n_ids);
    if (!st.code) sequence_push(s, ids, n_ids);
    free(ids);
    return st;
}

static uint64_t seed_of(const TicketOffice *office, const Ticket *t) {
    if (t->job.config.seed_given) return t->job.config.sampling.seed;
    return rng_bits(office->config->sampling.seed, UINT64_MAX, (uint64_t)t->line) & 0xffffffff; // short enough to type
}

// All answers share the prompt: the first computes it, the others branch off.
static void add_requests(const TicketOffice *office, Ticket *t, const ChatTemplate *form, const Rendered *text,
                         const SamplerParams *sampling, double came) {
    Job *j = &t->job;
    bool fresh = !form && j->prompt.n == 0;
    for (int i = 0; i < j->n; i++) {
        Answer *a = &t->answers[i].answer;
        Request *r = &t->answers[i].request;
        answer_start(a, office->e, &j->config, fresh);
        answer_think(a, chat_source(form), (Str){text->text.data, text->text.n});
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
    engine_add(office->e, first);
}

static Status open_job(const TicketOffice *office, Ticket *t, double came) {
    Job *j = &t->job;
    const ChatTemplate *form = j->raw ? NULL : office->form;
    SamplerParams sampling;
    Rendered text = {0};
    TicketAnswer *answers = mem_alloc((size_t)j->n * sizeof *answers);
    j->config.sampling.seed = seed_of(office, t);
    Status st = encode(office, j, form, &text, &answers[0].seq);
    if (!st.code) st = answer_sampling(office->e, &j->config, &sampling, &t->bias);
    if (!st.code) {
        t->answers = answers;
        add_requests(office, t, form, &text, &sampling, came);
    } else {
        sequence_free(&answers[0].seq);
        free(answers);
    }
    rendered_free(&text);
    job_forget_text(j);
    return st;
}

// ---- the ways a ticket ends -----------------------------------------------------------------------------------------

static void close_ticket(const TicketOffice *office, Ticket *t, Status failed) {
    t->failed = failed;
    t->done = true;
    t->end = clock_now();
    replies_write(office, t, &t->reply);
}

Ticket *ticket_new(const TicketOffice *office, Str line, int64_t number, double came) {
    Ticket *t = mem_alloc(sizeof *t);
    t->line = number;
    Status st = job_parse(line, office->config, &t->job);
    if (!st.code && t->job.cancel) {
        t->done = true;
        return t;
    }
    if (!st.code) st = open_job(office, t, came);
    if (st.code) close_ticket(office, t, st);
    return t;
}

Ticket *ticket_refuse(const TicketOffice *office, Status why, int64_t number) {
    Ticket *t = mem_alloc(sizeof *t);
    t->line = number;
    close_ticket(office, t, why);
    return t;
}

bool ticket_begun(const Ticket *t) { return t->answers && t->answers[0].request.time.begun != 0; }

void ticket_cancel(const TicketOffice *office, Ticket *t) {
    for (int i = 0; t->answers && i < t->job.n; i++) scheduler_cancel(office->e->sched, &t->answers[i].request);
}

bool ticket_collect(const TicketOffice *office, Ticket *t) {
    if (t->done) return false;
    bool all = true;
    Status broken = OK;
    for (int i = 0; i < t->job.n; i++) {
        TicketAnswer *a = &t->answers[i];
        if (a->request.finish == RUNNING) all = false;
        else if (!a->ended) {
            engine_keep(office->e, a->request.seq);
            kvcache_release(&office->e->kv, a->request.seq);
            answer_end(&a->answer);
            a->ended = true;
        }
        if (a->request.finish == FINISH_BROKEN) broken = answer_broken(office->e, &a->request);
    }
    if (all) close_ticket(office, t, broken);
    return all;
}

void ticket_free(const TicketOffice *office, Ticket *t) {
    for (int i = 0; t->answers && i < t->job.n; i++) {
        Request *r = &t->answers[i].request;
        kvcache_release(&office->e->kv, r->seq);
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
