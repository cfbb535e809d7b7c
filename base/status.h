// base/status.h: the result of a call that can fail, and the exit codes of the process.
//
// There are three kinds of failure. Bad input: return a Status, which main prints as one line on stderr and returns as
// exit code. An expected shortage (no free KV block): return false and change nothing. A bug: assert.
#ifndef QUILL_STATUS_H
#define QUILL_STATUS_H

// The codes are the process's exit codes.
enum {
    QUILL_OK = 0,
    QUILL_INTERNAL = 1, // a bug, or a system call that failed
    QUILL_USAGE = 2,    // flags and arguments
    QUILL_MODEL = 3,    // model, tokenizer, template or device unusable
    QUILL_MEMORY = 4,   // out of memory
    QUILL_CONTEXT = 5,  // prompt longer than the context
    QUILL_IO = 6,       // reading or writing failed
    QUILL_CUT = 7,      // a constrained answer was cut before it was complete
};

typedef struct {
    int code;           // QUILL_OK or the exit code
    char message[1020]; // one line: what, where, expected, found, what to do; no newline at its end
} Status;

#define OK ((Status){0})
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        Status try_status_ = (call);                                                                                   \
        if (try_status_.code) return try_status_;                                                                      \
    } while (0)

// Formats the message. Control characters, which file names and other input may carry, become '?'.
Status status_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Appends a newline and `lines` to the message, without the newline at the end of `lines`; text that does not fit is
// cut off.
void status_append(Status *st, const char *lines);

#endif
