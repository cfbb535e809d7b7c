// tokens/pretokenize.h: cuts text into the pieces that BPE merges one by one, by the patterns that a vocabulary's
// tokenizer.ggml.pre names, or by its own. tokenizer.c uses it; quantize/pre_name.c compares the patterns.
//
//   Pretokenizer *p = pretokenizer_new(str_of("llama-bpe"));        // NULL: no such name
//   const PretokenPiece *piece = pretokenizer_split(p, text, n, &n_pieces); // joined, the pieces are the text
//
// A pre-tokenizer is a list of patterns. Each pattern cuts the pieces that the previous one left: a match becomes a
// piece, and so does the text between two matches. An empty match cuts the text where it is. A pattern sees only the
// piece that it cuts. Invalid UTF-8 is never matched: a run of invalid bytes is a piece of its own.
#ifndef QUILL_PRETOKENIZE_H
#define QUILL_PRETOKENIZE_H

#include "base/base.h"

typedef struct Pretokenizer Pretokenizer;

typedef struct {
    int begin, end; // bytes, of the text that was split
    bool valid;     // UTF-8
} PretokenPiece;

Pretokenizer *pretokenizer_new(Str name); // by any of its names
// From a vocabulary's own PCRE2 patterns. QUILL_MODEL: a pattern does not compile, or there are too many. The time that
// such a pattern takes is unknown: if the matches of a split need too many steps together, the rest of the piece is not
// cut.
Status pretokenizer_of_patterns(const Str *patterns, size_t n, Pretokenizer **out);
void pretokenizer_free(Pretokenizer *p); // NULL is fine
void pretokenizer_names(Buf *out);       // one name of each, separated by spaces

bool pretokenizer_ignores_merges(const Pretokenizer *p); // a piece that is itself a token is not split
bool pretokenizer_adds_bos(const Pretokenizer *p);       // the default if the file does not say

// n is below INT32_MAX. The pieces stay valid until the next call. The first call compiles the patterns.
const PretokenPiece *pretokenizer_split(Pretokenizer *p, const char *text, int n, int *n_pieces);

#endif
