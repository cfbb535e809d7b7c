// tokenizer.h: text <-> tokens, from the vocabulary in a model file.
//
// Two kinds: SentencePiece BPE with byte fallback (tokenizer.ggml.model "llama"; "gemma4" merges by ranks, within a
// line) and byte-level BPE ("gpt2") whose text is first cut by the pattern that tokenizer.ggml.pre names. Ids equal
// llama.cpp's. decode(encode(x)) == x for every byte string that the vocabulary can represent. Threads may share a
// loaded tokenizer, except for encoding, which uses scratch memory inside the tokenizer: one thread at a time.
//
// The view of a Hugging Face directory (hf/hf.h) adds quill's own keys. With them ids equal those of the tokenizers
// library, with three exceptions: added tokens marked "normalized" are searched in the text before normalization;
// merges have no dropout; a Split that removes what its pattern does not match keeps it.
// clang-format off
//   quill.tokenizer.patterns       PCRE2 patterns that cut the text, in place of tokenizer.ggml.pre
//   quill.tokenizer.form           NFC, NFD, NFKC or NFKD: the text is normalized to this form before encoding
//   quill.tokenizer.types_hold     the name of a normal token, or of a user-defined </s>, does not make it a control
//                                  token
//   quill.tokenizer.by_merges      SentencePiece text, merged by ranks (tokenizer.ggml.merges) in place of scores
//   quill.tokenizer.ignore_merges  a piece that is itself a token is not merged from smaller ones
//   quill.tokenizer.fuse_unknown   consecutive unknown characters become one unknown token
//   quill.tokenizer.space_prefix   when a space is put in front: always; missing: unless the piece begins with one;
//                                  first: as missing, and only at the beginning of the text
//   quill.tokenizer.strip_left, strip_right  ids of added tokens that absorb the white space beside them
//   quill.tokenizer.last_id        the id that is put after a text, if it is not EOS
//   quill.tokenizer.eog_ids        ids that end an answer, in addition to the usual ones
// clang-format on
#ifndef QUILL_TOKENIZER_H
#define QUILL_TOKENIZER_H

#include "files/gguf.h"

typedef struct Tokenizer Tokenizer;

Status tokenizer_load(const Gguf *g, Tokenizer **out); // QUILL_MODEL: no vocabulary, unknown kind or pattern, broken
void tokenizer_free(Tokenizer *t);                     // NULL is fine

// Encodes n bytes; no BOS or EOS is added. `trusted` has n bytes, non-zero where control tokens may be recognised (the
// text of a template); NULL: no text becomes a control token. Writes at most `max` ids and returns how many ids the
// text needs, as snprintf does. After a result above `max`, call again with more room; tokenizer_bound() ids are
// always enough. SIZE_MAX: nothing was encoded, since the text has 1 GiB or more, divided by the factor by which the
// vocabulary's normal form may grow a text: 1 without a form, 3 or 11 (normalize_growth).
size_t tokenizer_encode(const Tokenizer *t, const char *text, size_t n, const uint8_t *trusted, int *ids, size_t max);
// The same for text that continues after the token `last` (any id of the model): no space is put in front of the text,
// unless `last` is an added token.
size_t tokenizer_encode_after(const Tokenizer *t, int last, const char *text, size_t n, const uint8_t *trusted,
                              int *ids, size_t max);
size_t tokenizer_bound(const Tokenizer *t, size_t n_bytes);

// The bytes that a token adds after another token; they may end inside a UTF-8 character. A control token gives its
// name, which callers print only under --special. Valid until tokenizer_free. id must be in [0, tokenizer_n).
Str tokenizer_piece(const Tokenizer *t, int id);
// The same. With `first` (the text's first token) it leaves out the space that SentencePiece encoding put in front.
Str tokenizer_stream_piece(const Tokenizer *t, int id, bool first);

int tokenizer_n(const Tokenizer *t);                          // vocabulary size
const char *tokenizer_kind(const Tokenizer *t);               // "llama" or "gpt2/llama-bpe"
bool tokenizer_is_control(const Tokenizer *t, int id);        // printed only on request
bool tokenizer_is_eog(const Tokenizer *t, int id);            // end of generation: eos, eot, eom and the known names
int tokenizer_eog_ids(const Tokenizer *t, int *ids, int max); // returns how many there are
// The tokens that no answer may have, as markers of images and sounds; returns how many there are.
int tokenizer_suppressed_ids(const Tokenizer *t, int *ids, int max);
int tokenizer_bos(const Tokenizer *t);             // -1: none
int tokenizer_eos(const Tokenizer *t);             // -1: none
bool tokenizer_add_bos(const Tokenizer *t);        // put BOS in front of a prompt
bool tokenizer_add_eos(const Tokenizer *t);        // put tokenizer_last after a text
int tokenizer_last(const Tokenizer *t);            // EOS, or another id; -1: none
int tokenizer_find(const Tokenizer *t, Str piece); // the lowest id whose text is exactly this, -1: none

// ---- for the tests ----

// Joins tokenizer_stream_piece of all tokens. special: includes the names of control tokens.
void tokenizer_decode(const Tokenizer *t, const int *ids, size_t n, bool special, Buf *out);

#endif
