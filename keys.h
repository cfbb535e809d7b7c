// keys.h: what a terminal sends for a key: a character, or an escape sequence that belongs together.
//
//   Sequences are ESC and a character (Alt), CSI (ESC [ ...), SS3 (ESC O ...), and the terminal's own replies (OSC,
//   DCS). ECMA-48, xterm's "Control Sequences", the CSI u form of keys: invisible-island.net/xterm, fixterms.
#ifndef QUILL_KEYS_H
#define QUILL_KEYS_H

#include "util.h"

// Bytes of the first key of `input`; 0: it is empty; -1: more bytes may belong to it.
int keys_length(Str input);
// A sequence that stands for typed text: Alt-Enter, Shift-Enter and Ctrl-Enter are "\n"; keys in CSI u form and in
// xterm's (ESC [27;MODIFIERS;CODE~) what the same key sends without it. Appends the text. False: it stands for none.
bool keys_text(Str sequence, Buf *text);

#endif
