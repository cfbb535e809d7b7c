// chat/conversation.h: a conversation: its messages, its part of the KV cache, and its turns.
//
// A turn reuses the longest beginning of the rendered text that the cached tokens stand for, and computes the rest.
// Answers are cached as the tokens that the model sampled; encoding their text again could give other tokens. If a
// template renders earlier turns differently, the cache is cut back to the common beginning. Turns are never dropped
// silently: a turn that does not fit is refused, or with --context-shift whole turns are dropped, the oldest first, and
// a line on stderr says so.
#ifndef QUILL_CONVERSATION_H
#define QUILL_CONVERSATION_H

#include "answer/answer.h"
#include "answer/messages.h"
#include "chat/chunks.h"

typedef struct {
    size_t byte; // offset in the rendered text
    int token;   // index of the token of the sequence that begins there
} Cut;

// Figures of a turn.
typedef struct {
    int prompt, cached, said; // tokens of the prompt, tokens of it found in the cache, tokens generated
    double ttft_ms, tps;
    Finish finish;
} TurnStats;

typedef struct {
    Engine *e;
    AnswerConfig *config;   // /set may change it between turns
    ChatTemplate *template; // NULL: raw text
    SamplerParams sampling;
    LogitBias *bias;
    MessageList messages; // a system message is the first
    int n_left_out;       // messages after the system message that are no longer part of the prompt
    bool refuses;         // a message that does not fit ends the chat: input from a pipe cannot be shortened
    // the cache
    Sequence seq;
    Rendered seq_text; // the text of seq.tokens; its `trusted`: 0 and 1 as rendered, SAID (2) where the model generated
    Cut *cuts;         // (n_cuts) ascending: places at which the tokens can be cut off
    int n_cuts;
    int n_said;        // length of the last message in sampled tokens, the end of seq.tokens; 0: it was not sampled
    ChatChunks chunks; // chunks before the next message
    uint64_t tries;    // Request.sequence_key: counted up so that /regen draws other random numbers
    TurnStats *stats;
    int n_stats;
    int failed; // the code of the first error that conversation_report has printed; 0: none
} Conversation;

Status conversation_open(Conversation *c, Engine *e, AnswerConfig *config);
void conversation_close(Conversation *c);
// Call it after a change of `config`. QUILL_USAGE: as answer_sampling; QUILL_MODEL: as file_sampling_take.
Status conversation_settings(Conversation *c);
// Checks the form and the tools of `config`, which an answer reads, and context_shift, which --evict excludes. Errors
// as form_constrain. A message said with such settings would be refused.
Status conversation_check(Conversation *c);

// ---- turns ----------------------------------------------------------------------------------------------------------
// An error ends the chat. A refused message is reported on stderr (conversation_report) with Status OK and changes
// nothing. So is an answer that was cut before its form was complete; it stays in the conversation.

Status conversation_say(Conversation *c, Str text);
Status conversation_say_instead(Conversation *c, Str text); // replaces the last turn
Status conversation_answer_again(Conversation *c);          // answers the last message, if any, again

// Puts the text of a file, cut as --chunk-split says, as chunks before the next message. Errors as chunks_add;
// then nothing has changed.
Status conversation_chunk(Conversation *c, const char *path);

// Prints an error that does not end the chat, and remembers the first code: input from a pipe ends with it.
void conversation_report(Conversation *c, const Status *st);

// ---- messages -------------------------------------------------------------------------------------------------------

const Message *conversation_last(const Conversation *c, const char *role); // NULL: none; role NULL: any but system
bool conversation_undo(Conversation *c);                                   // drops the last turn; false: there is none
void conversation_clear(Conversation *c);                                  // drops all but the system message
// Replaces the system message; data NULL: removes it. QUILL_USAGE: raw text has no system message.
Status conversation_system(Conversation *c, Str text);
Status conversation_tokens(const Conversation *c, int *n); // number of tokens of the conversation as a prompt
// The tokens of the last message: those that the model sampled, otherwise its text encoded. Returns their number, 0: no
// message. The caller frees *ids.
int conversation_last_tokens(const Conversation *c, int **ids);
// Appends the last answer without its thoughts and their markers; whole if it has only thoughts. False: no answer yet.
bool conversation_last_said(const Conversation *c, Buf *out);

// Writes {"model", "messages": [{"role", "content"}...], "settings"} as JSON. settings: steals the reference; NULL:
// none. QUILL_IO.
Status conversation_save(const Conversation *c, json_t *settings, const char *path);
// Replaces the messages by those of a saved conversation. name: of the file, for error messages. QUILL_USAGE: not a
// conversation; then nothing has changed.
Status conversation_load(Conversation *c, const char *name, Str json);
// Saves and loads the conversation's part of the KV cache (kv/kvfile.h). Load it after the conversation: the next turn
// then computes only tokens that the file does not have. After a failed load the cache is empty and the next turn
// computes everything.
Status conversation_save_kv(Conversation *c, const char *path);
Status conversation_load_kv(Conversation *c, const char *path);

#endif
