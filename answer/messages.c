// answer/messages.c: see answer/messages.h.
#include "answer/messages.h"

#include <stdlib.h>
#include <string.h>

static void resize(MessageList *l, int n) { l->at = mem_resize(l->at, (size_t)n * sizeof *l->at + 1); }

// Moves the messages from i on by `by` places.
static void move_from(MessageList *l, int i, int by) {
    memmove(l->at + i + by, l->at + i, (size_t)(l->n - i) * sizeof *l->at);
    l->n += by;
}

static void free_text(Message *m) { free((char *)m->text.data); } // a copy that messages_insert made

void messages_insert(MessageList *l, int i, const char *role, Str text) {
    resize(l, l->n + 1);
    move_from(l, i, 1);
    l->at[i] = (Message){role, {mem_copy(text.n ? text.data : "", text.n), text.n}, NULL};
}

void messages_remove(MessageList *l, int i) {
    free_text(&l->at[i]);
    move_from(l, i + 1, -1);
}

MessageList messages_split(MessageList *l, int i) {
    MessageList rest = {0};
    resize(&rest, l->n - i);
    for (; i + rest.n < l->n; rest.n++) rest.at[rest.n] = l->at[i + rest.n];
    l->n = i;
    return rest;
}

void messages_join(MessageList *l, MessageList *more) {
    resize(l, l->n + more->n);
    for (int i = 0; i < more->n; i++) l->at[l->n++] = more->at[i];
    more->n = 0;
    messages_free(more);
}

void messages_free(MessageList *l) {
    for (int i = 0; i < l->n; i++) free_text(&l->at[i]);
    free(l->at);
    *l = (MessageList){0};
}
