// answer/choices.c: see answer/choices.h.
#include "answer/choices.h"

#include "answer/form.h"
#include "base/note.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// The most beams for which the cache has blocks: beams share the whole blocks of the prompt, and each of them computes
// its tokens in a block of its own.
static int most_by_memory(const ChoicesSetup *setup, int n_prompt) {
    const KvCache *kv = &setup->e->kv;
    int max_new = setup->answer.config->predict;
    bool computes = (max_new < 0 || max_new > 1) && n_prompt < kv->max_slots; // a token after the first one
    return computes ? int_max(1, kv->pool->n_blocks - n_prompt / kv->pool->block) : INT_MAX;
}

static Status check_width(const ChoicesSetup *setup, int n_prompt) {
    int most = scheduler_max_seqs(setup->e->sched);
    int n = setup->answer.config->beams;
    most = int_min(most, most_by_memory(setup, n_prompt));
    if (n <= most) return OK;
    return status_error(
        QUILL_USAGE,
        "beams: at most %d expected, the number that can run at once with these -np, -ub and memory; found %d", most,
        n);
}

// ---- a beam search --------------------------------------------------------------------------------------------------

static BeamStop stop_of(const AnswerConfig *config) {
    if (strcmp(config->early_stopping, "true") == 0) return BEAM_STOP_FULL;
    return strcmp(config->early_stopping, "never") == 0 ? BEAM_STOP_NEVER : BEAM_STOP_PRESENT;
}

// Whether the answer part of a text contains a stop string, found as Answer does. The text is read from its beginning,
// because only then it is known which part is a thought.
static bool stops(const Choices *c, const int *tokens, int n) {
    ThinkStream think = c->think;
    TextStream text = {.stop = c->config->stop, .n_stop = c->config->n_stop};
    Buf out = {0};
    bool fresh = c->fresh;
    for (int i = 0; i < n && !text.stopped; i++) {
        bool hidden = answer_hides(c->e, c->config, tokens[i]);
        Str piece = engine_piece(c->e, tokens[i], fresh);
        if (!hidden) fresh = false;
        think_add(&think, piece.data, piece.n, hidden);
        for (Part p; !text.stopped && think_next(&think, &p); out.n = 0) {
            if (p.kind == PART_MARKER) text_stream_end(&text, &out);
            if (p.kind == PART_SAID) text_stream_add(&text, p.bytes.data, p.bytes.n, &out);
        }
    }
    bool stopped = text.stopped;
    think_free(&think);
    text_stream_free(&text);
    buf_free(&out);
    return stopped;
}

// BeamConfig.ends
static Finish ends(void *arg, const int *tokens, int n) {
    const Choices *c = arg;
    if (c->config->n_stop > 0 && stops(c, tokens, n)) return FINISH_STOP;
    return tokenizer_is_eog(c->e->tok, tokens[n - 1]) ? FINISH_EOG : RUNNING;
}

static void begin_search(Choices *c, const Policy *policy) {
    const AnswerConfig *config = c->config;
    c->search = beam_new(&(BeamConfig){.n = config->beams,
                                       .length_penalty = (double)config->length_penalty,
                                       .stop = stop_of(config),
                                       .n_top = answer_n_top(c->e, config),
                                       .sampler = c->e->sampler,
                                       .ends = ends,
                                       .arg = c,
                                       .next = policy ? policy : c->e->policy});
    beam_request(c->search, &c->runs[0].request);
}

static void read_text(const Choices *c, const BeamText *t, Answer *a) {
    int n_top = answer_n_top(c->e, c->config);
    for (int i = 0; i < t->n; i++) {
        TokenOdds odds = {0};
        if (n_top >= 0) odds = (TokenOdds){t->logprobs[i], t->top + (size_t)i * (size_t)n_top};
        answer_add(a, t->tokens[i], n_top >= 0 ? &odds : NULL);
    }
    answer_end(a);
}

// Makes choices of the texts that the search found. A search that was cut before its first text has one empty choice;
// one that may have no token has them all.
static void take_texts(Choices *c) {
    const Request *r = &c->runs[0].request;
    const BeamText *texts;
    int n = beam_texts(c->search, &texts);
    bool no_token = r->max_new == 0;
    for (int i = 0; n == 0 && i < (no_token ? c->n_answers : 1); i++) {
        c->choices[c->n_choices++] = (Choice){.answer = &c->answers[i],
                                              .cut = r->constraint != NULL,
                                              .finish = r->finish,
                                              .run = &c->runs[0],
                                              .scored = no_token,
                                              .score = -INFINITY};
        answer_end(&c->answers[i]);
    }
    for (int i = 0; i < n && i < c->n_answers; i++) {
        read_text(c, &texts[i], &c->answers[i]);
        size_t n_cut = answer_n_cut(&c->answers[i]);
        bool whole = !r->constraint || constraint_complete(r->constraint, texts[i].tokens, texts[i].n, n_cut);
        c->choices[c->n_choices++] = (Choice){.answer = &c->answers[i],
                                              .cut = !whole,
                                              .finish = texts[i].finish,
                                              .n_tokens = texts[i].n,
                                              .run = &c->runs[0],
                                              .scored = true,
                                              .score = texts[i].score,
                                              .logprob = texts[i].sum};
    }
}

// ---- samples --------------------------------------------------------------------------------------------------------

// Makes choices of the samples. With --best-of, sorts them by score and keeps the best n_wanted.
static void take_samples(Choices *c) {
    bool rank = c->config->best_of > 0;
    for (int i = 0; i < c->n_runs; i++) {
        const Request *r = &c->runs[i].request;
        Choice one = {
            .answer = &c->answers[i], .finish = r->finish, .n_tokens = r->n_new, .run = &c->runs[i], .scored = rank};
        one.cut = c->runs[i].cut;
        one.logprob = c->answers[i].logprob;
        one.score = r->n_new ? one.logprob / r->n_new : -INFINITY;
        int at = c->n_choices++;
        for (; rank && at > 0 && one.score > c->choices[at - 1].score; at--) c->choices[at] = c->choices[at - 1];
        c->choices[at] = one;
    }
    c->first_run = (int)(c->choices[0].answer - c->answers);
    c->n_choices = int_min(c->n_choices, c->n_wanted);
}

// Says that a search ended because the cache had no block for its beams: the context was not full yet.
static void note_memory(const Choices *c) {
    const Request *r = &c->runs[0].request;
    bool memory = r->finish == FINISH_CONTEXT && r->n_prompt + r->n_new <= c->e->kv.max_slots;
    if (!memory) return;
    note_print(c->config->quiet,
               "beams: the KV cache is full, so a search of %d beams ends after %d tokens; fewer beams, or a larger "
               "--kv-mem, give more",
               c->config->beams, r->n_new);
}

// ---- from the prompt to the choices ---------------------------------------------------------------------------------

static void begin_answers(Choices *c, const ChoicesSetup *setup) {
    c->answers = mem_alloc((size_t)c->n_answers * sizeof *c->answers);
    for (int i = 0; i < c->n_answers; i++) answer_begin(&c->answers[i], setup->e, &setup->answer);
    Str template = chat_template_source(setup->answer.template, tools_given(&c->config->tools));
    if (!c->config->special) c->think = think_begin(template, setup->answer.prompt);
}

static void begin_runs(Choices *c, const ChoicesSetup *setup) {
    c->runs = mem_alloc((size_t)c->n_runs * sizeof *c->runs);
    for (int i = 0; i < c->n_runs; i++) {
        Request *r = &c->runs[i].request;
        r->seq = &c->runs[i].seq;
        r->sampling = setup->sampling;
        r->sequence_key = (uint64_t)i;
        answer_ask(&c->answers[i], r);
        if (i > 0) c->runs[i - 1].request.next = r;
    }
    Request *first = &c->runs[0].request;
    first->branches = first->next;
    first->policy = setup->policy;
    first->time.start = setup->came;
}

// Constrains all runs to the form of the configuration.
static Status constrain(Choices *c, const ChoicesSetup *setup) {
    Status st = OK;
    for (int i = 0; i < c->n_runs && !st.code; i++) st = form_constrain(c->e, &setup->answer, &c->runs[i].request);
    return st;
}

Status choices_begin(Choices *c, const ChoicesSetup *setup, Sequence *prompt) {
    const AnswerConfig *config = setup->answer.config;
    *c = (Choices){.e = setup->e, .config = config, .fresh = setup->answer.fresh, .n_wanted = setup->n};
    bool search = config->beams > 0;
    if (search) TRY(check_width(setup, prompt->n_tokens));
    c->n_runs = search ? 1 : int_max(setup->n, config->best_of);
    c->n_answers = search ? setup->n : c->n_runs;
    begin_answers(c, setup);
    begin_runs(c, setup);
    if (search) begin_search(c, setup->policy);
    Status st = constrain(c, setup);
    if (st.code) {
        choices_free(c);
        return st;
    }
    c->runs[0].seq = *prompt;
    *prompt = (Sequence){0};
    c->choices = mem_alloc((size_t)c->n_answers * sizeof *c->choices);
    scheduler_add(c->e->sched, &c->runs[0].request);
    return OK;
}

bool choices_begun(const Choices *c) { return c->runs && c->runs[0].request.time.begun != 0; }

void choices_cancel(Choices *c) {
    for (int i = 0; c->runs && i < c->n_runs; i++) scheduler_cancel(c->e->sched, &c->runs[i].request);
}

bool choices_was_cut(const Choices *c) {
    for (int i = 0; i < c->n_runs; i++)
        if (c->runs[i].request.finish == FINISH_INTERRUPT) return true;
    return false;
}

// If a candidate was interrupted, the best one may be missing: all scored choices count as interrupted.
static void mark_cut(Choices *c) {
    bool cut = choices_was_cut(c);
    for (int i = 0; cut && i < c->n_choices; i++)
        if (c->choices[i].scored) c->choices[i].finish = FINISH_INTERRUPT;
}

bool choices_collect(Choices *c) {
    bool all = true;
    for (int i = 0; i < c->n_runs; i++) {
        ChoiceRun *run = &c->runs[i];
        if (run->request.finish == RUNNING) all = false;
        else if (!run->ended) {
            engine_keep(c->e, &run->seq);
            kvcache_release(&c->e->kv, &run->seq);
            if (c->search) take_texts(c); // before form_settle advances the constraint over the sequence's tokens
            else answer_end(&c->answers[i]);
            form_settle(&run->request, answer_n_cut(&c->answers[i]));
            run->cut = form_complete(&run->request).code == QUILL_CUT;
            run->ended = true;
        }
    }
    if (!all) return false;
    if (c->search) note_memory(c);
    else take_samples(c);
    mark_cut(c);
    return true;
}

int choices_tokens(const Choices *c) {
    int n = 0;
    for (int i = 0; i < c->n_runs && !c->search; i++) n += c->runs[i].request.n_new;
    for (int i = 0; i < c->n_choices && c->search; i++) n += c->choices[i].n_tokens;
    return n;
}

Request choices_whole(const Choices *c) {
    Request all = c->runs[c->first_run].request;
    const Request *first = &c->runs[0].request, *last = first;
    all.drafts = (DraftCounts){0};
    all.time = first->time;
    all.time.decode_flops = all.time.decode_bytes = 0;
    for (int i = 0; i < c->n_runs; i++) {
        const Request *r = &c->runs[i].request;
        if (r->time.last > last->time.last) last = r;
        all.time.decode_flops += r->time.decode_flops;
        all.time.decode_bytes += r->time.decode_bytes;
        draft_counts_add(&all.drafts, &r->drafts);
    }
    all.n_reused = first->n_reused; // the other samples reuse the K and V of the first
    all.n_new = last->n_new;
    all.time.last = last->time.last;
    all.time.gaps = last->time.gaps;
    all.time.n_gaps = last->time.n_gaps;
    return all;
}

Status choices_broken(const Choices *c) {
    for (int i = 0; i < c->n_runs; i++)
        if (c->runs[i].request.finish == FINISH_BROKEN && !c->runs[i].cut)
            return answer_broken(c->e, &c->runs[i].request);
    return OK;
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

void choices_put(json_t *object, const Choice *choice) {
    jsonio_put(object, "text", jsonio_text(answer_text(choice->answer)));
    answer_put_rest(choice->answer, object);
    jsonio_put(object, "finish_reason", json_string(answer_finish_name(choice->answer, choice->finish, choice->cut)));
    if (choice->run->request.constraint) jsonio_put(object, "complete", json_boolean(!choice->cut));
    if (!choice->scored) return;
    jsonio_put(object, "score", jsonio_number(choice->score, 6));
    jsonio_put(object, "logprob", jsonio_number(choice->logprob, 6));
}

json_t *choices_json(const Choices *c) {
    json_t *list = json_array();
    for (int i = 0; i < c->n_choices; i++) {
        json_t *one = json_object();
        jsonio_put(one, "index", json_integer(i));
        choices_put(one, &c->choices[i]);
        jsonio_put(one, "completion_tokens", json_integer(c->choices[i].n_tokens));
        jsonio_append(list, one);
    }
    return list;
}

void choices_free(Choices *c) {
    for (int i = 0; c->runs && i < c->n_runs; i++) {
        form_drop(c->e, &c->runs[i].request);
        sequence_end(&c->e->kv, &c->runs[i].seq);
        timeline_free(&c->runs[i].request.time);
    }
    for (int i = 0; c->answers && i < c->n_answers; i++) answer_free(&c->answers[i]);
    beam_free(c->search);
    free(c->runs);
    free(c->answers);
    free(c->choices);
    *c = (Choices){0};
}
