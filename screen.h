// screen.h: what an answer looks like on a terminal: lines broken between words, Markdown shown, control characters
// harmless. Off a terminal bytes stay as they are.
//
//   Screen s = screen_open(STDOUT_FILENO, "auto", "auto");
//   screen_text(&s, text, &out); ...   screen_end(&s, &out); ...write out...   screen_free(&s);
#ifndef QUILL_SCREEN_H
#define QUILL_SCREEN_H

#include "markdown.h"

typedef struct {
    int fd;        // the terminal; -1: none
    bool markdown; // is shown; to be changed only before a text or after screen_end
    Markdown md;
    Wrap wrap;
    Buf clean; // a text without control characters
} Screen;

// markdown: on, off, or auto, which is on with colour (output_color). TERM=dumb has neither it nor lines of ours.
Screen screen_open(int fd, const char *markdown, const char *color);
Screen screen_none(void);
void screen_text(Screen *s, Str text, Buf *out);
void screen_plain(Screen *s, Str text, Buf *out);            // whatever Markdown it has; ends what was held
void screen_mark(Screen *s, const char *sequence, Buf *out); // of ours: takes no room
void screen_end(Screen *s, Buf *out); // nothing more comes for now: appends what was held, ends styles
void screen_free(Screen *s);

// One line on stderr, broken between words where that is a terminal.
void screen_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
