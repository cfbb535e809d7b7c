// answer/candidates.h: checks the options of answers that are chosen from several candidates (--beams, --best-of).
#ifndef QUILL_CANDIDATES_H
#define QUILL_CANDIDATES_H

#include "answer/answer_config.h"
#include "base/base.h"

bool candidates_wanted(const AnswerConfig *config); // --beams or --best-of
int candidates_at_once(const AnswerConfig *config); // number of sequences; 1 without candidates
// Checks options for n answers to a prompt with n_chunks chunks. QUILL_USAGE: options that contradict each other.
// flags: messages name options as command-line flags, otherwise as keys of a batch job.
Status candidates_check(const AnswerConfig *config, int n, int n_chunks, bool flags);

#endif
