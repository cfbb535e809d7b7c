// answer/choices.h: the answers to one prompt: one or several samples, the likeliest of many samples (--best-of), or
// the texts of a beam search (--beams).
//
//   Choices c;
//   TRY(choices_begin(&c, &setup, &prompt));      // its requests are with the scheduler
//   while (!choices_collect(&c)) engine_step(...);
//   ... c.choices, best first ...
//   choices_free(&c);
//
// Samples share the prompt: the first request computes it, the others branch off. A beam search is one request
// (policy/beam.h), whose texts become answers in the end. --best-of scores a sample by the mean log-probability of its
// tokens under the model's own logits, whatever the sampling options made of them; of equal ones the first is better.
#ifndef QUILL_CHOICES_H
#define QUILL_CHOICES_H

#include "answer/answer.h"
#include "policy/beam.h"

typedef struct {
    Engine *e;
    const AnswerConfig *config;   // must outlive the answers, which write nothing until choices_write
    const ChatTemplate *template; // NULL: raw text
    Str prompt;                   // as it was rendered
    Str echo;                     // what goes out before each answer
    bool fresh;                   // as in answer_start
    int n;                        // answers wanted; those of a search may be fewer
    SamplerParams sampling;
    const Policy *policy; // of the prompt (its chunks), over the engine's; NULL: the engine's
    double came;          // when the prompt came, clock_now(); 0: now
} ChoicesSetup;

typedef struct {
    Sequence seq; // the request's
    Request request;
    bool ended; // its blocks are given back
    bool cut;   // the answer has a form (answer/form.h), and is not complete
} ChoiceRun;

typedef struct {
    Answer *answer;
    Finish finish;
    int n_tokens;          // generated
    const ChoiceRun *run;  // that has generated it
    bool scored;           // of --beams and --best-of
    bool cut;              // it has a form (answer/form.h), and is not complete
    double score, logprob; // logprob: the sum of its tokens' log-probabilities
} Choice;

typedef struct {
    Engine *e;
    const AnswerConfig *config;
    ChoiceRun *runs; // (n_runs); NULL: nothing has begun
    Answer *answers; // (n_answers) of the runs, or of a search's texts
    int n_runs, n_answers, n_wanted;
    Choice *choices; // (n_choices), best first, when all runs have ended
    int n_choices;
    int first_run;      // that of the first choice
    BeamSearch *search; // NULL: samples
    bool fresh;
    ThinkStream think; // as an answer begins
} Choices;

// QUILL_USAGE: more beams than sequences can run at once, or what is wrong with the form of the answer (answer/form.h);
// `prompt` stays the caller's then. Otherwise it is taken over, and *c may not move from here on.
Status choices_begin(Choices *c, const ChoicesSetup *setup, Sequence *prompt);
bool choices_begun(const Choices *c); // a row of it was computed
void choices_cancel(Choices *c);
// Ends the answers whose requests have finished. True: all of them have now; c->choices is there.
bool choices_collect(Choices *c);
int choices_tokens(const Choices *c); // generated in all choices; with --best-of in all samples
// QUILL_MODEL: a request has found no finite logit.
Status choices_broken(const Choices *c);
// Text, score and the rest of a choice as JSON has them, into `object`; and all of them as an array of such objects.
void choices_put(json_t *object, const Choice *choice);
json_t *choices_json(const Choices *c);
void choices_free(Choices *c); // its requests must have finished

#endif
