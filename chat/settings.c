// chat/settings.c: see chat/settings.h.
#include "chat/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer/option_files.h"
#include "answer/transcript.h"
#include "base/control.h"
#include "base/jsonio.h"
#include "cli/values.h"

static void keep(Settings *s, char *text) {
    s->texts = mem_resize(s->texts, (size_t)(s->n_texts + 1) * sizeof *s->texts);
    s->texts[s->n_texts++] = text;
}

static Status set_and_read(Settings *s, const char *name, const char *value) {
    const Option *row;
    char *text = mem_copy(value, strlen(value));
    keep(s, text);
    TRY(cli_chat_option(name, value, &row));
    if (row->kind == TEXT_FILE && strcmp(value, "-") == 0)
        return status_error(
            QUILL_USAGE, "%s: a file expected, found -, but stdin has the lines of the chat; ./- names a file", name);
    TRY(cli_chat_set(s->config, name, text));
    TRY(option_files_next(s->config, &text));
    if (text) keep(s, text);
    return OK;
}

Status settings_set(Settings *s, const char *name, const char *value) {
    AnswerForm form = s->config->form;
    AnswerTools tools = s->config->tools;
    Status st = set_and_read(s, name, value);
    if (!st.code) return OK;
    s->config->form = form;
    s->config->tools = tools;
    return st;
}

static void show(const Option *row, const AnswerConfig *config) {
    char name[32];
    Buf value = {0};
    cli_long_name(row, name);
    cli_answer_value(row, config, &value);
    if (value.n) control_replace(value.data);
    bool other = row->fallback && strcmp(value.data, row->fallback) != 0, usual = cli_answer_usual(row, config);
    fprintf(stderr, "%-18s %s", name, value.data);
    if (other && usual) fprintf(stderr, " (from the model's file)\n");
    else if (other) fprintf(stderr, " (default %s)\n", row->fallback);
    else fprintf(stderr, "\n");
    buf_free(&value);
}

Status settings_show(const Settings *s, const char *name) {
    const Option *row;
    if (*name) {
        TRY(cli_chat_option(name, "", &row));
        show(row, s->config);
        return OK;
    }
    for (int i = 0; i < cli_n_options; i++)
        if (cli_chat_settable(&cli_options[i])) show(&cli_options[i], s->config);
    return OK;
}

// ---- in a saved conversation ----------------------------------------------------------------------------------------

static json_t *value_json(const Option *row, const AnswerConfig *config) {
    Buf text = {0};
    json_t *j = NULL;
    if (row->kind == STOPS) {
        j = json_array();
        for (int i = 0; i < config->n_stop; i++) jsonio_append(j, jsonio_text(str_of(config->stop[i])));
    } else if (row->kind == BIAS) {
        j = json_array();
        for (int i = 0; i < config->sampling.n_bias; i++) {
            text.n = 0;
            buf_printf(&text, "%d%+g", config->sampling.bias[i].id, (double)config->sampling.bias[i].bias);
            jsonio_append(j, jsonio_text(str_of(text.data)));
        }
    } else {
        cli_answer_value(row, config, &text);
        bool number = row->kind == INT || row->kind == REAL || row->kind == SEED;
        if (row->kind == FLAG) j = json_boolean(strcmp(text.data, "on") == 0);
        else if (number) j = json_loads(text.data, JSON_DECODE_ANY, NULL);
        if (!j) j = jsonio_text(str_of(text.data));
    }
    buf_free(&text);
    return j;
}

json_t *settings_json(const AnswerConfig *config) {
    json_t *all = json_object();
    char name[32];
    for (int i = 0; i < cli_n_options; i++) {
        const Option *row = &cli_options[i];
        bool chosen = cli_settable(row) && (row->group != G_SAMPLING || !cli_answer_usual(row, config));
        if (!chosen) continue; // other sampling follows the file of the model that loads the conversation
        if (row->group == G_FORM && !cli_answer_given(row, config)) continue; // a form that is not set has no value
        cli_long_name(row, name);
        jsonio_put(all, name, value_json(row, config));
    }
    return all;
}

typedef struct {
    Settings *s;
    const char *file;
    bool given;
    bool begun;         // an entry was read
    const Option *list; // the list option being read: its first text has decided that the list is taken
} SettingsLoad;

// Resets what settings_json leaves out if it is not set.
static void reset_left_out(Settings *s) {
    char name[32];
    s->config->form = (AnswerForm){0};
    s->config->tools = (AnswerTools){0};
    for (int i = 0; i < cli_n_options; i++) {
        const Option *row = &cli_options[i];
        if (!cli_settable(row) || row->group != G_SAMPLING) continue;
        cli_long_name(row, name);
        (void)settings_set(s, name, "default"); // cannot fail
    }
}

static void take(void *arg, const char *name, const char *value) {
    SettingsLoad *l = arg;
    const Option *row = NULL;
    if (!l->begun && !l->given) reset_left_out(l->s);
    l->begun = true;
    Status st = cli_chat_option(name, value, &row);
    bool flagged = !st.code && l->given && row != l->list && !cli_answer_usual(row, l->s->config);
    if (!st.code && !flagged) {
        bool list = row->kind == STOPS || row->kind == BIAS;
        l->list = list ? row : NULL;
        st = settings_set(l->s, name, value);
    }
    if (st.code) fprintf(stderr, "quill: %.500s: settings: %s\n", l->file, st.message);
}

void settings_load(Settings *s, const char *file, Str json, bool given) {
    transcript_settings(json, take, &(SettingsLoad){.s = s, .file = file, .given = given});
}

void settings_free(Settings *s) {
    for (int i = 0; i < s->n_texts; i++) free(s->texts[i]);
    free(s->texts);
    *s = (Settings){0};
}
