// complete.h: `quill PROMPT...`: one answer to one prompt.
#ifndef QUILL_COMPLETE_H
#define QUILL_COMPLETE_H

#include "answer/answer_config.h"
#include "engine_config.h"
#include "base/base.h"

// Writes the answer to stdout. After a signal the Status has the code 130 or 143 and no message.
Status complete_run(const EngineConfig *engine, const AnswerConfig *config, Str prompt);

#endif
