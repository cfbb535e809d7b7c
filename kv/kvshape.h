// kv/kvshape.h: the shape of a KV cache, and the bytes that a cache of that shape takes.
//
// These functions allocate nothing: a plan of the memory asks them before there is a cache. Counts are of slots and
// blocks, sizes are in bytes. A size that does not fit a size_t is SIZE_MAX.
#ifndef QUILL_KVSHAPE_H
#define QUILL_KVSHAPE_H

#include "kernels.h"

typedef struct {
    int n_layers, n_kv_heads, head_dim; // layers that have K and V of their own
    int v_dim;                          // values of V a slot and head; 0: head_dim
    bool v_in_k;                        // KvPool.v_in_k: V takes no room
    int n_windowed, window;             // of the layers those in KV_WINDOW, and the slots that their rows see
    int window_heads, window_dim;       // n_kv_heads and head_dim of these layers, for V too; 0: as the others'
    int type_k, type_v;
    int block;    // slots a block; 0: contiguous (one block of n_ctx slots a sequence)
    int n_ctx;    // slots one sequence may use
    int n_blocks; // 0: enough for n_seqs sequences of n_ctx
    int n_seqs;
    int n_partners; // blocks of KV_WINDOW; 0, or with `keep`: one for each block
    // Partners stay as long as their blocks do: for those that read a sequence's K and V from its start.
    bool keep_partners;
    bool share;            // sequences that begin alike share blocks; of sealed types where a block is whole groups
    bool rotate;           // KvPool.rotate
    int n_device;          // the last layers, whose planes are in the memory of `be`
    int n_windowed_device; // of them those in KV_WINDOW
    const Backend *be;
    // Layers with a state in place of K and V, which n_layers does not count; 0: none. Each sequence has one state, and
    // n_checkpoints more are for returns, beginnings that are shared, and drafts.
    int n_recurrent;
    Recurrence rec;
    int n_checkpoints;
} KvShape;

// Sets what a model's layers decide: how many there are of each kind, their heads and their window.
void kvshape_set_layers(KvShape *s, const Layer *layers, int n);
size_t kvshape_bytes(const KvShape *s);          // of the whole cache, on the host and on a device
size_t kvshape_host_bytes(const KvShape *s);     // of these, in the host's memory
size_t kvshape_bytes_per_slot(const KvShape *s); // one slot of one sequence, in all layers
// What one more slot of context costs: layers with a window do not count where n_partners limits their blocks.
size_t kvshape_bytes_per_growth(const KvShape *s);
size_t kvshape_host_bytes_per_growth(const KvShape *s); // of these, in the host's memory
size_t kvshape_fixed_bytes(const KvShape *s);           // of kvshape_bytes, what does not grow with the slots
// Blocks of KV_WINDOW that n_seqs sequences of any length need for steps of up to step_rows rows.
int kvshape_partners_needed(const KvShape *s, int step_rows);
// Blocks of KV_WINDOW that one sequence needs at most, besides those of the step's rows: the window may begin and end
// inside a block, and a sealed group is read as a whole.
int64_t kvshape_partners_of_one(int window, int block);
size_t kvshape_state_bytes(const KvShape *s);     // of kvshape_bytes, all states
size_t kvshape_one_state_bytes(const KvShape *s); // that of one sequence
StatePool kvshape_states(const KvShape *s);       // without its memory
// The pool of one kind (KV_FULL, KV_WINDOW) without its memory: sizes and types are set, pointers are NULL.
KvPool kvshape_pool(const KvShape *s, int kind);

#endif
