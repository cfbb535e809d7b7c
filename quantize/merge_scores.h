// quantize/merge_scores.h: the scores of tokens that give the order of a list of merges: programs that merge by scores
// join the two neighbours whose joined token has the highest one.
#ifndef QUILL_MERGE_SCORES_H
#define QUILL_MERGE_SCORES_H

#include "base/base.h"

// types: those of tokenizer.ggml.token_type, or NULL; text of user-defined tokens is cut out before anything is merged.
// merges: "LEFT RIGHT", in their order. scores: (n_tokens). False: some text may be merged otherwise, since the merges
// of one token are apart in the list, or two tokens that are a third one when joined have no merge.
bool merge_scores(const Str *tokens, const int32_t *types, size_t n_tokens, const Str *merges, size_t n_merges,
                  float *scores);

#endif
