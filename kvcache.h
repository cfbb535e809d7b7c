// kvcache.h: which block holds which slots of which sequence.
//
// One code path, two layouts. Contiguous is a block as long as the context: one block a sequence. Paged is many small
// blocks handed out as sequences grow. Blocks are counted: kv_fork shares them, and the first write into a shared one
// copies it. The bytes themselves are in KvPool and belong to the backend; this file knows numbers only.
//
// Shared prefixes. Where KvShape.share asks for it, a block whose slots are all computed gets a name (chain.h) that
// stands for its tokens and for all tokens before them. It keeps the name when its last sequence lets go of it, until
// it is handed out again: blocks without a name first, then those unused for longest, of one sequence the last first. A
// sequence that begins alike takes such blocks instead of computing them:
//
//   kvcache_match_prefix(kv, &s);                  // n_cached slots are there already
//   ... kv_reserve, model_forward, n_cached goes on ...
//   kvcache_commit(kv, &s, s.n_cached);            // what is full now can be shared
//
// Windows. Layers whose rows see a window alone store K and V in the pool KV_WINDOW. When a block of KV_FULL is taken,
// it gets one block of KV_WINDOW, its partner. The partner is given back when no sequence's next row can see its slots,
// so that long sequences need few of them. A named block keeps its partner until another block needs it, because a
// sequence that shares the prefix needs the partners of its last `window` slots. If kv_truncate goes back to where
// partners are gone, all slots of the sequence are computed again. KvShape.keep: no partner is given back before its
// block.
//
// Sealed types (kernels.h) are written by groups of SEAL slots: a group that is shared is copied whole before a row of
// it is written, and kv_truncate to the inside of a group that is sealed forgets that group's slots, which are computed
// again.
#ifndef QUILL_KVCACHE_H
#define QUILL_KVCACHE_H

#include "kv/chain.h"
#include "kernels.h"
#include "kv/kvrows.h"

// Start from (Sequence){0}. tokens holds the prompt and what was generated; the first n_cached of them are computed.
// Token i lies in slot i until slots are given up (evict.h).
typedef struct {
    int *tokens, n_tokens, cap_tokens;
    int *blocks, n_blocks, cap_blocks; // physical block of each logical block
    int n_cached;                      // tokens whose K and V were computed
    int n_gone;                        // slots given up: the cache holds n_cached - n_gone
    int n_named;                       // leading blocks that kv_commit or kv_match_prefix has seen
    int n_unseen;                      // leading blocks that its next row does not see in layers with a window
    bool own;                          // its K and V do not follow from its tokens alone (eviction): never shared
} Sequence;

// What is known of a block besides its slots.
typedef struct {
    int prev, next;    // in the ring of free blocks
    int same_bucket;   // the next block of its bucket of the index; -1: none
    bool named, found; // it has a name; the index leads to it
    ChainHash name, parent;
} KvBlock;

typedef struct {
    KvPool pool[KV_KINDS];
    int *refs;        // (n_blocks) sequences that use the block
    KvBlock *blocks;  // (n_blocks + 1) the last one closes the ring: its next is the first to be handed out
    int n_free;       // in the ring: blocks that no sequence uses, with names and without
    int *ids;         // (n_blocks, block) the tokens of named blocks; NULL: nothing is shared
    int *buckets;     // (n_buckets) the index: the first block of each bucket; -1: none
    int n_buckets;    // a power of two
    ChainHash root;   // where the names begin: zeros, or what stands for the model, before the first block is named
    int (*copies)[2]; // pending copies (src, dst) for the next batch, to be made in this order before anything is
                      // written
    int (*partner_copies)[2]; // those of the partners; NULL: no layer has a window
    int n_copies, cap_copies;
    int *free_tails, n_free_tails; // pages of the pool
    int *late, n_late, cap_late;   // blocks that went while a copy of them was pending: their pages go after it
    int max_slots;                 // of one sequence: the context
    int window;                    // slots that a row sees in the layers of KV_WINDOW
    bool keep;                     // KvShape.keep
    int *partner; // (n_blocks) the block of KV_WINDOW that goes with it, -1: none; NULL: no such layers
    int *viewers; // (n_blocks) sequences whose next row sees the partner, or may after kv_truncate
    int *free_partners, n_free_partners;
    int hand; // where the search for a partner that nobody sees goes on
} KvCache;

typedef struct {
    int n_layers, n_kv_heads, head_dim;
    int n_windowed, window; // of the layers those in KV_WINDOW, and the slots that their rows see
    int type_k, type_v;
    int block;    // slots a block; 0: contiguous (one block of n_ctx slots a sequence)
    int n_ctx;    // slots one sequence may use
    int n_blocks; // 0: enough for n_seqs sequences of n_ctx
    int n_seqs;
    int n_partners; // blocks of KV_WINDOW; 0, or with `keep`: one for each block
    bool keep;      // partners stay as long as their blocks do: for those that read a sequence's K and V from its start
    bool share;     // sequences that begin alike share blocks; of sealed types where a block is whole groups
    bool rotate;    // KvPool.rotate
    int n_device;   // the last layers, whose planes are in the memory of `be`
    int n_windowed_device; // of them those in KV_WINDOW
    const Backend *be;
} KvShape;

static inline int sequence_slots(const Sequence *s) { return s->n_cached - s->n_gone; }

size_t kvcache_bytes(const KvShape *s);      // what kv_new would reserve in all; SIZE_MAX when it does not fit a size_t
size_t kvcache_host_bytes(const KvShape *s); // of them, in the host's memory
size_t kvcache_bytes_per_slot(const KvShape *s); // of all layers
// What one more slot of context costs: layers with a window do not count where n_partners limits their blocks.
size_t kvcache_bytes_per_growth(const KvShape *s);
size_t kvcache_host_bytes_per_growth(const KvShape *s); // of it, in the host's memory
// Blocks of KV_WINDOW that n_seqs sequences of any length need for steps of up to step_rows rows.
int kvcache_partners_needed(const KvShape *s, int step_rows);
size_t kvcache_fixed_bytes(const KvShape *s);      // of kv_bytes, what does not grow with the slots
Status kvcache_new(KvCache *kv, const KvShape *s); // QUILL_MEMORY
// For those that move rows as they are stored: QUILL_USAGE, in the words of `who`, where K or V is of a sealed type.
Status kvcache_check_dense(const KvPool *kv, const char *who);
// How many sequences may hold slots at once so that each step of up to step_rows rows finds partners for them.
int kvcache_most_sequences(const KvCache *kv, int step_rows);
// The block table of a sequence in a pool, for Batch: (n_blocks), 0 where a partner is gone.
void kvcache_table(const KvCache *kv, const Sequence *s, int kind, int *out);
// kvrows_read and kvrows_write of a sequence, with layers counted over both pools, KV_FULL's first. Partners must be
// there (KvShape.keep).
void kvcache_load_rows(const KvCache *kv, const Sequence *s, int layer, int first, int n, void *out);
void kvcache_store_rows(KvCache *kv, const Sequence *s, int layer, int first, int n, const void *rows);
void kvcache_free(KvCache *kv);

void sequence_push(Sequence *s, const int *tokens, int n); // appends tokens whose K and V are not computed yet
void sequence_free(Sequence *s);                           // the arrays; kv_release first

// Makes slots from sequence_slots to n_slots writable: takes free blocks, and copies shared ones that would be written.
bool kvcache_reserve(KvCache *kv, Sequence *s, int n_slots); // false: no free block, page or context; nothing changed
// Forgets tokens and slots from n_tokens on; all slots where some were given up, since no one knows which those are, or
// where partners are gone that the next row would see.
void kvcache_truncate(KvCache *kv, Sequence *s, int n_tokens);
// The slots that stay have been moved to the front: the last n go, with the blocks behind them.
void kvcache_give_up(KvCache *kv, Sequence *s, int n);
// `to` is empty; shares all computed blocks. Of sealed types, `from` has reserved no slots that are still to be
// computed: they would be sealed under the other's hands.
void kvcache_fork(KvCache *kv, const Sequence *from, Sequence *to);
void kvcache_release(KvCache *kv, Sequence *s); // gives all blocks back; tokens stay, n_cached becomes 0

// Takes the blocks that there are for the next tokens of s, as many as follow each other without a gap, and returns its
// n_cached, which lies at a block's end then; never all tokens: at least one is left to compute. To be called before
// kv_reserve, and again while a sequence waits for another one that is computing the same tokens. Where nothing is
// shared, or n_cached lies inside a block, nothing happens.
int kvcache_match_prefix(KvCache *kv, Sequence *s);
// Slots [0, n_slots) of s are computed: its full blocks among them get their names. Of two blocks with one name the
// first is found.
void kvcache_commit(KvCache *kv, Sequence *s, int n_slots);
// Gives the free blocks out in another order: tests show that results do not depend on it.
void kvcache_shuffle(KvCache *kv, uint64_t seed);

#endif
