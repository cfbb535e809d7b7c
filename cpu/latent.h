// cpu/latent.h: attention to compressed K and V (MIXER_LATENT): multi-head latent attention, DeepSeek-V2 (2405.04434).
//
// A slot holds [c, kr]: c, normed, is what K and V of every head are made of, kr is the part of K that RoPE turns, one
// for all heads. A head's score is (K_h q) . c + RoPE(q') . kr with K_h its matrix of k_b, and what it finds is
// V_h sum(p c) with V_h of v_b. So Q takes K_h before attention, V_h comes behind it, and in between attention is that
// of n_heads queries to one KV head, whose values are the first elements of its keys.
#ifndef QUILL_CPU_LATENT_H
#define QUILL_CPU_LATENT_H

#include "cpu/matmul.h"

// What Workspace.packed must hold.
size_t latent_packed_bytes(const CpuKernels *k, const Workspace *w);
// w->q (n_heads, v_dim + n_rot) and the rows' slots.
void latent_in(Workspace *w, const Layer *l, KvPool *kv, const Batch *b);
// w->a through v_b: the rows (n_heads * v) that wo takes.
MatmulRows latent_out(Workspace *w, const Layer *l, const Batch *b);

#endif
