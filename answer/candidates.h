// answer/candidates.h: an answer that is chosen from several candidates, by --beams or --best-of: which options go with
// that.
#ifndef QUILL_CANDIDATES_H
#define QUILL_CANDIDATES_H

#include "answer/answer_config.h"
#include "base/base.h"

bool candidates_wanted(const AnswerConfig *config); // --beams or --best-of
int candidates_at_once(const AnswerConfig *config); // sequences; 1 without either
// QUILL_USAGE: options that contradict each other, where n answers are wanted of a prompt with n_chunks chunks. flags:
// messages name options as flags, otherwise as the keys of a job.
Status candidates_check(const AnswerConfig *config, int n, int n_chunks, bool flags);

#endif
