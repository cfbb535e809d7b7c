// batch/batch_line.c: see batch/batch_line.h.
#include "batch/batch_line.h"

#include <stdlib.h>

#include "answer/file_sampling.h"
#include "answer/form.h"
#include "answer/prepare.h"
#include "base/rng.h"

// ---- a line becomes requests ----------------------------------------------------------------------------------------

// Encodes a prompt with chunks and makes its policy. Adds requests for chunks whose K and V are not stored.
static Status encode_chunks(const BatchContext *context, BatchLine *line, const ChatTemplate *template,
                            const Message *messages, int n, Rendered *text, Sequence *s) {
    Job *j = &line->job;
    BlenderPrompt p = {0};
    Status st = OK;
    if (!*context->blender)
        TRY(blender_open(context->e, context->config->blend, context->config->quiet, context->blender));
    for (int i = 0; i < j->n_chunks && !st.code; i++) st = blender_text("chunks", j->chunks[i], &j->chunks[i]);
    if (!st.code)
        st = blender_prompt(*context->blender, &j->config, template, messages, n, j->chunks, j->n_chunks, text, &p);
    if (!st.code) {
        sequence_push(s, p.tokens, p.n);
        blender_begin(*context->blender, &p);
        line->blend = blender_request(*context->blender, &p);
    }
    blender_prompt_free(&p);
    return st;
}

// Encodes the prompt of a job. *text: the rendered prompt.
static Status encode(const BatchContext *context, BatchLine *line, const ChatTemplate *template, Rendered *text,
                     Sequence *s) {
    const Job *j = &line->job;
    Message prompt[2];
    const Message *messages = j->messages;
    int n = j->n_messages;
    if (messages && !template)
        return status_error(QUILL_MODEL, "messages: a chat template expected, found none; send a prompt, or give one "
                                         "with --chat-template");
    if (!messages) {
        if (template && context->system.data) prompt[n++] = (Message){"system", context->system, NULL};
        prompt[n++] = (Message){"user", j->prompt, NULL};
        messages = prompt;
    }
    if (j->n_chunks > 0) return encode_chunks(context, line, template, messages, n, text, s);
    return answer_push(context->e, &j->config, template, messages, n, text, s);
}

static uint64_t seed_of(const BatchContext *context, const BatchLine *line) {
    if (line->job.config.seed_given) return line->job.config.sampling.seed;
    return rng_bits(context->config->sampling.seed, UINT64_MAX, (uint64_t)line->number) &
           0xffffffff; // 32 bits: short enough to type
}

static Status open_job(const BatchContext *context, BatchLine *line, double came) {
    Job *j = &line->job;
    const ChatTemplate *template = j->raw ? NULL : context->template;
    Rendered text = {0};
    Sequence prompt = {0};
    ChoicesSetup setup = {
        .e = context->e, .answer = {.config = &j->config, .template = template}, .n = j->n, .came = came};
    j->config.sampling.seed = seed_of(context, line);
    Status st = file_sampling_take(context->e->gguf, &j->config); // "best_of" of a line changes what is taken
    if (!st.code) st = answer_sampling(context->e, &j->config, &setup.sampling, &line->bias);
    if (!st.code) st = encode(context, line, template, &text, &prompt);
    setup.answer.prompt = str_of_buf(&text.text);
    setup.answer.fresh = !template && j->prompt.n == 0;
    setup.policy = line->blend ? blend_policy(line->blend) : NULL;
    if (!st.code) st = choices_begin(&line->choices, &setup, &prompt);
    sequence_free(&prompt);
    rendered_free(&text);
    job_forget_text(j);
    return st;
}

// ---- ends of a line -------------------------------------------------------------------------------------------------

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

bool batch_line_collect(BatchLine *line) {
    if (line->done || !choices_collect(&line->choices)) return false;
    end_line(line, choices_broken(&line->choices));
    return true;
}

void batch_line_free(BatchLine *line) {
    choices_free(&line->choices);
    blend_free(line->blend);
    free(line->bias);
    job_free(&line->job);
    buf_free(&line->reply);
    free(line);
}
