// tokens/vocab.h: the vocabulary of a model file as tables: the bytes of pieces, merges, roles, added tokens. Only
// tokenizer.c uses it.
//
// Pieces are plain bytes: SentencePiece's U+2581 becomes a space, and the printable characters that stand for bytes in
// byte-level BPE become these bytes. Text is therefore looked up without translation. The file is not trusted: after
// loading, ids are in range or -1, and arrays have an element for each token.
#ifndef QUILL_VOCAB_H
#define QUILL_VOCAB_H

#include "files/gguf.h"
#include "base/hash.h"

typedef struct {
    uint32_t hash;
    int32_t id_plus_1; // 0: free
} PieceSlot;

typedef struct {
    int32_t left, right, merged;
    uint32_t rank_plus_1; // 0: free
} MergeSlot;

// When SentencePiece encoding puts a space in front of a piece of text between added tokens.
typedef enum {
    SPACE_PREFIX_ALWAYS,
    SPACE_PREFIX_MISSING, // unless the piece begins with a space
    SPACE_PREFIX_FIRST,   // as MISSING, and only at the beginning of the text
} SpacePrefix;

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 }; // an added token absorbs the white space before it, or after it

// An added token: found in the text before anything is split.
typedef struct {
    Str text;
    int id;
} Added;

typedef struct {
    bool spm;        // SentencePiece: U+2581 stands for spaces, and byte tokens are named "<0xNN>"
    bool types_hold; // a normal token stays normal, whatever its name is, and </s> may be text
    bool by_merges;  // merges have ranks; otherwise tokens have scores
    bool fuse_unk;   // unknown characters in a row are one token
    bool add_space_prefix, add_bos, add_eos;
    SpacePrefix prefix;
    int n;
    Str *pieces;         // (n) views of `bytes`
    char *bytes;         // the bytes of all pieces
    uint8_t *types;      // (n) GGUF_TOKEN_ values
    uint8_t *strips;     // (n) STRIP_ bits; NULL: no token has any
    int bos, eos, unk;   // -1: none
    int last;            // put after a text in place of eos; -1: none
    int *eog, n_eog;     // ascending
    int32_t *suppressed; // tokens that no answer may have
    size_t n_suppressed;

    HashKey key;
    PieceSlot *by_piece; // every token that merging may produce; no control tokens
    uint32_t by_piece_mask;
    int max_piece;      // bytes of the longest of these tokens
    int byte_id[256];   // -1: no token for the byte
    uint32_t *priority; // (n) without by_merges: the lower, the higher the token's score
    MergeSlot *by_pair; // with by_merges
    uint32_t by_pair_mask;

    Added *added; // sorted by text, then id
    int n_added, n_user_defined;
    int added_first[257]; // by first byte: added[added_first[c]] up to added[added_first[c + 1]]
} Vocab;

// add_bos: the default if the file does not say. The caller frees v, also after an error.
Status vocab_load(Vocab *v, const Gguf *g, bool spm, bool add_bos);
void vocab_free(Vocab *v);

int vocab_piece(const Vocab *v, const char *s,
                size_t n); // the token with these bytes that merging may produce; -1: none
const MergeSlot *vocab_merge(const Vocab *v, int32_t left, int32_t right); // NULL: they do not merge

// The longest added token that the text begins with; *n_found is its length. -1: none. User-defined tokens are found in
// any text, control tokens only if all their bytes are trusted (trusted NULL: no byte is).
int vocab_added(const Vocab *v, const char *text, size_t n, const uint8_t *trusted, size_t *n_found);
bool vocab_is_control(const Vocab *v, int id);

size_t vocab_decode_spaces(Str s, char *out); // U+2581 to spaces; returns the bytes written, s.n at most

#endif
