// batch/jobs.h: one line of a batch: JSON that says what to answer, and how.
//
//   {"id":"a","prompt":"Once","max_tokens":20,"temperature":0,"n":2,"stop":["\n"],"logprobs":3,"seed":7}
//   {"id":"b","messages":[{"role":"user","content":"Hello"}]}
//   {"id":"d","chunks":["a text","another"],"prompt":"Who paid?"}
//   {"cancel":"a"}
//   {"custom_id":"c","method":"POST","url":"/v1/chat/completions","body":{"messages":[...],"max_tokens":20}}
//
// Every option of length and sampling is a key by its long names, with the flag's range and default. A key that asks
// for what quill does not have is an error, never passed over; null, false and empty ask for nothing.
#ifndef QUILL_JOBS_H
#define QUILL_JOBS_H

#include "answer/answer_config.h"
#include "answer/chat_template.h"
#include "base/jsonio.h"

enum {
    JOB_MOST_ANSWERS = 128, // n
    JOB_MOST_STOPS = 64,
    JOB_MOST_CHUNKS = 1024,
    JOB_LONGEST_STOP = 1024, // bytes
};

typedef enum { JOB_QUILL, JOB_CHAT, JOB_COMPLETION } JobForm; // a line of ours; OpenAI's, by its url

typedef struct {
    json_t *id; // a text or a whole number, as the line has it; NULL: none
    JobForm form;
    json_t *cancel;          // the id of the jobs that this line calls off; NULL: it is a job
    Str prompt;              // or:
    Message *messages;       // (n_messages); NULL: it is a prompt
    int n_messages;          //
    Str *chunks;             // (n_chunks) texts in front of the prompt or of the last message (blend/blender.h)
    int n_chunks;            //
    bool raw;                // the prompt's bare text, without a template
    int n;                   // answers
    AnswerConfig config;     // the run's, with what the line says in its place; seed_given: the line has a seed
    json_t *root;            // what prompt and messages point into
    char *stop_texts;        // what config.stop points into, where the line has its own
    json_t *form_value;      // what config.form points into, where the line has a form of its own
    Buf form_text;           //
    Buf tools, tool_choice;  // what config.tools points into, where the line has its own
    json_t *more;            // a list: what messages[i].more points to
    LogitBias *bias;         // config.sampling.bias, where the line has its own
    Buf roles, message_text; // what messages point into besides
} Job;

// QUILL_USAGE: what is wrong with the line; id and form are set then too, as far as they can be read. job_free is due
// in any case. The defaults must outlive the job.
Status job_parse(Str line, const AnswerConfig *defaults, Job *out);
void job_forget_text(Job *j); // prompt and messages, once they are tokens
void job_free(Job *j);

#endif
