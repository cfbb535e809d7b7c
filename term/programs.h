// term/programs.h: runs other programs for a chat: the editor, the clipboard.
#ifndef QUILL_PROGRAMS_H
#define QUILL_PROGRAMS_H

#include "base/base.h"

// Edits the text with $VISUAL, $EDITOR or vi. QUILL_IO: the temporary file cannot be written or read; QUILL_USAGE: no
// terminal, or the editor failed. After an error the text is unchanged.
Status programs_edit(Buf *text);
// Copies the text to the clipboard: with wl-copy or xclip on a desktop, otherwise through the terminal itself (OSC 52),
// which also works over ssh. *how names the program or the terminal. QUILL_IO: none of them worked.
Status programs_copy(Str text, const char **how);

#endif
