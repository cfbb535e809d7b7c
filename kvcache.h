// kvcache.h: which block holds which slots of which sequence.
//
// One code path, two layouts. Contiguous is a block as long as the context: one block a sequence. Paged is many small
// blocks handed out as sequences grow. Blocks are counted: kv_fork shares them, and the first write into a shared one
// copies it. The bytes themselves are in KvPool and belong to the backend; this file knows numbers only.
#ifndef QUILL_KVCACHE_H
#define QUILL_KVCACHE_H

#include "kernels.h"

// Start from (Sequence){0}. tokens holds the prompt and what was generated; slots [0, n_cached) are computed.
typedef struct {
    int *tokens, n_tokens, cap_tokens;
    int *blocks, n_blocks, cap_blocks; // physical block of each logical block
    int n_cached;                      // slots whose K and V are in the cache
    int id;                            // the scheduler's: its row of the block table
} Sequence;

typedef struct {
    KvPool pool;
    int *refs; // (n_blocks) sequences that use the block
    int *free_list, n_free;
    int (*copies)[2]; // pending copies (src, dst) for the next batch, to be made in this order before anything is
                      // written
    int n_copies, cap_copies;
    int max_slots; // of one sequence: the context
} KvCache;

typedef struct {
    int n_layers, n_kv_heads, head_dim;
    int type_k, type_v;
    int block;    // slots a block; 0: contiguous (one block of n_ctx slots a sequence)
    int n_ctx;    // slots one sequence may use
    int n_blocks; // 0: enough for n_seqs sequences of n_ctx
    int n_seqs;
    int n_device; // the last layers, whose planes are in the memory of `be`
    const Backend *be;
} KvShape;

size_t kv_bytes(const KvShape *s);      // what kv_new would reserve in all; SIZE_MAX when it does not fit a size_t
size_t kv_host_bytes(const KvShape *s); // of them, in the host's memory
size_t kv_bytes_per_slot(const KvShape *s);
Status kv_new(KvCache *kv, const KvShape *s); // QUILL_MEMORY
void kv_free(KvCache *kv);

void sequence_push(Sequence *s, const int *tokens, int n); // appends tokens whose K and V are not computed yet
void sequence_free(Sequence *s);                           // the arrays; kv_release first

// Makes slots [n_cached, n_slots) writable: takes free blocks, and copies shared ones that would be written.
bool kv_reserve(KvCache *kv, Sequence *s, int n_slots);   // false: no free block or past the context; nothing changed
void kv_truncate(KvCache *kv, Sequence *s, int n_tokens); // forgets tokens and slots from n_tokens on
bool kv_fork(KvCache *kv, const Sequence *from, Sequence *to); // `to` is empty; shares all computed blocks
void kv_release(KvCache *kv, Sequence *s);                     // gives all blocks back; tokens stay, n_cached becomes 0
// Gives the free blocks out in another order: tests show that results do not depend on it.
void kv_shuffle(KvCache *kv, uint64_t seed);

#endif
