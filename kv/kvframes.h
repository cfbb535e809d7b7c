// kv/kvframes.h: writes and reads a sequence's KV cache as a stream of frames with checksums, in one pass.
//
//   KvWriter w = {.fd = fd};                              KvReader r = {.name = path, .read = f, .arg = &fd};
//   TRY(kvwriter_head(&w, &head));                        TRY(kvreader_head(&r)); TRY(kvreader_match(&r, &mine));
//   TRY(kvwriter_link(&w, &link));                        TRY(kvreader_link(&r, &link)); // only if it is a block
//   TRY(kvwriter_tokens(&w, tokens));                     TRY(kvreader_tokens(&r, n_vocab, &tokens));
//   for each chunk of slots, for each layer:              while (kvreader_more(&r)) {
//       fill(kvwriter_room(&w, chunk));                       TRY(kvreader_rows(&r, &chunk, &rows));
//       TRY(kvwriter_rows(&w));                               take(chunk, rows);
//                                                         }
//   for each recurrent layer: kvwriter_state              kvreader_state, until it returns NULL
//   TRY(kvwriter_last(&w, logits, n_vocab));              TRY(kvreader_last(&r, n_vocab, &logits, &n));
//   TRY(kvwriter_end(&w));                                TRY(kvreader_end(&r));
//
// Make the calls in this order, and free the stream after an error, too. The writer does not seek and the reader needs
// no length, so that a pipe works as well as a file. Input is not trusted: the earlier frames decide which length a
// frame may have, its checksum covers all bytes up to it, and memory grows only with bytes that have arrived. Error
// messages contain the offset, what was expected and what was found: QUILL_MODEL for bad content, QUILL_IO for a system
// error.
// The format, for other programs: docs/kv-format.md.
#ifndef QUILL_KVFRAMES_H
#define QUILL_KVFRAMES_H

#include <stddef.h>
#include <sys/types.h>

#include "kv/kvstates.h"

enum { KV_START = 12 };               // bytes before the first frame: a magic number and the format's version
void kv_start(uint8_t out[KV_START]); // the start that this program writes and accepts

// How K and V were computed; rows of different classes are not interchangeable.
enum { KV_EXACT = 0 }; // each token saw all tokens before it

// The header frame's bytes. `model`, `tokenizer` and `rope` are fingerprints (kv/fingerprint.h), which must be equal.
typedef struct {
    uint64_t model, tokenizer, rope;
    uint32_t type_k, type_v; // types of formats/kv_types.h
    uint32_t exactness;      // KV_EXACT
    uint32_t n_layers, n_kv_heads, head_dim;
    uint32_t n_tokens, n_slots; // token ids; slots in the stream: K and V of the first n_slots tokens
    uint32_t group;             // slots that are sealed together: SEAL, or 1 if K and V are dense
    uint32_t rotated;           // 1: K is stored multiplied by a Hadamard matrix (formats/sealed.h)
    // head_dim: elements of K. v_dim: elements of V; 0: V is the first part of K and is not stored. The last n_windowed
    // layers have window_heads heads of window_dim and window_v_dim elements.
    uint32_t v_dim, n_windowed, window_heads, window_dim, window_v_dim;
} KvHead;
enum { KV_HEAD = 84 }; // bytes of the header frame
_Static_assert(offsetof(KvHead, window_v_dim) == KV_HEAD - 4, "the header frame has no padding inside");
// Heads of one layer and elements of each head's K and V (0: V is not stored).
typedef struct {
    int n_kv_heads, k_dim, v_dim;
} KvLayerShape;
KvLayerShape kv_layer_shape(const KvHead *h, uint32_t layer);
uint32_t kv_group(int type_k, int type_v); // KvHead.group of these types

// The rows of one frame: K and V of slots [first, first + n) of one layer, as kvrows_read (kv/kvrows.h) returns them.
// With a sealed type a chunk consists of whole groups; only the last chunk may end inside a group.
typedef struct {
    uint32_t layer, first, n;
} KvChunk;

// The place of a block in a longer sequence. In the block's own stream its slots count from 0.
typedef struct {
    uint8_t parent[32]; // the name of the previous block, or the root (kv/chain.h)
    uint32_t first;     // the sequence's slot that is slot 0 of the block
} KvLink;
_Static_assert(sizeof(KvLink) == 36, "the link frame");

// State that KvWriter and KvReader have in common.
typedef struct {
    KvHead head;
    KvChunk next;      // the next ROWS frame; n: slots of the current chunk, 0 before the chunk's first layer
    uint32_t n_frames; // frames written, or read and verified
    uint64_t check;    // the last frame's checksum, the seed of the next one's
    uint8_t *frame;    // the current frame: kind, length, payload, checksum
    size_t n, cap;     // bytes in use and allocated
} KvStream;

typedef struct {
    int fd;
    Buf *memory; // the stream is appended to it and fd is unused; NULL: the stream goes to fd
    KvStream s;
    bool pipe_closed; // a write failed because the reader has closed the pipe (EPIPE)
} KvWriter;

// Begins the stream on w->fd or w->memory, which stays the caller's: the start and the header frame. Copies *h, which
// must be valid.
// Errors of all kvwriter functions: those of fd_write_all. A closed pipe is QUILL_IO, too, and sets w->pipe_closed.
Status kvwriter_head(KvWriter *w, const KvHead *h);
Status kvwriter_link(KvWriter *w, const KvLink *l);
Status kvwriter_tokens(KvWriter *w, const int *tokens); // (head.n_tokens)
// Bytes of K and V of n slots in one layer; bytes of K alone, which comes first.
size_t kv_frame_rows(const KvHead *h, uint32_t layer, size_t n);
size_t kv_frame_keys(const KvHead *h, uint32_t layer, size_t n);
// Whether a frame's length, which has 32 bits, can count a ROWS frame of n slots of every layer.
bool kv_frame_holds(const KvHead *h, size_t n);
// Begins the next ROWS frame and returns where the caller must store its rows. All layers of a chunk come in order,
// then those of the next chunk.
uint8_t *kvwriter_room(KvWriter *w, KvChunk c);
Status kvwriter_rows(KvWriter *w); // writes the frame that kvwriter_room began
// Writes the state of a recurrent layer after the last slot (n floats); layers in order.
Status kvwriter_state(KvWriter *w, uint32_t layer, const float *values, size_t n);
// Writes a state of all recurrent layers, of which some may be on a device; -1 or no such layers: nothing.
Status kvwriter_states(KvWriter *w, const KvStates *states, int state);
// Writes the logits after the last token (n). Optional; allowed only if n_slots == n_tokens.
Status kvwriter_last(KvWriter *w, const float *logits, int n);
Status kvwriter_end(KvWriter *w);
void kvwriter_free(KvWriter *w);

typedef struct {
    const char *name;                                // for messages
    ssize_t (*read)(void *arg, void *out, size_t n); // as read(2): bytes, 0 at the end, -1 with errno
    void *arg;
    size_t at;    // bytes read
    bool started; // kind and length of the current frame were read, its payload was not
    KvStream s;
} KvReader;

ssize_t kvreader_from_fd(void *fd, void *out, size_t n); // for KvReader.read: fd points to an int, the descriptor
Status kvreader_head(KvReader *r);                       // fills r->s.head and checks that its numbers are valid
// Refuses a header whose fingerprints, types or shape differ from those of `want`. Does not compare n_tokens and
// n_slots.
Status kvreader_match(const KvReader *r, const KvHead *want);
Status kvreader_link(KvReader *r, KvLink *l);
// For callers that accept sequences and blocks: reads the link if one comes next, and sets *is_block.
Status kvreader_block(KvReader *r, KvLink *l, bool *is_block);
// head.n_tokens ids in [0, n_vocab), valid until the next call.
Status kvreader_tokens(KvReader *r, int n_vocab, const int **tokens);
bool kvreader_more(const KvReader *r);                               // a ROWS frame must follow
Status kvreader_rows(KvReader *r, KvChunk *c, const uint8_t **rows); // valid until the next call
// The logits, valid until the next call; NULL: the stream has none. n_vocab: their expected number, 0: any; *n: their
// number.
Status kvreader_last(KvReader *r, int n_vocab, const float **logits, int *n);
// For models with recurrent layers, after the rows: the state of recurrent layer `layer` after the last slot, valid
// until the next call; NULL: there are no more. *n: the expected number of floats, 0: any; on return their number.
Status kvreader_state(KvReader *r, uint32_t layer, const float **values, size_t *n);
Status kvreader_end(KvReader *r); // reads the end frame and nothing after it
Status kvreader_eof(KvReader *r); // refuses bytes after the end frame
void kvreader_free(KvReader *r);
size_t kvreader_offset(size_t field); // offset in the stream of the KvHead field with this offsetof

#endif
