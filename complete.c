// complete.c: see complete.h.
#include "complete.h"

#include <stdio.h>
#include <stdlib.h>

#include "answer/candidates.h"
#include "answer/choices.h"
#include "answer/file_sampling.h"
#include "answer/prepare.h"
#include "answer/prompt.h"
#include "answer/report.h"
#include "answer/saved.h"
#include "answer/transcript.h"
#include "base/note.h"
#include "base/paragraph.h"
#include "base/signals.h"
#include "blend/blender.h"
#include "blend/errors.h"

// ---- one of several candidates --------------------------------------------------------------------------------------

// Additional keys of the JSON object: those of the best choice, and a list of all choices.
static json_t *more_json(const Choices *c) {
    json_t *j = json_object();
    choices_put(j, &c->choices[0]);
    jsonio_put(j, "completion_tokens", json_integer(c->choices[0].n_tokens));
    jsonio_put(j, "choices", choices_json(c));
    return j;
}

static void report_candidates(const Engine *e, const Choices *c) {
    if (!c->search) {
        paragraph_item("best of", "%d samples, %d tokens, mean log-probability %.4f", c->n_runs, choices_tokens(c),
                       c->choices[0].score);
        return;
    }
    BeamStats t = beam_stats(c->search);
    paragraph_item("beams", "%d, %d steps, %d shared a parent, at most %d of %d blocks used, score %.4f",
                   c->config->beams, t.n_steps, t.n_forks, t.most_blocks, e->kv.pool->n_blocks, c->choices[0].score);
}

// Writes the best choice to stdout, and reports on it to stderr.
static Status write_best(Engine *e, const AnswerConfig *config, const ChatTemplate *template, const Choices *c) {
    Request r = choices_whole(c);
    json_t *more = more_json(c);
    Status st = answer_write(c->choices[0].answer, &r, more);
    json_decref(more);
    if (!st.code) st = choices_broken(c);
    bool cut = c->choices[0].finish == FINISH_INTERRUPT && signals_caught(); // r may have ended before the signal
    if (!st.code && cut) st = signals_status();
    if (r.finish == FINISH_CONTEXT) answer_note_full(e, config, template);
    if (config->verbose) {
        report_after(e, &r);
        report_candidates(e, c);
    }
    return st;
}

static Status answer_best(ChoicesSetup *setup, Sequence *prompt, Buf *history) {
    Engine *e = setup->e;
    const AnswerConfig *config = setup->answer.config;
    const ChatTemplate *template = setup->answer.template;
    AnswerConfig whole = *config;
    whole.no_stream = true;
    setup->answer.config = &whole;
    setup->n = candidates_at_once(config);
    LogitBias *bias;
    Choices c = {0};
    TRY(answer_sampling(e, config, &setup->sampling, &bias));
    if (config->verbose) report_before(e, config, chat_template_name(template));
    signals_catch();
    Status st = choices_begin(&c, setup, prompt);
    if (!st.code) {
        engine_run(e);
        choices_collect(&c);
        st = write_best(e, config, template, &c);
        Str said = answer_history(c.choices[0].answer);
        buf_append(history, said.data, said.n);
    }
    signals_release();
    choices_free(&c);
    free(bias);
    return st;
}

// ---- chunks ---------------------------------------------------------------------------------------------------------

// State of a prompt with chunks.
typedef struct {
    Blender *blender; // NULL: there are no chunks
    BlenderChunks chunks;
    BlenderPrompt prompt;
    Blend *blend;
    int n_computed; // chunks whose K and V were computed because no file had them
} ChunkedPrompt;

// Encodes the prompt, loads or computes the K and V of its chunks, and gives the request the policy that uses them.
static Status prepare_chunks(Engine *e, const AnswerConfig *config, const SavedTalk *talk, const ChatTemplate *template,
                             Rendered *text, ChunkedPrompt *c, Request *r) {
    TRY(blender_read(config, &c->chunks));
    TRY(blender_open(e, config->blend, config->quiet, &c->blender));
    r->time.start = clock_now();
    TRY(blender_prompt(c->blender, config, template, talk->messages.at, talk->messages.n, c->chunks.texts, c->chunks.n,
                       text, &c->prompt));
    if (blender_uses_kept(c->blender)) c->n_computed = blender_compute(c->blender, &c->prompt);
    sequence_push(r->seq, c->prompt.tokens, c->prompt.n);
    c->blend = blender_request(c->blender, &c->prompt);
    r->policy = blend_policy(c->blend);
    return OK;
}

static Status prepare(Engine *e, const AnswerConfig *config, const SavedTalk *talk, const ChatTemplate *template,
                      Rendered *text, ChunkedPrompt *c, Request *r) {
    if (config->n_chunks > 0) return prepare_chunks(e, config, talk, template, text, c, r);
    return answer_push(e, config, template, talk->messages.at, talk->messages.n, text, r->seq);
}

static void end_chunks(const AnswerConfig *config, ChunkedPrompt *c) {
    if (c->blend && config->verbose) {
        BlendStats s = blend_stats(c->blend);
        blender_report(&s, c->n_computed);
    }
    blend_free(c->blend);
    blender_prompt_free(&c->prompt);
    blender_chunks_free(&c->chunks);
    blender_close(c->blender);
}

// --blend-error
static Status report_errors(Engine *e, const ChunkedPrompt *c, Sequence *seq) {
    int n = kv_n_layers(e->kv.pool);
    double *errors = mem_alloc((size_t)n * sizeof *errors);
    Status st = blend_errors(e, &c->prompt, seq, errors);
    Buf line = {0};
    for (int i = 0; i < n; i++) buf_printf(&line, "%s%.3g", i ? " " : "", errors[i]);
    if (!st.code) paragraph_item("KV error", "%s", line.data);
    buf_free(&line);
    free(errors);
    return st;
}

// ---- one answer -----------------------------------------------------------------------------------------------------

// Saves the prompt and what was said of the answer, as a chat does: also if it was cut or interrupted.
static Status save(const Engine *e, const AnswerConfig *config, const ChunkedPrompt *chunked, SavedTalk *talk,
                   Str history) {
    if (chunked->chunks.n > 0) { // the text of the chunks becomes part of the message
        MessageList *list = &talk->messages;
        const Message *prompt = &list->at[list->n - 1];
        Buf whole = {0};
        blender_join(chunked->chunks.texts, chunked->chunks.n, &whole);
        buf_append(&whole, prompt->text.data, prompt->text.n);
        messages_remove(list, list->n - 1);
        messages_insert(list, list->n, "user", str_of_buf(&whole));
        buf_free(&whole);
    }
    return saved_answer(config, gguf_name(e->gguf), talk, history);
}

static Status answer(Engine *e, const AnswerConfig *config, Str prompt) {
    Sequence seq = {0};
    Request r = {.seq = &seq};
    ChunkedPrompt chunked = {0};
    ChatTemplate *template = NULL;
    Rendered text = {0};
    SavedTalk talk = {0};
    Buf history = {0};
    Status st = chat_template_choose(e->gguf, e->tok, config, &template);
    if (!st.code) st = answer_messages(e, config, template, prompt, &talk);
    if (!st.code) st = prepare(e, config, &talk, template, &text, &chunked, &r);
    AnswerSetup setup = {.config = config,
                         .template = template,
                         .prompt = str_of_buf(&text.text),
                         .echo = config->echo ? prompt : (Str){0},
                         .fresh = !template && prompt.n == 0};
    if (!st.code && candidates_wanted(config)) {
        ChoicesSetup choices = {.e = e, .answer = setup, .policy = r.policy, .came = r.time.start};
        st = answer_best(&choices, &seq, &history);
    } else if (!st.code) st = answer_run(e, &setup, &r, &history);
    if (!st.code && config->blend_error && chunked.blender) st = report_errors(e, &chunked, &seq);
    bool said = history.n > 0 && (st.code == QUILL_OK || st.code == QUILL_CUT || st.code >= 128);
    if (said && (config->autosave || config->continue_last)) {
        Status saved = save(e, config, &chunked, &talk, str_of_buf(&history));
        if (!st.code) st = saved;
        else if (saved.code) note_print(false, "%s; the conversation is not saved", saved.message);
    }
    buf_free(&history);
    saved_talk_free(&talk);
    end_chunks(config, &chunked);
    sequence_end(&e->kv, &seq);
    timeline_free(&r.time);
    rendered_free(&text);
    chat_template_free(template);
    return st;
}

Status complete_run(const EngineConfig *engine, const AnswerConfig *config, Str prompt) {
    Engine e;
    EngineNeeds needs = {.need_tokenizer = true, .whole = config->n_chunks > 0};
    if (candidates_wanted(config)) {
        needs.n_seqs = candidates_at_once(config);
        needs.pooled = true; // candidates share their common blocks
    }
    TRY(engine_open(&e, engine, needs));
    Status st = OK;
    if (engine->dry_run) report_budget(&e);
    else {
        AnswerConfig here = *config;
        st = file_sampling_take(e.gguf, &here);
        if (!st.code) st = answer(&e, &here, prompt);
    }
    engine_close(&e);
    return st;
}
