// blend/blender.h: chunks of text for the modes: their files, the prompt that they make with a question, and the
// requests that compute the K and V of those that nobody kept.
//
//   TRY(blender_open(e, config->blend, config->quiet, &blender));
//   TRY(blender_read(config, &chunks));                             // --chunk, --chunk-split
//   TRY(blender_prompt(blender, config, template, messages, n, chunks.texts, chunks.n, &text, &prompt));
//   blender_compute(blender, &prompt);                              // or blender_begin, beside other requests
//   r.policy = blend_policy(blend = blender_request(blender, &prompt));
//
// The chunks stand in front of the question in the last message, each with a blank line behind it, and are put into
// tokens each by itself, whatever the mode: --blend full and the others give the model the same tokens.
#ifndef QUILL_BLENDER_H
#define QUILL_BLENDER_H

#include "answer/answer_config.h"
#include "answer/chat_template.h"
#include "blend/blend.h"
#include "engine.h"

typedef struct Blender Blender;

typedef struct {
    Str *texts; // (n) without white space around them
    int n;
    Buf *files; // (n_files) what the texts point into
    int n_files;
} BlenderChunks;

typedef struct {
    int *tokens, n;
    BlendSpan *spans; // (n_spans) of the chunks
    int n_spans;
} BlenderPrompt;

// The model's weights must be loaded. The engine must outlive it. Errors: plan_parse's and blend_check's; without any
// chunk too, so that a flag is never passed over.
Status blender_open(Engine *e, const char *plan, bool quiet, Blender **out);
bool blender_uses_kept(const Blender *b); // false: --blend full, chunks need no K and V of their own
void blender_close(Blender *b);           // NULL is fine; no request of its policy may run any more

// The files of config->chunks, each cut at config->chunk_split where that is given. QUILL_IO; QUILL_CONTEXT: one is
// empty or no text.
Status blender_read(const AnswerConfig *config, BlenderChunks *out);
// A text that is a chunk: without white space around it. QUILL_CONTEXT as above; `name` is for the message.
Status blender_text(const char *name, Str text, Str *out);
void blender_chunks_free(BlenderChunks *c);

// The messages, with the chunks in front of the last one's text, as text and in tokens. QUILL_CONTEXT: a chunk alone,
// or all of it, has more tokens than the context. Else as answer_prompt. Free the prompt after an error too.
Status blender_prompt(Blender *b, const AnswerConfig *config, const ChatTemplate *template, const Message *messages,
                      int n_messages, const Str *chunks, int n_chunks, Rendered *text, BlenderPrompt *out);
void blender_prompt_free(BlenderPrompt *p);
// The parts of it, for a chat. The chunks' texts, each with the blank line behind it, appended to `out`.
void blender_join(const Str *chunks, int n_chunks, Buf *out);
// Adds the tokens of rendered text from byte `from` on, in which `joined` stands last, behind those of `out`, which
// stand for what is in front of `from`. QUILL_MODEL: the template has changed the chunks. QUILL_CONTEXT: one is too
// long.
Status blender_encode(Blender *b, const Rendered *text, size_t from, const Buf *joined, const Str *chunks, int n_chunks,
                      BlenderPrompt *out);

bool blender_lacks(const Blender *b, const BlenderPrompt *p); // whether there are chunks that nobody kept
// Computes the chunks that nobody kept, one after the other, before another request is added; returns how many. A store
// that cannot be written is a note.
int blender_compute(Blender *b, const BlenderPrompt *p);
Status blender_unkept(const Blender *b); // why a chunk could not be computed or kept so far: QUILL_MODEL, QUILL_IO
// Adds requests for them instead; the prompt's own request waits for them.
void blender_begin(Blender *b, const BlenderPrompt *p);
// Keeps what such requests have computed, between two steps.
void blender_collect(Blender *b);

Blend *blender_request(Blender *b, const BlenderPrompt *p); // blend_free it
void blender_report(const BlendStats *s, int n_computed);   // --verbose, to stderr

// For `quill chunk add`: the tokens of a chunk alone, as prompts have them. Added to p as a span.
Status blender_add_chunk(Blender *b, Str text, BlenderPrompt *p);

#endif
