// term/keys.h: what a terminal sends for a key: a character, or an escape sequence that belongs together.
//
//   Sequences are ESC and a character (Alt), CSI (ESC [ ...), SS3 (ESC O ...), and the terminal's own replies (OSC,
//   DCS). ECMA-48, xterm's "Control Sequences", the CSI u form of keys: invisible-island.net/xterm, fixterms.
#ifndef QUILL_KEYS_H
#define QUILL_KEYS_H

#include "base/base.h"

// Number of bytes of the first key in `input`; 0: the input is empty; -1: the key may have more bytes.
int keys_length(Str input);
// Translates a sequence into the text that the key stands for and appends it: "\n" for Alt-Enter, Shift-Enter and
// Ctrl-Enter; for a key in CSI u form or in xterm's form (ESC [27;MODIFIERS;CODE~) what the same key sends without that
// form. False: the sequence stands for no text.
bool keys_text(Str sequence, Buf *text);

#endif
