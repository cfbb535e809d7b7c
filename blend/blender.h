// blend/blender.h: prompts with chunks of text: reads the chunk files, builds the prompt from chunks and a question,
// and runs requests that compute the K and V of chunks that are not stored yet.
//
//   TRY(blender_open(e, config->blend, config->quiet, &blender));
//   TRY(blender_read(config, &chunks));                             // --chunk, --chunk-split
//   TRY(blender_prompt(blender, config, template, messages, n, chunks.texts, chunks.n, &text, &prompt));
//   blender_compute(blender, &prompt);                              // or blender_begin, beside other requests
//   r.policy = blend_policy(blend = blender_request(blender, &prompt));
//
// The last message has the chunks, each with a blank line after it, and then the question. Each chunk is encoded
// separately in every mode, so that --blend full gives the model the same tokens as the other modes.
#ifndef QUILL_BLENDER_H
#define QUILL_BLENDER_H

#include "answer/answer_config.h"
#include "answer/chat_template.h"
#include "blend/blend.h"
#include "engine.h"

typedef struct Blender Blender;

typedef struct {
    Str *texts; // (n) without white space at either end
    int n;
    Buf *files; // (n_files) own the bytes of the texts
    int n_files;
} BlenderChunks;

typedef struct {
    int *tokens, n;
    BlendSpan *spans; // (n_spans) places of the chunks
    int n_spans;
} BlenderPrompt;

// The engine must have its weights loaded and must outlive the blender. Errors as plan_parse and blend_check, also if
// no chunk follows. QUILL_USAGE: --evict, or a model with windows whose cache frees their slots
// (KvShape.keep_partners), unless the plan is full.
Status blender_open(Engine *e, const char *plan, bool quiet, Blender **out);
bool blender_uses_kept(const Blender *b); // false: --blend full, which uses no stored K and V
void blender_close(Blender *b);           // NULL is fine; requests with its policies must have finished

// Reads the files of config->chunks and cuts them at config->chunk_split, if given. QUILL_IO; QUILL_CONTEXT: a
// file is too large; QUILL_USAGE: it is empty or not text. Call blender_chunks_free after an error too.
Status blender_read(const AnswerConfig *config, BlenderChunks *out);
// Checks a text and removes white space at both ends. QUILL_USAGE: empty or not text. name: for the message.
Status blender_text(const char *name, Str text, Str *out);
void blender_chunks_free(BlenderChunks *c);

// Renders the messages, with the chunks before the text of the last one, and encodes them. QUILL_CONTEXT: a chunk
// or the whole prompt has more tokens than the context. Otherwise as answer_push. Free the prompt after an error too.
Status blender_prompt(Blender *b, const AnswerConfig *config, const ChatTemplate *template, const Message *messages,
                      int n_messages, const Str *chunks, int n_chunks, Rendered *text, BlenderPrompt *out);
void blender_prompt_free(BlenderPrompt *p);
// The next two are steps of blender_prompt, for a chat. Appends the chunks, each with a blank line after it.
void blender_join(const Str *chunks, int n_chunks, Buf *out);
// Encodes rendered text from byte `from` on and appends the tokens to `out`, which already has the tokens before
// `from`. joined: the text of blender_join; its last occurrence in the rendered text is encoded chunk by chunk.
// QUILL_MODEL: the template changed the chunks, so they are not found. QUILL_CONTEXT: a chunk is too long.
Status blender_encode(Blender *b, const Rendered *text, size_t from, const Buf *joined, const Str *chunks, int n_chunks,
                      BlenderPrompt *out);

bool blender_lacks(const Blender *b, const BlenderPrompt *p); // true: the K and V of some chunk are not stored
// Computes and stores the missing chunks, one after the other, while no other request runs. Returns their number. A
// failure to store is a note on stderr.
int blender_compute(Blender *b, const BlenderPrompt *p);
Status blender_unkept(const Blender *b); // the first failure to compute or store a chunk: of the engine or QUILL_IO
// Adds requests for the missing chunks, beside other requests. The request of the prompt waits for them.
void blender_begin(Blender *b, const BlenderPrompt *p);
// Stores the chunks whose requests have finished. Call it between two steps.
void blender_collect(Blender *b);

Blend *blender_request(Blender *b, const BlenderPrompt *p); // for the policy of the prompt's request; blend_free it
void blender_report(const BlendStats *s, int n_computed);   // --verbose, to stderr

// Encodes one chunk as a prompt has it, and appends its tokens and its span to p.
Status blender_add_chunk(Blender *b, Str text, BlenderPrompt *p);

#endif
