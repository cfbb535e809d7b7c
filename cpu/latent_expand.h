// cpu/latent_expand.h: attention to compressed K and V in the expanded form, for the many rows of a prompt.
//
// cpu/latent.h describes the absorbed form: queries are mapped into the space of the latent vector, whose heads have
// rank + n_rot elements (576 in DeepSeek-V2). Here K and V of each head are computed from the latent vectors of the
// cache instead, and rows attend to heads of their own sizes (192 and 128). That costs a product for each slot, and
// saves two products for each row and about 70% of the multiplications of attention. It pays if many rows share the
// slots.
//
// Slots are expanded in pieces. The parts of a row's attention are combined by the logarithms of their weights. All
// intermediate values are in Workspace.latent, which the absorbed form uses for its rows.
#ifndef QUILL_CPU_LATENT_EXPAND_H
#define QUILL_CPU_LATENT_EXPAND_H

#include "cpu/seq_rows.h"

// Whether the expanded form is possible and faster for the rows of a sequence. Always false with sealed types of KV,
// with callbacks or a probe, for --deterministic, and with the scalar kernels.
bool latent_expand_pays(const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const SequenceRows *r);
// w->a (rows, n_heads * v) = attention of w->q (rows, n_heads, query_dim) in rows of q_dim. The batch has only the
// rows of r.
void latent_expand_attend(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const SequenceRows *r);

#endif
