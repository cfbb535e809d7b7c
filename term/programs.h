// term/programs.h: other programs that a chat runs: the editor, the clipboard.
#ifndef QUILL_PROGRAMS_H
#define QUILL_PROGRAMS_H

#include "base/base.h"

// Lets $VISUAL, $EDITOR or vi change the text. QUILL_IO: no file to edit; QUILL_USAGE: no terminal, or the
// editor failed; the text is as it was.
Status programs_edit(Buf *text);
// Gives the text to wl-copy or xclip where there is a desktop, else to the terminal itself (OSC 52), which works over
// ssh too. *how names what took it. QUILL_IO: nothing did.
Status programs_copy(Str text, const char **how);

#endif
