// cli/values.h: reads the value of an option from text, and writes it as text.
#ifndef QUILL_CLI_VALUES_H
#define QUILL_CLI_VALUES_H

#include "cli/table.h"

// Stores `value` in the row's field; `flag` is what the user wrote, for messages. Texts are not copied. QUILL_USAGE:
// the value has another kind or is out of range; nothing has changed. An empty value turns off an option of
// cli_can_be_off.
Status cli_set_value(const Option *o, const char *flag, const char *value, Options *out);
bool cli_is_off(const Option *o, const Options *values); // a flag, or such an option, without a value
Status cli_set_default(const Option *o, const char *flag, Options *out);
// As cli_set_value; also accepts on and off for a flag, and "default", which restores the default.
Status cli_set_option(const Option *o, const char *name, const char *value, Options *out);
void cli_value(const Option *o, const Options *values, Buf *out); // as a user would write it; "none" for an empty list
bool cli_is_choice(const char *choices, const char *value);       // whether it is one of the words of "a|b|c"
Status cli_bad_value(const char *flag, const char *value, const char *expected);
int cli_largest(const IntList *list);     // 0: the list is empty, or has no number above 0
void cli_draw_seed(AnswerConfig *config); // sets a random seed from the system

// Inserts a piece of the prompt before piece number `at`; the row is that of -p or -f.
Status cli_add_part(const Option *o, const char *value, int at, Options *out);
void cli_keep(Options *o, char *text); // the options take ownership of the text

// ---- options set by a chat's /set and by jobs of a batch ------------------------------------------------------------

// Finds the option of /set by any of its names without dashes; `value` is for the message. QUILL_USAGE: unknown name;
// the message suggests a similar one.
Status cli_chat_option(const char *name, const char *value, const Option **out);
// Finds the option and sets it as cli_set_answer does. The caller keeps a stop text alive as long as the config.
Status cli_chat_set(AnswerConfig *out, const char *name, const char *value);
// The option that a key of a job sets, by any of its long names; NULL: unknown.
const Option *cli_job_option(const char *name);
// As cli_set_option, for an option from cli_chat_option or cli_job_option.
Status cli_set_answer(const Option *o, const char *name, const char *value, AnswerConfig *out);
void cli_answer_value(const Option *o, const AnswerConfig *values, Buf *out);
// Whether an option has a value: a text is not NULL, a flag is set. cli_answer_value shows a missing text as "none",
// which could also be a text.
bool cli_answer_given(const Option *o, const AnswerConfig *values);
// Whether an option has its default. A number of sampling has it if the user has not chosen it, whatever its value is:
// the model's file may recommend one, and the user may choose the default.
bool cli_answer_usual(const Option *o, const AnswerConfig *values);
// Whether the mode has the option and no argument gives it: its value is the file's, or the default. Such an option is
// ignored where it cannot apply, and one that an argument gives is refused.
bool cli_is_usual(const Options *o, const char *flag);

#endif
