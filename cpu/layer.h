// cpu/layer.h: the CPU's functions of Backend (kernels.h) for the embedding, the sub-layers and the head.
#ifndef QUILL_CPU_LAYER_H
#define QUILL_CPU_LAYER_H

#include "cpu/cpu.h"

void layer_copy_blocks(Workspace *w, KvPool *kv, const Batch *b);
void layer_embed(Workspace *w, const Backend *be, const Ends *e, const KvPool *kv, const Batch *b);
void layer_narrow(Workspace *w, const int *rows, const Batch *b);
void layer_attn_in(Workspace *w, const Layer *l, KvPool *kv, const Batch *b);
void layer_attn_out(Workspace *w, const Layer *l, const Batch *b);
void layer_ffn_in(Workspace *w, const Layer *l, const Batch *b);
void layer_ffn_out(Workspace *w, const Layer *l, const Batch *b);
void layer_logits(Workspace *w, const Backend *be, const Ends *e, const Batch *b, const int *rows, int n_rows);

// ---- for cpu/latent.c ----

// Rotates a head, or its part with RoPE, by the angles of a row's position.
void layer_turn(const CpuKernels *k, const Workspace *w, const Layer *l, float *head, int row);
// Stores K or V (`value`) of a row's KV head in its slot. A sealed plane is left to seq_rows_seal.
void layer_store(const CpuKernels *k, const Layer *l, const KvPool *kv, const Batch *b, int row, int head, bool value,
                 const float *x);

#endif
