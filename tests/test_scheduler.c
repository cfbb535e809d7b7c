// tests/test_scheduler.c: the requests and the rows of each step, with every number of blocks.
enum { FAKE_CTX = 64 };
#include "step.h"
#include "tests/rig/fake_model.h"

#include <math.h>

// ---- the rows of a step ---------------------------------------------------------------------------------------------

// Whatever was in its memory before.
static void test_a_new_step_is_empty(void **state) {
    (void)state;
    static FakeEngine f;
    Step t;
    fake_open(&f, 8, 0, 16, 4);
    memset(&t, 0xff, sizeof t);
    step_new(&t, &f.kv, 16, 4);
    assert_int_equal(t.batch.n_rows + t.batch.n_out + t.batch.n_seqs, 0);
    assert_false(t.batch.draw || t.batch.whole);
    assert_null(t.batch.watch);
    assert_null(t.batch.narrow);
    assert_null(t.batch.given);
    step_free(&t);
    fake_close(&f);
}

static void test_prompt_in_chunks(void **state) {
    (void)state;
    static FakeEngine f;
    Request r;
    Batch *b;
    static const int rows[] = {16, 16, 16, 2};
    fake_open(&f, 8, 0, 16, 4);
    request_new(&r, 50, 3, 1);
    scheduler_add(f.s, &r);
    assert_int_equal(r.n_prompt, 50);
    for (int i = 0; i < 4; i++) {
        assert_true(scheduler_next(f.s, &b));
        assert_int_equal(b->n_rows, rows[i]);
        assert_int_equal(b->slot[0], 16 * i);
        assert_int_equal(b->n_out, i == 3); // only the last row has logits
        scheduler_take(f.s, fake_forward(&f, b));
        assert_int_equal(r.n_new, i == 3);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(scheduler_next(f.s, &b));
        assert_int_equal(b->n_rows, 1);
        assert_int_equal(b->slot[0], 50 + i);
        scheduler_take(f.s, fake_forward(&f, b));
    }
    assert_false(scheduler_next(f.s, &b));
    assert_int_equal(r.finish, FINISH_LENGTH);
    assert_text(&r);
    assert_true(r.time.prefill_end >= r.time.start && r.time.first >= r.time.prefill_end);
    request_free(&f, &r);
    fake_close(&f);
}

static void test_decode_rows_come_first(void **state) {
    (void)state;
    static FakeEngine f;
    Request r[3];
    Batch *b;
    fake_open(&f, 8, 0, 10, 8);
    for (int i = 0; i < 3; i++) request_new(&r[i], i == 0 ? 40 : 3, 20, (uint64_t)i);
    scheduler_add(f.s, &r[1]);
    scheduler_add(f.s, &r[2]);
    assert_true(scheduler_next(f.s, &b));
    scheduler_take(f.s, fake_forward(&f, b)); // one step computes both small prompts
    assert_int_equal(r[1].n_new + r[2].n_new, 2);
    scheduler_add(f.s, &r[0]);
    for (int step = 0; step < 5; step++) {
        assert_true(scheduler_next(f.s, &b));
        assert_int_equal(b->n_rows, 10); // two rows that decode, and eight of the prompt
        assert_int_equal(b->n_seqs, 3);
        assert_int_equal(b->slot[0], 3 + step);
        assert_int_equal(b->slot[1], 3 + step);
        assert_int_equal(b->slot[2], 8 * step);
        assert_int_equal(b->n_out, step == 4 ? 3 : 2);
        scheduler_take(f.s, fake_forward(&f, b));
    }
    assert_true(scheduler_next(f.s, &b));
    assert_int_equal(b->n_rows, 3);
    scheduler_take(f.s, fake_forward(&f, b));
    run_all(&f);
    for (int i = 0; i < 3; i++) {
        assert_text(&r[i]);
        request_free(&f, &r[i]);
    }
    fake_close(&f);
}

// The oldest prompt gets rows first; the next prompt gets the rest of the step.
static void test_prompts_share_a_step(void **state) {
    (void)state;
    static FakeEngine f;
    Request r[3];
    Batch *b;
    fake_open(&f, 8, 0, 12, 8);
    for (int i = 0; i < 3; i++) {
        request_new(&r[i], 5, 1, (uint64_t)i);
        scheduler_add(f.s, &r[i]);
    }
    assert_true(scheduler_next(f.s, &b));
    assert_int_equal(b->n_rows, 12);
    assert_int_equal(b->n_seqs, 3);
    assert_int_equal(b->n_out, 2);
    for (int i = 0; i < 12; i++) assert_int_equal(b->token[i], r[i / 5].seq->tokens[i % 5]);
    scheduler_take(f.s, fake_forward(&f, b));
    assert_int_equal(r[0].finish, FINISH_LENGTH);
    assert_int_equal(r[2].finish, RUNNING);
    run_all(&f);
    for (int i = 0; i < 3; i++) {
        assert_text(&r[i]);
        request_free(&f, &r[i]);
    }
    fake_close(&f);
}

static void many_requests(int block, int max_rows, int max_seqs) {
    static FakeEngine f;
    Request r[MOST_REQUESTS];
    static const int prompts[] = {1, 7, 33, 2, 50, 8, 16, 64}, news[] = {5, 20, 1, 40, 14, 0, -1, -1};
    fake_open(&f, block, 0, max_rows, max_seqs);
    for (int i = 0; i < MOST_REQUESTS; i++) request_new(&r[i], prompts[i], news[i], (uint64_t)i);
    for (int i = 0; i < MOST_REQUESTS / 2; i++) scheduler_add(f.s, &r[i]);
    Batch *b;
    for (int i = 0; i < 3 && scheduler_next(f.s, &b); i++) scheduler_take(f.s, fake_forward(&f, b));
    for (int i = MOST_REQUESTS / 2; i < MOST_REQUESTS; i++) scheduler_add(f.s, &r[i]); // added while others run
    run_all(&f);
    for (int i = 0; i < MOST_REQUESTS; i++) {
        assert_text(&r[i]);
        assert_int_equal(r[i].finish, news[i] < 0 ? FINISH_CONTEXT : FINISH_LENGTH);
        request_free(&f, &r[i]);
    }
    assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
    fake_close(&f);
}

static void test_together_as_alone(void **state) {
    (void)state;
    static const int blocks[] = {1, 8, 16, 0}, rows[] = {1, 2, 7, 64, 200}, seqs[] = {1, 2, 8};
    for (size_t b = 0; b < ARRAY_LEN(blocks); b++)
        for (size_t r = 0; r < ARRAY_LEN(rows); r++)
            for (size_t s = 0; s < ARRAY_LEN(seqs); s++) many_requests(blocks[b], rows[r], seqs[s]);
}

// ---- computed slots, shared blocks ----------------------------------------------------------------------------------

// The next turn of a chat: the cache has most of the prompt already.
static void test_reused_prefix(void **state) {
    (void)state;
    static FakeEngine f;
    fake_open(&f, 8, 0, 16, 4);
    Request r;
    Batch *b;
    request_new(&r, 20, 4, 2);
    scheduler_add(f.s, &r);
    run_all(&f);
    assert_text(&r);
    for (int i = 0; i < 3; i++) sequence_push(r.seq, &i, 1);
    scheduler_add(f.s, &r);
    assert_int_equal(r.n_prompt, 27);
    assert_int_equal(r.n_reused, 23); // all tokens of the first turn except the last
    assert_int_equal(r.n_new, 0);
    assert_true(scheduler_next(f.s, &b));
    assert_int_equal(b->n_rows, 4);
    assert_int_equal(b->slot[0], 23);
    scheduler_take(f.s, fake_forward(&f, b));
    run_all(&f);
    int want[FAKE_CTX];
    assert_int_equal(expected_text(&r, 27, want), 4);
    assert_memory_equal(r.seq->tokens + 27, want, 4 * sizeof(int));
    request_free(&f, &r);
    fake_close(&f);
}

static void test_forked_requests(void **state) {
    (void)state;
    static FakeEngine f;
    for (int block = 1; block <= 8; block += 7) {
        Request parent, child[4];
        fake_open(&f, block, 0, 16, 8);
        request_new(&parent, 21, 0, 2);
        scheduler_add(f.s, &parent);
        run_all(&f);
        for (int i = 0; i < 4; i++) {
            request_new(&child[i], 0, 15, 10 + (uint64_t)i);
            kvcache_fork(&f.kv, parent.seq, child[i].seq);
            sequence_push(child[i].seq, &i, 1);
            scheduler_add(f.s, &child[i]);
        }
        run_all(&f);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(child[i].n_reused, 21);
            assert_text(&child[i]);
            request_free(&f, &child[i]);
        }
        request_free(&f, &parent);
        assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
        fake_close(&f);
    }
}

// K and V that were computed elsewhere are fetched when a request begins: all at once if no other request has rows,
// otherwise a limited number of slots in each step, while the others decode. A preempted request fetches them again.
static void test_fetched_slots(void **state) {
    (void)state;
    static FakeEngine f;
    for (int n_others = 0; n_others <= 2; n_others += 2) {
        Request r[3];
        Batch *b;
        Shelf shelf = {&f, 0};
        fake_open_shared(&f, 8, 0, 3, 8, true);
        for (int i = 0; i < 3; i++) request_new(&r[i], i == 2 ? 60 : 1, 30, (uint64_t)i);
        const Policy from_shelf = shelf_policy(&shelf);
        fake_policy(&f, &from_shelf, false);
        for (int i = 0; i < n_others; i++) scheduler_add(f.s, &r[i]);
        if (n_others && scheduler_next(f.s, &b)) scheduler_take(f.s, fake_forward(&f, b));
        scheduler_add(f.s, &r[2]);
        int n_steps = 0;
        for (; r[2].time.begun == 0; n_steps++) {
            assert_true(scheduler_next(f.s, &b));
            assert_in_range(r[2].seq->n_cached, 0, n_others ? 16 * (n_steps + 1) : 56);
            scheduler_take(f.s, fake_forward(&f, b));
            for (int i = 0; i < n_others; i++) assert_int_equal(r[i].n_new, n_steps + 2);
        }
        assert_int_equal(n_steps, n_others ? 4 : 1); // 4 x 3 slots and the rest of a block: 16, 16, 16, 8
        assert_int_equal(r[2].n_reused, 56);
        run_all(&f);
        for (int i = 0; i < 3; i++) {
            if (i == 2 || i < n_others) assert_text(&r[i]);
            request_free(&f, &r[i]);
        }
        fake_close(&f);
    }
}

// ---- a pool too small for all ---------------------------------------------------------------------------------------

static void four_in_a_pool_for_one(int max_rows) {
    static FakeEngine f;
    Request r[4];
    fake_open(&f, 8, 5, max_rows, 4); // 40 slots
    for (int i = 0; i < 4; i++) {
        request_new(&r[i], 30, 5, (uint64_t)i); // 34 slots each
        scheduler_add(f.s, &r[i]);
    }
    run_and_release(&f, r, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(r[i].finish, FINISH_LENGTH);
        assert_text(&r[i]);
        request_free(&f, &r[i]);
    }
    fake_close(&f);
}

// Each request fits alone, but two do not fit together: the second waits until the first has finished, and both texts
// are right.
static void test_requests_wait_for_blocks(void **state) {
    (void)state;
    four_in_a_pool_for_one(64);
}

// A prompt that is computed in chunks must not take blocks that an older request needs to finish.
static void test_chunks_wait_for_blocks(void **state) {
    (void)state;
    four_in_a_pool_for_one(16);
}

// All requests begin, and none has enough blocks to finish: one must be preempted, and the run must end. Texts may be
// truncated, but not wrong.
static void test_full_pool_ends(void **state) {
    (void)state;
    static FakeEngine f;
    for (int block = 1; block <= 8; block *= 2)
        for (int release = 0; release < 2; release++) {
            Request r[4];
            fake_open(&f, block, 40 / block, 16, 4);
            for (int i = 0; i < 4; i++) {
                request_new(&r[i], 8, 30, (uint64_t)i);
                scheduler_add(f.s, &r[i]);
            }
            if (release) run_and_release(&f, r, 4);
            else run_all(&f);
            for (int i = 0; i < 4; i++) {
                int want[FAKE_CTX + 1], n = expected_text(&r[i], 8, want);
                assert_true(r[i].finish == FINISH_LENGTH || r[i].finish == FINISH_CONTEXT);
                assert_int_equal(r[i].finish == FINISH_LENGTH, r[i].n_new == n);
                assert_memory_equal(r[i].seq->tokens + 8, want, (size_t)r[i].n_new * sizeof(int));
                request_free(&f, &r[i]);
            }
            assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
            fake_close(&f);
        }
}

// ---- many sequences at once -----------------------------------------------------------------------------------------

static void test_shared_prefix_is_computed_once(void **state) {
    (void)state;
    static FakeEngine f;
    for (int max_rows = 8; max_rows <= 256; max_rows *= 4) {
        Request r[6];
        fake_open_shared(&f, 8, 0, max_rows, 8, true);
        for (int i = 0; i < 6; i++) {
            request_new(&r[i], 40, 3, 1);
            for (int k = 0; k < 5; k++) sequence_push(r[i].seq, &(int){(i + k) % FAKE_VOCAB}, 1);
            r[i].sequence_key = (uint64_t)i;
            scheduler_add(f.s, &r[i]);
        }
        run_all(&f);
        assert_int_equal(f.n_rows, 40 + 6 * (5 + 2));
        for (int i = 0; i < 6; i++) {
            assert_int_equal(r[i].n_reused, i == 0 ? 0 : 40);
            assert_text(&r[i]);
            request_free(&f, &r[i]);
        }
        fake_close(&f);
    }
}

// A prompt of many chunks joins sequences that decode: each of them gets a token in every step, and the prompt's first
// token comes in the step of its last row.
static void test_long_prompts_delay_nobody_by_more_than_a_step(void **state) {
    (void)state;
    static FakeEngine f;
    Request r[6];
    Batch *b;
    int given[6] = {0};
    fake_open(&f, 8, 0, 8, 8);
    for (int i = 0; i < 6; i++) request_new(&r[i], i < 3 ? 2 : 60, i < 3 ? 40 : 2, (uint64_t)i);
    for (int i = 0; i < 3; i++) scheduler_add(f.s, &r[i]);
    assert_true(scheduler_next(f.s, &b));
    scheduler_take(f.s, fake_forward(&f, b));
    for (int i = 3; i < 6; i++) scheduler_add(f.s, &r[i]);
    for (int step = 2; step <= 40; step++) {
        assert_true(scheduler_next(f.s, &b));
        for (int row = 0; row < b->n_rows; row++)
            for (int i = 3; i < 6; i++) given[i] += scheduler_rows(f.s, b->seq[row])->request == &r[i];
        scheduler_take(f.s, fake_forward(&f, b));
        for (int i = 0; i < 3; i++) assert_int_equal(r[i].n_new, step);
        for (int i = 3; i < 6; i++) {
            assert_int_equal(r[i].n_new, given[i] < 60 ? 0 : given[i] - 59);
            assert_int_equal(r[i].time.prefill_end > 0, given[i] >= 60);
        }
    }
    run_all(&f);
    for (int i = 0; i < 6; i++) {
        assert_text(&r[i]);
        request_free(&f, &r[i]);
    }
    fake_close(&f);
}

// If there is room for every request's whole context, or for its longest possible text, all requests begin at once.
static void test_all_begin_where_there_is_room(void **state) {
    (void)state;
    static FakeEngine f;
    for (int block = 0; block <= 8; block += 8)
        for (int n_prompt = 1; n_prompt <= FAKE_CTX; n_prompt += 21) {
            Request r[MOST_REQUESTS];
            Batch *b;
            int max_new = int_min(8, FAKE_CTX - n_prompt + 1), slots = n_prompt + max_new;
            fake_open(&f, block, block ? MOST_REQUESTS * ((int_min(slots, FAKE_CTX) + block - 1) / block) : 0, 256,
                      MOST_REQUESTS);
            for (int i = 0; i < MOST_REQUESTS; i++) {
                request_new(&r[i], int_min(n_prompt, 256 / MOST_REQUESTS), max_new, (uint64_t)i);
                scheduler_add(f.s, &r[i]);
            }
            assert_true(scheduler_next(f.s, &b));
            assert_int_equal(b->n_seqs, MOST_REQUESTS);
            scheduler_take(f.s, fake_forward(&f, b));
            run_all(&f);
            for (int i = 0; i < MOST_REQUESTS; i++) {
                assert_text(&r[i]);
                request_free(&f, &r[i]);
            }
            fake_close(&f);
        }
}

// Small requests that arrive later must not take the blocks that a large one waits for.
static void test_nobody_is_passed_over(void **state) {
    (void)state;
    static FakeEngine f;
    enum { SMALL = 40 };
    Request r[SMALL], large;
    fake_open(&f, 8, 8, 16, 4); // 64 slots
    request_new(&large, 50, 4, 99);
    for (int i = 0; i < SMALL; i++) request_new(&r[i], 10, 12, (uint64_t)i);
    int added = 2, ended_before = 0;
    for (int i = 0; i < added; i++) scheduler_add(f.s, &r[i]);
    for (Batch *b; scheduler_next(f.s, &b);) {
        scheduler_take(f.s, fake_forward(&f, b));
        if (f.n_steps == 1) scheduler_add(f.s, &large);
        else if (added < SMALL) scheduler_add(f.s, &r[added++]);
        for (int i = 0; i < added; i++)
            if (r[i].finish != RUNNING) kvcache_release(&f.kv, r[i].seq);
        if (large.finish != RUNNING) kvcache_release(&f.kv, large.seq);
        if (large.finish == RUNNING)
            for (int i = ended_before = 0; i < added; i++) ended_before += r[i].finish != RUNNING;
    }
    assert_in_range(ended_before, 0, 3); // those that were running already
    assert_text(&large);
    for (int i = 0; i < SMALL; i++) {
        assert_text(&r[i]);
        request_free(&f, &r[i]);
    }
    request_free(&f, &large);
    fake_close(&f);
}

// A request waits for a prefix, and a newer one begins meanwhile. When the prefix is computed and the older one finds
// no blocks, the newer one must continue: it holds the blocks that the older one waits for. `n` answers to the older
// one's prompt.
static void begins_behind_a_newer_one(int n_prompt, int n) {
    static FakeEngine f;
    enum { MOST = 8 };
    Request r[MOST];
    int n_requests = 2 + n;
    assert_true(n_requests <= MOST);
    fake_open_shared(&f, 8, 8, 16, MOST, true); // 64 slots
    request_new(&r[0], 25, 2, 1);
    request_new(&r[1], 24, 4, 2);
    for (int i = 2; i < n_requests; i++) {
        request_new(&r[i], i == 2 ? n_prompt : 0, 4, 1); // the same beginning as the first
        r[i].sequence_key = (uint64_t)i;
        if (i > 2) r[i - 1].next = &r[i];
    }
    if (n > 1) r[2].branches = &r[3];
    scheduler_add(f.s, &r[0]);
    scheduler_add(f.s, &r[2]);
    scheduler_add(f.s, &r[1]);
    run_and_release(&f, r, n_requests);
    for (int i = 0; i < n_requests; i++) {
        assert_int_equal(r[i].finish, FINISH_LENGTH);
        assert_text(&r[i]);
        request_free(&f, &r[i]);
    }
    assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
    fake_close(&f);
}

static void test_waits_behind_a_newer_one(void **state) {
    (void)state;
    begins_behind_a_newer_one(50, 1); // a longer prompt that continues after the prefix
    begins_behind_a_newer_one(25, 6); // answers that need one more block each
}

// If the only running request finds no block, it ends, although it is not the oldest: the oldest one still waits. The
// blocks that the first request had are still its caller's.
static void test_the_running_one_ends(void **state) {
    (void)state;
    static FakeEngine f;
    Request r[3];
    fake_open_shared(&f, 8, 8, 16, 4, true); // 64 slots
    request_new(&r[0], 25, 2, 1);
    request_new(&r[1], 50, 4, 1); // waits for the beginning that it shares with the first, and then for blocks
    request_new(&r[2], 24, -1, 2);
    for (int i = 0; i < 3; i++) scheduler_add(f.s, &r[i]);
    run_all(&f);
    assert_int_equal(r[1].finish, FINISH_LENGTH);
    assert_int_equal(r[2].finish, FINISH_CONTEXT);
    assert_in_range(r[2].seq->n_tokens, 24 + 1, FAKE_CTX);
    assert_text(&r[1]);
    for (int i = 0; i < 3; i++) request_free(&f, &r[i]);
    fake_close(&f);
}

// Random requests in a pool that is far too small, with and without shared prefixes: they are preempted often, but each
// text is the same as alone, and no block is lost.
static void test_preemption_changes_nothing(void **state) {
    (void)state;
    static FakeEngine f;
    enum { MANY = 60 };
    uint64_t random = 4;
    int64_t preempted = 0;
    for (int round = 0; round < 40; round++) {
        static Request r[MANY];
        int block = 1 << test_random(&random) % 4;
        fake_open_shared(&f, block, (int)(FAKE_CTX + test_random(&random) % 40) / block + 1,
                         1 + (int)(test_random(&random) % 40), 8, round % 2);
        int added = 0;
        for (int i = 0; i < MANY; i++) {
            request_new(&r[i], 1 + (int)(test_random(&random) % 40), (int)(test_random(&random) % 24),
                        test_random(&random) % 3); // prompts of three families with common beginnings
            r[i].sequence_key = (uint64_t)i;
        }
        for (Batch *b;;) {
            if (added < MANY && test_random(&random) % 2) scheduler_add(f.s, &r[added++]);
            bool any = scheduler_next(f.s, &b);
            if (!any && added == MANY) break;
            if (!any) continue;
            scheduler_take(f.s, fake_forward(&f, b));
            for (int i = 0; i < added; i++)
                if (r[i].finish != RUNNING) kvcache_release(&f.kv, r[i].seq);
            if (f.n_steps > 50000) fail_msg("no end");
        }
        preempted += scheduler_preemptions(f.s);
        for (int i = 0; i < MANY; i++) {
            assert_int_equal(r[i].finish, FINISH_LENGTH);
            assert_text(&r[i]);
            request_free(&f, &r[i]);
        }
        assert_int_equal(f.kv.n_free, f.kv.pool->n_blocks);
        fake_close(&f);
    }
    assert_true(preempted > 100);
}

// If the oldest of three requests finds no block, the newest is preempted, not the one between them.
static void test_the_newest_is_preempted(void **state) {
    (void)state;
    static FakeEngine f;
    Request r[3];
    Batch *b;
    fake_open(&f, 8, 8, 64, 3); // 64 slots
    for (int i = 0; i < 3; i++) {
        request_new(&r[i], 14 + 2 * (i == 0), 30, (uint64_t)i); // the first needs a third block first
        scheduler_add(f.s, &r[i]);
    }
    while (scheduler_preemptions(f.s) == 0) {
        assert_true(scheduler_next(f.s, &b));
        scheduler_take(f.s, fake_forward(&f, b));
    }
    assert_true(request_has_blocks(&r[0]));
    assert_true(request_has_blocks(&r[1]));
    assert_false(request_has_blocks(&r[2]));
    run_and_release(&f, r, 3);
    for (int i = 0; i < 3; i++) {
        assert_text(&r[i]);
        request_free(&f, &r[i]);
    }
    fake_close(&f);
}

// A request that has arrived before it is added keeps the time of its arrival; others arrive when they are added.
static void test_time_of_arrival(void **state) {
    (void)state;
    static FakeEngine f;
    Request r[2];
    double before = clock_now();
    fake_open(&f, 8, 0, 16, 4);
    for (int i = 0; i < 2; i++) request_new(&r[i], 5, 3, (uint64_t)i);
    r[0].time.start = before / 2;
    for (int i = 0; i < 2; i++) scheduler_add(f.s, &r[i]);
    assert_true(r[0].time.start == before / 2);
    assert_true(r[1].time.start >= before && r[1].time.start <= clock_now());
    run_all(&f);
    assert_true(r[0].time.start == before / 2);
    for (int i = 0; i < 2; i++) request_free(&f, &r[i]);
    fake_close(&f);
}

static void test_empty(void **state) {
    (void)state;
    static FakeEngine f;
    Batch *b;
    fake_open(&f, 8, 0, 16, 4);
    assert_false(scheduler_next(f.s, &b));
    fake_close(&f);
    scheduler_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_a_new_step_is_empty),
        cmocka_unit_test(test_prompt_in_chunks),
        cmocka_unit_test(test_decode_rows_come_first),
        cmocka_unit_test(test_prompts_share_a_step),
        cmocka_unit_test(test_together_as_alone),
        cmocka_unit_test(test_reused_prefix),
        cmocka_unit_test(test_forked_requests),
        cmocka_unit_test(test_fetched_slots),
        cmocka_unit_test(test_requests_wait_for_blocks),
        cmocka_unit_test(test_chunks_wait_for_blocks),
        cmocka_unit_test(test_full_pool_ends),
        cmocka_unit_test(test_shared_prefix_is_computed_once),
        cmocka_unit_test(test_long_prompts_delay_nobody_by_more_than_a_step),
        cmocka_unit_test(test_all_begin_where_there_is_room),
        cmocka_unit_test(test_nobody_is_passed_over),
        cmocka_unit_test(test_waits_behind_a_newer_one),
        cmocka_unit_test(test_the_running_one_ends),
        cmocka_unit_test(test_preemption_changes_nothing),
        cmocka_unit_test(test_the_newest_is_preempted),
        cmocka_unit_test(test_time_of_arrival),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
