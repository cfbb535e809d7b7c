// kvcache.h: which block holds which slots of which sequence.
//
// One code path, two layouts. Contiguous is a block as long as the context: one block a sequence. Paged is many small
// blocks handed out as sequences grow. Blocks are counted: kvcache_fork shares them, and the first write into a shared
// one copies it. The bytes themselves are in KvPool and belong to the backend; this file knows numbers only.
//
// Shared prefixes. Where KvShape.share asks for it, a block whose slots are all computed gets a name (kv/chain.h) that
// stands for its tokens and for all tokens before them. It keeps the name when its last sequence lets go of it, until
// it is handed out again: blocks without a name first, then those unused for longest, of one sequence the last first. A
// sequence that begins alike takes such blocks instead of computing them:
//
//   kvcache_match_prefix(kv, &s);                  // n_cached slots are there already
//   ... kvcache_reserve, model_forward, n_cached goes on ...
//   kvcache_commit(kv, &s, s.n_cached);            // what is full now can be shared
//
// Windows. Layers whose rows see a window alone store K and V in the pool KV_WINDOW. When a block of KV_FULL is taken,
// it gets one block of KV_WINDOW, its partner. The partner is given back when no sequence's next row can see its slots,
// so that long sequences need few of them. A named block keeps its partner until another block needs it, because a
// sequence that shares the prefix needs the partners of its last `window` slots. If kvcache_truncate goes back to where
// partners are gone, all slots of the sequence are computed again. KvShape.keep_partners: no partner is given
// back before its block.
//
// Recurrent layers have a state of each sequence behind its last computed token (kv/kvstates.h) in place of K and V.
// kvcache_reserve takes a place for the state behind the rows to come, kvcache_advance makes it the sequence's, and
// kvcache_fork shares it. Blocks keep checkpoints: behind every so many slots, and behind the last whole block of the
// known tokens. kvcache_truncate returns to the last checkpoint in front of the place, so that the tokens from there on
// are computed again; a beginning that is shared ends at a checkpoint.
//
// Sealed types (kernels.h) are written by groups of SEAL slots: a group that is shared is copied whole before a row of
// it is written, and kvcache_truncate to the inside of a group that is sealed forgets that group's slots, which are
// computed again.
#ifndef QUILL_KVCACHE_H
#define QUILL_KVCACHE_H

#include "kv/chain.h"
#include "kv/seqstates.h"

// Start from (Sequence){0}. tokens holds the prompt and what was generated; the first n_cached of them are computed.
// Token i lies in slot i until slots are given up (kv/evict.h).
typedef struct {
    int *tokens, n_tokens, cap_tokens;
    int *blocks, n_blocks, cap_blocks; // physical block of each logical block
    int n_cached;                      // tokens whose K and V were computed
    int n_gone;                        // slots given up (kv/evict.h): the cache holds n_cached - n_gone
    int n_named;                       // leading blocks that kvcache_commit or kvcache_match_prefix has seen
    int n_unseen;                      // leading blocks that its next row does not see in layers with a window
    SeqStates states;                  // of recurrent layers
    bool own;                          // eviction changed its K and V: its blocks are never shared
} Sequence;

// A block's place in the lists, and its name.
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
    int *late, n_late, cap_late;   // blocks released while a copy from them was pending: their pages go after the step
    int max_slots;                 // of one sequence: the context
    int window;                    // slots that a row sees in the layers of KV_WINDOW
    bool keep_partners;            // KvShape.keep_partners
    int *partner; // (n_blocks) the block of KV_WINDOW that goes with it, -1: none; NULL: no such layers
    int *viewers; // (n_blocks) sequences whose next row sees the partner, or may after kvcache_truncate
    int *free_partners, n_free_partners;
    KvStates states; // of recurrent layers
    int hand;        // where the search for a partner that no sequence sees continues
} KvCache;

static inline int sequence_slots(const Sequence *s) { return s->n_cached - s->n_gone; }

Status kvcache_new(KvCache *kv, const KvShape *s); // QUILL_MEMORY
// QUILL_USAGE, with the name of the feature, if K or V is of a sealed type: rows of groups cannot be moved one by one.
Status kvcache_check_dense(const KvPool *kv, const char *feature);
// QUILL_USAGE, with the name of the feature, unless each of the model's n_layers has K and V of its own and all of them
// one shape.
Status kvcache_check_alike(const KvPool kv[KV_KINDS], int n_layers, const char *feature);
// How many sequences may hold slots at once so that each step of up to step_rows rows finds partners for them.
int kvcache_most_sequences(const KvCache *kv, int step_rows);
// The block table of a sequence in a pool, for Batch: (n_blocks), 0 where a partner is gone.
void kvcache_table(const KvCache *kv, const Sequence *s, int kind, int *out);
// kvrows_read and kvrows_write of a sequence, with layers counted over both pools, KV_FULL's first. Partners must be
// there (KvShape.keep_partners).
void kvcache_load_rows(const KvCache *kv, const Sequence *s, int layer, int first, int n, void *out);
void kvcache_store_rows(KvCache *kv, const Sequence *s, int layer, int first, int n, const void *rows);
void kvcache_free(KvCache *kv);

void sequence_push(Sequence *s, const int *tokens, int n); // appends tokens whose K and V are not computed yet
void sequence_free(Sequence *s);                           // the arrays; kvcache_release first

// The states of a sequence's rows in a step, for Batch: its number there, its first row.
void kvcache_put_states(const KvCache *kv, const Sequence *s, int seq, int first_row, Batch *b);
// A layer's state behind the sequence's n_cached tokens, to be read, or behind its reserved slots, to be written by
// those who bring it; NULL: it is not there.
float *kvcache_state(const KvCache *kv, const Sequence *s, int n_tokens, int layer);

// Makes slots from sequence_slots to n_slots writable: takes free blocks, and copies shared ones that would be written.
bool kvcache_reserve(KvCache *kv, Sequence *s, int n_slots); // false: no free block, page or context; nothing changed
// The same; recurrent layers keep the states behind each of the last n_drafts slots and behind the one before them.
bool kvcache_reserve_drafts(KvCache *kv, Sequence *s, int n_slots, int n_drafts);
// The same where the slots are filled from elsewhere: kvcache_state is there for n_slots, and nothing of the sequence
// has changed until kvcache_advance.
bool kvcache_reserve_loaded(KvCache *kv, Sequence *s, int n_slots);
// The next n reserved slots are computed: n_cached goes on. Recurrent layers: to where a state is.
void kvcache_advance(KvCache *kv, Sequence *s, int n);
// Forgets tokens and slots from n_tokens on. n_cached may become less: with recurrent layers the next checkpoint's.
// Forgets all slots if some were given up, since the tokens of the others are unknown, or if partners are gone that the
// next row would see.
void kvcache_truncate(KvCache *kv, Sequence *s, int n_tokens);
// Drops the last n slots and the blocks that hold nothing else. The caller has moved the slots that stay to the front.
void kvcache_give_up(KvCache *kv, Sequence *s, int n);
// `to`, which is empty, gets the tokens of `from` and shares all its computed blocks. With sealed types `from` must
// have no reserved slots that are still to be computed: sealing them would write into shared groups.
void kvcache_fork(KvCache *kv, const Sequence *from, Sequence *to);
void kvcache_release(KvCache *kv, Sequence *s); // gives all blocks back; tokens stay, n_cached becomes 0

// Shares the named blocks that hold the next tokens of s, up to the first gap, and returns the new n_cached. At least
// one token is left to compute. Call it before kvcache_reserve, and again while s waits for a sequence that is
// computing the same tokens. Does nothing if the cache shares nothing, or if n_cached lies inside a block.
int kvcache_match_prefix(KvCache *kv, Sequence *s);
// Slots [0, n_slots) of s are computed: the full blocks among them get names. Of two blocks with one name, the index
// leads to the first.
void kvcache_commit(KvCache *kv, Sequence *s, int n_slots);

// ---- for the tests ----

// Hands out free blocks in another order, on which no result may depend.
void kvcache_shuffle(KvCache *kv, uint64_t seed);

#endif
