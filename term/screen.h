// term/screen.h: an answer on a terminal: lines are broken between words, Markdown is shown, control characters are
// shown as text. Off a terminal the bytes are not changed.
//
//   Screen s = screen_open(STDOUT_FILENO, "auto", "auto");
//   screen_text(&s, text, &out); ...   screen_end(&s, &out); ...write out...   screen_free(&s);
#ifndef QUILL_SCREEN_H
#define QUILL_SCREEN_H

#include "term/markdown.h"

typedef struct {
    int fd;        // the terminal; -1: none
    bool markdown; // shows Markdown; change it only before any text or after screen_end
    Markdown md;
    Wrap wrap;
    Buf clean; // the last text, without control characters
} Screen;

// markdown: on, off or auto, which means on if there is colour (terminal_color). With TERM=dumb nothing is changed.
Screen screen_open(int fd, const char *markdown, const char *color);
Screen screen_none(void);
void screen_text(Screen *s, Str text, Buf *out);
void screen_plain(Screen *s, Str text, Buf *out);            // text that is not Markdown; ends the Markdown before it
void screen_mark(Screen *s, const char *sequence, Buf *out); // one of quill's own sequences, without width
void screen_end(Screen *s, Buf *out); // end of the text: appends what was held back, resets the style
void screen_free(Screen *s);

// Appends a text for fd in one piece: on a terminal, also with TERM=dumb, control characters are shown as text; lines
// are not broken.
void screen_whole(int fd, Str text, Buf *out);

// Prints a line to stderr; on a terminal it is broken between words.
void screen_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
