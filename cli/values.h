// cli/values.h: the value of an option: read from text, and written as text.
#ifndef QUILL_CLI_VALUES_H
#define QUILL_CLI_VALUES_H

#include "cli/table.h"

// Puts `value` where the row says; `flag` is what the user wrote, for messages. Texts are not copied. QUILL_USAGE: a
// value of another kind or out of range; nothing has changed then.
Status cli_set_value(const Option *o, const char *flag, const char *value, Options *out);
Status cli_set_default(const Option *o, const char *flag, Options *out);
// As cli_set_value; besides, on and off for a flag without a value, and "default" goes back to the default.
Status cli_set_option(const Option *o, const char *name, const char *value, Options *out);
void cli_value(const Option *o, const Options *values, Buf *out); // as one would write it; "none" for an empty list
bool cli_is_choice(const char *choices, const char *value);       // one of the words of "a|b|c"
Status cli_bad_value(const char *flag, const char *value, const char *expected);
int cli_largest(const IntList *list);     // 0: the list is empty, or has nothing above 0
void cli_draw_seed(AnswerConfig *config); // from the system

// Puts a piece of the prompt before the at-th; the row is -p's or -f's.
Status cli_add_part(const Option *o, const char *value, int at, Options *out);
void cli_keep(Options *o, char *text); // owned by the options from here on

// ---- in the middle of a chat, and in a line of a batch --------------------------------------------------------------

// The option that /set sets, by any of its names without dashes; `value` is for the message. QUILL_USAGE: no such name,
// with a did-you-mean.
Status cli_chat_option(const char *name, const char *value, const Option **out);
// Sets it, as cli_set_answer. A stop text must live as long as the config.
Status cli_chat_set(AnswerConfig *out, const char *name, const char *value);
// The option that a field of a batch's line sets, by any of its long names; NULL: none of that name.
const Option *cli_job_option(const char *name);
// As cli_set_option, of an option that one of these two has returned.
Status cli_set_answer(const Option *o, const char *name, const char *value, AnswerConfig *out);
void cli_answer_value(const Option *o, const AnswerConfig *values, Buf *out);
// Whether a text is there, or a flag set: a text that is not is shown as "none", which may be a text too.
bool cli_answer_given(const Option *o, const AnswerConfig *values);

#endif
