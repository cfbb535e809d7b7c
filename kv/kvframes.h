// kv/kvframes.h: a sequence's KV cache as a stream of bytes: frames with checksums, written and read in one pass.
//
//   KvWriter w = {.fd = fd};                              KvReader r = {.name = path, .read = f, .arg = &fd};
//   TRY(kvwriter_head(&w, &head));                        TRY(kvreader_head(&r)); TRY(kvreader_match(&r, &mine));
//   TRY(kvwriter_link(&w, &link));                        TRY(kvreader_link(&r, &link)); // of a block alone
//   TRY(kvwriter_tokens(&w, tokens));                     TRY(kvreader_tokens(&r, n_vocab, &tokens));
//   for each chunk of slots, for each layer:              while (kvreader_more(&r)) {
//       fill(kvwriter_room(&w, chunk));                       TRY(kvreader_rows(&r, &chunk, &rows));
//       TRY(kvwriter_rows(&w));                               take(chunk, rows);
//                                                         }
//   for each recurrent layer: kvwriter_state              kvreader_state, until there are no more
//   TRY(kvwriter_last(&w, logits, n_vocab));              TRY(kvreader_last(&r, n_vocab, &logits, &n));
//   TRY(kvwriter_end(&w));                                TRY(kvreader_end(&r));
//
// The calls come in this order; free the stream after an error, too. The writer does not seek and the reader needs no
// length, so that a pipe works as well as a file. Input is not trusted: a frame's length must be one that the frames
// before it allow, its checksum covers everything up to it, and memory grows only with bytes that have arrived. Errors
// name the byte, what was expected and what was found: QUILL_MODEL for the content, QUILL_IO for a system error.
// The format, for other programs: docs/kv-format.md.
#ifndef QUILL_KVFRAMES_H
#define QUILL_KVFRAMES_H

#include <stddef.h>
#include <sys/types.h>

#include "base/base.h"

enum { KV_START = 12 };               // bytes before the first frame: what the format is, and its version
void kv_start(uint8_t out[KV_START]); // those that this quill writes and reads

// How the K and V were computed; rows of different classes are not interchangeable.
enum { KV_EXACT = 0 }; // by one forward over all tokens

// The header frame's bytes. `model`, `tokenizer` and `rope` are fingerprints (kv/fingerprint.h), which must be equal.
typedef struct {
    uint64_t model, tokenizer, rope;
    uint32_t type_k, type_v; // types of formats/kv_types.h
    uint32_t exactness;      // KV_EXACT
    uint32_t n_layers, n_kv_heads, head_dim;
    uint32_t n_tokens, n_slots; // ids; and how many of them, from the first on, have their K and V here
    uint32_t group;             // slots that are sealed at once: SEAL, or 1 where K and V are dense
    uint32_t rotated;           // 1: K is stored turned by a Hadamard matrix (formats/sealed.h)
    // head_dim is K's; v_dim is V's, 0 where V is the first part of K and is not here. The last n_windowed layers have
    // heads of their own.
    uint32_t v_dim, n_windowed, window_heads, window_dim, window_v_dim;
} KvHead;
enum { KV_HEAD = 84 }; // bytes of the header frame
_Static_assert(offsetof(KvHead, window_v_dim) == KV_HEAD - 4, "the header frame has no padding inside");
// What a layer has in a slot.
typedef struct {
    int n_kv_heads, k_dim, v_dim;
} KvLayerShape;
KvLayerShape kv_layer_shape(const KvHead *h, uint32_t layer);
uint32_t kv_group(int type_k, int type_v); // KvHead.group of these types

// The rows of a frame: K and V of slots [first, first + n) in one layer as kvrows_read (kv/kvrows.h) gives them. Of a
// sealed cache a chunk begins with a group and, but for the last one, ends with one.
typedef struct {
    uint32_t layer, first, n;
} KvChunk;

// Where a block of a longer sequence belongs. Its slots count from 0 in its stream, as if it were a sequence.
typedef struct {
    uint8_t parent[32]; // the name of the block before it, or the root (kv/chain.h)
    uint32_t first;     // its first slot in the sequence
} KvLink;
_Static_assert(sizeof(KvLink) == 36, "the link frame");

// What writing and reading share.
typedef struct {
    KvHead head;
    KvChunk next;      // n: of the chunk whose layers are under way; 0 before its first layer
    uint32_t n_frames; // that are through
    uint64_t check;    // the last frame's, which the next one's depends on
    uint8_t *frame;    // the frame in hand: kind, length, payload, checksum
    size_t n, cap;     // its bytes
} KvStream;

typedef struct {
    int fd;
    KvStream s;
} KvWriter;

Status kvwriter_head(KvWriter *w, const KvHead *h);
Status kvwriter_link(KvWriter *w, const KvLink *l);
Status kvwriter_tokens(KvWriter *w, const int *tokens); // head.n_tokens
// Bytes of the rows of n slots in one layer, and of the K among them, which comes first.
size_t kv_frame_rows(const KvHead *h, uint32_t layer, size_t n);
size_t kv_frame_keys(const KvHead *h, uint32_t layer, size_t n);
// Where the rows of the next frame go. All layers of a chunk of slots come in order, then the next chunk's.
uint8_t *kvwriter_room(KvWriter *w, KvChunk c);
Status kvwriter_rows(KvWriter *w); // writes the frame that kvwriter_room began
// The state of a recurrent layer, in order, behind the last slot (n floats).
Status kvwriter_state(KvWriter *w, uint32_t layer, const float *values, size_t n);
// The logits after the last token (n), for a stream that has all its slots. May be left out.
Status kvwriter_last(KvWriter *w, const float *logits, int n);
Status kvwriter_end(KvWriter *w); // after the last slot
void kvwriter_free(KvWriter *w);

typedef struct {
    const char *name;                                // stands in messages
    ssize_t (*read)(void *arg, void *out, size_t n); // as read(2): bytes, 0 at the end, -1 with errno
    void *arg;
    size_t at;    // bytes read
    bool started; // the kind and the length of the frame in hand are there, the rest is not
    KvStream s;
} KvReader;

ssize_t kvreader_from_fd(void *fd, void *out, size_t n); // a KvReader.read: *fd is an int, a descriptor
Status kvreader_head(KvReader *r);                       // into r->s.head, its numbers within what the format allows
// Refuses a header whose fingerprints, types or shape are not those of `want`; its n_tokens and n_slots are not looked
// at.
Status kvreader_match(const KvReader *r, const KvHead *want);
Status kvreader_link(KvReader *r, KvLink *l);
// For those that take both kinds of stream: *is_block, and the link is read, where one comes next.
Status kvreader_block(KvReader *r, KvLink *l, bool *is_block);
// head.n_tokens ids in [0, n_vocab), valid until the next call.
Status kvreader_tokens(KvReader *r, int n_vocab, const int **tokens);
bool kvreader_more(const KvReader *r);                               // slots are still to come
Status kvreader_rows(KvReader *r, KvChunk *c, const uint8_t **rows); // valid until the next call
// The logits (n_vocab; 0: as many as there are, *n), valid until the next call; NULL where the stream has none.
Status kvreader_last(KvReader *r, int n_vocab, const float **logits, int *n);
// For models with recurrent layers, behind the rows: the next layer's state behind the last slot, valid until the next
// call; NULL: there are no more. n (0: any) floats are expected, *n then says how many there are.
Status kvreader_state(KvReader *r, uint32_t layer, const float **values, size_t *n);
Status kvreader_end(KvReader *r); // leaves what follows the end frame unread
Status kvreader_eof(KvReader *r); // and refuses bytes behind it
void kvreader_free(KvReader *r);
size_t kvreader_offset(size_t field); // the byte where that field of KvHead lies

#endif
