// answer/option_files.c: see answer/option_files.h.
#include "answer/option_files.h"

#include "base/file.h"

Status option_files_next(AnswerConfig *config, char **text) {
    OptionFile *all[] = {&config->form.schema_file, &config->form.grammar_file, &config->tools.file};
    *text = NULL;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (!all[i]->path || all[i]->text.data) continue;
        Buf read = {0};
        Status st = file_read(all[i]->path, &read);
        if (st.code) {
            buf_free(&read);
            return st;
        }
        buf_append(&read, "", 0); // an empty file has a text too
        all[i]->text = str_of_buf(&read);
        *text = read.data;
        return OK;
    }
    return OK;
}
