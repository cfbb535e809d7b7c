// complete.h: `quill PROMPT...`: one answer to one prompt.
#ifndef QUILL_COMPLETE_H
#define QUILL_COMPLETE_H

#include "answer/answer_config.h"
#include "engine_config.h"
#include "base/base.h"

// Answers on stdout and returns. Exit codes 130 and 143 come back with an empty message: nothing to say.
Status complete_run(const EngineConfig *engine, const AnswerConfig *config, Str prompt);

#endif
