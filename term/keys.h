// term/keys.h: splits a terminal's input into keys: characters and escape sequences.
//
// Sequences are ESC and a character (Alt), CSI (ESC [ ...), SS3 (ESC O ...), and the terminal's own replies (OSC, DCS).
// Sources: ECMA-48; xterm's "Control Sequences" (invisible-island.net/xterm); fixterms, for keys in CSI u form.
#ifndef QUILL_KEYS_H
#define QUILL_KEYS_H

#include "base/base.h"

// Number of bytes of the first key in `input`; 0: the input is empty; -1: the key may have more bytes.
int keys_length(Str input);
// Appends the text that a key's sequence stands for: "\n" for Alt-Enter, Shift-Enter and Ctrl-Enter; for a key in CSI u
// form or in xterm's form (ESC [27;MODIFIERS;CODE~) the bytes that the same key sends in the classic form. False: the
// sequence stands for no text.
bool keys_text(Str sequence, Buf *text);

#endif
