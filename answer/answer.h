// answer/answer.h: an answer on its way from tokens to bytes, as text, JSON or JSON lines.
#ifndef QUILL_ANSWER_H
#define QUILL_ANSWER_H

#include "answer/answer_config.h"
#include "answer/call_format.h"
#include "answer/chat_template.h"
#include "answer/text_stream.h"
#include "answer/think.h"
#include "base/jsonio.h"
#include "engine.h"
#include "term/screen.h"

// An answer on its way out. Request.arg of a request whose emit is answer_emit.
//
// Thoughts (answer/think.h) go their own way: greyed on a terminal, between lines <think> and </think> where there is
// no colour, into "thinking" of JSON, and nowhere in a pipe, unless --think says otherwise. Stop strings match in the
// answer alone.
typedef struct {
    Engine *e;
    const AnswerConfig *config;
    ThinkStream think;
    TextStream stream, thoughts; // the answer's and the thoughts' bytes that may not be shown yet
    Buf text;                    // what the model has written, thoughts and markers too: the conversation's history
    Buf answer, thinking;        // the parts of it, to the end of what may be shown
    const CallFormat *calls;     // how calls of --tools are written; NULL: there are no tools
    Buf said;                    // with tools: what was said, with its marks (answer/call_format.h)
    json_t *found;               // the calls in it; NULL: none
    Buf besides;                 // with calls: the text besides
    json_t *tokens;              // --logprobs: an object a token
    json_t *line;                // --jsonl: the object of the last token; it is not written yet
    size_t n_in_lines;           // bytes of `answer` that its lines have, or
    size_t n_thought_in_lines;   // of `thinking`
    Screen screen;               // how text looks on stdout
    bool fresh;                  // nothing came before in this text: the first piece loses its space
    bool terminal;               // stdout is one
    bool show_thoughts, dim;     // on stdout; in grey
    bool in_thought;             // what was written last is one
    bool gone;                   // the reader closed the pipe: no error, but no reason to go on
    Status failed;               // stdout could not be written
    Buf kept;                    // --no-stream: what is written at the end, in one piece
    bool line_open;              // what was written last is no newline
    bool rates;                  // the log-probabilities of its tokens are added up
    double logprob;              // their sum
} Answer;

// The log-probabilities of a token: its own, and those that JSON has beside it.
typedef struct {
    float own;
    const TokenLogprob *top; // (answer_n_top)
} TokenOdds;

void answer_start(Answer *a, Engine *e, const AnswerConfig *config, bool fresh);
// For a model with a chat template: its source, and the prompt as it was rendered. Under --special all is the answer.
void answer_think(Answer *a, Str template, Str prompt);
void answer_echo(Answer *a, Str prompt); // shows it before the answer
Finish answer_emit(Request *r, int token, const float *logits);
// The same of a token whose log-probabilities are known; NULL without --logprobs.
Finish answer_add(Answer *a, int token, const TokenOdds *odds);
bool answer_is_blind(const AnswerConfig *config);              // Request.blind: no log-probabilities are wanted
int answer_n_top(const Engine *e, const AnswerConfig *config); // tokens beside each token; -1: no log-probabilities
// Whether the bytes of a token are shown: not those of control tokens, unless --special says so.
bool answer_hides(const Engine *e, const AnswerConfig *config, int token);
bool answer_is_end(const Engine *e, int token);        // FINISH_EOG
void answer_end(Answer *a);                            // nothing more comes: what was held back is shown
Str answer_text(const Answer *a);                      // without calls of tools, once it has ended
void answer_put_rest(const Answer *a, json_t *object); // sets "thinking", "tool_calls" and "tokens" where there are any
// "finish_reason": calls end an answer as "tool_calls".
const char *answer_finish_name(const Answer *a, Finish f);
// QUILL_MODEL: no logit was finite, and the answer is none.
Status answer_broken(const Engine *e, const Request *r);
// Writes what was held back and ends the line or the JSON object. The answer's Status: OK, QUILL_IO, QUILL_MODEL (no
// finite logit), or the exit code of the signal that stopped it.
Status answer_finish(Answer *a, const Request *r);
// The second part of answer_finish, for an answer that answer_end has ended. more: NULL, or keys that are added to its
// JSON object and replace those of the same name.
Status answer_write(Answer *a, const Request *r, const json_t *more);
void answer_free(Answer *a);
// A note on stderr that the context has ended the answer; nothing where there is no template and no --verbose.
void answer_note_full(const Engine *e, const AnswerConfig *config, const ChatTemplate *template);

// One answer to the prompt in r->seq, whose text is `given`, to stdout, with its reports. `fresh` as in answer_start;
// `echo` goes out before it. The request's sampling, max_new, emit and arg are set here.
Status answer_run(Engine *e, const AnswerConfig *config, const ChatTemplate *template, Str given, bool fresh, Str echo,
                  Request *r);

#endif
