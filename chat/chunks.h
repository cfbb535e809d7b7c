// chat/chunks.h: chunks of text before the next message of a chat (/chunk), with K and V computed separately.
//
// A chunk is computed alone as soon as it is named, before the user types the message. The KV cache of a chat may have
// room for one sequence only, so the conversation's K and V are copied to memory meanwhile. The message has the same
// tokens as with --chunk. Once it is answered, the chunks are part of the conversation, as text and in the cache.
#ifndef QUILL_CHUNKS_H
#define QUILL_CHUNKS_H

#include "blend/blender.h"

typedef struct {
    Blender *blender;     // NULL: no chunk was named yet
    BlenderChunks *files; // (n_files) owns the bytes of `texts`
    int n_files;
    Str *texts;        // (n) the chunks of the next message
    int n, n_computed; // n_computed: chunks whose K and V were computed because no file had them
} ChatChunks;

// Adds the chunks of a file (cut at config->chunk_split) and computes those whose K and V are not stored. seq: the
// sequence of the conversation. *n_tokens: tokens of these chunks. The errors of blender_read and blender_open.
Status chunks_add(ChatChunks *c, Engine *e, const AnswerConfig *config, Sequence *seq, const char *path, int *n_tokens);
void chunks_drop(ChatChunks *c); // the next message has no chunks
void chunks_free(ChatChunks *c); // requests with its policies must have finished

#endif
