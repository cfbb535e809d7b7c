// tests/fuzz_recall.c: libFuzzer over the history file. From any file at most RECALL_MAX messages are read, none of
// them empty, and each stays the same when it is written and read again.
#include "term/recall.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Buf messages; // each message after a NUL
    int n;
} Taken;

static void take(void *arg, Str message) {
    Taken *t = arg;
    if (message.n == 0 || ++t->n > RECALL_MAX) abort();
    buf_append(&t->messages, "", 1);
    buf_append(&t->messages, message.data, message.n);
}

static void write_again(void *arg, Str message) { recall_line(message, arg); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Buf file = {0}, again = {0};
    Taken first = {0}, second = {0};
    buf_append(&file, data, size);
    recall_parse(str_of_buf(&file), take, &first);
    recall_parse(str_of_buf(&file), write_again, &again);
    buf_append(&again, "", 0);
    recall_parse(str_of_buf(&again), take, &second);
    bool same = first.n == second.n && first.messages.n == second.messages.n;
    if (!same || (first.messages.n && memcmp(first.messages.data, second.messages.data, first.messages.n))) abort();
    buf_free(&file);
    buf_free(&again);
    buf_free(&first.messages);
    buf_free(&second.messages);
    return 0;
}
