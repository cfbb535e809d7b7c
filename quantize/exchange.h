// quantize/exchange.h: what makes the file of a Hugging Face directory right for other programs: the order of rows of
// Q and K, and the standard keys of the tokenizer. What still differs is told in words.
//
//   FileExchange e;
//   exchange_make(g, &e);         // g: the source
//   exchange_copy(&e, g, out);    // its metadata in GGUF's own form; quill's own keys stay beside it
//   if (exchange_moves(&e, tensor))
//       from = exchange_row(&e, row); // the row of the source that is row `row` of the new file
//   exchange_free(&e);
#ifndef QUILL_EXCHANGE_H
#define QUILL_EXCHANGE_H

#include "files/gguf.h"

typedef struct {
    size_t head, n_rot; // rows of a head of Q and K, and those of them that RoPE rotates; n_rot is 0: rows stay
    Gguf *keys;         // keys to add or replace, owned
    Buf differs;        // what other programs read otherwise: "the rows of Q and K; ..."; n is 0: nothing
} FileExchange;

void exchange_make(const Gguf *g, FileExchange *out);
void exchange_copy(const FileExchange *e, const Gguf *g, Gguf *out);
// Whether rows (of a bias: elements) of this tensor change their places.
bool exchange_moves(const FileExchange *e, const GgufTensor *t);
size_t exchange_row(const FileExchange *e, size_t row); // of a tensor that exchange_moves
void exchange_free(FileExchange *e);

#endif
