// cli/man.h: the man page, from the option table (cli/table.h), the texts of cli/help.h and the chat's commands.
//
// It contains the options that --help shows: rows without a help text are left out. Options that only one mode has are
// listed by name; the mode's --help explains them.
#ifndef QUILL_MAN_H
#define QUILL_MAN_H

// Prints the man page in roff to stdout. The chat's commands come from their own table: describe(i, shown) returns the
// help of command i and writes its form, as "/read FILE", into `shown`; NULL: there are no more.
typedef const char *(*CliCommands)(int i, char shown[64]);
void cli_man(CliCommands describe);

#endif
