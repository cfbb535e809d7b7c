// answer/messages.h: a list of messages that owns their texts. Start with (MessageList){0}; call messages_free.
#ifndef QUILL_MESSAGES_H
#define QUILL_MESSAGES_H

#include "answer/chat_template.h"

typedef struct {
    Message *at; // (n)
    int n;
} MessageList;

// Inserts a message before message i, or at the end (i = n). The text is copied; role outlives the list.
void messages_insert(MessageList *l, int i, const char *role, Str text);
void messages_remove(MessageList *l, int i);
// Takes the messages from i on out of the list and returns them.
MessageList messages_split(MessageList *l, int i);
// Moves all messages of `more` to the end of the list.
void messages_join(MessageList *l, MessageList *more);
void messages_free(MessageList *l); // the list is empty then

#endif
