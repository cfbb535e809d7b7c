// answer/answer.h: turns the generated tokens of an answer into output: text, JSON or JSON lines on stdout.
#ifndef QUILL_ANSWER_H
#define QUILL_ANSWER_H

#include "answer/answer_setup.h"
#include "answer/call_format.h"
#include "answer/text_stream.h"
#include "answer/think.h"
#include "base/jsonio.h"
#include "engine.h"
#include "term/screen.h"

// The state of one answer. Request.arg of a request after answer_ask.
//
// Thoughts (answer/think.h) are printed grey on a terminal with colour, between lines <think> and </think> on one
// without, and as "thinking" in JSON. A pipe gets none. --think show and hide override this. Stop strings are searched
// in the answer, not in the thoughts.
typedef struct {
    Engine *e;
    const AnswerConfig *config;
    ThinkStream think;
    TextStream stream, thoughts; // the answer and the thoughts; they hold back bytes that may not be shown yet
    Buf text;                    // output so far, with thoughts and markers: the history of the conversation
    Buf answer, thinking;        // the answer and the thoughts of it, without bytes that are held back
    const CallFormat *calls;     // format of calls of --tools; NULL: there are no tools
    Buf said;                    // with tools: the output without thoughts, its marks kept (answer/call_format.h)
    json_t *found;               // the calls in `said`; NULL: none
    Buf besides;                 // with calls: the text outside the calls
    json_t *tokens;              // --logprobs: a list with one object for each token
    json_t *line;                // --jsonl: the object of the last token, not written yet
    size_t n_in_lines;           // --jsonl: bytes of `answer` that are already in a line
    size_t n_thought_in_lines;   // --jsonl: bytes of `thinking` that are already in a line
    Screen screen;               // formats text for stdout
    bool fresh;                  // as AnswerSetup.fresh, for the next token
    size_t n_echo;               // bytes of `text` that are the echo
    bool echo_open;              // a newline must separate the echoed message from the answer's first token
    bool show_thoughts, dim;     // print thoughts; print them in grey
    bool in_thought;             // the last text written was a thought
    bool gone;                   // the reader closed the pipe: ends the answer without an error
    Status failed;               // stdout could not be written
    Buf kept;                    // --no-stream: all output, written at the end
    bool line_open;              // the last byte written was not a newline
    bool rates;                  // sum up the log-probabilities of the tokens
    double logprob;              // that sum
} Answer;

// The log-probability of a token, and the likeliest tokens at its place.
typedef struct {
    float own;
    const TokenLogprob *top; // (answer_n_top)
} TokenOdds;

// Begins an answer, and prints setup->echo. The template and the prompt decide how thoughts and calls of tools are
// recognised; with --special, thoughts and markers count as part of the answer. e must outlive the answer. Free it with
// answer_free.
void answer_begin(Answer *a, Engine *e, const AnswerSetup *setup);
// Makes the request give its tokens to the answer, as many as the configuration says. Sets max_new, emit, blind and
// arg.
void answer_ask(Answer *a, Request *r);
// Adds a token as the request does. odds: its log-probabilities; NULL without --logprobs.
Finish answer_add(Answer *a, int token, const TokenOdds *odds);
int answer_n_top(const Engine *e, const AnswerConfig *config); // length of TokenOdds.top; -1: no log-probabilities
// True for control tokens and tokens that end the answer, except with --special: their bytes are not shown.
bool answer_hides(const Engine *e, const AnswerConfig *config, int token);
void answer_end(Answer *a);                            // no token follows: shows the bytes that were held back
size_t answer_n_cut(const Answer *a);                  // bytes that a stop string removed from the answer's end
Str answer_text(const Answer *a);                      // after answer_end without calls of tools
void answer_put_rest(const Answer *a, json_t *object); // sets "thinking", "tool_calls" and "tokens" if there are any
// The "finish_reason" of JSON: "tool_calls" if the answer ended with calls. cut: it ended before its form was complete;
// a stop string in a call does that.
const char *answer_finish_name(const Answer *a, Finish f, bool cut);
// QUILL_MODEL: no logit was finite, or options forbid all tokens, so there is no valid answer; or engine_fault's error.
Status answer_broken(const Engine *e, const Request *r);
// Calls answer_end, then answer_write without `more`.
Status answer_finish(Answer *a, const Request *r);
// Ends the line, or writes the JSON object. more: NULL, or keys that are added to the object and replace those of the
// same name. QUILL_IO: stdout; QUILL_MODEL: as answer_broken; QUILL_CUT: as form_complete, or --extract found nothing;
// after a signal, its exit code without a message.
Status answer_write(Answer *a, const Request *r, const json_t *more);
void answer_free(Answer *a);
// Notes on stderr that the full context ended the answer. Prints nothing for raw text without --verbose.
void answer_note_full(const Engine *e, const AnswerConfig *config, const ChatTemplate *template);

Str answer_history(const Answer *a); // the text with thoughts and markers: the answer as a conversation keeps it
// Runs the request, whose prompt is in r->seq; writes the answer to stdout and the reports of --verbose to stderr. Sets
// r->sampling, max_new, emit, blind and arg. history: receives its answer_history; may be NULL. Errors as
// answer_finish, and those of form_constrain (answer/form.h).
Status answer_run(Engine *e, const AnswerSetup *setup, Request *r, Buf *history);

#endif
