// cpu/latent.h: multi-head latent attention (MIXER_LATENT; DeepSeek-V2, arXiv 2405.04434) on the CPU.
//
// A slot holds [c, kr]: c is the normalised latent vector from which K and V of every head follow; kr is the rotated
// part of K, shared by all heads. The score of head h is (K_h q) . c + RoPE(q') . kr, its output V_h sum(p c), where
// K_h and V_h are the head's matrices of k_b and v_b. Therefore Q is multiplied by K_h, attention runs with n_heads
// query heads and one KV head whose values are the first elements of its keys, and its output is multiplied by V_h: the
// absorbed form.
#ifndef QUILL_CPU_LATENT_H
#define QUILL_CPU_LATENT_H

#include "cpu/matmul.h"

// The bytes of Workspace.packed that this mixer needs.
size_t latent_packed_bytes(const CpuKernels *k, const Workspace *w);
// Computes w->q (rows, n_heads, n + n_rot) in rows of q_dim, with RoPE, and writes [c, kr] of the rows into their
// slots.
void latent_in(Workspace *w, const Layer *l, KvPool *kv, const Batch *b);
// Attention: the rows (n_heads * v) of latent_out. Sequences with many rows use the expanded form
// (cpu/latent_expand.h). With a callback `attended` w->q and w->a have the heads of the absorbed form.
void latent_attend(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b);
// Returns the rows (n_heads * v) that are the input of wo.
MatmulRows latent_out(Workspace *w, const Layer *l, const Batch *b);

#endif
