// chat/conversation.c: see chat/conversation.h.
#define _GNU_SOURCE
#include "chat/conversation.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer/file_sampling.h"
#include "answer/form.h"
#include "answer/prepare.h"
#include "answer/prompt.h"
#include "answer/report.h"
#include "answer/think.h"
#include "answer/transcript.h"
#include "base/signals.h"
#include "kv/kvfile.h"

// ---- messages -------------------------------------------------------------------------------------------------------

static void add_message(Conversation *c, const char *role, Str text) {
    messages_insert(&c->messages, c->messages.n, role, text);
    c->n_said = 0;
}

enum { SAID = 2 }; // a mark of seq_text.trusted

static bool is(const Message *m, const char *role) { return strcmp(m->role, role) == 0; }
static int n_system(const Conversation *c) { return c->messages.n > 0 && is(&c->messages.at[0], "system"); }

static void keep_messages(Conversation *c, int n) {
    MessageList dropped = messages_split(&c->messages, n);
    messages_free(&dropped);
    if (c->n_left_out >= n - n_system(c)) c->n_left_out = 0; // all that remain were left out: now they fit again
    c->n_said = 0;
}

const Message *conversation_last(const Conversation *c, const char *role) {
    for (int i = c->messages.n - 1; i >= 0; i--)
        if (role ? is(&c->messages.at[i], role) : !is(&c->messages.at[i], "system")) return &c->messages.at[i];
    return NULL;
}

bool conversation_undo(Conversation *c) {
    const Message *last = conversation_last(c, "user");
    if (last) keep_messages(c, (int)(last - c->messages.at));
    return last != NULL;
}

void conversation_clear(Conversation *c) {
    keep_messages(c, n_system(c));
    c->n_left_out = 0;
    chunks_drop(&c->chunks);
}

Status conversation_system(Conversation *c, Str text) {
    if (!c->template)
        return status_error(QUILL_USAGE, "/system: raw text has no system message; write it into a message");
    if (n_system(c)) messages_remove(&c->messages, 0);
    if (text.data) messages_insert(&c->messages, 0, "system", text);
    return OK;
}

// ---- text to tokens, reusing the cached ones ------------------------------------------------------------------------

// The prompt of a turn, as text and as tokens.
typedef struct {
    Rendered text;
    BlenderPrompt encoded;
    int n_cuts;      // as in tokens_of
    bool has_chunks; // the last message begins with Conversation.chunks
} EncodedPrompt;

static void encoded_prompt_free(EncodedPrompt *prompt) {
    rendered_free(&prompt->text);
    blender_prompt_free(&prompt->encoded);
    *prompt = (EncodedPrompt){.has_chunks = prompt->has_chunks};
}

// Renders the prompt: the system message and the turns that are not left out.
static Status render(const Conversation *c, int n_left_out, bool answer, Rendered *out) {
    int system = n_system(c), n = 0;
    Message *given = mem_alloc((size_t)c->messages.n * sizeof *given + 1);
    if (system) given[n++] = c->messages.at[0];
    for (int i = system + n_left_out; i < c->messages.n; i++) given[n++] = c->messages.at[i];
    Status st = answer_render(c->config, c->template, given, n, answer, out);
    free(given);
    return st;
}

static void add_cut(Conversation *c, size_t byte, int token) {
    c->cuts = mem_resize(c->cuts, (size_t)(c->n_cuts + 1) * sizeof *c->cuts);
    c->cuts[c->n_cuts++] = (Cut){byte, token};
}

// The number of leading bytes of the text that equal `seq_text`, marks included. Bytes that the model generated (SAID)
// match trusted and untrusted text.
static size_t matching(const Conversation *c, const Rendered *text) {
    size_t n = 0, most = c->seq_text.text.n < text->text.n ? c->seq_text.text.n : text->text.n;
    while (n < most && c->seq_text.text.data[n] == text->text.data[n] &&
           (c->seq_text.trusted.data[n] == SAID || c->seq_text.trusted.data[n] == text->trusted.data[n]))
        n++;
    return n;
}

// The tokens of the text: the cached ones as far as they stand for it, since sampled tokens may differ from the
// encoding of their text; then the rest of the text, encoded. with: the chunks before the last message; NULL:
// none. *n_cuts: the number of cuts that remain valid. Free `out` after an error too.
static Status tokens_of(const Conversation *c, const Rendered *text, const ChatChunks *with, BlenderPrompt *out,
                        int *n_cuts) {
    size_t same = matching(c, text);
    *out = (BlenderPrompt){0};
    *n_cuts = c->n_cuts;
    while (*n_cuts > 0 && c->cuts[*n_cuts - 1].byte > same) --*n_cuts;
    Cut cut = *n_cuts ? c->cuts[*n_cuts - 1] : (Cut){0};
    if (*n_cuts == 0 && !with) return chat_template_encode(c->e->tok, text, true, &out->tokens, &out->n);
    size_t n_rest = text->text.n - cut.byte, bound = with ? 0 : tokenizer_bound(c->e->tok, n_rest);
    if (text->text.n >= INT_MAX / 2 || bound >= (size_t)(INT_MAX - cut.token))
        return status_error(QUILL_CONTEXT, "the text has %zu bytes, more than any context holds", text->text.n);
    out->n = cut.token;
    out->tokens = mem_alloc(((size_t)cut.token + bound) * sizeof *out->tokens + 1);
    if (cut.token) memcpy(out->tokens, c->seq.tokens, (size_t)cut.token * sizeof *out->tokens);
    if (with) {
        Buf joined = {0};
        blender_join(with->texts, with->n, &joined);
        Status st = blender_encode(with->blender, text, cut.byte, &joined, with->texts, with->n, out);
        buf_free(&joined);
        return st;
    }
    const char *rest = text->text.data ? text->text.data + cut.byte : "";
    const uint8_t *trusted = n_rest ? (const uint8_t *)text->trusted.data + cut.byte : NULL;
    out->n += (int)tokenizer_encode_after(c->e->tok, c->seq.tokens[cut.token - 1], rest, n_rest, trusted,
                                          out->tokens + cut.token, bound);
    return OK;
}

// Cuts the cache back to its common beginning with the prompt, and appends the other tokens to the sequence. `seq_text`
// then has the whole text of the prompt.
static void continue_from_cache(Conversation *c, const EncodedPrompt *prompt) {
    const Rendered *text = &prompt->text;
    const int *ids = prompt->encoded.tokens;
    int n = prompt->encoded.n, same = int_min(c->seq.n_cached, sequence_common(&c->seq, ids, n - 1));
    if (c->e->evict && evict_counts(c->e->evict) && same < c->seq.n_cached) same = 0;
    kvcache_truncate(&c->e->kv, &c->seq, same);
    sequence_push(&c->seq, ids + same, n - same);
    c->n_cuts = prompt->n_cuts;
    size_t kept = c->n_cuts ? c->cuts[c->n_cuts - 1].byte : 0;
    c->seq_text.text.n = c->seq_text.trusted.n = kept; // keeps the marks of these bytes
    buf_append(&c->seq_text.text, text->text.data + kept, text->text.n - kept);
    buf_append(&c->seq_text.trusted, text->trusted.data + kept, text->trusted.n - kept);
    add_cut(c, c->seq_text.text.n, n);
}

// Appends the text of the sequence's tokens from `first` on, which the model has generated, to `seq_text`.
static void add_generated_text(Conversation *c, int first) {
    for (int i = first; i < c->seq.n_tokens; i++) {
        Str piece = engine_piece(c->e, c->seq.tokens[i], false);
        size_t at = c->seq_text.text.n;
        rendered_add(&c->seq_text, piece.data, piece.n, true);
        if (piece.n) memset(c->seq_text.trusted.data + at, SAID, piece.n);
        add_cut(c, c->seq_text.text.n, i + 1);
    }
}

Status conversation_tokens(const Conversation *c, int *n) {
    Rendered text = {0};
    BlenderPrompt p = {0};
    int n_cuts;
    *n = 0;
    if (!conversation_last(c, NULL)) return OK; // templates may fail without a message
    Status st = render(c, c->n_left_out, false, &text);
    if (!st.code && text.text.n > 0) st = tokens_of(c, &text, NULL, &p, &n_cuts);
    if (!st.code) *n = p.n;
    blender_prompt_free(&p);
    rendered_free(&text);
    return st;
}

int conversation_last_tokens(const Conversation *c, int **ids) {
    const Message *last = conversation_last(c, NULL);
    *ids = NULL;
    if (!last) return 0;
    size_t n = (size_t)c->n_said, bound = n ? n : tokenizer_bound(c->e->tok, last->text.n);
    *ids = mem_alloc(bound * sizeof **ids + 1);
    if (n) memcpy(*ids, c->seq.tokens + c->seq.n_tokens - c->n_said, n * sizeof **ids);
    else n = tokenizer_encode(c->e->tok, last->text.data, last->text.n, NULL, *ids, bound);
    return n <= bound ? (int)n : 0;
}

bool conversation_last_said(const Conversation *c, Buf *out) {
    const Message *last = conversation_last(c, "assistant");
    if (!last) return false;
    Conversation asked = *c; // as it was before the answer
    asked.messages.n = (int)(last - c->messages.at);
    Rendered prompt = {0};
    (void)render(&asked, c->n_left_out, true, &prompt); // the answer may begin in a thought that the prompt opens
    ThinkStream think = {0};
    size_t before = out->n;
    Str template = chat_template_source(c->template, tools_given(&c->config->tools));
    if (!c->config->special) think = think_begin(template, str_of_buf(&prompt.text));
    think_add(&think, last->text.data, last->text.n, false);
    think_end(&think);
    for (Part p; think_next(&think, &p);)
        if (p.kind == PART_SAID) buf_append(out, p.bytes.data, p.bytes.n);
    if (out->n == before) buf_append(out, last->text.data, last->text.n);
    think_free(&think);
    rendered_free(&prompt);
    return true;
}

// ---- a context that is full -----------------------------------------------------------------------------------------

// Finds the turns that begin at message `from` or later, not counting the system message. Writes the indices of the
// first n and returns the number of all.
static int turns_from(const Conversation *c, int from, int *turns, int n) {
    int system = n_system(c), found = 0;
    for (int i = system + from; i < c->messages.n; i++) {
        if (!is(&c->messages.at[i], "user")) continue;
        if (found < n) turns[found] = i - system;
        found++;
    }
    return found;
}

static void say_left_out(const Conversation *c, int before, bool in_answer) {
    int turns = 0;
    for (int i = before; i < c->n_left_out; i++) turns += is(&c->messages.at[n_system(c) + i], "user");
    screen_note("%squill: the context of %d tokens is full; the oldest %d turn%s left out from here on",
                in_answer && isatty(STDOUT_FILENO) ? "\n" : "", c->e->shape.n_ctx, turns, turns == 1 ? " is" : "s are");
}

// Renders and encodes the prompt without the first n_left_out messages after the system message.
static Status encode_prompt(const Conversation *c, int n_left_out, EncodedPrompt *prompt) {
    encoded_prompt_free(prompt);
    TRY(render(c, n_left_out, true, &prompt->text));
    const ChatChunks *chunks = prompt->has_chunks ? &c->chunks : NULL;
    return tokens_of(c, &prompt->text, chunks, &prompt->encoded, &prompt->n_cuts);
}

// Leaves out the fewest of the oldest turns so that the prompt has at most `room` tokens, but never the last turn.
// *out: the number of messages left out, before and after. A binary search, since each try renders and encodes the
// rest.
static Status leave_out(const Conversation *c, int room, int *out, EncodedPrompt *prompt) {
    int *turns = mem_alloc((size_t)c->messages.n * sizeof *turns + 1);
    int low = 0, high = turns_from(c, *out + 1, turns, c->messages.n) - 1;
    Status st = OK;
    while (!st.code && low < high) {
        int middle = low + (high - low) / 2;
        st = encode_prompt(c, turns[middle], prompt);
        if (prompt->encoded.n <= room) high = middle;
        else low = middle + 1;
    }
    if (!st.code && high >= 0) st = encode_prompt(c, *out = turns[high], prompt);
    free(turns);
    return st;
}

// Renders and encodes the prompt of a turn, with room for `more` tokens after it. With --context-shift, leaves out the
// oldest turns if needed. QUILL_CONTEXT: it does not fit. With --evict it always fits.
static Status encode_prompt_that_fits(Conversation *c, int more, EncodedPrompt *prompt) {
    int n_ctx = c->e->shape.n_ctx, out = c->n_left_out;
    TRY(encode_prompt(c, out, prompt));
    if (engine_endless(c->e)) return OK;
    if (prompt->encoded.n + more > n_ctx && c->config->context_shift)
        TRY(leave_out(c, n_ctx / 4 * 3 - more, &out, prompt)); // a quarter stays free for the next turns
    int n = prompt->encoded.n + more;
    if (n > n_ctx) {
        char advice[CONTEXT_ADVICE];
        engine_context_advice(c->e, n, 0, advice);
        const char *room = c->messages.n <= n_system(c) + 1 ? ""
                           : c->config->context_shift       ? ", make room with /undo or /clear"
                                                            : ", make room with /undo or /clear, /set context-shift on";
        return status_error(QUILL_CONTEXT,
                            "the conversation would have %d tokens, the context %d; write a shorter message%s%s", n,
                            n_ctx, room, advice);
    }
    int before = c->n_left_out;
    c->n_left_out = out;
    if (out != before) say_left_out(c, before, more > 0);
    return OK;
}

// ---- a turn ---------------------------------------------------------------------------------------------------------

// The context became full during an answer that has n_said tokens so far. Leaves out the oldest turns and prepares the
// request to continue the answer. False: no turn can be left out, and the answer ends.
static bool shift_context(Conversation *c, Request *r, int n_said) {
    if (!c->config->context_shift || turns_from(c, c->n_left_out + 1, NULL, 0) == 0) return false;
    EncodedPrompt prompt = {0};
    r->policy = NULL; // the chunks have moved to other positions: all their tokens are computed
    Status st = encode_prompt_that_fits(c, n_said, &prompt);
    if (!st.code) {
        size_t size = (size_t)n_said * sizeof(int);
        int *said = mem_alloc(size + 1);
        memcpy(said, c->seq.tokens + c->seq.n_tokens - n_said, size);
        continue_from_cache(c, &prompt);
        sequence_push(&c->seq, said, n_said);
        add_generated_text(c, prompt.encoded.n);
        free(said);
        r->sequence_key = ++c->tries; // random numbers of these positions were used already
    }
    encoded_prompt_free(&prompt);
    return !st.code;
}

// Runs the request on the conversation's sequence to its end, over several contexts if needed. Its counts are then
// those of the whole answer.
static void run_over_contexts(Conversation *c, Request *r) {
    int n_said = 0, max_new = r->max_new, n_prompt = 0, n_reused = 0;
    do {
        Timeline before = r->time;
        bool again = n_said > 0;
        scheduler_add(c->e->sched, r);
        engine_run(c->e);
        if (!again) n_prompt = r->n_prompt, n_reused = r->n_reused;
        if (again) r->time.prefill_end = before.prefill_end;
        add_generated_text(c, r->n_prompt);
        form_settle(r, answer_n_cut(r->arg));
        n_said += r->n_new;
        r->max_new = max_new < 0 ? max_new : max_new - n_said;
    } while (r->finish == FINISH_CONTEXT && r->max_new != 0 && shift_context(c, r, n_said));
    r->n_prompt = n_prompt;
    r->n_reused = n_reused;
    r->n_new = n_said;
}

static void keep_stats(Conversation *c, const Request *r) {
    Timing t = report_timing(c->e, r);
    c->stats = mem_resize(c->stats, (size_t)(c->n_stats + 1) * sizeof *c->stats);
    c->stats[c->n_stats++] = (TurnStats){r->n_prompt, r->n_reused, r->n_new, t.ttft_ms, t.decode_tps, r->finish};
    if (c->config->verbose) report_turn(c->e, c->config, r);
}

void conversation_report(Conversation *c, const Status *st) {
    if (st->message[0]) screen_note("quill: %s", st->message);
    if (!c->failed) c->failed = st->code;
}

// Begins to print an answer. Returns its request on the conversation's sequence, whose tokens are those of the prompt.
static Request begin_answer(Conversation *c, const AnswerSetup *setup, Constraint *form, const Blend *blend,
                            Answer *a) {
    answer_begin(a, c->e, setup);
    Request r = {.seq = &c->seq,
                 .policy = blend ? blend_policy(blend) : NULL,
                 .constraint = form,
                 .sampling = c->sampling,
                 .sequence_key = c->tries};
    answer_ask(a, &r);
    return r;
}

// Prints the rest of an answer and saves its K and V (--kv-dir). An answer that was cut before its form was complete is
// reported, and does not end the chat.
static Status end_answer(Conversation *c, Answer *a, Request *r) {
    Status st = answer_finish(a, r);
    form_drop(c->e, r);
    if (st.code == QUILL_CUT) {
        conversation_report(c, &st);
        st = OK;
    }
    if (!st.code && signals_ends()) st.code = 128 + signals_caught(); // it arrived after the last step
    if (a->gone) st = (Status){.code = 128 + SIGPIPE};
    engine_keep(c->e, &c->seq);
    return st;
}

// Keeps the figures of an answer, and says on stderr what the user should know of it.
static void report_answer(Conversation *c, const Request *r, const Blend *blend) {
    keep_stats(c, r);
    if (blend && c->config->verbose) {
        BlendStats s = blend_stats(blend);
        blender_report(&s, c->chunks.n_computed);
    }
    if (r->finish == FINISH_CONTEXT)
        screen_note("quill: the context of %d tokens is full, so the answer ends here; /undo and /clear make room%s, a "
                    "larger %s gives more",
                    c->e->shape.n_ctx,
                    c->config->context_shift ? "" : ", /set context-shift on leaves the oldest turns out",
                    engine_context_option(c->e));
}

// Generates and prints an answer to the prompt. *said: there is an answer (`answer`); false: it was interrupted before
// its first token. *refused: the Status says why there can be none.
static Status run_answer(Conversation *c, const EncodedPrompt *prompt, Buf *answer, bool *said, bool *refused) {
    Request form = {0};
    AnswerSetup setup = {.config = c->config,
                         .template = c->template,
                         .prompt = {prompt->text.text.data, prompt->text.text.n},
                         .fresh = prompt->text.text.n == 0};
    Status st = form_constrain(c->e, &setup, &form);
    if ((*refused = st.code != 0)) return st;
    answer_dump(c->e, c->config, &prompt->text, prompt->encoded.tokens, prompt->encoded.n);
    continue_from_cache(c, prompt);
    Blend *blend = prompt->encoded.n_spans > 0 ? blender_request(c->chunks.blender, &prompt->encoded) : NULL;
    Answer a;
    Request r = begin_answer(c, &setup, form.constraint, blend, &a);
    run_over_contexts(c, &r);
    st = end_answer(c, &a, &r);
    report_answer(c, &r, blend);
    *said = r.n_new > 0 || r.finish != FINISH_INTERRUPT;
    Str text = answer_history(&a);
    buf_append(answer, text.data, text.n);
    blend_free(blend);
    answer_free(&a);
    timeline_free(&r.time);
    return st;
}

// Adds the message of a user, behind the texts of the chunks.
static void add_question(Conversation *c, Str text) {
    Buf whole = {0};
    if (c->chunks.n > 0) blender_join(c->chunks.texts, c->chunks.n, &whole);
    buf_append(&whole, text.data, text.n);
    add_message(c, "user", str_of_buf(&whole));
    buf_free(&whole);
}

// Keeps the first `keep` messages, adds the message `text` (NULL: none) and its answer, and drops the messages that
// came after. If there is no answer, the conversation stays as it was.
static Status turn(Conversation *c, int keep, const Str *text) {
    int left_out = c->n_left_out, n_said = c->n_said;
    MessageList aside = messages_split(&c->messages, keep);
    c->n_left_out = int_min(left_out, keep - n_system(c));
    if (text) add_question(c, *text);
    EncodedPrompt prompt = {.has_chunks = text && c->chunks.n > 0};
    Buf answer = {0};
    bool said = false;
    Status st = encode_prompt_that_fits(c, 0, &prompt);
    bool refused = st.code != 0;
    if (!refused) st = run_answer(c, &prompt, &answer, &said, &refused);
    if (said) {
        add_message(c, "assistant", str_of_buf(&answer));
        c->n_said = c->stats[c->n_stats - 1].said;
        if (prompt.has_chunks) chunks_drop(&c->chunks);
    } else {
        keep_messages(c, keep);
        messages_join(&c->messages, &aside);
        if (refused) c->n_left_out = left_out, c->n_said = n_said;
        else if (!c->refuses) screen_note("stopped before the answer; the message is not in the conversation");
    }
    messages_free(&aside);
    encoded_prompt_free(&prompt);
    buf_free(&answer);
    if (refused && !(c->refuses && st.code == QUILL_CONTEXT)) {
        conversation_report(c, &st);
        st = OK;
    }
    return st;
}

Status conversation_chunk(Conversation *c, const char *path) {
    int before = c->chunks.n, n_tokens = 0;
    TRY(chunks_add(&c->chunks, c->e, c->config, &c->seq, path, &n_tokens));
    int n = c->chunks.n - before;
    if (!c->config->quiet)
        screen_note("%s: %d chunk%s of %d tokens, before the next message", path, n, n == 1 ? "" : "s", n_tokens);
    return OK;
}

Status conversation_say(Conversation *c, Str text) { return turn(c, c->messages.n, &text); }

Status conversation_say_instead(Conversation *c, Str text) {
    const Message *last = conversation_last(c, "user");
    return turn(c, last ? (int)(last - c->messages.at) : c->messages.n, &text);
}

Status conversation_answer_again(Conversation *c) {
    const Message *last = conversation_last(c, "user");
    if (!last) return OK;
    c->tries++;
    return turn(c, (int)(last - c->messages.at) + 1, NULL);
}

// ---- as JSON --------------------------------------------------------------------------------------------------------

Status conversation_save(const Conversation *c, json_t *settings, const char *path) {
    return transcript_write(path, gguf_name(c->e->gguf), settings, &c->messages);
}

Status conversation_load(Conversation *c, const char *name, Str json) {
    MessageList messages;
    TRY(transcript_read(name, json, !c->template, &messages));
    messages_free(&c->messages);
    c->messages = messages;
    c->n_left_out = c->n_said = 0;
    return OK;
}

// ---- the cache as a file --------------------------------------------------------------------------------------------

// Cuts the cache back to the conversation: /undo, /clear and /load leave it to the next turn.
static void cut_to_conversation(Conversation *c) {
    Rendered text = {0};
    size_t same = render(c, c->n_left_out, false, &text).code ? 0 : matching(c, &text);
    rendered_free(&text);
    if (same >= c->seq_text.text.n) return;
    while (c->n_cuts > 0 && c->cuts[c->n_cuts - 1].byte > same) c->n_cuts--;
    Cut cut = c->n_cuts ? c->cuts[c->n_cuts - 1] : (Cut){0};
    kvcache_truncate(&c->e->kv, &c->seq, cut.token);
    c->seq_text.text.n = c->seq_text.trusted.n = cut.byte;
}

Status conversation_save_kv(Conversation *c, const char *path) {
    cut_to_conversation(c);
    return kvfile_save(path, c->e, &c->seq);
}

// Whether the bytes of a token are the next bytes of the text. A control token matches only trusted bytes.
static bool stands_for(const Rendered *text, size_t byte, Str piece, bool control) {
    if (piece.n > text->text.n - byte || (piece.n && memcmp(text->text.data + byte, piece.data, piece.n) != 0))
        return false;
    for (size_t i = 0; control && i < piece.n; i++)
        if (!text->trusted.data[byte + i]) return false;
    return true;
}

// Sets `seq_text` and the cuts for tokens that were loaded from a KV file, by comparing them with the conversation's
// text. Cuts are after control tokens, where the encoding of the text starts anew, and at the end. Elsewhere the
// sampled tokens may differ from the encoding of their text.
static void match_loaded_tokens(Conversation *c, const Rendered *text) {
    const Tokenizer *t = c->e->tok;
    const int *ids = c->seq.tokens, bos = tokenizer_bos(t);
    int n = 0; // leading tokens that are in the vocabulary; a model may have more ids
    while (n < c->seq.n_tokens && ids[n] < tokenizer_n(t)) n++;
    int end = n > 0 && tokenizer_is_eog(t, ids[n - 1]) ? n - 1 : n; // raw text has no token at the end of an answer
    bool silent = n > 0 && ids[0] == bos && !stands_for(text, 0, engine_piece(c->e, bos, true), true);
    for (int i = silent; i < n; i++) {
        bool control = tokenizer_is_control(t, ids[i]), fresh = i == silent || tokenizer_is_control(t, ids[i - 1]);
        size_t byte = c->seq_text.text.n;
        Str piece = engine_piece(c->e, ids[i], fresh); // without the space that some encodings begin with
        if (fresh && !stands_for(text, byte, piece, control)) piece = engine_piece(c->e, ids[i], false);
        if (!stands_for(text, byte, piece, control)) break;
        rendered_add(&c->seq_text, piece.data, piece.n, true);
        if (!control && piece.n) memset(c->seq_text.trusted.data + byte, SAID, piece.n);
        if (control || i + 1 >= end) add_cut(c, c->seq_text.text.n, i + 1);
    }
}

Status conversation_load_kv(Conversation *c, const char *path) {
    if (c->e->evict)
        return status_error(QUILL_USAGE, "--evict: a KV cache that this chat has computed expected, found a loaded "
                                         "one; load the conversation without --kv, or leave --evict out");
    sequence_end(&c->e->kv, &c->seq); // loading may need these blocks
    c->seq_text.text.n = c->seq_text.trusted.n = 0;
    c->n_cuts = c->n_said = 0;
    TRY(kvfile_load(path, c->e, &c->seq));
    Rendered text = {0};
    if (!render(c, c->n_left_out, false, &text).code) match_loaded_tokens(c, &text); // the next turn reports an error
    rendered_free(&text);
    return OK;
}

// ---- open, close ----------------------------------------------------------------------------------------------------

Status conversation_settings(Conversation *c) {
    SamplerParams sampling;
    LogitBias *bias;
    TRY(file_sampling_take(c->e->gguf, c->config)); // also after "/set temp default"
    TRY(answer_sampling(c->e, c->config, &sampling, &bias));
    free(c->bias);
    c->bias = bias;
    c->sampling = sampling;
    return OK;
}

Status conversation_check(Conversation *c) {
    if (c->e->evict && c->config->context_shift)
        return status_error(QUILL_USAGE, "context-shift: a chat without --evict expected; --evict frees single tokens, "
                                         "context-shift drops whole turns");
    Request r = {0};
    Tools tools;
    Status st = tools_read(&c->config->tools, &tools); // also a choice without tools
    tools_free(&tools);
    AnswerSetup setup = {.config = c->config, .template = c->template, .fresh = !c->template};
    if (!st.code) st = form_constrain(c->e, &setup, &r);
    form_drop(c->e, &r);
    return st;
}

Status conversation_open(Conversation *c, Engine *e, AnswerConfig *config) {
    *c = (Conversation){.e = e, .config = config};
    Buf system = {0};
    Status st = conversation_settings(c);
    if (!st.code) st = chat_template_choose(e->gguf, e->tok, config, &c->template);
    if (!st.code) st = conversation_check(c);
    if (!st.code) st = prompt_system(config, c->template, &system);
    if (!st.code && system.data) add_message(c, "system", str_of_buf(&system));
    buf_free(&system);
    return st;
}

void conversation_close(Conversation *c) {
    chunks_free(&c->chunks);
    sequence_end(&c->e->kv, &c->seq);
    messages_free(&c->messages);
    free(c->bias);
    free(c->cuts);
    free(c->stats);
    rendered_free(&c->seq_text);
    chat_template_free(c->template);
}
