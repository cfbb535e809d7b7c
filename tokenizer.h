// tokenizer.h: text <-> tokens, from the vocabulary in a model file.
//
// Two kinds: SentencePiece BPE with byte fallback (tokenizer.ggml.model "llama") and byte-level BPE ("gpt2") whose text
// is first cut by the pattern that tokenizer.ggml.pre names. Ids equal llama.cpp's; decode(encode(x)) == x for every
// byte string the vocabulary can say. After tokenizer_load threads may share it, except for encoding,
// which uses scratch memory inside: one thread at a time.
//
// Keys of our own, which the view of a Hugging Face directory has (hf/hf.h). Ids equal those of the tokenizers library
// then, but for added tokens that are "normalized": they are found in the text as it is.
//   quill.tokenizer.patterns       PCRE2 patterns that cut the text, in place of tokenizer.ggml.pre
//   quill.tokenizer.form           NFC, NFD, NFKC, NFKD: text is put into this form first; decode gives it in that form
//   quill.tokenizer.types_hold     token_type is right: no name makes a normal token a control token or a byte
//   quill.tokenizer.by_merges      SentencePiece's text, merged by ranks (tokenizer.ggml.merges) in place of scores
//   quill.tokenizer.ignore_merges  a piece that is a token is taken whole
//   quill.tokenizer.fuse_unknown   unknown characters in a row are one token
//   quill.tokenizer.space_prefix   the space in front: always, missing (where none is), first (where the text begins)
//   quill.tokenizer.strip_left, strip_right  ids of added tokens that take the white space beside them
//   quill.tokenizer.eog_ids        ids that end an answer, besides the usual ones
#ifndef QUILL_TOKENIZER_H
#define QUILL_TOKENIZER_H

#include "files/gguf.h"

typedef struct Tokenizer Tokenizer;

Status tokenizer_load(const Gguf *g, Tokenizer **out); // QUILL_MODEL: no vocabulary, unknown kind or pattern, broken
void tokenizer_free(Tokenizer *t);                     // NULL is fine

// Encodes n bytes; no BOS or EOS is added. `trusted` (n bytes, non-zero where control tokens may be recognised: the
// text of a template) or NULL for none: then no text becomes a control token. Writes at most `max` ids and returns how
// many the text needs (as snprintf does): a result above max means call again with more room; tokenizer_bound() is
// enough. SIZE_MAX: nothing was encoded, the text has 1 GiB or more.
size_t tokenizer_encode(const Tokenizer *t, const char *text, size_t n, const uint8_t *trusted, int *ids, size_t max);
// The same for text that continues after the token `last` (any id of the model): no space is put in front of the text,
// unless `last` is an added token.
size_t tokenizer_encode_after(const Tokenizer *t, int last, const char *text, size_t n, const uint8_t *trusted,
                              int *ids, size_t max);
size_t tokenizer_bound(const Tokenizer *t, size_t n_bytes);

// The bytes of one token, as they follow another token; may end inside a UTF-8 character. Control tokens give their
// name (callers print it only under --special). Valid until tokenizer_free. id must be in [0, tokenizer_n).
Str tokenizer_piece(const Tokenizer *t, int id);
// The same; of a text's first token (`first`) without the one space that encoding put in front of it (SentencePiece).
Str tokenizer_stream_piece(const Tokenizer *t, int id, bool first);

int tokenizer_n(const Tokenizer *t);                          // vocabulary size
const char *tokenizer_kind(const Tokenizer *t);               // "llama" or "gpt2/llama-bpe"
bool tokenizer_is_control(const Tokenizer *t, int id);        // printed only on request
bool tokenizer_is_eog(const Tokenizer *t, int id);            // end of generation: eos, eot, eom and the known names
int tokenizer_eog_ids(const Tokenizer *t, int *ids, int max); // returns how many there are
int tokenizer_bos(const Tokenizer *t);                        // -1: none
int tokenizer_eos(const Tokenizer *t);                        // -1: none
bool tokenizer_add_bos(const Tokenizer *t);                   // put BOS in front of a prompt
bool tokenizer_add_eos(const Tokenizer *t);

// ---- for the tests ----

int tokenizer_find(const Tokenizer *t, const char *piece); // the lowest id whose text is exactly this, -1: none
// Decodes a whole sequence: its tokenizer_stream_piece joined. special: control tokens give their names too.
void tokenizer_decode(const Tokenizer *t, const int *ids, size_t n, bool special, Buf *out);

#endif
