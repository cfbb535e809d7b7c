// answer/file_sampling.h: sampling that the model's file recommends (keys general.sampling.*, which the directory's
// generation_config.json gives too).
#ifndef QUILL_FILE_SAMPLING_H
#define QUILL_FILE_SAMPLING_H

#include "answer/answer_config.h"
#include "files/gguf.h"

// Sets the numbers of config->sampling that the user has not chosen: to the file's values, the others to the defaults
// of sampler.h. A temperature of 0 is not taken for best_of. QUILL_MODEL: a value is wrong that the user has not
// replaced; the message names the option that does.
Status file_sampling_take(const Gguf *g, AnswerConfig *config);
bool file_sampling_knows(const char *option); // whether a file may recommend a value for the option of this long name
// Appends the names of the options whose values are the file's, with commas.
void file_sampling_names(const Gguf *g, const AnswerConfig *config, Buf *out);

#endif
