// complete.h: one answer: from a prompt to bytes on stdout, as text, JSON or JSON lines.
#ifndef QUILL_COMPLETE_H
#define QUILL_COMPLETE_H

#include <jansson.h>

#include "chat.h"
#include "engine.h"
#include "output.h"

// `quill PROMPT...`: answers and returns. Exit codes 130 and 143 come back with an empty message: nothing to say.
Status complete_run(const Options *o, Str prompt);

// ---- what a chat's turns share with it ------------------------------------------------------------------------------

// An answer on its way out. Request.arg of a request whose emit is answer_emit.
typedef struct {
    Engine *e;
    const Options *o;
    TextStream stream;
    Buf out;        // may be shown, not written yet
    Buf text;       // everything that was shown
    json_t *tokens; // --logprobs: an object a token
    bool fresh;     // nothing came before in this text: the first piece loses its space
    bool terminal;  // stdout is one
    bool gone;      // the reader closed the pipe: no error, but no reason to go on
    Status failed;  // stdout could not be written
} Answer;

void answer_start(Answer *a, Engine *e, const Options *o, bool fresh);
Finish answer_emit(Request *r, int token, const float *logits);
// Writes what was held back and ends the line or the JSON object. The answer's Status: OK, QUILL_IO, QUILL_MODEL (no
// finite logit), or the exit code of the signal that stopped it.
Status answer_finish(Answer *a, const Request *r);
void answer_free(Answer *a);

// The sampling options for this model: ids checked, --ignore-eos turned into biases. bias is the caller's to free.
Status answer_sampling(const Engine *e, const Options *o, SamplerParams *out, LogitBias **bias);
// QUILL_CONTEXT if n_prompt tokens do not fit, with the -c that does.
Status answer_fits(const Engine *e, const Options *o, int n_prompt);
void answer_dump(const Engine *e, const Options *o, const Rendered *text, const int *ids, int n); // --dump-..., stderr

#endif
