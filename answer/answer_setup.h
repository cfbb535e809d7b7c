// answer/answer_setup.h: what an answer begins with. The answer, its form and several candidates begin with the same.
#ifndef QUILL_ANSWER_SETUP_H
#define QUILL_ANSWER_SETUP_H

#include "answer/answer_config.h"
#include "answer/chat_template.h"

typedef struct {
    const AnswerConfig *config;   // must outlive the answer; the other fields are read only at its beginning
    const ChatTemplate *template; // NULL: raw text
    Str prompt;                   // the rendered text
    Str echo;                     // text to print in front of the answer
    bool fresh;                   // the text begins with the answer's first token, whose leading space is dropped
} AnswerSetup;

#endif
