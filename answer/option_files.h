// answer/option_files.h: reads the files that options of a form and of tools name. An answer uses the text that was
// read when its option was set, so that all answers of a run have the same form, also if the file is a pipe or changes.
#ifndef QUILL_OPTION_FILES_H
#define QUILL_OPTION_FILES_H

#include "answer/answer_config.h"
#include "base/base.h"

// Reads the next file of `config` whose text has not been read. *text: the text, which `config` points into; the caller
// frees it after the last use of `config`. NULL: all files have been read. QUILL_IO: the file.
Status option_files_next(AnswerConfig *config, char **text);

#endif
