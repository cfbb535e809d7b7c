// kvcache.h: which block of the KV cache holds which slots of which sequence.
//
// One code path serves two layouts. Contiguous: one block per sequence, as long as the context. Paged: many small
// blocks, allocated as sequences grow. Blocks have reference counts: kvcache_fork shares blocks, and a shared block is
// copied before the first write into it. The bytes of K and V are in KvPool and belong to the backend; this file
// handles indices only.
//
// Shared prefixes (KvShape.share). A block whose slots are all computed gets a name (kv/kvnames.h), a hash of its
// tokens and of all tokens before them. A block that no sequence uses keeps its name until it is allocated again.
// Blocks without a name are allocated first, then the least recently used ones, among those of one sequence the last
// first. A sequence with the same prefix takes such blocks instead of computing them:
//
//   kvcache_match_prefix(kv, &s);                  // the first n_cached slots are found in the cache
//   ... kvcache_reserve, model_forward, kvcache_advance ...
//   kvcache_commit(kv, &s, s.n_cached);            // other sequences may share the full blocks
//
// Windows. Layers with a window store K and V in the pool KV_WINDOW. Each block of KV_FULL gets a block of KV_WINDOW
// when it is allocated, its partner. The partner is freed when no sequence's next row can see its slots, so that a long
// sequence needs few partners. A named block keeps its partner until another block needs it, because a sequence that
// shares the prefix needs the partners of its last `window` slots. If kvcache_truncate returns to slots whose partners
// are gone, all slots of the sequence are computed again. With KvShape.keep_partners a partner is only freed together
// with its block.
//
// Recurrent layers keep a state of each sequence after its last computed token (kv/kvstates.h) in place of K and V.
// kvcache_reserve allocates the state after the coming rows, kvcache_advance makes it the current state of the
// sequence, and kvcache_fork shares it. Blocks keep states as checkpoints: one every certain number
// of slots, one after the last whole block of the known tokens, and wanted ones (SeqStates). kvcache_truncate returns to the last checkpoint
// before the new end, and the tokens after it are computed again. A shared prefix ends at a checkpoint.
//
// Sealed types (kv/kvpool.h) are written in groups of SEAL slots. A shared group is copied as a whole before one of its
// rows is written. kvcache_truncate to a slot inside a sealed group drops all slots of that group; they are computed
// again.
#ifndef QUILL_KVCACHE_H
#define QUILL_KVCACHE_H

#include "kernels.h"
#include "kv/kvnames.h"
#include "kv/seqstates.h"

// Start from (Sequence){0}. tokens holds the prompt and the generated tokens; the first n_cached of them are computed.
// Token i is in slot i until eviction drops slots (kv/evict.h).
typedef struct {
    int *tokens, n_tokens, cap_tokens;
    int *blocks, n_blocks, cap_blocks; // physical block of each logical block
    int n_cached;                      // number of tokens whose K and V were computed
    int n_gone;                        // number of dropped slots (kv/evict.h): the cache holds n_cached - n_gone
    int n_named;                       // leading blocks that kvcache_commit or kvcache_match_prefix has processed
    int n_unseen;                      // leading blocks that its next row does not see in layers with a window
    SeqStates states;                  // of recurrent layers
    bool alone;                        // set by the caller: its blocks are never shared or stored
    bool altered;                      // K and V from token altered_from on are not a prefill's (sequence_alter)
    int altered_from;
} Sequence;

typedef struct {
    int prev, next;
} KvLinks;

typedef struct {
    KvPool pool[KV_KINDS];
    int *refs;                // (n_blocks) number of sequences that use the block
    KvLinks *ring;            // (n_blocks + 1) of free blocks; the last entry is its end: its `next` is allocated next
    int n_free;               // blocks in the ring: those that no sequence uses, named or not
    KvNames names;            // of blocks that sequences may share
    int (*copies)[2];         // pending copies (src, dst) for the next batch, executed in this order before any write
    int (*partner_copies)[2]; // the same for the partners; NULL: no layer has a window
    int n_copies, cap_copies;
    int *free_tails, n_free_tails; // free tail pages of the pool
    int *late, n_late, cap_late;   // blocks released while a copy from them was pending; their tail page and partner
                                   // are freed after the step
    int max_slots;                 // of one sequence: the context length
    int window, chunked;           // Heads.window and chunked of the layers of KV_WINDOW
    bool keep_partners;            // KvShape.keep_partners
    int *partner;                  // (n_blocks) the block's partner in KV_WINDOW, -1: none; NULL: no layer has a window
    int *viewers; // (n_blocks) number of sequences whose next row sees the partner, or may after kvcache_truncate
    int *free_partners, n_free_partners;
    KvStates states; // of recurrent layers
    int hand;        // block where the next search for an unused partner starts (clock hand)
} KvCache;

// Whether sequences with the same prefix share blocks.
static inline bool kvcache_shares(const KvCache *kv) { return kv->names.ids != NULL; }
static inline int sequence_slots(const Sequence *s) { return s->n_cached - s->n_gone; }
// Whether other sequences and --kv-dir may have its blocks: its K and V are those of a prefill, and the caller agrees.
static inline bool sequence_shares(const Sequence *s) { return !s->alone && !s->altered; }
// Number of tokens whose K and V are not computed yet.
static inline int sequence_uncomputed(const Sequence *s) { return s->n_tokens - s->n_cached; }

Status kvcache_new(KvCache *kv, const KvShape *s); // QUILL_MEMORY
// QUILL_USAGE, with the name of the feature, if K or V has a sealed type: its rows cannot be moved one by one.
Status kvcache_check_dense(const KvPool *kv, const char *feature);
// QUILL_USAGE, with the name of the feature, unless each of the model's n_layers has K and V of its own and these have
// the same shape in all layers.
Status kvcache_check_alike(const KvPool kv[KV_KINDS], int n_layers, const char *feature);
// The most sequences that may hold slots at once such that a step of up to step_rows rows always finds partners and
// states for them.
int kvcache_most_sequences(const KvCache *kv, int step_rows);
// Writes the block table of a sequence in a pool, for Batch: (n_blocks), 0 where a partner was freed.
void kvcache_table(const KvCache *kv, const Sequence *s, int kind, int *out);
// The index of a layer in the next two functions and in KV files.
static inline int kvcache_row_layer(const KvCache *kv, const Layer *l) {
    return l->kv_layer + (l->kv_kind == KV_WINDOW ? kv->pool[KV_FULL].n_layers : 0);
}
// kvrows_read and kvrows_write for a sequence. `layer` counts the layers of KV_FULL, then those of KV_WINDOW. No
// partner may have been freed (KvShape.keep_partners).
void kvcache_load_rows(const KvCache *kv, const Sequence *s, int layer, int first, int n, void *out);
void kvcache_store_rows(KvCache *kv, const Sequence *s, int layer, int first, int n, const void *rows);
void kvcache_free(KvCache *kv);

void sequence_alter(Sequence *s, int first);               // K and V from token `first` on are no prefill's any more
void sequence_push(Sequence *s, const int *tokens, int n); // appends tokens whose K and V are not computed yet
// The number of tokens at the beginning of a that are those of b.
static inline int sequence_common(const Sequence *a, const int *b, int n_b) {
    int n = 0, most = int_min(a->n_tokens, n_b);
    while (n < most && a->tokens[n] == b[n]) n++;
    return n;
}
void sequence_free(Sequence *s); // frees the arrays of a sequence without blocks

// Sets the states of a sequence in a batch (Batch.states, state_in, state_out). seq: its index in the batch; first: the
// number of tokens before its rows.
void kvcache_put_states(const KvCache *kv, const Sequence *s, int first, int seq, int first_row, Batch *b);
// The state after the sequence's n_cached tokens, or after its reserved slots (kvcache_reserve_loaded), whose bytes the
// caller then writes with kvstates_store; -1: there is none.
int kvcache_state(const Sequence *s, int n_tokens);

// Makes slots from sequence_slots to n_slots writable: takes free blocks, and copies shared ones that would be written.
// False: no free block, page, partner block, recurrent state or context; nothing changed.
bool kvcache_reserve(KvCache *kv, Sequence *s, int n_slots);
// The same; also reserves states of recurrent layers after each of the last n_drafts slots and after the slot before.
bool kvcache_reserve_drafts(KvCache *kv, Sequence *s, int n_slots, int n_drafts);
// The same for one slot after those of the step that is being computed (scheduler_ahead).
bool kvcache_reserve_ahead(KvCache *kv, Sequence *s, int n_slots);
// The same for slots that the caller fills with loaded K and V. kvcache_state returns the state to fill for n_slots.
// The sequence keeps its old state until kvcache_advance.
bool kvcache_reserve_loaded(KvCache *kv, Sequence *s, int n_slots);
// The next n reserved slots are computed: adds n to n_cached. With recurrent layers a state must exist at the new end.
void kvcache_advance(KvCache *kv, Sequence *s, int n);
// Forgets tokens and slots from n_tokens on. n_cached may become less than n_tokens: with recurrent layers it becomes
// that of the last checkpoint. Forgets all slots if eviction dropped some, since the tokens of the others are unknown,
// or if partners were freed that the next row would see. Without altered slots the sequence is not `altered` any more.
void kvcache_truncate(KvCache *kv, Sequence *s, int n_tokens);
// Drops the last n slots and the blocks that hold nothing else; all K and V count as altered. Before, the caller moves
// the slots to keep to the front.
void kvcache_give_up(KvCache *kv, Sequence *s, int n);
// `to`, which is empty, gets the tokens of `from` and shares all its computed blocks. With sealed types `from` must
// have no reserved slots that are still to be computed: sealing them would write into shared groups.
void kvcache_fork(KvCache *kv, const Sequence *from, Sequence *to);
void sequence_end(KvCache *kv, Sequence *s);    // frees all blocks and the arrays
void kvcache_release(KvCache *kv, Sequence *s); // frees all blocks; tokens stay, n_cached becomes 0, nothing is altered

// Shares the named blocks that hold the next tokens of s, up to the first missing one, and returns the new n_cached.
// Always leaves at least one token to compute. Call it before kvcache_reserve, and again while s waits for a sequence
// that is computing the same tokens. Does nothing if the cache shares nothing, or if n_cached is inside a block.
int kvcache_match_prefix(KvCache *kv, Sequence *s);
// Slots [0, n_slots) of s are computed: names the full blocks among them. If two blocks have the same name, the index
// holds the first.
void kvcache_commit(KvCache *kv, Sequence *s, int n_slots);

// ---- for the tests ----

// Changes the order in which free blocks are allocated. No result may depend on it.
void kvcache_shuffle(KvCache *kv, uint64_t seed);

#endif
