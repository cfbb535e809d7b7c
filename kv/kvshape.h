// kv/kvshape.h: the shape of a KV cache, and how many bytes a cache of that shape takes.
//
// These functions allocate nothing; memory planning calls them before a cache exists. Sizes are in bytes. A size that
// overflows size_t is SIZE_MAX.
#ifndef QUILL_KVSHAPE_H
#define QUILL_KVSHAPE_H

#include "layer.h"
#include "kv/kvpool.h"

typedef struct {
    int n_layers, n_kv_heads, head_dim; // n_layers: layers that store K and V of their own
    int v_dim;                          // elements of V per slot and head; 0: head_dim
    bool v_in_k;                        // KvPool.v_in_k: V takes no memory
    int n_windowed, window;             // how many of the layers are in KV_WINDOW, and the slots that their rows see
    int chunked;                        // Heads.chunked of these layers
    int window_heads, window_dim;       // n_kv_heads and head_dim of these layers, also for V; 0: as the other layers'
    int type_k, type_v;
    int block;    // slots per block; 0: contiguous (one block of n_ctx slots per sequence)
    int n_ctx;    // slots that one sequence may use
    int n_blocks; // 0: enough for n_seqs sequences of n_ctx
    int n_seqs;
    int n_partners; // blocks of KV_WINDOW; 0, or with keep_partners: one for each block of KV_FULL
    // Partners (kvcache.h) stay as long as their blocks: for callers that read all K and V of a sequence.
    bool keep_partners;
    bool share;             // sequences with the same prefix share blocks; sealed types: if a block is whole groups
    bool rotate;            // KvPool.rotate
    int n_device;           // how many layers, the last ones, have their planes in the memory of `be`
    int n_windowed_device;  // how many of these are in KV_WINDOW
    int n_recurrent_device; // how many recurrent layers, the last ones, have their states there
    const Backend *be;
    // Layers with a state in place of K and V, not counted in n_layers; 0: none. The cache has one state for each
    // sequence, and n_checkpoints more for truncation, shared prefixes and drafts.
    int n_recurrent;
    Recurrence rec;
    int n_checkpoints;
    // A sequence also keeps the states after so many of its last tokens: for callers that often truncate by a few
    // tokens. They cost n_back + 1 states a sequence.
    int n_back;
} KvShape;

// Sets the fields that a model's layers decide: the number of layers of each kind, their heads and their window.
void kvshape_set_layers(KvShape *s, const Layer *layers, int n);
// Sets how many layers of each kind are on a device that computes the last n_device of all n layers.
void kvshape_set_device(KvShape *s, const Layer *layers, int n, int n_device);
size_t kvshape_bytes(const KvShape *s);          // the whole cache, on the host and on a device
size_t kvshape_host_bytes(const KvShape *s);     // the part in the host's memory
size_t kvshape_bytes_per_slot(const KvShape *s); // one slot of one sequence, in all layers
// Bytes that one more slot of context needs: layers with a window do not count if n_partners limits their blocks.
size_t kvshape_bytes_per_growth(const KvShape *s);
size_t kvshape_host_bytes_per_growth(const KvShape *s); // the part in the host's memory
size_t kvshape_fixed_bytes(const KvShape *s);           // the part of kvshape_bytes that does not grow with the slots
size_t kvshape_host_fixed_bytes(const KvShape *s);      // the part of it in the host's memory
int kvshape_blocks_of_one(const KvShape *s);            // blocks of one sequence of n_ctx slots
// Blocks of KV_WINDOW that n_seqs sequences of any length need for steps of up to step_rows rows.
int kvshape_partners_needed(const KvShape *s, int step_rows);
// The most blocks of KV_WINDOW that one sequence needs, without those of the step's rows: the window may begin and end
// inside a block, and a sealed group is read as a whole.
int64_t kvshape_partners_of_one(int window, int block);
size_t kvshape_state_bytes(const KvShape *s);     // all recurrent states; a part of kvshape_bytes
size_t kvshape_one_state_bytes(const KvShape *s); // the state of one sequence, in all recurrent layers
int kvshape_states_of_one(const KvShape *s);      // states that one sequence needs at once
StatePool kvshape_states(const KvShape *s);       // sizes are set, data is NULL
// The pool of one kind (KV_FULL, KV_WINDOW) without its memory: sizes and types are set, pointers are NULL.
KvPool kvshape_pool(const KvShape *s, int kind);

#endif
