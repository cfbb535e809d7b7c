// answer/choices.h: the answers to one prompt: one or several samples, the likeliest of many samples (--best-of), or
// the texts of a beam search (--beams).
//
//   Choices c;
//   TRY(choices_begin(&c, &setup, &prompt));      // adds its requests to the scheduler
//   while (!choices_collect(&c)) engine_step(...);
//   ... c.choices, best first ...
//   choices_free(&c);
//
// Samples share the prompt: the first request computes it, the others branch from it. A beam search is one request
// (policy/beam.h); its texts become answers when it has ended. --best-of scores a sample by the mean log-probability of
// its tokens under the unmodified logits of the model; of equal scores the earlier sample is better.
#ifndef QUILL_CHOICES_H
#define QUILL_CHOICES_H

#include "answer/answer.h"
#include "policy/beam.h"

typedef struct {
    Engine *e;
    AnswerSetup answer; // of each answer
    int n;              // answers wanted; a beam search may find fewer
    SamplerParams sampling;
    const Policy *policy; // of a prompt with chunks; it calls the engine's policy. NULL: the engine's
    double came;          // when the prompt arrived, clock_now(); 0: now
} ChoicesSetup;

typedef struct {
    Sequence seq; // of the request
    Request request;
    bool ended; // the request has finished and its KV blocks are released
    bool cut;   // the answer does not complete its form (answer/form.h)
} ChoiceRun;

typedef struct {
    Answer *answer;
    Finish finish;
    int n_tokens;          // number of tokens generated
    const ChoiceRun *run;  // the run that generated it
    bool scored;           // score and logprob are set: --beams, --best-of
    bool cut;              // the answer does not complete its form (answer/form.h)
    double score, logprob; // logprob: the sum of the log-probabilities of its tokens
} Choice;

typedef struct {
    Engine *e;
    const AnswerConfig *config;
    ChoiceRun *runs; // (n_runs); NULL: choices_begin was not called or failed
    Answer *answers; // (n_answers) one for each run, or for each text of a beam search
    int n_runs, n_answers, n_wanted;
    Choice *choices; // (n_choices) best first; complete when all runs have ended
    int n_choices;
    int first_run;      // index of the run of choices[0]
    BeamSearch *search; // NULL: samples
    bool fresh;
    ThinkStream think; // the state at the beginning of an answer
} Choices;

// Adds the requests for the answers. Takes over `prompt`; *c must not move until choices_free. QUILL_USAGE: more beams
// than sequences can run at once, or than the cache has blocks for; or form_constrain's errors. After an error `prompt`
// is still the caller's.
Status choices_begin(Choices *c, const ChoicesSetup *setup, Sequence *prompt);
bool choices_begun(const Choices *c); // the first request has started
void choices_cancel(Choices *c);
bool choices_was_cut(const Choices *c); // a signal or choices_cancel ended an answer
// Ends the answers whose requests have finished. True: all have finished, and c->choices is complete.
bool choices_collect(Choices *c);
int choices_tokens(const Choices *c); // tokens generated: by all samples, or in all choices of a beam search
// A copy of the request of the best choice for the report of a run (answer/report.h): its prompt is that of the first
// request, and its tokens, times and costs of decoding are those of the steps until the last sample ended. Its arrays
// belong to *c.
Request choices_whole(const Choices *c);
// QUILL_MODEL: a request found no finite logit.
Status choices_broken(const Choices *c);
// Sets the keys of a choice (text, score and others) in `object`; choices_json returns all choices as an array.
void choices_put(json_t *object, const Choice *choice);
json_t *choices_json(const Choices *c);
void choices_free(Choices *c); // its requests must have finished

#endif
