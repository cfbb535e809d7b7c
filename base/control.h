// base/control.h: control characters, which a terminal may execute.
#ifndef QUILL_CONTROL_H
#define QUILL_CONTROL_H

// The length in bytes of the control character at s: 1 for ASCII's, 2 for those of C1 (U+0080 to U+009F in UTF-8); 0:
// there is none. s is followed by a NUL.
int control_length(const char *s);
// Replaces the control characters of s by question marks. A file's name in a message may have some.
void control_replace(char *s);

#endif
