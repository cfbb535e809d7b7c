// tokens/vocab.h: the vocabulary of a model file as tables: pieces as bytes, what merges give, roles, added tokens.
// Only tokenizer.c uses it.
//
// Pieces are plain bytes: U+2581 of SentencePiece becomes a space, and the printable characters that stand for bytes in
// byte-level BPE become these bytes. So text is looked up without translation. Nothing of the file is
// trusted: ids are in range or -1, arrays have an element for each token.
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

// Where SentencePiece's space goes in front of a piece of text between added tokens.
typedef enum {
    SPACE_PREFIX_ALWAYS,
    SPACE_PREFIX_MISSING, // where none is there
    SPACE_PREFIX_FIRST,   // where none is there, and only where the text begins
} SpacePrefix;

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 }; // an added token takes the white space beside it

// An added token: found in the text before anything is split.
typedef struct {
    Str text;
    int id;
} Added;

typedef struct {
    bool spm;        // U+2581 stands for spaces, and bytes have names
    bool types_hold; // no name makes a normal token another one
    bool by_merges;  // merges have ranks; otherwise tokens have scores
    bool fuse_unk;   // unknown characters in a row are one token
    bool add_space_prefix, add_bos, add_eos;
    SpacePrefix prefix;
    int n;
    Str *pieces;       // (n) in `bytes`
    char *bytes;       // of all pieces
    uint8_t *types;    // (n) of GGUF_TOKEN_
    uint8_t *strips;   // (n) of STRIP_; NULL: no token has any
    int bos, eos, unk; // -1: none
    int *eog, n_eog;   // ascending

    HashKey key;
    PieceSlot *by_piece; // every token that merging may give: no control token
    uint32_t by_piece_mask;
    int max_piece;      // bytes of the longest of them
    int byte_id[256];   // -1: no token for the byte
    uint32_t *priority; // (n) by scores: falls as the score rises
    MergeSlot *by_pair; // by merges
    uint32_t by_pair_mask;

    Added *added; // sorted by text, then id
    int n_added, n_user_defined;
    int added_first[257]; // by first byte: added[added_first[c]] up to added[added_first[c + 1]]
} Vocab;

// add_bos: the default if the file does not say. The caller frees v, also after an error.
Status vocab_load(Vocab *v, const Gguf *g, bool spm, bool add_bos);
void vocab_free(Vocab *v);

int vocab_piece(const Vocab *v, const char *s, size_t n); // the token of these bytes that merging may give, -1: none
const MergeSlot *vocab_merge(const Vocab *v, int32_t left, int32_t right); // NULL: they do not merge

// The longest added token that the text starts with and its bytes in n_found; -1: none. User-defined ones are found in
// any text, control tokens only where all their bytes are trusted (NULL: nowhere).
int vocab_added(const Vocab *v, const char *text, size_t n, const uint8_t *trusted, size_t *n_found);
bool vocab_is_control(const Vocab *v, int id);

size_t vocab_decode_spaces(Str s, char *out); // U+2581 to spaces; returns the bytes written, s.n at most

#endif
