// chat/conversation.h: what was said, what of it the cache holds, and a turn.
//
// A turn computes what is new alone, whatever the template does to earlier turns: the cache keeps the tokens as the
// model said them, for as much of the rendered text as they stand for, and what parts from it is cut off. Nothing
// is ever left out silently: a turn that does not fit is refused, or, with --context-shift, the oldest turns go, in
// whole, with a line on stderr.
#ifndef QUILL_CONVERSATION_H
#define QUILL_CONVERSATION_H

#include "answer/answer.h"
#include "answer/chat_template.h"
#include "chat/chunks.h"

typedef struct {
    size_t byte; // of the rendered text
    int token;   // of the sequence, which begins there
} Cut;

// What a turn took.
typedef struct {
    int prompt, cached, said; // tokens given, of them in the cache already, generated
    double ttft_ms, tps;
    Finish finish;
} TurnStats;

typedef struct {
    Engine *e;
    AnswerConfig *config;   // the settings may change between turns
    ChatTemplate *template; // NULL: raw text
    SamplerParams sampling;
    LogitBias *bias;
    Message *messages; // (n_messages) their texts are ours; a system message is the first
    int n_messages;
    int n_left_out; // messages after the system message that the model is not given any more
    bool refuses;   // what does not fit ends the chat: a pipe cannot say it shorter
    // the cache: seq.tokens stand for the bytes of `held`
    Sequence seq;
    Rendered held; // its marks: 0 and 1 as rendered, SAID (2) by the model
    Cut *cuts;     // (n_cuts) ascending: places where the tokens can be taken apart
    int n_cuts;
    int n_said;        // the last tokens of seq that the last message was sampled as; 0: it was not
    ChatChunks chunks; // of the next message
    uint64_t tries;    // /regen draws other random numbers
    TurnStats *stats;
    int n_stats;
} Conversation;

Status conversation_open(Conversation *c, Engine *e, AnswerConfig *config);
void conversation_close(Conversation *c);
Status conversation_settings(Conversation *c); // config->sampling has changed. QUILL_USAGE: it is not possible

// ---- turns ----------------------------------------------------------------------------------------------------------
// The Status is what ends the chat; what is refused is said on stderr and changes nothing.

Status conversation_say(Conversation *c, Str text);
Status conversation_say_instead(Conversation *c, Str text); // of the last turn
Status conversation_answer_again(Conversation *c);          // the last message, in place of its answer if it has one

// The text of a file, cut as --chunk-split says, stands as chunks in front of the next message that is answered.
// Errors as chunks_add; then nothing has changed.
Status conversation_chunk(Conversation *c, const char *path);

// ---- what was said --------------------------------------------------------------------------------------------------

const Message *conversation_last(const Conversation *c, const char *role); // NULL: none; role NULL: any
bool conversation_undo(Conversation *c);                                   // drops the last turn; false: there is none
void conversation_clear(Conversation *c);                                  // all but the system message
// NULL data: none any more. QUILL_USAGE: raw text has no system message.
Status conversation_system(Conversation *c, Str text);
Status conversation_tokens(const Conversation *c, int *n); // of the whole text as it would be given now
// The tokens of the last message: as the model sampled them where it did, otherwise as its text is encoded. *ids is the
// caller's to free; 0: there is no message.
int conversation_last_tokens(const Conversation *c, int **ids);

// Writes {"model", "messages": [{"role", "content"}...], "settings"} as JSON. settings: NULL: none; its reference is
// taken. QUILL_IO.
Status conversation_save(const Conversation *c, json_t *settings, const char *path);
// Takes over the conversation in the JSON of a file; `name` is for messages. QUILL_USAGE: it is no conversation;
// nothing has changed then.
Status conversation_load(Conversation *c, const char *name, Str json);
// What the cache holds, as a KV file (kv/kvfile.h); loaded after the conversation, whose next turn computes only what
// the file has not. A failure leaves the cache empty: the turn computes everything.
Status conversation_save_kv(Conversation *c, const char *path);
Status conversation_load_kv(Conversation *c, const char *path);

#endif
