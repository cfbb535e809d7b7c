// cli/completions.h: the completions of bash, zsh and fish, from the option table (cli/table.h).
//
// They contain the options that --help shows: rows without a help text are left out.
#ifndef QUILL_COMPLETIONS_H
#define QUILL_COMPLETIONS_H

// Prints those of "bash", "zsh" or "fish" to stdout. types: the types that quantize writes, "F32, F16, ...".
void cli_completions(const char *shell, const char *types);

#endif
