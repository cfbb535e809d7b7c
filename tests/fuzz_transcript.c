// tests/fuzz_transcript.c: libFuzzer over saved conversations. The input's first bit says whether there is a template;
// the rest is the file. Accepted messages must have known roles and complete texts, and an error must be one printable
// line.
#include "answer/transcript.h"

#include <stdlib.h>
#include <string.h>

static bool ours(const char *role) {
    return strcmp(role, "system") == 0 || strcmp(role, "user") == 0 || strcmp(role, "assistant") == 0;
}

static void check_error(const Status *st) {
    if (st->code != QUILL_USAGE || !st->message[0]) abort();
    for (const char *c = st->message; *c; c++)
        if ((unsigned char)*c < ' ') abort();
}

static void take(void *arg, const char *name, const char *value) {
    (void)arg;
    if (!name || !value || strlen(name) + strlen(value) > SIZE_MAX / 2) abort(); // reads both strings to their ends
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    bool raw = data[0] & 1;
    char *file = mem_copy((const char *)data + 1, size - 1);
    MessageList messages;
    Status st = transcript_read("fuzz.json", (Str){file, size - 1}, raw, &messages);
    if (!st.code) transcript_settings((Str){file, size - 1}, take, NULL);
    free(file);
    if (st.code) check_error(&st);
    for (int i = 0; i < messages.n; i++) {
        if (!ours(messages.at[i].role) || messages.at[i].text.data[messages.at[i].text.n]) abort();
        if (strcmp(messages.at[i].role, "system") == 0 && (raw || i > 0)) abort();
    }
    messages_free(&messages);
    return 0;
}
