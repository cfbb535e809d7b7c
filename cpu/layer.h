// cpu/layer.h: the CPU's functions of Backend (kernels.h) for the embedding, the sub-layers and the head.
#ifndef QUILL_CPU_LAYER_H
#define QUILL_CPU_LAYER_H

#include "kernels.h"

void layer_copy_blocks(Workspace *w, KvPool *kv, const Batch *b);
void layer_embed(Workspace *w, const Backend *be, const Ends *e, const KvPool *kv, const Batch *b);
void layer_narrow(Workspace *w, const int *rows, const Batch *b);
void layer_attn_in(Workspace *w, const Layer *l, KvPool *kv, const Batch *b);
void layer_attention(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b);
void layer_attn_out(Workspace *w, const Layer *l, const Batch *b);
void layer_ffn_in(Workspace *w, const Layer *l, const Batch *b);
void layer_ffn_out(Workspace *w, const Layer *l, const Batch *b);
void layer_logits(Workspace *w, const Backend *be, const Ends *e, const Batch *b, const int *rows, int n_rows);
void layer_hidden(Workspace *w, const Backend *be, const Ends *e, int n_rows);

#endif
