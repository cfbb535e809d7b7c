// answer/option_files.h: reads the files that options of a form and of tools name. A file is read once, when its option
// is set. All answers use that text, so the file may be a pipe, and may change during the run.
#ifndef QUILL_OPTION_FILES_H
#define QUILL_OPTION_FILES_H

#include "answer/answer_config.h"
#include "base/base.h"

// Reads the next file of `config` whose text has not been read. *text: the text, which `config` points into; the caller
// frees it after the last use of `config`. NULL: all files have been read. QUILL_IO: the file.
Status option_files_next(AnswerConfig *config, char **text);

#endif
