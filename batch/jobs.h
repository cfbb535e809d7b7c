// batch/jobs.h: parses a line of a batch: a job, or the cancellation of earlier jobs.
//
//   {"id":"a","prompt":"Once","max_tokens":20,"temperature":0,"n":2,"stop":["\n"],"logprobs":3,"seed":7}
//   {"id":"b","messages":[{"role":"user","content":"Hello"}]}
//   {"id":"d","chunks":["a text","another"],"prompt":"Who paid?"}
//   {"cancel":"a"}
//   {"custom_id":"c","method":"POST","url":"/v1/chat/completions","body":{"messages":[...],"max_tokens":20}}
//
// Every option of length and sampling is a key with the flag's long name, range and default. An unknown or unsupported
// key is an error, unless its value is null, false or empty.
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

typedef enum { JOB_QUILL, JOB_CHAT, JOB_COMPLETION } JobForm; // quill's format, or OpenAI's for one of two urls

typedef struct {
    json_t *id; // a string or an integer, as in the line; NULL: none
    JobForm form;
    json_t *cancel;          // the id of the jobs that this line cancels; NULL: the line is a job
    Str prompt;              // the prompt if messages is NULL
    Message *messages;       // (n_messages)
    int n_messages;          //
    Str *chunks;             // (n_chunks) texts before the prompt or of the last message (blend/blender.h)
    int n_chunks;            //
    bool raw;                // the prompt is raw text: no template
    int n;                   // number of answers
    AnswerConfig config;     // the defaults, changed by the keys of the line; seed_given: the line has a seed
    json_t *root;            // owns prompt and chunks
    char *stop_texts;        // owns config.stop if the line has stop strings
    json_t *form_value;      // owns config.form if the line has a form, together with
    Buf form_text;           // the text of it
    Buf tools, tool_choice;  // own config.tools if the line has tools
    json_t *more;            // a list, owns messages[i].more
    LogitBias *bias;         // owns config.sampling.bias if the line has biases
    Buf roles, message_text; // own the texts of messages
} Job;

// Parses a line. The defaults must outlive the job. QUILL_USAGE: a wrong line; id and form are set if they could be
// read. Call job_free after an error too.
Status job_parse(Str line, const AnswerConfig *defaults, Job *out);
void job_forget_text(Job *j); // frees the prompt and the messages once they are encoded
void job_free(Job *j);

#endif
