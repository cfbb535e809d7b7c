// tests/rig/fake_model.h: a scheduler over a fake forward. Its cache stores tokens in place of keys and values, and the
// logits of a row are a hash of all tokens that the row sees through its block table and the page of its group. A wrong
// slot, table, page, position or order gives another text than expected_text, which works without a scheduler. If the
// shape has a layer with a window, its pool stores the same tokens, and every row checks the tokens that it sees there.
// The state of a recurrent layer is the hash of all tokens so far, and is compared with what the rows see.
//
// A file that includes this one first defines the length of the context: enum { FAKE_CTX = 64 };
#ifndef QUILL_FAKE_MODEL_H
#define QUILL_FAKE_MODEL_H

#include "tests/rig/testing.h"

#include "policy/plain.h"
#include "scheduler.h"

enum { FAKE_VOCAB = 40, MOST_REQUESTS = 8, FAKE_ROWS = 256, MOST_SLOTS = 4096, MOST_PAGES = 64, MOST_STATES = 64 };

// ---- the fake model -------------------------------------------------------------------------------------------------

static inline uint64_t mix(uint64_t h, uint64_t v) {
    uint64_t state = h ^ (v + 1) * 0xff51afd7ed558ccdu;
    return test_random(&state);
}

static inline void logits_of(uint64_t hash, float *out) {
    for (int i = 0; i < FAKE_VOCAB; i++) out[i] = 3 * test_uniform(&(uint64_t){mix(hash, (uint64_t)i)});
}

typedef struct {
    KvCache kv;
    Sampler *sampler;
    SchedulerShape shape;
    Scheduler *s;
    int memory[MOST_SLOTS];       // (n_blocks, block) tokens; -1: never written
    int pages[MOST_PAGES * SEAL]; // (n_tails, SEAL) tokens of open groups, if KV is sealed
    int window_memory[MOST_SLOTS], window_pages[MOST_PAGES * SEAL]; // the same for the pool KV_WINDOW
    uint64_t states[MOST_STATES];
    float logits[FAKE_ROWS * FAKE_VOCAB];
    int max_rows, n_steps, n_rows; // n_rows: rows computed in all steps
} FakeEngine;

// Of the shape, only block, n_blocks, n_seqs, share, types, window, n_partners, n_recurrent and n_checkpoints are used.
static inline void fake_open_shape(FakeEngine *b, KvShape shape, int max_rows, int max_seqs) {
    memset(b, 0, sizeof *b);
    shape.n_kv_heads = shape.head_dim = 1;
    shape.n_windowed = shape.window > 0;
    shape.n_layers = 1 + shape.n_windowed;
    shape.n_ctx = FAKE_CTX;
    shape.rec = (Recurrence){.channels = 1, .taps = 2};
    assert_ok(kvcache_new(&b->kv, &shape));
    assert_true(b->kv.states.pool.n_states <= MOST_STATES);
    assert_true(b->kv.pool->n_blocks * b->kv.pool->block <= MOST_SLOTS && b->kv.pool->n_tails <= MOST_PAGES);
    kvcache_shuffle(&b->kv, 5);
    for (int i = 0; i < MOST_SLOTS; i++) b->memory[i] = b->window_memory[i] = -1;
    b->sampler = sampler_new(FAKE_VOCAB);
    b->max_rows = max_rows;
    b->shape = (SchedulerShape){
        .n_vocab = FAKE_VOCAB, .max_rows = max_rows, .max_out = int_max(max_rows, max_seqs), .max_seqs = max_seqs};
    b->s = scheduler_new(&b->kv, b->sampler, b->shape, &plain_policy);
    assert_int_equal(scheduler_max_rows(b->s), max_rows);
}

// The same with another policy, and optionally a device that draws tokens.
static inline void fake_policy(FakeEngine *b, const Policy *policy, bool draws) {
    scheduler_free(b->s);
    b->shape.draws = b->shape.draws_ahead = draws;
    b->s = scheduler_new(&b->kv, b->sampler, b->shape, policy);
}

static inline void fake_open_shared(FakeEngine *b, int block, int n_blocks, int max_rows, int max_seqs, bool share) {
    KvShape shape = {.type_k = TYPE_F32,
                     .type_v = TYPE_F32,
                     .block = block,
                     .n_blocks = n_blocks,
                     .n_seqs = MOST_REQUESTS,
                     .share = share};
    fake_open_shape(b, shape, max_rows, max_seqs);
}

static inline void fake_open(FakeEngine *b, int block, int n_blocks, int max_rows, int max_seqs) {
    fake_open_shared(b, block, n_blocks, max_rows, max_seqs, false);
}

static inline void fake_close(FakeEngine *b) {
    scheduler_free(b->s);
    sampler_free(b->sampler);
    kvcache_free(&b->kv);
}

static inline const int *table_of(const Batch *b, int seq) {
    return b->block_table + (size_t)seq * (size_t)b->max_blocks;
}

static inline int *cell(FakeEngine *f, const int *table, int slot) {
    int block = table[slot / f->kv.pool->block];
    assert_in_range(block, 0, f->kv.pool->n_blocks - 1);
    return &f->memory[block * f->kv.pool->block + slot % f->kv.pool->block];
}

// The same for KV_WINDOW; NULL: no layer has a window.
static inline int *window_cell(FakeEngine *f, const Batch *b, int seq, int slot) {
    const KvPool *pool = &f->kv.pool[KV_WINDOW];
    if (pool->n_layers == 0) return NULL;
    int block = b->window_table[(size_t)seq * (size_t)b->max_blocks + (size_t)(slot / pool->block)];
    assert_in_range(block, 0, pool->n_blocks - 1);
    return &f->window_memory[block * pool->block + slot % pool->block];
}

// The page of the open group that contains a slot.
static inline int *page_of(FakeEngine *f, const int *table, int slot) {
    int page = kv_tail(f->kv.pool, table, slot);
    assert_in_range(page, 0, f->kv.pool->n_tails - 1);
    return f->pages + (size_t)page * SEAL;
}

static inline int count_rows(const Batch *b, int row) {
    int n = 1;
    while (row + n < b->n_rows && b->seq[row + n] == b->seq[row]) n++;
    return n;
}

// Checks the rows of a sequence: known tokens come first, then drafts, which may not complete a group. Unless a policy
// asks for others, only the row of a sequence's last token has logits.
static inline void check_sequence(const FakeEngine *f, const Batch *b, int seq, int row) {
    const StepRows *rows = scheduler_rows(f->s, seq);
    const Request *r = rows->request;
    int n = count_rows(b, row), last = row + n - 1 - (r ? rows->n_draft : 0), n_out = 0, out = 0;
    for (int i = 0; i < b->n_out; i++)
        if (b->seq[b->out_row[i]] == seq) out = i, n_out++;
    bool pending = n_out > 0 && b->draw && b->draw[out].pending;
    if (!r) return;
    for (int i = last + 1; i < row + n; i++) {
        assert_int_equal(b->token[i], rows->draft[i - last - 1]);
        assert_false(f->kv.pool->tail_of && b->slot[i] % SEAL == SEAL - 1);
    }
    if (!pending) assert_int_equal(rows->n_known + rows->n_draft, n);
    if (rows->room_out > 0) return; // a policy has chosen the rows with logits
    assert_int_equal(n_out, b->pos[last] == r->seq->n_tokens - !pending && r->max_new != 0);
    if (n_out) assert_int_equal(b->out_row[out], last);
}

static inline void check_rows(const FakeEngine *f, const Batch *b) {
    assert_in_range(b->n_rows, 1, f->max_rows);
    assert_in_range(b->n_seqs, 1, b->n_rows);
    assert_in_range(b->n_out, 0, f->shape.max_out);
    for (int i = 0; i < b->n_rows; i++) {
        assert_int_equal(b->pos[i], b->slot[i]);
        assert_in_range(b->slot[i], 0, FAKE_CTX - 1);
        int before = i ? b->seq[i - 1] : -1;
        assert_true(b->seq[i] == before || b->seq[i] == before + 1); // sequences are adjacent and in order
        if (b->seq[i] == before) assert_int_equal(b->slot[i], b->slot[i - 1] + 1);
    }
    assert_int_equal(b->seq[b->n_rows - 1], b->n_seqs - 1);
    for (int i = 1; i < b->n_out; i++) assert_true(b->out_row[i] > b->out_row[i - 1]);
    for (int seq = 0, row = 0; seq < b->n_seqs; row += count_rows(b, row), seq++) check_sequence(f, b, seq, row);
}

static inline void copy_pool(const Batch *b, const KvPool *pool, int *memory, int *pages) {
    int size = pool->block;
    const int(*copies)[2] = batch_copies(b, pool);
    for (int i = 0; i < b->n_copies && pool->n_layers > 0; i++) {
        const int *copy = copies[i], *tail_of = pool->tail_of;
        memcpy(memory + copy[1] * size, memory + copy[0] * size, (size_t)size * sizeof(int));
        if (tail_of && tail_of[copy[0]] >= 0 && tail_of[copy[1]] >= 0)
            memcpy(pages + tail_of[copy[1]] * SEAL, pages + tail_of[copy[0]] * SEAL, SEAL * sizeof(int));
    }
}

static inline void copy_blocks(FakeEngine *f, const Batch *b) {
    copy_pool(b, &f->kv.pool[KV_FULL], f->memory, f->pages);
    copy_pool(b, &f->kv.pool[KV_WINDOW], f->window_memory, f->window_pages);
}

// Stores a token in a slot of both pools.
static inline void put_token(FakeEngine *f, const Batch *b, int seq, int slot, int token) {
    int *there = window_cell(f, b, seq, slot);
    *cell(f, table_of(b, seq), slot) = token;
    if (there) *there = token;
}

// Stores the rows of a sequence, from b's row `row` on, and returns their number. In a sealed cache they go into the
// page of the open group; the last row of a group moves the page into the slots.
static inline int write_rows(FakeEngine *f, const Batch *b, int row) {
    const int *table = table_of(b, b->seq[row]);
    int open[SEAL], n = 0, slot = b->slot[row];
    bool sealed = f->kv.pool->tail_of != NULL;
    if (sealed && slot % SEAL) memcpy(open, page_of(f, table, slot), sizeof open);
    for (; row + n < b->n_rows && b->seq[row + n] == b->seq[row]; n++, slot++) {
        if (!sealed) put_token(f, b, b->seq[row], slot, b->token[row + n]);
        else open[slot % SEAL] = b->token[row + n];
        for (int i = 0; sealed && slot % SEAL == SEAL - 1 && i < SEAL; i++)
            put_token(f, b, b->seq[row], slot - i, open[SEAL - 1 - i]);
    }
    if (sealed && slot % SEAL) memcpy(page_of(f, table, slot - 1), open, sizeof open);
    if (sealed && slot % SEAL && f->kv.partner) {
        const KvPool *pool = &f->kv.pool[KV_WINDOW];
        int page = kv_tail(pool, b->window_table + (size_t)b->seq[row] * (size_t)b->max_blocks, slot - 1);
        assert_int_equal(page, (page_of(f, table, slot - 1) - f->pages) / SEAL);
        memcpy(f->window_pages + page * SEAL, open, sizeof open);
    }
    return n;
}

// Checks that the other pool has every token that a row sees in a layer with a window.
static inline void check_window(FakeEngine *f, const Batch *b, int row) {
    const int *table = table_of(b, b->seq[row]);
    int slot = b->slot[row], whole = f->kv.pool->tail_of ? (slot + 1) / SEAL * SEAL : slot + 1;
    if (!f->kv.partner) return;
    for (int i = int_max(0, slot + 1 - f->kv.window); i <= slot; i++) {
        if (i < whole) assert_int_equal(*window_cell(f, b, b->seq[row], i), *cell(f, table, i));
        else {
            const int *page = page_of(f, table, slot);
            assert_int_equal(f->window_pages[page - f->pages + i % SEAL], page[i % SEAL]);
        }
    }
}

// The hash of all tokens that a row sees. The row's own group is read from the page, unless the step's last row of the
// sequence, at slot `last`, has sealed it; earlier groups are sealed. With dense KV all tokens are in the slots.
static inline uint64_t hash_of_sight(FakeEngine *f, const int *table, int slot, int last) {
    uint64_t hash = 0;
    bool open = f->kv.pool->tail_of && slot / SEAL == (last + 1) / SEAL;
    int whole = open ? slot / SEAL * SEAL : slot + 1;
    for (int i = 0; i < whole; i++) hash = mix(hash, (uint64_t)*cell(f, table, i));
    for (int i = whole; i <= slot; i++) hash = mix(hash, (uint64_t)page_of(f, table, slot)[i % SEAL]);
    return hash;
}

// Computes the states after the n rows of a sequence, from b's row `row` on, and stores those that are kept.
static inline void write_states(FakeEngine *f, const Batch *b, int row, int n) {
    int seq = b->seq[row], from = b->state_in[seq], last = b->slot[row + n - 1];
    uint64_t hash = from < 0 ? 0 : f->states[from];
    assert_int_equal(from < 0, b->slot[row] == 0);
    for (int i = row; i < row + n; i++) {
        hash = mix(hash, (uint64_t)b->token[i]);
        if (b->state_out[i] >= 0) f->states[b->state_out[i]] = hash;
    }
    assert_true(b->state_out[row + n - 1] >= 0);
    if (hash != hash_of_sight(f, table_of(b, seq), last, last))
        fail_msg("the state after slot %d is of other tokens", last);
}

static inline const float *fake_forward(FakeEngine *f, const Batch *b) {
    check_rows(f, b);
    copy_blocks(f, b);
    for (int row = 0; row < b->n_rows;) row += write_rows(f, b, row);
    for (int row = 0, n; row < b->n_rows && b->states; row += n) {
        n = count_rows(b, row);
        write_states(f, b, row, n);
    }
    // with sealed KV the last row of each sequence sees the groups that the step has sealed
    for (int i = 0; i < b->n_rows; i++)
        if (!f->kv.pool->tail_of || i == b->n_rows - 1 || b->seq[i + 1] != b->seq[i]) check_window(f, b, i);
    for (int i = 0; i < b->n_out; i++) {
        int row = b->out_row[i];
        int last = row + count_rows(b, row) - 1;
        logits_of(hash_of_sight(f, table_of(b, b->seq[row]), b->slot[row], b->slot[last]), f->logits + i * FAKE_VOCAB);
    }
    f->n_steps++;
    f->n_rows += b->n_rows;
    return f->logits;
}

static inline void run_all(FakeEngine *f) {
    for (Batch *b; scheduler_next(f->s, &b);) {
        scheduler_take(f->s, fake_forward(f, b));
        if (f->n_steps > 5000) fail_msg("no end after %d steps", f->n_steps);
    }
}

// Runs requests and releases the blocks of those that finish, which is the caller's duty (scheduler.h).
static inline void run_and_release(FakeEngine *f, Request *r, int n) {
    for (Batch *b; scheduler_next(f->s, &b);) {
        scheduler_take(f->s, fake_forward(f, b));
        for (int i = 0; i < n; i++)
            if (r[i].finish != RUNNING) kvcache_release(&f->kv, r[i].seq);
        if (f->n_steps > 5000) fail_msg("no end after %d steps", f->n_steps);
    }
}

// ---- requests, and what they should give ----------------------------------------------------------------------------

// Allocates the request's sequence too; request_free frees both.
static inline void request_new(Request *r, int n_prompt, int max_new, uint64_t key) {
    memset(r, 0, sizeof *r);
    r->seq = mem_alloc(sizeof *r->seq);
    r->sampling = sampler_defaults();
    r->sampling.seed = 9;
    r->sampling.repeat_penalty = 1.1f; // so that logits depend on earlier tokens
    r->sequence_key = key;
    r->max_new = max_new;
    for (int i = 0; i < n_prompt; i++) sequence_push(r->seq, &(int){(int)(mix(key, (uint64_t)i) % FAKE_VOCAB)}, 1);
}

static inline void request_free(FakeEngine *f, Request *r) {
    kvcache_release(&f->kv, r->seq);
    sequence_free(r->seq);
    free(r->seq);
    timeline_free(&r->time);
}

// Computes, without a scheduler, the text of a request that ends only by max_new or the context; returns its length.
static inline int expected_text(const Request *r, int n_prompt, int *out) {
    Sampler *s = sampler_new(FAKE_VOCAB);
    float logits[FAKE_VOCAB];
    int n = 0, history[FAKE_CTX + 1];
    uint64_t hash = 0;
    for (int i = 0; i < n_prompt; i++) hash = mix(hash, (uint64_t)(history[i] = r->seq->tokens[i]));
    while ((r->max_new < 0 || n < r->max_new) && n_prompt + n <= FAKE_CTX) {
        logits_of(hash, logits);
        out[n] = history[n_prompt + n] =
            sampler_sample(s, &r->sampling, logits, history, n_prompt + n, r->sequence_key, (uint64_t)(n_prompt + n));
        hash = mix(hash, (uint64_t)out[n++]);
    }
    sampler_free(s);
    return n;
}

static inline void assert_text(const Request *r) {
    int want[FAKE_CTX + 1], n = expected_text(r, r->n_prompt, want);
    assert_int_equal(r->n_new, n);
    assert_int_equal(r->seq->n_tokens, r->n_prompt + n);
    for (int i = 0; i < n; i++)
        if (r->seq->tokens[r->n_prompt + i] != want[i])
            fail_msg("request %d: token %d differs", (int)r->sequence_key, i);
    assert_int_equal(r->time.n_gaps, n > 1 ? n - 1 : 0);
}

// For Policy.fetch: loads every block, except those that begin with one of the first `missing` tokens.
typedef struct {
    FakeEngine *f;
    int missing;
} Shelf;

static inline bool fetch_from_shelf(const Policy *p, Request *r, int most) {
    const Shelf *shelf = p->arg;
    KvCache *kv = &shelf->f->kv;
    Sequence *q = r->seq;
    int size = kv->pool->block, had = q->n_cached;
    assert_int_equal(kv->n_copies, 0); // a pending copy could overwrite the loaded tokens
    while (had % size == 0 && q->n_cached - had < most && q->n_cached + size < q->n_tokens &&
           q->tokens[q->n_cached] >= shelf->missing && kvcache_reserve(kv, q, q->n_cached + size)) {
        for (int i = 0; i < size; i++) {
            int slot = q->n_cached + i, block = q->blocks[slot / size];
            *cell(shelf->f, q->blocks, slot) = q->tokens[slot];
            if (kv->partner) shelf->f->window_memory[kv->partner[block] * size + slot % size] = q->tokens[slot];
        }
        q->n_cached += size;
        kvcache_commit(kv, q, q->n_cached);
    }
    return q->n_cached - had < most;
}

static inline Policy shelf_policy(Shelf *shelf) {
    return (Policy){.fetch = fetch_from_shelf, .arg = shelf, .next = &plain_policy};
}

// ---- a device that draws --------------------------------------------------------------------------------------------

typedef struct {
    FakeEngine f;
    Sampler *sampler;
    int sampled[MOST_REQUESTS];
    int tokens[2][MOST_REQUESTS];
    int n_drawn, n_told; // number of batches drawn, and of batches whose tokens were taken
    bool begun;
    int n_ahead;
} Device;

// Rows with unknown tokens take them from the previous draw; then a token is drawn from each row of logits.
static inline void device_begin(Device *d, const Batch *b) {
    int known[FAKE_ROWS], was[MOST_REQUESTS];
    Batch filled = *b;
    memcpy(was, d->sampled, sizeof was);
    for (int i = 0; i < b->n_rows; i++) known[i] = b->token[i] < 0 ? was[i] : b->token[i];
    filled.token = known;
    const float *logits = fake_forward(&d->f, &filled);
    for (int i = 0; b->draw && i < b->n_out; i++) {
        const Draw *w = &b->draw[i];
        int history[FAKE_CTX + 2];
        memcpy(history, w->tokens, (size_t)w->n_tokens * sizeof *history);
        history[w->n_tokens] = was[i];
        int n = w->n_tokens + w->pending;
        d->sampled[i] =
            sampler_sample(d->sampler, w->how, logits + (size_t)i * FAKE_VOCAB, history, n, w->sequence, (uint64_t)n);
    }
    if (b->draw) memcpy(d->tokens[d->n_drawn++ % 2], d->sampled, sizeof d->sampled);
}

static inline bool device_step(Device *d) {
    Batch *b, *next;
    if (!scheduler_next(d->f.s, &b)) return false;
    if (!d->begun) device_begin(d, b);
    d->begun = false;
    if (!b->draw) {
        scheduler_take(d->f.s, d->f.logits);
        return true;
    }
    d->begun = scheduler_ahead(d->f.s, &next);
    d->n_ahead += d->begun;
    if (d->begun) device_begin(d, next);
    scheduler_take_tokens(d->f.s, d->tokens[d->n_told++ % 2]);
    return true;
}

#endif
