// chat/chunks.h: the chunks that stand in front of a chat's next message (/chunk), with K and V of their own.
//
// A chunk is computed alone when it is named, before the message is typed. A chat's cache may have room for one
// sequence only, so the conversation's K and V wait in memory meanwhile. The message's tokens are those that --chunk
// would give; from then on they are part of the conversation, as text and in its cache.
#ifndef QUILL_CHUNKS_H
#define QUILL_CHUNKS_H

#include "blend/blender.h"

typedef struct {
    Blender *blender;     // NULL: none was named yet
    BlenderChunks *files; // (n_files) what `texts` point into
    int n_files;
    Str *texts; // (n) of the next message
    int n, n_computed;
} ChatChunks;

// Adds the chunks of a file (config->chunk_split cuts it) and computes those that nobody kept. `seq` is the
// conversation's. QUILL_IO, QUILL_CONTEXT; else as blender_open. *n_tokens: of these chunks.
Status chunks_add(ChatChunks *c, Engine *e, const AnswerConfig *config, Sequence *seq, const char *path, int *n_tokens);
void chunks_drop(ChatChunks *c); // none stands in front of the next message
void chunks_free(ChatChunks *c); // no request of its policy may run any more

#endif
