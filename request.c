// request.c: see request.h.
#include "request.h"

const char *finish_name(Finish f) {
    switch (f) {
    case RUNNING: return "running";
    case FINISH_EOG: return "eog";
    case FINISH_STOP: return "stop";
    case FINISH_LENGTH:
    case FINISH_CONTEXT: return "length";
    case FINISH_INTERRUPT: return "interrupt";
    case FINISH_BROKEN: return "error";
    }
    return "?";
}

// ---- its sequences --------------------------------------------------------------------------------------------------

int request_n_coming(const Request *r) {
    int n = int_max(0, r->width - request_n_sequences(r));
    for (const Request *b = r->branches; b; b = b->next) n++;
    return n;
}

void request_release(Request *r, KvCache *kv) {
    for (int i = 0; i < request_n_sequences(r); i++) kvcache_release(kv, request_sequence(r, i));
}

// ---- its progress ---------------------------------------------------------------------------------------------------

bool request_has_blocks(const Request *r) { return r->seq->n_blocks > 0; }

bool request_is_decoding(const Request *r) {
    for (int i = 0; i < request_n_sequences(r); i++) {
        const Sequence *q = request_sequence(r, i);
        if (q->n_tokens == r->n_prompt || sequence_uncomputed(q) != 1) return false;
    }
    return true;
}

// Length of the common prefix of a and b in whole blocks, in slots. The last token of b does not count: it has to be
// computed.
static int common_slots(const KvCache *kv, const Sequence *a, const Sequence *b) {
    return sequence_common(a, b->tokens, b->n_tokens - 1) / kv->pool->block * kv->pool->block;
}

// The end of the next slots of q that others can share: of a block; with recurrent layers, where a checkpoint is.
static int next_shared_end(const KvCache *kv, const Sequence *q) {
    int size = kv->pool->block;
    if (kv->states.pool.n_layers == 0) return (q->n_cached / size + 1) * size;
    return seqstates_next_checkpoint(&kv->states, &q->states, q->n_cached, q->n_tokens);
}

// Whether `later` also begins with the first `end` tokens of q, and has a token behind them to compute itself. The last
// one is compared first, since it differs most often.
static bool begins_with(const Sequence *later, const Sequence *q, int end) {
    return end <= q->n_tokens && end < later->n_tokens && q->tokens[end - 1] == later->tokens[end - 1] &&
           sequence_common(q, later->tokens, end) == end;
}

bool request_is_computing_for(const Request *r, const Request *later, const KvCache *kv) {
    return request_has_blocks(r) && sequence_shares(r->seq) && sequence_shares(later->seq) && !request_is_decoding(r) &&
           begins_with(later->seq, r->seq, next_shared_end(kv, r->seq));
}

void request_want_checkpoints(Request *r, const KvCache *kv) {
    int *next = &r->seq->states.wanted[0], *least = &r->seq->states.wanted[1];
    *next = *least = 0;
    if (kv->states.pool.n_layers == 0 || !kvcache_shares(kv) || !sequence_shares(r->seq)) return;
    for (const Request *later = r->next; later; later = later->next) {
        if (request_has_blocks(later) || !sequence_shares(later->seq)) continue;
        int common = common_slots(kv, r->seq, later->seq);
        if (common <= r->seq->n_cached) continue;
        if (*next == 0) *next = *least = common;
        *least = int_min(*least, common);
    }
}

// ---- the blocks that it needs ---------------------------------------------------------------------------------------

// The most slots that a sequence of r can ever use.
static int most_slots(const Request *r, const KvCache *kv) {
    int64_t wish = (int64_t)r->n_prompt + r->max_new;
    return r->max_new < 0 || wish > kv->max_slots ? kv->max_slots : (int)wish;
}

int request_blocks_to_begin(const Request *r, const KvCache *kv) {
    int size = kv->pool->block, n = 0;
    for (int i = 0; i < request_n_sequences(r); i++) {
        const Sequence *q = request_sequence(r, i);
        int slots = int_min(q->n_tokens + 1, most_slots(r, kv));
        n += (slots + size - 1) / size - q->n_blocks;
        if (i > 0 && kvcache_shares(kv)) n -= common_slots(kv, r->seq, q) / size;
    }
    return n;
}

int request_n_growing(const Request *r, const KvCache *kv) {
    int n = 0;
    for (int i = 0; i < request_n_sequences(r); i++)
        n += request_sequence(r, i)->n_blocks * kv->pool->block < most_slots(r, kv);
    return n;
}
