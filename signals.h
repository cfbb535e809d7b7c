// signals.h: SIGINT and SIGTERM as a flag that the loops look at between two steps.
//
// The one piece of global state: a handler has nobody to ask. A second signal of the same kind kills at once.
#ifndef QUILL_SIGNALS_H
#define QUILL_SIGNALS_H

void signals_catch(void);   // from here on they set the flag; clears it
int signals_caught(void);   // the signal, 0: none
void signals_release(void); // from here on they kill as usual; the flag stays

#endif
