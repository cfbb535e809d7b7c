// answer/option_files.c: see answer/option_files.h.
#include "answer/option_files.h"

#include "base/file.h"

Status option_files_next(AnswerConfig *config, char **text) {
    struct {
        const char *option;
        OptionFile *file;
    } all[] = {{"--json-schema-file", &config->form.schema_file},
               {"--grammar-file", &config->form.grammar_file},
               {"--tools", &config->tools.file}};
    *text = NULL;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        OptionFile *file = all[i].file;
        if (!file->path || file->text.data) continue;
        Buf read = {0};
        Status st = file_read_of(all[i].option, file->path, &read);
        if (st.code) {
            buf_free(&read);
            return st;
        }
        buf_append(&read, "", 0); // an empty file has a text too
        file->text = str_of_buf(&read);
        *text = read.data;
        return OK;
    }
    return OK;
}
